//! Everything random in a simulated world, from its seed.
//!
//! What befalls an operation follows from the seed and from which operation it is (whose, what, where, for the how many-th
//! time), never from what came before elsewhere: taking one fault away leaves the others where they were.

use std::collections::hash_map::DefaultHasher;
use std::hash::{Hash, Hasher};

/// A row of numbers that follows from its seed. SplitMix64, by Steele, Lea and Flood.
#[derive(Debug, Clone)]
pub(super) struct Dice(u64);

impl Dice {
    #[cfg(test)]
    pub(super) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// The numbers of `what` in the world of `seed`.
    pub(super) fn of(seed: u64, what: &impl Hash) -> Self {
        Self(hash(&(seed, what)))
    }

    pub(super) fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// A number below `bound`, which is not 0.
    pub(super) fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    /// A number from `low` to `high`, both included.
    pub(super) fn between(&mut self, low: u64, high: u64) -> u64 {
        low + self.below(high - low + 1)
    }

    /// A number of any size: from `least` to a power of two between `2^low` and `2^high`.
    pub(super) fn of_any_size(&mut self, least: u64, low: u64, high: u64) -> u64 {
        let most = 1 << self.between(low, high);
        self.between(least, most)
    }

    /// True `times` in a thousand.
    pub(super) fn thousandths(&mut self, times: u64) -> bool {
        self.below(1000) < times
    }

    /// One of `options`, of which there is one at least.
    pub(super) fn one_of<T: Copy>(&mut self, options: &[T]) -> T {
        let at = self.below(options.len() as u64);
        options[usize::try_from(at).unwrap_or(0)]
    }
}

/// A hash that is the same in every run: the standard hasher has fixed keys when made like this.
pub(super) fn hash(what: &impl Hash) -> u64 {
    let mut hasher = DefaultHasher::new();
    what.hash(&mut hasher);
    hasher.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_numbers_and_another_gives_others() {
        let some = |seed| (0..4).map(|_| 0).scan(Dice::new(seed), |dice, _: u8| Some(dice.next())).collect::<Vec<u64>>();
        assert_eq!(some(7), some(7));
        assert_ne!(some(7), some(8));
    }

    #[test]
    fn numbers_stay_within_their_bounds_and_reach_them() {
        let mut dice = Dice::new(1);
        let drawn: Vec<u64> = (0..200).map(|_| dice.between(3, 5)).collect();
        assert_eq!((drawn.iter().min(), drawn.iter().max()), (Some(&3), Some(&5)));
        assert!((0..200).all(|_| !dice.thousandths(0)) && (0..200).all(|_| dice.thousandths(1000)));
    }
}

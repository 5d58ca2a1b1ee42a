//! The machine that a simulated process runs on: ids from the seed, time of the world.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use alluvium_engine::Clock;
use alluvium_lake::{Machine, ProcessId};
use futures::FutureExt;
use futures::future::BoxFuture;
use uuid::{Builder, Uuid};

use super::dice::{Dice, hash};
use super::world::World;
use crate::clock::StepClock;

/// One life of one process.
#[derive(Debug)]
pub(super) struct SimMachine {
    world: World,
    process: usize,
    life: u32,
    /// How far its clock is from the world's.
    skew_micros: i64,
    drawn: AtomicU64,
    slept: AtomicU64,
}

impl SimMachine {
    pub(super) fn new(world: &World, process: usize, life: u32, skew_micros: i64) -> Self {
        Self { world: world.clone(), process, life, skew_micros, drawn: AtomicU64::new(0), slept: AtomicU64::new(0) }
    }
}

impl Machine for SimMachine {
    fn fresh_id(&self) -> Uuid {
        let number = self.drawn.fetch_add(1, Ordering::SeqCst);
        let mut dice = Dice::of(self.world.seed(), &("id", self.process, self.life, number));
        let high = u128::from(dice.next()) << 64;
        Builder::from_random_bytes((high | u128::from(dice.next())).to_be_bytes()).into_uuid()
    }

    fn elapsed(&self) -> Duration {
        Duration::from_nanos(self.world.now())
    }

    fn sleep(&self, time: Duration) -> BoxFuture<'static, ()> {
        let number = self.slept.fetch_add(1, Ordering::SeqCst);
        let turn = hash(&("sleep", self.world.seed(), self.process, self.life, number));
        let (world, of) = (self.world.clone(), (self.process, self.life));
        async move { world.wait(Some(of), time, turn).await }.boxed()
    }

    /// Nobody can tell: leases have to run out.
    fn process(&self) -> Option<ProcessId> {
        None
    }
}

impl Clock for SimMachine {
    fn now_micros(&self) -> i64 {
        StepClock::START_MICROS + (self.world.now() / 1000).cast_signed() + self.skew_micros
    }
}

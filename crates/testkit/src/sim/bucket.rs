//! The storage that all processes of a world share: objects by name, with all that they ever were.
//!
//! It remembers when each object came and went, so that a listing can show what was there a while ago.

use std::collections::BTreeMap;

use bytes::Bytes;
use object_store::path::Path;

/// Nanoseconds since the world began.
pub(super) type Instant = u64;

/// An object as it was between two moments.
#[derive(Debug, Clone)]
pub(super) struct Object {
    pub(super) bytes: Bytes,
    pub(super) put_at: Instant,
    gone_at: Instant,
    /// Of two objects of one name, the later has the greater number.
    pub(super) number: u64,
}

/// The objects.
#[derive(Debug, Default)]
pub(super) struct Bucket {
    objects: BTreeMap<Path, Vec<Object>>,
    puts: u64,
}

impl Bucket {
    /// The object that stands at `path`.
    pub(super) fn get(&self, path: &Path) -> Option<&Object> {
        self.objects.get(path)?.last().filter(|o| o.gone_at == Instant::MAX)
    }

    /// Puts an object; with `create`, only if nothing stands there. Whether it was put.
    pub(super) fn put(&mut self, path: &Path, bytes: Bytes, create: bool, now: Instant) -> bool {
        if self.get(path).is_some() {
            if create {
                return false;
            }
            self.delete(path, now);
        }
        self.puts += 1;
        let object = Object { bytes, put_at: now, gone_at: Instant::MAX, number: self.puts };
        self.objects.entry(path.clone()).or_default().push(object);
        true
    }

    /// Deletes what stands at `path`. Whether there was something.
    pub(super) fn delete(&mut self, path: &Path, now: Instant) -> bool {
        let last = self.objects.get_mut(path).and_then(|all| all.last_mut());
        match last.filter(|o| o.gone_at == Instant::MAX) {
            Some(object) => {
                object.gone_at = now;
                true
            }
            None => false,
        }
    }

    /// The objects below `prefix` (all, without it) that were there at `then`, in the order of their names.
    pub(super) fn list(&self, prefix: Option<&Path>, then: Instant) -> impl Iterator<Item = (&Path, &Object)> {
        let below = move |path: &Path| prefix.is_none_or(|p| p.as_ref().is_empty() || (path.prefix_matches(p) && path != p));
        self.objects.iter().filter(move |(path, _)| below(path)).filter_map(move |(path, all)| {
            let there = all.iter().rev().find(|o| o.put_at <= then && then < o.gone_at);
            there.map(|object| (path, object))
        })
    }

    /// The first object that was ever put at each path below `prefix`, gone or not: what came later under the same name, nobody
    /// took for it.
    pub(super) fn ever(&self, prefix: &str) -> impl Iterator<Item = (&str, &Object)> {
        let prefix = Path::from(prefix);
        let below = self.objects.iter().filter(move |(path, _)| path.prefix_matches(&prefix));
        below.filter_map(|(path, all)| Some((path.as_ref(), all.first()?)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(bucket: &Bucket, prefix: &str, then: Instant) -> Vec<String> {
        let prefix = Path::from(prefix);
        bucket.list(Some(&prefix), then).map(|(path, _)| path.to_string()).collect()
    }

    #[test]
    fn a_listing_of_the_past_shows_what_was_there_then() {
        let mut bucket = Bucket::default();
        assert!(bucket.put(&Path::from("d/b"), Bytes::from_static(b"1"), true, 10));
        assert!(bucket.put(&Path::from("d/a"), Bytes::from_static(b"2"), true, 20));
        assert!(bucket.put(&Path::from("da"), Bytes::new(), true, 20));
        assert!(bucket.delete(&Path::from("d/b"), 30));
        assert!(!bucket.delete(&Path::from("d/b"), 31));
        assert_eq!(names(&bucket, "d", 9), [""; 0]);
        assert_eq!(names(&bucket, "d", 20), ["d/a", "d/b"]);
        assert_eq!(names(&bucket, "d", 30), ["d/a"]);
        assert_eq!(names(&bucket, "", 30), ["d/a", "da"]);
    }

    #[test]
    fn put_if_absent_is_refused_until_the_name_is_free_again() {
        let (mut bucket, path) = (Bucket::default(), Path::from("a"));
        assert!(bucket.put(&path, Bytes::from_static(b"1"), true, 1));
        assert!(!bucket.put(&path, Bytes::from_static(b"2"), true, 2));
        assert!(bucket.put(&path, Bytes::from_static(b"3"), false, 3));
        assert_eq!(bucket.get(&path).map(|o| o.bytes.clone()), Some(Bytes::from_static(b"3")));
        assert!(bucket.delete(&path, 4) && bucket.get(&path).is_none());
        assert!(bucket.put(&path, Bytes::from_static(b"4"), true, 5));
    }
}

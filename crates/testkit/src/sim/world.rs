//! Time, order and faults of a simulated world.
//!
//! All processes run as tasks on one thread. Whatever they wait for (an operation of the store, a sleep) waits for an event here;
//! when nothing on the thread can go on, and no work is away on other threads, the thread is about to park, and the next event
//! happens: time jumps to it and one waiter goes on. So only one thing happens at a time, and in the same order in every run.
//! Operations of threads that work for a process (delta-rs's reading of logs) are answered at once, between two events.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread::ThreadId;
use std::time::Duration;

use alluvium_lake::Away;
use tokio::sync::oneshot;

use super::bucket::{Bucket, Instant};
use super::dice::hash;
use super::fate::{Fate, Fault, Site, Verb, Weather, fate, place};

/// A world in which more happens than this does not come to an end.
const MAX_EVENTS: u64 = 30_000;

/// A world: cheap to clone, all clones are the same.
#[derive(Clone)]
pub(super) struct World {
    seed: u64,
    weather: Weather,
    main: ThreadId,
    /// Only faults at these sites happen; without it, all do.
    allowed: Option<Arc<BTreeSet<u64>>>,
    /// Counts what happened, for whoever watches from outside.
    progress: Arc<AtomicU64>,
    inner: Arc<Mutex<Inner>>,
}

/// What may happen next.
enum Event {
    /// A waiter goes on.
    Wake(oneshot::Sender<()>),
    /// Something happens to the bucket.
    Act(Box<dyn FnOnce(&mut Inner) + Send>),
}

struct Pending {
    /// Whose it is; nobody's goes on through deaths and pauses.
    of: Option<(usize, u32)>,
    event: Event,
}

/// What changes in a world.
pub(super) struct Inner {
    pub(super) now: Instant,
    pub(super) bucket: Bucket,
    /// Log entries that a cleanup took away: part of the tables' history all the same.
    pub(super) cleaned: BTreeMap<object_store::path::Path, bytes::Bytes>,
    events: BTreeMap<(Instant, u64, u64), Pending>,
    registered: u64,
    happened: u64,
    lives: HashMap<usize, Life>,
    counts: HashMap<Site, u32>,
    hits: Vec<Hit>,
    story: Story,
    /// Told when nothing can happen any more, or too much has.
    ended: Option<oneshot::Sender<String>>,
}

#[derive(Debug, Default)]
struct Life {
    number: u32,
    dead: bool,
    may_die: bool,
    /// Stands still until then.
    paused_until: Instant,
    /// Faults that its operations may have failed of.
    faults: u32,
    death: Option<oneshot::Sender<()>>,
}

/// A fault that happened.
#[derive(Debug, Clone)]
pub(super) struct Hit {
    pub(super) id: u64,
    pub(super) at: Instant,
    pub(super) site: Site,
    pub(super) fault: Fault,
}

/// What happened, as lines for people if they are wanted, and as a number that is the same for the same history.
#[derive(Debug, Default)]
pub(super) struct Story {
    pub(super) told: Option<Vec<String>>,
    pub(super) digest: u64,
    pub(super) operations: u64,
}

impl Story {
    fn add(&mut self, now: Instant, line: impl FnOnce() -> String, what: u64) {
        self.digest = hash(&(self.digest, now, what));
        self.operations += 1;
        if let Some(told) = &mut self.told {
            told.push(format!("{:>9.3} ms  {}", now as f64 / 1e6, line()));
        }
    }
}

impl fmt::Debug for World {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "World({})", self.seed)
    }
}

impl World {
    /// A world at its beginning, on this thread; and what tells that it cannot go on.
    pub(super) fn new(
        seed: u64,
        weather: Weather,
        allowed: Option<Arc<BTreeSet<u64>>>,
        tell: bool,
        progress: Arc<AtomicU64>,
    ) -> (Self, oneshot::Receiver<String>) {
        let (ended, end) = oneshot::channel();
        let inner = Inner {
            now: 0,
            bucket: Bucket::default(),
            cleaned: BTreeMap::new(),
            events: BTreeMap::new(),
            registered: 0,
            happened: 0,
            lives: HashMap::new(),
            counts: HashMap::new(),
            hits: Vec::new(),
            story: Story { told: tell.then(Vec::new), ..Story::default() },
            ended: Some(ended),
        };
        let main = std::thread::current().id();
        (Self { seed, weather, main, allowed, progress, inner: Arc::new(Mutex::new(inner)) }, end)
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    pub(super) fn inner(&self) -> MutexGuard<'_, Inner> {
        self.inner.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn now(&self) -> Instant {
        self.inner().now
    }

    /// Whether the caller is on the world's own thread, where waiting takes time.
    pub(super) fn here(&self) -> bool {
        std::thread::current().id() == self.main
    }

    /// Called when the world's thread is about to park: lets the next event happen, if everything is still.
    pub(super) fn on_park(&self) {
        if Away::outstanding() > 0 {
            return;
        }
        let mut inner = self.inner();
        if inner.ended.is_none() {
            return;
        }
        if inner.happened >= MAX_EVENTS {
            inner.end(format!("no end after {MAX_EVENTS} events"));
            return;
        }
        while let Some(((at, turn, number), pending)) = inner.events.pop_first() {
            if let Some((process, life)) = pending.of {
                let Some(owner) = inner.lives.get(&process).filter(|l| !l.dead && l.number == life) else { continue };
                if owner.paused_until > at {
                    let until = owner.paused_until;
                    inner.events.insert((until, turn, number), pending);
                    continue;
                }
            }
            inner.now = inner.now.max(at);
            inner.happened += 1;
            self.progress.fetch_add(1, Ordering::Relaxed);
            match pending.event {
                Event::Wake(waiter) => {
                    if waiter.send(()).is_ok() {
                        return;
                    }
                }
                Event::Act(act) => act(&mut inner),
            }
        }
        inner.end("nothing can go on, and nobody is done".to_owned());
    }

    /// Waits until `time` has passed, for a life of a process or for nobody. Never ends for one that is dead.
    pub(super) async fn wait(&self, of: Option<(usize, u32)>, time: Duration, turn: u64) {
        let waiter = {
            let mut inner = self.inner();
            let (sender, receiver) = oneshot::channel();
            let at = inner.now + nanos(time);
            inner.add(at, turn, Pending { of, event: Event::Wake(sender) });
            receiver
        };
        if waiter.await.is_err() {
            std::future::pending::<()>().await;
        }
    }

    /// Lets time pass, while nobody can do anything.
    pub(super) fn pass(&self, time: Duration) {
        self.inner().now += nanos(time);
    }

    /// Lets `act` happen after `time`, whoever is dead by then.
    pub(super) fn later(&self, time: Duration, turn: u64, act: impl FnOnce(&mut Inner) + Send + 'static) {
        let mut inner = self.inner();
        let at = inner.now + nanos(time);
        inner.add(at, turn, Pending { of: None, event: Event::Act(Box::new(act)) });
    }

    /// Begins the next life of a process. The receiver hears of its death.
    pub(super) fn begin_life(&self, process: usize, may_die: bool) -> (u32, oneshot::Receiver<()>) {
        let mut inner = self.inner();
        let (death, died) = oneshot::channel();
        let number = inner.lives.get(&process).map_or(0, |l| l.number + 1);
        let life = Life { number, may_die, death: Some(death), ..Life::default() };
        inner.lives.insert(process, life);
        (number, died)
    }

    /// Ends a life whose process is done: what is left of it does nothing more. How many faults it met that it may fail of.
    pub(super) fn end_life(&self, process: usize) -> u32 {
        let mut inner = self.inner();
        let Some(life) = inner.lives.get_mut(&process) else { return 0 };
        life.dead = true;
        life.faults
    }

    /// What befalls the next operation of this kind. A fault is chosen only where one may happen.
    pub(super) fn fate(&self, process: usize, life: u32, verb: Verb, path: &str, with_faults: bool) -> (Site, Fate) {
        let mut inner = self.inner();
        let mut site = Site { process, life, verb, place: place(path), nth: 0 };
        let count = inner.counts.entry(site.clone()).or_default();
        site.nth = *count;
        *count += 1;
        let may_die = inner.lives.get(&process).is_some_and(|l| l.may_die);
        let mut fate = fate(self.seed, &site, &self.weather, may_die);
        if !with_faults {
            fate.fault = None;
        }
        if let Some(fault) = fate.fault {
            let id = hash(&site);
            if self.allowed.as_ref().is_none_or(|allowed| allowed.contains(&id)) {
                let now = inner.now;
                inner.hits.push(Hit { id, at: now, site: site.clone(), fault });
                if fault.may_fail()
                    && let Some(life) = inner.lives.get_mut(&process)
                {
                    life.faults += 1;
                }
            } else {
                fate.fault = None;
            }
        }
        (site, fate)
    }

    /// Whether that life is over.
    pub(super) fn is_dead(&self, process: usize, life: u32) -> bool {
        self.inner().lives.get(&process).is_none_or(|l| l.dead || l.number != life)
    }

    /// Ends a life by force.
    pub(super) fn kill(&self, process: usize) {
        let mut inner = self.inner();
        if let Some(life) = inner.lives.get_mut(&process) {
            life.dead = true;
            let _who_listens_hears_it = life.death.take().map(|d| d.send(()));
        }
    }

    /// Lets a process stand still for a while.
    pub(super) fn pause(&self, process: usize, time: Duration) {
        let mut inner = self.inner();
        let until = inner.now + nanos(time);
        if let Some(life) = inner.lives.get_mut(&process) {
            life.paused_until = life.paused_until.max(until);
        }
    }

    /// Adds to the world's story.
    pub(super) fn tell(&self, line: impl FnOnce() -> String, what: u64) {
        self.inner().tell(line, what);
    }

    /// The faults that happened, and the story, which ends here.
    pub(super) fn finish(&self) -> (Vec<Hit>, Story) {
        let mut inner = self.inner();
        inner.ended = None;
        inner.events.clear();
        (std::mem::take(&mut inner.hits), std::mem::take(&mut inner.story))
    }
}

impl Inner {
    /// Adds to the world's story.
    pub(super) fn tell(&mut self, line: impl FnOnce() -> String, what: u64) {
        let now = self.now;
        self.story.add(now, line, what);
    }

    fn add(&mut self, at: Instant, turn: u64, pending: Pending) {
        self.registered += 1;
        self.events.insert((at, turn, self.registered), pending);
    }

    fn end(&mut self, why: String) {
        let _who_listens_hears_it = self.ended.take().map(|e| e.send(why));
    }
}

fn nanos(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX / 4)
}

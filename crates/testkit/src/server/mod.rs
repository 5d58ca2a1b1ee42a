//! Stores to test on: the local disk, and real servers of object stores that are started on loopback where their programs are.
//!
//! A server listens on a free port, keeps its objects in a directory that goes with it, and is stopped, by its own process id, when it
//! is dropped.

mod azure;
mod proxy;
mod s3;

use std::fs;
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use object_store::ObjectStore;
use object_store::local::LocalFileSystem;

pub use proxy::{Outcome, Proxy, Request};

/// A server that does not listen by then will not.
const START_DEADLINE: Duration = Duration::from_secs(60);
/// The bucket or container that every server has.
pub(crate) const BUCKET: &str = "lake";

/// A kind of store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum StoreKind {
    /// A directory.
    Local,
    /// S3, by versitygw.
    S3,
    /// Azure Blob Storage, by Azurite.
    Azure,
}

/// A store to test on.
#[derive(Debug)]
pub struct TestStore {
    kind: StoreKind,
    storage: String,
    env: Vec<(String, String)>,
    store: Arc<dyn ObjectStore>,
    address: Option<SocketAddr>,
    _server: Option<Server>,
}

impl TestStore {
    /// Starts a store of that kind; `None`, said so, where its program is not there. `directory` is where a local one is, and what
    /// `storage` of a project file in it means.
    ///
    /// # Panics
    /// If the program is there and does not work.
    #[must_use]
    pub fn start(kind: StoreKind, directory: &Path) -> Option<Self> {
        match kind {
            StoreKind::Local => {
                let lake = directory.join("lake");
                fs::create_dir_all(&lake).unwrap_or_else(|e| panic!("making {}: {e}", lake.display()));
                let store = LocalFileSystem::new_with_prefix(lake).unwrap_or_else(|e| panic!("{e}"));
                Some(Self {
                    kind,
                    storage: "./lake".to_owned(),
                    env: Vec::new(),
                    store: Arc::new(store),
                    address: None,
                    _server: None,
                })
            }
            StoreKind::S3 => s3::start(),
            StoreKind::Azure => azure::start(),
        }
    }

    /// Which kind it is.
    #[must_use]
    pub const fn kind(&self) -> StoreKind {
        self.kind
    }

    /// What a project file calls it.
    #[must_use]
    pub fn storage(&self) -> &str {
        &self.storage
    }

    /// A place in the same store beside [`TestStore::storage`], for sources; a path in the project's directory on the local disk.
    #[must_use]
    pub fn beside(&self, name: &str) -> String {
        match self.storage.rsplit_once('/') {
            Some((above, _)) => format!("{above}/{name}"),
            None => format!("./{name}"),
        }
    }

    /// The environment in which the program finds it.
    #[must_use]
    pub fn env(&self) -> &[(String, String)] {
        &self.env
    }

    /// The whole of the store that [`TestStore::storage`] is in: tables of a project are below `lake/` on servers.
    #[must_use]
    pub fn whole(&self) -> Arc<dyn ObjectStore> {
        self.store.clone()
    }

    /// The store that a project's tables are in, as the project sees it.
    #[must_use]
    pub fn lake(&self) -> Arc<dyn ObjectStore> {
        match self.kind {
            StoreKind::Local => self.store.clone(),
            _ => Arc::new(object_store::prefix::PrefixStore::new(self.store.clone(), "lake")),
        }
    }

    /// Where its server listens.
    #[must_use]
    pub const fn address(&self) -> Option<SocketAddr> {
        self.address
    }

    /// The same store by way of a proxy.
    #[must_use]
    pub fn env_through(&self, proxy: &Proxy) -> Vec<(String, String)> {
        let direct = self.address.map(|a| a.to_string()).unwrap_or_default();
        self.env.iter().map(|(name, value)| (name.clone(), value.replace(&direct, &proxy.address().to_string()))).collect()
    }
}

/// A program of somebody else's that was started for a test.
#[derive(Debug)]
pub(crate) struct Server {
    child: Child,
    directory: PathBuf,
}

impl Server {
    /// Starts `command`, which listens at `address` when it is ready. `directory` goes with it.
    fn start(mut command: Command, address: SocketAddr, directory: PathBuf) -> Self {
        let log = directory.join("server.log");
        let output =
            || fs::File::options().create(true).append(true).open(&log).unwrap_or_else(|e| panic!("{}: {e}", log.display()));
        let started = command.stdin(Stdio::null()).stdout(output()).stderr(output()).spawn();
        let child = started.unwrap_or_else(|e| panic!("starting {command:?}: {e}"));
        let mut server = Self { child, directory };
        let deadline = Instant::now() + START_DEADLINE;
        while TcpStream::connect_timeout(&address, Duration::from_secs(1)).is_err() {
            let ended = server.child.try_wait().ok().flatten();
            let told = fs::read_to_string(&log).unwrap_or_default();
            assert!(ended.is_none() && Instant::now() < deadline, "{command:?} does not listen at {address}: {told}");
            std::thread::sleep(Duration::from_millis(10));
        }
        server
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = fs::remove_dir_all(&self.directory);
    }
}

/// The program that `variable` names, or of that name on the path; `None`, said so, if there is none.
fn program(variable: &str, name: &str) -> Option<PathBuf> {
    if let Some(named) = std::env::var_os(variable) {
        return Some(PathBuf::from(named));
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&path).map(|directory| directory.join(name)).find(|file| file.is_file());
    if found.is_none() {
        eprintln!("skipped: {name} is not there, and {variable} is not set (.ci/run sets it)");
    }
    found
}

/// An address on loopback at which nothing listens now.
fn free_address() -> SocketAddr {
    let listener = TcpListener::bind(("127.0.0.1", 0)).and_then(|l| l.local_addr());
    listener.unwrap_or_else(|e| panic!("a free port: {e}"))
}

/// A new directory for a server.
fn new_directory(name: &str) -> PathBuf {
    let free = free_address().port();
    let directory = std::env::temp_dir().join(format!("alluvium-{name}-{}-{free}", std::process::id()));
    fs::create_dir_all(&directory).unwrap_or_else(|e| panic!("{}: {e}", directory.display()));
    directory
}

fn pairs(env: &[(&str, &str)]) -> Vec<(String, String)> {
    env.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned())).collect()
}

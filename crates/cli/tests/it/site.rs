//! A project directory, the program run in it, and what landed there.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Output, Stdio};
use std::sync::Arc;
use std::time::{Duration, Instant};

use alluvium_testkit::{DatasetCheck, Landed, Proxy, Row, StoreKind, TestStore};
use futures::TryStreamExt;
use object_store::path::Path as StorePath;
use object_store::{ObjectStore, ObjectStoreExt};

/// A project in a directory of its own, over a store of its own.
pub struct Site {
    dir: tempfile::TempDir,
    store: TestStore,
    /// In place of the store's.
    env: Option<Vec<(String, String)>>,
}

impl Site {
    /// A project with this text, whose storage is `./lake`.
    pub fn new(yaml: &str) -> Self {
        let site = Self::empty();
        site.write("alluvium.yaml", yaml);
        site
    }

    /// A directory without a project.
    pub fn empty() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = TestStore::start(StoreKind::Local, dir.path()).expect("the local disk is there");
        // Programs make what is not there.
        fs::remove_dir(dir.path().join("lake")).unwrap();
        Self { dir, store, env: None }
    }

    /// A project over a store of that kind, whose text depends on it; `None`, said so, where no such store can be had.
    pub fn on(kind: StoreKind, yaml: impl Fn(&TestStore) -> String) -> Option<Self> {
        if kind == StoreKind::Local {
            let site = Self::empty();
            site.write("alluvium.yaml", yaml(&site.store));
            return Some(site);
        }
        let dir = tempfile::tempdir().unwrap();
        let store = TestStore::start(kind, dir.path())?;
        let site = Self { dir, store, env: None };
        site.write("alluvium.yaml", yaml(&site.store));
        Some(site)
    }

    /// The store.
    pub fn test_store(&self) -> &TestStore {
        &self.store
    }

    /// From now on the program finds the store with this environment.
    pub fn set_env(&mut self, env: Vec<(String, String)>) {
        self.env = Some(env);
    }

    /// From now on the program reaches the store by way of `proxy`.
    pub fn go_through(&mut self, proxy: &Proxy) {
        self.env = Some(self.store.env_through(proxy));
    }

    /// Puts a file where [`TestStore::beside`] names places: into the project's directory, or beside the lake in its store.
    pub fn deliver(&self, path: &str, content: impl AsRef<[u8]>) {
        if self.store.kind() == StoreKind::Local {
            return self.write(path, content);
        }
        let put = async { self.store.whole().put(&StorePath::parse(path).unwrap(), content.as_ref().to_vec().into()).await };
        block_on(put).unwrap();
    }

    /// The files that were delivered to `place` and are still there.
    pub fn delivered(&self, place: &str) -> usize {
        if self.store.kind() == StoreKind::Local {
            return fs::read_dir(self.path(place)).map_or(0, Iterator::count);
        }
        let listed = async { self.store.whole().list(Some(&StorePath::from(place))).try_collect::<Vec<_>>().await };
        block_on(listed).unwrap().len()
    }

    pub fn path(&self, path: &str) -> PathBuf {
        self.dir.path().join(path)
    }

    /// Writes a file that gets its name whole, as files of a source should.
    pub fn write(&self, path: &str, content: impl AsRef<[u8]>) {
        let path = self.path(path);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        let unfinished = path.with_extension("tmp");
        fs::write(&unfinished, content).unwrap();
        fs::rename(unfinished, path).unwrap();
    }

    /// The directory of a dataset's ingest chain.
    pub fn chain(&self, dataset: &str) -> PathBuf {
        only_entry(&self.path("lake/default/_alluvium/chains")).join(format!("ingest/{dataset}/0"))
    }

    /// The program, to be run in this project; `ALLUVIUM_TEST_PROGRAM` names another build of it, a release say.
    pub fn command(&self, args: &[&str]) -> Command {
        let program = std::env::var_os("ALLUVIUM_TEST_PROGRAM").unwrap_or_else(|| env!("CARGO_BIN_EXE_alluvium").into());
        let mut command = Command::new(program);
        command.args(args).current_dir(self.dir.path()).stdin(Stdio::null());
        for name in ["ALLUVIUM_PROJECT", "ALLUVIUM_NAMESPACE", "ALLUVIUM_MEMORY", "RUST_LOG"] {
            command.env_remove(name);
        }
        let of_a_store = |name: &str| ["AWS_", "GOOGLE_", "AZURE_", "AZURITE_"].iter().any(|prefix| name.starts_with(prefix));
        for (name, _) in std::env::vars().filter(|(name, _)| of_a_store(name)) {
            command.env_remove(name);
        }
        command.envs(self.env.as_deref().unwrap_or_else(|| self.store.env()).iter().map(|(name, value)| (name, value)));
        command
    }

    pub fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    /// Runs the program, which must end with 0; its stdout.
    pub fn ok(&self, args: &[&str]) -> String {
        let output = self.run(args);
        assert_eq!(output.status.code(), Some(0), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8(output.stdout).unwrap()
    }

    /// Starts the program; what it prints is dropped.
    pub fn start(&self, args: &[&str]) -> Child {
        self.command(args).stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
    }

    fn store(&self) -> Arc<dyn ObjectStore> {
        self.store.lake()
    }

    /// The checked content of a dataset's tables.
    pub fn landed(&self, dataset: &str, org: &str) -> Landed {
        let check = DatasetCheck::new(&self.store(), "default", dataset, org);
        block_on(check.landed()).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// The rows of a table.
    pub fn rows(&self, table: &str) -> Vec<Row> {
        let check = DatasetCheck::new(&self.store(), "default", "", "");
        block_on(check.table(table).rows()).unwrap_or_else(|fault| panic!("{fault}"))
    }

    /// What deltalake, DuckDB and Polars see in tables, when they agree; `None`, said so, where there is no Python with them.
    pub fn read_by_others(&self, tables: &[&str], args: &[&str]) -> Option<Vec<serde_json::Value>> {
        let Some(python) = std::env::var_os("ALLUVIUM_TEST_PYTHON") else {
            eprintln!("skipped: other readers, because ALLUVIUM_TEST_PYTHON is not set (.ci/run sets it)");
            return None;
        };
        let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../xtask/python/read_table.py");
        let output = Command::new(python)
            .arg(script)
            .args(args)
            .args(tables.iter().map(|t| match self.store.kind() {
                StoreKind::Local => self.path(&format!("lake/default/{t}")).display().to_string(),
                _ => format!("{}/default/{t}", self.store.storage()),
            }))
            .envs(self.store.env().iter().map(|(name, value)| (name, value)))
            .env("PYTHONDONTWRITEBYTECODE", "1")
            .output()
            .unwrap();
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(output.status.success(), "the readers do not agree: {text}{}", String::from_utf8_lossy(&output.stderr));
        Some(text.lines().map(|line| serde_json::from_str(line).unwrap()).collect())
    }
}

/// Waits for a process until `deadline`; `None` if it goes on.
pub fn wait_until(child: &mut Child, deadline: Instant) -> Option<ExitStatus> {
    loop {
        if let Some(status) = child.try_wait().unwrap() {
            return Some(status);
        }
        if Instant::now() >= deadline {
            return None;
        }
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Waits until `holds`, at most a minute.
pub fn poll(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !holds() {
        assert!(Instant::now() < deadline, "{what}: not within a minute");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// A folder of the shared test data, if it is there.
pub fn test_data(folder: &str) -> Option<PathBuf> {
    let data = std::env::var_os("ALLUVIUM_TEST_DATA")
        .map_or_else(|| Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data"), PathBuf::from);
    let path = data.join(folder);
    if path.exists() {
        return Some(path);
    }
    eprintln!("skipped: {folder} is not among the test data");
    None
}

/// Waits for a future on a thread without a runtime.
pub fn block_on<T>(future: impl Future<Output = T>) -> T {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap().block_on(future)
}

/// The only thing in a directory: that of chains holds one for each life of the namespace.
pub fn only_entry(directory: &Path) -> PathBuf {
    let mut entries = fs::read_dir(directory).unwrap();
    let entry = entries.next().unwrap().unwrap().path();
    assert!(entries.next().is_none(), "{} holds more than one", directory.display());
    entry
}

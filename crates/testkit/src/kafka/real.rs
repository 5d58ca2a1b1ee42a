//! A real broker: one Java process on loopback, with its log in a directory that goes with it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::tools::KafkaTools;

/// The variable that names the directory with the broker's jars; `.ci/run` sets it.
const JARS: &str = "ALLUVIUM_TEST_KAFKA";
/// How long a broker may take to answer.
const START_TIMEOUT: Duration = Duration::from_secs(90);
/// Any id will do for a cluster of one.
const CLUSTER_ID: &str = "MkU3OEVBNTcwNTJENDM2Qg";

/// A broker that lives as long as this value.
pub struct KafkaServer {
    home: TempDir,
    jars: PathBuf,
    port: u16,
    second: u16,
    child: Option<Child>,
}

impl KafkaServer {
    /// Starts a broker. `None`, said so, where there is no Java or no broker.
    ///
    /// # Panics
    /// If the broker is there and does not start.
    #[must_use]
    pub fn start() -> Option<Self> {
        Self::start_with("")
    }

    /// As [`KafkaServer::start`], with more lines of configuration, which go before ours. `{PORT}`, `{CONTROLLER}` and `{SECOND}` stand for
    /// ports: of the listener, of the controller, and of another listener.
    ///
    /// # Panics
    /// As [`KafkaServer::start`].
    #[must_use]
    pub fn start_with(more: &str) -> Option<Self> {
        let Some(jars) = std::env::var_os(JARS).map(PathBuf::from) else {
            eprintln!("skipped: a real Kafka broker, because {JARS} is not set (.ci/run sets it)");
            return None;
        };
        if Command::new("java").arg("-version").stdout(Stdio::null()).stderr(Stdio::null()).status().is_err() {
            eprintln!("skipped: a real Kafka broker, because there is no java");
            return None;
        }
        let home = tempfile::tempdir().expect("a directory for the broker");
        let mut server = Self { home, jars, port: free_port(), second: free_port(), child: None };
        server.configure(more);
        server.run_tool(&["kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "-c"]);
        server.restart();
        Some(server)
    }

    fn configure(&self, more: &str) {
        let (port, controller) = (self.port, free_port());
        let logs = self.home.path().join("logs");
        let text = format!(
            "process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={}
offsets.topic.replication.factor=1
offsets.topic.num.partitions=1
transaction.state.log.replication.factor=1
transaction.state.log.num.partitions=1
transaction.state.log.min.isr=1
group.initial.rebalance.delay.ms=0
auto.create.topics.enable=false
{}
",
            logs.display(),
            more.replace("{PORT}", &port.to_string())
                .replace("{CONTROLLER}", &controller.to_string())
                .replace("{SECOND}", &self.second.to_string())
        );
        fs::write(self.properties(), text).expect("the broker's directory is there");
    }

    fn properties(&self) -> PathBuf {
        self.home.path().join("server.properties")
    }

    fn java(&self) -> Command {
        let mut command = Command::new("java");
        let classes = self.jars.join("*");
        command.args(["-Xmx384m", "-Xshare:auto", "-XX:TieredStopAtLevel=1", "-cp"]).arg(classes);
        command.stdin(Stdio::null()).current_dir(self.home.path());
        command
    }

    fn run_tool(&self, args: &[&str]) {
        let output = self.java().args(args).arg(self.properties()).output().expect("java runs");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Starts the broker again, over the log it had.
    ///
    /// # Panics
    /// If it does not answer in time.
    pub fn restart(&mut self) {
        self.stop();
        let log = fs::File::create(self.log()).expect("the broker's directory is there");
        let errors = log.try_clone().expect("a handle of the log");
        let child = self.java().arg("kafka.Kafka").arg(self.properties()).stdout(log).stderr(errors).spawn();
        self.child = Some(child.expect("java runs"));
        let deadline = Instant::now() + START_TIMEOUT;
        while TcpStream::connect(("127.0.0.1", self.port)).is_err() || !self.tools().answers() {
            assert!(Instant::now() < deadline, "the broker does not answer; its last words: {}", self.last_words());
            std::thread::sleep(Duration::from_millis(50));
        }
    }

    fn log(&self) -> PathBuf {
        self.home.path().join("server.log")
    }

    fn last_words(&self) -> String {
        let text = fs::read_to_string(self.log()).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }

    /// Ends the broker at once, as a crash would.
    pub fn stop(&mut self) {
        if let Some(mut child) = self.child.take() {
            // Both only fail if it has ended already.
            let _ = child.kill();
            let _ = child.wait();
        }
    }

    /// What clients connect to.
    #[must_use]
    pub fn bootstrap(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// The other listener, if the configuration has one.
    #[must_use]
    pub fn second(&self) -> String {
        format!("127.0.0.1:{}", self.second)
    }

    /// Makes topics and records.
    #[must_use]
    pub fn tools(&self) -> KafkaTools {
        KafkaTools::new(&self.bootstrap())
    }

    /// The broker's own directory.
    #[must_use]
    pub fn home(&self) -> &Path {
        self.home.path()
    }
}

impl Drop for KafkaServer {
    fn drop(&mut self) {
        self.stop();
    }
}

fn free_port() -> u16 {
    let listener = TcpListener::bind(("127.0.0.1", 0)).expect("a free port");
    listener.local_addr().expect("it has an address").port()
}

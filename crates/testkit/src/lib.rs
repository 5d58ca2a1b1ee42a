//! For tests only: stores that fail on command, engines over them, and checks of what landed.
//!
//! Place in the flow: none; no crate but tests depends on it. A crash sweep runs an operation once over a [`FaultStore`]
//! without a fault to count its puts, then once for every put with the store dying before and after it, and looks at what
//! a fresh process makes of what was left behind. What landed is read by [`TableReader`], which shares no code with what it
//! checks.

mod aside;
mod check;
mod clock;
mod fault;
mod kafka;
mod lab;
pub mod oracle;
mod pause;
mod residue;
mod server;
pub mod sim;
mod table;
mod tree;
mod walk;

pub use aside::OwnLeases;
pub use check::{DatasetCheck, Landed};
pub use clock::StepClock;
pub use fault::{Fault, FaultStore, Injected, Put, PutKind, injected};
pub use kafka::{KafkaServer, KafkaTools, MemoryCluster, OpenTransaction, Sent};
pub use lab::{Lab, Listener};
pub use oracle::{Accepted, AtPosition, OracleRow, Settling, is_late, matched, naive, settled};
pub use pause::{PauseStore, Step};
pub use residue::residue;
pub use server::{Outcome, Proxy, Request, StoreKind, TestStore};
pub use table::{Add, LogEntry, Row, TableReader};
pub use tree::copy_tree;
pub use walk::{Change, Place, Version, Walk};

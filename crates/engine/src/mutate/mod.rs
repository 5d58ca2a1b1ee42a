//! Mutate: requests become what rows are, exactly once, at about the cost of copying the files they touch.
//!
//! One chain a dataset. A batch moves the data table from one position of the ledger to another: it looks at every file that may hold what
//! changed, splices those that do, and commits onto nothing but the files it has looked at. Invariants: `confluent`, `tables_agree`, `fenced`.

mod earlier;
mod file;
mod plan;
mod run;
mod wanted;
mod whole;

pub use run::WouldChange;

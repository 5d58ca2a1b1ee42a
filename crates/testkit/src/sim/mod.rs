//! A simulated world: several processes of the product's own engine over one store that fails, all from one seed.
//!
//! A seed decides the files, the processes, their order, ids, times and faults; two runs of a seed are the same to the last operation.
//! When a world has come to rest, the tables are read by code that shares nothing with the product, and every record must be
//! exactly one row or one dead letter. A world that fails is made smaller, and told.

mod actors;
mod anew;
mod asked;
mod bucket;
mod cluster;
mod come;
mod dice;
mod fate;
mod hunt;
mod input;
mod judge;
mod machine;
mod plan;
mod readers;
mod rest;
mod run;
mod scratch;
mod store;
#[cfg(test)]
mod tests;
mod topic;
mod world;

pub use hunt::{Hunted, Simulated, explain, hunt, simulate};

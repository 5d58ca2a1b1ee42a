//! The ledger beside the tables: what requests make of rows, folded into files that are looked up within little memory.
//!
//! Place in the flow: when batches of requests are finished, [`DatasetLedger::at`] folds them for each dataset; mutate asks which
//! fates changed, ingest asks for those of the rows it takes. All files follow from the table `requests` and are made again when they
//! are missing.

mod dataset;
mod entry;
mod folding;
mod gather;
mod named;
mod series;

pub(crate) use dataset::{DatasetLedger, shape_of};
pub(crate) use entry::nodes_of;
pub(crate) use series::Series;

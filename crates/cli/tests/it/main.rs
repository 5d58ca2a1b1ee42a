//! The command line as its users meet it: the real binary on small projects.

mod read;

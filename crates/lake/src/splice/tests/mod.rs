//! The splice writer against a naive rewrite, by files of many makes.

#![allow(clippy::unwrap_used)]

mod damage;
mod kinds;
mod random;
mod refusals;

mod support;

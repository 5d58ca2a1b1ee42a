//! The splice writer against a naive rewrite, by files of many makes.

#![allow(clippy::unwrap_used)]

mod damage;
mod random;

mod support;

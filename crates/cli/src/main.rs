//! Alluvium.
fn main() {}

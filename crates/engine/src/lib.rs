//! Alluvium.

//! Requests' tests.

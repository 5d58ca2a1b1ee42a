//! What each command prints.

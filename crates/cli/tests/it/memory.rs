//! The allocator's settings, which come from `.cargo/config.toml` and are lost in silence when they are misspelt there.

use std::process::Command;

#[test]
fn threads_on_a_core_share_an_arena_and_freed_pages_go_back_soon() {
    let mut command = Command::new(env!("CARGO_BIN_EXE_alluvium"));
    let output = command.arg("--version").env("_RJEM_MALLOC_CONF", "stats_print:true").output().unwrap();
    let told = String::from_utf8(output.stderr).unwrap();
    for setting in ["opt.percpu_arena: \"percpu\"", "opt.dirty_decay_ms: 3000 "] {
        assert!(told.contains(setting), "{setting} is not among what jemalloc tells of itself:\n{told}");
    }
}

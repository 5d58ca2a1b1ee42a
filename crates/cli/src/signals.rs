//! Ctrl-C and SIGTERM.

use std::time::Duration;

use alluvium_core::Kind;
use alluvium_engine::Stop;
use tokio::signal::unix::{SignalKind, signal};

/// After this long, what is under way is left to be resumed.
const GRACE: Duration = Duration::from_millis(4500);

/// After this long, something that only reads is ended where it stands.
const READING_GRACE: Duration = Duration::from_secs(1);

/// On the first signal asks to stop at the next safe point; if that takes too long, or on a second signal, the process ends at
/// once: the next run takes up what it left.
pub fn stop_on_signal(stop: &Stop) {
    let stop = stop.clone();
    tokio::spawn(async move {
        wait().await;
        stop.ask();
        eprintln!("stopping: the batch under way is finished, or left to be resumed");
        tokio::select! {
            () = wait() => {}
            () = tokio::time::sleep(GRACE) => {}
        }
        std::process::exit(0);
    });
}

/// As [`stop_on_signal`], for work that leaves nothing behind.
pub fn end_on_signal(stop: &Stop) {
    end_with(stop, Kind::Unavailable.exit_code());
}

fn end_with(stop: &Stop, code: u8) {
    let stop = stop.clone();
    // Listened to from here on, not from when the task first runs.
    let (Ok(mut interrupt), Ok(mut terminate)) = (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) else {
        return;
    };
    tokio::spawn(async move {
        tokio::select! {
            _ = interrupt.recv() => {}
            _ = terminate.recv() => {}
        }
        stop.ask();
        tokio::select! {
            () = wait() => {}
            () = tokio::time::sleep(READING_GRACE) => {}
        }
        std::process::exit(code.into());
    });
}

/// As [`end_on_signal`], for work that goes on until a signal ends it: a clean end.
pub fn end_cleanly_on_signal(stop: &Stop) {
    end_with(stop, 0);
}

async fn wait() {
    match (signal(SignalKind::interrupt()), signal(SignalKind::terminate())) {
        (Ok(mut interrupt), Ok(mut terminate)) => {
            tokio::select! {
                _ = interrupt.recv() => {}
                _ = terminate.recv() => {}
            }
        }
        _ => std::future::pending().await,
    }
}

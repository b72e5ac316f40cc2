//! How long a writer waits, counted in phases of the readers beside it.

use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::Report;

/// Reader phases as they really were (a sleep takes longer than asked for), and the waits of the writer.
#[derive(Debug, Default)]
pub struct Phases {
    held_ns: AtomicU64,
    count: AtomicU64,
    waits: Mutex<Vec<f64>>,
}

impl Phases {
    /// A reader held the lock for `span`.
    pub fn add(&self, span: Duration) {
        self.held_ns
            .fetch_add(span.as_nanos() as u64, Ordering::Relaxed);
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// The writer waited for `span`.
    pub fn waited(&self, span: Duration) {
        self.waits
            .lock()
            .expect("no task panics")
            .push(span.as_nanos() as f64);
    }

    /// The figures.
    pub fn report(&self) -> Report {
        let held = self.held_ns.load(Ordering::Relaxed) as f64;
        let phase = held / self.count.load(Ordering::Relaxed).max(1) as f64;
        let waits = self.waits.lock().expect("no task panics");
        let mut waits: Vec<f64> = waits.iter().map(|ns| ns / phase).collect();
        Report::new("rwfair")
            .percentiles("phases_", &mut waits)
            .put("phase_ms", phase / 1e6)
    }
}

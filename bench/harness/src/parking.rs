//! What tasks that wait take, and how long it takes them to get there and back.

use std::time::Instant;

use crate::{Report, memory_bytes};

/// The `memory` scenario: [`before`](Parking::before) any task is started, when all have [`parked`](Parking::parked), when memory has
/// [`settled`](Parking::settled), and when all were [`woken`](Parking::woken) and have ended.
#[derive(Debug)]
pub struct Parking {
    tasks: usize,
    before: u64,
    bytes: f64,
    park_ms: f64,
    begin: Instant,
}

impl Parking {
    /// None of the tasks exists. The clock of parking starts.
    pub fn before(tasks: usize) -> Parking {
        Parking {
            tasks,
            before: memory_bytes(),
            bytes: 0.0,
            park_ms: 0.0,
            begin: Instant::now(),
        }
    }

    /// All wait.
    pub fn parked(&mut self) {
        self.park_ms = self.elapsed_ms();
    }

    /// All wait for a while. The clock of waking starts.
    pub fn settled(&mut self) {
        self.bytes = memory_bytes().saturating_sub(self.before) as f64 / self.tasks as f64;
        self.begin = Instant::now();
    }

    /// All have ended: reports.
    pub fn woken(self) {
        let wake_ms = self.elapsed_ms();
        Report::new("memory")
            .put("bytes_per_task", self.bytes)
            .put("park_ms", self.park_ms)
            .put("wake_ms", wake_ms)
            .print();
    }

    fn elapsed_ms(&self) -> f64 {
        self.begin.elapsed().as_secs_f64() * 1e3
    }
}

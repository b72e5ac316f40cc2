//! How long a yield takes beside others that hand over to each other for ever.
//!
//! A runtime can make yields fast by never letting the others run. So their turns are counted too, and when they made next to none
//! the run counts as stuck.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use crate::{Args, Report};

/// Durations of yields until the time is up.
#[derive(Debug)]
pub struct Yields {
    begin: Instant,
    span: Duration,
    took: Vec<f64>,
}

impl Yields {
    /// Starts the clock.
    pub fn start(args: &Args) -> Yields {
        let span = Duration::from_secs_f64(args.get("seconds", 5.0));
        Yields {
            begin: Instant::now(),
            span,
            took: Vec::new(),
        }
    }

    /// Notes a yield that began at `begin`; false when the time is up.
    pub fn note(&mut self, begin: Instant) -> bool {
        self.took.push(begin.elapsed().as_secs_f64() * 1e3);
        self.begin.elapsed() < self.span
    }

    /// Reports, with the turns that the others made meanwhile, and ends the process.
    pub fn finish(mut self, turns: u64) -> ! {
        let per_s = turns as f64 / self.begin.elapsed().as_secs_f64();
        Report::new("yieldlat")
            .percentiles("ms_", &mut self.took)
            .put("turns_per_s", per_s)
            .flag("stuck", per_s < 1_000.0)
            .print_and_exit()
    }
}

/// The whole of it for runtimes whose yield is a function.
pub fn yields(args: &Args, turns: &AtomicU64, mut yield_now: impl FnMut()) -> ! {
    let mut yields = Yields::start(args);
    loop {
        let begin = Instant::now();
        yield_now();
        if !yields.note(begin) {
            yields.finish(turns.load(Ordering::Relaxed));
        }
    }
}

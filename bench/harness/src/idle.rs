//! What a process costs that has nothing to do.

use std::thread;
use std::time::Duration;

use crate::{Args, Report, usage};

/// Lets `seconds` pass on the main thread, when the runtime has had time to come to rest, and reports.
pub fn idle(args: &Args) {
    thread::sleep(Duration::from_millis(500));
    let span = args.get("seconds", 5.0);
    let before = usage();
    thread::sleep(Duration::from_secs_f64(span));
    let after = usage();
    let (switches, cpu) = (after.switches - before.switches, after.cpu - before.cpu);
    Report::new("idle")
        .put("switches_per_s", switches as f64 / span)
        .put("cpu_pct", cpu.as_secs_f64() / span * 100.0)
        .print();
}

//! Part 6: being watched.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    let recorder = |id, args| {
        Case::new(6, id, "recorder")
            .args(args)
            .quick("n=100000 rounds=3")
            .low("overhead_percent", "%", Bar::Value(5.0))
    };
    vec![
        recorder("recorder-yield", "procs=1").title("flight recorder: yield, P=1"),
        recorder("recorder-spawn", "procs=1 what=spawn")
            .title("flight recorder: spawn and join, P=1"),
        recorder("recorder-pingpong", "procs=1 what=pingpong")
            .title("flight recorder: channel round trip, P=1"),
        Case::new(6, "dump", "dump")
            .title("dump of 100,000 parked goroutines, P=2")
            .args("procs=2")
            .quick("n=10000")
            .reps(3)
            .low("seconds", "s", Bar::Value(2.0))
            .low("longest_gap_ms", "ms", Bar::Value(5.0)),
        Case::new(6, "export", "export")
            .title("export of a trace of 1M events, P=1")
            .args("procs=1")
            .quick("n=100000")
            .reps(3)
            .low("seconds", "s", Bar::Value(2.0)),
        Case::new(6, "scrape", "scrape")
            .title("/metrics beside 1M goroutines and 1,000 groups, P=2")
            .args("procs=2")
            .quick("n=100000")
            .reps(3)
            .low("median_ms", "ms", Bar::Value(10.0)),
    ]
}

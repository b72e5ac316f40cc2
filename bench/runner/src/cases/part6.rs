//! Part 6: being watched.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    let recorder = |id, title, args| {
        Case::new(6, id, "recorder", title)
            .args(args, &["n=100000", "rounds=3"])
            .low("overhead_percent", "%", Bar::Value(5.0))
    };
    vec![
        recorder(
            "recorder-yield",
            "flight recorder: yield, P=1",
            &["procs=1"],
        ),
        recorder(
            "recorder-spawn",
            "flight recorder: spawn and join, P=1",
            &["procs=1", "what=spawn"],
        ),
        recorder(
            "recorder-pingpong",
            "flight recorder: channel round trip, P=1",
            &["procs=1", "what=pingpong"],
        ),
        Case::new(6, "dump", "dump", "dump of 100,000 parked goroutines, P=2")
            .args(&["procs=2"], &["n=10000"])
            .reps(3)
            .low("seconds", "s", Bar::Value(2.0))
            .low("longest_gap_ms", "ms", Bar::Value(5.0)),
        Case::new(6, "export", "export", "export of a trace of 1M events, P=1")
            .args(&["procs=1"], &["n=100000"])
            .reps(3)
            .low("seconds", "s", Bar::Value(2.0)),
        Case::new(
            6,
            "scrape",
            "scrape",
            "/metrics beside 1M goroutines and 1,000 groups, P=2",
        )
        .args(&["procs=2"], &["n=100000"])
        .reps(3)
        .low("median_ms", "ms", Bar::Value(10.0)),
    ]
}

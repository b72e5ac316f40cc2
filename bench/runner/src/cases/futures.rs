//! Part 4, the other half: futures, and HTTP through hyper.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    let http = |id, args| {
        Case::new(4, id, "http")
            .args(args)
            .quick("seconds=2")
            .with("runnext", "runnext, stacks", "kind=stack")
            .on(&["go", "tokio"])
            .high("requests_per_s", "/s", Bar::Best(1.0))
            .also(Bar::Go(1.7))
            .low("us_p50", "µs", None)
            .low("us_p99", "µs", Bar::Best(1.0))
            .low("cpu_us_per_request", "µs", None)
    };
    vec![
        Case::new(4, "spawn-future", "spawn")
            .title("spawn + await of futures, batches of 1000, P=2")
            .args("procs=2 n=1000000 kind=future")
            .quick("n=100000")
            .with("runnext", "runnext, from a stack", "from=goroutine")
            .on(&["tokio", "smol"])
            .low("ns_per_task", "ns", Bar::Best(1.0)),
        Case::new(4, "memory-future", "memory")
            .title("100k parked futures, P=2")
            .args("procs=2 n=100000 kind=future")
            .reps(3)
            .on(&["tokio", "smol"])
            .low("bytes_per_task", "B", Bar::Value(450.0))
            .low("park_ms", "ms", None)
            .low("wake_ms", "ms", None),
        http("http-2", "procs=2").title("HTTP hello, 64 connections by wrk, P=2, cores shared"),
        http("http-1", "procs=1").title("HTTP hello, 64 connections by wrk, P=1"),
    ]
}

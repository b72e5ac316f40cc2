//! Part 7: how cost grows. Cases named `grow-<what>-<how many>` are the points of one line in the report's plots.

use super::Case;

const RIVALS: &[&str] = &["go", "tokio", "smol", "may"];

pub fn all() -> Vec<Case> {
    [goroutines(), connections(), procs()].concat()
}

fn goroutines() -> Vec<Case> {
    let case = |id, args| {
        Case::new(7, id, "yield")
            .args(args)
            .reps(3)
            .low("ns_per_switch", "ns", None)
    };
    vec![
        case("grow-goroutines-10", "procs=1 tasks=10 yields=400000")
            .title("a switch with 10 goroutines, P=1")
            .quick("yields=40000")
            .on(RIVALS),
        case("grow-goroutines-100", "procs=1 tasks=100 yields=40000")
            .title("a switch with 100 goroutines, P=1")
            .quick("yields=4000")
            .on(RIVALS),
        case("grow-goroutines-1000", "procs=1 tasks=1000 yields=4000")
            .title("a switch with 1,000 goroutines, P=1")
            .quick("yields=400")
            .on(RIVALS),
        case("grow-goroutines-10000", "procs=1 tasks=10000 yields=400")
            .title("a switch with 10,000 goroutines, P=1")
            .quick("yields=40")
            .on(RIVALS),
        // may has two mappings for each coroutine, and no more than 65,530 are allowed.
        case("grow-goroutines-100000", "procs=1 tasks=100000 yields=40")
            .title("a switch with 100,000 goroutines, P=1")
            .quick("yields=10")
            .on(&["go", "tokio", "smol"]),
    ]
}

fn connections() -> Vec<Case> {
    let case = |id, args| {
        Case::new(7, id, "echo")
            .args(args)
            .quick("seconds=1 warm=0.3")
            .reps(3)
            .on(RIVALS)
            .low("server_cpu_us", "µs", None)
    };
    vec![
        case("grow-connections-4", "procs=2 conns=4")
            .title("CPU for an echo with 4 connections, P=2"),
        case("grow-connections-32", "procs=2 conns=32")
            .title("CPU for an echo with 32 connections, P=2"),
        case("grow-connections-256", "procs=2 conns=256")
            .title("CPU for an echo with 256 connections, P=2"),
        case("grow-connections-2048", "procs=2 conns=2048")
            .title("CPU for an echo with 2,048 connections, P=2"),
    ]
}

/// With more processors than cores at the end: what overcommitting costs.
fn procs() -> Vec<Case> {
    let case = |id, args| {
        Case::new(7, id, "spawn")
            .args(args)
            .quick("n=100000")
            .reps(3)
            .on(RIVALS)
            .low("ns_per_task", "ns", None)
    };
    vec![
        case("grow-procs-1", "procs=1 n=500000").title("spawn + join, P=1"),
        case("grow-procs-2", "procs=2 n=500000").title("spawn + join, P=2"),
        case("grow-procs-4", "procs=4 n=500000").title("spawn + join, P=4"),
        case("grow-procs-8", "procs=8 n=500000").title("spawn + join, P=8"),
    ]
}

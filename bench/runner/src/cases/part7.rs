//! Part 7: how cost grows. Cases named `grow-<what>-<how many>` are the points of one line in the report's plots.

use super::Case;

const RIVALS: &[&str] = &["go", "tokio", "smol", "may"];

pub fn all() -> Vec<Case> {
    [goroutines(), connections(), procs()].concat()
}

fn goroutines() -> Vec<Case> {
    let case = |id, title, args, quick| {
        Case::new(7, id, "yield", title)
            .args(args, quick)
            .reps(3)
            .on(RIVALS)
            .low("ns_per_switch", "ns", None)
    };
    // may has two mappings for each coroutine, and no more than 65,530 are allowed.
    let many = Case::new(
        7,
        "grow-goroutines-100000",
        "yield",
        "a switch with 100,000 goroutines, P=1",
    )
    .args(&["procs=1", "tasks=100000", "yields=40"], &["yields=10"])
    .reps(3)
    .on(&["go", "tokio", "smol"])
    .low("ns_per_switch", "ns", None);
    vec![
        case(
            "grow-goroutines-10",
            "a switch with 10 goroutines, P=1",
            &["procs=1", "tasks=10", "yields=400000"],
            &["yields=40000"],
        ),
        case(
            "grow-goroutines-100",
            "a switch with 100 goroutines, P=1",
            &["procs=1", "tasks=100", "yields=40000"],
            &["yields=4000"],
        ),
        case(
            "grow-goroutines-1000",
            "a switch with 1,000 goroutines, P=1",
            &["procs=1", "tasks=1000", "yields=4000"],
            &["yields=400"],
        ),
        case(
            "grow-goroutines-10000",
            "a switch with 10,000 goroutines, P=1",
            &["procs=1", "tasks=10000", "yields=400"],
            &["yields=40"],
        ),
        many,
    ]
}

fn connections() -> Vec<Case> {
    let case = |id, title, args| {
        Case::new(7, id, "echo", title)
            .args(args, &["seconds=1", "warm=0.3"])
            .reps(3)
            .on(RIVALS)
            .low("server_cpu_us", "µs", None)
    };
    vec![
        case(
            "grow-connections-4",
            "CPU for an echo with 4 connections, P=2",
            &["procs=2", "conns=4"],
        ),
        case(
            "grow-connections-32",
            "CPU for an echo with 32 connections, P=2",
            &["procs=2", "conns=32"],
        ),
        case(
            "grow-connections-256",
            "CPU for an echo with 256 connections, P=2",
            &["procs=2", "conns=256"],
        ),
        case(
            "grow-connections-2048",
            "CPU for an echo with 2,048 connections, P=2",
            &["procs=2", "conns=2048"],
        ),
    ]
}

/// With more processors than cores at the end: what overcommitting costs.
fn procs() -> Vec<Case> {
    let case = |id, title, args| {
        Case::new(7, id, "spawn", title)
            .args(args, &["n=100000"])
            .reps(3)
            .on(RIVALS)
            .low("ns_per_task", "ns", None)
    };
    vec![
        case(
            "grow-procs-1",
            "spawn + join, P=1",
            &["procs=1", "n=500000"],
        ),
        case(
            "grow-procs-2",
            "spawn + join, P=2",
            &["procs=2", "n=500000"],
        ),
        case(
            "grow-procs-4",
            "spawn + join, P=4",
            &["procs=4", "n=500000"],
        ),
        case(
            "grow-procs-8",
            "spawn + join, P=8",
            &["procs=8", "n=500000"],
        ),
    ]
}

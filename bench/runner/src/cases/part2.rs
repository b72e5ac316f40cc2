//! Part 2: nothing stalls a P.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    [preemption(), blocked_threads(), costs(), mixed_load()].concat()
}

fn preemption() -> Vec<Case> {
    vec![
        Case::new(2, "preempt-1", "preempt")
            .title("1 ms tick beside 1 tight loop, P=1")
            .args("procs=1 hogs=1")
            .quick("seconds=1")
            .reps(3)
            .on(&["go", "tokio", "may", "threads"])
            .low("late_ms_p50", "ms", Bar::Go(0.05))
            .low("late_ms_p99", "ms", Bar::Go(0.1))
            .low("late_ms_max", "ms", None),
        Case::new(2, "preempt-200", "preempt")
            .title("1 ms tick beside 200 tight loops, P=1")
            .args("procs=1 hogs=200 seconds=6")
            .quick("seconds=3")
            .reps(3)
            .on(&["go", "threads"])
            .low("late_ms_p50", "ms", Bar::Own("preempt-1", 2.0))
            .low("late_ms_p99", "ms", Bar::Own("preempt-1", 2.0))
            .low("late_ms_max", "ms", None),
        Case::new(2, "blocking", "blocking")
            .title("1 ms tick beside 8 × 100 ms of std sleep, P=2")
            .args("procs=2")
            .quick("seconds=1")
            .reps(3)
            .on(&["go", "tokio"])
            .with("tokio", "tokio spawn_blocking", "variant=spawn_blocking")
            .on(&["may", "threads"])
            .low("late_ms_p50", "ms", None)
            .low("late_ms_p99", "ms", None),
    ]
}

fn blocked_threads() -> Vec<Case> {
    let gap = |id, args| {
        Case::new(2, id, "gap")
            .args(args)
            .quick("tries=20")
            .reps(3)
            .on(&["go", "tokio", "threads"])
            .low("gap_ms_p50", "ms", None)
            .low("gap_ms_p99", "ms", Bar::Value(3.0))
    };
    vec![
        gap("gap-sleep", "procs=1 kind=sleep")
            .title("a yielder's longest gap beside a std sleep, P=1"),
        gap("gap-usleep", "procs=1 kind=usleep")
            .title("a yielder's longest gap beside C's usleep, P=1"),
        gap("gap-pipe", "procs=1 kind=pipe")
            .title("a yielder's longest gap beside a pipe read, P=1"),
        gap("gap-mutex", "procs=1 kind=mutex")
            .title("a yielder's longest gap beside a std Mutex, P=1"),
    ]
}

fn costs() -> Vec<Case> {
    vec![
        Case::new(2, "lost", "lost")
            .title("throughput lost to 10 ms slices, and to a 1 kHz tick, P=2")
            .args("procs=2")
            .quick("ms=300")
            .reps(3)
            .on(&["go", "threads"])
            .low("slices_pct", "%", Bar::Value(1.0))
            .low("ticks_pct", "%", Bar::Value(6.0)),
        Case::new(2, "syscall", "syscall")
            .title("what a marked blocking call adds to getppid, P=2")
            .args("procs=2")
            .with("go", "go", "n=1000000")
            .with("tokio", "tokio block_in_place", "n=5000")
            .low("overhead_ns", "ns", Bar::Go(1.0)),
        Case::new(2, "checkpoint", "checkpoint")
            .title("what checkpoint() adds to a loop of 20 ns, P=1")
            .args("procs=1")
            .low("cost_ns", "ns", Bar::Value(1.0)),
    ]
}

fn mixed_load() -> Vec<Case> {
    let tail = |id, args| {
        Case::new(2, id, "tail")
            .args(args)
            .quick("seconds=4")
            .reps(3)
            .on(&["go", "tokio"])
            .with("tokio", "tokio spawn_blocking", "variant=spawn_blocking")
            .on(&["may", "threads"])
            .low("light_ms_p50", "ms", Bar::Best(1.0))
            .low("light_ms_p90", "ms", None)
            .low("light_ms_p99", "ms", Bar::Best(0.35))
            .low("light_ms_p999", "ms", None)
            .low("light_ms_max", "ms", None)
            .low("unanswered", "requests", None)
            .high("heavy_per_s", "/s", Bar::Best(0.97))
            .high("client_min", "requests", None)
            .high("client_max", "requests", None)
    };
    // What a server is that nobody annoys: here queues and threads have to be where there is room.
    let alone = |id, args| {
        Case::new(2, id, "tail")
            .args(args)
            .quick("seconds=2")
            .reps(3)
            .on(&["go", "tokio", "may", "threads"])
            .low("light_ms_p50", "ms", None)
            .low("light_ms_p99", "ms", None)
            .low("light_ms_p999", "ms", None)
            .low("unanswered", "requests", None)
    };
    vec![
        tail("tail-think1", "procs=2 think_us=1000 seconds=15")
            .title("mixed load, heavy clients think 1 ms, P=2"),
        tail("tail-think0", "procs=2 think_us=0 seconds=15")
            .title("mixed load, heavy clients never think, P=2"),
        alone(
            "short",
            "procs=2 clients=0 light_us=100 rate=8000 seconds=4",
        )
        .title("requests of 0.1 ms at a load of half, nobody heavy, P=2"),
        alone(
            "medium",
            "procs=2 clients=0 light_us=400 rate=2500 seconds=4",
        )
        .title("requests of 0.4 ms at a load of more than half, nobody heavy, P=2"),
    ]
}

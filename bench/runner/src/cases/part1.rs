//! Part 1: the scheduler itself.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    [scheduler(), memory(), bystanders()].concat()
}

fn scheduler() -> Vec<Case> {
    let yields = |id, args| {
        Case::new(1, id, "yield")
            .args(args)
            .on(&["go", "tokio"])
            .with("tokio", "tokio self-wake", "variant=selfwake")
            .on(&["smol", "may"])
            .low("ns_per_switch", "ns", Bar::Best(0.5))
    };
    let skynet = |id, args| {
        Case::new(1, id, "skynet")
            .args(args)
            .quick("leaves=100000")
            .reps(3)
            .on(&["go", "tokio", "smol"])
            .low("ms", "ms", Bar::Best(0.7))
    };
    vec![
        yields("yield-2", "procs=1 tasks=2 yields=3000000")
            .title("yield, 2 tasks, P=1")
            .quick("yields=300000")
            .with("threads", "threads", "yields=100000"),
        yields("yield-1000", "procs=1 tasks=1000 yields=6000")
            .title("yield, 1000 tasks, P=1")
            .quick("yields=600")
            .with("threads", "threads", "yields=200"),
        Case::new(1, "spawn", "spawn")
            .title("spawn + join, batches of 1000, P=2")
            .args("procs=2 n=1000000")
            .quick("n=100000")
            .on(&["go", "tokio", "smol", "may"])
            .with("threads", "threads", "n=20000")
            .low("ns_per_task", "ns", Bar::Best(0.6)),
        skynet("skynet-join", "procs=2 leaves=1000000 variant=join")
            .title("skynet over join handles (Go: channels), P=2"),
        skynet("skynet-chan", "procs=2 leaves=1000000 variant=chan")
            .title("skynet over channels, P=2"),
    ]
}

fn memory() -> Vec<Case> {
    vec![
        Case::new(1, "memory-100k", "memory")
            .title("100k parked tasks, P=2")
            .args("procs=2 n=100000")
            .reps(3)
            .with("runnext", "runnext, channel each", "via=chan")
            .on(&["go", "tokio", "smol"])
            .with("may", "may, 10k", "n=10000")
            .with("threads", "threads, 10k", "n=10000")
            .low("bytes_per_task", "B", None)
            .low("park_ms", "ms", None)
            .low("wake_ms", "ms", None),
        Case::new(1, "memory-1m", "memory")
            .title("1M parked tasks, P=2")
            .args("procs=2 n=1000000")
            .quick("n=300000")
            .reps(3)
            .with("runnext", "runnext, channel each", "via=chan")
            .on(&["go", "tokio", "smol"])
            .low("bytes_per_task", "B", Bar::Value(4_800.0))
            .low("park_ms", "ms", Bar::Go(1.0))
            .low("wake_ms", "ms", None),
    ]
}

fn bystanders() -> Vec<Case> {
    let latency = |id, args| {
        Case::new(1, id, "yieldlat")
            .args(args)
            .quick("seconds=1")
            .reps(3)
            .on(&["go", "tokio", "may"])
    };
    let beside_pairs = |id, args| {
        latency(id, args)
            .low("ms_p50", "ms", Bar::Value(5.0))
            .low("ms_p99", "ms", None)
            .high("turns_per_s", "/s", None)
    };
    let wakeup = |id, args| {
        Case::new(1, id, "wakeup")
            .args(args)
            .quick("samples=200")
            .on(&["go", "tokio", "may", "threads"])
            .low("us_p50", "µs", None)
            .low("us_p99", "µs", None)
    };
    vec![
        wakeup("wakeup-spawn", "procs=2 via=spawn")
            .title("idle P takes a new task while its spawner computes, P=2"),
        wakeup("wakeup-wake", "procs=2 via=wake")
            .title("idle P takes a woken task while its waker computes, P=2"),
        beside_pairs("yieldlat-1", "procs=1 pairs=1")
            .title("yield beside 1 ping-pong pair (channels), P=1"),
        beside_pairs("yieldlat-3", "procs=1 pairs=3")
            .title("yield beside 3 ping-pong pairs (channels), P=1"),
        beside_pairs("yieldlat-join", "procs=1 pairs=3 via=join")
            .title("yield beside 3 spawn + join loops, P=1"),
        latency("yieldlat-chains", "procs=1 chains=2")
            .title("yield beside 2 self-respawning chains, P=1")
            .low("ms_p50", "ms", None)
            .low("ms_p99", "ms", Bar::Value(20.0))
            .high("turns_per_s", "/s", None),
        Case::new(1, "idle", "idle")
            .title("an idle process, P=2")
            .args("procs=2")
            .quick("seconds=2")
            .reps(3)
            .on(&["go", "tokio", "may"])
            .low("switches_per_s", "/s", Bar::Value(20.0))
            .low("cpu_pct", "%", Bar::Value(0.2)),
    ]
}

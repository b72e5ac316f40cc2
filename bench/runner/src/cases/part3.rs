//! Part 3: channels, select, locks, timers.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    [channels(), locks(), timers()].concat()
}

fn channels() -> Vec<Case> {
    let ping = |id, args| {
        Case::new(3, id, "pingpong")
            .args(args)
            .quick("n=100000")
            .on(&["go", "tokio", "smol", "may"])
            .with("threads", "threads", "n=20000")
    };
    vec![
        ping("pingpong-1", "procs=1")
            .title("channel round trip, P=1")
            .low("ns_per_round_trip", "ns", Bar::Best(0.5)),
        ping("pingpong-2", "procs=2")
            .title("channel round trip, P=2")
            .low("ns_per_round_trip", "ns", Bar::Best(0.8)),
        Case::new(3, "fanin", "fanin")
            .title("8 producers to 1 consumer, capacity 128, P=2")
            .args("procs=2")
            .quick("n=400000")
            .on(&["go", "tokio", "smol", "may", "threads"])
            .high("m_msgs_per_s", "M msgs/s", Bar::Best(1.3)),
        Case::new(3, "chanself", "chanself")
            .title("buffered send + receive in one task, P=1")
            .args("procs=1")
            .quick("n=1000000")
            .on(&["go", "tokio", "smol", "may"])
            .low("ns_per_pair", "ns", Bar::Go(0.7)),
        Case::new(3, "select2", "select2")
            .title("select of 2 empty channels with default, P=1")
            .args("procs=1")
            .quick("n=1000000")
            .on(&["go"])
            .low("ns_per_select", "ns", Bar::Go(0.8)),
        Case::new(3, "select4", "select4")
            .title("blocked select of 4 channels, P=1")
            .args("procs=1")
            .quick("n=100000")
            .on(&["go"])
            .low("ns_per_select", "ns", Bar::Go(0.8)),
    ]
}

fn locks() -> Vec<Case> {
    vec![
        Case::new(3, "mutex-1", "mutex")
            .title("uncontended lock + unlock, P=1")
            .args("procs=1 tasks=1")
            .quick("n=2000000")
            .on(&["go", "tokio", "may", "threads"])
            .low("ns_per_op", "ns", None)
            .low("over_std_ns", "ns", Bar::Value(5.0)),
        Case::new(3, "mutex-8", "mutex")
            .title("8 tasks contend for a lock, P=2")
            .args("procs=2 tasks=8")
            .quick("n=2000000")
            .on(&["go", "tokio"])
            .with("tokio", "tokio, std lock", "variant=std")
            .on(&["may", "threads"])
            .low("ns_per_op", "ns", Bar::Go(1.0)),
        Case::new(3, "sweep", "sweep")
            .title("lock throughput with 1 to 64 contenders, P=2")
            .args("procs=2")
            .quick("n=2000000")
            .reps(3)
            .on(&["go", "tokio", "may", "threads"])
            .high("lowest_pct_of_peak", "%", Bar::Value(50.0)),
        Case::new(3, "fairness", "fairness")
            .title("wait for a lock that a hog holds for 100 µs at a time, P=2")
            .args("procs=2")
            .quick("n=100")
            .reps(3)
            .on(&["go", "tokio", "may", "threads"])
            .low("us_p50", "µs", None)
            .low("us_p99", "µs", Bar::Go(1.0))
            .low("us_max", "µs", None),
        Case::new(3, "rwfair", "rwfair")
            .title("a writer beside a flood of readers, P=2")
            .args("procs=2")
            .quick("n=100")
            .reps(3)
            .on(&["go", "tokio"])
            .low("phases_p99", "phases", Bar::Value(2.0))
            .low("phases_p50", "phases", None),
    ]
}

fn timers() -> Vec<Case> {
    vec![
        Case::new(3, "timers", "timers")
            .title("100k tasks sleep 10 times 1 to 50 ms, P=2")
            .args("procs=2 n=100000")
            .quick("n=20000")
            .reps(3)
            .on(&["go", "tokio", "smol"])
            .low("total_ms", "ms", Bar::Best(1.0))
            .low("late_ms_p50", "ms", None)
            .low("late_ms_p99", "ms", Bar::Best(1.0))
            .low("late_ms_max", "ms", None),
        Case::new(3, "idlesleep", "idlesleep")
            .title("sleep(100 µs) with nothing else to do, P=2")
            .args("procs=2")
            .quick("n=500")
            .reps(3)
            .on(&["go", "tokio", "smol", "may", "threads"])
            .low("us_p50", "µs", Bar::Go(0.3))
            .low("us_p99", "µs", None),
    ]
}

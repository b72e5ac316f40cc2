//! Part 4: sockets. The load comes from a process of its own, `bench-load`.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    [echo(), connections(), mixed_load()].concat()
}

const RIVALS: &[&str] = &["go", "tokio", "smol", "may", "threads"];

fn echo() -> Vec<Case> {
    let case = |id, args| {
        Case::new(4, id, "echo")
            .args(args)
            .quick("seconds=1 warm=0.3")
            .on(RIVALS)
            .high("per_s", "/s", Bar::Best(1.05))
            .low("us_p50", "µs", None)
            .low("us_p99", "µs", Bar::Best(1.0))
            .low("server_cpu_us", "µs", Bar::Rival("tokio", 0.95))
    };
    vec![
        case("echo-2", "procs=2").title("TCP echo, 64 connections of 64 bytes, P=2, cores shared"),
        case("echo-1", "procs=1").title("TCP echo, 64 connections of 64 bytes, P=1, a core each"),
    ]
}

fn connections() -> Vec<Case> {
    vec![
        Case::new(4, "connections", "connections")
            .title("10k connections that wait, P=2")
            .args("procs=2 n=10000")
            .quick("n=2000")
            .reps(3)
            .on(&["go", "tokio", "smol"])
            .low("bytes_per_connection", "B", Bar::Value(6_144.0)),
        Case::new(4, "storm", "storm")
            .title("2000 connections opened, used and closed, P=2")
            .args("procs=2 n=2000")
            .reps(3)
            .on(RIVALS)
            .high("per_s", "/s", None)
            .low("lost", "", Bar::Value(0.0))
            .low("leaked_fds", "", Bar::Value(0.0)),
        Case::new(4, "deadlines", "deadlines")
            .title("reads that time out after 1 ns to 1 s, P=2")
            .args("procs=2")
            .quick("rounds=30")
            .reps(3)
            .low("early", "", Bar::Value(0.0))
            .low("late_us_p50", "µs", None)
            .low("late_us_p99", "µs", Bar::Value(1_000.0)),
    ]
}

fn mixed_load() -> Vec<Case> {
    let case = |id, args| {
        Case::new(4, id, "tailtcp")
            .args(args)
            .quick("seconds=4")
            .reps(3)
            .on(&["go", "tokio", "threads"])
            .low("light_ms_p50", "ms", Bar::Best(1.0))
            .low("light_ms_p99", "ms", Bar::Best(0.35))
            .high("heavy_per_s", "/s", Bar::Best(0.97))
            .high("fair", "", None)
    };
    vec![
        case("tailtcp", "procs=2").title("mixed load over TCP, heavy clients think 1 ms, P=2"),
        case("tailtcp-think0", "procs=2 think_us=0")
            .title("mixed load over TCP, heavy clients never think, P=2"),
    ]
}

//! Part 5: task groups. Shares and latencies in one process; only the mixed load has a rival, since nobody else has groups.

use super::{Bar, Case};

pub fn all() -> Vec<Case> {
    [
        tax(),
        shares(),
        limits(),
        latency(),
        elastic(),
        stubborn(),
        mixed(),
    ]
    .concat()
}

fn tax() -> Vec<Case> {
    let case = |id, args, bar: Option<Bar>| {
        Case::new(5, id, "group-tax")
            .args(args)
            .quick("yields=500000 pings=200000 spawns=100000 messages=200000 locks=2000000")
            .low("yield_ns", "ns", bar)
            .low("ping_ns", "ns", bar)
            .low("spawn_ns", "ns", bar)
            .low("fanout_ns", "ns", bar)
            .low("mutex_ns", "ns", bar)
    };
    let within = |id, args, factor| case(id, args, Some(Bar::Own("group-unused", factor)));
    vec![
        case("group-unused", "procs=1", None)
            .title("32 yielders, ping-pong, spawn + join, 1 to 1000, a mutex; no groups, P=1"),
        within("group-idle", "procs=1 idle=true", 1.02)
            .title("the same beside one group that is idle"),
        within("group-one", "procs=1 groups=1", 1.05).title("the same, all in one group"),
        within("group-16", "procs=1 groups=16", 1.1).title("the same, over 16 groups"),
    ]
}

fn shares() -> Vec<Case> {
    let cheat = |id, args| {
        Case::new(5, id, "group-cheats")
            .args(args)
            .quick("seconds=1")
            .reps(3)
            .low("gain_percent", "%", Bar::Value(3.0))
    };
    let sleeper = |id, args| {
        Case::new(5, id, "group-sleepers")
            .args(args)
            .quick("seconds=1")
            .reps(3)
            .low("error_percent", "%", Bar::Value(3.0))
    };
    vec![
        Case::new(5, "group-weights", "group-weights")
            .title("weights 1:2:4:8 with 1000, 64, 8, P hogs, P=2")
            .args("procs=2")
            .quick("seconds=2")
            .reps(3)
            .low("error_percent", "%", Bar::Value(2.0))
            .high("jain", "", Bar::Value(0.99))
            .low("felt_ms", "ms", Bar::Value(50.0)),
        sleeper("sleeper", "procs=2 sleepers=1")
            .title("one that sleeps half of the time beside P hogs, P=2")
            .low("wake_ms_p99", "ms", Bar::Value(0.5)),
        sleeper("sleepers", "procs=2 sleepers=4")
            .title("four that sleep half of the time, but want more than their share"),
        cheat("cheat-sleep", "how=sleep").title("one that sleeps just before its slice ends"),
        cheat("cheat-wake", "how=wake")
            .title("one that wakes 10,000 times a second")
            .high("turns_per_s", "/s", None),
        cheat("cheat-yield", "how=yield").title("one that yields all the time"),
        cheat("cheat-spawn", "how=spawn").title("one that spawns all the time"),
        Case::new(5, "group-floor", "group-floor")
            .title("a Low group beside Normal hogs, P=2")
            .args("procs=2")
            .quick("seconds=1")
            .reps(3)
            .high("low_percent", "%", Bar::Value(5.0)),
        Case::new(5, "group-rest", "group-floor")
            .title("a Low group beside a group of one core, P=2")
            .args("procs=2 quota=1")
            .quick("seconds=1")
            .reps(3)
            .high("left_percent", "%", Bar::Value(90.0)),
    ]
}

fn limits() -> Vec<Case> {
    let case = |id, scenario, args| {
        Case::new(5, id, scenario)
            .args(args)
            .with("runnext", "runnext, burst=20", "burst=20")
            .quick("seconds=2")
            .reps(3)
    };
    let quota = |id, args| {
        case(id, "group-quota", args)
            .low("error_percent", "%", Bar::Value(2.0))
            .low("excess_ms", "ms", None)
    };
    vec![
        quota("quota-0.25", "quota=0.25").title("two hogs on 0.25 cores, P=2"),
        quota("quota-0.5", "quota=0.5 procs=1")
            .title("one hog on 0.5 cores, P=1")
            .low("pause_ms", "ms", Bar::Value(5.0)),
        quota("quota-1.5", "quota=1.5").title("two hogs on 1.5 cores, P=2"),
        case("quota-bursty", "group-bursty", "quota=0.5")
            .title("80 % of 0.5 cores in ten bursts a second, P=2")
            .low("burst_ms_p99", "ms", None)
            .low("excess_ms", "ms", None),
        case("quota-server", "group-server", "quota=0.5")
            .title("a server of requests of 0.5 ms at 80 % of 0.5 cores, P=2")
            .low("request_ms_p99", "ms", None)
            .low("excess_ms", "ms", None),
        Case::new(5, "governor", "group-governor")
            .title("four governed groups under a limit of 0.8, P=2")
            .args("procs=2")
            .quick("seconds=2")
            .reps(3)
            .low("error_percent", "%", Bar::Value(2.0))
            .low("most_over_least", "", None),
    ]
}

fn latency() -> Vec<Case> {
    let wake = |id, args| {
        Case::new(5, id, "group-wake")
            .args(args)
            .quick("seconds=1")
            .reps(3)
            .low("late_ms_p99", "ms", Bar::Value(1.0))
            .low("late_ms_p999", "ms", Bar::Value(3.0))
    };
    vec![
        wake("wake-timer", "via=timer").title("High, a timer at 1 kHz, beside 8 Low hogs per P"),
        wake("wake-chan", "via=chan").title("High, a channel at 1 kHz, beside 8 Low hogs per P"),
        wake("wake-socket", "via=socket").title("High, a socket at 1 kHz, beside 8 Low hogs per P"),
        Case::new(5, "group-locks", "group-locks")
            .title("a High waiter, a Low owner, Normal hogs")
            .args("procs=2")
            .quick("seconds=1")
            .reps(3)
            .with("runnext", "runnext, lend=0", "lend=0")
            .low("wait_ms_p99", "ms", Bar::Value(1.4)),
    ]
}

fn elastic() -> Vec<Case> {
    const ALONE: &str = "group-elastic-alone";
    const P99: [&str; 3] = ["phase0_ms_p99", "phase1_ms_p99", "phase2_ms_p99"];
    let case = |id, args, bar: Option<Bar>| {
        let case = Case::new(5, id, "group-elastic")
            .args(args)
            .quick("seconds=1")
            .reps(3);
        P99.iter().fold(case, |case, key| case.low(key, "ms", bar))
    };
    vec![
        case(ALONE, "procs=2 beside=false", None)
            .title("load of 60, 90, 60 %, nothing beside it, P=2"),
        case("group-elastic", "procs=2", Some(Bar::Near(ALONE, 1.2, 0.3)))
            .title("load of 60, 90, 60 % beside Low hogs under CpuLimit::Adaptive, P=2")
            .high("phase0_left_percent", "%", Bar::Value(90.0))
            .high("phase1_left_percent", "%", Bar::Value(90.0))
            .high("phase2_left_percent", "%", Bar::Value(90.0))
            .high("phase1_low_percent", "%", Bar::Value(5.0))
            .high("phase0_busy_percent", "%", Bar::Value(97.0))
            .high("phase1_busy_percent", "%", Bar::Value(97.0))
            .high("phase2_busy_percent", "%", Bar::Value(97.0)),
    ]
}

fn stubborn() -> Vec<Case> {
    let pool = |id, args| {
        Case::new(5, id, "group-pool")
            .args(args)
            .reps(3)
            .low("start_ms_p99", "ms", Bar::Value(5.0))
            .low("threads_most", "", None)
            // The main one, the monitor, the one that makes them; for each P one, and two spare ones.
            .low("threads_later", "", Bar::Value(7.0))
    };
    vec![
        Case::new(5, "group-stubborn", "group-stubborn")
            .title("a timer at 1 kHz beside a loop of 500 ms without checkpoints per P, P=2")
            .args("procs=2")
            .quick("seconds=1")
            .reps(3)
            .low("late_ms_p99", "ms", Bar::Value(15.0)),
        pool("pool-panic", "how=panic").title("the job after each of 100 per P that panic"),
        pool("pool-sleep", "how=sleep").title("the job after each of 100 per P that sleep"),
        pool("pool-block", "how=block").title("the job after each of 100 per P that block"),
    ]
}

fn mixed() -> Vec<Case> {
    let case = |id, args| {
        Case::new(5, id, "group-mixed")
            .args(args)
            .quick("seconds=1")
            .reps(3)
            .low("light_ms_p50", "ms", None)
    };
    vec![
        case("cpuworker-alone", "mode=alone")
            .title("1000 light requests/s, nothing beside them, P=2")
            .on(&["go"])
            .low("light_ms_p99", "ms", None),
        case("cpuworker", "mode=grouped")
            .title("1000 light requests/s beside 12 heavy clients, P=2")
            .on(&["go"])
            .with("runnext", "runnext without groups", "mode=plain")
            .low("light_ms_p99", "ms", Bar::Go(0.1))
            .also(Bar::Near("cpuworker-alone", 1.0, 1.5))
            .high("busy_percent", "%", Bar::Value(97.0))
            .high("heavy_of_left_percent", "%", Bar::Value(95.0))
            .high("heavy_per_s", "/s", None),
    ]
}

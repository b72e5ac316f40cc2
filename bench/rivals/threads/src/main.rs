//! The scenarios on plain operating-system threads. P=1 means: pinned to one core.

mod comm;
mod net;
mod preempt;
mod sched;

fn main() {
    let args = harness::Args::from_env();
    if args.procs() == 1 {
        harness::pin_to_first_cpu();
    }
    match args.scenario.as_str() {
        "yield" => sched::yield_now(&args),
        "spawn" => sched::spawn(&args),
        "memory" => sched::memory(&args),
        "wakeup" => sched::wakeup(&args),
        "preempt" => preempt::preempt(&args),
        "blocking" => preempt::blocking(&args),
        "gap" => preempt::gap(&args),
        "lost" => harness::lost(&args, preempt::load),
        "tail" => preempt::tail(&args),
        "pingpong" => comm::pingpong(&args),
        "fanin" => comm::fan_in(&args),
        "mutex" => comm::mutex(&args),
        "sweep" => comm::sweep(&args),
        "fairness" => comm::fairness(&args),
        "timers" => comm::timers(&args),
        "idlesleep" => comm::idle_sleep(&args),
        "echo" | "connections" | "storm" | "tailtcp" => net::run(&args),
        other => harness::unsupported(other),
    }
}

//! The scenarios on may. Its channels are unbounded; where a scenario wants a bound, a semaphore of credits makes it.

mod comm;
mod net;
mod preempt;
mod sched;

use harness::Args;

fn main() {
    let args = Args::from_env();
    may::config().set_workers(args.procs());
    match args.scenario.as_str() {
        "yield" => sched::yield_now(&args),
        "spawn" => sched::spawn(&args),
        "skynet" => sched::skynet(&args),
        "memory" => sched::memory(&args),
        "wakeup" => sched::wakeup(&args),
        "yieldlat" => sched::yield_latency(&args),
        "idle" => sched::idle(&args),
        "preempt" => preempt::preempt(&args),
        "blocking" => preempt::blocking(&args),
        "tail" => preempt::tail(&args),
        "pingpong" => comm::pingpong(&args),
        "fanin" => comm::fan_in(&args),
        "chanself" => comm::chan_self(&args),
        "mutex" => comm::mutex(&args),
        "sweep" => comm::sweep(&args),
        "fairness" => comm::fairness(&args),
        "timers" => comm::timers(&args),
        "idlesleep" => comm::idle_sleep(&args),
        "echo" | "connections" | "storm" | "tailtcp" => net::run(&args),
        other => harness::unsupported(other),
    }
}

/// Runs `main` as a coroutine on a worker.
fn on_worker<T: Send + 'static>(main: impl FnOnce() -> T + Send + 'static) -> T {
    may::go!(main).join().expect("no panic")
}

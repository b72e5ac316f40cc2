//! The scenarios on smol's executor, with P threads that run it.

mod comm;
mod net;
mod sched;

use std::future::Future;

use harness::Args;
use smol::Executor;

static EXECUTOR: Executor<'static> = Executor::new();

fn main() {
    let args = Args::from_env();
    for _ in 0..args.procs() {
        std::thread::spawn(|| smol::block_on(EXECUTOR.run(smol::future::pending::<()>())));
    }
    match args.scenario.as_str() {
        "yield" => sched::yield_now(&args),
        "spawn" => sched::spawn(&args),
        "skynet" => sched::skynet(&args),
        "memory" if args.text("kind", "task") == "future" => sched::memory_of_futures(&args),
        "memory" => sched::memory(&args),
        "pingpong" => comm::pingpong(&args),
        "fanin" => comm::fan_in(&args),
        "chanself" => comm::chan_self(&args),
        "timers" => comm::timers(&args),
        "idlesleep" => comm::idle_sleep(&args),
        "echo" | "connections" | "storm" | "tailtcp" => net::run(&args),
        other => harness::unsupported(other),
    }
}

/// Runs `main` as a task on a worker.
fn on_worker<T: Send + 'static>(main: impl Future<Output = T> + Send + 'static) -> T {
    smol::block_on(EXECUTOR.spawn(main))
}

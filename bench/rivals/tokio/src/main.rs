//! The scenarios on tokio's multi-thread runtime.

mod comm;
mod http;
mod net;
mod preempt;
mod sched;

use std::future::Future;

use harness::Args;
use tokio::runtime::Runtime;

fn main() {
    let args = Args::from_env();
    let rt = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(args.procs())
        .enable_all()
        .build()
        .expect("build the runtime");
    match args.scenario.as_str() {
        "yield" => sched::yield_now(&args, &rt),
        "spawn" => sched::spawn(&args, &rt),
        "skynet" => sched::skynet(&args, &rt),
        "memory" if args.text("kind", "task") == "future" => sched::memory_of_futures(&args, &rt),
        "memory" => sched::memory(&args, &rt),
        "wakeup" => sched::wakeup(&args, &rt),
        "yieldlat" => sched::yield_latency(&args, &rt),
        "idle" => sched::idle(&args, &rt),
        "preempt" => preempt::preempt(&args, &rt),
        "blocking" => preempt::blocking(&args, &rt),
        "gap" => preempt::gap(&args, &rt),
        "syscall" => preempt::syscall(&args, &rt),
        "tail" => preempt::tail(&args, &rt),
        "pingpong" => comm::pingpong(&args, &rt),
        "fanin" => comm::fan_in(&args, &rt),
        "chanself" => comm::chan_self(&args, &rt),
        "mutex" => comm::mutex(&args, &rt),
        "sweep" => comm::sweep(&args, &rt),
        "fairness" => comm::fairness(&args, &rt),
        "rwfair" => comm::rw_fairness(&args, &rt),
        "timers" => comm::timers(&args, &rt),
        "http" => http::http(&args, &rt),
        "idlesleep" => comm::idle_sleep(&args, &rt),
        "echo" | "connections" | "storm" | "tailtcp" => net::run(&args, &rt),
        other => harness::unsupported(other),
    }
}

/// Runs `main` as a task on a worker (the future given to `block_on` would stay on the main thread, a P too many).
fn on_worker<T: Send + 'static>(rt: &Runtime, main: impl Future<Output = T> + Send + 'static) -> T {
    rt.block_on(async { tokio::spawn(main).await.expect("no panic") })
}

//! The scenarios on runnext.

mod chan;
#[cfg(feature = "comm")]
mod comm;
mod sched;
mod stalls;

use std::time::Duration;

use harness::Args;
use runnext::Runtime;

fn main() {
    let args = Args::from_env();
    // SAFETY: no scenario keeps anything of a thread-local over a call that can park.
    let rt = unsafe { Runtime::builder().procs(args.procs()).build() }.expect("build the runtime");
    match args.scenario.as_str() {
        "yield" => sched::yield_now(&args, &rt),
        "spawn" => sched::spawn(&args, &rt),
        "idle" => sched::idle(&args, &rt),
        "wakeup" if args.text("via", "spawn") == "spawn" => sched::wakeup(&args, &rt),
        "memory" if args.text("via", "join") == "join" => sched::memory(&args, &rt),
        "skynet" if args.text("variant", "join") == "join" => sched::skynet(&args, &rt),
        "yieldlat" if args.get("pairs", 0) == 0 || args.text("via", "chan") == "join" => {
            sched::yield_latency(&args, &rt)
        }
        "preempt" | "blocking" | "gap" | "lost" | "syscall" | "checkpoint" | "tail" => {
            stalls::run(&args, &rt)
        }
        #[cfg(feature = "comm")]
        "select2" | "select4" | "mutex" | "sweep" | "fairness" | "rwfair" | "timers"
        | "idlesleep" => comm::run(&args, &rt),
        _ => chan::run(&args, &rt),
    }
}

/// Sleeps as a goroutine does: by the runtime's timers, or before there are any by giving the P away.
fn rest(span: Duration) {
    #[cfg(feature = "comm")]
    runnext::time::sleep(span);
    #[cfg(not(feature = "comm"))]
    runnext::blocking(|| std::thread::sleep(span));
}

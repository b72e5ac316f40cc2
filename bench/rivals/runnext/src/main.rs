//! The scenarios on runnext.

mod chan;
mod choice;
mod futures;
mod groups;
mod http;
mod locks;
mod net;
mod observe;
mod sched;
mod stalls;
mod timers;

use harness::Args;
use runnext::Runtime;

fn main() {
    let args = Args::from_env();
    if args.get("lend", 1) == 0 {
        // SAFETY: this is the only thread as yet, so nobody reads the environment meanwhile.
        unsafe { std::env::set_var("RUNNEXT_DEBUG", "lend=0") };
    }
    // SAFETY: no scenario keeps anything of a thread-local over a call that can park.
    let rt = unsafe { Runtime::builder().procs(args.procs()).build() }.expect("build the runtime");
    match args.scenario.as_str() {
        "yield" => sched::yield_now(&args, &rt),
        "spawn" if args.text("kind", "stack") == "future" => futures::spawn_join(&args, &rt),
        "spawn" => sched::spawn(&args, &rt),
        "idle" => sched::idle(&args, &rt),
        "wakeup" if args.text("via", "spawn") == "spawn" => sched::wakeup(&args, &rt),
        "memory" if args.text("kind", "stack") == "future" => futures::memory(&args, &rt),
        "memory" if args.text("via", "join") == "join" => sched::memory(&args, &rt),
        "skynet" if args.text("variant", "join") == "join" => sched::skynet(&args, &rt),
        "yieldlat" if args.get("pairs", 0) == 0 || args.text("via", "chan") == "join" => {
            sched::yield_latency(&args, &rt)
        }
        "preempt" | "blocking" | "gap" | "lost" | "syscall" | "checkpoint" | "tail" => {
            stalls::run(&args, &rt)
        }
        "mutex" | "sweep" | "fairness" | "rwfair" => locks::run(&args, &rt),
        "select2" => choice::select2(&args, &rt),
        "select4" => choice::select4(&args, &rt),
        "echo" | "connections" | "storm" | "tailtcp" | "deadlines" => net::run(&args, &rt),
        "recorder" | "dump" | "export" | "scrape" => observe::run(&args, &rt),
        "http" => http::http(&args, &rt),
        name if name.starts_with("group-") => groups::run(&args, &rt),
        "timers" => timers::timers(&args, &rt),
        "idlesleep" => timers::idle_sleep(&args, &rt),
        _ => chan::run(&args, &rt),
    }
}

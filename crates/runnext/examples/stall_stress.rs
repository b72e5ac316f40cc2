//! Everything a preempted goroutine may be in the middle of, all at once, beside hogs, for as long as one likes.
//!
//! ```text
//! cargo run --release -p runnext --example stall_stress -- --seconds 60 --procs 2 --slice-ms 1
//! ```
//! Prints a line per second with the rounds each load made. A load that fails ends it with a panic; one that stands still
//! for two minutes with an abort and the state of every thread.

#[path = "../tests/stall/loads.rs"]
mod loads;
#[path = "../tests/stall/mod.rs"]
mod stall;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use runnext::Runtime;
use stall::Hogs;

fn main() -> ExitCode {
    let (mut seconds, mut procs, mut slice_ms, mut copies) = (10, 2, 1, 2);
    let mut arguments = std::env::args().skip(1);
    while let Some(name) = arguments.next() {
        let value = arguments.next().and_then(|v| v.parse::<u64>().ok());
        match (name.as_str(), value) {
            ("--seconds", Some(n)) => seconds = n,
            ("--procs", Some(n)) => procs = n as usize,
            ("--slice-ms", Some(n)) => slice_ms = n,
            ("--copies", Some(n)) => copies = n as usize,
            _ => {
                eprintln!("stall_stress [--seconds N] [--procs P] [--slice-ms S] [--copies C]");
                return ExitCode::from(2);
            }
        }
    }
    // SAFETY: no load keeps a thread-local borrowed over a call that can park.
    let rt = match unsafe {
        Runtime::builder()
            .procs(procs)
            .time_slice(Duration::from_millis(slice_ms))
            .build()
    } {
        Ok(rt) => rt,
        Err(e) => {
            eprintln!("no runtime: {e}");
            return ExitCode::FAILURE;
        }
    };
    let end = Instant::now() + Duration::from_secs(seconds);
    let mut turn = 0;
    while turn == 0 || Instant::now() < end {
        turn += 1;
        let _dog = stall::watchdog("a turn of a second");
        let rounds = rt.run(|| {
            let hogs = Hogs::start(2);
            let rounds = loads::run_all(copies, Instant::now() + Duration::from_secs(1), turn);
            hogs.stop();
            rounds
        });
        println!("{turn:4} {} threads {rounds:?}", stall::threads());
    }
    ExitCode::SUCCESS
}

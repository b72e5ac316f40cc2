//! Goroutines without a stack: spawning them, and what a parked one costs.

use std::time::{Duration, Instant};

use harness::{Args, Report, park_futures};
use runnext::{JoinHandle, Runtime, block_on, spawn};

/// As `sched::spawn`, of futures; the spawner is one too (`from=future`), or a goroutine with a stack.
pub fn spawn_join(args: &Args, rt: &Runtime) {
    let (n, batch) = (
        args.get("n", 1_000_000_usize),
        args.get("batch", 1_000_usize),
    );
    let round = async move |n: usize| {
        let mut handles = Vec::with_capacity(batch);
        for _ in 0..n / batch {
            handles.extend((0..batch).map(|i| spawn(async move { i })));
            for handle in handles.drain(..) {
                handle.await.expect("no panic");
            }
        }
    };
    let all = async move {
        round(n / 10).await;
        let begin = Instant::now();
        round(n).await;
        begin.elapsed()
    };
    let took = match args.text("from", "future") {
        "future" => rt.spawn(all).join().expect("no panic"),
        "goroutine" => rt.run(|| block_on(all)),
        _ => rt.run(|| join_all(n, batch)),
    };
    Report::new("spawn")
        .put("ns_per_task", took.as_nanos() as f64 / n as f64)
        .print();
}

fn join_all(n: usize, batch: usize) -> Duration {
    let round = |n: usize| {
        let mut handles = Vec::with_capacity(batch);
        for _ in 0..n / batch {
            handles.extend((0..batch).map(|i| spawn(async move { i })));
            for handle in handles.drain(..) {
                handle.join().expect("no panic");
            }
        }
    };
    round(n / 10);
    let begin = Instant::now();
    round(n);
    begin.elapsed()
}

pub fn memory(args: &Args, rt: &Runtime) {
    let n = args.get("n", 100_000_usize);
    let join = async |task: JoinHandle<()>| task.await.expect("no panic");
    rt.run(|| block_on(park_futures(n, spawn, runnext::future::sleep, join)));
}

//! Goroutines without a stack: spawning them, and what a parked one costs.

use std::future::poll_fn;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Poll, Waker};
use std::time::{Duration, Instant};

use harness::{Args, Parking, Report};
use runnext::{Runtime, block_on, spawn};

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

/// Where a future leaves its waker: the least a task can wait on.
type Bell = Arc<Mutex<(bool, Option<Waker>)>>;

async fn wait(bell: Bell) {
    poll_fn(|cx| {
        let mut bell = bell.lock().expect("no panic");
        if bell.0 {
            return Poll::Ready(());
        }
        bell.1 = Some(cx.waker().clone());
        Poll::Pending
    })
    .await;
}

pub fn memory(args: &Args, rt: &Runtime) {
    let n = args.get("n", 100_000_usize);
    rt.run(|| {
        let mut tasks = Vec::with_capacity(n);
        let mut parking = Parking::before(n);
        let parked = Arc::new(AtomicUsize::new(0));
        for _ in 0..n {
            let bell = Bell::default();
            let (inside, parked) = (bell.clone(), parked.clone());
            let task = spawn(async move {
                parked.fetch_add(1, Ordering::Relaxed);
                wait(inside).await;
            });
            tasks.push((bell, task));
        }
        while parked.load(Ordering::Relaxed) < n {
            runnext::time::sleep(Duration::from_micros(100));
        }
        parking.parked();
        runnext::time::sleep(Duration::from_millis(200));
        parking.settled();
        for (bell, _) in &tasks {
            let waker = {
                let mut bell = bell.lock().expect("no panic");
                bell.0 = true;
                bell.1.take()
            };
            waker.expect("it waits").wake();
        }
        for (_, task) in tasks {
            task.join().expect("no panic");
        }
        parking.woken();
    });
}

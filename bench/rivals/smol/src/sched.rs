//! Yield, spawn, skynet, memory.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Parking, Report, park_futures};
use smol::{Timer, channel};

use crate::{EXECUTOR, on_worker};

pub fn yield_now(args: &Args) {
    let (tasks, yields) = (
        args.get("tasks", 2_usize),
        args.get("yields", 5_000_000_usize),
    );
    let round = async move |yields: usize| {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                EXECUTOR.spawn(async move {
                    for _ in 0..yields {
                        smol::future::yield_now().await;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await;
        }
        begin.elapsed()
    };
    let took = on_worker(async move {
        round(yields / 10).await;
        round(yields).await
    });
    Report::new("yield")
        .put(
            "ns_per_switch",
            took.as_nanos() as f64 / (tasks * yields) as f64,
        )
        .print();
}

pub fn spawn(args: &Args) {
    let (n, batch) = (
        args.get("n", 1_000_000_usize),
        args.get("batch", 1_000_usize),
    );
    let round = async move |n: usize| {
        let mut handles = Vec::with_capacity(batch);
        for _ in 0..n / batch {
            handles.extend((0..batch).map(|i| EXECUTOR.spawn(async move { i })));
            for handle in handles.drain(..) {
                handle.await;
            }
        }
    };
    let took = on_worker(async move {
        round(n / 10).await;
        let begin = Instant::now();
        round(n).await;
        begin.elapsed()
    });
    Report::new("spawn")
        .put("ns_per_task", took.as_nanos() as f64 / n as f64)
        .print();
}

fn leaf_join(number: u64, size: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if size == 1 {
            return number;
        }
        let children: Vec<_> = (0..10)
            .map(|i| EXECUTOR.spawn(leaf_join(number + i * (size / 10), size / 10)))
            .collect();
        let mut sum = 0;
        for child in children {
            sum += child.await;
        }
        sum
    })
}

fn leaf_chan(
    result: channel::Sender<u64>,
    number: u64,
    size: u64,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut sum = number;
        if size > 1 {
            let (send, receive) = channel::bounded(1);
            for i in 0..10 {
                EXECUTOR
                    .spawn(leaf_chan(send.clone(), number + i * (size / 10), size / 10))
                    .detach();
            }
            sum = 0;
            for _ in 0..10 {
                sum += receive.recv().await.expect("ten answers");
            }
        }
        result.send(sum).await.expect("the parent lives");
    })
}

pub fn skynet(args: &Args) {
    let leaves = args.get("leaves", 1_000_000_u64);
    let channels = args.text("variant", "join") == "chan";
    let round = async move || {
        let sum = if channels {
            let (send, receive) = channel::bounded(1);
            EXECUTOR.spawn(leaf_chan(send, 0, leaves)).detach();
            receive.recv().await.expect("an answer")
        } else {
            leaf_join(0, leaves).await
        };
        assert_eq!(sum, leaves * (leaves - 1) / 2);
    };
    let took = on_worker(async move {
        round().await;
        let begin = Instant::now();
        round().await;
        begin.elapsed()
    });
    Report::new("skynet")
        .put("ms", took.as_secs_f64() * 1e3)
        .print();
}

pub fn memory(args: &Args) {
    let n = args.get("n", 100_000_usize);
    on_worker(async move {
        let mut parking = Parking::before(n);
        let parked = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::with_capacity(n);
        for _ in 0..n {
            let (wake, woken) = channel::bounded::<()>(1);
            let parked = parked.clone();
            let task = EXECUTOR.spawn(async move {
                parked.fetch_add(1, Ordering::Relaxed);
                woken.recv().await.expect("the sender lives");
            });
            tasks.push((wake, task));
        }
        while parked.load(Ordering::Relaxed) < n {
            Timer::after(Duration::from_micros(100)).await;
        }
        parking.parked();
        Timer::after(Duration::from_millis(200)).await;
        parking.settled();
        for (wake, _) in &tasks {
            wake.send(()).await.expect("the receiver lives");
        }
        for (_, task) in tasks {
            task.await;
        }
        parking.woken();
    });
}

pub fn memory_of_futures(args: &Args) {
    let n = args.get("n", 100_000_usize);
    on_worker(park_futures(
        n,
        |f| EXECUTOR.spawn(f),
        Timer::after,
        |task| task,
    ));
}

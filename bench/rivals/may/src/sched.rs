//! Yield, spawn, skynet, memory, wake-up, yield latency, idleness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Parking, Report, now_ns};
use may::coroutine;
use may::go;
use may::sync::mpsc;

use crate::on_worker;

pub fn yield_now(args: &Args) {
    let (tasks, yields) = (
        args.get("tasks", 2_usize),
        args.get("yields", 5_000_000_usize),
    );
    let round = move |yields: usize| {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                go!(move || {
                    for _ in 0..yields {
                        coroutine::yield_now();
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join().expect("no panic");
        }
        begin.elapsed()
    };
    let took = on_worker(move || {
        round(yields / 10);
        round(yields)
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
    let round = move |n: usize| {
        let mut handles = Vec::with_capacity(batch);
        for _ in 0..n / batch {
            handles.extend((0..batch).map(|i| go!(move || i)));
            for handle in handles.drain(..) {
                handle.join().expect("no panic");
            }
        }
    };
    let took = on_worker(move || {
        round(n / 10);
        let begin = Instant::now();
        round(n);
        begin.elapsed()
    });
    Report::new("spawn")
        .put("ns_per_task", took.as_nanos() as f64 / n as f64)
        .print();
}

fn leaf(number: u64, size: u64) -> u64 {
    if size == 1 {
        return number;
    }
    let children: Vec<_> = (0..10)
        .map(|i| go!(move || leaf(number + i * (size / 10), size / 10)))
        .collect();
    children
        .into_iter()
        .map(|child| child.join().expect("no panic"))
        .sum()
}

pub fn skynet(args: &Args) {
    let leaves = args.get("leaves", 10_000_u64);
    let round = move || assert_eq!(leaf(0, leaves), leaves * (leaves - 1) / 2);
    let took = on_worker(move || {
        round();
        let begin = Instant::now();
        round();
        begin.elapsed()
    });
    Report::new("skynet")
        .put("ms", took.as_secs_f64() * 1e3)
        .print();
}

pub fn memory(args: &Args) {
    let n = args.get("n", 10_000_usize);
    on_worker(move || {
        let mut parking = Parking::before(n);
        let parked = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::with_capacity(n);
        for _ in 0..n {
            let (wake, woken) = mpsc::channel::<()>();
            let parked = parked.clone();
            let task = go!(move || {
                parked.fetch_add(1, Ordering::Relaxed);
                woken.recv().expect("the sender lives");
            });
            tasks.push((wake, task));
        }
        while parked.load(Ordering::Relaxed) < n {
            coroutine::sleep(Duration::from_micros(100));
        }
        parking.parked();
        coroutine::sleep(Duration::from_millis(200));
        parking.settled();
        for (wake, _) in &tasks {
            wake.send(()).expect("the receiver lives");
        }
        for (_, task) in tasks {
            task.join().expect("no panic");
        }
        parking.woken();
    });
}

pub fn wakeup(args: &Args) {
    let by_wake = args.text("via", "spawn") == "wake";
    let args = args.clone();
    on_worker(move || {
        let ran = Arc::new(AtomicU64::new(0));
        let (wake, woken) = mpsc::channel::<()>();
        let at = ran.clone();
        go!(move || {
            while woken.recv().is_ok() {
                at.store(now_ns(), Ordering::Release);
            }
        });
        let wake = || {
            if by_wake {
                return wake.send(()).expect("the receiver lives");
            }
            let at = ran.clone();
            go!(move || at.store(now_ns(), Ordering::Release));
        };
        harness::wakeups(&args, &ran, wake, coroutine::yield_now);
    });
}

fn chain(turns: Arc<AtomicU64>) {
    turns.fetch_add(1, Ordering::Relaxed);
    go!(move || chain(turns));
}

fn pair(by_join: bool, turns: &AtomicU64) {
    if by_join {
        loop {
            go!(|| ()).join().expect("no panic");
            turns.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (ping, pinged) = mpsc::channel::<u32>();
    let (pong, ponged) = mpsc::channel::<u32>();
    go!(move || {
        while let Ok(value) = pinged.recv() {
            pong.send(value).expect("the peer lives");
        }
    });
    loop {
        ping.send(1).expect("the peer lives");
        ponged.recv().expect("the peer lives");
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn yield_latency(args: &Args) {
    let (pairs, chains) = (args.get("pairs", 0), args.get("chains", 0));
    let by_join = args.text("via", "chan") == "join";
    let turns = Arc::new(AtomicU64::new(0));
    let args = args.clone();
    on_worker(move || {
        for _ in 0..pairs {
            let turns = turns.clone();
            go!(move || pair(by_join, &turns));
        }
        for _ in 0..chains {
            let turns = turns.clone();
            go!(move || chain(turns));
        }
        harness::yields(&args, &turns, coroutine::yield_now)
    })
}

pub fn idle(args: &Args) {
    on_worker(|| {
        for task in (0..1_000)
            .map(|_| go!(coroutine::yield_now))
            .collect::<Vec<_>>()
        {
            task.join().expect("no panic");
        }
    });
    harness::idle(args);
}

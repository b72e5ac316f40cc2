//! Yield, spawn, skynet, memory, wake-up, yield latency, idleness.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Report, memory_bytes, now_ns, spin_for, usage};
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
        let before = memory_bytes();
        let parked = Arc::new(AtomicUsize::new(0));
        let begin = Instant::now();
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
        let park_ms = begin.elapsed().as_secs_f64() * 1e3;
        coroutine::sleep(Duration::from_millis(200));
        let bytes = memory_bytes().saturating_sub(before) as f64 / n as f64;
        let begin = Instant::now();
        for (wake, _) in &tasks {
            wake.send(()).expect("the receiver lives");
        }
        for (_, task) in tasks {
            task.join().expect("no panic");
        }
        let wake_ms = begin.elapsed().as_secs_f64() * 1e3;
        Report::new("memory")
            .put("bytes_per_task", bytes)
            .put("park_ms", park_ms)
            .put("wake_ms", wake_ms)
            .print();
    });
}

pub fn wakeup(args: &Args) {
    let gap = Duration::from_micros(args.get("gap_us", 1_000));
    let samples = args.get("samples", 1_000);
    let by_wake = args.text("via", "spawn") == "wake";
    on_worker(move || {
        let ran = Arc::new(AtomicU64::new(0));
        let (wake, woken) = mpsc::channel::<()>();
        let at = ran.clone();
        go!(move || {
            while woken.recv().is_ok() {
                at.store(now_ns(), Ordering::Release);
            }
        });
        let (mut late, mut missed) = (Vec::new(), 0);
        for _ in 0..samples {
            spin_for(gap);
            ran.store(0, Ordering::Relaxed);
            let begin = now_ns();
            if by_wake {
                wake.send(()).expect("the receiver lives");
            } else {
                let at = ran.clone();
                go!(move || at.store(now_ns(), Ordering::Release));
            }
            while ran.load(Ordering::Acquire) == 0 && now_ns() < begin + 20_000_000 {
                std::hint::spin_loop();
            }
            missed += u32::from(ran.load(Ordering::Acquire) == 0);
            while ran.load(Ordering::Acquire) == 0 {
                coroutine::yield_now();
            }
            late.push((ran.load(Ordering::Acquire) - begin) as f64 / 1e3);
        }
        Report::new("wakeup")
            .percentiles("us_", &mut late)
            .put("missed", f64::from(missed))
            .print();
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
    std::thread::sleep(Duration::from_millis(500));
    let span = args.get("seconds", 5.0);
    let before = usage();
    std::thread::sleep(Duration::from_secs_f64(span));
    let after = usage();
    Report::new("idle")
        .put(
            "switches_per_s",
            (after.switches - before.switches) as f64 / span,
        )
        .put(
            "cpu_pct",
            (after.cpu - before.cpu).as_secs_f64() / span * 100.0,
        )
        .print();
}

//! Yield, spawn, memory, wake-up.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Args, Parking, Report, now_ns, spin_for};

pub fn yield_now(args: &Args) {
    let (tasks, yields) = (
        args.get("tasks", 2_usize),
        args.get("yields", 100_000_usize),
    );
    let start = Arc::new(Barrier::new(tasks + 1));
    let threads: Vec<_> = (0..tasks)
        .map(|_| {
            let start = start.clone();
            thread::spawn(move || {
                start.wait();
                for _ in 0..yields {
                    thread::yield_now();
                }
            })
        })
        .collect();
    let begin = Instant::now();
    start.wait();
    for thread in threads {
        thread.join().expect("no panic");
    }
    let ns = begin.elapsed().as_nanos() as f64 / (tasks * yields) as f64;
    Report::new("yield").put("ns_per_switch", ns).print();
}

pub fn spawn(args: &Args) {
    let (n, batch) = (args.get("n", 50_000_usize), args.get("batch", 1_000_usize));
    let round = |n: usize| {
        for _ in 0..n / batch {
            let threads: Vec<_> = (0..batch).map(|i| thread::spawn(move || i)).collect();
            for thread in threads {
                thread.join().expect("no panic");
            }
        }
    };
    round(batch);
    let begin = Instant::now();
    round(n);
    Report::new("spawn")
        .put("ns_per_task", begin.elapsed().as_nanos() as f64 / n as f64)
        .print();
}

pub fn memory(args: &Args) {
    let n = args.get("n", 10_000_usize);
    let mut parking = Parking::before(n);
    let parked = Arc::new(AtomicUsize::new(0));
    let mut tasks = Vec::with_capacity(n);
    for _ in 0..n {
        let (wake, woken) = sync_channel::<()>(0);
        let parked = parked.clone();
        let thread = thread::spawn(move || {
            parked.fetch_add(1, Ordering::Relaxed);
            woken.recv().expect("the sender lives");
        });
        tasks.push((wake, thread));
    }
    while parked.load(Ordering::Relaxed) < n {
        thread::sleep(Duration::from_micros(100));
    }
    parking.parked();
    thread::sleep(Duration::from_millis(200));
    parking.settled();
    for (wake, thread) in tasks {
        wake.send(()).expect("the receiver lives");
        thread.join().expect("no panic");
    }
    parking.woken();
}

pub fn wakeup(args: &Args) {
    let gap = Duration::from_micros(args.get("gap_us", 1_000));
    let mut late = Vec::new();
    let ran = Arc::new(AtomicU64::new(0));
    let (wake, woken) = sync_channel::<()>(1);
    if args.text("via", "spawn") == "wake" {
        let ran = ran.clone();
        thread::spawn(move || {
            while woken.recv().is_ok() {
                ran.store(now_ns(), Ordering::Release);
            }
        });
    }
    for _ in 0..args.get("samples", 1_000) {
        spin_for(gap);
        ran.store(0, Ordering::Relaxed);
        let begin = now_ns();
        if args.text("via", "spawn") == "wake" {
            wake.send(()).expect("the receiver lives");
        } else {
            let ran = ran.clone();
            thread::spawn(move || ran.store(now_ns(), Ordering::Release));
        }
        while ran.load(Ordering::Acquire) == 0 {
            std::hint::spin_loop();
        }
        late.push((ran.load(Ordering::Acquire) - begin) as f64 / 1e3);
    }
    Report::new("wakeup").percentiles("us_", &mut late).print();
}

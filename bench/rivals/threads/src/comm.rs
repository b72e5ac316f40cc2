//! Channels, locks, timers.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::sync_channel;
use std::sync::{Arc, Barrier, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use harness::{Args, Report, Rng, spin_for};

pub fn pingpong(args: &Args) {
    let n = args.get("n", 100_000_u32);
    let (ping, pinged) = sync_channel::<u32>(0);
    let (pong, ponged) = sync_channel::<u32>(0);
    thread::spawn(move || {
        for value in pinged {
            if pong.send(value).is_err() {
                return;
            }
        }
    });
    let round = |n: u32| {
        for i in 0..n {
            ping.send(i).expect("the peer lives");
            ponged.recv().expect("the peer lives");
        }
    };
    round(n / 10);
    let begin = Instant::now();
    round(n);
    Report::new("pingpong")
        .put(
            "ns_per_round_trip",
            begin.elapsed().as_nanos() as f64 / f64::from(n),
        )
        .print();
}

pub fn fan_in(args: &Args) {
    let (n, producers) = (args.get("n", 2_000_000_u64), args.get("producers", 8_u64));
    let (send, receive) = sync_channel::<u64>(args.get("cap", 128));
    let begin = Instant::now();
    for _ in 0..producers {
        let send = send.clone();
        thread::spawn(move || {
            for i in 0..n / producers {
                send.send(i).expect("the consumer lives");
            }
        });
    }
    drop(send);
    assert_eq!(receive.iter().count() as u64, n / producers * producers);
    Report::new("fanin")
        .put(
            "m_msgs_per_s",
            n as f64 / begin.elapsed().as_secs_f64() / 1e6,
        )
        .print();
}

/// Nanoseconds per lock + add + unlock with `tasks` threads that do nothing else.
fn contend(tasks: usize, n: usize) -> f64 {
    let lock = Arc::new(Mutex::new(0_u64));
    let start = Arc::new(Barrier::new(tasks + 1));
    let threads: Vec<_> = (0..tasks)
        .map(|_| {
            let (lock, start) = (lock.clone(), start.clone());
            thread::spawn(move || {
                start.wait();
                for _ in 0..n / tasks {
                    *lock.lock().expect("no panic") += 1;
                }
            })
        })
        .collect();
    let begin = Instant::now();
    start.wait();
    for thread in threads {
        thread.join().expect("no panic");
    }
    begin.elapsed().as_nanos() as f64 / n as f64
}

pub fn mutex(args: &Args) {
    let (tasks, n) = (args.get("tasks", 8), args.get("n", 10_000_000));
    Report::new("mutex")
        .put("ns_per_op", contend(tasks, n))
        .print();
}

pub fn sweep(args: &Args) {
    harness::sweep(args, contend);
}

pub fn fairness(args: &Args) {
    let hold = Duration::from_micros(args.get("hold_us", 100));
    let lock = Arc::new(Mutex::new(()));
    let over = Arc::new(AtomicBool::new(false));
    let hog = {
        let (lock, over) = (lock.clone(), over.clone());
        thread::spawn(move || {
            while !over.load(Ordering::Relaxed) {
                let _held = lock.lock().expect("no panic");
                spin_for(hold);
            }
        })
    };
    let limit = Instant::now() + Duration::from_secs(5);
    let mut waits = Vec::new();
    while waits.len() < args.get("n", 500) && Instant::now() < limit {
        thread::sleep(Duration::from_millis(1));
        let begin = Instant::now();
        drop(lock.lock().expect("no panic"));
        waits.push(begin.elapsed().as_secs_f64() * 1e6);
    }
    over.store(true, Ordering::Relaxed);
    hog.join().expect("no panic");
    Report::new("fairness")
        .percentiles("us_", &mut waits)
        .print();
}

pub fn timers(args: &Args) {
    let (n, times) = (args.get("n", 10_000_u64), args.get("times", 10));
    let begin = Instant::now();
    let threads: Vec<_> = (0..n)
        .map(|seed| {
            thread::spawn(move || {
                let mut dice = Rng::new(seed);
                let mut late = Vec::with_capacity(times);
                for _ in 0..times {
                    let span = dice.sleep();
                    let begin = Instant::now();
                    thread::sleep(span);
                    late.push((begin.elapsed() - span).as_secs_f64() * 1e3);
                }
                late
            })
        })
        .collect();
    let mut late: Vec<f64> = threads
        .into_iter()
        .flat_map(|thread| thread.join().expect("no panic"))
        .collect();
    let total = begin.elapsed().as_secs_f64() * 1e3;
    Report::new("timers")
        .put("total_ms", total)
        .percentiles("late_ms_", &mut late)
        .print();
}

pub fn idle_sleep(args: &Args) {
    let span = Duration::from_micros(args.get("us", 100));
    let mut took: Vec<f64> = (0..args.get("n", 2_000))
        .map(|_| {
            let begin = Instant::now();
            thread::sleep(span);
            begin.elapsed().as_secs_f64() * 1e6
        })
        .collect();
    Report::new("idlesleep")
        .percentiles("us_", &mut took)
        .print();
}

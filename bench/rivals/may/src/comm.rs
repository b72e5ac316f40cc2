//! Channels, locks, timers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Report, Rng, spin_for};
use may::sync::{Mutex, Semphore, mpsc};
use may::{coroutine, go};

use crate::on_worker;

pub fn pingpong(args: &Args) {
    let n = args.get("n", 1_000_000_u32);
    let took = on_worker(move || {
        let (ping, pinged) = mpsc::channel::<u32>();
        let (pong, ponged) = mpsc::channel::<u32>();
        go!(move || {
            while let Ok(value) = pinged.recv() {
                pong.send(value).expect("the peer lives");
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
        begin.elapsed()
    });
    Report::new("pingpong")
        .put("ns_per_round_trip", took.as_nanos() as f64 / f64::from(n))
        .print();
}

pub fn fan_in(args: &Args) {
    let (n, producers) = (args.get("n", 2_000_000_u64), args.get("producers", 8_u64));
    let cap = args.get("cap", 128);
    let round = move |n: u64| {
        let (send, receive) = mpsc::channel::<u64>();
        let credits = Arc::new(Semphore::new(cap));
        for _ in 0..producers {
            let (send, credits) = (send.clone(), credits.clone());
            go!(move || {
                for i in 0..n / producers {
                    credits.wait();
                    send.send(i).expect("the consumer lives");
                }
            });
        }
        drop(send);
        let mut count = 0;
        while receive.recv().is_ok() {
            credits.post();
            count += 1;
        }
        assert_eq!(count, n / producers * producers);
    };
    let took = on_worker(move || {
        round(n / 10);
        let begin = Instant::now();
        round(n);
        begin.elapsed()
    });
    Report::new("fanin")
        .put("m_msgs_per_s", n as f64 / took.as_secs_f64() / 1e6)
        .print();
}

pub fn chan_self(args: &Args) {
    let n = args.get("n", 10_000_000_u32);
    let took = on_worker(move || {
        let (send, receive) = mpsc::channel::<u64>();
        let begin = Instant::now();
        for i in 0..n {
            send.send(u64::from(i)).expect("open");
            receive.recv().expect("open");
        }
        begin.elapsed()
    });
    Report::new("chanself")
        .put("ns_per_pair", took.as_nanos() as f64 / f64::from(n))
        .print();
}

fn contend(tasks: usize, n: usize) -> f64 {
    on_worker(move || {
        let lock = Arc::new(Mutex::new(0_u64));
        let begin = Instant::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                let lock = lock.clone();
                go!(move || {
                    for _ in 0..n / tasks {
                        *lock.lock().expect("no panic") += 1;
                    }
                })
            })
            .collect();
        for task in tasks {
            task.join().expect("no panic");
        }
        begin.elapsed().as_nanos() as f64 / n as f64
    })
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
    let n = args.get("n", 500);
    on_worker(move || {
        let lock = Arc::new(Mutex::new(()));
        let over = Arc::new(AtomicBool::new(false));
        let (held, stop) = (lock.clone(), over.clone());
        go!(move || {
            while !stop.load(Ordering::Relaxed) {
                let _held = held.lock().expect("no panic");
                spin_for(hold);
            }
        });
        let limit = Instant::now() + Duration::from_secs(5);
        let mut waits = Vec::new();
        while waits.len() < n && Instant::now() < limit {
            coroutine::sleep(Duration::from_millis(1));
            let begin = Instant::now();
            drop(lock.lock().expect("no panic"));
            waits.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        over.store(true, Ordering::Relaxed);
        Report::new("fairness")
            .percentiles("us_", &mut waits)
            .print();
    });
}

pub fn timers(args: &Args) {
    let (n, times) = (args.get("n", 20_000_u64), args.get("times", 10));
    on_worker(move || {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..n)
            .map(|seed| {
                go!(move || {
                    let mut dice = Rng::new(seed);
                    let mut late = Vec::with_capacity(times);
                    for _ in 0..times {
                        let span = dice.sleep();
                        let begin = Instant::now();
                        coroutine::sleep(span);
                        late.push(begin.elapsed().saturating_sub(span).as_secs_f64() * 1e3);
                    }
                    late
                })
            })
            .collect();
        let mut late: Vec<f64> = tasks
            .into_iter()
            .flat_map(|task| task.join().expect("no panic"))
            .collect();
        let total = begin.elapsed().as_secs_f64() * 1e3;
        Report::new("timers")
            .put("total_ms", total)
            .percentiles("late_ms_", &mut late)
            .print();
    });
}

pub fn idle_sleep(args: &Args) {
    let span = Duration::from_micros(args.get("us", 100));
    let n = args.get("n", 2_000);
    on_worker(move || {
        let mut took: Vec<f64> = (0..n)
            .map(|_| {
                let begin = Instant::now();
                coroutine::sleep(span);
                begin.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        Report::new("idlesleep")
            .percentiles("us_", &mut took)
            .print();
    });
}

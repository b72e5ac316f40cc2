//! Channels, locks, timers.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Phases, Report, Rng, spin_for};
use tokio::runtime::Runtime;
use tokio::sync::{Mutex, RwLock, mpsc};
use tokio::time::sleep;

use crate::on_worker;

pub fn pingpong(args: &Args, rt: &Runtime) {
    let n = args.get("n", 1_000_000_u32);
    let took = on_worker(rt, async move {
        let (ping, mut pinged) = mpsc::channel::<u32>(1);
        let (pong, mut ponged) = mpsc::channel::<u32>(1);
        tokio::spawn(async move {
            while let Some(value) = pinged.recv().await {
                pong.send(value).await.expect("the peer lives");
            }
        });
        let mut round = async |n: u32| {
            for i in 0..n {
                ping.send(i).await.expect("the peer lives");
                ponged.recv().await.expect("the peer lives");
            }
        };
        round(n / 10).await;
        let begin = Instant::now();
        round(n).await;
        begin.elapsed()
    });
    Report::new("pingpong")
        .put("ns_per_round_trip", took.as_nanos() as f64 / f64::from(n))
        .print();
}

pub fn fan_in(args: &Args, rt: &Runtime) {
    let (n, producers) = (args.get("n", 2_000_000_u64), args.get("producers", 8_u64));
    let cap = args.get("cap", 128);
    let round = async move |n: u64| {
        let (send, mut receive) = mpsc::channel::<u64>(cap);
        for _ in 0..producers {
            let send = send.clone();
            tokio::spawn(async move {
                for i in 0..n / producers {
                    send.send(i).await.expect("the consumer lives");
                }
            });
        }
        drop(send);
        let mut count = 0;
        while receive.recv().await.is_some() {
            count += 1;
        }
        assert_eq!(count, n / producers * producers);
    };
    let took = on_worker(rt, async move {
        round(n / 10).await;
        let begin = Instant::now();
        round(n).await;
        begin.elapsed()
    });
    Report::new("fanin")
        .put("m_msgs_per_s", n as f64 / took.as_secs_f64() / 1e6)
        .print();
}

pub fn chan_self(args: &Args, rt: &Runtime) {
    let n = args.get("n", 10_000_000_u32);
    let took = on_worker(rt, async move {
        let (send, mut receive) = mpsc::channel::<u64>(128);
        let begin = Instant::now();
        for i in 0..n {
            send.send(u64::from(i)).await.expect("open");
            receive.recv().await.expect("open");
        }
        begin.elapsed()
    });
    Report::new("chanself")
        .put("ns_per_pair", took.as_nanos() as f64 / f64::from(n))
        .print();
}

async fn contend(tasks: usize, n: usize) -> f64 {
    let lock = Arc::new(Mutex::new(0_u64));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..n / tasks {
                    *lock.lock().await += 1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    begin.elapsed().as_nanos() as f64 / n as f64
}

/// The std lock inside tasks, which many use with tokio.
async fn contend_std(tasks: usize, n: usize) -> f64 {
    let lock = Arc::new(std::sync::Mutex::new(0_u64));
    let begin = Instant::now();
    let tasks: Vec<_> = (0..tasks)
        .map(|_| {
            let lock = lock.clone();
            tokio::spawn(async move {
                for _ in 0..n / tasks {
                    *lock.lock().expect("no panic") += 1;
                }
            })
        })
        .collect();
    for task in tasks {
        task.await.expect("no panic");
    }
    begin.elapsed().as_nanos() as f64 / n as f64
}

pub fn mutex(args: &Args, rt: &Runtime) {
    let (tasks, n) = (args.get("tasks", 8), args.get("n", 10_000_000));
    let ns = if args.text("variant", "tokio") == "std" {
        on_worker(rt, contend_std(tasks, n))
    } else {
        on_worker(rt, contend(tasks, n))
    };
    Report::new("mutex").put("ns_per_op", ns).print();
}

pub fn sweep(args: &Args, rt: &Runtime) {
    harness::sweep(args, |tasks, n| on_worker(rt, contend(tasks, n)));
}

pub fn fairness(args: &Args, rt: &Runtime) {
    let hold = Duration::from_micros(args.get("hold_us", 100));
    let n = args.get("n", 500);
    on_worker(rt, async move {
        let lock = Arc::new(Mutex::new(()));
        let over = Arc::new(AtomicBool::new(false));
        let (held, stop) = (lock.clone(), over.clone());
        tokio::spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let _held = held.lock().await;
                spin_for(hold);
            }
        });
        let limit = Instant::now() + Duration::from_secs(5);
        let mut waits = Vec::new();
        while waits.len() < n && Instant::now() < limit {
            sleep(Duration::from_millis(1)).await;
            let begin = Instant::now();
            drop(lock.lock().await);
            waits.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        over.store(true, Ordering::Relaxed);
        Report::new("fairness")
            .percentiles("us_", &mut waits)
            .print();
    });
}

/// A writer beside a flood of readers, in units of one reader's phase as it really was.
pub fn rw_fairness(args: &Args, rt: &Runtime) {
    let hold = Duration::from_micros(args.get("hold_us", 2_000));
    let (readers, n) = (args.get("readers", 4), args.get("n", 300));
    on_worker(rt, async move {
        let lock = Arc::new(RwLock::new(()));
        let phases = Arc::new(Phases::default());
        for seed in 0..readers {
            let (lock, phases) = (lock.clone(), phases.clone());
            tokio::spawn(async move {
                sleep(hold * seed / readers).await;
                loop {
                    let _held = lock.read().await;
                    let begin = Instant::now();
                    sleep(hold).await;
                    phases.add(begin.elapsed());
                }
            });
        }
        let mut dice = Rng::new(1);
        for _ in 0..n {
            sleep(dice.sleep() / 5).await;
            let begin = Instant::now();
            drop(lock.write().await);
            phases.waited(begin.elapsed());
        }
        phases.report().print_and_exit()
    })
}

pub fn timers(args: &Args, rt: &Runtime) {
    let (n, times) = (args.get("n", 100_000_u64), args.get("times", 10));
    on_worker(rt, async move {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..n)
            .map(|seed| {
                tokio::spawn(async move {
                    let mut dice = Rng::new(seed);
                    let mut late = Vec::with_capacity(times);
                    for _ in 0..times {
                        let span = dice.sleep();
                        let begin = Instant::now();
                        sleep(span).await;
                        late.push((begin.elapsed().saturating_sub(span)).as_secs_f64() * 1e3);
                    }
                    late
                })
            })
            .collect();
        let mut late = Vec::with_capacity(n as usize * times);
        for task in tasks {
            late.extend(task.await.expect("no panic"));
        }
        let total = begin.elapsed().as_secs_f64() * 1e3;
        Report::new("timers")
            .put("total_ms", total)
            .percentiles("late_ms_", &mut late)
            .print();
    });
}

pub fn idle_sleep(args: &Args, rt: &Runtime) {
    let span = Duration::from_micros(args.get("us", 100));
    let n = args.get("n", 2_000);
    on_worker(rt, async move {
        let mut took = Vec::with_capacity(n);
        for _ in 0..n {
            let begin = Instant::now();
            sleep(span).await;
            took.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        Report::new("idlesleep")
            .percentiles("us_", &mut took)
            .print();
    });
}

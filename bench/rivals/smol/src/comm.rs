//! Channels and timers.

use std::time::{Duration, Instant};

use harness::{Args, Report, Rng};
use smol::{Timer, channel};

use crate::{EXECUTOR, on_worker};

pub fn pingpong(args: &Args) {
    let n = args.get("n", 1_000_000_u32);
    let took = on_worker(async move {
        let (ping, pinged) = channel::bounded::<u32>(1);
        let (pong, ponged) = channel::bounded::<u32>(1);
        let peer = EXECUTOR.spawn(async move {
            while let Ok(value) = pinged.recv().await {
                pong.send(value).await.expect("the peer lives");
            }
        });
        peer.detach();
        let round = async |n: u32| {
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

pub fn fan_in(args: &Args) {
    let (n, producers) = (args.get("n", 2_000_000_u64), args.get("producers", 8_u64));
    let cap = args.get("cap", 128);
    let round = async move |n: u64| {
        let (send, receive) = channel::bounded::<u64>(cap);
        for _ in 0..producers {
            let send = send.clone();
            let producer = EXECUTOR.spawn(async move {
                for i in 0..n / producers {
                    send.send(i).await.expect("the consumer lives");
                }
            });
            producer.detach();
        }
        drop(send);
        let mut count = 0;
        while receive.recv().await.is_ok() {
            count += 1;
        }
        assert_eq!(count, n / producers * producers);
    };
    let took = on_worker(async move {
        round(n / 10).await;
        let begin = Instant::now();
        round(n).await;
        begin.elapsed()
    });
    Report::new("fanin")
        .put("m_msgs_per_s", n as f64 / took.as_secs_f64() / 1e6)
        .print();
}

pub fn chan_self(args: &Args) {
    let n = args.get("n", 10_000_000_u32);
    let took = on_worker(async move {
        let (send, receive) = channel::bounded::<u64>(128);
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

pub fn timers(args: &Args) {
    let (n, times) = (args.get("n", 100_000_u64), args.get("times", 10));
    on_worker(async move {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..n)
            .map(|seed| {
                EXECUTOR.spawn(async move {
                    let mut dice = Rng::new(seed);
                    let mut late = Vec::with_capacity(times);
                    for _ in 0..times {
                        let span = dice.sleep();
                        let begin = Instant::now();
                        Timer::after(span).await;
                        late.push(begin.elapsed().saturating_sub(span).as_secs_f64() * 1e3);
                    }
                    late
                })
            })
            .collect();
        let mut late = Vec::with_capacity(n as usize * times);
        for task in tasks {
            late.extend(task.await);
        }
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
    on_worker(async move {
        let mut took = Vec::with_capacity(n);
        for _ in 0..n {
            let begin = Instant::now();
            Timer::after(span).await;
            took.push(begin.elapsed().as_secs_f64() * 1e6);
        }
        Report::new("idlesleep")
            .percentiles("us_", &mut took)
            .print();
    });
}

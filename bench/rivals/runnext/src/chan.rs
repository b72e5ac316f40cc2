//! Channels, and the scenarios of the scheduler that need one.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Parking, Report, now_ns};
use runnext::chan::{Sender, bounded};
use runnext::time::sleep;
use runnext::{Runtime, go};

/// Any scenario of this file.
pub fn run(args: &Args, rt: &Runtime) {
    match args.scenario.as_str() {
        "skynet" => skynet(args, rt),
        "memory" => memory(args, rt),
        "wakeup" => wakeup(args, rt),
        "yieldlat" => yield_latency(args, rt),
        "pingpong" => pingpong(args, rt),
        "fanin" => fan_in(args, rt),
        "chanself" => chan_self(args, rt),
        other => harness::unsupported(other),
    }
}

/// Nanoseconds per operation of the second of two rounds; the first, a tenth as long, warms up.
pub fn warm(n: usize, mut round: impl FnMut(usize)) -> f64 {
    round(n / 10);
    let begin = Instant::now();
    round(n);
    begin.elapsed().as_nanos() as f64 / n as f64
}

fn leaf(result: &Sender<u64>, number: u64, size: u64) {
    let mut sum = number;
    if size > 1 {
        let (send, receive) = bounded(0);
        for i in 0..10 {
            let send = send.clone();
            go(move || leaf(&send, number + i * (size / 10), size / 10));
        }
        sum = (0..10).map(|_| receive.recv().expect("ten answers")).sum();
    }
    result.send(sum).expect("the parent lives");
}

fn skynet(args: &Args, rt: &Runtime) {
    let leaves = args.get("leaves", 1_000_000_u64);
    let round = || {
        let (send, receive) = bounded(0);
        go(move || leaf(&send, 0, leaves));
        assert_eq!(
            receive.recv().expect("an answer"),
            leaves * (leaves - 1) / 2
        );
    };
    let took = rt.run(|| {
        round();
        let begin = Instant::now();
        round();
        begin.elapsed()
    });
    Report::new("skynet")
        .put("ms", took.as_secs_f64() * 1e3)
        .print();
}

fn memory(args: &Args, rt: &Runtime) {
    let n = args.get("n", 100_000_usize);
    rt.run(|| {
        let mut parking = Parking::before(n);
        let parked = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::with_capacity(n);
        for _ in 0..n {
            let (wake, woken) = bounded::<()>(0);
            let parked = parked.clone();
            let task = go(move || {
                parked.fetch_add(1, Ordering::Relaxed);
                woken.recv().expect("the sender lives");
            });
            tasks.push((wake, task));
        }
        while parked.load(Ordering::Relaxed) < n {
            sleep(Duration::from_micros(100));
        }
        parking.parked();
        sleep(Duration::from_millis(200));
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

fn wakeup(args: &Args, rt: &Runtime) {
    rt.run(|| {
        let ran = Arc::new(AtomicU64::new(0));
        let (wake, woken) = bounded::<()>(1);
        let at = ran.clone();
        go(move || {
            for () in woken {
                at.store(now_ns(), Ordering::Release);
            }
        });
        let wake = || wake.send(()).expect("the receiver lives");
        harness::wakeups(args, &ran, wake, runnext::yield_now);
    });
}

/// Sends each value back and forth for ever, or until the other side is gone.
fn echo() -> impl Fn(u32) -> u32 {
    let (ping, pinged) = bounded::<u32>(0);
    let (pong, ponged) = bounded::<u32>(0);
    go(move || {
        for value in pinged {
            if pong.send(value).is_err() {
                return;
            }
        }
    });
    move |value| {
        ping.send(value).expect("the peer lives");
        ponged.recv().expect("the peer lives")
    }
}

fn yield_latency(args: &Args, rt: &Runtime) {
    let turns = Arc::new(AtomicU64::new(0));
    rt.run(|| {
        for _ in 0..args.get("pairs", 0) {
            let turns = turns.clone();
            go(move || {
                let round_trip = echo();
                loop {
                    round_trip(1);
                    turns.fetch_add(1, Ordering::Relaxed);
                }
            });
        }
        harness::yields(args, &turns, runnext::yield_now);
    });
}

fn pingpong(args: &Args, rt: &Runtime) {
    let n = args.get("n", 1_000_000);
    let ns = rt.run(|| {
        let round_trip = echo();
        warm(n, |n| (0..n as u32).for_each(|i| _ = round_trip(i)))
    });
    Report::new("pingpong").put("ns_per_round_trip", ns).print();
}

fn fan_in(args: &Args, rt: &Runtime) {
    let producers = args.get("producers", 8_usize);
    let cap = args.get("cap", 128);
    let ns = rt.run(|| {
        warm(args.get("n", 2_000_000), |n| {
            let (send, receive) = bounded::<u64>(cap);
            for _ in 0..producers {
                let send = send.clone();
                go(move || {
                    for i in 0..n / producers {
                        send.send(i as u64).expect("the consumer lives");
                    }
                });
            }
            drop(send);
            assert_eq!(receive.iter().count(), n / producers * producers);
        })
    });
    Report::new("fanin").put("m_msgs_per_s", 1e3 / ns).print();
}

fn chan_self(args: &Args, rt: &Runtime) {
    let ns = rt.run(|| {
        let (send, receive) = bounded::<u64>(128);
        warm(args.get("n", 10_000_000), |n| {
            for i in 0..n {
                send.send(i as u64).expect("open");
                receive.recv().expect("open");
            }
        })
    });
    Report::new("chanself").put("ns_per_pair", ns).print();
}

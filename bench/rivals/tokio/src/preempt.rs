//! Preemption, blocking calls, the mixed load. Variants say how the offender was marked: `inline` (not at all),
//! `spawn_blocking`, `block_in_place`.

use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::{Args, Block, Gaps, Report, Tail, Ticks, percentile, work};
use tokio::runtime::Runtime;
use tokio::task;
use tokio::time::sleep;

use crate::on_worker;

const MS: Duration = Duration::from_millis(1);

fn start_ticks(args: &Args, rt: &Runtime) -> Arc<Ticks> {
    let ticks = Arc::new(Ticks::start(
        MS,
        Duration::from_secs_f64(args.get("seconds", 3.0)),
    ));
    let log = ticks.clone();
    rt.spawn(async move {
        loop {
            sleep(MS).await;
            if !log.tick() {
                return;
            }
        }
    });
    ticks
}

pub fn preempt(args: &Args, rt: &Runtime) {
    for _ in 0..args.get("hogs", 1) {
        rt.spawn(async {
            loop {
                work(1 << 20);
            }
        });
    }
    let ticks = start_ticks(args, rt);
    ticks.wait();
    ticks.report("preempt").print_and_exit()
}

pub fn blocking(args: &Args, rt: &Runtime) {
    let span = Duration::from_millis(args.get("ms", 100));
    let inline = args.text("variant", "inline") == "inline";
    for _ in 0..args.get("tasks", 8) {
        rt.spawn(async move {
            loop {
                if inline {
                    std::thread::sleep(span);
                    task::yield_now().await;
                } else {
                    task::spawn_blocking(move || std::thread::sleep(span))
                        .await
                        .expect("no panic");
                }
            }
        });
    }
    let ticks = start_ticks(args, rt);
    ticks.wait();
    ticks.report("blocking").print_and_exit()
}

pub fn gap(args: &Args, rt: &Runtime) {
    let block = Block::new(
        args.text("kind", "sleep"),
        Duration::from_millis(args.get("ms", 20)),
    );
    let tries = args.get("tries", 100);
    let inline = args.text("variant", "inline") == "inline";
    let gaps = Arc::new(Gaps::default());
    let observed = gaps.clone();
    let results = gaps.clone();
    on_worker(rt, async move {
        let other = tokio::spawn(async move {
            while observed.alive() {
                task::yield_now().await;
            }
        });
        for _ in 0..tries {
            if inline {
                gaps.try_once(&block);
            } else {
                task::block_in_place(|| gaps.try_once(&block));
            }
            task::yield_now().await;
        }
        gaps.stop();
        other.await.expect("no panic");
    });
    results.report("gap").print();
}

/// What `block_in_place` adds to the cheapest system call.
pub fn syscall(args: &Args, rt: &Runtime) {
    let n = args.get("n", 20_000_u32);
    on_worker(rt, async move {
        let (mut raw, mut full) = (Vec::new(), Vec::new());
        for _ in 0..7 {
            let begin = Instant::now();
            for _ in 0..n {
                let _ = std::os::unix::process::parent_id();
            }
            raw.push(begin.elapsed().as_nanos() as f64 / f64::from(n));
            let begin = Instant::now();
            for _ in 0..n {
                let _ = task::block_in_place(std::os::unix::process::parent_id);
            }
            full.push(begin.elapsed().as_nanos() as f64 / f64::from(n));
        }
        let median = |samples: &mut Vec<f64>| {
            samples.sort_by(f64::total_cmp);
            percentile(samples, 0.5).expect("seven samples")
        };
        let (raw, full) = (median(&mut raw), median(&mut full));
        Report::new("syscall")
            .put("raw_ns", raw)
            .put("total_ns", full)
            .put("overhead_ns", full - raw)
            .print();
    });
}

pub fn tail(args: &Args, rt: &Runtime) {
    let inline = args.text("variant", "inline") == "inline";
    let tail = Arc::new(Tail::plan(args));
    for lane in 0..tail.lanes {
        let tail = tail.clone();
        rt.spawn(async move {
            for i in tail.lane(lane) {
                sleep(tail.until(i)).await;
                tail.light(i);
            }
        });
    }
    for client in 0..tail.clients() {
        let tail = tail.clone();
        rt.spawn(async move {
            loop {
                let again = if inline {
                    tail.heavy(client)
                } else {
                    let tail = tail.clone();
                    task::spawn_blocking(move || tail.heavy(client))
                        .await
                        .expect("no panic")
                };
                if !again {
                    return;
                } else if tail.think.is_zero() {
                    task::yield_now().await;
                } else {
                    sleep(tail.think).await;
                }
            }
        });
    }
    tail.wait();
    tail.report("tail").print_and_exit()
}

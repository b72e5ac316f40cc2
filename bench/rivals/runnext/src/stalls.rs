//! Preemption, blocking calls, the mixed load.

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use harness::{Args, Block, Gaps, Load, Report, Tail, Ticks, percentile, stir, work};
use runnext::time::sleep;
use runnext::{Runtime, blocking, go};

const MS: Duration = Duration::from_millis(1);

/// Any scenario of this file.
pub fn run(args: &Args, rt: &Runtime) {
    match args.scenario.as_str() {
        "preempt" => preempt(args, rt),
        "blocking" => blocking_calls(args, rt),
        "gap" => gap(args, rt),
        "lost" => rt.run(|| harness::lost(args, load)),
        "syscall" => syscall(args, rt),
        "checkpoint" => checkpoint(args, rt),
        "tail" => tail(args, rt),
        other => harness::unsupported(other),
    }
}

fn new_ticks(args: &Args) -> Ticks {
    Ticks::start(MS, Duration::from_secs_f64(args.get("seconds", 3.0)))
}

fn start_ticks(args: &Args, rt: &Runtime) -> Arc<Ticks> {
    let ticks = Arc::new(new_ticks(args));
    let log = ticks.clone();
    rt.go(move || {
        loop {
            sleep(MS);
            if !log.tick() {
                return;
            }
        }
    });
    ticks
}

/// As the Go program does it: who starts the loops is the one that ticks, so it never queues behind them as one more newcomer.
fn preempt(args: &Args, rt: &Runtime) {
    rt.run(|| {
        for _ in 0..args.get("hogs", 1) {
            go(|| {
                loop {
                    work(1 << 20);
                }
            });
        }
        let ticks = new_ticks(args);
        while {
            sleep(MS);
            ticks.tick()
        } {}
        ticks.report("preempt").print_and_exit()
    })
}

fn blocking_calls(args: &Args, rt: &Runtime) {
    let span = Duration::from_millis(args.get("ms", 100));
    for _ in 0..args.get("tasks", 8) {
        rt.go(move || {
            loop {
                std::thread::sleep(span);
            }
        });
    }
    let ticks = start_ticks(args, rt);
    ticks.wait();
    ticks.report("blocking").print_and_exit()
}

fn gap(args: &Args, rt: &Runtime) {
    let span = Duration::from_millis(args.get("ms", 20));
    let block = Block::new(args.text("kind", "sleep"), span);
    let gaps = Arc::new(Gaps::default());
    rt.run(|| {
        let observed = gaps.clone();
        let other = go(move || {
            while observed.alive() {
                runnext::yield_now();
            }
        });
        for _ in 0..args.get("tries", 100) {
            gaps.try_once(&block);
            runnext::yield_now();
        }
        gaps.stop();
        other.join().expect("no panic");
    });
    gaps.report("gap").print();
}

fn load(load: Load) -> Duration {
    let begin = Instant::now();
    let over = Arc::new(AtomicBool::new(false));
    let ticker = load.ticker.then(|| {
        let over = over.clone();
        go(move || {
            while !over.load(Ordering::Relaxed) {
                sleep(MS);
            }
        })
    });
    let hogs: Vec<_> = (0..load.hogs)
        .map(|_| go(move || work(load.steps)))
        .collect();
    for hog in hogs {
        hog.join().expect("no panic");
    }
    let took = begin.elapsed();
    over.store(true, Ordering::Relaxed);
    if let Some(ticker) = ticker {
        ticker.join().expect("no panic");
    }
    took
}

/// Nanoseconds per call, over `n` calls.
fn per_call(n: u32, mut call: impl FnMut()) -> f64 {
    let begin = Instant::now();
    for _ in 0..n {
        call();
    }
    begin.elapsed().as_nanos() as f64 / f64::from(n)
}

/// Medians of two measurements taken in turn.
fn in_turn(mut first: impl FnMut() -> f64, mut second: impl FnMut() -> f64) -> (f64, f64) {
    let (mut a, mut b): (Vec<f64>, Vec<f64>) = (0..9).map(|_| (first(), second())).unzip();
    let median = |samples: &mut Vec<f64>| {
        samples.sort_by(f64::total_cmp);
        percentile(samples, 0.5).expect("nine samples")
    };
    (median(&mut a), median(&mut b))
}

fn syscall(args: &Args, rt: &Runtime) {
    let n = args.get("n", 1_000_000);
    let getppid = std::os::unix::process::parent_id;
    let (raw, full) = rt.run(|| {
        in_turn(
            || per_call(n, || _ = black_box(getppid())),
            || per_call(n, || _ = black_box(blocking(getppid))),
        )
    });
    Report::new("syscall")
        .put("raw_ns", raw)
        .put("total_ns", full)
        .put("overhead_ns", full - raw)
        .print();
}

fn checkpoint(args: &Args, rt: &Runtime) {
    let n = args.get("n", 5_000_000);
    let steps = (20.0 / args.get("step_ns", 1.9)) as u64;
    let (bare, full) = rt.run(|| {
        let (mut x, mut y) = (1, 1);
        in_turn(
            || per_call(n, || x = black_box(stir(x, steps))),
            || {
                per_call(n, || {
                    y = black_box(stir(y, steps));
                    runnext::checkpoint();
                })
            },
        )
    });
    Report::new("checkpoint")
        .put("loop_ns", bare)
        .put("cost_ns", full - bare)
        .print();
}

fn tail(args: &Args, rt: &Runtime) {
    let tail = Arc::new(Tail::plan(args));
    for lane in 0..tail.lanes {
        let tail = tail.clone();
        rt.go(move || {
            for i in tail.lane(lane) {
                sleep(tail.until(i));
                tail.light(i);
            }
        });
    }
    for client in 0..tail.clients() {
        let tail = tail.clone();
        rt.go(move || {
            while tail.heavy(client) {
                if tail.think.is_zero() {
                    runnext::yield_now();
                } else {
                    sleep(tail.think);
                }
            }
        });
    }
    tail.wait();
    tail.report("tail").print_and_exit()
}

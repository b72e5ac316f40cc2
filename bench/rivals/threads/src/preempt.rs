//! Preemption, blocking calls, the mixed load.

use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

use harness::{Args, Block, Gaps, Load, Tail, Ticks, work};

const MS: Duration = Duration::from_millis(1);

fn ticker(ticks: &Arc<Ticks>) {
    let ticks = ticks.clone();
    thread::spawn(move || {
        loop {
            thread::sleep(MS);
            if !ticks.tick() {
                return;
            }
        }
    });
}

pub fn preempt(args: &Args) {
    for _ in 0..args.get("hogs", 1) {
        thread::spawn(|| {
            loop {
                work(1 << 20);
            }
        });
    }
    let ticks = Arc::new(Ticks::start(
        MS,
        Duration::from_secs_f64(args.get("seconds", 3.0)),
    ));
    ticker(&ticks);
    ticks.wait();
    ticks.report("preempt").print_and_exit()
}

pub fn blocking(args: &Args) {
    let span = Duration::from_millis(args.get("ms", 100));
    for _ in 0..args.get("tasks", 8) {
        thread::spawn(move || {
            loop {
                thread::sleep(span);
            }
        });
    }
    let ticks = Arc::new(Ticks::start(
        MS,
        Duration::from_secs_f64(args.get("seconds", 3.0)),
    ));
    ticker(&ticks);
    ticks.wait();
    ticks.report("blocking").print_and_exit()
}

pub fn gap(args: &Args) {
    let block = Block::new(
        args.text("kind", "sleep"),
        Duration::from_millis(args.get("ms", 20)),
    );
    let gaps = Arc::new(Gaps::default());
    let observed = gaps.clone();
    let other = thread::spawn(move || {
        while observed.alive() {
            thread::yield_now();
        }
    });
    for _ in 0..args.get("tries", 100) {
        gaps.try_once(&block);
    }
    gaps.stop();
    other.join().expect("no panic");
    gaps.report("gap").print();
}

pub fn load(load: Load) -> Duration {
    let begin = Instant::now();
    let over = Arc::new(std::sync::atomic::AtomicBool::new(false));
    let ticker = load.ticker.then(|| {
        let over = over.clone();
        thread::spawn(move || {
            while !over.load(std::sync::atomic::Ordering::Relaxed) {
                thread::sleep(MS);
            }
        })
    });
    let hogs: Vec<_> = (0..load.hogs)
        .map(|_| thread::spawn(move || work(load.steps)))
        .collect();
    for hog in hogs {
        hog.join().expect("no panic");
    }
    let took = begin.elapsed();
    over.store(true, std::sync::atomic::Ordering::Relaxed);
    if let Some(ticker) = ticker {
        ticker.join().expect("no panic");
    }
    took
}

pub fn tail(args: &Args) {
    let tail = Arc::new(Tail::plan(args));
    for lane in 0..tail.lanes {
        let tail = tail.clone();
        thread::spawn(move || {
            for i in tail.lane(lane) {
                thread::sleep(tail.until(i));
                tail.light(i);
            }
        });
    }
    for client in 0..tail.clients() {
        let tail = tail.clone();
        thread::spawn(move || {
            while tail.heavy(client) {
                if tail.think.is_zero() {
                    thread::yield_now();
                } else {
                    thread::sleep(tail.think);
                }
            }
        });
    }
    tail.wait();
    tail.report("tail").print_and_exit()
}

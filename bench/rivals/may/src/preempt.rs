//! Preemption, blocking calls, the mixed load.
//!
//! may resumes a sleeper on its timer thread, outside its workers. So each sleep here is followed by a yield, which
//! puts the coroutine where all others have to be: in a worker's queue.

use std::sync::Arc;
use std::time::Duration;

use harness::{Args, Tail, Ticks, work};
use may::{coroutine, go};

const MS: Duration = Duration::from_millis(1);

fn start_ticks(args: &Args) -> Arc<Ticks> {
    let ticks = Arc::new(Ticks::start(
        MS,
        Duration::from_secs_f64(args.get("seconds", 3.0)),
    ));
    let log = ticks.clone();
    go!(move || {
        loop {
            coroutine::sleep(MS);
            coroutine::yield_now();
            if !log.tick() {
                return;
            }
        }
    });
    ticks
}

pub fn preempt(args: &Args) {
    for _ in 0..args.get("hogs", 1) {
        go!(|| {
            loop {
                work(1 << 20);
            }
        });
    }
    let ticks = start_ticks(args);
    ticks.wait();
    ticks.report("preempt").print_and_exit()
}

pub fn blocking(args: &Args) {
    let span = Duration::from_millis(args.get("ms", 100));
    for _ in 0..args.get("tasks", 8) {
        go!(move || {
            loop {
                std::thread::sleep(span);
                coroutine::yield_now();
            }
        });
    }
    let ticks = start_ticks(args);
    ticks.wait();
    ticks.report("blocking").print_and_exit()
}

pub fn tail(args: &Args) {
    let tail = Arc::new(Tail::plan(args));
    for lane in 0..tail.lanes {
        let tail = tail.clone();
        go!(move || {
            for i in tail.lane(lane) {
                coroutine::sleep(tail.until(i));
                coroutine::yield_now();
                tail.light(i);
            }
        });
    }
    for client in 0..tail.clients() {
        let tail = tail.clone();
        go!(move || {
            while tail.heavy(client) {
                if !tail.think.is_zero() {
                    coroutine::sleep(tail.think);
                }
                coroutine::yield_now();
            }
        });
    }
    tail.wait();
    tail.report("tail").print_and_exit()
}

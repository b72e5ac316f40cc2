//! `runnext::sync` as its users see it, on one, two and eight processors and with plain threads mixed in.
//!
//! Nothing here bounds wall time: fairness is asserted by order and by counts.

mod barrier;
mod condvar;
mod mutex;
mod once;
mod rwlock;
mod semaphore;
mod waitgroup;

use std::time::{Duration, Instant};

/// Runs `f` as the main goroutine of a runtime with so many processors.
fn on<T: Send>(procs: usize, f: impl FnOnce() -> T + Send) -> T {
    // SAFETY: no test keeps a thread-local borrowed over a call that can park.
    let rt = unsafe { runnext::Runtime::builder().procs(procs).build() }.unwrap();
    rt.run(f)
}

/// Runs `f` on runtimes of one, two and eight processors.
fn on_each(f: impl Fn() + Sync) {
    for procs in [1, 2, 8] {
        on(procs, &f);
    }
}

/// Runs `f(i)` for each `i` below `n` at once: the even ones in goroutines, the odd ones on plain threads.
fn mixed(n: usize, f: impl Fn(usize) + Sync) {
    std::thread::scope(|threads| {
        for i in (1..n).step_by(2) {
            let f = &f;
            threads.spawn(move || f(i));
        }
        runnext::scope(|goroutines| {
            for i in (0..n).step_by(2) {
                let f = &f;
                goroutines.go(move || f(i));
            }
        });
    });
}

/// Lets everybody who is runnable run, on one processor, until they wait.
fn settle() {
    for _ in 0..10 {
        runnext::yield_now();
    }
}

fn spin(d: Duration) {
    let start = Instant::now();
    while start.elapsed() < d {
        std::hint::spin_loop();
    }
}

/// The message of a panic.
fn message(payload: Box<dyn std::any::Any + Send>) -> String {
    match payload.downcast::<String>() {
        Ok(text) => *text,
        Err(payload) => (*payload.downcast::<&str>().unwrap()).to_owned(),
    }
}

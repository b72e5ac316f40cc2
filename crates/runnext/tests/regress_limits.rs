//! Bugs at the limits that the system sets, and of what the program's own code does on our threads, each with the least that showed it.

mod common;
mod stall;

use std::cell::RefCell;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Barrier};
use std::time::Duration;

use common::{child, runtime, until};
use runnext::{JoinHandle, go, lock_os_thread, time};
use stall::{Hogs, watchdog};

/// From here on the system refuses CPU timers, and keeps of a signal no more than its number.
fn no_pending_signals() {
    let none = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a valid argument.
    let refused = unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) };
    assert_eq!(refused, 0);
}

/// Goroutines that wake up by themselves again and again, and stop others for that.
fn tickers(n: usize) {
    for _ in 0..n {
        go(|| {
            loop {
                time::sleep(Duration::from_micros(300));
            }
        });
    }
}

/// One that was presumed to be a hog was stopped and went to the head of the queue, for good: only the timer that was refused would have blamed it.
#[test]
fn hogs_from_one_place_take_turns_beside_tickers_without_timers() {
    child(&[], || {
        no_pending_signals();
        let _dog = watchdog("presumed hogs without timers");
        runtime(1).run(|| {
            const HOGS: usize = 10;
            let turns: &'static [AtomicU64; HOGS] =
                Box::leak(Box::new([const { AtomicU64::new(0) }; HOGS]));
            for turn in turns {
                go(move || {
                    loop {
                        turn.fetch_add(1, Relaxed);
                    }
                });
            }
            tickers(1);
            for _ in 0..20 {
                let before = turns.each_ref().map(|turn| turn.load(Relaxed));
                let all_ran = || {
                    turns
                        .iter()
                        .zip(before)
                        .all(|(turn, old)| turn.load(Relaxed) > old)
                };
                while !all_ran() {
                    time::sleep(Duration::from_millis(5));
                }
            }
        });
    })
    .passed();
}

static FOREIGN: AtomicUsize = AtomicUsize::new(0);

extern "C" fn count(_: libc::c_int) {
    FOREIGN.fetch_add(1, Relaxed);
}

/// What the kernel had kept only the number of was taken for another's signal, and passed on.
#[test]
fn requests_do_not_reach_the_programs_handler_at_the_limit_of_signals() {
    child(&[], || {
        no_pending_signals();
        let handler = count as extern "C" fn(libc::c_int);
        // SAFETY: the handler only counts.
        unsafe { libc::signal(libc::SIGURG, handler as libc::sighandler_t) };
        let _dog = watchdog("bare signals");
        runtime(1).run(|| {
            let hogs = Hogs::start(2);
            for _ in 0..300 {
                time::sleep(Duration::from_micros(500));
            }
            hogs.stop();
        });
        assert_eq!(FOREIGN.load(Relaxed), 0);
        // SAFETY: to this thread, which has a handler for it.
        unsafe { libc::raise(libc::SIGURG) };
        assert_eq!(FOREIGN.load(Relaxed), 1, "the program's own are passed on");
    })
    .passed();
}

/// Whose drop waits for others, who want a thread each.
struct Waits(Option<JoinHandle<()>>);

impl Drop for Waits {
    fn drop(&mut self) {
        if let Some(others) = self.0.take() {
            others.join().expect("they met");
        }
    }
}

/// Who makes threads waited for the thread-locals of one that had ended to be destroyed.
#[test]
fn a_thread_that_ends_slowly_keeps_no_others_from_being_made() {
    thread_local!(static LAST: RefCell<Waits> = const { RefCell::new(Waits(None)) });
    child(&[], || {
        let _dog = watchdog("a thread-local that waits");
        runtime(1).run(|| {
            const MANY: usize = 8;
            let ended = Arc::new(AtomicUsize::new(0));
            let ends = Arc::clone(&ended);
            let others = go(move || {
                until(|| ends.load(SeqCst) == 1);
                let barrier = Arc::new(Barrier::new(MANY));
                let meet: Vec<_> = (0..MANY)
                    .map(|_| {
                        let barrier = Arc::clone(&barrier);
                        go(move || _ = barrier.wait())
                    })
                    .collect();
                meet.into_iter()
                    .for_each(|g| g.join().expect("it met the others"));
            });
            let (done, told) = std::sync::mpsc::channel();
            let last = go(move || {
                LAST.with(|last| last.borrow_mut().0 = Some(others));
                std::mem::forget(lock_os_thread()); // its thread ends with it
                done.send(()).expect("somebody listens");
            });
            last.join().expect("ends");
            told.recv().expect("it said so");
            time::sleep(Duration::from_millis(20)); // until its thread is in the destructor, mostly
            ended.store(1, SeqCst);
            until(|| runnext::num_goroutines() == 1);
        });
    })
    .passed();
}

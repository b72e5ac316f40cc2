//! Bugs of the scheduler's edges: what it prints, its signals, how it stops and refuses.

mod common;

use std::cell::Cell;
use std::future::poll_fn;
use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::task::Poll;
use std::time::Duration;

use common::{built, child, cpu_time, message, runtime, thread_id, until};
use runnext::sync::Condvar;
use runnext::{Runtime, TaskGroup, block_on, chan, go, spawn};
use runnext_sys::signal::CpuTimer;

/// A goroutine's panic ended the process where stderr is a pipe that nobody reads: its announcement panicked, too, inside the hook.
#[test]
fn a_panic_that_cannot_be_announced_ends_only_its_goroutine() {
    child(&[("RUNNEXT_DEBUG", "no_such_setting=1")], || {
        let mut ends = [0; 2];
        // SAFETY: a place for two descriptors, which are nobody else's.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::dup2(ends[1], 2), 2);
            assert_eq!(libc::close(ends[0]), 0);
        }
        let joined = runtime(1).run(|| go(|| panic!("unheard")).join());
        assert!(joined.is_err());
    })
    .passed();
}

/// A closure for a group of another runtime was never dropped, and whoever waited for it waited for ever.
#[test]
fn what_a_group_of_another_runtime_refuses_is_dropped() {
    let group = TaskGroup::builder("one runtime's").build();
    let (one, other) = (runtime(1), runtime(1));
    one.run(|| group.go(|| ()).join().unwrap());
    let (tx, rx) = chan::bounded::<u8>(1);
    let refused = other.run(|| {
        panic::catch_unwind(AssertUnwindSafe(|| {
            group.go(move || tx.send(1).unwrap());
        }))
    });
    assert!(refused.is_err());
    assert!(rx.recv().is_err());
}

/// Panics when it is dropped before it was used.
struct Unused(bool);

impl Unused {
    fn use_up(mut self) {
        self.0 = true;
    }
}

impl Drop for Unused {
    fn drop(&mut self) {
        assert!(self.0, "never used");
    }
}

/// A scope waited for ever for a goroutine that found no header, if dropping its closure panicked, too.
#[test]
fn a_scope_does_not_wait_for_what_was_refused() {
    // There is no memory for backtraces.
    child(
        &[("MALLOC_ARENA_MAX", "1"), ("RUST_BACKTRACE", "0")],
        || {
            // No spare thread, which std aborts if it starts when there is no memory left for its signal stack.
            let rt = built(Runtime::builder().procs(1).max_threads(1).preemption(false));
            rt.run(|| {
                let limits = |most| libc::rlimit {
                    rlim_cur: most,
                    rlim_max: libc::RLIM_INFINITY,
                };
                let limit = |most| {
                    // SAFETY: a valid argument.
                    let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &limits(most)) };
                    assert_eq!(set, 0);
                };
                let (started, ran) = (Cell::new(0), AtomicUsize::new(0));
                let ran = &ran;
                let ended = panic::catch_unwind(AssertUnwindSafe(|| {
                    runnext::scope(|s| {
                        // For the panics: what is free in the heap from here on is all there is.
                        let reserve = std::hint::black_box(vec![0_u8; 64 << 10]);
                        limit(1);
                        drop(reserve);
                        let refused = panic::catch_unwind(AssertUnwindSafe(|| {
                            loop {
                                let once = Unused(false);
                                s.go(move || {
                                    once.use_up();
                                    ran.fetch_add(1, Relaxed);
                                });
                                started.set(started.get() + 1);
                            }
                        }));
                        limit(libc::RLIM_INFINITY);
                        assert!(
                            message(&*refused.unwrap_err()).contains("cannot start a goroutine")
                        );
                    });
                }));
                assert!(ended.is_ok());
                assert_eq!(ran.load(Relaxed), started.get());
            });
        },
    )
    .passed();
}

/// `drop` of a runtime waited for a moment at which none of its threads is inside the runtime: with many that make brief calls in a loop, for ever.
#[test]
fn a_runtime_ends_though_abandoned_goroutines_make_brief_calls_in_a_loop() {
    const GOROUTINES: usize = 16;
    child(&[], || {
        let rt = runtime(GOROUTINES);
        let begun = Arc::new(AtomicUsize::new(0));
        rt.run(|| {
            for _ in 0..GOROUTINES {
                let begun = Arc::clone(&begun);
                go(move || {
                    let nobody = Condvar::new();
                    begun.fetch_add(1, Relaxed);
                    loop {
                        nobody.notify_one();
                    }
                });
            }
        });
        until(|| begun.load(Relaxed) == GOROUTINES);
        drop(rt);
    })
    .passed();
}

/// The signal of preemption is one that kills by default.
const SIGUSR1: &[(&str, &str)] = &[("RUNNEXT_DEBUG", "preemptsignal=10")];

/// A tick of a slice's timer that came when its thread was no thread of the runtime any more was passed on, and killed the process.
#[test]
fn a_slice_that_ends_on_a_thread_that_has_left_the_runtime_harms_nobody() {
    child(SIGUSR1, || {
        let rt = runtime(1);
        let period = Duration::from_millis(1);
        let timer = CpuTimer::new(thread_id(), libc::SIGUSR1, period).unwrap();
        let used = || cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
        let begin = used();
        while used() < begin + 50 * period {}
        drop(timer);
        assert_eq!(rt.run(|| 7), 7);
    })
    .passed();
}

/// A timer of the program's own that uses the same signal was taken for the end of a slice.
#[test]
fn a_timer_of_the_program_reaches_its_handler() {
    static RINGS: AtomicUsize = AtomicUsize::new(0);
    extern "C" fn ring(_: i32) {
        RINGS.fetch_add(1, Relaxed);
    }
    child(SIGUSR1, || {
        // SAFETY: the handler counts in an atomic.
        unsafe { libc::signal(libc::SIGUSR1, ring as *const () as usize) };
        runtime(1).run(|| {
            let _here = runnext::lock_os_thread();
            // SAFETY: zeroes are valid; the timer signals the calling thread, which has a handler.
            unsafe {
                let mut event: libc::sigevent = std::mem::zeroed();
                event.sigev_notify = libc::SIGEV_THREAD_ID;
                event.sigev_signo = libc::SIGUSR1;
                event.sigev_notify_thread_id = thread_id();
                let mut timer = std::mem::zeroed();
                let clock = libc::CLOCK_MONOTONIC;
                assert_eq!(libc::timer_create(clock, &mut event, &mut timer), 0);
                let mut soon: libc::itimerspec = std::mem::zeroed();
                soon.it_value.tv_nsec = 1_000_000;
                let none = std::ptr::null_mut();
                assert_eq!(libc::timer_settime(timer, 0, &soon, none), 0);
            }
            until(|| RINGS.load(Relaxed) == 1);
        });
    })
    .passed();
}

/// A future that wakes itself lets others go first, but in a `block_on` inside a future it was polled again and again.
#[test]
fn a_block_on_inside_a_future_lets_others_go_first() {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        let nested = spawn(async {
            let turn = Arc::new(AtomicBool::new(false));
            let other = Arc::clone(&turn);
            go(move || other.store(true, SeqCst));
            block_on(poll_fn(|cx| {
                cx.waker().wake_by_ref();
                if turn.load(SeqCst) {
                    Poll::Ready(())
                } else {
                    Poll::Pending
                }
            }));
        });
        nested.join().unwrap();
    });
}

/// With timers that keep a local queue full, one new goroutine in 61 dispatches was started: hundreds of thousands of others' turns for some thousand.
#[test]
fn new_goroutines_do_not_wait_for_all_who_are_due() {
    const NEW: usize = 2_000;
    let rt = built(Runtime::builder().procs(1).preemption(false));
    let (turns, begun) = rt.run(|| {
        let (turns, begun) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let sleepers: Vec<_> = (0..400)
            .map(|_| {
                let (turns, begun) = (turns.clone(), begun.clone());
                go(move || {
                    while begun.load(Relaxed) < NEW {
                        turns.fetch_add(1, Relaxed);
                        runnext::time::sleep(Duration::from_nanos(1));
                    }
                })
            })
            .collect();
        until(|| turns.load(Relaxed) > 10_000);
        let before = turns.load(Relaxed);
        let new: Vec<_> = (0..NEW)
            .map(|_| {
                let begun = begun.clone();
                go(move || begun.fetch_add(1, Relaxed))
            })
            .collect();
        for one in new {
            one.join().unwrap();
        }
        sleepers.into_iter().for_each(|one| one.join().unwrap());
        (turns.load(Relaxed) - before, begun.load(Relaxed))
    });
    assert_eq!(begun, NEW);
    assert!(turns < 30 * NEW, "{turns} turns of others for {NEW}");
}

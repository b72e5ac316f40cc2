//! Bugs of the end of goroutines: who takes their results, who drops what they leave, how many there were.

mod common;

use std::cell::{Cell, RefCell};
use std::future::{Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{Counted, built, child, message, runtime, thread_id, until, until_asleep};
use runnext::goroutine::Builder;
use runnext::{
    Goroutine, JoinHandle, OsThreadGuard, Runtime, block_on, chan, current, go, goroutine_local,
    lock_os_thread, scope, spawn, yield_now,
};

/// One P and no preemption: who runs when is a fact.
fn alone() -> Runtime {
    built(Runtime::builder().procs(1).preemption(false))
}

fn drops() -> Arc<AtomicUsize> {
    Arc::default()
}

// ---- results are taken once ----

/// `join` gave the result of a handle that had been awaited a second time: two owners of one value.
#[test]
fn a_handle_that_was_awaited_has_no_result_for_join() {
    alone().run(|| {
        let drops = drops();
        let counted = Counted::new(&drops);
        let mut job = go(move || counted);
        let first = block_on(&mut job).unwrap();
        let second = catch_unwind(AssertUnwindSafe(move || job.join()));
        match second {
            Ok(again) => {
                std::mem::forget(again); // not ours to drop
                panic!("it gave its result twice");
            }
            Err(payload) => assert!(message(&*payload).contains("gives its result once")),
        }
        assert_eq!(drops.load(SeqCst), 0);
        drop(first);
        assert_eq!(drops.load(SeqCst), 1);
    });
}

// ---- results that nobody takes ----

/// The result of a scoped goroutine went with the last reference to it, which may outlive what the result borrows.
#[test]
fn an_unjoined_result_is_dropped_before_its_scope_returns() {
    alone().run(|| {
        for finished_first in [false, true] {
            let drops = drops();
            let kept: Goroutine = scope(|s| {
                let child = s.go(|| Counted::new(&drops));
                until(|| child.is_finished() || !finished_first);
                child.goroutine().clone()
            });
            assert_eq!(drops.load(SeqCst), 1, "the scope has returned");
            drop(kept);
            assert_eq!(drops.load(SeqCst), 1);
        }
    });
}

/// As above, of one that had left a waker somewhere, and of a panic that nobody takes.
#[test]
fn a_stray_waker_does_not_keep_a_scoped_result() {
    struct Bomb<'a>(&'a AtomicUsize);
    impl Drop for Bomb<'_> {
        fn drop(&mut self) {
            self.0.fetch_add(1, SeqCst);
            panic!("nobody hears this");
        }
    }
    alone().run(|| {
        let dropped = AtomicUsize::new(0);
        let stray = Mutex::new(None::<Waker>);
        scope(|s| {
            s.go(|| {
                block_on(poll_fn(|cx| {
                    *stray.lock().unwrap() = Some(cx.waker().clone());
                    Poll::Ready(())
                }));
                Bomb(&dropped)
            });
        });
        assert_eq!(dropped.load(SeqCst), 1, "the scope has returned");
        drop(stray);
        assert_eq!(dropped.load(SeqCst), 1);
    });
}

/// The result of a detached future stayed for as long as anybody had one of its wakers.
#[test]
fn a_stray_waker_does_not_keep_a_detached_result() {
    alone().run(|| {
        let (drops, stray) = (drops(), Arc::new(Mutex::new(None::<Waker>)));
        let (counted, place) = (Counted::new(&drops), Arc::clone(&stray));
        let mut counted = Some(counted);
        drop(spawn(poll_fn(move |cx| {
            *place.lock().unwrap() = Some(cx.waker().clone());
            Poll::Ready(counted.take())
        })));
        until(|| stray.lock().unwrap().is_some());
        yield_now();
        assert_eq!(drops.load(SeqCst), 1);
    });
}

/// The same, with the end and the handle's going at the same time.
#[test]
fn results_are_dropped_once_and_in_time_wherever_the_handle_goes() {
    let rounds = if cfg!(debug_assertions) {
        3_000
    } else {
        30_000
    };
    runtime(3).run(move || {
        for round in 0..rounds {
            let drops = drops();
            let (begun, kept) = (AtomicBool::new(false), Mutex::new(None));
            scope(|s| {
                let child = s.go(|| {
                    until(|| begun.load(Acquire));
                    Counted::new(&drops)
                });
                s.go(|| {
                    let clone = child.goroutine().clone();
                    begun.store(true, Release);
                    for _ in 0..round % 64 {
                        std::hint::spin_loop();
                    }
                    drop(child);
                    *kept.lock().unwrap() = Some(clone);
                });
            });
            assert_eq!(drops.load(SeqCst), 1, "round {round}");
        }
    });
}

// ---- code that runs as a goroutine that has ended ----

goroutine_local! {
    static LATE: Cell<Option<Counted>> = Cell::new(None);
}

/// A waker that drops the handle it was registered with, and then looks at the goroutine it runs on.
struct Meddler {
    handle: Mutex<Option<JoinHandle<()>>>,
    seen: Mutex<Option<String>>,
    drops: Arc<AtomicUsize>,
}

impl Wake for Meddler {
    fn wake(self: Arc<Self>) {
        drop(self.handle.lock().unwrap().take());
        let own = current().expect("it runs on the goroutine that ended");
        *self.seen.lock().unwrap() = own.name().map(str::to_owned);
        drop(own);
        LATE.with(|late| late.set(Some(Counted::new(&self.drops))));
        panic!("nobody hears this, but the hook asks for the goroutine's name");
    }
}

/// The last handle took a goroutine's name and locals away while a waker of somebody else's was running on it.
#[test]
fn a_waker_that_runs_at_the_end_finds_the_goroutine_whole() {
    let rt = alone();
    let meddler = Arc::new(Meddler {
        handle: Mutex::new(None),
        seen: Mutex::new(None),
        drops: drops(),
    });
    rt.run(|| {
        let mut job = Builder::new().name("whole").spawn(yield_now).unwrap();
        let waker = Waker::from(Arc::clone(&meddler));
        let polled = Pin::new(&mut job).poll(&mut Context::from_waker(&waker));
        assert!(polled.is_pending());
        *meddler.handle.lock().unwrap() = Some(job);
        drop(waker);
        until(|| Arc::strong_count(&meddler) == 1);
    });
    drop(rt); // and its threads: whatever the goroutine did last is done
    assert_eq!(meddler.seen.lock().unwrap().as_deref(), Some("whole"));
    assert_eq!(meddler.drops.load(SeqCst), 1, "its locals go with it");
}

// ---- shutdown ----

/// Who was started while `shutdown` waited was taken for one of those that were alive when it was called.
#[test]
fn shutdown_counts_those_alive_at_the_call() {
    let rt = alone();
    let (release, released) = chan::bounded::<()>(0);
    rt.go(move || {
        released.recv().unwrap();
        go(|| chan::never::<()>().recv());
    });
    let waits = thread_id();
    let releaser = std::thread::spawn(move || {
        until_asleep(waits, libc::SYS_futex); // in `shutdown`
        release.send(()).unwrap();
    });
    let counts = rt.shutdown(Duration::from_secs(10));
    assert_eq!((counts.finished, counts.abandoned), (1, 0));
    releaser.join().unwrap();
}

/// What a panic leaves may panic again when it is dropped, and that unwound the scheduler.
#[test]
fn a_payload_may_panic_in_its_drop() {
    struct Bomb(u32);
    impl Drop for Bomb {
        fn drop(&mut self) {
            if self.0 > 0 {
                std::panic::panic_any(Bomb(self.0 - 1));
            }
        }
    }
    let rt = runtime(1);
    rt.run(|| {
        drop(go(|| std::panic::panic_any(Bomb(2))));
        drop(spawn(async { std::panic::panic_any(Bomb(2)) }));
        drop(go(|| Bomb(2)));
        drop(spawn(async { Bomb(2) }));
        let (fired, seen) = chan::bounded::<()>(1);
        drop(runnext::time::after_func(Duration::ZERO, move || {
            let _ = fired.try_send(());
            std::panic::panic_any(Bomb(1));
        }));
        seen.recv().unwrap();
        yield_now();
    });
    assert_eq!(rt.run(|| go(|| 7).join().unwrap()), 7);
}

/// To be on the safe side it was leaked, each time.
#[test]
fn what_a_timers_function_panicked_with_is_dropped() {
    let drops = Arc::new(AtomicUsize::new(0));
    let rt = alone();
    rt.run(|| {
        let theirs = Arc::clone(&drops);
        let timer = runnext::time::after_func(Duration::ZERO, move || {
            std::panic::resume_unwind(Box::new(Counted::new(&theirs)));
        });
        for n in 1..=3 {
            until(|| drops.load(SeqCst) == n);
            timer.reset(Duration::ZERO);
        }
    });
}

// ---- block_on inside block_on ----

/// The inner one rang when it ended, whether or not it had answered any ring: a future that calls `block_on` in its poll was polled again and
/// again while it waited.
#[test]
fn a_nested_block_on_that_answers_no_ring_rings_nobody() {
    alone().run(|| {
        let (polls, stray) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(None)));
        let waits = {
            let (polls, place) = (Arc::clone(&polls), Arc::clone(&stray));
            go(move || {
                block_on(poll_fn(|cx| {
                    block_on(async {});
                    *place.lock().unwrap() = Some(cx.waker().clone());
                    match polls.fetch_add(1, SeqCst) {
                        0 | 1 => Poll::Pending,
                        _ => Poll::Ready(()),
                    }
                }));
            })
        };
        for n in 1..=2 {
            until(|| polls.load(SeqCst) == n);
            (0..10).for_each(|_| yield_now());
            assert_eq!(polls.load(SeqCst), n, "nobody has rung");
            stray.lock().unwrap().take().unwrap().wake();
        }
        waits.join().unwrap();
        assert_eq!(polls.load(SeqCst), 3);
    });
}

/// A ring that the inner one has answered was for the outer one, perhaps.
#[test]
fn a_nested_block_on_passes_on_the_rings_it_answers() {
    alone().run(|| {
        let mut polls = 0;
        block_on(poll_fn(|cx| {
            polls += 1;
            if polls == 1 {
                cx.waker().wake_by_ref();
                block_on(async {}); // answers it
                return Poll::Pending;
            }
            Poll::Ready(())
        }));
        assert_eq!(polls, 2);
    });
}

// ---- guards that outlive a poll ----

/// Its thread goes when the poll ends, and the guard counted on the one of a later poll: below zero, or against another guard.
#[test]
fn a_thread_guard_kept_from_poll_to_poll_counts_on_its_own_thread_only() {
    goroutine_local! {
        static KEPT: RefCell<Option<OsThreadGuard>> = RefCell::new(None);
    }
    runtime(2).run(|| {
        for locked_again in [false, true] {
            let mut polls = 0;
            let task = spawn(poll_fn(move |cx| {
                polls += 1;
                if polls == 1 {
                    KEPT.with(|kept| *kept.borrow_mut() = Some(lock_os_thread()));
                    cx.waker().wake_by_ref();
                    return Poll::Pending;
                }
                let again = locked_again.then(lock_os_thread);
                drop(KEPT.with(|kept| kept.take()));
                drop(again);
                Poll::Ready(())
            }));
            task.join().unwrap();
        }
    });
}

// ---- what threads leave ----

/// The table of a plain thread's locals was emptied when it ended, and never freed.
#[test]
fn the_locals_of_a_plain_thread_are_freed_with_their_table() {
    const THREADS: usize = 2_000;
    goroutine_local! {
        static USED: Cell<u64> = Cell::new(0);
    }
    child(&[], || {
        // SAFETY: no preconditions.
        let in_use = || unsafe { libc::mallinfo2() }.uordblks;
        let some = |n: usize| {
            for _ in 0..n {
                std::thread::spawn(|| USED.with(|used| used.set(1)))
                    .join()
                    .unwrap();
            }
        };
        some(100); // what is made once
        let before = in_use();
        some(THREADS);
        let each = in_use().saturating_sub(before) / THREADS;
        assert!(each < 16, "{each} bytes for each thread");
    })
    .passed();
}

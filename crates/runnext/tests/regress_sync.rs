//! One test for each bug of `sync`, `time` and the thread-local contract that was, named after it.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, OnceLock, mpsc};
use std::thread;
use std::time::Duration;

use common::{built, child, message, runtime, thread_id, until};
use runnext::chan::{Select, TryRecvError};
use runnext::context::Context;
use runnext::sync::{Mutex, RwLock, WaitGroup};
use runnext::{Runtime, TaskGroup, chan, dump, go, scope, select, stats, time, yield_now};

const US: Duration = Duration::from_micros(1);

/// If the thread of a timer's function was done before the reactor's had let go of the firing, the reactor's dropped the function:
/// all timers of plain threads waited for whatever its captures do in their drop.
#[test]
fn the_reactor_drops_no_function_of_a_timer() {
    struct Tells(mpsc::Sender<Option<String>>);
    impl Drop for Tells {
        fn drop(&mut self) {
            let name = thread::current().name().map(str::to_owned);
            let _ = self.0.send(name);
        }
    }
    let (tx, rx) = mpsc::channel();
    for _ in 0..3000 {
        let tells = Tells(tx.clone());
        drop(time::after_func(10 * US, move || {
            let _ = &tells;
        }));
        assert_ne!(rx.recv().unwrap().as_deref(), Some("runnext-reactor"));
    }
}

/// The function of a timer that got no stack was dropped without a net: a panic there ended the worker.
#[test]
fn a_refused_timer_may_panic_in_its_drop() {
    struct Bomb(Arc<AtomicBool>);
    impl Drop for Bomb {
        fn drop(&mut self) {
            self.0.store(true, SeqCst);
            panic::resume_unwind(Box::new("bomb"));
        }
    }
    child(&[("RUNNEXT_DEBUG", "mprotectguards=1")], || {
        runtime(2).run(|| {
            let (release, released) = chan::bounded::<()>(0);
            let keep_a_stack = || {
                let released = released.clone();
                go(move || released.recv().is_ok());
            };
            (0..40_000).for_each(|_| keep_a_stack()); // more than there can be
            let refused = || {
                let ran = Arc::new(AtomicBool::new(false));
                let dropped = Arc::new(AtomicBool::new(false));
                let (bomb, runs) = (Bomb(Arc::clone(&dropped)), Arc::clone(&ran));
                let timer = time::after_func(US, move || {
                    let _ = &bomb;
                    runs.store(true, SeqCst);
                });
                // Or it was all over before: then the bomb goes off here.
                let elsewhere = panic::catch_unwind(AssertUnwindSafe(|| drop(timer))).is_ok();
                until(|| dropped.load(SeqCst));
                elsewhere && !ran.load(SeqCst)
            };
            // One may be left on the processor that runs the timers.
            until(|| {
                let refused = refused();
                if !refused {
                    keep_a_stack();
                }
                refused
            });
            drop(release);
            until(|| runnext::num_goroutines() == 1);
        });
    })
    .passed();
}

/// Two that both saw the last thing to be done, while somebody waited, both took it off: the count went round, and whoever
/// waited next waited for ever.
#[test]
fn of_two_that_do_the_last_thing_at_once_one_panics() {
    const ROUNDS: usize = 500;
    // Without a switch, if the other has a CPU: they have to be at it at the same time.
    fn meet(there: impl Fn() -> bool) {
        let mut spins = 0;
        while !there() {
            spins += 1;
            if spins > 1000 {
                thread::yield_now();
            }
        }
    }
    let one_done = |group: &WaitGroup| {
        let outcome = panic::catch_unwind(AssertUnwindSafe(|| group.done()));
        usize::from(outcome.is_err())
    };
    child(&[], || {
        panic::set_hook(Box::new(|_| ())); // it would have a lot to say
        static ROUND: AtomicUsize = AtomicUsize::new(0);
        static ENDED: AtomicUsize = AtomicUsize::new(0);
        static PANICS: AtomicUsize = AtomicUsize::new(0);
        let group = WaitGroup::new();
        let theirs = group.clone();
        thread::spawn(move || {
            for n in 1..=ROUNDS {
                meet(|| ROUND.load(Acquire) == n);
                PANICS.fetch_add(one_done(&theirs), Relaxed);
                ENDED.store(n, Release);
            }
        });
        runtime(1).run(|| {
            for n in 1..=ROUNDS {
                group.add(1);
                let waits = group.clone();
                let waiter = go(move || waits.wait());
                yield_now(); // it waits
                ROUND.store(n, Release);
                PANICS.fetch_add(one_done(&group), Relaxed);
                meet(|| ENDED.load(Acquire) == n);
                assert_eq!(PANICS.load(Relaxed), n);
                waiter.join().unwrap();
            }
        });
    })
    .passed();
}

/// The goroutine is on the same thread before and after.
#[track_caller]
fn stays<T>(what: &str, f: impl FnOnce() -> T) -> T {
    let before = thread_id();
    let result = f();
    assert_eq!(before, thread_id(), "{what} has moved the goroutine");
    result
}

/// Runs `poll` again and again in more goroutines than there are processors, until they had to give way a hundred times.
fn crowd(poll: impl Fn() + Sync) {
    let rt = built(Runtime::builder().procs(2).time_slice(1000 * US));
    rt.run(|| {
        let asked = || {
            let s = stats::read();
            s.preemptions_cooperative + s.preemptions_slice + s.preemptions_wakeup
        };
        scope(|s| {
            for _ in 0..4 {
                s.go(|| {
                    while asked() < 100 {
                        (0..100).for_each(|_| poll());
                    }
                });
            }
        });
    });
}

/// An attempt that came to nothing yielded, so the goroutine went on on another thread, which nothing in its documentation said.
#[test]
fn polling_a_channel_moves_nobody() {
    let (full, _full) = chan::bounded(0);
    let (_empty, empty) = chan::bounded::<u8>(0);
    crowd(|| {
        stays("try_send", || assert!(full.try_send(1).is_err()));
        stays("try_recv", || {
            assert_eq!(empty.try_recv(), Err(TryRecvError::Empty))
        });
        stays("never", || assert!(chan::never::<u8>().try_recv().is_err()));
        stays("select!", || {
            select! { recv(empty) -> _ => unreachable!(), default => () }
        });
        stays("try_select", || {
            let mut select = Select::new();
            select.recv(&empty);
            assert!(select.try_select().is_err());
        });
    });
}

/// As above, where there is something: the call gave way when it was over.
#[test]
fn what_is_ready_moves_nobody() {
    crowd(|| {
        let (tx, rx) = chan::unbounded();
        let sent = stays("select!", || {
            select! { send(tx, 1) -> sent => sent.is_ok(), default => false }
        });
        assert!(sent);
        let mut select = Select::new();
        select.send(&tx);
        let op = stays("try_select", || select.try_select().unwrap());
        stays("send", || op.send(&tx, 2).unwrap());
        for _ in 0..2 {
            stays("select!", || {
                select! { recv(rx) -> got => assert!(got.is_ok()), default => unreachable!() }
            });
        }
        // This one gives way.
        stays("try_recv", || assert!(rx.try_recv().is_err()));
    });
}

/// They locked a mutex that parks, or let go of one in a way that makes way, or ran the closure of a `Once`.
#[test]
fn contexts_and_attempts_at_locks_move_nobody() {
    let (root, empty) = (Context::background().with_cancel(), chan::never::<u8>());
    let (lock, shown) = (RwLock::new(()), Mutex::new(0));
    let _all_the_time = lock.read();
    crowd(|| {
        stays("with_cancel", || root.with_cancel());
        let child = stays("with_timeout", || root.with_timeout(Duration::MAX));
        let grandchild = stays("with_deadline", || {
            child.with_deadline(time::Instant::now())
        });
        stays("cancel", || child.cancel());
        stays("drop", || drop((child, grandchild)));
        let reading = stays("try_read", || lock.try_read().unwrap());
        stays("try_write", || assert!(lock.try_write().is_none()));
        stays("drop of a read lock", || drop(reading));
        stays("Debug", || assert!(format!("{shown:?}").contains("data")));
        let cell = stays("from", || runnext::sync::OnceLock::from(1));
        assert_eq!(stays("clone", || cell.clone()).get(), Some(&1));
        // This one gives way.
        stays("try_recv", || assert!(empty.try_recv().is_err()));
    });
}

/// The lock went to the first in line, whose group had used up its quota: it was nobody's, and all others waited until that one could run.
#[test]
fn a_lock_passes_by_who_may_not_run() {
    let waiters = || dump::text().matches("sync.Mutex.Lock").count();
    runtime(1).run(|| {
        let slow = TaskGroup::builder("slow").quota(0.01).build();
        let done = Arc::new(AtomicBool::new(false));
        let hog = slow.go({
            let done = Arc::clone(&done);
            move || while !done.load(Relaxed) {}
        });
        // Which of two gets it first. The one that came first, should its group be able to run just then.
        let passes_by = || {
            let (lock, first) = (Arc::new(Mutex::new(())), Arc::new(OnceLock::new()));
            let held = lock.lock();
            let waiter = |name: &'static str| {
                let (lock, first) = (Arc::clone(&lock), Arc::clone(&first));
                move || {
                    let _held = lock.lock();
                    first.get_or_init(|| name);
                }
            };
            let one = slow.go(waiter("slow"));
            until(|| waiters() == 1);
            let other = go(waiter("other"));
            until(|| waiters() == 2 && slow.stats().throttled);
            drop(held);
            other.join().unwrap();
            one.join().unwrap();
            first.get() == Some(&"other")
        };
        assert!((0..10).any(|_| passes_by()));
        done.store(true, Relaxed);
        slow.set_quota(None);
        hog.join().unwrap();
    });
}

/// A `Drop` of the cell's own made the compiler refuse what borrows from something that is dropped before the cell, which std's cell takes.
#[test]
fn a_cell_may_outlive_what_its_value_borrows() {
    let cell = runnext::sync::OnceLock::new();
    let text = String::from("borrowed");
    assert_eq!(cell.get_or_init(|| text.as_str()), &"borrowed");
    // Values that have a drop are dropped with the cell, once.
    let counted = Arc::new(());
    let cells = [Arc::clone(&counted).into(), runnext::sync::OnceLock::new()];
    assert_eq!(Arc::strong_count(&counted), 2);
    drop(cells);
    assert_eq!(Arc::strong_count(&counted), 1);
}

/// A task of `WaitGroup::go` that panicked, when somebody else had said that it was done, ended the process: the second panic came in a drop.
#[test]
fn a_task_that_panics_may_have_been_done_before() {
    child(&[], || {
        runtime(1).run(|| {
            let group = WaitGroup::new();
            let theirs = group.clone();
            let task = group.go(move || {
                theirs.done();
                panic!("the first");
            });
            let error = task.join().unwrap_err();
            assert_eq!(message(&*error), "the first");
            // Without a panic of its own it says so.
            let theirs = group.clone();
            let task = group.go(move || theirs.done());
            let error = task.join().unwrap_err();
            assert!(message(&*error).contains("more often"));
        });
    })
    .passed();
}

//! One test for each bug that was, named after it.

mod common;

use std::cell::{Cell, RefCell};
use std::panic::{self, AssertUnwindSafe};
use std::pin::Pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::Poll;
use std::time::{Duration, Instant};

use common::{built, child, child_of, cpu_time, message, runtime, thread_id, until, until_asleep};
use runnext::{
    Goroutine, JoinHandle, Runtime, TaskGroup, blocking, chan, checkpoint, dump, go, goroutine,
    goroutine_local, lock_os_thread, scope, set_procs, time, yield_now,
};

/// A goroutine-local made by the drop of another was dropped with the last handle: on another goroutine, perhaps another
/// thread, though it need not be `Send`.
#[runnext::test(procs = 2)]
fn locals_made_while_locals_are_dropped_stay_at_home() {
    static LATE_DROPPED_BY: AtomicU64 = AtomicU64::new(0);
    struct Late;
    impl Drop for Late {
        fn drop(&mut self) {
            LATE_DROPPED_BY.store(runnext::current().unwrap().id(), SeqCst);
        }
    }
    struct Early;
    impl Drop for Early {
        fn drop(&mut self) {
            LATE.with(|_| ());
        }
    }
    goroutine_local! {
        static LATE: Late = Late;
        static EARLY: Early = Early;
    }
    let handle = go(|| EARLY.with(|_| ()));
    let id = handle.goroutine().id();
    until(|| handle.is_finished());
    assert_eq!(LATE_DROPPED_BY.load(SeqCst), id);
    handle.join().unwrap();
}

/// Two locals that make each other on their way out are dropped a few times, not for ever.
#[runnext::test(procs = 1)]
fn locals_that_revive_each_other_end() {
    static DROPS: AtomicUsize = AtomicUsize::new(0);
    struct A;
    struct B;
    impl Drop for A {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
            IN_B.with(|_| ());
        }
    }
    impl Drop for B {
        fn drop(&mut self) {
            DROPS.fetch_add(1, SeqCst);
            IN_A.with(|_| ());
        }
    }
    goroutine_local! {
        static IN_A: A = A;
        static IN_B: B = B;
    }
    go(|| IN_A.with(|_| ())).join().unwrap();
    assert_eq!(DROPS.load(SeqCst), 4);
}

/// A handle that the drop of an unwanted result made was left without the goroutine's name, or with a freed one.
#[runnext::test(procs = 2)]
fn a_handle_made_in_the_drop_of_a_result_has_its_name() {
    static KEPT: Mutex<Option<Goroutine>> = Mutex::new(None);
    struct Asks;
    impl Drop for Asks {
        fn drop(&mut self) {
            *KEPT.lock().unwrap() = runnext::current();
        }
    }
    let named = runnext::goroutine::Builder::new().name("kept");
    // It ends after its handle is gone: otherwise the result would be dropped with the handle, here.
    let (unwanted, is_unwanted) = chan::bounded::<()>(0);
    let handle = named.spawn(move || is_unwanted.recv().map_or(Asks, |()| Asks));
    drop(handle.unwrap());
    drop(unwanted);
    until(|| runnext::num_goroutines() == 1);
    until(|| KEPT.lock().unwrap().is_some());
    let kept = KEPT.lock().unwrap().take().unwrap();
    assert_eq!(kept.name(), Some("kept"));
}

/// The closure of a scoped goroutine that got no stack was dropped without a net: a panic there ended the worker.
#[test]
fn a_refused_scoped_goroutine_may_panic_in_its_drop() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic::resume_unwind(Box::new("bomb"));
        }
    }
    child(&[("RUNNEXT_DEBUG", "mprotectguards=1")], || {
        runtime(2).run(|| {
            let (release, released) = chan::bounded::<()>(0);
            // More that wait than there can be stacks. Each for itself: one that gets none must not end another that has one.
            for _ in 0..40_000 {
                let released = released.clone();
                go(move || released.recv().is_ok());
            }
            let refused = || {
                let bomb = Bomb;
                let outcome = panic::catch_unwind(AssertUnwindSafe(|| {
                    scope(|s| {
                        let handle = s.go(move || std::mem::forget(bomb));
                        handle.join().map_err(|e| message(&*e).to_owned())
                    })
                }));
                outcome.expect("joined, so not the scope's").is_err()
            };
            until(refused);
            drop(release);
            until(|| runnext::num_goroutines() == 1);
        });
    })
    .passed();
}

/// A P given up with a full queue, when there was no thread to give it to, kept its goroutines: searchers pass over idle Ps and
/// do not know those that `set_procs` has made one too many.
#[runnext::test(procs = 8)]
fn a_processor_without_a_thread_keeps_no_work() {
    for i in 0..200usize {
        set_procs(1 + i * 5 % 8);
        let locked = go(|| {
            let _tied = lock_os_thread();
            let handles: Vec<_> = (0..20).map(|i| go(move || i)).collect();
            handles.into_iter().map(|h| h.join().unwrap()).sum::<i32>()
        });
        set_procs(1 + i * 3 % 8);
        assert_eq!(locked.join().unwrap(), 190);
    }
}

/// A plain thread that waited in the drop of a thread-local, after the one it sleeps on was gone, published one parker and slept on
/// another.
#[test]
fn a_thread_may_wait_while_it_ends() {
    static ENDING: AtomicBool = AtomicBool::new(false);
    struct JoinsLate(RefCell<Option<JoinHandle<u32>>>);
    impl Drop for JoinsLate {
        fn drop(&mut self) {
            ENDING.store(true, SeqCst);
            let handle = self.0.take().unwrap();
            assert_eq!(handle.join().unwrap(), 2);
        }
    }
    thread_local! {
        static LATE: JoinsLate = const { JoinsLate(RefCell::new(None)) };
    }
    child(&[], || {
        let rt = Arc::new(runtime(1));
        let inside = Arc::clone(&rt);
        let (first, second) = (chan::bounded::<()>(0), chan::bounded::<()>(0));
        let (id, ids) = std::sync::mpsc::channel();
        let ends = std::thread::spawn(move || {
            id.send(thread_id()).unwrap();
            let wait = |gate: chan::Receiver<()>, n| {
                inside.go(move || gate.recv().map_or(n, |()| n)) // until it is closed
            };
            // Made first, so that what a thread sleeps on goes before it.
            LATE.with(|late| *late.0.borrow_mut() = Some(wait(second.1, 2)));
            assert_eq!(wait(first.1, 1).join().unwrap(), 1);
        });
        let thread = ids.recv().unwrap();
        until_asleep(thread, libc::SYS_futex);
        drop(first.0);
        until(|| ENDING.load(SeqCst));
        until_asleep(thread, libc::SYS_futex);
        drop(second.0);
        ends.join().unwrap();
    })
    .passed();
}

/// A variable out of range stopped the program, with an error that did not name it.
#[test]
fn a_variable_out_of_range_is_ignored() {
    child(&[("RUNNEXT_PROCS", "0")], || {
        assert!(common::built(runnext::Runtime::builder()).run(runnext::procs) >= 1);
    })
    .passed()
    .said(&["ignored RUNNEXT_PROCS=0: it must be a whole number from 1 to 1024"]);
}

/// A newline in a name broke the lines of dumps and reports: what followed could pass for another goroutine.
#[test]
fn a_name_of_two_lines_is_shown_in_one() {
    const ODD: &str = "odd\ngoroutine 99 [running]:\u{1b}[2J";
    const SHOWN: &str = r"'odd\ngoroutine 99 [running]:\u{1b}[2J'";
    let odd = || goroutine::Builder::new().name(ODD);
    runtime(2).run(|| {
        let (release, hold) = chan::bounded::<()>(0);
        let group = TaskGroup::new("a\r\ngoroutine 98");
        let waits = group.enter(|| odd().spawn(move || hold.recv()).unwrap());
        let id = waits.goroutine().id();
        assert_eq!(waits.goroutine().name(), Some(ODD), "it is kept as it is");
        until(|| {
            let line =
                format!("goroutine {id} [chan receive]: {SHOWN} (group a\\r\\ngoroutine 98)");
            let dump = dump::text();
            let entries = dump.lines().filter(|line| line.starts_with("goroutine "));
            assert_eq!(entries.count(), 2, "{dump}");
            dump.lines().any(|l| l == line)
        });
        drop(release);
        waits.join().unwrap().unwrap_err();
    });
    child_of(
        "a_name_of_two_lines_is_shown_in_one",
        &[("RUNNEXT_DEBUG", "stalls=20")],
        || {
            let (release, hold) = std::sync::mpsc::channel::<()>();
            let rt = runtime(2);
            let stalls = rt.run(|| odd().spawn(move || hold.recv()).unwrap());
            until(|| rt.stats().total_stalls > 0);
            drop(release);
            stalls.join().unwrap().unwrap_err();
            drop(rt); // what was found has been told by then
            let rt = runtime(2);
            let panics = rt.run(|| odd().spawn(|| panic!("on purpose")).unwrap());
            panics.join().unwrap_err();
            let digs = rt.run(|| odd().spawn(|| dig(0)).unwrap());
            digs.join().unwrap();
        },
    )
    .died_by(libc::SIGSEGV)
    .said(&[
        &format!("{SHOWN} blocks its thread in undeclared code since "),
        &format!("{SHOWN}, spawned at crates"),
        &format!("{SHOWN} overflowed its stack of 256 KiB"),
    ]);
}

/// The report of an overflow had no room for what had happened, nor for the end of its line, if the name was long.
#[test]
fn a_long_name_leaves_room_for_the_report_of_an_overflow() {
    child(&[], || {
        let long = goroutine::Builder::new().name("x".repeat(1000));
        runtime(1).run(|| long.spawn(|| dig(0)).unwrap().join().unwrap());
    })
    .died_by(libc::SIGSEGV)
    .said(&[
        "xxx overflowed its stack of 256 KiB",
        "Builder::stack_size.\n",
    ]);
}

#[allow(unconditional_recursion)]
fn dig(depth: u64) {
    let frame = std::hint::black_box([depth; 16]);
    dig(depth + 1);
    std::hint::black_box(frame);
}

/// A counter of panics that stays on the thread would make later goroutines there believe that they unwind.
#[runnext::test(procs = 2)]
fn a_local_may_be_used_while_unwinding() {
    goroutine_local! {
        static SEEN: Cell<bool> = Cell::new(false);
    }
    struct Looks;
    impl Drop for Looks {
        fn drop(&mut self) {
            SEEN.with(|s| s.set(std::thread::panicking()));
        }
    }
    let seen = go(|| {
        let caught = panic::catch_unwind(|| {
            let _looks = Looks;
            panic::resume_unwind(Box::new(()));
        });
        assert!(caught.is_err());
        SEEN.with(Cell::get) && !std::thread::panicking()
    });
    assert!(seen.join().unwrap());
}

/// A pause of a group was in its statistics only once it was over: one that began counted, and lasted for nothing.
#[runnext::test(procs = 2)]
fn a_pause_that_goes_on_is_counted() {
    let group = TaskGroup::builder("paused").quota(0.01).build();
    let stop = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&stop);
    let hog = group.go(move || while !seen.load(SeqCst) {});
    let grows = || {
        let first = group.stats();
        time::sleep(Duration::from_millis(2));
        let second = group.stats();
        let same =
            first.throttled && second.throttled && first.throttled_count == second.throttled_count;
        same && second.throttled_time >= first.throttled_time + Duration::from_millis(2)
    };
    until(grows);
    stop.store(true, SeqCst);
    hog.join().unwrap();
}

/// A weight out of range was shown as it was asked for, not as it counts.
#[test]
fn a_group_shows_the_weight_that_counts() {
    let weight = |w| format!("{:?}", TaskGroup::builder("odd").weight(w).build());
    assert!(weight(0).contains("weight: 1,"));
    assert!(weight(u32::MAX).contains("weight: 10000,"));
}

/// A goroutine that gave a group back while its runtime ended could hold the list of groups for ever, and whoever ended the runtime waited
/// for that.
#[test]
fn groups_may_end_while_their_runtime_does() {
    for round in 0..100 {
        let rt = runtime(2);
        for _ in 0..6 {
            rt.go(|| {
                loop {
                    let groups = [(); 3].map(|()| TaskGroup::new("short"));
                    let jobs = groups.each_ref().map(|group| group.go(|| ()));
                    drop(groups);
                    jobs.into_iter().for_each(|job| job.join().unwrap());
                }
            });
        }
        std::thread::sleep(Duration::from_micros(100 * (round % 20)));
        drop(rt);
    }
}

/// A goroutine that was stopped with its thread, and got a P back because there was no other thread for it, went on in nobody's turn: its group
/// paid nothing from then on, and no quota held it.
#[test]
fn a_group_pays_though_there_is_no_other_thread() {
    let rt = built(Runtime::builder().procs(2).max_threads(2));
    let (charged, used) = rt.run(|| {
        let group = TaskGroup::builder("half").quota(0.5).build();
        go(|| {
            loop {
                time::sleep(Duration::from_millis(1)); // it takes a thread each time
            }
        });
        let hog = group.go(|| {
            let used = || cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
            let (before, began) = (used(), Instant::now());
            while began.elapsed() < Duration::from_millis(200) {}
            used() - before
        });
        let used = hog.join().unwrap();
        (group.stats().cpu_time, used)
    });
    assert!(charged * 2 > used, "{charged:?} for {used:?}");
}

/// Of two groups that pause, the one that pauses for longer was forgotten when the other went on: if the processor became idle before its time, nobody
/// woke it.
#[test]
fn a_longer_pause_than_anothers_ends() {
    let rt = runtime(1);
    let (tx, ended) = std::sync::mpsc::channel();
    rt.go(move || {
        let _guard = lock_os_thread(); // it waits with its thread, and gives the P away without a look at who is next
        let group = |name, quota| TaskGroup::builder(name).weight(10_000).quota(quota).build();
        let (long, short) = (group("long", 0.01), group("short", 0.1));
        let (done, rx) = chan::bounded(1);
        let paused = long.clone();
        long.go(move || {
            while paused.stats().throttled_count == 0 {
                burn(Duration::from_millis(1));
                yield_now();
            }
            done.send(()).unwrap();
        });
        until(|| long.stats().throttled);
        let paused = short.clone();
        let shorter = short.go(move || {
            while paused.stats().throttled_count == 0 {
                burn(Duration::from_micros(100));
                yield_now();
            }
        });
        while !shorter.is_finished() {
            burn(Duration::from_micros(50));
            checkpoint();
        }
        rx.recv().unwrap();
        tx.send(()).unwrap();
    });
    let ended = ended.recv_timeout(Duration::from_secs(60));
    assert!(ended.is_ok(), "nobody woke it");
}

/// A goroutine that waited for another inside a blocking section let the others of its group run for nothing until it went on.
#[test]
fn who_waits_in_a_blocking_section_makes_nobody_run_for_nothing() {
    let rt = runtime(1);
    let (charged, used) = rt.run(|| {
        let group = TaskGroup::new("pair");
        let (tx, rx) = chan::bounded::<()>(0);
        let waits = group.go(move || while blocking(|| rx.recv()).is_ok() {});
        let works = group.go(move || {
            for _ in 0..200 {
                burn(Duration::from_micros(300));
                tx.send(()).unwrap();
            }
        });
        works.join().unwrap();
        waits.join().unwrap();
        (group.stats().cpu_time, Duration::from_micros(200 * 300))
    });
    assert!(charged * 10 > used * 9, "{charged:?} for {used:?}");
}

/// A future that was queued behind a goroutine that computes was not dropped when its runtime went, and who waited for it waited for ever.
#[test]
fn futures_behind_hogs_are_dropped_with_their_runtime() {
    #[derive(Clone, Default)]
    struct Seen {
        polls: Arc<AtomicUsize>,
        drops: Arc<AtomicUsize>,
    }
    /// Computes for long once, so that it queues with the hogs from then on.
    struct Busy(Seen);
    impl Drop for Busy {
        fn drop(&mut self) {
            self.0.drops.fetch_add(1, SeqCst);
        }
    }
    impl Future for Busy {
        type Output = ();
        fn poll(self: Pin<&mut Self>, cx: &mut std::task::Context<'_>) -> Poll<()> {
            if self.0.polls.fetch_add(1, SeqCst) == 0 {
                burn(Duration::from_millis(30));
            }
            cx.waker().wake_by_ref();
            Poll::Pending
        }
    }
    for _ in 0..5 {
        let (rt, seen) = (runtime(1), Seen::default());
        let stop = Arc::new(AtomicBool::new(false));
        rt.spawn(Busy(seen.clone()));
        for _ in 0..3 {
            let stop = Arc::clone(&stop);
            rt.go(move || while !stop.load(SeqCst) {});
        }
        until(|| seen.polls.load(SeqCst) > 1);
        std::thread::sleep(Duration::from_millis(3)); // it waits for its next turn, or is at the end of a poll
        drop(rt);
        until(|| seen.drops.load(SeqCst) == 1);
        stop.store(true, SeqCst);
    }
}

/// Uses so much CPU time of the calling thread, without a call of the runtime.
fn burn(time: Duration) {
    let used = || cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let begin = used();
    while used() - begin < time {}
}

//! Goroutines as their users see them: results, panics, handles, names, counts.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use common::{Counted, child, message, runtime, until};
use runnext::{Goroutine, JoinHandle, go, goroutine, yield_now};

fn assert_send_sync<T: Send + Sync>(_: &T) {}

#[runnext::test]
fn join_returns_the_value() {
    assert_eq!(go(|| 6 * 7).join().unwrap(), 42);
}

#[runnext::test(procs = 2)]
fn each_runs_once_and_none_is_left() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..100 {
        let handles: Vec<_> = (0..1000)
            .map(|i| {
                go(move || {
                    RUNS.fetch_add(1, Relaxed);
                    i
                })
            })
            .collect();
        for (i, handle) in handles.into_iter().enumerate() {
            assert_eq!(handle.join().unwrap(), i);
        }
    }
    assert_eq!(RUNS.load(Relaxed), 100_000);
    assert_eq!(runnext::num_goroutines(), 1);
}

#[runnext::test(procs = 2)]
fn closures_and_results_of_every_shape() {
    #[repr(align(64))]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Aligned([u64; 8]);
    #[repr(align(4096))]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Page(u8);
    struct Nothing;

    fn place<T>(value: &T) -> usize {
        std::ptr::from_ref(value).addr() % align_of::<T>()
    }

    // Nothing in, nothing out.
    go(|| ()).join().unwrap();
    let Nothing = go(|| Nothing).join().unwrap();
    // At, and on both sides of, what fits into the header.
    for len in 0..=12 {
        let words: Vec<u64> = (0..len).collect();
        let expected = words.clone();
        macro_rules! with_words {
            ($($n:literal)*) => { $(
                let mut array = [0u64; $n];
                for (to, from) in array.iter_mut().zip(&words) { *to = *from; }
                let back = go(move || array).join().unwrap();
                assert_eq!(back, array);
            )* };
        }
        with_words!(0 1 2 3 4 5 6 7 8 12);
        assert_eq!(go(move || words).join().unwrap(), expected);
    }
    // Large.
    let large = [7u8; 4 << 10];
    assert_eq!(go(move || large).join().unwrap(), large);
    // Over-aligned, small and large.
    let aligned = Aligned([1, 2, 3, 4, 5, 6, 7, 8]);
    let (inside, back) = go(move || (place(&aligned), aligned)).join().unwrap();
    assert_eq!((inside, place(&back), back), (0, 0, aligned));
    let page = Page(9);
    let (inside, back) = go(move || (place(&page), page)).join().unwrap();
    assert_eq!((inside, place(&back), back), (0, 0, page));
    // An aligned type of size zero.
    #[repr(align(128))]
    struct AlignedNothing;
    assert_eq!(place(&go(|| AlignedNothing).join().unwrap()), 0);
    // What has niches, and no value at all.
    assert_eq!(go(|| None::<Box<u8>>).join().unwrap(), None);
    assert!(
        go(|| -> std::convert::Infallible { panic::resume_unwind(Box::new(0)) })
            .join()
            .is_err()
    );
}

#[runnext::test(procs = 2)]
fn a_panic_is_what_join_returns() {
    let text = go(|| panic!("said {}", 1)).join().unwrap_err();
    assert_eq!(message(&*text), "said 1");
    let payload = go(|| panic::panic_any(vec![1, 2, 3])).join().unwrap_err();
    assert_eq!(payload.downcast_ref::<Vec<i32>>(), Some(&vec![1, 2, 3]));
    let silent = go(|| panic::resume_unwind(Box::new(7u8)))
        .join()
        .unwrap_err();
    assert_eq!(silent.downcast_ref::<u8>(), Some(&7));
    // The thread that ran it is as good as before.
    assert!(!go(std::thread::panicking).join().unwrap());
}

#[runnext::test(procs = 2)]
fn a_panic_may_be_caught_inside() {
    let caught = go(|| {
        let caught = panic::catch_unwind(|| panic!("inside"));
        yield_now();
        caught.is_err()
    });
    assert!(caught.join().unwrap());
}

#[test]
fn a_panic_is_reported_with_number_name_and_origin() {
    child(&[], || {
        runtime(1).run(|| {
            assert!(go(|| panic!("first words")).join().is_err());
            let named = goroutine::Builder::new().name("parser");
            let named = named.spawn(|| panic!("second words")).unwrap();
            assert!(named.join().is_err());
        });
    })
    .passed()
    .said(&[
        "goroutine 2, spawned at crates/runnext/tests/goroutine.rs:",
        "first words",
        "goroutine 3 'parser', spawned at crates/runnext/tests/goroutine.rs:",
        "second words",
    ]);
}

#[runnext::test(procs = 2)]
fn dropping_the_handle_detaches() {
    static RAN: AtomicBool = AtomicBool::new(false);
    drop(go(|| {
        yield_now();
        RAN.store(true, Relaxed);
    }));
    until(|| RAN.load(Relaxed));
    until(|| runnext::num_goroutines() == 1);
}

/// Whoever is last, the goroutine or its handles, drops the result; nobody twice.
#[runnext::test(procs = 2)]
fn results_and_closures_are_dropped_exactly_once() {
    let results = Arc::new(AtomicUsize::new(0));
    let closures = Arc::new(AtomicUsize::new(0));
    let large = || [0u64; 32];
    let mut kept = Vec::new();
    let n = 2_000;
    for i in 0..n {
        let (result, closure, pad) = (Counted::new(&results), Counted::new(&closures), large());
        let yields = i % 3;
        let body = move || {
            let _closure = closure;
            for _ in 0..yields {
                yield_now();
            }
            (i % 2 == 0).then(|| std::hint::black_box(pad));
            if i % 7 == 0 {
                panic::resume_unwind(Box::new(result));
            }
            result
        };
        let handle = go(body);
        match i % 5 {
            0 => drop(handle),        // before it ran
            1 => drop(handle.join()), // taken
            2 => kept.push(handle),   // after it ended, perhaps
            3 => {
                let as_goroutine = handle.goroutine().clone();
                drop(handle);
                yield_now();
                drop(as_goroutine);
            }
            _ => {
                yield_now(); // while it runs, perhaps
                drop(handle);
            }
        }
    }
    until(|| runnext::num_goroutines() == 1);
    assert!(kept.iter().all(JoinHandle::is_finished));
    assert_eq!(closures.load(SeqCst), n);
    drop(kept);
    until(|| results.load(SeqCst) >= n);
    assert_eq!(results.load(SeqCst), n);
}

#[runnext::test(procs = 2)]
fn a_panicking_drop_of_an_unwanted_result_ends_nothing_else() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic::resume_unwind(Box::new("bomb"));
        }
    }
    drop(go(|| Bomb));
    let kept = go(|| Bomb);
    until(|| runnext::num_goroutines() == 1);
    drop(kept); // here, caught too: nobody asked for it
    // Joined, it is the joiner's value, and its drop the joiner's business.
    let mine = go(|| Bomb).join().unwrap();
    assert!(panic::catch_unwind(AssertUnwindSafe(|| drop(mine))).is_err());
}

#[runnext::test(procs = 2)]
fn is_finished_turns_true_once_and_join_is_immediate_then() {
    let go_on = Arc::new(AtomicBool::new(false));
    let waits = Arc::clone(&go_on);
    let handle = go(move || until(|| waits.load(Relaxed)));
    assert!(!handle.is_finished());
    go_on.store(true, Relaxed);
    until(|| handle.is_finished());
    handle.join().unwrap();
}

#[runnext::test(procs = 2)]
fn a_goroutine_knows_itself() {
    let me = runnext::current().expect("a goroutine");
    assert_eq!(me.id(), 1, "the first of its runtime");
    assert_eq!(me.name(), None);
    let line = line!() + 1;
    let handle = go(|| runnext::current().unwrap());
    assert_send_sync(&handle);
    let seen = handle.goroutine().clone();
    let itself: Goroutine = handle.join().unwrap();
    assert_send_sync(&itself);
    assert_eq!(seen.id(), itself.id());
    assert_ne!(seen.id(), me.id());
    assert_eq!(itself.spawned_at().line(), line);
    assert!(itself.spawned_at().file().ends_with("goroutine.rs"));
    assert!(format!("{itself:?}").contains(&format!("id: {}", itself.id())));
}

#[runnext::test(procs = 2)]
fn ids_are_never_reused() {
    let mut ids: Vec<u64> = (0..5_000)
        .map(|_| go(|| runnext::current().unwrap().id()))
        .map(|h| h.join().unwrap())
        .collect();
    ids.push(runnext::current().unwrap().id());
    let n = ids.len();
    ids.sort_unstable();
    ids.dedup();
    assert_eq!(ids.len(), n);
}

#[test]
fn on_a_plain_thread_nobody_is_current() {
    assert!(runnext::current().is_none());
    runnext::yield_now();
    runnext::checkpoint();
    let guard = runnext::lock_os_thread();
    drop(guard);
}

#[test]
fn a_handle_outlives_its_goroutine_and_its_runtime() {
    let rt = runtime(2);
    let named = rt.run(|| {
        let builder = goroutine::Builder::new().name("keeps its name");
        let handle = builder.spawn(|| runnext::current().unwrap()).unwrap();
        handle.join().unwrap()
    });
    let result = rt.go(|| vec![1, 2, 3]);
    while !result.is_finished() {
        std::thread::yield_now();
    }
    drop(rt);
    let copy = named.clone();
    drop(named);
    assert_eq!(copy.name(), Some("keeps its name"));
    assert!(copy.id() > 1);
    assert!(copy.spawned_at().file().ends_with("goroutine.rs"));
    assert_eq!(result.join().unwrap(), [1, 2, 3]);
}

#[test]
fn an_unfinished_goroutine_leaves_a_handle_that_says_so() {
    let rt = runtime(1);
    let never = rt.go(|| {
        loop {
            yield_now();
        }
    });
    let other = never.goroutine().clone();
    drop(rt);
    assert!(!never.is_finished());
    drop(never);
    assert!(other.id() >= 1);
}

#[runnext::test(procs = 2)]
fn names_and_stack_sizes_from_the_builder() {
    for name in ["", "plain", "ümlaut 字", &"long ".repeat(1000)] {
        let handle = goroutine::Builder::new()
            .name(name)
            .spawn(|| runnext::current().unwrap().name().map(str::to_owned));
        assert_eq!(handle.unwrap().join().unwrap().as_deref(), Some(name));
    }
    for size in [
        1,
        4096,
        64 << 10,
        (64 << 10) + 1,
        1 << 20,
        64 << 20,
        1 << 30,
    ] {
        let handle = goroutine::Builder::new()
            .stack_size(size)
            .spawn(move || size);
        assert_eq!(handle.unwrap().join().unwrap(), size);
    }
}

#[runnext::test(procs = 2)]
fn num_goroutines_is_exact_when_nothing_moves() {
    assert_eq!(runnext::num_goroutines(), 1);
    let release = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (1..=50)
        .map(|i| {
            let release = Arc::clone(&release);
            let handle = go(move || until(|| release.load(Relaxed)));
            assert_eq!(runnext::num_goroutines(), 1 + i);
            handle
        })
        .collect();
    release.store(true, Relaxed);
    for (i, handle) in handles.into_iter().enumerate() {
        handle.join().unwrap();
        assert!(runnext::num_goroutines() <= 50 - i);
    }
    // Whoever has joined all others counts one, at once.
    assert_eq!(runnext::num_goroutines(), 1);
}

#[runnext::test(procs = 4)]
fn a_tree_of_spawns_loses_nobody() {
    fn tree(depth: u32) -> u64 {
        if depth == 0 {
            return 1;
        }
        let children: Vec<_> = (0..4).map(|_| go(move || tree(depth - 1))).collect();
        children.into_iter().map(|c| c.join().unwrap()).sum()
    }
    assert_eq!(tree(6), 4096);
    assert_eq!(runnext::num_goroutines(), 1);
}

/// GO-style daisy chain: each passes on what the next one gave it.
#[runnext::test(procs = 2)]
fn ten_thousand_waiting_on_each_other() {
    let mut last = go(|| 0u64);
    for _ in 0..10_000 {
        last = go(move || last.join().unwrap() + 1);
    }
    assert_eq!(last.join().unwrap(), 10_000);
}

/// P goroutines pass a baton by spinning, so all must run at once.
#[runnext::test(procs = 4)]
fn work_spreads_to_every_processor() {
    for _ in 0..50 {
        let baton = Arc::new(AtomicUsize::new(0));
        let handles: Vec<_> = (0..4)
            .map(|i| {
                let baton = Arc::clone(&baton);
                go(move || {
                    for round in 0..3 {
                        while baton.load(Acquire) != round * 4 + i {
                            std::thread::yield_now(); // of the OS: the P is kept
                        }
                        baton.fetch_add(1, Release);
                    }
                })
            })
            .collect();
        for handle in handles {
            handle.join().unwrap();
        }
    }
}

/// As above, with the spinners spawned by each other after threads began to sleep: a lost wake-up would hang.
#[runnext::test(procs = 4)]
fn nested_spawns_wake_sleeping_threads() {
    fn nest(depth: usize, arrived: Arc<AtomicUsize>) {
        let inner = (depth > 1).then(|| {
            let arrived = Arc::clone(&arrived);
            go(move || nest(depth - 1, arrived))
        });
        arrived.fetch_add(1, SeqCst);
        while arrived.load(SeqCst) < 4 {
            std::thread::yield_now();
        }
        if let Some(inner) = inner {
            inner.join().unwrap();
        }
    }
    for pause in 0..200u64 {
        // Let them all run dry first, some rounds longer than others.
        std::thread::sleep(std::time::Duration::from_micros(pause % 5 * 50));
        nest(4, Arc::default());
    }
}

#[runnext::test(procs = 2)]
fn joining_itself_is_refused() {
    let (tx, rx) = runnext::chan::bounded::<JoinHandle<()>>(1);
    let (told, tells) = runnext::chan::bounded(1);
    let own = go(move || {
        let own = rx.recv().unwrap();
        let refused = std::panic::catch_unwind(|| own.join());
        told.send(message(&*refused.unwrap_err()).to_owned())
            .unwrap();
    });
    tx.send(own).unwrap();
    assert!(tells.recv().unwrap().contains("its own end"));
}

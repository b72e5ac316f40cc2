//! `goroutine_local!`: values that follow the goroutine.

mod common;

use std::cell::{Cell, RefCell};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use common::{Counted, runtime, until};
use runnext::{go, goroutine_local, yield_now};

goroutine_local! {
    static NUMBER: Cell<u32> = Cell::new(7);
    /// Documented, and of a type that is neither `Send` nor `Sync`.
    pub static WORDS: RefCell<Vec<Rc<str>>> = RefCell::default();
}

#[runnext::test(procs = 2)]
fn each_goroutine_has_its_own() {
    NUMBER.with(|n| n.set(1));
    let others: Vec<_> = (0..20)
        .map(|i| {
            go(move || {
                let before = NUMBER.with(Cell::get);
                NUMBER.with(|n| n.set(i));
                for _ in 0..i {
                    yield_now();
                }
                (before, NUMBER.with(Cell::get))
            })
        })
        .collect();
    for (i, other) in others.into_iter().enumerate() {
        assert_eq!(other.join().unwrap(), (7, i as u32));
    }
    assert_eq!(NUMBER.with(Cell::get), 1);
}

#[runnext::test(procs = 2)]
fn a_value_may_be_looked_at_over_a_park() {
    WORDS.with(|words| {
        words.borrow_mut().push("before".into());
        go(|| WORDS.with(|w| assert!(w.borrow().is_empty())))
            .join()
            .unwrap();
        // Others may grow the table meanwhile; the value stays where it is.
        NUMBER.with(|n| n.set(n.get() + 1));
        words.borrow_mut().push("after".into());
    });
    assert_eq!(WORDS.with(|w| w.borrow().len()), 2);
}

#[runnext::test(procs = 1)]
fn initialisers_run_once_and_may_use_other_locals() {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    goroutine_local! {
        static INNER: u32 = { RUNS.fetch_add(1, Relaxed); 2 };
        static OUTER: u32 = INNER.with(|i| i + 1);
    }
    assert_eq!(OUTER.with(|o| *o), 3);
    assert_eq!(OUTER.with(|o| *o), 3);
    assert_eq!(INNER.with(|i| *i), 2);
    assert_eq!(RUNS.load(Relaxed), 1);
}

#[runnext::test(procs = 1)]
fn cells_have_the_short_forms_of_std() {
    assert_eq!(NUMBER.get(), 7);
    NUMBER.set(1);
    assert_eq!(NUMBER.replace(2), 1);
    assert_eq!((NUMBER.take(), NUMBER.get()), (2, 0));
    let other = go(|| (NUMBER.replace(3), NUMBER.take(), NUMBER.get()));
    assert_eq!(other.join().unwrap(), (7, 3, 0));
}

#[runnext::test(procs = 2)]
fn ref_cells_have_the_short_forms_of_std() {
    WORDS.with_borrow_mut(|words| {
        words.push("before".into());
        go(|| WORDS.with_borrow(|w| assert!(w.is_empty())))
            .join()
            .unwrap();
        words.push("after".into());
    });
    let words = |words: &[&str]| -> Vec<Rc<str>> { words.iter().map(|w| (*w).into()).collect() };
    assert_eq!(WORDS.replace(words(&["new"])), words(&["before", "after"]));
    WORDS.set(words(&["newer"]));
    assert_eq!(WORDS.take(), words(&["newer"]));
    WORDS.with_borrow(|w| assert!(w.is_empty()));
}

#[runnext::test(procs = 1)]
fn what_is_set_first_takes_the_place_of_the_initialiser() {
    static MADE: AtomicUsize = AtomicUsize::new(0);
    goroutine_local! {
        static CELL: Cell<usize> = Cell::new(MADE.fetch_add(1, Relaxed));
        static REF: RefCell<Option<Counted>> = { MADE.fetch_add(1, Relaxed); RefCell::default() };
    }
    let drops = Arc::new(AtomicUsize::new(0));
    let values = [(); 3].map(|()| Some(Counted::new(&drops)));
    let dropped = Arc::clone(&drops);
    go(move || {
        CELL.set(10);
        CELL.set(11);
        assert_eq!(CELL.get(), 11);
        for (i, value) in values.into_iter().enumerate() {
            assert_eq!(dropped.load(Relaxed), i.saturating_sub(1));
            REF.set(value);
        }
        assert_eq!(dropped.load(Relaxed), 2, "each with the next");
    })
    .join()
    .unwrap();
    assert_eq!(drops.load(Relaxed), 3);
    assert_eq!(MADE.load(Relaxed), 0, "no initialiser has run");
    go(|| drop((CELL.replace(5), REF.replace(None))))
        .join()
        .unwrap();
    assert_eq!(MADE.load(Relaxed), 2, "what is returned is made first");
}

#[runnext::test(procs = 1)]
fn a_value_that_is_borrowed_is_not_replaced() {
    fn refused(f: impl FnOnce()) -> bool {
        std::panic::catch_unwind(std::panic::AssertUnwindSafe(f)).is_err()
    }
    WORDS.set(vec!["kept".into()]);
    WORDS.with_borrow(|words| {
        assert!(refused(|| WORDS.set(Vec::new())));
        assert!(refused(|| drop(WORDS.replace(Vec::new()))));
        assert!(refused(|| drop(WORDS.take())));
        assert!(refused(|| WORDS.with_borrow_mut(Vec::clear)));
        WORDS.with_borrow(|again| assert_eq!(again, words));
    });
    WORDS.with_borrow_mut(|_| assert!(refused(|| WORDS.with_borrow(|_| ()))));
    WORDS.with_borrow(|words| assert_eq!(words.len(), 1));
}

#[runnext::test(procs = 1)]
fn a_recursive_initialiser_keeps_the_first_value() {
    goroutine_local! {
        static DEPTH: Cell<u32> = Cell::new(0);
        static RECURSIVE: u32 = {
            let depth = DEPTH.with(|d| d.replace(d.get() + 1));
            if depth == 0 { RECURSIVE.with(|r| r + 100) } else { depth }
        };
    }
    assert_eq!(RECURSIVE.with(|r| *r), 1);
}

#[runnext::test(procs = 2)]
fn values_go_with_their_goroutine_newest_first() {
    static ORDER: std::sync::Mutex<Vec<&str>> = std::sync::Mutex::new(Vec::new());
    struct Says(&'static str);
    impl Drop for Says {
        fn drop(&mut self) {
            ORDER.lock().unwrap().push(self.0);
        }
    }
    goroutine_local! {
        static FIRST: Says = Says("first");
        static SECOND: Says = Says("second");
        static THIRD: Says = Says("third");
    }
    let handle = go(|| {
        FIRST.with(|_| ());
        SECOND.with(|_| ());
        THIRD.with(|_| ());
    });
    handle.join().unwrap();
    // All of it before the joiner goes on.
    assert_eq!(*ORDER.lock().unwrap(), ["third", "second", "first"]);
}

#[runnext::test(procs = 2)]
fn every_value_is_dropped_once() {
    goroutine_local! {
        static HELD: RefCell<Option<Counted>> = RefCell::new(None);
    }
    let drops = Arc::new(AtomicUsize::new(0));
    for i in 0..1000 {
        let value = Counted::new(&drops);
        let handle = go(move || {
            HELD.with(|h| *h.borrow_mut() = Some(value));
            if i % 3 == 0 {
                std::panic::resume_unwind(Box::new(()));
            }
            yield_now();
        });
        if i % 2 == 0 {
            drop(handle);
        } else {
            let _ = handle.join();
        }
    }
    until(|| runnext::num_goroutines() == 1);
    until(|| drops.load(SeqCst) >= 1000);
    assert_eq!(drops.load(SeqCst), 1000);
}

#[runnext::test(procs = 2)]
fn a_values_drop_may_use_locals_and_park() {
    static SEEN: AtomicUsize = AtomicUsize::new(0);
    struct Uses;
    impl Drop for Uses {
        fn drop(&mut self) {
            yield_now();
            SEEN.fetch_add(NUMBER.with(Cell::get) as usize, SeqCst);
            SEEN.fetch_add(go(|| 100).join().unwrap(), SeqCst);
        }
    }
    goroutine_local! {
        static USES: Uses = Uses;
    }
    go(|| {
        NUMBER.with(|n| n.set(50));
        USES.with(|_| ());
    })
    .join()
    .unwrap();
    // What was there when the goroutine ended is gone by then, or about to be: a fresh value is seen, or the old one.
    let seen = SEEN.load(SeqCst);
    assert!(seen == 107 || seen == 150, "{seen}");
}

#[runnext::test(procs = 2)]
fn a_panic_in_a_values_drop_stays_inside() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            std::panic::resume_unwind(Box::new("bomb"));
        }
    }
    goroutine_local! {
        static BOMB: Bomb = Bomb;
    }
    let handle = go(|| {
        BOMB.with(|_| ());
        "a result"
    });
    assert_eq!(handle.join().unwrap(), "a result");
}

#[test]
fn on_a_plain_thread_it_is_the_threads() {
    NUMBER.with(|n| n.set(3));
    let rt = runtime(2);
    assert_eq!(rt.run(|| NUMBER.with(Cell::get)), 7);
    assert_eq!(NUMBER.with(Cell::get), 3);
    let other = std::thread::spawn(|| NUMBER.with(Cell::get));
    assert_eq!(other.join().unwrap(), 7);

    let drops = Arc::new(AtomicUsize::new(0));
    goroutine_local! {
        static HELD: RefCell<Option<Counted>> = RefCell::new(None);
    }
    let value = Counted::new(&drops);
    std::thread::spawn(move || HELD.with(|h| *h.borrow_mut() = Some(value)))
        .join()
        .unwrap();
    assert_eq!(drops.load(SeqCst), 1);
}

#[test]
fn no_goroutine_sees_what_another_left_in_its_header() {
    let rt = runtime(1);
    rt.run(|| {
        for i in 0..1000 {
            go(move || {
                assert_eq!(NUMBER.with(|n| n.replace(1000 + i)), 7);
            })
            .join()
            .unwrap();
        }
    });
}

/// A value's drop finds the older ones, and may make another; in a goroutine and on a plain thread.
#[test]
fn drops_may_use_locals() {
    static SEEN: std::sync::Mutex<Vec<u32>> = std::sync::Mutex::new(Vec::new());
    struct Looks;
    impl Drop for Looks {
        fn drop(&mut self) {
            SEEN.lock().unwrap().push(NUMBER.with(Cell::get));
            LATE.with(|late| *late.borrow_mut() = Some(Says(1)));
        }
    }
    struct Says(u32);
    impl Drop for Says {
        fn drop(&mut self) {
            SEEN.lock().unwrap().push(self.0);
        }
    }
    goroutine_local! {
        static LOOKS: RefCell<Option<Looks>> = RefCell::default();
        static LATE: RefCell<Option<Says>> = RefCell::default();
    }
    let body = || {
        NUMBER.with(|n| n.set(99));
        LOOKS.with(|looks| *looks.borrow_mut() = Some(Looks));
    };
    std::thread::spawn(body).join().unwrap();
    assert_eq!(*SEEN.lock().unwrap(), [99, 1]);
    runtime(1).run(|| go(body).join().unwrap());
    assert_eq!(*SEEN.lock().unwrap(), [99, 1, 99, 1]);
}

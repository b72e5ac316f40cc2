//! One test for each bug of `sync`, `time` and the thread-local contract that was, named after it.

mod common;

use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::Duration;

use common::{child, runtime, until};
use runnext::sync::WaitGroup;
use runnext::{chan, go, time, yield_now};

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
            for _ in 0..40_000 {
                let released = released.clone();
                go(move || released.recv().is_ok()); // more than there can be stacks
            }
            until(|| go(|| ()).join().is_err());
            let (ran, dropped) = (
                Arc::new(AtomicBool::new(false)),
                Arc::new(AtomicBool::new(false)),
            );
            let (bomb, runs) = (Bomb(Arc::clone(&dropped)), Arc::clone(&ran));
            drop(time::after_func(US, move || {
                let _ = &bomb;
                runs.store(true, SeqCst);
            }));
            until(|| dropped.load(SeqCst));
            assert!(!ran.load(SeqCst), "there was a stack for it");
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
    const ROUNDS: usize = 3000;
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
                while ROUND.load(Acquire) < n {}
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
                while ENDED.load(Acquire) < n {}
                assert_eq!(PANICS.load(Relaxed), n);
                waiter.join().unwrap();
            }
        });
    })
    .passed();
}

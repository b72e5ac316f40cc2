//! Bugs of goroutines that a runtime has abandoned in the wait lists of what others share with it: they were served, and what they got was lost.

mod common;

use std::future::poll_fn;
use std::io::Read;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::mpsc;
use std::thread::{self, JoinHandle};
use std::time::{Duration, Instant};

use common::{built, child, holdings, runtime, shows, thread_id, until, until_asleep};
use runnext::Runtime;
use runnext::net::{TcpListener, UnixStream};
use runnext::sync::{Condvar, Mutex, RwLock, Semaphore};
use runnext::{block_on, chan, select};

/// Goroutines of a runtime that has stopped since, all of which wait for `what`, by `wait`.
fn abandoned(n: usize, what: &str, wait: impl FnOnce() + Clone + Send + 'static) {
    let rt = runtime(1);
    let waiting: Vec<_> = (0..n).map(|_| rt.go(wait.clone())).collect();
    let waits = |dump: &str| waiting.iter().all(|g| shows(dump, g, what));
    until(|| waits(&rt.dump()));
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned, n);
}

/// A plain thread that sleeps in `wait`.
fn asleep<T: Send + 'static>(wait: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    let (tell, told) = mpsc::channel();
    let waits = thread::spawn(move || {
        tell.send(thread_id()).unwrap();
        wait()
    });
    until_asleep(told.recv().unwrap(), libc::SYS_futex);
    waits
}

/// A free mutex said for ever that somebody was awake who would take it: who lost it once was never woken.
#[test]
fn a_mutex_goes_to_those_who_live() {
    for n in [1, 3] {
        let lock = Arc::new(Mutex::new(0));
        let guard = lock.lock();
        let theirs = Arc::clone(&lock);
        abandoned(n, "sync.Mutex.Lock", move || *theirs.lock() += 1);
        drop(guard);
        for _ in 0..5 {
            let guard = lock.lock();
            let losers = [(); 2].map(|()| {
                let lock = Arc::clone(&lock);
                asleep(move || *lock.lock() += 1)
            });
            drop(guard);
            losers.into_iter().for_each(|l| l.join().unwrap());
        }
        assert_eq!(*lock.lock(), 10);
    }
}

/// The same with one that lives behind them in the queue.
#[test]
fn a_mutex_passes_the_abandoned_by() {
    let lock = Arc::new(Mutex::new(0));
    let guard = lock.lock();
    let theirs = Arc::clone(&lock);
    abandoned(2, "sync.Mutex.Lock", move || *theirs.lock() += 1);
    let behind = Arc::clone(&lock);
    let behind = asleep(move || *behind.lock() += 1);
    drop(guard);
    behind.join().unwrap();
    assert_eq!(*lock.lock(), 1);
}

#[test]
fn a_value_goes_to_those_who_live() {
    for capacity in [Some(0), Some(1), None] {
        let (tx, rx) = capacity.map_or_else(chan::unbounded, chan::bounded);
        let theirs = rx.clone();
        abandoned(2, "chan receive", move || {
            let _ = theirs.recv();
        });
        let behind = rx.clone();
        let behind = asleep(move || behind.recv());
        tx.send(7).unwrap();
        assert_eq!(behind.join().unwrap(), Ok(7), "capacity {capacity:?}");
        if capacity == Some(0) {
            assert!(tx.try_send(8).is_err());
        }
    }
}

#[test]
fn a_select_passes_the_abandoned_by() {
    let (tx, rx) = chan::bounded(0);
    let theirs = rx.clone();
    abandoned(1, "select", move || {
        let (_never, none) = chan::bounded::<()>(0);
        select! {
            recv(theirs) -> _ => {},
            recv(none) -> _ => {},
        }
    });
    let (other, others) = chan::bounded(0);
    let selects = asleep(move || {
        select! {
            recv(others) -> other => other.unwrap(),
            send(tx, 1) -> sent => sent.map(|()| 0).unwrap(),
        }
    });
    other.send(2).unwrap();
    assert_eq!(selects.join().unwrap(), 2);
}

/// What the abandoned wanted to send has not been sent.
#[test]
fn room_goes_to_those_who_live() {
    for capacity in [0, 1] {
        let (tx, rx) = chan::bounded(capacity);
        (0..capacity).for_each(|_| tx.send(0).unwrap());
        let theirs = tx.clone();
        abandoned(2, "chan send", move || {
            let _ = theirs.send(1);
        });
        let behind = asleep(move || tx.send(2));
        let received: Vec<_> = (0..=capacity).map(|_| rx.recv().unwrap()).collect();
        assert_eq!(received, [0, 2][1 - capacity..]);
        behind.join().unwrap().unwrap();
    }
}

#[test]
fn a_permit_goes_to_those_who_live() {
    let permits = Arc::new(Semaphore::new(0));
    let theirs = Arc::clone(&permits);
    abandoned(2, "semacquire", move || theirs.acquire().forget());
    let behind = Arc::clone(&permits);
    let behind = asleep(move || behind.acquire().forget());
    permits.add_permits(2);
    behind.join().unwrap();
    assert_eq!(permits.available_permits(), 1);
    assert!(permits.try_acquire().is_some());
}

#[test]
fn a_notification_goes_to_those_who_live() {
    let pair = Arc::new((Mutex::new(false), Condvar::new()));
    let wait = {
        let pair = Arc::clone(&pair);
        move || {
            let mut told = pair.0.lock();
            pair.1.wait_while(&mut told, |told| !*told);
        }
    };
    abandoned(2, "sync.Cond.Wait", wait.clone());
    let behind = asleep(wait);
    *pair.0.lock() = true;
    pair.1.notify_one();
    behind.join().unwrap();
}

/// A reader that never ran held the lock it had been given, and no writer ever got in.
#[test]
fn readers_that_were_abandoned_do_not_keep_writers_out() {
    let lock = Arc::new(RwLock::new(0));
    let guard = lock.write();
    let theirs = Arc::clone(&lock);
    abandoned(2, "sync.RWMutex.RLock", move || drop(theirs.read()));
    let behind = Arc::clone(&lock);
    let behind = asleep(move || *behind.read());
    drop(guard);
    assert_eq!(behind.join().unwrap(), 0);
    *lock.write() += 1;
    assert_eq!(*lock.try_read().unwrap(), 1);
}

#[test]
fn a_writer_that_was_abandoned_keeps_nobody_out() {
    let lock = Arc::new(RwLock::new(0));
    let guard = lock.read();
    let theirs = Arc::clone(&lock);
    abandoned(1, "sync.RWMutex.Lock", move || *theirs.write() += 1);
    let behind = Arc::clone(&lock);
    let behind = asleep(move || *behind.read());
    drop(guard);
    assert_eq!(behind.join().unwrap(), 0);
    *lock.write() += 1;
    assert_eq!(*lock.try_read().unwrap(), 1);
}

/// A goroutine gets a lock, or is to see whether it gets it, and its runtime stops before it has run again: it is queued behind one that computes. `wait` is
/// what it does, for `what`; `behind` waits for the same lock on a thread.
#[track_caller]
fn passes_on<H>(
    what: &str,
    held: H,
    wait: impl FnOnce() + Send + 'static,
    behind: impl FnOnce() + Send + 'static,
) {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    let waits = rt.go(wait);
    until(|| shows(&rt.dump(), &waits, what));
    let behind = asleep(behind);
    let (begun, over) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let flags = (Arc::clone(&begun), Arc::clone(&over));
    rt.go(move || {
        flags.0.store(true, SeqCst);
        while !flags.1.load(SeqCst) {}
    });
    until(|| begun.load(SeqCst));
    drop(held);
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 2);
    behind.join().unwrap();
    over.store(true, SeqCst);
    assert!(!waits.is_finished());
}

/// The mutex was free, and said for ever that somebody was awake who would take it.
#[test]
fn a_mutex_is_passed_on_by_one_that_was_woken_and_never_ran() {
    for tied in [false, true] {
        let lock = Arc::new(Mutex::new(0));
        let (theirs, behind) = (Arc::clone(&lock), Arc::clone(&lock));
        let wait = move || {
            let _tied = tied.then(runnext::lock_os_thread);
            *theirs.lock() += 1;
        };
        passes_on("sync.Mutex.Lock", lock.lock(), wait, move || {
            *behind.lock() += 1;
        });
        assert_eq!(*lock.lock(), 1);
    }
}

/// The lock was held by one that did not know it.
#[test]
fn a_read_lock_is_passed_on_by_one_that_never_ran() {
    let lock = Arc::new(RwLock::new(0));
    let (theirs, behind) = (Arc::clone(&lock), Arc::clone(&lock));
    let wait = move || drop(theirs.read());
    passes_on("sync.RWMutex.RLock", lock.write(), wait, move || {
        *behind.write() += 1;
    });
    assert_eq!(*lock.try_read().unwrap(), 1);
}

#[test]
fn a_write_lock_is_passed_on_by_one_that_never_ran() {
    let lock = Arc::new(RwLock::new(0));
    let (theirs, behind) = (Arc::clone(&lock), Arc::clone(&lock));
    let wait = move || *theirs.write() += 1;
    passes_on("sync.RWMutex.Lock", lock.read(), wait, move || {
        assert_eq!(*behind.read(), 0);
    });
    *lock.write() += 1;
}

/// The permit was gone for good.
#[test]
fn a_permit_is_passed_on_by_one_that_never_ran() {
    for timeout in [None, Some(Duration::from_secs(600))] {
        let permits = Arc::new(Semaphore::new(1));
        let (theirs, behind) = (Arc::clone(&permits), Arc::clone(&permits));
        let wait = move || {
            drop(match timeout {
                None => Some(theirs.acquire()),
                Some(timeout) => theirs.acquire_timeout(timeout),
            });
        };
        passes_on("semacquire", permits.acquire(), wait, move || {
            drop(behind.acquire());
        });
        assert_eq!(permits.available_permits(), 1);
    }
}

/// There was none to pass on: the time of who waited was over.
#[test]
fn one_whose_time_was_over_passes_no_permit_on() {
    const TIMEOUT: Duration = Duration::from_millis(20);
    let permits = Arc::new(Semaphore::new(0));
    let (stage, awake) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
    let rt = built(Runtime::builder().procs(1).preemption(false));
    let waits = [(); 2].map(|()| {
        let (permits, stage) = (Arc::clone(&permits), Arc::clone(&stage));
        let awake = Arc::clone(&awake);
        rt.go(move || {
            assert!(permits.acquire_timeout(TIMEOUT).is_none());
            awake.fetch_add(1, SeqCst);
            while stage.load(SeqCst) < 2 {} // now the other is awake too, and never runs
        })
    });
    let wait = |dump: &str| waits.iter().all(|g| shows(dump, g, "semacquire"));
    until(|| wait(&rt.dump()));
    let since = Instant::now();
    let time_over = Arc::clone(&stage);
    rt.go(move || {
        while time_over.load(SeqCst) == 0 {}
        runnext::yield_now(); // both wake up
    });
    until(|| since.elapsed() > TIMEOUT);
    stage.store(1, SeqCst);
    until(|| awake.load(SeqCst) == 1);
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 3);
    stage.store(2, SeqCst);
    assert!(permits.try_acquire().is_none());
    assert_eq!(awake.load(SeqCst), 1);
}

/// Runtimes stop while their goroutines and threads fight for locks, wherever each of them is just then: the locks stay usable.
#[test]
fn locks_survive_runtimes_that_stop_in_the_middle_of_a_fight() {
    let (lock, shared) = (Arc::new(Mutex::new(0)), Arc::new(RwLock::new(0)));
    let permits = Arc::new(Semaphore::new(1));
    let over = Arc::new(AtomicBool::new(false));
    let fighter = || {
        let (lock, shared) = (Arc::clone(&lock), Arc::clone(&shared));
        let permits = Arc::clone(&permits);
        move || {
            drop(permits.acquire());
            drop(permits.acquire_timeout(Duration::from_micros(50)));
            *lock.lock() += 1;
            *shared.write() += 1;
            assert!(*shared.read() > 0);
        }
    };
    let threads = [(); 2].map(|()| {
        let (fight, over) = (fighter(), Arc::clone(&over));
        thread::spawn(move || {
            while !over.load(Relaxed) {
                fight();
            }
        })
    });
    for round in 0..60 {
        let rt = runtime(1 + round % 2);
        for n in 0..8 {
            let fight = fighter();
            rt.go(move || {
                let _tied = (n == 0).then(runnext::lock_os_thread);
                loop {
                    fight();
                }
            });
        }
        let before = *lock.lock();
        until(|| *lock.lock() > before + 50 * (round % 4));
        rt.shutdown(Duration::ZERO);
        *lock.lock() += 1;
        *shared.write() += 1;
    }
    over.store(true, Relaxed);
    threads.into_iter().for_each(|t| t.join().unwrap());
    // None lost, and none made: one that was stopped in the middle of its code goes on to its next call, and may have it until then.
    until(|| permits.available_permits() == 1);
    let last = permits.acquire();
    assert_eq!(permits.available_permits(), 0);
    drop(last);
}

/// One that computed when its runtime stopped took a value with its next call, and then stopped with it.
#[test]
fn one_that_still_computes_takes_nothing_more() {
    child(&[], || {
        for way in 0..2 {
            let threads = holdings().threads;
            let (begun, stopped) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
            let (tx, rx) = chan::bounded(1);
            let (rt, theirs) = (runtime(1), rx.clone());
            let flags = (Arc::clone(&begun), Arc::clone(&stopped));
            let takes = rt.go(move || {
                flags.0.store(true, SeqCst);
                while !flags.1.load(SeqCst) {}
                match way {
                    0 => theirs.recv().ok(),
                    _ => select! { recv(theirs) -> got => got.ok() },
                }
            });
            until(|| begun.load(SeqCst));
            tx.send(7).unwrap();
            assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
            stopped.store(true, SeqCst);
            until(|| holdings().threads == threads);
            assert_eq!(rx.try_recv(), Ok(7));
            assert!(!takes.is_finished());
        }
    })
    .passed();
}

/// It got an error from a socket that was new to its runtime, and went on: a server went round and round in `accept`.
#[test]
fn one_that_still_computes_waits_for_no_socket_any_more() {
    child(&[], || {
        for way in 0..3 {
            let threads = holdings().threads;
            let (begun, stopped) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
            let (rt, flags) = (runtime(1), (Arc::clone(&begun), Arc::clone(&stopped)));
            let went_on = Arc::new(AtomicBool::new(false));
            let goes_on = Arc::clone(&went_on);
            let (near, _far) = UnixStream::pair().unwrap();
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            rt.go(move || {
                flags.0.store(true, SeqCst);
                while !flags.1.load(SeqCst) {}
                let _ = match way {
                    0 => (&near).read(&mut [0]),
                    1 => listener.accept().map(|_| 0),
                    _ => block_on(poll_fn(|cx| near.poll_read(cx, &mut [0]))),
                };
                goes_on.store(true, SeqCst);
            });
            until(|| begun.load(SeqCst));
            assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
            stopped.store(true, SeqCst);
            until(|| holdings().threads == threads);
            assert!(!went_on.load(SeqCst), "way {way}");
        }
    })
    .passed();
}

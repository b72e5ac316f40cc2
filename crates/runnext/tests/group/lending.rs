//! Lock owners run in the name of who waits for them, and no longer than that.
//!
//! One P and no preemption, so the order is a fact; whose time it was shows in the accounts.

use std::time::Duration;

use runnext::chan::{self, Receiver, Sender};
use runnext::sync::{Condvar, Mutex, MutexGuard, RwLock};
use runnext::{Priority, Runtime, TaskGroup, yield_now};

use crate::basics::compute;
use crate::common::{built, until_waits};

const LONG: Duration = Duration::from_millis(40);

/// What each has paid: a group of high priority whose goroutine waits for `wanted`, and one of low priority, whose goroutine is
/// `owner`. It has the lock when it sends for the first time, and is answered when the other waits.
fn paid<T: Send + 'static>(
    wanted: &'static Mutex<()>,
    owner: impl FnOnce(Sender<T>, Receiver<()>) + Send + 'static,
    then: impl FnOnce() + Send + 'static,
) -> (Duration, Duration) {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        let high = TaskGroup::builder("high").priority(Priority::High).build();
        let low = TaskGroup::builder("low").priority(Priority::Low).build();
        let ((tx, has_it), (answer, rx)) = (chan::bounded(0), chan::bounded(0));
        let owner = low.go(move || owner(tx, rx));
        let sent = has_it.recv().unwrap();
        let waiter = high.go(move || {
            drop(wanted.lock());
            then();
        });
        until_waits(&waiter, "sync.Mutex.Lock");
        drop(sent);
        answer.send(()).unwrap();
        waiter.join().unwrap();
        owner.join().unwrap();
        (high.stats().cpu_time, low.stats().cpu_time)
    })
}

#[track_caller]
fn assert_own((high, low): (Duration, Duration)) {
    assert!(low >= LONG / 2 && high < LONG / 4, "{high:?}, {low:?}");
}

fn leak<T>(value: T) -> &'static T {
    Box::leak(Box::new(value))
}

#[test]
fn an_owner_runs_in_the_name_of_who_waits() {
    let m = leak(Mutex::new(()));
    let owner = |tx: Sender<()>, rx: Receiver<()>| {
        let held = m.lock();
        tx.send(()).unwrap();
        rx.recv().unwrap();
        compute(LONG);
        drop(held);
    };
    let (high, low) = paid(m, owner, || ());
    assert!(high >= LONG / 2 && low < LONG / 4, "{high:?}, {low:?}");
}

/// It released the lock by waiting for a condition, and kept the lane for all that came after.
#[test]
fn one_that_waited_for_a_condition_runs_in_its_own_name() {
    let (m, changed) = (leak(Mutex::new(())), leak(Condvar::new()));
    let owner = |tx: Sender<()>, rx: Receiver<()>| {
        let mut held = m.lock();
        tx.send(()).unwrap();
        rx.recv().unwrap();
        changed.wait(&mut held);
        drop(held);
        yield_now(); // the turn was the other's
        compute(LONG);
    };
    assert_own(paid(m, owner, || changed.notify_one()));
}

/// As above, with a limit.
#[test]
fn one_that_waited_for_so_long_runs_in_its_own_name() {
    let (m, changed) = (leak(Mutex::new(())), leak(Condvar::new()));
    let owner = |tx: Sender<()>, rx: Receiver<()>| {
        let mut held = m.lock();
        tx.send(()).unwrap();
        rx.recv().unwrap();
        changed.wait_timeout(&mut held, Duration::MAX);
        drop(held);
        yield_now(); // the turn was the other's
        compute(LONG);
    };
    assert_own(paid(m, owner, || changed.notify_one()));
}

/// What was lent for a lock that somebody else released was kept when it released its last one, for nobody waited there.
#[test]
fn one_that_has_released_its_last_lock_runs_in_its_own_name() {
    let (m, other) = (leak(Mutex::new(())), leak(Mutex::new(())));
    let owner = |tx: Sender<MutexGuard<'static, ()>>, rx: Receiver<()>| {
        let held = other.lock();
        tx.send(m.lock()).unwrap();
        rx.recv().unwrap();
        drop(held);
        yield_now(); // the turn was the other's
        compute(LONG);
    };
    assert_own(paid(m, owner, || ()));
}

/// As above, where the last one is a read lock.
#[test]
fn one_that_has_read_last_runs_in_its_own_name() {
    let (m, other) = (leak(Mutex::new(())), leak(RwLock::new(())));
    let owner = |tx: Sender<MutexGuard<'static, ()>>, rx: Receiver<()>| {
        let held = other.read();
        tx.send(m.lock()).unwrap();
        rx.recv().unwrap();
        drop(held);
        yield_now(); // the turn was the other's
        compute(LONG);
    };
    assert_own(paid(m, owner, || ()));
}

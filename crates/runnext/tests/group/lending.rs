//! Lock owners run in the name of who waits for them, and no longer than that.
//!
//! One P and no preemption, so the order is a fact; whose time it was shows in the accounts.

use std::hint;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use runnext::chan::{self, Receiver, Sender};
use runnext::sync::{Condvar, Mutex, MutexGuard, RwLock};
use runnext::{JoinHandle, Priority, Runtime, TaskGroup, time, yield_now};

use crate::basics::compute;
use crate::common::{built, until, until_waits};

const LONG: Duration = Duration::from_millis(40);

/// What each has paid: a group of high priority whose goroutine waits for `wanted`, and one of low priority, whose goroutine is
/// `owner`. It has the lock when it sends for the first time, and is answered when the other waits.
fn paid<T: Send + 'static>(
    wanted: &'static Mutex<()>,
    owner: impl FnOnce(Sender<T>, Receiver<()>) + Send + 'static,
    then: impl FnOnce() + Send + 'static,
) -> (Duration, Duration) {
    let high = TaskGroup::builder("high").priority(Priority::High).build();
    let wait = move || {
        drop(wanted.lock());
        then();
    };
    let low = paid_by_owner(Some(&high), wait, "sync.Mutex.Lock", owner);
    (high.stats().cpu_time, low)
}

/// What the group of low priority has paid whose goroutine is `owner`, for which one of another group, or of none, waits so.
fn paid_by_owner<T: Send + 'static>(
    waiters: Option<&TaskGroup>,
    wait: impl FnOnce() + Send + 'static,
    shown: &str,
    owner: impl FnOnce(Sender<T>, Receiver<()>) + Send + 'static,
) -> Duration {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        let low = TaskGroup::builder("low").priority(Priority::Low).build();
        let ((tx, has_it), (answer, rx)) = (chan::bounded(0), chan::bounded(0));
        let owner = low.go(move || owner(tx, rx));
        let sent = has_it.recv().unwrap();
        let waiter = match waiters {
            Some(group) => group.go(wait),
            None => runnext::go(wait),
        };
        until_waits(&waiter, shown);
        // In whose name ever it runs, it belongs to its own group.
        runnext::dump::for_each(|entry| {
            if entry.id == owner.goroutine().id() {
                assert_eq!(entry.group.as_deref(), Some("low"));
            }
        });
        drop(sent);
        answer.send(()).unwrap();
        waiter.join().unwrap();
        owner.join().unwrap();
        low.stats().cpu_time
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

/// Ungrouped waiters lent nothing: they waited out the pause of an owner whose group had no quota left.
#[test]
fn an_owner_runs_in_the_name_of_ungrouped_ones_too() {
    let m = leak(Mutex::new(()));
    let owner = |then: fn()| {
        move |tx: Sender<()>, rx: Receiver<()>| {
            let held = m.lock();
            tx.send(()).unwrap();
            rx.recv().unwrap();
            yield_now(); // the turn was its group's
            then();
            drop(held);
            yield_now(); // and now it is not
            compute(LONG);
        }
    };
    let paid = |then| paid_by_owner(None, || drop(m.lock()), "sync.Mutex.Lock", owner(then));
    let low = paid(|| compute(2 * LONG));
    assert!(low >= LONG / 2 && low < LONG * 3 / 2, "{low:?}");
}

/// It waits in a list while its group has no quota left: there it was looked for in vain.
#[test]
fn an_owner_without_quota_is_fetched_by_ungrouped_ones() {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        let group = TaskGroup::builder("short of time").quota(0.01).build();
        let (m, (tx, has_it)) = (leak(Mutex::new(())), chan::bounded(1));
        let owner = group.go(move || {
            let held = m.lock();
            tx.send(()).unwrap();
            compute(LONG); // for which it pauses for two seconds
            yield_now();
            let before = group_time();
            compute(LONG);
            yield_now();
            drop(held);
            group_time() - before
        });
        has_it.recv().unwrap();
        until(|| group.stats().throttled);
        drop(m.lock());
        let paid = owner.join().unwrap();
        assert!(paid < LONG / 2, "{paid:?}");
    });
}

/// What the group of the calling goroutine has used.
fn group_time() -> Duration {
    TaskGroup::current().expect("in a group").stats().cpu_time
}

/// Readers lent nothing to the writer they waited for.
#[test]
fn a_writer_runs_in_the_name_of_readers() {
    let l = leak(RwLock::new(()));
    let other = leak(Mutex::new(()));
    let owner = |tx: Sender<()>, rx: Receiver<()>| {
        let kept = other.lock(); // so it is not with its last lock that it gives back
        let held = l.write();
        tx.send(()).unwrap();
        rx.recv().unwrap();
        yield_now(); // the turn was its group's
        compute(2 * LONG);
        drop(held);
        yield_now(); // and now it is not
        compute(LONG);
        drop(kept);
    };
    let high = TaskGroup::builder("high").priority(Priority::High).build();
    for waiters in [Some(&high), None] {
        let low = paid_by_owner(waiters, || drop(l.read()), "sync.RWMutex.RLock", owner);
        assert!(low >= LONG / 2 && low < LONG * 3 / 2, "{low:?}");
    }
    assert!(high.stats().cpu_time >= LONG);
}

/// One of a throttled group ran on for a while for the sake of its lock, and locked it again: it was stopped in the middle of that, and who waited
/// for the lock did so until the group could run.
#[test]
fn who_has_no_time_left_leaves_its_lock_free() {
    const LOOKS: usize = 20;
    let slow = TaskGroup::builder("slow").quota(0.05).build();
    let (lock, stop) = (RwLock::new(()), AtomicBool::new(false));
    let read = || {
        while !stop.load(Relaxed) {
            let _reading = lock.read();
            compute(Duration::from_micros(200));
        }
    };
    built(Runtime::builder().procs(2)).run(|| {
        runnext::scope(|s| {
            slow.enter(|| drop(s.go(read)));
            let free = |_: &usize| {
                until(|| !slow.stats().throttled);
                until(|| slow.stats().throttled);
                lock.try_write().is_some()
            };
            // If the machine stands still in the middle of a section, that is stopped all the same.
            let free = (0..LOOKS).filter(free).count();
            stop.store(true, Relaxed);
            slow.set_quota(None);
            assert!(free > LOOKS / 2, "{free} of {LOOKS}");
        });
    });
}

/// Behind others that are less entitled the most entitled waited until these had got to run, and released the lock.
#[test]
fn locks_go_to_the_most_entitled_first_and_to_all_in_the_end() {
    const HIGH: usize = 20;
    let order = built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let [low, high] = [Priority::Low, Priority::High]
            .map(|priority| TaskGroup::builder("waits").priority(priority).build());
        let (lock, order) = (Arc::new(Mutex::new(())), Arc::new(Mutex::new(Vec::new())));
        let held = lock.lock();
        let waiter = |group: &TaskGroup, name: &'static str| {
            let (lock, order) = (Arc::clone(&lock), Arc::clone(&order));
            let waiter = group.go(move || {
                let _held = lock.lock();
                order.lock().push(name);
            });
            until_waits(&waiter, "sync.Mutex.Lock");
            waiter
        };
        let mut all = vec![waiter(&low, "first low"), waiter(&low, "second low")];
        all.extend((0..HIGH).map(|_| waiter(&high, "high")));
        drop(held);
        all.into_iter().for_each(|waiter| waiter.join().unwrap());
        std::mem::take(&mut *order.lock())
    });
    let at = |name| order.iter().position(|found| *found == name);
    assert_eq!(order.len(), HIGH + 2);
    // Passed over sixteen times, each of them.
    assert_eq!(
        (at("first low"), at("second low")),
        (Some(16), Some(HIGH + 1)),
        "{order:?}"
    );
}

/// A group that pauses, with a goroutine of it that waits for `m`, which the caller holds. None of it takes the caller's turn.
fn pauses_before(m: &'static Mutex<()>, then: impl FnOnce(&JoinHandle<()>)) -> TaskGroup {
    let group = TaskGroup::builder("short of time").quota(0.01);
    let group = group.priority(Priority::Low).build();
    let waiter = group.go(|| drop(m.lock()));
    until_waits(&waiter, "sync.Mutex.Lock");
    then(&waiter);
    let own = group.clone();
    group.go(move || {
        compute(LONG); // for which it pauses for two seconds
        until(|| own.stats().throttled_count > 0);
    });
    // Asleep: beside one that yields, a group of low priority that has had its part is not even asked for a while whether it may run.
    while !group.stats().throttled {
        time::sleep(Duration::from_millis(1));
    }
    group
}

/// One of a group that pauses was woken for a lock and could not look at it: nobody else was woken, though the lock was free.
#[test]
fn who_was_woken_for_a_lock_runs_in_the_name_of_who_waits() {
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let m = leak(Mutex::new(()));
        let held = m.lock();
        let group = pauses_before(m, |_| ());
        drop(held);
        let held = m.lock();
        let high = TaskGroup::builder("high").priority(Priority::High).build();
        let second = high.go(|| drop(m.lock()));
        until_waits(&second, "sync.Mutex.Lock");
        drop(held);
        second.join().unwrap();
        assert!(group.stats().throttled);
    });
}

/// The lock, released and taken again with no goroutine in between, on the only P: by a thread, while the caller makes no call in which it could give way.
fn retaken(m: &'static Mutex<()>, held: MutexGuard<'static, ()>) -> MutexGuard<'static, ()> {
    let done = Arc::new(AtomicBool::new(false));
    let tell = Arc::clone(&done);
    let thread = std::thread::spawn(move || {
        drop(held);
        let held = m.lock();
        tell.store(true, Release);
        held
    });
    while !done.load(Acquire) {
        hint::spin_loop();
    }
    thread.join().unwrap()
}

/// One of a group that pauses was handed a lock, and did not count as its owner before it ran.
#[test]
fn who_was_handed_a_lock_runs_in_the_name_of_who_waits() {
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let m = leak(Mutex::new(()));
        let held = m.lock();
        let mut again = None;
        let group = pauses_before(m, |waiter| {
            time::sleep(Duration::from_millis(2));
            again = Some(retaken(m, held));
            until_waits(waiter, "sync.Mutex.Lock"); // for its turn, after so long
        });
        let mut held = again.expect("taken again");
        Condvar::new().wait_timeout(&mut held, Duration::from_millis(1)); // gives it away, and does not make way
        assert!(group.stats().throttled);
    });
}

/// A goroutine of `group` that holds the lock, and does `then` before it releases it, once it is told to.
fn hold(m: &'static Mutex<()>, group: &TaskGroup, then: fn()) -> (JoinHandle<()>, Sender<()>) {
    let ((tx, has_it), (go_on, rx)) = (chan::bounded(0), chan::bounded(0));
    let owner = group.go(move || {
        let held = m.lock();
        tx.send(()).unwrap();
        rx.recv().unwrap();
        then();
        drop(held);
    });
    has_it.recv().unwrap();
    (owner, go_on)
}

fn wait_for(m: &'static Mutex<()>, group: &TaskGroup) -> JoinHandle<()> {
    let waiter = group.go(|| drop(m.lock()));
    until_waits(&waiter, "sync.Mutex.Lock");
    waiter
}

/// The first lender was the last: the owner ran in its name, whoever came after it.
#[test]
fn a_better_lender_takes_the_place_of_another() {
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let [low, normal, high] = [Priority::Low, Priority::Normal, Priority::High]
            .map(|priority| TaskGroup::builder("lends").priority(priority).build());
        let m = leak(Mutex::new(()));
        let (owner, go_on) = hold(m, &low, || compute(LONG));
        let waiters = [&normal, &high].map(|group| wait_for(m, group));
        go_on.send(()).unwrap();
        owner.join().unwrap();
        waiters
            .into_iter()
            .for_each(|waiter| waiter.join().unwrap());
        let used = [low, normal, high].map(|group| group.stats().cpu_time);
        assert!(
            used[2] >= LONG / 2 && used[0] + used[1] < LONG / 4,
            "{used:?}"
        );
    });
}

/// It ran in the lane of a group with next to no quota, on an idle machine: forty milliseconds took four seconds.
#[test]
fn an_owner_goes_back_from_a_lane_that_is_stopped() {
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let low = TaskGroup::builder("low").priority(Priority::Low).build();
        let short = TaskGroup::builder("short of time").quota(0.01).build();
        let m = leak(Mutex::new(()));
        let (owner, go_on) = hold(m, &low, || {
            for _ in 0..40 {
                compute(LONG / 40);
                yield_now();
            }
        });
        let waiter = wait_for(m, &short);
        go_on.send(()).unwrap();
        owner.join().unwrap();
        waiter.join().unwrap();
        let used = [low, short].map(|group| group.stats().cpu_time);
        assert!(used[0] >= LONG / 2 && used[1] < LONG / 2, "{used:?}");
    });
}

/// An owner whose group paused for a moment was moved to the lane of a Low waiter, and waited for the floor of that.
#[test]
fn nobody_lends_to_who_is_more_entitled_after_a_moment() {
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let low = TaskGroup::builder("low").priority(Priority::Low).build();
        let high = TaskGroup::builder("high").priority(Priority::High);
        let high = high.quota(0.5).build();
        let m = leak(Mutex::new(()));
        let (owner, go_on) = hold(m, &high, || {
            compute(LONG / 5); // for which it pauses for six milliseconds
            yield_now();
            compute(LONG);
        });
        go_on.send(()).unwrap();
        let waiter = low.go(|| drop(m.lock())); // while it pauses
        owner.join().unwrap();
        waiter.join().unwrap();
        let used = [low, high].map(|group| group.stats().cpu_time);
        assert!(used[0] < LONG / 4 && used[1] >= LONG, "{used:?}");
    });
}

/// Who was passed over for long enough got the lock, and held it in its own name, while the others went on waiting.
#[test]
fn the_next_owner_runs_in_the_name_of_who_waits_already() {
    const HIGH: usize = 20;
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let [low, high] = [Priority::Low, Priority::High]
            .map(|priority| TaskGroup::builder("waits").priority(priority).build());
        let m = leak(Mutex::new(()));
        let held = m.lock();
        let first = low.go(|| {
            let held = m.lock();
            compute(LONG);
            drop(held);
        });
        until_waits(&first, "sync.Mutex.Lock");
        let others: Vec<_> = (0..HIGH).map(|_| wait_for(m, &high)).collect();
        drop(held);
        first.join().unwrap();
        others.into_iter().for_each(|waiter| waiter.join().unwrap());
        let used = [low, high].map(|group| group.stats().cpu_time);
        assert!(used[0] < LONG / 4 && used[1] >= LONG / 2, "{used:?}");
    });
}

/// A group that pauses got no lock that others wanted all the time, though they lend to who has it.
#[test]
fn nobody_is_passed_over_for_ever_because_its_group_pauses() {
    const OTHERS: usize = 20;
    let order = built(Runtime::builder().procs(1).preemption(false)).run(|| {
        let (m, order) = (leak(Mutex::new(())), leak(Mutex::new(Vec::new())));
        let group = TaskGroup::builder("short of time").quota(0.01).build();
        let held = m.lock();
        let waits = |name: &'static str| {
            move || {
                let _held = m.lock();
                order.lock().push(name);
            }
        };
        let mut all = vec![group.go(waits("pauses"))];
        until_waits(&all[0], "sync.Mutex.Lock");
        group.go(|| {
            compute(LONG); // for which it pauses for two seconds
            yield_now();
        });
        until(|| group.stats().throttled);
        for _ in 0..OTHERS {
            let other = runnext::go(waits("other"));
            until_waits(&other, "sync.Mutex.Lock");
            all.push(other);
        }
        assert!(group.stats().throttled);
        drop(held);
        all.into_iter().for_each(|waiter| waiter.join().unwrap());
        std::mem::take(&mut *order.lock())
    });
    assert_eq!(order.len(), OTHERS + 1);
    let at = order.iter().position(|name| *name == "pauses");
    assert_eq!(at, Some(16), "{order:?}");
}

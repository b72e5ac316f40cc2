//! Two lockers in every interleaving of three preemptions, three lockers in every one of two (`LOOM_MAX_PREEMPTIONS` for more).
//!
//! The data behind the lock is a loom cell, so two holders, or a holder that does not see what the previous one
//! wrote, are reported as a race; a lost wake-up leaves a thread blocked, which loom reports as a deadlock.
//! Bugs planted in the code are found: a Relaxed unlock, lock or contended lock, starving mode entered on a free mutex, WOKEN not given
//! back. Not found, because it takes more lockers than loom can walk through: an unlock that looks at the mode anew.
//!
//! The clock is part of the model: waiters are late never, always, or on every other wait, which covers normal mode,
//! starving mode and the changes between them.

use ::loom::sync::{Arc, Condvar, Mutex};
use ::loom::thread;

use super::*;
use crate::shim::UnsafeCell;

#[derive(Clone, Copy)]
enum Late {
    Never,
    Always,
    /// The locker with an odd number.
    Odd,
}

/// Tokens under a lock, and a condition variable to sleep on.
struct Tokens {
    count: Mutex<usize>,
    more: Condvar,
}

struct World {
    state: MutexState,
    tokens: Tokens,
    data: UnsafeCell<usize>,
    late: Late,
    spins: u32,
}

/// One locker's view of the world.
struct Locker<'a> {
    world: &'a World,
    number: usize,
    looks: core::cell::Cell<u64>,
}

impl Gate for Locker<'_> {
    fn wait(&self, _front: bool) {
        let mut count = self.world.tokens.count.lock().unwrap();
        while *count == 0 {
            count = self.world.tokens.more.wait(count).unwrap();
        }
        *count -= 1;
    }

    fn may_spin(&self, round: u32) -> bool {
        round < self.world.spins
    }

    fn spin(&self) {
        thread::yield_now();
    }

    fn now_ns(&self) -> u64 {
        let late = match self.world.late {
            Late::Never => false,
            Late::Always => true,
            Late::Odd => self.number % 2 == 1,
        };
        let looks = self.looks.get();
        self.looks.set(looks + 1);
        if late { looks * 2 * STARVING_NS } else { 0 }
    }
}

impl World {
    fn work(&self, number: usize, times: usize) {
        let gate = Locker {
            world: self,
            number,
            looks: core::cell::Cell::new(0),
        };
        for _ in 0..times {
            if !self.state.lock_fast() {
                self.state.lock_slow(&gate);
            }
            self.count();
            self.unlock();
        }
    }

    fn count(&self) {
        // SAFETY: the caller holds the lock; loom says so if not.
        self.data.with_mut(|data| unsafe { *data += 1 });
    }

    fn unlock(&self) {
        if let Some(left) = self.state.unlock_fast() {
            self.state.unlock_slow(left, |_| {
                *self.tokens.count.lock().unwrap() += 1;
                self.tokens.more.notify_one();
            });
        }
    }
}

fn model(lockers: usize, times: usize, late: Late, spins: u32) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(5 - lockers);
    builder.check(move || {
        let world = Arc::new(World {
            state: MutexState::new(),
            tokens: Tokens {
                count: Mutex::new(0),
                more: Condvar::new(),
            },
            data: UnsafeCell::new(0),
            late,
            spins,
        });
        let others: Vec<_> = (1..lockers)
            .map(|number| {
                let world = world.clone();
                thread::spawn(move || world.work(number, times))
            })
            .collect();
        world.work(0, times);
        for other in others {
            other.join().unwrap();
        }
        // SAFETY: all others have ended.
        assert_eq!(world.data.with(|data| unsafe { *data }), lockers * times);
        assert!(world.state.lock_fast(), "left behind: {:?}", world.state);
        assert_eq!(*world.tokens.count.lock().unwrap(), 0, "a token too many");
    });
}

#[test]
fn two_lockers() {
    for late in [Late::Never, Late::Always, Late::Odd] {
        model(2, 2, late, 0);
    }
}

#[test]
fn two_lockers_that_spin() {
    for late in [Late::Never, Late::Always] {
        model(2, 2, late, 1);
    }
}

#[test]
fn three_lockers() {
    for late in [Late::Never, Late::Always, Late::Odd] {
        model(3, 1, late, 0);
    }
}

#[test]
fn three_lockers_that_spin() {
    model(3, 1, Late::Odd, 1);
}

/// `try_lock` beside two lockers: it excludes like any other, and never takes what was promised.
#[test]
fn try_lock_beside_lockers() {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(|| {
        let world = Arc::new(World {
            state: MutexState::new(),
            tokens: Tokens {
                count: Mutex::new(0),
                more: Condvar::new(),
            },
            data: UnsafeCell::new(0),
            late: Late::Always,
            spins: 0,
        });
        let other = {
            let world = world.clone();
            thread::spawn(move || world.work(1, 2))
        };
        let mut taken = 2;
        for _ in 0..2 {
            if world.state.try_lock() {
                world.count();
                taken += 1;
                world.unlock();
            }
        }
        other.join().unwrap();
        // SAFETY: the other has ended.
        assert_eq!(world.data.with(|data| unsafe { *data }), taken);
    });
}

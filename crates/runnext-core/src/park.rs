//! The state word of a goroutine: park and wake as typed transitions.
//!
//! # States
//! | state    | where the goroutine is                         | who may leave it, to what                                   |
//! |----------|------------------------------------------------|-------------------------------------------------------------|
//! | IDLE     | nowhere: its header is free                    | who took the header → RUNNABLE                              |
//! | RUNNABLE | in one queue, or in the hands of a dispatcher  | the dispatcher → RUNNING                                    |
//! | RUNNING  | on a thread, or preempted with it              | its thread → RUNNABLE, WAITING, DEAD; its waker → NOTIFIED  |
//! | NOTIFIED | on a thread; the wake-up came before the park  | its thread, when it parks → RUNNING                         |
//! | WAITING  | in no queue; some primitive knows it           | its one waker → RUNNABLE                                    |
//! | DEAD     | ended                                          | the last holder of the header → IDLE                        |
//!
//! # Protocol
//! sleeper: 1 publishes itself where its waker will find it  2 leaves its stack  3 [`park`](State::park)
//! waker:   1 finds it, alone or after winning a claim       2 [`wake`](State::wake); queues it if told to
//!
//! Who wakes the sleeper if it goes to sleep right now? `park` and `wake` change the same word with a read-modify-write,
//! so one comes first. If `park` does, `wake` finds WAITING and its caller queues the goroutine. If `wake` does,
//! `park` finds NOTIFIED and the sleeper goes on at once.
//!
//! # Invariants
//! I1  One wake-up is delivered for each park, and each park takes one.
//! I2  What the waker did before `wake` happens before what the sleeper does after its park: the word is released by the one and
//!     acquired by the other, or by the dispatcher through the queue.
//! I3  What the sleeper did before `park`, its registers on its stack included, happens before whoever runs it next: `wake`
//!     acquires it and the queue passes it on.
//!
//! # Context
//! Never blocks. Tests: the loom models below, `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use crate::shim::{
    AtomicU32,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

/// A free header.
pub const IDLE: u32 = 0;
/// In a queue, or being dispatched.
pub const RUNNABLE: u32 = 1;
/// On a thread.
pub const RUNNING: u32 = 2;
/// Waits for its waker.
pub const WAITING: u32 = 4;
/// On a thread, already woken.
pub const NOTIFIED: u32 = 5;
/// Ended.
pub const DEAD: u32 = 6;

/// What became of a [`park`](State::park).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Parked {
    /// It waits: it is its waker's now, and may already run elsewhere.
    Waiting,
    /// It was woken before: it goes on.
    Notified,
}

/// What the waker has to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Woken {
    /// Queue it: it is the caller's.
    Queue,
    /// Nothing: it has not parked yet, and will not.
    Noted,
    /// It was in a state in which nobody may wake it (I1 is broken).
    Wrong(u32),
}

/// The state word. See the [module](self).
#[derive(Debug)]
#[repr(transparent)]
pub struct State(AtomicU32);

impl State {
    /// A word in the given state.
    #[cfg(not(loom))]
    pub const fn new(state: u32) -> State {
        State(AtomicU32::new(state))
    }

    /// A word in the given state.
    #[cfg(loom)]
    pub fn new(state: u32) -> State {
        State(AtomicU32::new(state))
    }

    /// The state at this moment.
    #[inline]
    pub fn get(&self) -> u32 {
        self.0.load(Relaxed)
    }

    /// It was made, gave way, or was preempted: about to be queued. By its thread, or who made it.
    #[inline]
    pub fn set_runnable(&self) {
        // Published by the queue it goes into.
        self.0.store(RUNNABLE, Relaxed);
    }

    /// It is dispatched. By the dispatcher, who took it from a queue.
    #[inline]
    pub fn set_running(&self) {
        self.0.store(RUNNING, Relaxed);
    }

    /// It has no stack to leave, so it waits from now on. By its thread, before it says so to its wakers (`signal`).
    #[inline]
    pub fn set_waiting(&self) {
        // Published by the signal it then sleeps on.
        self.0.store(WAITING, Relaxed);
    }

    /// It has ended. By its thread.
    #[inline]
    pub fn set_dead(&self) {
        self.0.store(DEAD, Release);
    }

    /// Whether the wake-up has already come; takes it. The sleeper's shortcut around leaving its stack.
    #[inline]
    pub fn take_notice(&self) -> bool {
        if self.0.load(Relaxed) != NOTIFIED {
            return false;
        }
        // In NOTIFIED nobody else changes the word; the load again, for I2.
        let state = self.0.load(Acquire);
        debug_assert_eq!(state, NOTIFIED);
        self.0.store(RUNNING, Relaxed);
        true
    }

    /// The sleeper has left its stack, or its thread is about to sleep with it.
    #[inline]
    pub fn park(&self) -> Parked {
        match self.0.compare_exchange(RUNNING, WAITING, Release, Acquire) {
            Ok(_) => Parked::Waiting,
            Err(state) => {
                debug_assert_eq!(state, NOTIFIED);
                self.0.store(RUNNING, Relaxed);
                Parked::Notified
            }
        }
    }

    /// Its one waker ends its wait.
    #[inline]
    pub fn wake(&self) -> Woken {
        let mut state = self.0.load(Relaxed);
        loop {
            let (next, woken) = match state {
                WAITING => (RUNNABLE, Woken::Queue),
                RUNNING => (NOTIFIED, Woken::Noted),
                other => return Woken::Wrong(other),
            };
            match self.0.compare_exchange_weak(state, next, AcqRel, Relaxed) {
                Ok(_) => return woken,
                Err(now) => state = now,
            }
        }
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn wake_after_park_queues() {
        let state = State::new(RUNNING);
        assert_eq!(state.park(), Parked::Waiting);
        assert_eq!(state.wake(), Woken::Queue);
        assert_eq!(state.get(), RUNNABLE);
    }

    #[test]
    fn wake_before_park_is_noted() {
        let state = State::new(RUNNING);
        assert_eq!(state.wake(), Woken::Noted);
        assert_eq!(state.park(), Parked::Notified);
        assert_eq!(state.get(), RUNNING);
        assert_eq!(state.wake(), Woken::Noted);
        assert!(state.take_notice() && !state.take_notice());
        assert_eq!(state.get(), RUNNING);
    }

    #[test]
    fn who_does_not_wait_cannot_be_woken() {
        for wrong in [IDLE, RUNNABLE, NOTIFIED, DEAD] {
            assert_eq!(State::new(wrong).wake(), Woken::Wrong(wrong));
        }
    }
}

#[cfg(all(test, loom))]
mod loom {
    //! A sleeper that parks twice and, each time, a waker on another thread, in every interleaving.
    use ::loom::cell::UnsafeCell;
    use ::loom::sync::Arc;
    use ::loom::sync::atomic::{AtomicUsize, Ordering::*};
    use ::loom::{model, thread};

    use super::*;

    struct World {
        state: State,
        /// The run queue: how often the waker put it there.
        queued: AtomicUsize,
        /// Written by the sleeper before it publishes itself, by the waker before it wakes, by the sleeper after: I2, I3.
        value: UnsafeCell<usize>,
    }

    // SAFETY: that the protocol makes accesses to `value` exclusive is what the model checks.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    impl World {
        fn bump(&self) {
            // SAFETY: as above.
            self.value.with_mut(|v| unsafe { *v += 1 });
        }

        fn wake(&self) {
            self.bump();
            match self.state.wake() {
                Woken::Queue => drop(self.queued.fetch_add(1, Release)),
                Woken::Noted => {}
                Woken::Wrong(state) => panic!("woken in state {state}"),
            }
        }
    }

    fn run(shortcut: bool) {
        model(move || {
            let world = Arc::new(World {
                state: State::new(RUNNING),
                queued: AtomicUsize::new(0),
                value: UnsafeCell::new(0),
            });
            for round in 1..=2 {
                world.bump();
                let other = Arc::clone(&world);
                // Being seen by the waker's thread is being published.
                let waker = thread::spawn(move || other.wake());
                if shortcut && world.state.take_notice() {
                    // I2 by the word alone: the waker's thread may still run.
                    world.bump();
                    waker.join().unwrap();
                } else if world.state.park() == Parked::Notified {
                    world.bump();
                    waker.join().unwrap();
                } else {
                    // The dispatcher's part, played once the waker is done: it must have queued it, once.
                    waker.join().unwrap();
                    assert_eq!(world.queued.swap(0, Acquire), 1);
                    assert_eq!(world.state.get(), RUNNABLE);
                    world.state.set_running();
                    world.bump();
                }
                assert_eq!(world.state.get(), RUNNING);
                assert_eq!(world.queued.load(Relaxed), 0);
                // SAFETY: the waker is joined.
                world.value.with(|v| assert_eq!(unsafe { *v }, 3 * round));
            }
        });
    }

    #[test]
    fn loom_every_wait_ends() {
        run(false);
    }

    #[test]
    fn loom_every_wait_ends_with_the_shortcut() {
        run(true);
    }
}

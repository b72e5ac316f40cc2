//! The word between a future's poller and its wakers: any number of them, at any time, as often as they like.
//!
//! # Why this shape
//! A park has exactly one wake-up (`park`, I1). A future's wakers keep no such discipline: they are cloned, kept, and used twice,
//! late, or never. This word stands between the two: however often it is rung, one ring per sleep is told to wake the sleeper.
//! It is a byte, since each goroutine's header has one.
//!
//! # States
//! | state  | meaning                                     | who may leave it, to what                               |
//! |--------|---------------------------------------------|---------------------------------------------------------|
//! | QUIET  | polled, or about to be; nobody has rung     | a waker → RUNG; the sleeper → ASLEEP                    |
//! | RUNG   | somebody rang since the poll began          | the sleeper, before it polls again → QUIET              |
//! | ASLEEP | it waits                                    | a waker → RUNG, and it must wake the sleeper            |
//!
//! # Protocol
//! sleeper: 1 [`begin`](Signal::begin)  2 polls: the future stores its wakers  3 pending: [`sleep`](Signal::sleep); asleep: parks,
//!          and from 1 when it is woken; rung: from 1 at once
//! waker:   1 makes what the future waits for come true  2 [`ring`](Signal::ring)  3 told so: wakes the sleeper
//!
//! Who wakes the sleeper if it goes to sleep right now? `sleep` and `ring` change the same word with a read-modify-write, so
//! one comes first. If `sleep` does, `ring` finds ASLEEP and its caller wakes the sleeper, once, for it leaves RUNG behind. If `ring`
//! does, `sleep` fails and the future is polled again.
//!
//! # Invariants
//! I1  Of all rings since a `sleep` succeeded exactly one is told to wake the sleeper.
//! I2  What a waker did before `ring` happens before a poll that begins after it: also if somebody had rung already, so a ring is
//!     always a write, never a look.
//! I3  What the sleeper did before `sleep` happens before what the waker it is woken by does after `ring`.
//! I4  `sleep` is sequentially consistent: who sleeps and then looks at another such word may pair with who writes that word and
//!     then looks here.
//!
//! # Context
//! Never blocks. Tests: below, and `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use crate::shim::{
    AtomicU8,
    Ordering::{AcqRel, Acquire, Relaxed, SeqCst},
};

const QUIET: u8 = 0;
const RUNG: u8 = 1;
const ASLEEP: u8 = 2;

/// The word. See the [module](self).
#[derive(Debug)]
#[repr(transparent)]
pub struct Signal(AtomicU8);

impl Signal {
    /// Quiet.
    #[cfg(not(loom))]
    pub const fn new() -> Signal {
        Signal(AtomicU8::new(QUIET))
    }

    /// Quiet.
    #[cfg(loom)]
    pub fn new() -> Signal {
        Signal(AtomicU8::new(QUIET))
    }

    /// Quiet again, for another future. By who owns the word, which no waker knows.
    #[inline]
    pub fn reset(&self) {
        self.0.store(QUIET, Relaxed);
    }

    /// A poll is about to begin: it answers all rings so far. True if there were any. By the sleeper.
    #[inline]
    pub fn begin(&self) -> bool {
        // A ring that this look misses stays, and ends the sleep that follows the poll.
        let rung = self.0.load(Relaxed) != QUIET;
        if rung {
            // Not a store: it would swallow a ring of this very moment, and not see what it is about (I2).
            let _ = self.0.swap(QUIET, AcqRel);
        }
        rung
    }

    /// The poll has found nothing to do. True: the sleeper is asleep, and the next ring wakes it. False: somebody has rung.
    #[inline]
    #[must_use]
    pub fn sleep(&self) -> bool {
        self.0
            .compare_exchange(QUIET, ASLEEP, SeqCst, Acquire)
            .is_ok()
    }

    /// There is a reason to poll. True: the sleeper is asleep, and the caller must wake it.
    #[inline]
    #[must_use]
    pub fn ring(&self) -> bool {
        self.0.swap(RUNG, AcqRel) == ASLEEP
    }

    /// Whether somebody has rung since the poll began. A moment's view, good for a short cut around [`sleep`](Self::sleep).
    #[inline]
    pub fn is_rung(&self) -> bool {
        self.0.load(Relaxed) == RUNG
    }

    /// Whether it sleeps. A moment's view.
    pub fn is_asleep(&self) -> bool {
        self.0.load(Relaxed) == ASLEEP
    }
}

impl Default for Signal {
    fn default() -> Signal {
        Signal::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_ring_per_sleep_wakes() {
        let signal = Signal::new();
        signal.begin();
        assert!(signal.sleep() && signal.is_asleep());
        assert!(signal.ring());
        assert!(!signal.ring(), "it is awake by now");
        signal.begin();
        assert!(signal.sleep());
        assert!(signal.ring());
    }

    #[test]
    fn a_ring_during_the_poll_keeps_it_awake() {
        let signal = Signal::new();
        signal.begin();
        assert!(!signal.ring());
        assert!(!signal.sleep(), "it was rung");
        signal.begin();
        assert!(signal.sleep(), "and that was the answer");
    }

    #[test]
    fn rings_before_the_poll_are_answered_by_it() {
        let signal = Signal::new();
        assert!(!signal.ring() && !signal.ring());
        signal.begin();
        assert!(signal.sleep());
        signal.reset();
        assert!(!signal.ring());
    }
}

#[cfg(all(test, loom))]
mod loom {
    //! A future that waits for two wakers on other threads, each of which rings when its part is done, in every interleaving;
    //! on the park-state word of a goroutine with a stack, and of one without.
    use ::loom::sync::Arc;
    use ::loom::sync::atomic::{AtomicUsize, Ordering::*};
    use ::loom::{model, thread};

    use super::*;
    use crate::park::{Parked, RUNNABLE, RUNNING, State, Woken};

    struct World {
        signal: Signal,
        state: State,
        /// The run queue: how often it was put there.
        queued: AtomicUsize,
        /// What the future waits for; relaxed, so that only I2 makes it visible.
        parts: AtomicUsize,
    }

    impl World {
        fn waker(&self) {
            self.parts.fetch_add(1, Relaxed);
            if self.signal.ring() {
                match self.state.wake() {
                    Woken::Queue => drop(self.queued.fetch_add(1, Release)),
                    Woken::Noted => {}
                    Woken::Wrong(state) => panic!("woken in state {state}"),
                }
            }
        }

        /// A worker waits for the queue, and dispatches.
        fn dispatch(&self) {
            while self.queued.load(Acquire) == 0 {
                thread::yield_now();
            }
            assert_eq!(self.queued.swap(0, Acquire), 1);
            assert_eq!(self.state.get(), RUNNABLE);
            self.state.set_running();
        }

        /// Polls until both parts are there; returns how often.
        fn run(&self, stackless: bool) -> usize {
            for polls in 1.. {
                self.signal.begin();
                if self.parts.load(Relaxed) == 2 {
                    return polls;
                }
                if stackless {
                    // It has no registers to save: it waits from the moment it says so.
                    self.state.set_waiting();
                    if self.signal.sleep() {
                        self.dispatch();
                    } else {
                        self.state.set_running();
                    }
                } else if self.signal.sleep() && self.state.park() == Parked::Waiting {
                    self.dispatch();
                }
            }
            unreachable!()
        }
    }

    fn check(stackless: bool) {
        model(move || {
            let world = Arc::new(World {
                signal: Signal::new(),
                state: State::new(RUNNING),
                queued: AtomicUsize::new(0),
                parts: AtomicUsize::new(0),
            });
            let wakers: Vec<_> = (0..2)
                .map(|_| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || world.waker())
                })
                .collect();
            assert!(world.run(stackless) <= 3, "a poll nobody asked for");
            for waker in wakers {
                waker.join().unwrap();
            }
            assert_eq!(world.queued.load(Relaxed), 0);
        });
    }

    #[test]
    fn loom_no_ring_is_lost() {
        check(false);
    }

    #[test]
    fn loom_no_ring_is_lost_without_a_stack() {
        check(true);
    }
}

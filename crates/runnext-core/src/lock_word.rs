//! The words of the runtime's own lock: who has it, and whether somebody sleeps for it.
//!
//! # Why this shape
//! A channel operation is little more than locking and unlocking such a lock, and each compare-and-swap is a quarter of its cost. Locking
//! needs one. Unlocking does not: it is a store, followed by a check for sleepers. A locker may be about to sleep at that moment; as that
//! is rare, the locker that goes to sleep pays for the fences of both sides ([`fence`]).
//! Rejected: one word of three values (free, held, held with sleepers), which is unlocked by a swap: 14 ns of 48 for a send and a receive.
//!
//! # Protocol
//! lock:   CAS FREE → HELD; if that fails, retry for a while, with pauses; if it still fails, sleep:
//!         1 increment `sleepers`  2 heavy fence  3 CAS FREE → HELD: done, decrement `sleepers`  4 sleep while HELD, then from 3
//! unlock: 1 store FREE  2 light fence  3 if `sleepers` is not 0: wake one
//!
//! Who wakes a locker that goes to sleep right now? The holder. The locker's heavy fence takes effect somewhere in the holder's unlock: before
//! 3, and then the holder sees `sleepers`; or after 1, and then the locker sees FREE, or HELD by another holder, for which the same is true.
//!
//! # Invariants
//! I1  From FREE → HELD to the store of FREE one party has the lock; the store releases, the CAS acquires.
//! I2  An unlock still reads `sleepers` after it has stored FREE, so the words must stay valid until then: what contains the lock must be kept
//!     alive by something other than the lock.
//!
//! # Context
//! Never allocates. Sleeping and waking are the caller's ([`Sleep`]). Tests: `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use crate::fence;
use crate::shim::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
    hint,
};

const FREE: u32 = 0;
const HELD: u32 = 1;

/// Pauses between looks at a lock that is taken, before sleeping. Not at once, and not without a break: critical sections are tens of
/// instructions, and who holds the lock has its line and wants it again soon. One that waits and looks takes the line away for every look; one
/// that stays away lets the other do a few dozen operations at the speed of one core. `bench fanin` shows it: 11 million messages a second
/// with a look after every pause, 21 with these.
const PAUSES: &[u32] = if cfg!(loom) { &[] } else { &[16, 32, 64] };

/// How a thread sleeps.
pub trait Sleep {
    /// The counterpart of [`fence::light`].
    fn fence();
    /// Sleeps while the word has this value; may wake up for nothing.
    fn sleep(word: &AtomicU32, value: u32);
    /// Wakes one that sleeps on the word.
    fn wake(word: &AtomicU32);
}

/// See the [module](self).
#[derive(Debug)]
pub struct LockWord {
    word: AtomicU32,
    sleepers: AtomicU32,
}

impl LockWord {
    /// A lock that nobody has.
    #[cfg(not(loom))]
    pub const fn new() -> LockWord {
        LockWord {
            word: AtomicU32::new(FREE),
            sleepers: AtomicU32::new(0),
        }
    }

    /// A lock that nobody has.
    #[cfg(loom)]
    pub fn new() -> LockWord {
        LockWord {
            word: AtomicU32::new(FREE),
            sleepers: AtomicU32::new(0),
        }
    }

    /// Takes it if nobody has it.
    #[inline(always)]
    #[must_use]
    pub fn try_take(&self) -> bool {
        self.word
            .compare_exchange(FREE, HELD, Acquire, Relaxed)
            .is_ok()
    }

    /// Takes it.
    #[inline(always)]
    pub fn take<S: Sleep>(&self) {
        if !self.try_take() {
            self.take_slow::<S>();
        }
    }

    #[cold]
    fn take_slow<S: Sleep>(&self) {
        for &pauses in PAUSES {
            for _ in 0..pauses {
                hint::spin_loop();
            }
            if self.word.load(Relaxed) == FREE && self.try_take() {
                return;
            }
        }
        self.sleepers.fetch_add(1, Relaxed);
        S::fence();
        while !self.try_take() {
            S::sleep(&self.word, HELD);
        }
        self.sleepers.fetch_sub(1, Relaxed);
    }

    /// Gives it back. By who has it.
    #[inline(always)]
    pub fn give<S: Sleep>(&self) {
        self.word.store(FREE, Release);
        fence::light();
        if self.sleepers.load(Relaxed) != 0 {
            S::wake(&self.word);
        }
    }
}

impl Default for LockWord {
    fn default() -> LockWord {
        LockWord::new()
    }
}

#[cfg(all(test, loom))]
mod loom {
    use ::loom::lazy_static;
    use ::loom::sync::atomic::fence;
    use ::loom::sync::{Arc, Condvar, Mutex};
    use ::loom::{model, thread};

    use super::*;
    use crate::shim::{Ordering::SeqCst, UnsafeCell};

    /// A futex of one bucket.
    struct Bucket;

    lazy_static! {
        static ref ASLEEP: (Mutex<()>, Condvar) = (Mutex::new(()), Condvar::new());
    }

    impl Sleep for Bucket {
        fn fence() {
            fence(SeqCst);
        }

        fn sleep(word: &AtomicU32, value: u32) {
            let asleep = ASLEEP.0.lock().unwrap();
            if word.load(Relaxed) == value {
                drop(ASLEEP.1.wait(asleep).unwrap());
            }
        }

        fn wake(_: &AtomicU32) {
            let _asleep = ASLEEP.0.lock().unwrap();
            ASLEEP.1.notify_one();
        }
    }

    struct World {
        lock: LockWord,
        guarded: UnsafeCell<usize>,
    }

    // SAFETY: that the lock makes accesses exclusive is what the models check.
    unsafe impl Sync for World {}
    // SAFETY: as above.
    unsafe impl Send for World {}

    fn use_it(world: &World) {
        world.lock.take::<Bucket>();
        // SAFETY: under the lock.
        world.guarded.with_mut(|n| unsafe { *n += 1 });
        world.lock.give::<Bucket>();
    }

    /// Nobody is left asleep, which loom would call a deadlock, and nobody meets another inside.
    fn contend(threads: usize, times: usize) {
        model(move || {
            let world = Arc::new(World {
                lock: LockWord::new(),
                guarded: UnsafeCell::new(0),
            });
            let others: Vec<_> = (1..threads)
                .map(|_| {
                    let world = Arc::clone(&world);
                    thread::spawn(move || (0..times).for_each(|_| use_it(&world)))
                })
                .collect();
            (0..times).for_each(|_| use_it(&world));
            for other in others {
                other.join().unwrap();
            }
            // SAFETY: all others have ended.
            let n = world.guarded.with(|n| unsafe { *n });
            assert_eq!(n, threads * times);
        });
    }

    #[test]
    fn loom_two_take_it_in_turns() {
        contend(2, 2);
    }

    #[test]
    fn loom_three_want_it_once() {
        contend(3, 1);
    }
}

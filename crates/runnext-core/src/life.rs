//! The word of a goroutine's end: who holds its header, who is told, who drops what it leaves.
//!
//! # Why this shape
//! Three parties meet at the end of a goroutine: the goroutine itself, the one `JoinHandle` with the right to its result, and any number of
//! references that only name it. References are `'static`, a result need not be (`scope`), so the result goes with the
//! handle or with the goroutine, whichever comes last, and never with a reference. One word decides all of it, and the
//! usual life takes three changes to it: the end, the scheduler's leaving, and the going of the handle.
//!
//! # The word
//! | bit      | meaning                                          | set by → cleared by                    |
//! |----------|--------------------------------------------------|----------------------------------------|
//! | DONE     | it has ended, and its result is in the payload    | the goroutine, at its end → never      |
//! | ONCPU    | the scheduler still uses the header               | spawn → the M that saw it end          |
//! | WAITER   | somebody is to be told when DONE is set           | the handle → the handle                |
//! | FOREIGN  | and telling that one is running others' code      | with WAITER                            |
//! | UNWANTED | the handle went before DONE                       | the handle, or spawn → never           |
//! | refs     | handles, wakers, and at times the goroutine itself |                                       |
//!
//! # Protocol
//! goroutine: 1 leaves its result  2 unwanted: drops it  3 [`finish`](Life::finish)  4 tells the waiter  5 held: drops an unwanted result that
//!            2 missed, then its own [reference](Life::drop_ref)  6 its M: [`leave_cpu`](Life::leave_cpu)
//! handle:    [`give_up`](Life::give_up); ended: drops the result if it was not taken, then its reference
//!
//! Who drops the result if the handle goes right now? `finish` and `give_up` change the same word, so one comes first. If `give_up`
//! does, `finish` sees UNWANTED; if `finish` does, `give_up` sees DONE.
//!
//! # Invariants
//! I1  A result that nobody takes is dropped by exactly one party: the goroutine if it finds UNWANTED, otherwise the handle when it goes.
//!     Either is over before 6, and before whatever the goroutine does after 5.
//! I2  What references may look at (the extension record) is dropped by exactly one party: who drops the last reference after DONE, or the goroutine if
//!     there was none at its DONE.
//! I3  The header is free when DONE is set, ONCPU is clear and no reference is left; of the two parties that can complete that
//!     condition exactly one sees it completed.
//! I4  Where code of others runs on the goroutine after DONE, `finish` has counted a reference for it: I2 does not happen meanwhile.
//! I5  Who is registered is told by the goroutine, or given back to the handle, never both.
//!
//! # Context
//! Never blocks. Tests: below, and `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use crate::shim::{
    AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

const DONE: u64 = 1;
const ONCPU: u64 = 1 << 1;
const WAITER: u64 = 1 << 2;
const FOREIGN: u64 = 1 << 3;
const UNWANTED: u64 = 1 << 4;
const REF: u64 = 1 << 8;

/// What [`Life::finish`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Finished {
    /// Somebody is registered: the caller tells that one.
    pub told: bool,
    /// Code of others is left to run: a reference is the caller's until that is over (I4).
    pub held: bool,
}

/// What became of the right to the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum GivenUp {
    /// The goroutine will drop its result. The reference is gone, so the header may be; who was registered is the caller's again.
    Before {
        /// Somebody was.
        registered: bool,
    },
    /// It has ended: the result is the caller's to drop, and then the reference.
    After,
}

/// The word. See the [module](self).
#[derive(Debug)]
#[repr(transparent)]
pub struct Life(AtomicU64);

impl Life {
    /// Of a header that was never used.
    #[cfg(not(loom))]
    pub const fn new() -> Life {
        Life(AtomicU64::new(0))
    }

    /// Of a header that was never used.
    #[cfg(loom)]
    pub fn new() -> Life {
        Life(AtomicU64::new(0))
    }

    /// A goroutine begins: its handle has it, and the scheduler. By who took the header.
    #[inline]
    pub fn begin(&self) {
        // Released: who finds it alive may ask for its number.
        self.0.store(ONCPU | REF, Release);
    }

    /// It has no handle after all. By who made it, before anybody else knows of it.
    #[inline]
    pub fn disown(&self) {
        self.0.store(ONCPU | UNWANTED, Release);
    }

    /// Whether it has begun and not ended.
    pub fn is_alive(&self) -> bool {
        self.0.load(Acquire) & (ONCPU | DONE) == ONCPU
    }

    /// Whether it has ended.
    #[inline]
    pub fn is_done(&self) -> bool {
        self.0.load(Acquire) & DONE != 0
    }

    /// Whether the handle went before the end: then the result is the goroutine's to drop.
    #[inline]
    pub fn is_unwanted(&self) -> bool {
        self.0.load(Acquire) & UNWANTED != 0
    }

    /// Whether there is no reference. By the goroutine itself before its end: then it stays so, unless it makes one.
    #[inline]
    pub fn is_detached(&self) -> bool {
        self.0.load(Acquire) < REF
    }

    /// One more reference, by who has one, or the goroutine itself.
    #[inline]
    pub fn add_ref(&self) {
        self.0.fetch_add(REF, Relaxed);
    }

    /// Somebody waits for the end. False: it has come, and nobody will be told. By the handle, while nobody is registered.
    #[inline]
    #[must_use]
    pub fn register(&self, foreign: bool) -> bool {
        let bits = if foreign { WAITER | FOREIGN } else { WAITER };
        self.0.fetch_add(bits, AcqRel) & DONE == 0
    }

    /// Whether somebody is registered. By the handle.
    #[inline]
    pub fn is_registered(&self) -> bool {
        self.0.load(Relaxed) & WAITER != 0
    }

    /// Nobody waits any more. False: it has ended, and who was registered has been told, or will be (I5). By the handle.
    #[must_use]
    pub fn withdraw(&self) -> bool {
        let mut old = self.0.load(Acquire);
        while old & DONE == 0 {
            let new = old & !(WAITER | FOREIGN);
            match self.0.compare_exchange_weak(old, new, AcqRel, Acquire) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// The goroutine has ended. `unclean`: if it is unwanted, something is left for it to drop.
    #[inline]
    pub fn finish(&self, unclean: bool) -> Finished {
        let mut old = self.0.load(Relaxed);
        loop {
            let held = old & FOREIGN != 0 || unclean && old & UNWANTED != 0;
            let new = old + DONE + if held { REF } else { 0 };
            match self.0.compare_exchange_weak(old, new, AcqRel, Relaxed) {
                Ok(_) => {
                    let told = old & WAITER != 0;
                    return Finished { told, held };
                }
                Err(now) => old = now,
            }
        }
    }

    /// The handle goes, and the right to the result with it.
    #[inline]
    pub fn give_up(&self) -> GivenUp {
        let mut old = self.0.load(Acquire);
        while old & DONE == 0 {
            // In one step: after it the header may be gone.
            let new = (old & !(WAITER | FOREIGN) | UNWANTED) - REF;
            match self.0.compare_exchange_weak(old, new, AcqRel, Acquire) {
                Ok(_) => {
                    let registered = old & WAITER != 0;
                    return GivenUp::Before { registered };
                }
                Err(now) => old = now,
            }
        }
        GivenUp::After
    }

    /// Drops one reference; `clean` is called if I2 names the caller. True: the header is free (I3), and the caller's to return.
    #[inline]
    #[must_use]
    pub fn drop_ref(&self, clean: impl FnOnce()) -> bool {
        let mut old = self.0.load(Acquire);
        loop {
            if old & DONE != 0 && old < 2 * REF {
                // The last one after the end: nobody can make another (I4), so there is no hurry to let go. Clean first, then
                // see whether the M has left.
                clean();
                // The M left before our look, so nobody else counts on the word.
                return old & ONCPU == 0 || self.0.fetch_sub(REF, AcqRel) & ONCPU == 0;
            }
            // Not a plain subtraction: DONE may be set between the look and the step, and then the
            // cleaning would be nobody's.
            match self
                .0
                .compare_exchange_weak(old, old - REF, AcqRel, Acquire)
            {
                Ok(_) => return false,
                Err(now) => old = now,
            }
        }
    }

    /// The M will not touch the header again. True: the header is free (I3), and the caller's to return.
    #[inline]
    #[must_use]
    pub fn leave_cpu(&self) -> bool {
        self.0.fetch_sub(ONCPU, AcqRel) < REF
    }
}

impl Default for Life {
    fn default() -> Life {
        Life::new()
    }
}

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

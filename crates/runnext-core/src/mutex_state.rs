//! The state of a mutex: one word, and the rules by which lockers and unlockers change it.
//!
//! # Why this shape
//! Two wishes conflict. Throughput wants the lock to go to whoever is on a CPU, with warm caches; a waiter then
//! may lose again and again to those who never sleep. Fairness wants it to go to whoever waited longest; each
//! hand-over then costs a switch, during which nobody holds the lock. So there are two modes. *Normal*: an unlock
//! frees the word and wakes one waiter, which competes. *Starving*: once a waiter has waited longer than
//! [`STARVING_NS`], unlocks hand the lock over in order, until the queue is short or quick again.
//! Rejected: always in order (convoys: every holder that is switched off stops the line), always competing
//! (unbounded waits), a ticket lock (no `try_lock`, no time to give up).
//!
//! The rules know nothing of threads and clocks: they ask a [`Gate`]. So loom explores the code that
//! ships, and tests can run it on a virtual clock.
//!
//! # Words
//! *token*: what an unlocker leaves at the gate and one waiter takes. *awake*: a locker that is running and will
//! look at the word again, so nobody need be woken on its account.
//!
//! | bits     | meaning                                             | set by → cleared by                              |
//! |----------|-----------------------------------------------------|--------------------------------------------------|
//! | LOCKED   | held                                                | the locker → the unlocker                        |
//! | WOKEN    | a locker is awake: do not wake another              | a spinner, or the unlock that wakes → that locker|
//! | STARVING | unlocks hand over; nobody else takes the lock       | a starved waiter → the one handed to             |
//! | the rest | lockers that wait at the gate, or are about to      | themselves → unlock that wakes; the one handed to|
//!
//! # Protocol
//! ```text
//! lock:   1 free and normal: CAS LOCKED in, else
//!         2 held, normal, and spinning may help: claim WOKEN if there are waiters; spin; again
//!         3 CAS: take it if free and normal, else count itself as waiter; awake: give WOKEN back;
//!           waited too long and held: STARVING
//!         4 took it: done. Else wait for a token: at the front if it waited before
//!         5 STARVING: the lock was handed over: count itself out, take LOCKED, and STARVING with it if it was
//!           the last waiter or did not wait long. Else it is awake: from 2
//! unlock: 1 subtract LOCKED; no waiter, or somebody is awake: done
//!         2 normal: waiters, nobody awake, not taken meanwhile: CAS one waiter out and WOKEN in, leave a token
//!           starving: leave a token, and make way for whoever takes it
//! ```
//!
//! # Invariants
//! I1  At most one holder: LOCKED goes from 0 to 1 by CAS in normal mode; in starving mode only by the one that took
//!     the unlocker's token, of which there is at most one.
//! I2  A locker that waits, or is about to, is counted, or a token is there for it. So an unlock that sees no waiter
//!     leaves nobody behind.
//! I3  WOKEN set means some locker will look at the word again. So an unlock that sees it need not wake.
//! I4  STARVING set means LOCKED is set, or a token is on its way: it is entered on a held mutex only. Entered on a free
//!     one, nobody would ever unlock.
//!
//! A waiter that the gate loses, because nobody will ever run it again, stays counted. So some unlock takes out a count and leaves a token that
//! nobody waits for. It stands for the awake locker of I3, and for the one on its way of I4: who comes to wait next takes it, and looks.
//! One that is lost after it has taken its token leaves that for another, which looks in its place, and stays counted as if it were the lost one.
//!
//! # Context
//! Lock-free but for the gate's `wait`. Release/Acquire on the word order the protected data; a token must
//! do the same (it follows an unlock).
//!
//! Tests: `mutex_state/tests.rs` (single steps), `mutex_state/loom.rs` (all interleavings of two and three lockers,
//! with waiters that starve always and never).
//!
//! # Tunables
//! [`STARVING_NS`] 1 ms and the gate's spinning: Go's figures. `bench mutex`, `bench sweep` and `bench fairness`
//! re-measure them.

use core::fmt;

use crate::shim::{
    AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

#[cfg(all(test, loom))]
mod loom;
#[cfg(all(test, not(loom)))]
mod tests;

const LOCKED: u32 = 1;
const WOKEN: u32 = 1 << 1;
const STARVING: u32 = 1 << 2;
const WAITER: u32 = 1 << 3;

/// How long a waiter competes before it asks for its turn.
pub const STARVING_NS: u64 = 1_000_000;

/// What a locker needs from its surroundings: a place to wait, a clock, advice on spinning.
///
/// The place holds tokens. Unlockers leave them there ([`MutexState::unlock_slow`]), first come first served but for those who
/// ask for the front.
pub trait Gate {
    /// Waits for a token and takes it. `front`: before those who wait already.
    fn wait(&self, front: bool);

    /// Whether spinning may help: the holder can be running, and the caller keeps nobody from running. `round`
    /// counts the rounds since the locker came or was woken.
    fn may_spin(&self, round: u32) -> bool;

    /// Spins one round.
    fn spin(&self);

    /// Nanoseconds of a monotonic clock.
    fn now_ns(&self) -> u64;
}

/// The word. It starts free.
#[repr(transparent)]
pub struct MutexState {
    word: AtomicU32,
}

impl MutexState {
    /// A free mutex.
    #[cfg(not(loom))]
    pub const fn new() -> MutexState {
        MutexState {
            word: AtomicU32::new(0),
        }
    }

    /// A free mutex.
    #[cfg(loom)]
    pub fn new() -> MutexState {
        MutexState {
            word: AtomicU32::new(0),
        }
    }

    /// Takes the mutex if it is free and promised to nobody, at the first try. False promises nothing.
    ///
    /// It looks before it tries: while others wait the word is never zero, and a blind try that fails costs as much as one that
    /// succeeds.
    #[inline(always)]
    #[must_use]
    pub fn lock_fast(&self) -> bool {
        let old = self.word.load(Relaxed);
        old & (LOCKED | STARVING) == 0
            && self
                .word
                .compare_exchange(old, old | LOCKED, Acquire, Relaxed)
                .is_ok()
    }

    /// Takes the mutex if it is free and promised to nobody.
    #[inline]
    #[must_use]
    pub fn try_lock(&self) -> bool {
        let mut old = self.word.load(Relaxed);
        while old & (LOCKED | STARVING) == 0 {
            match self
                .word
                .compare_exchange_weak(old, old | LOCKED, Acquire, Relaxed)
            {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
        false
    }

    /// Takes the mutex, waiting for it as long as it takes.
    pub fn lock_slow(&self, gate: &impl Gate) {
        let mut since = None; // when it first waited
        let (mut starving, mut awake) = (false, false);
        let mut round = 0;
        let mut old = self.word.load(Relaxed);
        loop {
            if old & (LOCKED | STARVING) == LOCKED && gate.may_spin(round) {
                awake = awake || self.announce_spinner(old);
                gate.spin();
                round += 1;
                old = self.word.load(Relaxed);
                continue;
            }
            let busy = old & (LOCKED | STARVING) != 0;
            let new = wanted(old, starving, awake);
            if let Err(now) = self.word.compare_exchange_weak(old, new, Acquire, Relaxed) {
                old = now;
                continue;
            }
            if !busy {
                return;
            }
            let waited_before = since.is_some();
            let start = *since.get_or_insert_with(|| gate.now_ns());
            gate.wait(waited_before);
            starving = starving || gate.now_ns().saturating_sub(start) > STARVING_NS;
            old = self.word.load(Relaxed);
            if old & STARVING != 0 {
                return self.take_over(old, starving);
            }
            awake = true;
            round = 0;
        }
    }

    /// A spinner will take the lock, or look again: an unlock meanwhile need not wake anybody. Only worth a write if somebody
    /// waits. True: the spinner owns WOKEN.
    fn announce_spinner(&self, old: u32) -> bool {
        old & WOKEN == 0
            && old >= WAITER
            && self
                .word
                .compare_exchange(old, old | WOKEN, Relaxed, Relaxed)
                .is_ok()
    }

    /// The lock was handed to the caller, whose token came with it: nobody else takes it meanwhile (I1).
    fn take_over(&self, old: u32, starving: bool) {
        debug_assert!(
            old & (LOCKED | WOKEN) == 0 && old >= WAITER,
            "a mutex handed over in state {old:#x}"
        );
        let leave = !starving || old < 2 * WAITER;
        let out = WAITER - LOCKED + if leave { STARVING } else { 0 };
        self.word.fetch_sub(out, Acquire);
    }

    /// Frees the mutex, whose holder the caller is. `Some`: somebody waits and nobody is awake, or the lock is to be handed
    /// over: [`unlock_slow`](Self::unlock_slow) has to follow.
    #[inline(always)]
    #[must_use]
    pub fn unlock_fast(&self) -> Option<Contended> {
        let old = self.word.fetch_sub(LOCKED, Release);
        debug_assert!(old & LOCKED != 0, "unlock of a free mutex");
        let new = old - LOCKED;
        // Nobody, or WOKEN without STARVING: nothing to do (I2, I3).
        (new != 0 && new & (WOKEN | STARVING) != WOKEN).then_some(Contended(new))
    }

    /// Lets a waiter know that the mutex is free, or its own: `post` leaves a token at the gate. With [`Token::Lock`]
    /// the lock itself goes along, so its taker should run at once, in the caller's place.
    #[inline]
    pub fn unlock_slow(&self, contended: Contended, post: impl FnOnce(Token)) {
        // The mode at the moment of the unlock decides, not the present one: a starving mode that others entered and left
        // meanwhile has its own unlocker, and two tokens would be two holders (I1).
        let Contended(mut old) = contended;
        if old & STARVING != 0 {
            return post(Token::Lock);
        }
        while old >= WAITER && old & (LOCKED | WOKEN | STARVING) == 0 {
            let new = (old - WAITER) | WOKEN;
            match self.word.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => return post(Token::Wake),
                Err(now) => old = now,
            }
        }
    }
}

/// What an unlocker leaves at the gate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Token {
    /// A wake-up: its taker competes for the lock.
    Wake,
    /// The lock.
    Lock,
}

/// Evidence that the caller has freed a mutex that others want: the word it left behind.
#[derive(Debug)]
#[must_use = "somebody may be waiting"]
pub struct Contended(u32);

/// What the word becomes if this locker has its way.
#[inline]
fn wanted(old: u32, starving: bool, awake: bool) -> u32 {
    let mut new = old;
    if old & STARVING == 0 {
        new |= LOCKED;
    }
    if old & (LOCKED | STARVING) != 0 {
        new += WAITER; // I2
    }
    if starving && old & LOCKED != 0 {
        new |= STARVING; // I4
    }
    if awake {
        debug_assert!(old & WOKEN != 0, "an awake locker without its bit");
        new &= !WOKEN; // I3
    }
    new
}

impl Default for MutexState {
    fn default() -> MutexState {
        MutexState::new()
    }
}

impl fmt::Debug for MutexState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let word = self.word.load(Relaxed);
        f.debug_struct("MutexState")
            .field("locked", &(word & LOCKED != 0))
            .field("woken", &(word & WOKEN != 0))
            .field("starving", &(word & STARVING != 0))
            .field("waiters", &(word / WAITER))
            .finish()
    }
}

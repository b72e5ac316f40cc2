//! Who has a P: the state word of a thread, and the P it owns by it.
//!
//! # Why this shape
//! A runtime call begins and ends on every path there is, so going in and out must cost two writes to a line of the thread's own. And
//! the P of a thread that sleeps in the kernel must be free to go without that thread's help. One word does both: it says what the
//! thread is doing, and so who may take its P away.
//!
//! # The word
//! Its low three bits are the state, the rest the *turn*: a number that grows with each return to user code, so that an observer who
//! looked at a word ([`Seen`]) can later change exactly that word or nothing.
//!
//! | state  | the thread                                  | owns a P | who may leave it, to what, by which call                            |
//! |--------|---------------------------------------------|----------|---------------------------------------------------------------------|
//! | NOP    | in the runtime: parked, idle, coming, going | no       | itself → RT, [`take`]; → ROBBED, [`set_robbed`]                     |
//! | RT     | in the runtime                              | yes      | itself → USER or BLK, next turn, [`leave`]; → NOP, [`give_up`]      |
//! | USER   | runs goroutine code                         | yes      | itself → RT, [`try_enter`]; a robber → ROBBED, [`rob`]              |
//! | BLK    | in a declared blocking section              | yes      | itself → RT, [`try_enter`]; → USER, next turn, [`leave_blocking`]; a robber → OUT, [`rob`] |
//! | ROBBED | runs goroutine code, or sits in the kernel  | no       | itself → NOP, [`stop_robbed`]                                       |
//! | OUT    | in a declared blocking section              | no       | itself → NOP, [`stop_robbed`]                                       |
//!
//! [`take`]: Owner::take
//! [`set_robbed`]: Owner::set_robbed
//! [`leave`]: Owner::leave
//! [`give_up`]: Owner::give_up
//! [`try_enter`]: Owner::try_enter
//! [`rob`]: Owner::rob
//! [`leave_blocking`]: Owner::leave_blocking
//! [`stop_robbed`]: Owner::stop_robbed
//!
//! # Protocol
//! thread: 1 `try_enter`  2 uses its P, which nobody takes away  3 `leave`. Told false in 1: `stop_robbed`, gets a P, `take`, and from 2.
//! robber: 1 [`look`](Owner::look)  2 decides, for as long as it likes  3 `rob` what it saw, and has the P if the word is still that.
//!
//! Leaving RT and NOP is a plain store, since nobody else changes the word there; leaving the others is a compare-and-swap, since a robber or
//! a signal handler on the thread itself may be faster.
//!
//! # Invariants
//! I1  A P has one owner: `try_enter` and `rob` change the same word from the same value, so one of them fails.
//! I2  What an owner did with its P happens before what the robber does with it: `leave` releases, `look` and `rob` acquire.
//! I3  `rob` returns the P that belonged to the word it was shown. It reads it before it changes the word: as long as the word stays, so
//!     does the P, and once it is changed the thread may notice, get another P, and store that.
//! I4  No two turns of a thread have the same number: a slow robber's word cannot come back with another P.
//!
//! # Context
//! Never blocks; all of it may run in a signal handler. Tests: below, and in `loom` with two robbers, also slow ones, in every
//! interleaving: `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use core::ptr::{self, NonNull};

use crate::shim::{
    AtomicPtr, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

#[cfg(all(test, loom))]
mod loom;

/// The bits of the word that hold the state.
const STATE: u64 = 7;
/// Added to the word with each return to user code.
const TURN: u64 = STATE + 1;

const NOP: u64 = State::Nop as u64;
const RT: u64 = State::Rt as u64;
const USER: u64 = State::User as u64;
const BLK: u64 = State::Blk as u64;
const ROBBED: u64 = State::Robbed as u64;
const OUT: u64 = State::Out as u64;

/// What a thread is doing. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum State {
    /// In the runtime, without a P.
    Nop = 0,
    /// In the runtime, with a P.
    Rt = 1,
    /// Runs goroutine code.
    User = 2,
    /// In a declared blocking section.
    Blk = 3,
    /// Its P was taken away while it ran goroutine code.
    Robbed = 4,
    /// Its P was taken away in a declared blocking section.
    Out = 5,
}

impl State {
    #[inline]
    fn of(word: u64) -> State {
        match word & STATE {
            NOP => State::Nop,
            RT => State::Rt,
            USER => State::User,
            BLK => State::Blk,
            ROBBED => State::Robbed,
            state => {
                debug_assert_eq!(state, OUT);
                State::Out
            }
        }
    }

    /// Whether a thread in this state owns a P.
    #[inline]
    pub fn has_p(self) -> bool {
        matches!(self, State::Rt | State::User | State::Blk)
    }
}

/// Where runtime calls return to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u64)]
pub enum Home {
    /// Goroutine code.
    User = USER,
    /// A declared blocking section.
    Blk = BLK,
}

/// A word that somebody saw. Equal ones of one thread: it has made no runtime call in between, nor lost its P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen(u64);

impl Seen {
    /// The word of a thread that never had a P.
    pub const NEW: Seen = Seen(NOP);

    /// The state it says.
    #[inline]
    pub fn state(self) -> State {
        State::of(self.0)
    }

    /// The turn alone, which stays when the P is taken away.
    #[inline]
    pub fn turn(self) -> u64 {
        self.0 / TURN
    }
}

/// The word, and the P that goes with it. See the [module](self).
#[derive(Debug)]
pub struct Owner<P> {
    word: AtomicU64,
    /// Written by the thread itself, in RT or on the way there; kept as a memory when the P was taken away.
    p: AtomicPtr<P>,
}

impl<P> Owner<P> {
    /// A thread without a P.
    #[cfg(not(loom))]
    pub const fn new() -> Owner<P> {
        Owner {
            word: AtomicU64::new(NOP),
            p: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// A thread without a P.
    #[cfg(loom)]
    pub fn new() -> Owner<P> {
        Owner {
            word: AtomicU64::new(NOP),
            p: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The state at this moment.
    #[inline]
    pub fn state(&self) -> State {
        State::of(self.word.load(Relaxed))
    }

    /// The word at this moment, for somebody who may [`rob`](Self::rob) it later.
    #[inline]
    pub fn look(&self) -> Seen {
        // The P stored before it is then seen too, or a later one (I3).
        Seen(self.word.load(Acquire))
    }

    /// The P the thread owns, if its state says so; else the last one it had, or null if it gave that up itself.
    #[inline(always)]
    pub fn p(&self) -> *mut P {
        self.p.load(Relaxed)
    }

    // ---- by the thread itself ----

    /// A runtime call begins: USER or BLK → RT. False: the P was taken away (or the state is not one that calls).
    #[inline(always)]
    #[must_use]
    pub fn try_enter(&self) -> bool {
        loop {
            let word = self.word.load(Relaxed);
            // USER or BLK.
            if word & STATE & !1 != USER {
                return false;
            }
            let rt = word & !STATE | RT;
            if self
                .word
                .compare_exchange(word, rt, Acquire, Relaxed)
                .is_ok()
            {
                return true;
            }
            // Robbed; or preempted between the two lines and back again, on another turn.
        }
    }

    /// A runtime call ends: RT → where it came from.
    #[inline(always)]
    pub fn leave(&self, home: Home) {
        let word = self.word.load(Relaxed);
        debug_assert_eq!(word & STATE, RT);
        self.word
            .store((word + TURN) & !STATE | home as u64, Release);
    }

    /// A declared blocking section ends: BLK → USER. False: the P was taken away meanwhile.
    #[inline(always)]
    #[must_use]
    pub fn leave_blocking(&self) -> bool {
        let word = self.word.load(Relaxed);
        let user = (word + TURN) & !STATE | USER;
        // In BLK nobody but a robber changes the word.
        word & STATE == BLK
            && self
                .word
                .compare_exchange(word, user, AcqRel, Relaxed)
                .is_ok()
    }

    /// A thread without a P begins to wait for one: ROBBED or OUT → NOP. Returns which it was; none: it is in another state by now.
    #[must_use]
    pub fn stop_robbed(&self) -> Option<State> {
        let word = self.word.load(Relaxed);
        // Acquire: the robber has read which P it was before this thread stores another (I3).
        let robbed = word & STATE >= ROBBED
            && self
                .word
                .compare_exchange(word, word & !STATE | NOP, Acquire, Relaxed)
                .is_ok();
        robbed.then(|| State::of(word))
    }

    /// Takes possession of a P it was given: NOP → RT.
    #[inline]
    pub fn take(&self, p: NonNull<P>) {
        self.p.store(p.as_ptr(), Relaxed);
        self.set(NOP, RT);
    }

    /// Gives its P up: RT → NOP. The caller knows which, and does with it what it likes from here on.
    #[inline]
    pub fn give_up(&self) {
        self.p.store(ptr::null_mut(), Relaxed);
        self.set(RT, NOP);
    }

    /// There will be no P any more: NOP → ROBBED. The thread runs on, as nobody's, to its next call.
    pub fn set_robbed(&self) {
        self.set(NOP, ROBBED);
    }

    /// A change in which nobody interferes.
    #[inline(always)]
    fn set(&self, from: u64, to: u64) {
        let word = self.word.load(Relaxed);
        debug_assert_eq!(word & STATE, from);
        self.word.store(word & !STATE | to, Release);
    }

    // ---- by anybody ----

    /// Takes the P away from the thread, if its word is still `seen`, a USER or BLK one. The P is the caller's then.
    #[must_use]
    pub fn rob(&self, seen: Seen) -> Option<NonNull<P>> {
        let to = match seen.state() {
            State::User => ROBBED,
            State::Blk => OUT,
            _ => return None,
        };
        let p = self.p.load(Relaxed); // before the CAS: I3
        self.word
            .compare_exchange(seen.0, seen.0 & !STATE | to, AcqRel, Relaxed)
            .ok()?;
        NonNull::new(p)
    }
}

impl<P> Default for Owner<P> {
    fn default() -> Owner<P> {
        Owner::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    /// A thread that has just returned to user code, or to a section, with `p`.
    fn away(p: &mut u32, home: Home) -> Owner<u32> {
        let m = Owner::new();
        m.take(NonNull::from(p));
        m.leave(home);
        m
    }

    #[test]
    fn a_call_keeps_the_turn_and_its_end_is_the_next() {
        for (home, state) in [(Home::User, State::User), (Home::Blk, State::Blk)] {
            let m = away(&mut 0, home);
            let before = m.look();
            assert_eq!((before.state(), before.turn()), (state, 1));
            assert!(m.try_enter());
            assert_eq!((m.state(), m.look().turn()), (State::Rt, 1));
            assert!(!m.try_enter(), "in the runtime nobody calls it");
            m.leave(home);
            assert_eq!((m.state(), m.look().turn()), (state, 2));
            assert_eq!(m.rob(before), None, "another turn");
        }
    }

    #[test]
    fn a_robbed_thread_waits_and_gets_another() {
        for (home, lost) in [(Home::User, State::Robbed), (Home::Blk, State::Out)] {
            let (mut one, mut two) = (1, 2);
            let m = away(&mut one, home);
            let seen = m.look();
            assert_eq!(m.rob(seen), Some(NonNull::from(&mut one)));
            assert_eq!(m.rob(seen), None, "it has no other");
            assert_eq!(m.state(), lost);
            assert_eq!(m.look().turn(), seen.turn());
            assert!(!m.try_enter() && !m.leave_blocking());
            assert_eq!(m.stop_robbed(), Some(lost));
            assert_eq!(m.stop_robbed(), None);
            assert_eq!(m.p(), &raw mut one, "it remembers which");
            m.take(NonNull::from(&mut two));
            m.leave(Home::User);
            assert_eq!(m.rob(seen), None);
            assert_eq!(m.rob(m.look()), Some(NonNull::from(&mut two)));
        }
    }

    #[test]
    fn a_section_ends_without_a_call() {
        let mut p = 0;
        let m = away(&mut p, Home::Blk);
        let seen = m.look();
        assert!(m.leave_blocking());
        assert_eq!((m.state(), m.look().turn()), (State::User, seen.turn() + 1));
        assert!(!m.leave_blocking(), "once");
        assert_eq!(m.rob(seen), None);
    }

    #[test]
    fn only_goroutine_code_is_robbed() {
        let mut p = 0;
        let m = Owner::new();
        assert_eq!(m.rob(Seen::NEW), None);
        m.take(NonNull::from(&mut p));
        assert!(m.state().has_p());
        assert_eq!(m.rob(m.look()), None, "in RT");
        m.give_up();
        assert!(!m.state().has_p() && m.p().is_null());
        assert_eq!(m.rob(m.look()), None, "in NOP");
        m.set_robbed();
        assert_eq!(m.rob(m.look()), None, "robbed already");
        assert_eq!(m.stop_robbed(), Some(State::Robbed));
    }
}

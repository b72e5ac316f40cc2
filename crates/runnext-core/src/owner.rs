//! Who has a P: the state word of a thread, and the P it owns by it.
//!
//! # Why this shape
//! A runtime call begins and ends on every path there is, so going in and out must cost two writes to a line of the thread's own. And
//! the P of a thread that sleeps in the kernel must be free to go without that thread's help. One word does both: it says what the
//! thread is doing, and so who may take its P away.
//!
//! # The words
//! `state` is what the thread last said of itself, `turn` a number that grows with each return to user code, `claim` what a robber says. The thread
//! alone writes the first two, with plain stores. An observer who looked ([`Seen`]) can later take the P of exactly that turn or nothing.
//!
//! | state  | claim | the thread                                  | owns a P | who may leave it, to what, by which call                            |
//! |--------|-------|---------------------------------------------|----------|---------------------------------------------------------------------|
//! | NOP    | any   | in the runtime: parked, idle, coming, going | no       | itself → RT, [`take`]; → ROBBED or OUT, [`set_robbed`]              |
//! | RT     | ≠ TAKEN | in the runtime                            | yes      | itself → USER or BLK, next turn, [`leave`]; → NOP, [`give_up`]      |
//! | USER   | ≠ TAKEN | runs goroutine code                       | yes      | itself → RT, [`try_enter`]; the robber → ROBBED, [`rob`]            |
//! | BLK    | ≠ TAKEN | in a declared blocking section            | yes      | itself → RT, [`try_enter`]; → USER, next turn, [`leave_blocking`]; the robber → OUT, [`rob`] |
//! | USER   | TAKEN | ROBBED: runs goroutine code, or sits in the kernel | no | itself → NOP, [`stop_robbed`]                                       |
//! | BLK    | TAKEN | OUT: in a declared blocking section          | no       | itself → NOP, [`stop_robbed`]                                       |
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
//! thread: 1 `try_enter`: state := RT, light fence, look at `claim`; NONE: it is in. ASKS: claim := NONE by CAS, and it is in, unless that is TAKEN by now
//!         2 uses its P, which nobody takes away  3 `leave`. Told false in 1: `stop_robbed`, gets a P, `take`, and from 2.
//! robber: 1 [`look`](Owner::look)  2 decides, for as long as it likes  3 `rob`: claim := ASKS, heavy fence, look at `state` and `turn`; they are what it
//!         saw: claim := TAKEN by CAS, and it has the P. They are not: claim := NONE by CAS
//!
//! Each stores its word, fences, and looks at the other's: one at least sees the other, and then a CAS on `claim` decides. The thread does so at
//! every call and the robber now and then, so it is the robber who pays for both fences ([`fence`]). With a compare-and-swap
//! in place of the store a yield takes half as long again.
//!
//! A signal handler on the thread itself may come between any two lines, and calls what it likes. So the thread never goes by what it read
//! before a store: it stores where it will be (RT, NOP), where a handler leaves everything alone ([`is_inside`](Owner::is_inside)), and looks at
//! `claim` only then.
//!
//! # Invariants
//! I1  A P has one owner: above.
//! I2  What an owner did with its P happens before what the robber does with it: `leave` releases, `rob` acquires the state.
//! I3  `rob` returns the P that belonged to what it was shown. It reads it before its CAS: until then the turn cannot have ended, or the CAS fails;
//!     after it the thread may notice, get another P, and store that.
//! I4  No two turns of a thread have the same number: a slow robber's turn cannot come back with another P.
//! I5  There is one robber ([`Robber`]): ASKS is always its own, and of its present attempt.
//!
//! # Context
//! Never blocks; all but `rob` may run in a signal handler. Tests: below, and in `loom`, robbers with old looks included, in every
//! interleaving: `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use core::ptr::{self, NonNull};

use crate::fence;
use crate::shim::{
    AtomicPtr, AtomicU32, AtomicU64,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
};

#[cfg(all(test, loom))]
mod loom;

const NOP: u32 = State::Nop as u32;
const RT: u32 = State::Rt as u32;
const USER: u32 = State::User as u32;
const BLK: u32 = State::Blk as u32;

/// No robber is at work.
const NONE: u32 = 0;
/// The robber wants the P.
const ASKS: u32 = 1;
/// It has it.
const TAKEN: u32 = 2;

/// What a thread is doing. See the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u32)]
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
    fn of(state: u32, claim: u32) -> State {
        match (state, claim) {
            (NOP, _) => State::Nop,
            (BLK, TAKEN) => State::Out,
            (_, TAKEN) => State::Robbed, // RT too: it is about to find out
            (RT, _) => State::Rt,
            (USER, _) => State::User,
            (state, _) => {
                debug_assert_eq!(state, BLK);
                State::Blk
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
#[repr(u32)]
pub enum Home {
    /// Goroutine code.
    User = USER,
    /// A declared blocking section.
    Blk = BLK,
}

/// What somebody saw of a thread. Equal ones of one thread: it has made no runtime call in between, nor lost its P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Seen {
    turn: u64,
    state: State,
}

impl Seen {
    /// Of a thread that never had a P.
    pub const NEW: Seen = Seen {
        turn: 0,
        state: State::Nop,
    };

    /// The state it says.
    #[inline]
    pub fn state(self) -> State {
        self.state
    }

    /// The turn alone, which stays when the P is taken away.
    #[inline]
    pub fn turn(self) -> u64 {
        self.turn
    }
}

/// The one who may take Ps away.
#[derive(Debug)]
pub struct Robber(());

impl Robber {
    /// The right to rob. The caller sees to it that there is no other for the same threads (I5).
    pub const fn only() -> Robber {
        Robber(())
    }
}

/// The words, and the P that goes with them. See the [module](self).
#[derive(Debug)]
pub struct Owner<P> {
    state: AtomicU32,
    claim: AtomicU32,
    turn: AtomicU64,
    /// Written by the thread itself, in RT or on the way there; kept as a memory when the P was taken away.
    p: AtomicPtr<P>,
}

impl<P> Owner<P> {
    /// A thread without a P.
    #[cfg(not(loom))]
    pub const fn new() -> Owner<P> {
        Owner {
            state: AtomicU32::new(NOP),
            claim: AtomicU32::new(NONE),
            turn: AtomicU64::new(0),
            p: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// A thread without a P.
    #[cfg(loom)]
    pub fn new() -> Owner<P> {
        Owner {
            state: AtomicU32::new(NOP),
            claim: AtomicU32::new(NONE),
            turn: AtomicU64::new(0),
            p: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// The state at this moment.
    #[inline]
    pub fn state(&self) -> State {
        let state = self.state.load(Acquire);
        State::of(state, self.claim.load(Relaxed))
    }

    /// Whether the thread is in the runtime, by what it said last: with a P or without one, or about to find out. A signal handler on the thread
    /// leaves everything alone there, whatever [`state`](Self::state) says.
    #[inline]
    pub fn is_inside(&self) -> bool {
        matches!(self.state.load(Relaxed), RT | NOP)
    }

    /// What there is to see at this moment, for the robber, who may come later.
    #[inline]
    pub fn look(&self) -> Seen {
        // In this order: a state that is newer than its turn is worth nothing to a robber, the other way round would be.
        let turn = self.turn.load(Acquire);
        Seen {
            turn,
            state: self.state(),
        }
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
        let home = self.state.load(Relaxed);
        // USER or BLK.
        if home & !1 != USER {
            return false;
        }
        self.state.store(RT, Relaxed);
        fence::light();
        self.claim.load(Relaxed) == NONE || self.contest(home)
    }

    /// A robber asks, or has taken.
    #[cold]
    fn contest(&self, home: u32) -> bool {
        // Acquire: the robber has read which P it was before this thread stores another (I3).
        let claim = self.claim.compare_exchange(ASKS, NONE, AcqRel, Acquire);
        if claim != Err(TAKEN) {
            return true;
        }
        self.state.store(home, Relaxed);
        false
    }

    /// A runtime call ends: RT → where it came from.
    #[inline(always)]
    pub fn leave(&self, home: Home) {
        debug_assert_eq!(self.state(), State::Rt);
        let turn = self.turn.load(Relaxed);
        self.turn.store(turn + 1, Relaxed);
        self.state.store(home as u32, Release);
    }

    /// A declared blocking section ends: BLK → USER. False: the P was taken away meanwhile.
    #[inline(always)]
    #[must_use]
    pub fn leave_blocking(&self) -> bool {
        let kept = self.state.load(Relaxed) == BLK && self.try_enter();
        if kept {
            self.leave(Home::User);
        }
        kept
    }

    /// A thread without a P begins to wait for one: ROBBED or OUT → NOP. Returns which it was; none: it is in another state by now.
    #[must_use]
    pub fn stop_robbed(&self) -> Option<State> {
        let home = self.state.load(Relaxed);
        if home & !1 != USER || self.claim.load(Relaxed) != TAKEN {
            return None;
        }
        self.state.store(NOP, Relaxed);
        fence::compiler();
        // A handler may have been here, and got a P.
        if self.claim.load(Acquire) != TAKEN {
            self.state.store(home, Release);
            return None;
        }
        // Released: a robber that finds nobody robbed finds the thread in NOP too, or later.
        self.claim.store(NONE, Release);
        Some(State::of(home, TAKEN))
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

    /// There will be no P any more: NOP → ROBBED or OUT. The thread runs on, as nobody's, to its next call. No robber is at work on it: it has had no P
    /// for so long that none comes.
    pub fn set_robbed(&self, home: Home) {
        self.claim.store(TAKEN, Relaxed); // first: a robber that finds it in USER finds it robbed
        self.set(NOP, home as u32);
    }

    /// A change in which nobody interferes.
    #[inline(always)]
    fn set(&self, from: u32, to: u32) {
        debug_assert_eq!(self.state.load(Relaxed), from);
        self.state.store(to, Release);
    }

    // ---- by others ----

    /// Takes the P away from the thread, if it is still as `seen`, in USER or BLK. The P is the caller's then. `heavy` is the counterpart of
    /// [`fence::light`].
    #[must_use]
    pub fn rob(&self, _: &mut Robber, seen: Seen, heavy: impl FnOnce()) -> Option<NonNull<P>> {
        let home = match seen.state() {
            State::User => USER,
            State::Blk => BLK,
            _ => return None,
        };
        if self.claim.load(Acquire) != NONE {
            return None; // robbed already
        }
        self.claim.store(ASKS, Relaxed);
        heavy();
        let same = self.state.load(Acquire) == home && self.turn.load(Relaxed) == seen.turn;
        let p = self.p.load(Relaxed); // before the CAS: I3
        let verdict = if same { TAKEN } else { NONE };
        let mine = self.claim.compare_exchange(ASKS, verdict, AcqRel, Relaxed);
        if same && mine.is_ok() {
            NonNull::new(p)
        } else {
            None
        }
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

    /// A robber that comes alone.
    fn rob(m: &Owner<u32>, seen: Seen) -> Option<NonNull<u32>> {
        m.rob(&mut Robber::only(), seen, || ())
    }

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
            assert_eq!(rob(&m, before), None, "another turn");
        }
    }

    #[test]
    fn a_robbed_thread_waits_and_gets_another() {
        for (home, lost) in [(Home::User, State::Robbed), (Home::Blk, State::Out)] {
            let (mut one, mut two) = (1, 2);
            let m = away(&mut one, home);
            let seen = m.look();
            assert_eq!(rob(&m, seen), Some(NonNull::from(&mut one)));
            assert_eq!(rob(&m, seen), None, "it has no other");
            assert_eq!(m.state(), lost);
            assert_eq!(m.look().turn(), seen.turn());
            assert!(!m.try_enter() && !m.leave_blocking());
            assert_eq!(m.stop_robbed(), Some(lost));
            assert_eq!(m.stop_robbed(), None);
            assert_eq!(m.p(), &raw mut one, "it remembers which");
            m.take(NonNull::from(&mut two));
            m.leave(Home::User);
            assert_eq!(rob(&m, seen), None);
            assert_eq!(rob(&m, m.look()), Some(NonNull::from(&mut two)));
        }
    }

    /// A handler that takes it for one that runs user code would wait for the frame that it has interrupted.
    #[test]
    fn who_is_about_to_find_out_is_inside() {
        let mut p = 0;
        let m = away(&mut p, Home::User);
        assert!(rob(&m, m.look()).is_some() && !m.is_inside());
        m.state.store(RT, Relaxed); // the first line of `try_enter`
        assert!(m.is_inside() && m.state() == State::Robbed);
        assert!(!m.contest(USER) && !m.is_inside());
        assert_eq!(m.stop_robbed(), Some(State::Robbed));
        assert!(m.is_inside());
    }

    #[test]
    fn a_section_ends_without_a_call() {
        let mut p = 0;
        let m = away(&mut p, Home::Blk);
        let seen = m.look();
        assert!(m.leave_blocking());
        assert_eq!((m.state(), m.look().turn()), (State::User, seen.turn() + 1));
        assert!(!m.leave_blocking(), "once");
        assert_eq!(rob(&m, seen), None);
    }

    #[test]
    fn only_goroutine_code_is_robbed() {
        let mut p = 0;
        let m = Owner::new();
        assert_eq!(rob(&m, Seen::NEW), None);
        m.take(NonNull::from(&mut p));
        assert!(m.state().has_p());
        assert_eq!(rob(&m, m.look()), None, "in RT");
        m.give_up();
        assert!(!m.state().has_p() && m.p().is_null());
        assert_eq!(rob(&m, m.look()), None, "in NOP");
        m.set_robbed(Home::User);
        assert_eq!(rob(&m, m.look()), None, "robbed already");
        assert_eq!(m.stop_robbed(), Some(State::Robbed));
    }
}

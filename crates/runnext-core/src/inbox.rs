//! How a P reaches a thread that has none: the word such a thread sleeps on.
//!
//! # Why this shape
//! A thread waits for a P in the list of idle ones, or together with its goroutine, which is queued; whoever takes it from there hands it one. At
//! the end of the runtime it is sent on without. Who hands and who sends on know nothing of each other, and a P that is left with a thread
//! which has gone on is nobody's for ever. So both change one word, and of the two the first has decided.
//!
//! # States
//! | word          | what came                              | who may leave it, to what, by which call                                   |
//! |---------------|----------------------------------------|----------------------------------------------------------------------------|
//! | EMPTY         | nothing                                | who has a P for it → FULL, [`hand`]; who ends it → CLOSED, [`close`]       |
//! | FULL          | a P                                    | the thread → EMPTY, [`take`]; who ends it → FULL, CLOSED, [`close`]        |
//! | CLOSED        | nothing, and nothing comes any more    | nobody                                                                     |
//! | FULL, CLOSED  | a P, and no other comes any more       | the thread → CLOSED, [`take`]                                              |
//!
//! [`hand`]: Inbox::hand
//! [`close`]: Inbox::close
//! [`take`]: Inbox::take
//!
//! # Protocol
//! thread: 1 makes it known that it waits  2 `take`; nothing: sleeps on the [`word`](Inbox::word) while that is [`EMPTY`], and from 2. A P: it is its
//!         own. Closed: it goes on without
//! hander: 1 finds that the thread waits, and nobody else does  2 `hand`; true: wakes it. False: it still has the P
//! closer: 1 `close`  2 wakes it. Once for each thread that is ever to wait, before that or meanwhile
//!
//! Who wakes the thread if it goes to sleep right now? `hand` and `close` change the word it sleeps on, so it does not; or it sleeps, and they wake it.
//!
//! # Invariants
//! I1  A P that was handed over is taken once, by the thread; one that was not stays with who has it.
//! I2  One hands at a time, after the thread has taken what the one before brought: it is found waiting once for each time that it says so.
//! I3  What the hander did with the P happens before what the thread does with it; what the closer did, before the thread goes on without.
//! I4  Closed is for good: nobody waits there twice in vain.
//!
//! # Context
//! Never blocks; a signal handler may. Tests: `loom`, and `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use core::ptr::{self, NonNull};

use crate::shim::{
    AtomicPtr, AtomicU32,
    Ordering::{Acquire, Relaxed, Release},
};

#[cfg(all(test, loom))]
mod loom;

/// The thread sleeps only while its word says this.
pub const EMPTY: u32 = 0;
const FULL: u32 = 1;
const CLOSED: u32 = 2;

/// What a thread finds that waits for a P.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Found<P> {
    /// It is to sleep.
    Nothing,
    /// It is the thread's from here on.
    P(NonNull<P>),
    /// None comes any more.
    Closed,
}

/// The word, and the P that came with it. See the [module](self).
#[derive(Debug)]
pub struct Inbox<P> {
    word: AtomicU32,
    /// Written by who hands it over, before the word says FULL.
    p: AtomicPtr<P>,
}

impl<P> Inbox<P> {
    /// Nothing has come yet.
    pub fn new() -> Inbox<P> {
        Inbox {
            word: AtomicU32::new(EMPTY),
            p: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// What the thread sleeps on while it is [`EMPTY`].
    #[inline]
    pub fn word(&self) -> &AtomicU32 {
        &self.word
    }

    /// Gives the thread a P. True: the caller wakes the thread, which may be gone before that. False: it is closed, and the caller keeps the P.
    #[inline]
    #[must_use]
    pub fn hand(&self, p: NonNull<P>) -> bool {
        self.p.store(p.as_ptr(), Relaxed);
        let handed = self.word.compare_exchange(EMPTY, FULL, Release, Acquire);
        debug_assert_ne!(handed.map_err(|was| was & FULL), Err(FULL), "I2");
        handed.is_ok()
    }

    /// None comes any more, but one that has come is taken. The caller wakes the thread, which may be gone before that.
    pub fn close(&self) {
        self.word.fetch_or(CLOSED, Release);
    }

    /// What there is for the thread. By the thread.
    #[inline]
    pub fn take(&self) -> Found<P> {
        match self.word.load(Acquire) {
            EMPTY => Found::Nothing,
            CLOSED => Found::Closed,
            _ => {
                let p = NonNull::new(self.p.load(Relaxed));
                // Not a store: somebody may close it just now.
                self.word.fetch_and(!FULL, Relaxed);
                Found::P(p.expect("it is full of something"))
            }
        }
    }
}

impl<P> Default for Inbox<P> {
    fn default() -> Inbox<P> {
        Inbox::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_was_handed_is_taken_once() {
        let (mut one, mut two) = (1, 2);
        let inbox = Inbox::new();
        for p in [&mut one, &mut two].map(NonNull::from) {
            assert_eq!(inbox.take(), Found::Nothing);
            assert!(inbox.hand(p));
            assert_eq!(inbox.take(), Found::P(p));
        }
        assert_eq!(inbox.take(), Found::Nothing);
    }

    #[test]
    fn a_closed_one_refuses_for_good_and_keeps_what_it_has() {
        let mut p = 1;
        let p = NonNull::from(&mut p);
        let inbox = Inbox::new();
        assert!(inbox.hand(p));
        inbox.close();
        inbox.close();
        assert_eq!(inbox.take(), Found::P(p));
        assert!(!inbox.hand(p));
        assert_eq!((inbox.take(), inbox.take()), (Found::Closed, Found::Closed));
    }
}

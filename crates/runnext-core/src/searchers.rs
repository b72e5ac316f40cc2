//! Who looks for work, and who is to be woken for it: the counts of idle Ps and of searchers, and the rules for changing them.
//!
//! # Words
//! An *idle* P is on the idle list, with nobody to run goroutines on it. A *searcher* (a spinning M, in Go's words) has a P and nothing
//! to run: it looks everywhere, or was just started to. The list and the threads are the caller's, and so is the *idle lock* around the list; here
//! are only numbers. What is done under that lock takes the [`Roster`] it guards, so that nobody does it without.
//!
//! # Protocol
//! | party                         | steps                                                                                              |
//! |-------------------------------|----------------------------------------------------------------------------------------------------|
//! | submitter                     | 1 queues the goroutine  2 [`queued`](Searchers::queued), a full fence and a look; told `Searcher`: |
//! |                               | 3 [`claim`](Searchers::claim)  4 locked: takes an idle P ([`p_taken`](Searchers::p_taken)) and starts a searcher there; |
//! |                               | none left: [`disclaim`](Searchers::disclaim)                                                       |
//! | owner of a P without work     | 1 [`join`](Searchers::join): at most half as many search as work; let in: it searches              |
//! | searcher that found something | 1 [`leave`](Searchers::leave)  2 as a submitter, from 2: there may be more  3 runs it               |
//! | searcher that found nothing   | 1 locked: its P is idle ([`p_idles`](Searchers::p_idles))  2 [`stop`](Searchers::stop), with a full fence  3 looks at all |
//! |                               | queues once more; something there: takes an idle P and [`begin`](Searchers::begin)s again          |
//! | idler that was not let in     | 1 locked: [`relieve`](Searchers::relieve): told so, it searches after all; else its P is idle. It looks at nothing after that |
//! | who idles another's P         | 1 locked: the P is idle  2 [`look_again`](Searchers::look_again)  3 something is queued: as a submitter, from 2 |
//!
//! # Who wakes the sleeper if it goes to sleep right now?
//! *The last searcher, or who idles another's P.* It stores "idle" and "not searching", fences, and looks at the queues; a submitter stores to a
//! queue, fences, and looks at "idle" and "searching". One of the fences comes first, so one of them sees the other.
//! *An idler that was not let in.* Somebody else searched at that moment. If it was a searcher, it outlasts the idler: it finds something and
//! comes back when it has run that, or it is the last. If it was a submitter's claim, that one starts a searcher, or finds the list empty under the idle
//! lock: before the idler has locked it, who is then told by `relieve`; or after, and then the list is not empty.
//!
//! # Invariants
//! I1  When no P is left in use, nothing is queued.
//! I2  A searcher that leaves with work has started the next one if more was queued, a P was idle and nobody else searched: a burst
//!     spreads as a chain.
//! I3  Wake-ups start one searcher at a time: `claim` succeeds only when there is none. A stampede would find nothing.
//!
//! # Context
//! Never blocks; may be used in a signal handler if the idle lock may. Tests: the loom models, in which threads that sleep are threads that
//! end: `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use crate::next;
use crate::shim::{
    AtomicUsize,
    Ordering::{Relaxed, SeqCst},
    fence,
};

#[cfg(all(test, loom))]
mod loom;

/// What queued work needs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub enum Need {
    /// Nothing: somebody searches already, and will find it.
    Nothing,
    /// A P is idle and nobody searches: start one who does.
    Searcher,
    /// No P is idle: it waits its turn.
    Turn,
}

/// What the idle lock guards beside the list.
#[derive(Debug, Default)]
pub struct Roster {
    /// Somebody wanted to start a searcher and found no idle P: the next owner that runs dry must search.
    wanted: bool,
}

impl Roster {
    /// Nobody is wanted.
    pub const fn new() -> Roster {
        Roster { wanted: false }
    }

    /// Whether the next owner that runs dry must search.
    pub fn is_wanted(&self) -> bool {
        self.wanted
    }
}

/// The counts. See the [module](self).
#[derive(Debug)]
pub struct Searchers {
    /// Ps on the idle list. Changes under the idle lock.
    idle: AtomicUsize,
    spinning: AtomicUsize,
}

impl Searchers {
    /// Nobody is idle, nobody searches.
    #[cfg(not(loom))]
    pub const fn new() -> Searchers {
        Searchers {
            idle: AtomicUsize::new(0),
            spinning: AtomicUsize::new(0),
        }
    }

    /// Nobody is idle, nobody searches.
    #[cfg(loom)]
    pub fn new() -> Searchers {
        Searchers {
            idle: AtomicUsize::new(0),
            spinning: AtomicUsize::new(0),
        }
    }

    /// Idle Ps, at this moment.
    #[inline]
    pub fn idle(&self) -> usize {
        self.idle.load(Relaxed)
    }

    /// Searchers, at this moment.
    #[inline]
    pub fn spinning(&self) -> usize {
        self.spinning.load(Relaxed)
    }

    /// Whether all of `procs` Ps are idle, for who concludes more from it than what to do next.
    #[inline]
    pub fn all_idle(&self, procs: usize) -> bool {
        self.idle.load(SeqCst) == procs
    }

    // ---- submitters ----

    /// Work was queued: whom does it need?
    #[inline(always)]
    pub fn queued(&self) -> Need {
        fence(SeqCst); // pairs with the one in `look_again`
        if self.idle() == 0 {
            Need::Turn
        } else if self.spinning() == 0 {
            Need::Searcher
        } else {
            Need::Nothing
        }
    }

    /// Counts one who is about to be started. False: somebody was faster.
    #[inline]
    #[must_use]
    pub fn claim(&self) -> bool {
        self.spinning
            .compare_exchange(0, 1, SeqCst, Relaxed)
            .is_ok()
    }

    /// The claim is void: there is no idle P, which the caller has seen under this very lock.
    ///
    /// Owners that were not let in because of the claim must not go idle now, without a look at what it was about: so the next one is told.
    pub fn disclaim(&self, roster: &mut Roster) {
        roster.wanted = true;
        self.leave();
    }

    // ---- owners of Ps ----

    /// One who has a P and nothing to run wants to search. False: enough do.
    #[inline]
    #[must_use]
    pub fn join(&self, procs: usize) -> bool {
        let may = next::may_spin(self.spinning(), self.idle(), procs);
        if may {
            self.begin();
        }
        may
    }

    /// One more searches.
    #[inline]
    pub fn begin(&self) {
        self.spinning.fetch_add(1, SeqCst);
    }

    /// A searcher is none any more: it has found something, or its P goes where no search is needed. It, or who takes its place, goes on
    /// as a submitter.
    #[inline]
    pub fn leave(&self) {
        self.spinning.fetch_sub(1, SeqCst);
    }

    /// A searcher has found nothing, and its P is idle by now. It must look at all queues once more.
    #[inline]
    pub fn stop(&self) {
        self.leave();
        self.look_again();
    }

    /// A P has become idle: what is read from here on was queued before, or its submitter sees the idle P. Who made it idle looks at all
    /// queues, and goes on as a submitter of what is there.
    #[inline]
    pub fn look_again(&self) {
        fence(SeqCst); // pairs with the one in `queued`
    }

    /// An owner that does not search is about to go idle. True: it must search after all, and counts as one who does.
    #[inline]
    #[must_use]
    pub fn relieve(&self, roster: &mut Roster) -> bool {
        let wanted = core::mem::take(&mut roster.wanted);
        if wanted {
            self.begin();
        }
        wanted
    }

    // ---- the idle list ----

    /// A P was put on the list.
    #[inline]
    pub fn p_idles(&self, _locked: &mut Roster) {
        self.idle.fetch_add(1, SeqCst);
    }

    /// A P was taken from the list.
    #[inline]
    pub fn p_taken(&self, _locked: &mut Roster) {
        self.idle.fetch_sub(1, SeqCst);
    }

    /// The list was made anew, of `n`.
    pub fn recount(&self, _locked: &mut Roster, n: usize) {
        self.idle.store(n, SeqCst);
    }
}

impl Default for Searchers {
    fn default() -> Searchers {
        Searchers::new()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn one_searcher_for_an_idle_p() {
        let (all, mut roster) = (Searchers::new(), Roster::new());
        assert_eq!(all.queued(), Need::Turn, "no P is idle");
        all.p_idles(&mut roster);
        assert_eq!(all.queued(), Need::Searcher);
        assert!(all.claim() && !all.claim());
        assert_eq!(all.queued(), Need::Nothing, "it is on its way");
        all.p_taken(&mut roster);
        assert_eq!((all.idle(), all.spinning()), (0, 1));
        all.leave();
        assert_eq!((all.idle(), all.spinning()), (0, 0));
    }

    #[test]
    fn a_void_claim_is_taken_over_once() {
        let (all, mut roster) = (Searchers::new(), Roster::new());
        assert!(!all.relieve(&mut roster));
        assert!(all.claim());
        all.disclaim(&mut roster);
        assert!(roster.is_wanted() && all.spinning() == 0);
        assert!(all.relieve(&mut roster) && !all.relieve(&mut roster));
        assert_eq!(all.spinning(), 1);
    }

    #[test]
    fn half_as_many_search_as_work() {
        let (all, mut roster) = (Searchers::new(), Roster::new());
        assert!(all.join(4) && all.join(4));
        assert!(!all.join(4), "two of four");
        all.stop();
        all.p_idles(&mut roster);
        assert!(all.join(4), "one of three");
        assert!(!all.join(4));
    }
}

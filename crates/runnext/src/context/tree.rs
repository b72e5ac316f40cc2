//! Who is ended with whom: the lists that carry a cancellation down.
//!
//! # Why this shape
//! A context is cut in two: what users hold, which keeps all above it, and its [`Core`], by which those above know it. The list of a
//! parent owns the cores in it, so who carries a cancellation down reaches everybody, also one whose context is being dropped meanwhile.
//! Rejected: lists of weak references, which lose a `done` that outlives its context.
//!
//! # Words
//! *child*: a core whose context somebody has. *orphan*: one whose context is gone, and for whose `done` somebody may still wait. Orphans
//! are in the list of the nearest ancestor whose context is alive: it hands them up when it goes itself.
//!
//! | `state`  | meaning                                            | changed by                                |
//! |----------|----------------------------------------------------|-------------------------------------------|
//! | LIVE     | not ended, unless the deadline has passed          | `end` → either of the others, once        |
//! | CANCELED | canceled, itself or a parent, before its deadline  |                                           |
//! | EXCEEDED | somebody saw that the deadline had passed          |                                           |
//!
//! # Invariants
//! I1  A child's deadline is not after its parent's. So a deadline need not be carried to children, and all below one that is EXCEEDED
//!     have ended too.
//! I2  A child is entered in its parent's list under the lock of the list, if the parent is LIVE then; who cancels changes the
//!     state first and looks at the list afterwards. So no child is missed.
//! I3  Who cancels takes a core out of a list when all below it have left its own, not before. So whoever finds a list empty, of one that
//!     is CANCELED, knows that all that were ever in it have ended.
//! I4  Who sees `done` closed gets an error from `err`, and the other way round.
//! I5  A core is in a list exactly if it has `held`, which is the list's own count of it; the links, `held` and `orphan` are touched
//!     under the lock of that list only.
//! I6  Orphans move up in one step, under the locks of both lists, the parent's first; so one is always in a list that I3 is about. They
//!     do so only while the parent is LIVE: once it is CANCELED somebody may be in the middle of the list they would leave.
//! I7  A core is taken out of the list of its parent, or is in none: also by who cancels, and has looked away since it found it there (I6).
//! I8  One that has its deadline from its parent ends for the same reason, however late somebody comes to say so.
//!
//! # Context
//! The lists are locked in RT for a few instructions. What leaves them is dropped outside, as it frees memory.
//!
//! Each new child, and each new orphan, looks at LOOKS of the orphans: those that nobody waits for go. With two of them a list is never much
//! longer than twice what is waited for, and nobody pays for a long one at once.

use std::cell::Cell;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU8, Ordering::*};
use std::sync::{Arc, Weak};

use runnext_core::waitlist::{Node, WaitList};

use super::{ContextError, Never};
use crate::chan::{self, Receiver};
use crate::instant::Instant;
use crate::lock::Lock;
use crate::sched::call::Call;

const LIVE: u8 = 0;
const CANCELED: u8 = 1;
const EXCEEDED: u8 = 2;

/// Orphans looked at when one comes.
const LOOKS: usize = 2;

/// A context, as those above know it.
pub(super) struct Core {
    state: AtomicU8,
    done: Receiver<Never>,
    deadline: Instant,
    /// The parent, if the deadline is its. Weak: while anybody can ask why this one ended, its context keeps those above.
    heir_of: Weak<Core>,
    place: Node<Place>,
    below: Lock<Below>,
}

/// Where a core is found by those above (I5).
struct Place {
    held: Cell<Option<Arc<Core>>>,
    orphan: Cell<bool>,
}

/// Those to be ended with a core.
struct Below {
    children: WaitList<Place>,
    orphans: WaitList<Place>,
}

// SAFETY: the place is used under the lock of the list it is in (I5), or by who has just made it; the rest may be shared.
unsafe impl Send for Core {}
// SAFETY: as above.
unsafe impl Sync for Core {}

// Nothing that panics runs while the links are changed.
impl UnwindSafe for Core {}
impl RefUnwindSafe for Core {}

impl Place {
    /// The core, which stays in the list.
    fn core(&self) -> Option<Arc<Core>> {
        let held = self.held.take();
        self.held.set(held.clone());
        held
    }
}

impl Below {
    /// Takes a core out, if it is here.
    fn remove(&mut self, core: &Core) -> Option<Arc<Core>> {
        let list = match core.place.orphan.get() {
            true => &mut self.orphans,
            false => &mut self.children,
        };
        // SAFETY: it is here or in no list (I7); in which of the two it says itself.
        unsafe { list.remove(&core.place) };
        core.place.held.take()
    }

    /// Enters a core as an orphan.
    fn push_orphan(&mut self, core: Arc<Core>) {
        core.place.orphan.set(true);
        core.place.held.set(Some(Arc::clone(&core)));
        // SAFETY: in no list, and alive while it is in this one, which owns it from now on (I5).
        unsafe { self.orphans.push_back(&core.place) };
    }

    /// Takes out orphans that nobody waits for.
    fn sweep(&mut self) -> [Option<Arc<Core>>; LOOKS] {
        std::array::from_fn(|_| {
            let first = self.orphans.front()?.core()?;
            let core = self.remove(&first)?;
            if first.is_wanted() {
                self.push_orphan(core);
                return None;
            }
            Some(core) // so `first` is not the last
        })
    }
}

impl Core {
    /// A new one, in no list, that ends at the deadline, or at its parent's.
    pub(super) fn new(deadline: Instant, parent: Option<&Arc<Core>>) -> Arc<Core> {
        let from = parent.filter(|parent| parent.deadline <= deadline); // I1
        let deadline = from.map_or(deadline, |parent| parent.deadline);
        Arc::new(Core {
            state: AtomicU8::new(LIVE),
            done: chan::ending(deadline),
            deadline,
            heir_of: from.map_or_else(Weak::new, Arc::downgrade),
            place: Node::new(Place {
                held: Cell::new(None),
                orphan: Cell::new(false),
            }),
            below: Lock::new(Below {
                children: WaitList::new(),
                orphans: WaitList::new(),
            }),
        })
    }

    pub(super) fn deadline(&self) -> Instant {
        self.deadline
    }

    pub(super) fn done(&self) -> Receiver<Never> {
        self.done.clone()
    }

    pub(super) fn err(&self) -> Option<ContextError> {
        if self.state.load(Acquire) == LIVE && !self.is_late() {
            return None;
        }
        self.end();
        if self.state.load(Acquire) == EXCEEDED {
            return Some(ContextError::DeadlineExceeded);
        }
        // I4: who canceled it may not have come to that yet.
        self.done.end();
        Some(ContextError::Canceled)
    }

    fn is_late(&self) -> bool {
        self.deadline != Instant::NEVER && Instant::now() >= self.deadline
    }

    /// Whether somebody may wait for the end of an orphan, and it has not come.
    fn is_wanted(&self) -> bool {
        !self.done.is_only() && !self.done.is_closed()
    }

    /// Decides why it ends, if that is open.
    fn end(&self) {
        if self.is_late() {
            self.end_late();
        } else {
            self.end_as(CANCELED);
        }
    }

    fn end_as(&self, why: u8) {
        let _ = self.state.compare_exchange(LIVE, why, SeqCst, Acquire);
    }

    /// The deadline has passed; perhaps after one above, whose deadline it is, was canceled (I8). From there down all are decided, so
    /// that nobody between can end otherwise any more.
    fn end_late(&self) {
        let mut above = Vec::new();
        let mut next = self.heir_of.upgrade();
        while let Some(core) = next {
            next = match core.state.load(Acquire) {
                LIVE => core.heir_of.upgrade(),
                _ => None,
            };
            above.push(core);
        }
        let mut why = EXCEEDED;
        for core in above.iter().rev() {
            core.end_as(why);
            why = core.state.load(Acquire);
        }
        self.end_as(why);
    }

    /// Cancels this one. False: its deadline had passed before.
    fn cancel_one(&self) -> bool {
        self.end();
        let canceled = self.state.load(Acquire) == CANCELED;
        if canceled {
            self.done.end();
        }
        canceled
    }

    /// Cancels it and all below; all have ended when this returns, also if somebody else is about it. False: its deadline had passed before.
    pub(super) fn cancel(self: &Arc<Core>) -> bool {
        if !self.cancel_one() {
            return false;
        }
        // Not by recursion: a chain may be long.
        let mut path = vec![Arc::clone(self)];
        let mut over = None;
        while let Some(last) = path.last() {
            match last.next(over.take()) {
                Some(next) if next.cancel_one() => path.push(next),
                Some(late) => {
                    // They have ended too (I1). If its context has gone, nobody else takes them out.
                    while let Some(_gone) = late.next_orphan() {}
                    over = Some(late);
                }
                None => over = path.pop(), // I3
            }
        }
        true
    }

    /// One that is below, after taking out one that is over.
    fn next(&self, over: Option<Arc<Core>>) -> Option<Arc<Core>> {
        let (next, _gone) = {
            let _call = Call::brief();
            let mut below = self.below.lock();
            let gone = over.as_ref().and_then(|over| below.remove(over));
            let first = below.children.front().or(below.orphans.front());
            (first.and_then(|place| place.core()), gone)
        };
        next
    }

    /// Enters a child, or ends it if it comes too late: as its parent ended, whatever its own deadline.
    pub(super) fn adopt(&self, child: &Arc<Core>) {
        let (state, _gone) = {
            let _call = Call::brief();
            let mut below = self.below.lock();
            let state = self.state.load(SeqCst); // I2
            if state == LIVE {
                child.place.held.set(Some(Arc::clone(child)));
                // SAFETY: new, so in no list; alive while it is in this one, which owns it from now on (I5).
                unsafe { below.children.push_back(&child.place) };
            }
            (state, below.sweep())
        };
        if state != LIVE {
            child.state.store(state, SeqCst); // nobody else has it yet
            child.done.end();
        }
    }

    /// Takes a child of this one out of the list, if it is there.
    pub(super) fn forget(&self, child: &Core) {
        let _gone = {
            let _call = Call::brief();
            self.below.lock().remove(child)
        };
    }

    /// Its context is gone: it leaves its parent's list, or becomes an orphan there; and so do those that it had.
    pub(super) fn leave(&self, parent: Option<&Core>) {
        if parent.is_none_or(|parent| parent.part_with(self)) {
            // Those that are left have ended (I3, I1), or there is nobody who could end them.
            while let Some(_gone) = self.next_orphan() {}
        }
    }

    /// False: who cancels this one will see to the child, and to all that it has. The child is in the caller's hands, so not freed here.
    fn part_with(&self, child: &Core) -> bool {
        let _swept; // dropped last, outside
        let _call = Call::brief();
        let mut here = self.below.lock();
        let state = self.state.load(SeqCst);
        if state == CANCELED && child.place.is_linked() {
            return false; // I6
        }
        if let Some(core) = here.remove(child)
            && state == LIVE
        {
            let mut there = child.below.lock();
            debug_assert!(there.children.is_empty(), "a child keeps its parent");
            here.orphans.append(&mut there.orphans);
            if core.is_wanted() {
                here.push_orphan(core);
            }
        }
        _swept = here.sweep();
        true
    }

    fn next_orphan(&self) -> Option<Arc<Core>> {
        let _call = Call::brief();
        let mut below = self.below.lock();
        let first = below.orphans.front()?.core()?;
        below.remove(&first)
    }

    /// How many children and orphans it has.
    #[cfg(test)]
    pub(super) fn count(&self) -> (usize, usize) {
        let below = self.below.lock();
        (below.children.iter().count(), below.orphans.iter().count())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    /// One whose context goes while its parent is being canceled leaves its orphans to who cancels, who left them behind if its deadline
    /// had passed.
    #[test]
    fn orphans_of_one_that_is_late_when_its_parent_is_canceled_are_freed() {
        let parent = Core::new(Instant::NEVER, None);
        let soon = Instant::after(Duration::from_millis(300));
        let child = Core::new(soon, Some(&parent));
        parent.adopt(&child);
        let orphan = Core::new(soon, Some(&child));
        child.adopt(&orphan);
        let _waits = orphan.done();
        orphan.leave(Some(&child));
        assert_eq!(child.count(), (0, 1));
        let gone = Arc::downgrade(&orphan);
        drop(orphan);
        while !child.is_late() {
            std::thread::yield_now();
        }
        assert!(parent.cancel_one());
        child.leave(Some(&parent)); // between the two halves of a cancellation
        assert!(parent.cancel());
        drop((parent, child));
        assert!(gone.upgrade().is_none());
    }

    /// Each that the cancellation came to after the deadline said that this was why.
    #[test]
    fn a_child_without_a_deadline_of_its_own_ends_as_its_parent_did() {
        let soon = Instant::after(Duration::from_millis(20));
        let parent = Core::new(soon, None);
        let make = |parent: &Arc<Core>| {
            let child = Core::new(Instant::NEVER, Some(parent));
            parent.adopt(&child);
            child
        };
        let (first, second) = (make(&parent), make(&parent));
        let below = make(&make(&first));
        assert!(parent.cancel_one(), "20 ms have passed in no time");
        while !below.is_late() {
            std::thread::yield_now();
        }
        assert_eq!(below.err(), Some(ContextError::Canceled)); // before the walk has come to it
        assert!(parent.cancel());
        for core in [&parent, &first, &second, &below] {
            assert_eq!(core.err(), Some(ContextError::Canceled));
        }
        // One that was late before stays so, and all below it.
        let parent = Core::new(Instant::now(), None);
        let child = make(&parent);
        assert!(!child.cancel());
        assert_eq!(parent.err(), Some(ContextError::DeadlineExceeded));
        assert_eq!(child.err(), Some(ContextError::DeadlineExceeded));
    }
}

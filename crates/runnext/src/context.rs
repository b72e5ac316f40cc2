//! Contexts: telling a tree of goroutines that their work is no longer wanted.
//!
//! # Why this shape
//! A context's end is a channel that closes, so it can be waited for beside anything else. Its deadline needs no timer: the
//! channel is of the kind that looks at the clock (`chan::clock`), and so does [`err`](Context::err). Only a cancellation
//! has to be carried from a parent to its children, for which each parent has a list of them.
//!
//! | `state`  | meaning                                            | changed by                                |
//! |----------|----------------------------------------------------|-------------------------------------------|
//! | LIVE     | not ended, unless the deadline has passed          | `end` → either of the others, once        |
//! | CANCELED | canceled, itself or a parent, before its deadline  |                                           |
//! | EXCEEDED | somebody saw that the deadline had passed          |                                           |
//!
//! # Invariants
//! I1  A child's deadline is not after its parent's. So a deadline need not be carried to children.
//! I2  A child is entered in its parent's list under the lock of the list, if the parent is LIVE then; who cancels changes the
//!     state first and empties the list afterwards. So no child is missed.
//! I3  A child keeps its parent, and the parent only knows its children: a chain carries cancellations as long as somebody
//!     holds its end.
//! I4  Who sees `done` closed gets an error from `err`, and the other way round.
//! I5  A place in a list is owned by its child, which takes it out under the lock before it frees it. Who finds it there, under the lock, may
//!     therefore look at it.
//!
//! # Context
//! None of this blocks, so that contexts may be made, ended and dropped anywhere. The lists are linked through places that the children
//! allocate beforehand, and are locked in RT for a few instructions.
//!
//! # Example
//! ```
//! use runnext::context::{Context, ContextError};
//! use runnext::{chan, go};
//!
//! #[runnext::main]
//! fn main() {
//!     let search = Context::background().with_cancel();
//!     let (found, place) = chan::bounded(1);
//!     let searchers = ["attic", "cellar", "garden"].map(|place| {
//!         let (ctx, found) = (search.with_cancel(), found.clone());
//!         go(move || {
//!             if place == "cellar" {
//!                 found.send(place).unwrap();
//!             }
//!             let _ = ctx.done().recv(); // the others go on, until nobody wants to know
//!             ctx.err()
//!         })
//!     });
//!     assert_eq!(place.recv(), Ok("cellar"));
//!     search.cancel();
//!     assert!(searchers.into_iter().all(|s| s.join().unwrap() == Some(ContextError::Canceled)));
//! }
//! ```

use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU8, Ordering::*};
use std::sync::{Arc, Weak};
use std::time::Duration;

use runnext_core::waitlist::{Node, WaitList};

use crate::chan::{self, Receiver};
use crate::instant::Instant;
use crate::lock::Lock;
use crate::sched::call::Call;

const LIVE: u8 = 0;
const CANCELED: u8 = 1;
const EXCEEDED: u8 = 2;

/// What the channel of [`Context::done`] carries: nothing, it only closes.
///
/// # Example
/// ```
/// use runnext::chan::{Receiver, RecvError};
/// use runnext::context::{Context, Never};
///
/// fn wait_for_end(done: &Receiver<Never>) -> RecvError {
///     let Err(closed) = done.recv(); // the compiler knows that there is no `Ok`
///     closed
/// }
///
/// let ctx = Context::background().with_cancel();
/// ctx.cancel();
/// assert_eq!(wait_for_end(&ctx.done()), RecvError);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Never {}

/// Why a [`Context`] ended.
///
/// # Example
/// ```
/// use runnext::context::{Context, ContextError};
/// use std::time::Duration;
///
/// fn status(why: ContextError) -> u16 {
///     match why {
///         ContextError::Canceled => 499,
///         ContextError::DeadlineExceeded => 504,
///     }
/// }
///
/// let request = Context::background().with_timeout(Duration::ZERO);
/// assert_eq!(request.err().map(status), Some(504));
/// assert_eq!(ContextError::Canceled.to_string(), "context canceled");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ContextError {
    /// It, or one it was made from, was canceled.
    Canceled,
    /// Its deadline has passed.
    DeadlineExceeded,
}

impl fmt::Display for ContextError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            ContextError::Canceled => "context canceled",
            ContextError::DeadlineExceeded => "context deadline exceeded",
        })
    }
}

impl std::error::Error for ContextError {}

/// Whether some work is still wanted, and until when: given to those who do it, and ended by those who asked for it.
///
/// Contexts form a tree. One ends when it is [canceled](Self::cancel), when its deadline passes, or when the one it was made
/// from ends; never by what happens to those made from it. Clones are the same context. Dropping a context does not
/// cancel it, and leaves nothing behind.
///
/// # Example
/// ```
/// use runnext::context::{Context, ContextError};
/// use runnext::{chan, select};
/// use std::time::Duration;
///
/// fn answer(ctx: &Context) -> Result<u32, ContextError> {
///     let (tx, rx) = chan::bounded(1);
///     let work = ctx.with_cancel();
///     runnext::go(move || {
///         select! {
///             recv(work.done()) -> _ => {}
///             recv(chan::after(Duration::from_secs(3600))) -> _ => { let _ = tx.send(42); }
///         }
///     });
///     select! {
///         recv(rx) -> answer => answer.map_err(|_| ctx.err().unwrap()), // it gave up first
///         recv(ctx.done()) -> _ => Err(ctx.err().unwrap()),
///     }
/// }
///
/// #[runnext::main]
/// fn main() {
///     let ctx = Context::background().with_timeout(Duration::from_millis(5));
///     assert_eq!(answer(&ctx), Err(ContextError::DeadlineExceeded));
/// }
/// ```
#[derive(Clone, Default)]
pub struct Context {
    /// None: the background.
    inner: Option<Arc<Inner>>,
}

struct Inner {
    state: AtomicU8,
    done: Receiver<Never>,
    deadline: Instant,
    parent: Option<Arc<Inner>>,
    /// In the list of its parent, or out of it.
    place: Place,
    children: Lock<WaitList<Weak<Inner>>>,
}

/// Where a child is found by its parent. On the heap by itself: others look at it while the child is dropped (I5).
struct Place(NonNull<Node<Weak<Inner>>>);

// SAFETY: the links are used under the lock of the parent's list, and what they lead to may be shared.
unsafe impl Send for Place {}
// SAFETY: as above.
unsafe impl Sync for Place {}

// Nothing that panics runs while the links are changed.
impl UnwindSafe for Place {}
impl RefUnwindSafe for Place {}

impl Place {
    fn new(child: Weak<Inner>) -> Place {
        Place(NonNull::from(Box::leak(Box::new(Node::new(child)))))
    }

    fn node(&self) -> &Node<Weak<Inner>> {
        // SAFETY: ours until it is dropped.
        unsafe { self.0.as_ref() }
    }
}

impl Drop for Place {
    /// It is in no list: `Inner` has seen to that.
    fn drop(&mut self) {
        // SAFETY: leaked in `new`; nobody can find it any more (I5).
        drop(unsafe { Box::from_raw(self.0.as_ptr()) });
    }
}

impl Context {
    /// The context that never ends: where trees begin.
    ///
    /// # Example
    /// ```
    /// use runnext::context::Context;
    ///
    /// static PROGRAM: Context = Context::background();
    ///
    /// PROGRAM.cancel(); // does nothing
    /// assert_eq!((PROGRAM.err(), PROGRAM.deadline()), (None, None));
    /// let job = PROGRAM.with_cancel();
    /// job.cancel();
    /// assert!(job.err().is_some());
    /// ```
    pub const fn background() -> Context {
        Context { inner: None }
    }

    /// A child that can be canceled by itself.
    ///
    /// # Example
    /// ```
    /// use runnext::context::{Context, ContextError};
    ///
    /// let parent = Context::background().with_cancel();
    /// let (child, other) = (parent.with_cancel(), parent.with_cancel());
    /// child.cancel();
    /// assert_eq!(child.err(), Some(ContextError::Canceled));
    /// assert_eq!((parent.err(), other.err()), (None, None));
    /// parent.cancel();
    /// assert_eq!(other.err(), Some(ContextError::Canceled));
    /// ```
    pub fn with_cancel(&self) -> Context {
        self.child(never())
    }

    /// A child that ends `d` from now at the latest.
    ///
    /// # Example
    /// ```
    /// use runnext::context::{Context, ContextError};
    /// use std::time::Duration;
    ///
    /// let request = Context::background().with_timeout(Duration::from_secs(3600));
    /// let lookup = request.with_timeout(Duration::from_millis(1)); // may take a small part of it
    /// lookup.done().recv().unwrap_err();
    /// assert_eq!(lookup.err(), Some(ContextError::DeadlineExceeded));
    /// assert_eq!(request.err(), None);
    /// ```
    pub fn with_timeout(&self, d: Duration) -> Context {
        self.child(Instant::after(d))
    }

    /// A child that ends at `t` at the latest.
    ///
    /// # Example
    /// ```
    /// use runnext::{context::Context, time::Instant};
    /// use std::time::Duration;
    ///
    /// let soon = Instant::now() + Duration::from_secs(1);
    /// let parent = Context::background().with_deadline(soon);
    /// let child = parent.with_deadline(soon + Duration::from_secs(1));
    /// assert_eq!(child.deadline(), Some(soon)); // its parent's, which is earlier
    /// ```
    pub fn with_deadline(&self, t: Instant) -> Context {
        self.child(t)
    }

    fn child(&self, deadline: Instant) -> Context {
        let parent = self.inner.clone();
        let deadline = match &parent {
            Some(parent) => deadline.min(parent.deadline), // I1
            None => deadline,
        };
        let child = Arc::new_cyclic(|child| Inner {
            state: AtomicU8::new(LIVE),
            done: chan::ending(deadline),
            deadline,
            parent,
            place: Place::new(child.clone()),
            children: Lock::new(WaitList::new()),
        });
        if let Some(parent) = &child.parent {
            parent.adopt(&child);
        }
        Context { inner: Some(child) }
    }

    /// The end of this context as a channel: it never receives anything, and is closed when the context has ended.
    ///
    /// # Example
    /// ```
    /// use runnext::{context::Context, select};
    ///
    /// let ctx = Context::background().with_cancel();
    /// let wanted = || select! {
    ///     recv(ctx.done()) -> _ => false,
    ///     default => true,
    /// };
    /// assert!(wanted());
    /// ctx.cancel();
    /// assert!(!wanted());
    /// ```
    pub fn done(&self) -> Receiver<Never> {
        match &self.inner {
            Some(inner) => inner.done.clone(),
            None => chan::never(),
        }
    }

    /// Why it ended; `None` if it has not.
    ///
    /// # Example
    /// ```
    /// use runnext::context::{Context, ContextError};
    ///
    /// let ctx = Context::background().with_cancel();
    /// let mut rounds = 0;
    /// let why = loop {
    ///     if let Some(why) = ctx.err() {
    ///         break why; // cheap enough for each round of a long computation
    ///     }
    ///     rounds += 1;
    ///     if rounds == 3 {
    ///         ctx.cancel(); // what somebody else would do
    ///     }
    /// };
    /// assert_eq!((rounds, why), (3, ContextError::Canceled));
    /// ```
    pub fn err(&self) -> Option<ContextError> {
        self.inner.as_ref()?.err()
    }

    /// When it ends at the latest; `None` if it has no deadline.
    ///
    /// # Example
    /// ```
    /// use runnext::{context::Context, time::Instant};
    /// use std::time::Duration;
    ///
    /// let ctx = Context::background().with_timeout(Duration::from_secs(5));
    /// let left = ctx.deadline().unwrap() - Instant::now(); // for calls that take a timeout
    /// assert!(left <= Duration::from_secs(5));
    /// assert_eq!(Context::background().with_cancel().deadline(), None);
    /// ```
    pub fn deadline(&self) -> Option<Instant> {
        let deadline = self.inner.as_ref()?.deadline;
        (deadline != never()).then_some(deadline)
    }

    /// Ends this context and all made from it, unless it has ended. Does nothing to the background.
    ///
    /// # Example
    /// ```
    /// use runnext::context::{Context, ContextError};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let ctx = Context::background().with_cancel();
    ///     let server = {
    ///         let ctx = ctx.clone();
    ///         runnext::go(move || {
    ///             ctx.done().recv().unwrap_err(); // parked until it is over
    ///             ctx.err()
    ///         })
    ///     };
    ///     ctx.cancel();
    ///     ctx.cancel(); // once more does nothing
    ///     assert_eq!(server.join().unwrap(), Some(ContextError::Canceled));
    /// }
    /// ```
    pub fn cancel(&self) {
        if let Some(inner) = &self.inner
            && inner.cancel_all()
            && let Some(parent) = &inner.parent
        {
            parent.forget(&inner.place);
        }
    }
}

impl fmt::Debug for Context {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.inner {
            None => f.write_str("Context(background)"),
            Some(_) => f
                .debug_struct("Context")
                .field("deadline", &self.deadline())
                .field("err", &self.err())
                .finish_non_exhaustive(),
        }
    }
}

impl Inner {
    fn err(&self) -> Option<ContextError> {
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
        self.deadline != never() && Instant::now() >= self.deadline
    }

    /// Decides why it ends, if that is open. True: it was canceled just now.
    fn end(&self) -> bool {
        let why = if self.is_late() { EXCEEDED } else { CANCELED };
        let first = self.state.compare_exchange(LIVE, why, SeqCst, Acquire);
        first.is_ok() && why == CANCELED
    }

    /// Cancels it and all below. True: it had not ended.
    fn cancel_all(self: &Arc<Inner>) -> bool {
        if !self.end() {
            return false;
        }
        self.done.end();
        // Not by recursion: a chain may be long.
        let mut parents = vec![Arc::clone(self)];
        while let Some(parent) = parents.pop() {
            while let Some(child) = parent.next_child() {
                if child.end() {
                    child.done.end();
                    parents.push(child);
                }
            }
        }
        true
    }

    /// Takes a child out of the list that somebody still holds.
    fn next_child(&self) -> Option<Arc<Inner>> {
        let _call = Call::brief();
        let mut children = self.children.lock();
        while let Some(place) = children.pop_front() {
            // SAFETY: it was in the list just now, and the lock is held (I5).
            if let Some(child) = unsafe { place.as_ref() }.upgrade() {
                return Some(child);
            }
        }
        None
    }

    /// Enters a child, or ends it if it comes too late: as its parent ended, whatever its own deadline.
    fn adopt(&self, child: &Arc<Inner>) {
        let why = {
            let _call = Call::brief();
            let mut children = self.children.lock();
            let state = self.state.load(SeqCst);
            if state == LIVE {
                // SAFETY: new, so in no list; it leaves this one before it is freed (I5).
                unsafe { children.push_back(child.place.node()) };
                return;
            }
            state
        };
        child.state.store(why, SeqCst); // nobody else has it yet
        child.done.end();
    }

    /// Takes a child of this one out of the list, if it is there.
    fn forget(&self, child: &Place) {
        let _call = Call::brief();
        // SAFETY: a place is in the list of its parent or in none.
        unsafe { self.children.lock().remove(child.node()) };
    }
}

impl Drop for Inner {
    /// Leaves its parent's list, and lets go of the parents. Not by recursion: a chain may be long.
    fn drop(&mut self) {
        let Some(mut parent) = self.parent.take() else {
            return;
        };
        parent.forget(&self.place); // I5
        while let Some(mut above) = Arc::into_inner(parent) {
            let Some(next) = above.parent.take() else {
                return;
            };
            next.forget(&above.place);
            parent = next;
        }
    }
}

fn never() -> Instant {
    Instant::from_ns(crate::sched::timers::NEVER)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(ctx: &Context) -> usize {
        ctx.inner
            .as_ref()
            .map_or(0, |i| i.children.lock().iter().count())
    }

    #[test]
    fn nothing_is_left_of_a_child() {
        let parent = Context::background().with_cancel();
        let kept = parent.with_cancel();
        for _ in 0..100 {
            let child = parent.with_timeout(Duration::from_secs(3600));
            let _grandchild = child.with_cancel();
        }
        assert_eq!(children(&parent), 1);
        let canceled = parent.with_cancel();
        canceled.cancel();
        assert_eq!(children(&parent), 1);
        // A chain whose middle nobody holds still carries.
        let end = kept.with_cancel().with_cancel().with_cancel();
        assert_eq!(children(&kept), 1);
        parent.cancel();
        assert_eq!(end.err(), Some(ContextError::Canceled));
        drop(end);
        assert_eq!(children(&kept), 0);
    }

    #[test]
    fn who_receives_from_done_cannot_close_it() {
        let ctx = Context::background().with_cancel();
        assert!(!ctx.done().close() && !ctx.done().is_closed());
        assert!(!Context::background().done().close());
        ctx.cancel();
        assert!(ctx.done().is_closed() && !ctx.done().close());
    }

    #[test]
    fn a_child_of_an_ended_parent_is_not_entered() {
        let parent = Context::background().with_cancel();
        parent.cancel();
        let child = parent.with_cancel();
        assert_eq!(child.err(), Some(ContextError::Canceled));
        let late = parent.with_timeout(Duration::ZERO);
        assert_eq!(late.err(), Some(ContextError::Canceled), "as its parent");
        assert!(late.done().is_closed());
        assert_eq!(children(&parent), 0);
    }
}

//! Contexts: telling a tree of goroutines that their work is no longer wanted.
//!
//! # Why this shape
//! A context's end is a channel that closes, so it can be waited for beside anything else. Its deadline needs no timer: the
//! channel is of the kind that looks at the clock (`chan::clock`), and so does [`err`](Context::err). Only a cancellation
//! has to be carried from a parent to its children, for which each parent has a list of them (`tree`, with all the states and
//! invariants).
//!
//! # Context
//! None of this blocks, so that contexts may be made, ended and dropped anywhere.
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

mod tree;

use std::sync::Arc;
use std::time::Duration;
use std::{fmt, mem};

use crate::chan::{self, Receiver};
use crate::instant::Instant;
use tree::Core;

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

/// A cancellation signal with an optional deadline: passed to the code that does some work, ended by the code that asked for it.
///
/// Contexts form a tree. A context ends when it is [canceled](Self::cancel), when its deadline passes, or when its parent ends; the
/// end of a child does not affect its parent. Clones are handles to the same context. Dropping a context does not cancel it; a
/// [`done`](Self::done) receiver that outlives it is still closed when the context would have ended.
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

/// What the clones of a context share. Keeps those above, so that a chain carries cancellations as long as somebody holds its end.
struct Inner {
    core: Arc<Core>,
    parent: Option<Arc<Inner>>,
    /// It has left its parent. What its core has may be in others' hands.
    left: bool,
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
        self.child(Instant::NEVER)
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
        let core = Core::new(deadline, parent.as_ref().map(|parent| &parent.core));
        if let Some(parent) = &parent {
            parent.core.adopt(&core);
        }
        let left = false;
        let child = Arc::new(Inner { core, parent, left });
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
            Some(inner) => inner.core.done(),
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
        self.inner.as_ref()?.core.err()
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
        let deadline = self.inner.as_ref()?.core.deadline();
        (deadline != Instant::NEVER).then_some(deadline)
    }

    /// Ends this context and all made from it, unless it has ended. Does nothing to the background.
    ///
    /// When it returns, all of them have ended and their `done` is closed, even if another call was the first to cancel.
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
            && inner.core.cancel()
            && let Some(parent) = &inner.parent
        {
            parent.core.forget(&inner.core);
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
    /// Leaves its parent, once, and gives it back.
    fn leave(&mut self) -> Option<Arc<Inner>> {
        let parent = self.parent.take();
        if !mem::replace(&mut self.left, true) {
            self.core.leave(parent.as_ref().map(|p| &*p.core));
        }
        parent
    }
}

impl Drop for Inner {
    /// Lets go of those above. Not by recursion: a chain may be long.
    fn drop(&mut self) {
        let mut parent = self.leave();
        while let Some(mut above) = parent.and_then(Arc::into_inner) {
            parent = above.leave();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn children(ctx: &Context) -> usize {
        ctx.inner.as_ref().map_or(0, |i| i.core.count().0)
    }

    fn orphans(ctx: &Context) -> usize {
        ctx.inner.as_ref().map_or(0, |i| i.core.count().1)
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
    #[test]
    fn orphans_are_kept_as_long_as_somebody_waits_for_them() {
        let root = Context::background().with_cancel();
        let kept: Vec<_> = (0..10).map(|_| root.with_cancel().done()).collect();
        assert_eq!((children(&root), orphans(&root)), (0, 10));
        for _ in 0..1000 {
            drop(root.with_cancel().done()); // not an orphan: nobody else has its channel
            let short = root.with_cancel().done();
            drop(short);
            assert!(orphans(&root) <= 2 * kept.len() + 4, "they pile up");
        }
        for _ in 0..10 {
            drop(root.with_cancel()); // looks at two of them
        }
        assert_eq!(orphans(&root), kept.len());
        drop(kept);
        for _ in 0..10 {
            drop(root.with_cancel());
        }
        assert_eq!(orphans(&root), 0);
    }

    #[test]
    fn orphans_whose_time_has_come_go() {
        let root = Context::background().with_cancel();
        let late = root.with_timeout(Duration::ZERO).done();
        let in_time = root.with_timeout(Duration::from_secs(3600)).done();
        drop(root.with_cancel());
        assert_eq!(orphans(&root), 1);
        assert!(late.is_closed() && !in_time.is_closed());
    }

    #[test]
    fn orphans_move_up() {
        let root = Context::background().with_cancel();
        let middle = root.with_cancel();
        let ends = [(); 3].map(|()| middle.with_cancel().with_cancel().done());
        assert_eq!((orphans(&root), orphans(&middle)), (0, 3));
        drop(middle);
        assert_eq!((children(&root), orphans(&root)), (0, 3));
        drop(root); // nobody can cancel them any more
        assert!(ends.iter().all(|done| !done.is_closed()));
    }
    /// A list owns what is in it: what is left in one for ever leaks.
    #[test]
    fn every_core_is_freed() {
        let mut cores = Vec::new();
        let mut seen = |ctx: Context| {
            cores.extend(ctx.inner.as_ref().map(|inner| Arc::downgrade(&inner.core)));
            ctx
        };
        for how in 0..4 {
            let root = seen(Context::background().with_cancel());
            let middle = seen(root.with_timeout(Duration::from_secs(3600)));
            let late = seen(middle.with_timeout(Duration::ZERO));
            let below_late = seen(late.with_cancel());
            let ends = [&root, &middle, &late, &below_late].map(|c| seen(c.with_cancel()).done());
            assert!(late.err().is_some());
            match how {
                0 => root.cancel(),
                1 => middle.cancel(),
                2 => drop(middle.clone()),
                _ => drop(ends),
            }
        }
        assert!(cores.iter().all(|core| core.strong_count() == 0));
    }
}

//! Goroutines without a stack: futures that a worker polls.
//!
//! # Why this shape
//! Such a goroutine has a header like any other, is in the same queues and counted in the same numbers; only where others are
//! resumed on their stack, it is polled on the worker's own. The future lies in the header if it is small, else in one box. So a parked one
//! costs its header and its future, and a worker finds out that it has one to poll only where it would otherwise look for a stack:
//! goroutines that have theirs do not pay for it.
//! Rejected: a stack borrowed for each poll (30 ns, and a future that blocks in the middle of a poll would keep it).
//!
//! # Calls that block, inside a poll
//! work: the thread sleeps with the goroutine and the P goes to another thread, as with goroutines that are locked to their
//! thread (`call::must_stay`). Microseconds instead of nanoseconds, but nothing else is held up. A note to give way is not
//! taken up in a poll: it ends soon, or the slice's timer stops it like any other code (`preempt`), thread and all.
//!
//! # States
//! Beside the park state, which is RUNNING during a poll and WAITING between two, the signal (`runnext_core::signal`) says whether a
//! waker has to queue it:
//!
//! | where it is                | park state        | signal        | left by                                     |
//! |----------------------------|-------------------|---------------|---------------------------------------------|
//! | queued                     | RUNNABLE          | QUIET or RUNG | the dispatcher → polled                     |
//! | polled                     | RUNNING           | QUIET or RUNG | its worker → done, queued (RUNG), or waits  |
//! | blocked inside a poll      | WAITING, wired    | QUIET or RUNG | what it waits for → polled                  |
//! | preempted inside a poll    | RUNNABLE, wired   | QUIET or RUNG | the dispatcher → polled                     |
//! | waits                      | WAITING           | ASLEEP        | the first ring → queued                     |
//!
//! # The end of the runtime
//! is in `drops`: what is not being polled is dropped. What is being polled at that moment is queued by its worker when it comes back, or never if it does not.
//!
//! # Context
//! `poll` is in RT, and leaves it for the poll. Tests: `tests/future*.rs`.

use std::future::Future;
use std::io;
use std::marker::PhantomData;
use std::mem;
use std::panic::{self, AssertUnwindSafe, Location};
use std::pin::Pin;
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll};

use super::call::Call;
use super::groups::Record;
use super::spawn::{self, Options, Outcome, fits};
use super::{Shared, waker};
use crate::fatal::fatal;
use crate::g::{After, G, NO_STACK, Switch, Vtable, WaitReason};
use crate::m::M;
use crate::observe::coarse_ns;
use crate::p::bump;
use crate::swallow;

/// Makes a goroutine of a future and queues it, in that group or else in its maker's. The header returned counts one handle.
///
/// # Safety
/// What the future and its result borrow outlives the goroutine, and both may move between threads.
#[inline]
pub(crate) unsafe fn spawn<F: Future>(
    shared: &Shared,
    site: &'static Location<'static>,
    group: Option<&Arc<Record>>,
    future: F,
) -> io::Result<NonNull<G>> {
    let options = Options {
        site,
        ext: None,
        stack_class: Some(NO_STACK),
        group,
    };
    // SAFETY: the caller's promise; the table is that of such a future.
    unsafe { spawn::spawn_with(shared, options, future, Polled::<F>::VTABLE) }
}

struct Polled<F>(PhantomData<F>);

impl<F: Future> Polled<F> {
    const VTABLE: &'static Vtable = &Vtable {
        run: Self::never,
        poll: Self::poll,
        fail: Self::fail,
        drop_result: Self::drop_result,
        leave_group: Record::release,
        errand: false,
    };

    unsafe fn never(g: &G) -> After {
        fatal(format_args!("goroutine {} is a future", g.id()))
    }

    /// Where the future lies. It has not moved since its first poll and will not: headers and boxes stay.
    ///
    /// SAFETY of callers: it is not done, and theirs.
    unsafe fn future<'a>(g: &G) -> Pin<&'a mut F> {
        let at = g.payload();
        // SAFETY: written by `put`; exclusive by the contract.
        unsafe {
            Pin::new_unchecked(if fits::<F>() {
                &mut *at.cast::<F>()
            } else {
                &mut **at.cast::<*mut F>()
            })
        }
    }

    unsafe fn poll(g: &G) -> bool {
        let waker = waker::lent(g);
        let mut context = Context::from_waker(&waker);
        // SAFETY: its worker polls it, so it is not done, and nobody else's.
        let future = unsafe { Self::future(g) };
        let polled = panic::catch_unwind(AssertUnwindSafe(|| future.poll(&mut context)));
        let outcome = match polled {
            Ok(Poll::Pending) => return false,
            Ok(Poll::Ready(value)) => Ok(value),
            Err(payload) => Err(payload),
        };
        // SAFETY: as above, and done.
        unsafe { Self::finish(g, outcome) };
        true
    }

    /// Drops the future and leaves its result in its place. A panic in its drop is one of the goroutine.
    ///
    /// SAFETY of callers: it was not dropped before, and is theirs.
    unsafe fn finish(g: &G, mut outcome: Outcome<F::Output>) {
        let at = g.payload();
        let dropped = panic::catch_unwind(AssertUnwindSafe(|| {
            // SAFETY: written by `put`, and the caller's. In place: it may be pinned.
            unsafe {
                if fits::<F>() {
                    ptr::drop_in_place(at.cast::<F>());
                } else {
                    drop(Box::from_raw(at.cast::<*mut F>().read()));
                }
            }
        }));
        if let Err(payload) = dropped {
            let value = mem::replace(&mut outcome, Err(payload));
            // It has a panic to show already.
            swallow::panics(move || drop(value));
        }
        // SAFETY: the payload holds nothing now.
        unsafe { spawn::put(at, outcome) };
    }

    unsafe fn fail(g: &G, why: Box<dyn std::any::Any + Send>) -> After {
        // SAFETY: not done, and the caller's.
        unsafe { Self::finish(g, Err(why)) };
        After::NOTHING
    }

    unsafe fn drop_result(g: &G) {
        // SAFETY: the caller found an untaken result.
        let outcome = unsafe { spawn::take::<Outcome<F::Output>>(g.payload()) };
        // It was detached: a panic in the drop of its result has nobody to go to.
        swallow::panics(move || drop(outcome));
    }
}

/// Polls `g` once, on the worker's own stack. False: this thread must end.
pub(super) fn poll(m: &'static M, g: &'static G) -> bool {
    m.set_g(g);
    bump(&m.p().stats.dispatched);
    g.state.set_running();
    g.signal().begin();
    m.p().eye.dispatched(m.p(), g);
    m.leave();
    // SAFETY: dispatched by this M: it is not done, and nobody else's.
    if unsafe { (g.vtable().poll)(g) } {
        spawn::end(g, After::NOTHING).keep();
        m.p().eye.left(&m.shared().observe, g, None);
        m.shared().acquit(g);
        spawn::bury(m.shared(), m.p(), g);
    } else {
        Call::brief_with_p().keep(); // back in RT
        rest(m, g);
    }
    m.set_g(ptr::null());
    spawn::is_thread_clean(m)
}

/// It is pending: it waits, unless it was rung during the poll, and then queues up like one that yields.
#[inline]
fn rest(m: &M, g: &'static G) {
    let shared = m.shared();
    if m.locks.get() > 0 {
        g.unwire(); // a forgotten guard: the thread goes, not the goroutine
    }
    shared.acquit(g);
    g.lose_weight();
    if !g.signal().is_rung() {
        g.set_reason(WaitReason::Await, coarse_ns());
        m.p().eye.left(&shared.observe, g, Some(Switch::Park));
        g.state.set_waiting();
        if g.signal().sleep() {
            // Whoever was to drop it has seen that it sleeps, or it is ours to queue, and is dropped from there.
            if !shared.stopped.load(SeqCst) || !g.signal().ring() {
                return;
            }
        }
    }
    m.p().eye.left(&shared.observe, g, Some(Switch::Yield));
    g.state.set_runnable();
    shared.put_tail(m.p(), g);
}

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
//! Unlike a stack, a future that is not being polled can be dropped. [`Shared::drop_futures`] does, on the thread that shuts the runtime
//! down, after its workers have gone and before its poller is closed. What is being polled at that moment is queued by its worker when it
//! comes back, or never if it does not; a worker that leaves drops what is queued, once its thread is nobody's ([`Shared::drop_queued`]). So
//! no drop runs on a goroutine that nobody would dispatch again: one that blocks does so as on any thread. Who has set `stopped` looks at the
//! signal, who sleeps on the signal looks at `stopped`, both sequentially consistent: one of them sees the other. Joiners get an error, and
//! drop the future themselves if nobody has come to it yet ([`hurry`]): whoever was to may be in a drop that waits for it.
//! Who has rung and not yet queued it escapes both looks: it is in no queue, and does not sleep. So who rings looks at `stopped` after it has queued
//! it, and if it is set says so in `rung_late` ([`Shared::queued_late`]). Whoever drops futures does not end before it has seen all
//! of those, and when nobody does, or who does is in a drop that waits, the ringer drops them itself. In the queue's lock one of the two comes first: it was queued
//! before the last look there, or the ringer sees `stopped`.
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
use std::sync::atomic::{Ordering::*, fence};
use std::task::{Context, Poll};

use runnext_core::list::List;
use runnext_core::runq::RunQueue;

use super::call::Call;
use super::groups::{self, Record};
use super::spawn::{self, Options, Outcome, fits};
use super::{Shared, waker};
use crate::fatal::fatal;
use crate::g::{After, G, NO_STACK, Switch, Vtable, WaitReason};
use crate::m::M;
use crate::observe::coarse_ns;
use crate::p::bump;
use crate::swallow;

/// Makes a goroutine of a future and queues it. The header returned counts one handle.
///
/// # Safety
/// What the future and its result borrow outlives the goroutine, and both may move between threads.
#[inline]
pub(crate) unsafe fn spawn<F: Future>(
    shared: &Shared,
    site: &'static Location<'static>,
    future: F,
) -> io::Result<NonNull<G>> {
    let options = Options {
        site,
        ext: None,
        stack_class: Some(NO_STACK),
        group: None,
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
        spawn::bury(m.shared(), m.p(), g);
    } else {
        Call::brief().keep(); // back in RT, with a P
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

/// The runtime has stopped, and the M is about to leave its P: whoever drops futures finds all it had in a queue.
#[cold]
pub(super) fn leave_local(m: &M) {
    let shared = m.shared();
    shared.end_turn(m.p());
    if let Some(first) = m.take_first() {
        // SAFETY: it was handed over with the P, and is in no queue.
        unsafe { shared.push_global(first.ptr()) };
    }
}

/// All from the queue of a P: as a thief, for it may have an owner, who may compute for ever.
fn steal_all(from: &RunQueue<G>, all: &mut List<G>) {
    let own = RunQueue::new();
    // SAFETY: nobody else has it.
    while let Some(g) = unsafe { from.steal_into(&own) }.or_else(|| from.steal_next()) {
        // SAFETY: stolen, so in no queue; and as above.
        unsafe {
            all.push_back(g);
            all.append(own.drain());
        }
    }
}

/// Of one that was queued: whether it is a future, and not in the middle of a poll; or an errand of the runtime that has not begun.
fn can_be_dropped(g: &G) -> bool {
    let errand = g.vtable().errand && !g.has_stack();
    (g.is_stackless() || errand) && g.wired().is_null()
}

/// Drops a future that will not be polled again, and tells whoever waits for it; or does an errand. In user context, by the one who
/// took it from its queue or from its sleep.
fn abandon(g: &G) {
    let why = format!(
        "goroutine {} was dropped: its runtime was shut down before the future was done",
        g.id()
    );
    // SAFETY: it is not polled any more, and ours.
    let after = unsafe { (g.vtable().fail)(g, Box::new(why)) };
    g.drop_locals();
    groups::ended(g);
    // SAFETY: its end, and its result is there.
    unsafe { g.clean() };
    drop(spawn::tell(Call::brief(), g, after));
    spawn::release(g);
}

/// Drops a future if it waits.
fn drop_asleep(g: &G) -> bool {
    let ours = g.is_stackless() && g.signal().is_asleep() && g.signal().ring();
    if ours {
        abandon(g);
    }
    ours
}

/// Somebody is about to wait for the end of `g`, whose runtime may have stopped: if it is a future that is still to be dropped, that is done
/// here. Who waits may be the one who was to do it, in the drop of another. In user context; the caller holds a handle.
#[inline]
pub(crate) fn hurry(g: &G) {
    // SAFETY: the handle keeps the runtime's memory.
    let shared = unsafe { super::shared_of(g) };
    if g.is_stackless() && shared.stopped.load(SeqCst) {
        hurry_stopped(shared, g);
    }
}

#[cold]
fn hurry_stopped(shared: &Shared, g: &G) {
    if drop_asleep(g) {
        return;
    }
    shared.doom_queued();
    while !g.is_done() && shared.drop_doomed() {}
}

impl Shared {
    /// Drops all futures that wait or are queued. In user context, after the runtime has stopped: first by who stops it, then by whoever finds
    /// `rung_late` at zero.
    pub(crate) fn drop_futures(&self) {
        fence(SeqCst); // `stopped` was set before; pairs with `rest`
        let mut seen = self.rung_late.load(SeqCst);
        loop {
            self.drop_waiting();
            match self.rung_late.compare_exchange(seen, 0, SeqCst, SeqCst) {
                Ok(_) => return,
                Err(now) => seen = now,
            }
        }
    }

    /// A future was queued when the runtime had stopped. In user context.
    #[cold]
    pub(super) fn queued_late(&self) {
        if self.rung_late.fetch_add(1, SeqCst) == 0 {
            self.drop_futures();
        } else {
            // Who drops them sees to the rest of it, but may wait for this one just now.
            self.drop_queued();
        }
    }

    fn drop_waiting(&self) {
        loop {
            // Dropping one may ring others.
            let mut dropped = self.drop_queued();
            self.slab.for_each(|g| dropped |= drop_asleep(g));
            if !dropped {
                return;
            }
        }
    }

    /// Drops all futures that are queued; true if there were any. In user context, outside the runtime, after it has stopped.
    pub(super) fn drop_queued(&self) -> bool {
        self.doom_queued();
        let mut dropped = false;
        while self.drop_doomed() {
            dropped = true;
        }
        dropped
    }

    /// Drops one of those that [`doom_queued`](Self::doom_queued) has found. One at a time: its drop may block, or wait for
    /// another of them.
    fn drop_doomed(&self) -> bool {
        loop {
            let next = {
                let _call = Call::brief(); // for the lock
                self.global.lock().doomed.pop_front()
            };
            let Some(g) = next else { return false };
            // SAFETY: taken from a queue, so alive.
            let g = unsafe { g.as_ref() };
            if can_be_dropped(g) {
                abandon(g);
                return true;
            }
        }
    }

    fn doom_queued(&self) {
        let _call = Call::brief(); // for the locks
        let queued = self.unqueue_all();
        self.global.lock().doomed.append(queued);
    }

    /// Everything in a queue that no thread can reach any more; those with a stack are abandoned anyway.
    fn unqueue_all(&self) -> List<G> {
        let mut all = List::new();
        loop {
            let some = self.take_global(usize::MAX); // some come alone
            if some.is_empty() {
                break;
            }
            all.append(some);
        }
        while let Some(g) = self.take_urgent() {
            // SAFETY: in no list now.
            unsafe { all.push_back(g) };
        }
        for p in self.all_ps() {
            all.append(self.unlist_all(p));
            steal_all(&p.runq, &mut all);
            steal_all(p.groups.ring(), &mut all);
        }
        all
    }
}

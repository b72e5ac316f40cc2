//! The futures of a runtime that has stopped.
//!
//! # Why this shape
//! Unlike a stack, a future that is not being polled can be dropped. When a runtime stops, up to four parties do so:
//!
//! | party                                            | drops                                                               |
//! |--------------------------------------------------|---------------------------------------------------------------------|
//! | the *stopper*: the thread that shuts down        | all that wait or are queued ([`Shared::drop_futures`]), after the workers have gone and before the poller is closed |
//! | a worker that leaves later                       | what is queued ([`Shared::drop_queued`]), once its thread belongs to no goroutine |
//! | a *joiner* of the future                         | that future, if nobody has done so yet ([`hurry`]): the joiner may itself be the party that is due to drop it, inside the drop of another future |
//! | the *helper*: a thread made for it, one at a time | what a *ringer*, a caller of a waker, has queued after the stop      |
//!
//! So no drop runs on a goroutine that nobody would dispatch again: a drop that blocks does so as on any thread. Joiners get an error.
//! A ringer drops nothing itself: it may hold a lock that the drop takes, as hyper's HTTP/2 does. Hence the helper. The stopper waits for
//! the helper, and goes on dropping meanwhile, since the helper's own drop may wait for another future.
//!
//! # No future is missed
//! The stopper sets `stopped`, then reads the signal; a future that goes to sleep sets the signal, then reads `stopped`. Both are sequentially
//! consistent, so one sees the other. A future that was rung but is not yet queued escapes both looks: it neither sleeps nor is in a
//! queue. So a ringer reads `stopped` after it has queued the future, and if it is set starts the helper ([`Shared::queued_late`]). The queue's
//! lock orders the two: either the future was queued before the stopper's last look at the queue, or the ringer sees `stopped`.
//!
//! Goroutines with a will are looked for in the same queues. Who wakes one from outside the runtime is a visitor (`Shared::visit`) from before it reads
//! `stopped` until the goroutine is queued; the stopper sees visitors off between setting it and its look. So one of the two carries the will out.
//!
//! # Context
//! User context, outside the runtime, on any thread.

use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use std::thread::{self, JoinHandle};

use runnext_core::list::List;
use runnext_core::runq::RunQueue;
use runnext_sys::{clock, futex};

use super::call::Call;
use super::shield::{self, Shielded};
use super::{Shared, groups, spawn};
use crate::g::G;

/// How often who shuts down looks whether the helper is done, and whether there is something else to drop, in ns.
const LOOK_AGAIN_NS: u64 = 1_000_000;

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

/// What a goroutine that never runs again was woken for goes to others. In user context.
pub(super) fn carry_out_will(g: &G) {
    if let Some(will) = g.take_will() {
        // SAFETY: it was taken, so once. The goroutine is in the middle of its call, and its frames stay, with all that they borrow.
        unsafe { will.run() };
    }
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

/// Who drops for those who ring.
#[derive(Default)]
pub(super) struct Helper {
    /// There is one, and it looks again as long as somebody wants it to.
    runs: bool,
    wanted: bool,
    thread: Option<JoinHandle<()>>,
}

impl Shared {
    /// Drops all futures that wait or are queued. In user context, by who stops the runtime, after it has stopped.
    pub(crate) fn drop_futures(&self) {
        fence(SeqCst); // `stopped` was set before; pairs with `rest`
        self.see_visitors_off(); // whoever comes later sees that all has stopped (`Call::wake_to_give`)
        self.drop_waiting();
        loop {
            let Some(helper) = self.helper().thread.take() else {
                return;
            };
            while !helper.is_finished() {
                futex::wait_until(&AtomicU32::new(0), 0, clock::now_ns() + LOOK_AGAIN_NS);
                self.drop_waiting(); // its own drop may wait for one of these
            }
            // It does not panic: what drops do is caught.
            let _ = helper.join();
        }
    }

    fn helper(&self) -> Shielded<'_, Helper> {
        shield::lock(&self.helper)
    }

    /// A future was queued when the runtime had stopped. In user context, perhaps in the middle of another's drop.
    #[cold]
    pub(super) fn queued_late(&self) {
        let mut helper = self.helper();
        helper.wanted = true;
        if helper.runs {
            return;
        }
        // SAFETY: a `Shared` is always in an `Arc`, and the ringer's waker counts a header of it, and with that its memory.
        let shared = unsafe {
            Arc::increment_strong_count(ptr::from_ref(self));
            Arc::from_raw(ptr::from_ref(self))
        };
        let drops = thread::Builder::new().name("runnext-drops".into());
        // Refused: it stays for who shuts down, or for the next who rings.
        if let Ok(thread) = drops.spawn(move || shared.help()) {
            helper.runs = true;
            helper.thread = Some(thread);
        }
    }

    /// The helper's thread.
    fn help(&self) {
        loop {
            let mut helper = self.helper();
            if !std::mem::take(&mut helper.wanted) {
                helper.runs = false;
                return;
            }
            drop(helper);
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
            carry_out_will(g);
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

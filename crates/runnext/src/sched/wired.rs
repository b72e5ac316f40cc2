//! Goroutines that wait together with their thread.
//!
//! A goroutine that is locked to its thread, unwinds (std's panic count is per thread), has no stack of its own, or gives way in a
//! function that is not said to block, does not switch: its thread keeps it, gives the P away and sleeps. It is queued like any other when it is woken, and
//! whoever dequeues it hands over the P (`worker::dispatch`). One that was preempted sleeps in the same way (`preempt`).

use std::ptr;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::park::Parked;

use super::call::take_p;
use crate::g::G;
use crate::m::M;
use crate::observe::event::Kind;
use crate::p::P;

/// Parks the thread together with its goroutine.
#[cold]
pub(super) fn park_wired(m: &'static M, g: &G) {
    g.wire(m);
    let p = m.p();
    p.eye.stopped(Kind::Park, g.reason() as u32, g);
    if g.state.park() == Parked::Notified {
        unwire(m, g);
        return p.eye.dispatched(p, g);
    }
    sleep_wired(m, g, p);
}

/// Goes to the end of the queue together with the thread.
#[cold]
pub(super) fn yield_wired(m: &'static M, g: &G) {
    let p = m.p();
    p.eye.stopped_runnable(Kind::Yield, 0, g, m);
    g.wire(m);
    g.state.set_runnable();
    m.shared().put_tail(p, g);
    sleep_wired(m, g, p);
}

/// Gives the P away, and sleeps until one is handed to this thread.
fn sleep_wired(m: &'static M, g: &G, p: &P) {
    let shared = m.shared();
    // Before: at the limit of threads there may be nobody but sleepers like this one to take the P.
    shared.tied.fetch_add(1, Relaxed);
    m.give_up();
    shared.hand_off(p);
    let resumed = resume_wired(m, g);
    shared.tied.fetch_sub(1, Relaxed);
    if !resumed {
        shared.freeze(m);
    }
}

/// Sleeps until somebody hands a P to this thread: a dispatcher, or one who has no other thread for it. False: the runtime has
/// stopped.
pub(super) fn resume_wired(m: &M, g: &G) -> bool {
    m.awaits_p.store(true, Relaxed);
    fence(SeqCst); // seen waiting, or it sees that all has stopped: `Shared::release_stopped` sends it on
    let stopped = m.shared().stopped.load(Relaxed);
    let p = match stopped && !m.is_handed() {
        true => ptr::null(),
        false => m.wait_for_p(),
    };
    m.awaits_p.store(false, Relaxed);
    if p.is_null() {
        m.set_robbed();
        return false;
    }
    let arrears = m.arrears();
    take_p(m, p);
    g.state.set_running();
    unwire(m, g);
    m.shared().resume_in_group(m, g, arrears);
    m.p().eye.resumed(m.p(), g, m);
    true
}

/// The wait is over; only a lock keeps the goroutine on its thread now.
fn unwire(m: &M, g: &G) {
    if m.locks.get() == 0 {
        g.unwire();
    }
}

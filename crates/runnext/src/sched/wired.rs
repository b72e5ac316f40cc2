//! Goroutines that wait together with their thread.
//!
//! A goroutine that is locked to its thread, unwinds (std's panic count is per thread), has no stack of its own, or gives way in a
//! function that is not said to block, does not switch: its thread keeps it, gives the P away and sleeps. It is queued like any other when it is woken, and
//! whoever dequeues it hands over the P (`worker::execute`). One that was preempted sleeps in the same way (`preempt`).

use std::sync::atomic::Ordering::*;

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
/// stopped (`Shared::release_stopped`).
pub(super) fn resume_wired(m: &M, g: &G) -> bool {
    let Some(p) = m.wait_for_p() else {
        m.set_robbed();
        return false;
    };
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

#[cfg(test)]
mod tests {
    use std::ptr;

    use crate::Runtime;
    use crate::m::{self, M};
    use crate::sched::call::Call;

    /// In a runtime with an idle P: an M that waits with its goroutine, and the P that somebody is about to hand it.
    fn with_one_that_waits(f: impl FnOnce(&M, &'static crate::p::P) + Send) {
        let rt = Runtime::builder().procs(2);
        // SAFETY: nothing that runs here keeps addresses of thread-locals.
        let rt = unsafe { rt.build() }.expect("a runtime starts");
        rt.run(|| {
            let shared = m::current().expect("a goroutine").shared_static();
            let m = M::new(0, ptr::from_ref(shared));
            let (_call, p) = loop {
                let call = Call::brief();
                if let Some(p) = shared.take_idle_p(ptr::null()) {
                    break (call, p);
                }
                drop(call); // its thread looks for work
                std::thread::yield_now();
            };
            f(&m, p);
        });
    }

    /// The P was nobody's then, and what it kept for itself never came back.
    #[test]
    fn a_p_for_a_thread_that_was_sent_on_is_put_down() {
        with_one_that_waits(|m, p| {
            m.send_on();
            m.hand(p);
            let shared = m.shared();
            assert!(ptr::eq(shared.take_idle_p(p).expect("it is idle"), p));
            assert!(m.wait_for_p().is_none());
            shared.idle_p(p);
        });
    }

    /// Who sent it on wrote over what had come.
    #[test]
    fn a_thread_that_is_sent_on_takes_the_p_it_was_handed_before() {
        with_one_that_waits(|m, p| {
            m.hand(p);
            m.send_on();
            assert!(m.wait_for_p().is_some_and(|handed| ptr::eq(handed, p)));
            assert!(m.wait_for_p().is_none());
            m.shared().idle_p(p);
        });
    }
}

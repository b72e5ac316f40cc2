//! Grace: a goroutine that holds locks is not stopped at once, since others may wait for those locks.
//!
//! If a goroutine is to stop while it holds locks of `sync`, it runs on for up to [`GRACE`], once per turn; its group pays for that later. It
//! gives way when it releases the last of its locks. If it were stopped when the time is over instead, a goroutine that locks again and again
//! would always be stopped inside another section, and those that wait for the lock would wait until its group may run again: a writer behind
//! one reader of a throttled group waited 190 - 420 ms, with sections of 0.2 ms.
//!
//! That the goroutine *owes* its turn is noted in the word of its header that otherwise holds a loan ([`owed`]), because each unlock reads that word
//! anyway. A waiter's loan (`lend`) overwrites the note: the owner then runs in the waiter's lane, and owes nothing.

use std::ptr;
use std::sync::atomic::Ordering::*;

use runnext_sys::clock;

use super::local::NO_LANE;
use crate::g::G;
use crate::p::P;
use crate::sched::Shared;
use crate::sched::call::{Call, checkpoint_here};

/// How long the owner of a lock runs on, in ns.
const GRACE: u64 = 1_000_000;

/// What stands in the header of a goroutine that is to make way when it has released its last lock: not a loan.
pub(super) fn owed() -> *mut () {
    static OWED: u8 = 0;
    ptr::from_ref(&OWED).cast_mut().cast()
}

impl Shared {
    /// Whether `g`, which is to stop, may run on for a while: it holds locks that others may wait for.
    pub(in crate::sched) fn holds_on(&self, p: &P, g: &G) -> bool {
        let (here, lent) = (&p.groups, g.lent_ptr());
        if !here.is_on()
            || here.lane() == NO_LANE
            || here.graced.load(Relaxed)
            || g.locks_held() == 0
        {
            let _ = lent.compare_exchange(owed(), ptr::null_mut(), Relaxed, Relaxed);
            return false;
        }
        here.graced.store(true, Relaxed);
        here.until.store(clock::now_ns() + GRACE, Relaxed);
        here.over.store(false, Relaxed);
        let _ = lent.compare_exchange(ptr::null_mut(), owed(), Relaxed, Relaxed);
        true
    }
}

/// The calling goroutine owed its turn, and has released its last lock. In user context.
#[cold]
#[inline(never)] // the thread may be another one than before the unlock
pub(super) fn make_way() {
    let call = Call::brief();
    if let Some(m) = call.m()
        && m.p().groups.graced.load(Relaxed)
    {
        let p = m.p();
        p.groups.end_soon(p);
        m.note.leave(p.slice.load(Relaxed), false);
    } // else that turn has ended
    drop(call);
    checkpoint_here();
}

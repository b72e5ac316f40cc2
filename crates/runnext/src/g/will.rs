//! Wills: what others are to do for a goroutine that was woken and will never run again.
//!
//! # Why this shape
//! A waiter of a lock that is woken has got something: the lock, the duty to look whether it is free, or a permit of a semaphore. If its runtime stops before it runs
//! again, nobody else ever gets either. So it leaves word of what is to be done with it before it waits, and takes that back when it goes on.
//! The word lies in the payload, which is empty while a goroutine with a stack runs: the closure has left it, and the result is not there yet.
//!
//! # Protocol
//! The reason of the wait says that there is a will. It goes by CAS, so either the goroutine has it back, or one other carries it out.
//! goroutine: 1 `make_will`  2 queue up, and park  3 close the call  4 `revoke_will`: refused: somebody has carried it out, so it stops for good
//! others:    it was taken out of a queue that nobody serves any more, or its thread is frozen with it, and it does not wait: `take_will`; or it was woken from
//!            elsewhere when all had stopped (`Call::wake_to_give`): `take_will`, and what it was woken for goes to the next at once
//!
//! # Context
//! Made in RT, revoked and carried out in user context.

use std::sync::atomic::Ordering::*;

use runnext_core::park;

use super::{After, G, WaitReason};

const _: () = assert!(size_of::<After>() <= super::INLINE);

impl G {
    /// Says what is to be done if it is woken from its next wait, for this reason, and never runs again. By itself, in a call. Those
    /// without a stack have no room for it.
    pub(crate) fn make_will(&self, reason: WaitReason, will: After) {
        debug_assert!(reason.has_will() && self.has_stack());
        // SAFETY: it runs, so its payload is empty, and as large and aligned as a will; others read it only once they have won the CAS below.
        unsafe { self.payload().cast::<After>().write(will) };
        self.cold().reason.store(reason as u8, Release);
    }

    /// It runs again, and nothing is to be done for it. False: it is done already.
    #[must_use]
    pub(crate) fn revoke_will(&self, reason: WaitReason) -> bool {
        let (old, none) = (reason as u8, WaitReason::None as u8);
        let reason = &self.cold().reason;
        reason.compare_exchange(old, none, AcqRel, Acquire).is_ok()
    }

    /// What is to be done for it, if it has been woken since it made a will. By the one that took it out of a queue that nobody serves any more, or whose
    /// thread is frozen with it.
    pub(crate) fn take_will(&self) -> Option<After> {
        let reason = self.reason();
        let woken = self.state.get() != park::WAITING;
        if !woken || !reason.has_will() || !self.has_stack() || !self.revoke_will(reason) {
            return None;
        }
        // SAFETY: written before the reason, which was ours to take.
        Some(unsafe { self.payload().cast::<After>().read() })
    }
}

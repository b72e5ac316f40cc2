//! The end of a goroutine: handles, result, the way of its header back to the slab.
//!
//! The word and its protocol are `runnext_core::life`, and model-checked there; its invariants are cited from here as `life::I1` and so on. Here is
//! what it guards:
//!
//! | what                          | who may use it                                                                       |
//! |-------------------------------|--------------------------------------------------------------------------------------|
//! | the result, and TAKEN          | the goroutine before DONE; after it the `JoinHandle`, or the goroutine if it is unwanted |
//! | `ext` (name, locals), `group`  | whoever has a reference; the goroutine before DONE, and after it while it is held       |
//! | `joiner`                       | the `JoinHandle`; the goroutine, once told                                             |
//!
//! Results and local values are others' code: they are dropped in user context. No reference ever drops one, so the last of them may go anywhere.

use std::ptr;
use std::sync::atomic::Ordering::*;

use runnext_core::life::{Finished, GivenUp};

use super::{G, Locals};

/// Set in `stack_class` when the result has been moved out.
pub(super) const TAKEN: u8 = 0x80;

impl G {
    #[inline]
    pub(crate) fn add_ref(&self) {
        self.cold().life.add_ref();
    }

    /// Nobody has a handle to it. By who made it, before it is queued.
    pub(crate) fn disown(&self) {
        self.cold().life.disown();
    }

    /// Whether it has ended.
    pub(crate) fn is_done(&self) -> bool {
        self.cold().life.is_done()
    }

    /// Its number, if it has begun and not ended. From anywhere.
    pub(crate) fn alive(&self) -> Option<u64> {
        self.cold().life.is_alive().then(|| self.id())
    }

    /// Registers who is to be woken at the end; `foreign`: that is running others' code. False: it has ended already, nobody will be woken.
    ///
    /// Only the holder of the one `JoinHandle` calls this, while nobody is registered.
    pub(crate) fn register_joiner(&self, waiter: usize, foreign: bool) -> bool {
        let cold = self.cold();
        cold.joiner.store(waiter, Relaxed);
        cold.life.register(foreign)
    }

    /// Who is registered, if anybody. By the holder of the one `JoinHandle`.
    pub(crate) fn joiner(&self) -> Option<usize> {
        let cold = self.cold();
        cold.life.is_registered().then(|| cold.joiner.load(Relaxed))
    }

    /// Takes back who was registered. None: it has ended, and whoever ended it has woken, or will wake, that one.
    ///
    /// Only the holder of the one `JoinHandle` calls this, while somebody is registered.
    pub(crate) fn withdraw_joiner(&self) -> Option<usize> {
        let cold = self.cold();
        cold.life.withdraw().then(|| cold.joiner.load(Relaxed))
    }

    /// The goroutine is about to end, in user context: drops what nobody wants.
    ///
    /// # Safety
    /// By the goroutine, with its result in the payload.
    #[inline]
    pub(crate) unsafe fn clean(&self) {
        if self.cold().life.is_unwanted() {
            // SAFETY: unwanted, so it is the goroutine's own to drop (I1).
            unsafe { self.drop_result() };
            self.drop_locals(); // that was others' code
            if self.cold().life.is_detached() {
                // SAFETY: I2 would name the goroutine itself, and nothing here makes another reference now.
                unsafe { self.drop_ext() };
            }
        }
    }

    /// The goroutine ends: its local values go, in user context. All of them: they need not be `Send`, and whoever drops
    /// the last handle to the goroutine may be another one.
    #[inline]
    pub(crate) fn drop_locals(&self) {
        if self.has_ext() {
            self.drop_ext_locals();
        }
    }

    fn drop_ext_locals(&self) {
        // SAFETY: the goroutine itself, in user context; the reference ends before anybody else's code runs.
        Locals::drop_all(|look| look(&mut unsafe { self.ext() }.locals));
    }

    /// The goroutine has left its result in the payload. Returns who waits for it, if anybody, and whether it is held: then others' code
    /// may run on it, and [`let_go`](Self::let_go) follows.
    #[inline]
    pub(crate) fn finish(&self) -> (Option<usize>, bool) {
        let cold = self.cold();
        let unclean = !self.is_result_taken() || self.has_ext() || self.is_grouped();
        let Finished { told, held } = cold.life.finish(unclean);
        (told.then(|| cold.joiner.load(Relaxed)), held)
    }

    /// No more of others' code runs on the goroutine, but for what is dropped here. In user context.
    ///
    /// # Safety
    /// By the goroutine, once, after [`finish`](Self::finish) said that it is held.
    pub(crate) unsafe fn let_go(&self) {
        if self.cold().life.is_unwanted() {
            // SAFETY: the handle went after `clean` had looked, and before DONE (I1).
            unsafe { self.drop_result() };
        }
        self.drop_locals(); // that was others' code, and so was the waker
        let last = self.drop_ref();
        debug_assert!(!last, "its M has not left");
    }

    /// Marks the result as moved out.
    ///
    /// # Safety
    /// The caller, whose the result is (I1), has moved it out of the payload.
    pub(crate) unsafe fn result_taken(&self) {
        let class = &self.cold().stack_class;
        class.set(class.get() | TAKEN);
    }

    /// Whether its result has been taken. By whose it is (I1).
    pub(crate) fn is_result_taken(&self) -> bool {
        self.cold().stack_class.get() & TAKEN != 0
    }

    /// Drops the result, if nobody took it.
    ///
    /// SAFETY of callers: it is in the payload, and theirs (I1).
    unsafe fn drop_result(&self) {
        if !self.is_result_taken() {
            // SAFETY: the result is in the payload, and nobody else looks.
            unsafe {
                self.result_taken();
                (self.vtable().drop_result)(self);
            }
        }
    }

    /// Drops `ext` and the group, in user context.
    ///
    /// SAFETY of callers: I2 names them.
    #[inline(always)] // at the end of every goroutine, and most have neither
    unsafe fn drop_ext(&self) {
        // SAFETY: passed on.
        unsafe { self.drop_group() };
        if self.has_ext() {
            // SAFETY: passed on.
            unsafe { self.free_ext() };
        }
    }

    /// SAFETY of callers: I2 names them.
    #[cold]
    unsafe fn free_ext(&self) {
        let ext = self.cold().ext.swap(ptr::null_mut(), AcqRel);
        // SAFETY: made by `Box::into_raw`, and by I2 nobody else takes it.
        drop(unsafe { Box::from_raw(ext) });
    }

    /// The M has taken the stack and will not touch the header again. True: no handle is left and the
    /// caller must return the header to the slab (I3).
    #[inline]
    pub(crate) fn leave_cpu(&self) -> bool {
        self.state.set_dead();
        self.cold().life.leave_cpu()
    }

    /// The one `JoinHandle` goes, in user context. Returns who was registered and will not be told, and whether the caller must return
    /// the header to the slab (I3).
    ///
    /// # Safety
    /// By that handle, once, with the reference it counts. If true is not returned the header may be gone.
    #[must_use]
    pub(crate) unsafe fn give_up(&self) -> (Option<usize>, bool) {
        let cold = self.cold();
        let joiner = cold.joiner.load(Relaxed);
        match cold.life.give_up() {
            GivenUp::Before { registered } => (registered.then_some(joiner), false),
            GivenUp::After => {
                // SAFETY: it has ended, and the handle is here: theirs by I1.
                unsafe { self.drop_result() };
                (None, self.drop_ref())
            }
        }
    }

    /// Drops one reference, in user context. True: the caller must return the header to the slab (I3).
    #[must_use]
    pub(crate) fn drop_ref(&self) -> bool {
        // SAFETY: called if I2 names us.
        self.cold().life.drop_ref(|| unsafe { self.drop_ext() })
    }
}

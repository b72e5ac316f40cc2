//! The end of a goroutine: handles, result, the way of its header back to the slab.
//!
//! # The word
//! `life` counts handles and says who cleans up:
//!
//! | bit    | meaning                                   | set by → cleared by                 |
//! |--------|-------------------------------------------|-------------------------------------|
//! | DONE   | the result is in the payload              | the goroutine, at its end → never   |
//! | ONCPU  | the scheduler still uses the header       | spawn → the M that saw it end       |
//! | WAITER | `joiner` names who waits for DONE         | the joiner → the joiner             |
//! | refs   | handles (`JoinHandle`, `Goroutine`), wakers |                                   |
//!
//! Bits are added and subtracted, never or-ed: whoever sets one knows that it is clear, and an addition is one instruction.
//!
//! # Invariants
//! I1  The result and `ext` are dropped in user context by exactly one party: the goroutine if no
//!     handle was left when it set DONE, otherwise whoever drops the last handle after DONE.
//! I2  The header returns to the slab when DONE is set, ONCPU is clear and no handle is left; of the two
//!     parties that can complete that condition exactly one sees it completed.

use std::ptr;
use std::sync::atomic::Ordering::*;

use super::{G, Locals};

const DONE: u64 = 1;
const ONCPU: u64 = 1 << 1;
const WAITER: u64 = 1 << 2;
const REF: u64 = 1 << 8;

/// `life` of one that was just spawned: a handle has it, and the scheduler.
pub(super) const NEWBORN: u64 = ONCPU | REF;

/// Set in `stack_class` when the result has been moved out.
pub(super) const TAKEN: u8 = 0x80;

impl G {
    #[inline]
    pub(crate) fn add_ref(&self) {
        self.cold().life.fetch_add(REF, Relaxed);
    }

    pub(crate) fn is_done(&self) -> bool {
        self.cold().life.load(Acquire) & DONE != 0
    }

    /// Registers who is to be woken at the end. False: it has ended already, nobody will be woken.
    ///
    /// Only the holder of the one `JoinHandle` calls this, while nobody is registered.
    pub(crate) fn register_joiner(&self, waiter: usize) -> bool {
        let cold = self.cold();
        cold.joiner.store(waiter, Relaxed);
        cold.life.fetch_add(WAITER, AcqRel) & DONE == 0
    }

    /// Who is registered, if anybody. By the holder of the one `JoinHandle`.
    pub(crate) fn joiner(&self) -> Option<usize> {
        let cold = self.cold();
        (cold.life.load(Relaxed) & WAITER != 0).then(|| cold.joiner.load(Relaxed))
    }

    /// Takes back who was registered. None: it has ended, and whoever ended it has woken, or will wake, that one.
    ///
    /// Only the holder of the one `JoinHandle` calls this, while somebody is registered.
    pub(crate) fn withdraw_joiner(&self) -> Option<usize> {
        let cold = self.cold();
        let mut old = cold.life.load(Acquire);
        while old & DONE == 0 {
            match cold
                .life
                .compare_exchange_weak(old, old & !WAITER, AcqRel, Acquire)
            {
                Ok(_) => return Some(cold.joiner.load(Relaxed)),
                Err(now) => old = now,
            }
        }
        None
    }

    /// Whether nobody has a handle. Once true it stays so: only a handle makes another, and the goroutine itself is at
    /// its end.
    #[inline]
    pub(crate) fn is_detached(&self) -> bool {
        self.cold().life.load(Acquire) < REF
    }

    /// Drops the result and `ext` of a goroutine that nobody holds: in user context, on its own stack.
    ///
    /// # Safety
    /// The goroutine itself, at its end, having found that it [`is_detached`](Self::is_detached).
    pub(crate) unsafe fn clean_detached(&self) {
        // SAFETY: the one party of I1.
        unsafe { self.drop_result() };
        // That was user code: it may have used locals, and asked for the current goroutine. Then `ext`, which has the name, is
        // left to that handle.
        self.drop_locals();
        if self.is_detached() {
            // SAFETY: the one party of I1, and nothing above makes another handle now.
            unsafe { self.drop_ext() };
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

    /// Whether anything is left for [`clean_detached`](Self::clean_detached). By the goroutine itself.
    pub(crate) fn is_unclean(&self) -> bool {
        !self.is_result_taken() || self.has_ext() || self.is_grouped()
    }

    /// The goroutine has left its result in the payload. Returns who waits for it, if anybody, and whether it was
    /// detached at that moment, so that the cleaning is its own (I1).
    #[inline]
    pub(crate) fn finish(&self) -> (Option<usize>, bool) {
        let cold = self.cold();
        let before = cold.life.fetch_add(DONE, AcqRel);
        (
            (before & WAITER != 0).then(|| cold.joiner.load(Relaxed)),
            before < REF,
        )
    }

    /// Marks the result as moved out.
    ///
    /// # Safety
    /// DONE was seen, and the caller, the only `JoinHandle`, has moved the result out of the payload.
    pub(crate) unsafe fn result_taken(&self) {
        let class = &self.cold().stack_class;
        class.set(class.get() | TAKEN);
    }

    /// Whether its result has been taken. By the one `JoinHandle`, or the party of I1.
    pub(crate) fn is_result_taken(&self) -> bool {
        self.cold().stack_class.get() & TAKEN != 0
    }

    /// I1. SAFETY of callers: DONE is set and the caller is the party I1 names.
    unsafe fn drop_leftovers(&self) {
        // SAFETY: passed on.
        unsafe {
            self.drop_result();
            self.drop_ext();
        }
    }

    /// As `drop_leftovers`, of the result.
    unsafe fn drop_result(&self) {
        if !self.is_result_taken() {
            // SAFETY: the result is in the payload and, by I1, nobody else looks.
            unsafe {
                self.result_taken();
                (self.vtable().drop_result)(self);
            }
        }
    }

    /// As `drop_leftovers`, of `ext` and the group.
    #[inline]
    unsafe fn drop_ext(&self) {
        // SAFETY: passed on.
        unsafe { self.drop_group() };
        if self.has_ext() {
            let ext = self.cold().ext.swap(ptr::null_mut(), AcqRel);
            // SAFETY: made by `Box::into_raw`, and by I1 nobody else takes it.
            drop(unsafe { Box::from_raw(ext) });
        }
    }

    /// The M has taken the stack and will not touch the header again. True: no handle is left and the
    /// caller must return the header to the slab (I2).
    #[inline]
    pub(crate) fn leave_cpu(&self) -> bool {
        self.state.set_dead();
        self.cold().life.fetch_sub(ONCPU, AcqRel) < REF
    }

    /// Drops one handle, in user context. True: the caller must return the header to the slab (I2).
    #[must_use]
    pub(crate) fn drop_ref(&self) -> bool {
        let life = &self.cold().life;
        let mut old = life.load(Acquire);
        loop {
            if old & DONE != 0 && old < 2 * REF {
                // The last handle of an ended goroutine: nobody can make another, so there is no hurry
                // to let go. Clean first (I1), then see whether the M has left (I2).
                // SAFETY: DONE is set and I1 names the last handle.
                unsafe { self.drop_leftovers() };
                // The M left before our look, so nobody else counts on the word.
                return old & ONCPU == 0 || life.fetch_sub(REF, AcqRel) & ONCPU == 0;
            }
            // Not a plain subtraction: DONE may be set between the look and the step, and then the
            // cleaning would be nobody's.
            match life.compare_exchange_weak(old, old - REF, AcqRel, Acquire) {
                Ok(_) => return false,
                Err(now) => old = now,
            }
        }
    }
}

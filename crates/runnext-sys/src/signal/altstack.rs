//! The alternate signal stack of one thread: where handlers run when the thread's own stack may be
//! a goroutine's small one, or overflown.

use crate::map::{Guard, Region, page_size};
use libc::stack_t;
use std::io;
use std::marker::PhantomData;
use std::mem::MaybeUninit;
use std::ptr;

/// The least size, whatever the kernel needs for its part.
const MIN_SIZE: usize = 64 * 1024;

/// Room for our handlers and those we chain to, beyond the kernel's frame (which has all vector
/// registers: 11 KiB with AMX).
const HANDLER_ROOM: usize = 32 * 1024;

/// An alternate stack in use by the thread that installed it, with a guard page below.
///
/// Dropping it puts back what the thread had before. It must be dropped on its own thread:
///
/// ```compile_fail
/// let stack = runnext_sys::signal::AltStack::install().unwrap();
/// std::thread::spawn(move || drop(stack)); // error: not Send
/// ```
#[derive(Debug)]
pub struct AltStack {
    region: Option<Region>,
    previous: Previous,
    /// Belongs to a thread: neither `Send` nor `Sync`.
    _thread: PhantomData<*const ()>,
}

struct Previous(stack_t);

impl std::fmt::Debug for Previous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("stack_t")
            .field("sp", &self.0.ss_sp)
            .field("size", &self.0.ss_size)
            .finish()
    }
}

impl AltStack {
    /// Maps a stack and makes it the calling thread's alternate one.
    ///
    /// # Errors
    /// Out of address space; or the call is made on an alternate stack.
    pub fn install() -> io::Result<AltStack> {
        let page = page_size();
        let region = Region::reserve(usable_size() + page, page, false)?;
        // One guard for each thread is few: take the kind that works everywhere, and in a core
        // dump.
        region.guard(Guard::Mprotect, 0, page)?;
        let stack = stack_t {
            ss_sp: region.base().wrapping_add(page).cast(),
            ss_flags: 0,
            ss_size: region.len() - page,
        };
        let mut previous = MaybeUninit::uninit();
        // SAFETY: the stack is ours and stays mapped until Drop has taken it out of use.
        if unsafe { libc::sigaltstack(&stack, previous.as_mut_ptr()) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call succeeded, so the kernel wrote it.
        let previous = Previous(unsafe { previous.assume_init() });
        Ok(AltStack {
            region: Some(region),
            previous,
            _thread: PhantomData,
        })
    }
}

impl Drop for AltStack {
    fn drop(&mut self) {
        let mut previous = self.previous.0;
        previous.ss_flags &= libc::SS_DISABLE;
        // SAFETY: what the thread had before us; its owner keeps it mapped as long as it did
        // without us.
        let restored = unsafe { libc::sigaltstack(&previous, ptr::null_mut()) } == 0;
        if !restored && let Some(region) = self.region.take() {
            // A handler is running on it (it unwound or longjumped here): the memory must stay.
            region.leak();
        }
    }
}

/// Bytes above the guard: what the kernel's frame needs on this CPU, and room for the handlers.
pub(super) fn usable_size() -> usize {
    // SAFETY: no preconditions; zero if the kernel does not say.
    let frame = unsafe { libc::getauxval(libc::AT_MINSIGSTKSZ) } as usize;
    (frame + HANDLER_ROOM)
        .max(MIN_SIZE)
        .next_multiple_of(page_size())
}

//! aarch64: `svc`, the virtual counter, `ucontext_t`.

use core::arch::asm;
use libc::{c_void, ucontext_t};

/// Issues system call `nr`; see the table in [`super`].
///
/// # Safety
/// As for the call itself: pointers among `args` must be what the kernel takes them for.
#[inline(always)]
pub(crate) unsafe fn syscall(nr: usize, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the caller vouches for the arguments. `svc` changes x0 only and uses no user stack.
    unsafe {
        asm!(
            "svc #0",
            in("x8") nr,
            inlateout("x0") args[0] as isize => ret,
            in("x1") args[1],
            in("x2") args[2],
            in("x3") args[3],
            in("x4") args[4],
            in("x5") args[5],
            options(nostack),
        );
    }
    ret
}

/// The virtual counter.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    let value: u64;
    // SAFETY: Linux lets user mode read cntvct_el0 (its own vDSO does).
    unsafe { asm!("mrs {}, cntvct_el0", out(reg) value, options(nomem, nostack, preserves_flags)) };
    value
}

/// The architecture promises a constant rate.
pub(crate) fn ticks_are_steady() -> bool {
    true
}

/// The rate the firmware states; none if it left the register empty.
pub(crate) fn ticks_hz() -> Option<u64> {
    let hz: u64;
    // SAFETY: cntfrq_el0 is readable wherever cntvct_el0 is.
    unsafe { asm!("mrs {}, cntfrq_el0", out(reg) hz, options(nomem, nostack, preserves_flags)) };
    (hz != 0).then_some(hz)
}

/// # Safety
/// `ctx` is the third argument of a running `SA_SIGINFO` handler.
pub(crate) unsafe fn pc(ctx: *const c_void) -> usize {
    // SAFETY: by the contract it points to a ucontext_t that lives as long as the handler runs.
    unsafe { (*ctx.cast::<ucontext_t>()).uc_mcontext.pc as usize }
}

/// # Safety
/// As for [`pc`].
pub(crate) unsafe fn sp(ctx: *const c_void) -> usize {
    // SAFETY: as in `pc`.
    unsafe { (*ctx.cast::<ucontext_t>()).uc_mcontext.sp as usize }
}

/// Asks for a cache line that will be read soon. Any address will do: nothing is accessed.
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    // SAFETY: a hint; it has no effect on registers or memory.
    unsafe {
        core::arch::asm!("prfm pldl1keep, [{}]", in(reg) line, options(nostack, readonly, preserves_flags));
    }
}

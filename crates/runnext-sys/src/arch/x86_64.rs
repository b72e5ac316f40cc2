//! x86-64: `syscall`, the time-stamp counter, `ucontext_t`.

use core::arch::{asm, x86_64};
use libc::{c_void, ucontext_t};

/// Issues system call `nr`; see the table in [`super`].
///
/// # Safety
/// As for the call itself: pointers among `args` must be what the kernel takes them for.
#[inline(always)]
pub(crate) unsafe fn syscall(nr: usize, args: [usize; 6]) -> isize {
    let ret: isize;
    // SAFETY: the caller vouches for the arguments. `syscall` clobbers rcx and r11 only, and uses
    // no user stack, so the red zone is safe.
    unsafe {
        asm!(
            "syscall",
            inlateout("rax") nr as isize => ret,
            in("rdi") args[0],
            in("rsi") args[1],
            in("rdx") args[2],
            in("r10") args[3],
            in("r8") args[4],
            in("r9") args[5],
            lateout("rcx") _,
            lateout("r11") _,
            options(nostack),
        );
    }
    ret
}

/// The time-stamp counter.
#[inline(always)]
pub(crate) fn ticks() -> u64 {
    // SAFETY: every x86-64 CPU has rdtsc; Linux leaves it enabled in user mode.
    unsafe { x86_64::_rdtsc() }
}

/// Whether the CPU promises an invariant TSC (leaf 8000_0007h, EDX bit 8).
pub(crate) fn ticks_are_steady() -> bool {
    const ADVANCED_POWER: u32 = 0x8000_0007;
    const INVARIANT_TSC: u32 = 1 << 8;
    // `__cpuid` is unsafe up to Rust 1.93 and safe since; both are supported.
    #[allow(unused_unsafe)]
    // SAFETY: every x86-64 CPU has cpuid; the second leaf is read only if the first lists it.
    unsafe {
        x86_64::__cpuid(0x8000_0000).eax >= ADVANCED_POWER
            && x86_64::__cpuid(ADVANCED_POWER).edx & INVARIANT_TSC != 0
    }
}

/// Always unknown: leaf 15h is empty on AMD, and under a hypervisor that scales the TSC it may be
/// the host's. Measuring is right everywhere.
pub(crate) fn ticks_hz() -> Option<u64> {
    None
}

/// # Safety
/// `ctx` is the third argument of a running `SA_SIGINFO` handler.
pub(crate) unsafe fn pc(ctx: *const c_void) -> usize {
    // SAFETY: by the contract it points to a ucontext_t that lives as long as the handler runs.
    unsafe { (*ctx.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RIP as usize] as usize }
}

/// # Safety
/// As for [`pc`].
pub(crate) unsafe fn sp(ctx: *const c_void) -> usize {
    // SAFETY: as in `pc`.
    unsafe { (*ctx.cast::<ucontext_t>()).uc_mcontext.gregs[libc::REG_RSP as usize] as usize }
}

/// Asks for a cache line that will be read soon. Any address will do: nothing is accessed.
#[inline(always)]
pub(crate) fn prefetch(line: *const u8) {
    // SAFETY: a hint; SSE is part of the architecture's baseline.
    unsafe { core::arch::x86_64::_mm_prefetch::<{ core::arch::x86_64::_MM_HINT_T0 }>(line.cast()) };
}

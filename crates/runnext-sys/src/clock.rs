//! Clocks: monotonic nanoseconds, CPU ticks, and CPU time of this and other threads.
//!
//! # Why this shape
//! Timers and deadlines use `CLOCK_MONOTONIC`, the clock the kernel sleeps by. Accounting reads
//! *ticks*, which are cheaper, and turns differences into nanoseconds later. CPU time costs a
//! system call and is read on the monitor's tick, and of threads that groups pay for (`cargo run --release -p runnext-sys
//! --example costs` prints what each costs here).
//! Rejected: `std::time::Instant` (opaque, cannot be handed to a futex); the frequency from CPUID
//! (absent on AMD, sometimes the host's under virtualisation); a clock page of our own.
//!
//! # Words
//! *tick*: one count of the CPU's counter (TSC, cntvct), or one nanosecond where that is not
//! trustworthy. *steady*: same rate on every CPU, in every power state.
//!
//! | `SOURCE`    | meaning                                          | changed by            |
//! |-------------|--------------------------------------------------|-----------------------|
//! | `UNKNOWN`   | nobody asked yet                                 |                       |
//! | `COUNTER`   | ticks are the CPU's counter                      | first caller          |
//! | `MONOTONIC` | ticks are `now_ns()`: the counter is not steady  | first caller          |
//!
//! # Calibration
//! 1 the first use takes an *anchor*: ticks and monotonic time, read together
//! 2 the first conversion takes a second pair at least 2 ms later, waiting for what is left of them
//! 3 `SCALE = ns / ticks`, in 32.32 fixed point, is published once and never changes
//!
//! [`init`] does step 1 early, so that normally nobody waits in step 2.
//!
//! # Invariants
//! I1  `SOURCE` and `SCALE` change once. Racing first callers come to the same source; of their
//!     scales one wins.
//! I2  A pair that a preemption pulled apart is not used: of several, the closest is taken.
//!
//! # Context
//! Everything is async-signal-safe, also the first call (it may spin 2 ms; call [`init`] before
//! installing handlers).
//!
//! Tests: `clock/tests.rs`. Tunables: CALIBRATION 2 ms (a pair is good to about 50 ns, so 50 ppm).

use crate::{arch, errno, syscall};
use libc::{clockid_t, timespec};
use std::sync::atomic::{AtomicU8, AtomicU64, Ordering::*};

#[cfg(test)]
mod tests;

const CALIBRATION_NS: u64 = 2_000_000;
const NS_PER_S: u64 = 1_000_000_000;

const UNKNOWN: u8 = 0;
const COUNTER: u8 = 1;
const MONOTONIC: u8 = 2;
static SOURCE: AtomicU8 = AtomicU8::new(UNKNOWN);

/// Nanoseconds per tick, times 2^32; zero until calibrated.
static SCALE: AtomicU64 = AtomicU64::new(0);

/// Nanoseconds of `CLOCK_MONOTONIC`.
///
/// ```
/// let a = runnext_sys::clock::now_ns();
/// assert!(runnext_sys::clock::now_ns() >= a);
/// ```
#[inline]
pub fn now_ns() -> u64 {
    // The vDSO answers without a system call, and cannot fail for this clock.
    read(libc::CLOCK_MONOTONIC).unwrap_or(0)
}

/// The CPU's tick counter: cheap, unserialised, of unknown rate (see [`ticks_to_ns`]).
#[inline]
pub fn ticks() -> u64 {
    if SOURCE.load(Relaxed) == COUNTER {
        arch::ticks()
    } else {
        slow_ticks()
    }
}

#[cold]
fn slow_ticks() -> u64 {
    if SOURCE.load(Relaxed) == UNKNOWN {
        init();
    }
    if SOURCE.load(Relaxed) == COUNTER {
        arch::ticks()
    } else {
        now_ns()
    }
}

/// Turns a difference of two [`ticks`] into nanoseconds.
///
/// ```
/// use runnext_sys::clock;
/// clock::init();
/// let start = clock::ticks();
/// let elapsed_ns = clock::ticks_to_ns(clock::ticks().saturating_sub(start));
/// # let _ = elapsed_ns;
/// ```
///
/// # Blocks
/// The first call in the process may spin for up to 2 ms, less what has passed since [`init`].
#[inline]
pub fn ticks_to_ns(delta: u64) -> u64 {
    let scale = SCALE.load(Relaxed);
    let scale = if scale != 0 { scale } else { calibrate() };
    ((u128::from(delta) * u128::from(scale)) >> 32) as u64
}

/// Chooses the source of [`ticks`] and starts calibrating it. Optional and cheap; a runtime calls
/// it when it starts, so that the first [`ticks_to_ns`] finds the 2 ms gone by.
pub fn init() {
    if SOURCE.load(Relaxed) == UNKNOWN {
        let steady = arch::ticks_are_steady() && !kernel_rejected_counter();
        SOURCE.store(if steady { COUNTER } else { MONOTONIC }, Relaxed);
    }
    anchor();
}

/// Whether the kernel had the counter as a clock and dropped it for a slower one, as it does when
/// its watchdog finds it drifting. A paravirtual clock (`kvm-clock`, `hyperv…`, `xen`) is no such
/// verdict.
fn kernel_rejected_counter() -> bool {
    let path = c"/sys/devices/system/clocksource/clocksource0/current_clocksource";
    let mut name = [0u8; 16];
    // SAFETY: a NUL-terminated path; the descriptor is ours and closed below; the buffer is alive
    // and its length is the one given.
    let len = unsafe {
        let fd = syscall!(
            libc::SYS_openat,
            libc::AT_FDCWD,
            path.as_ptr(),
            libc::O_RDONLY | libc::O_CLOEXEC
        );
        if fd < 0 {
            return false;
        }
        let len = syscall!(libc::SYS_read, fd, name.as_mut_ptr(), name.len());
        syscall!(libc::SYS_close, fd);
        len
    };
    is_fallback_clock(name.get(..usize::try_from(len).unwrap_or(0)).unwrap_or(&[]))
}

fn is_fallback_clock(name: &[u8]) -> bool {
    [&b"hpet"[..], b"acpi_pm", b"jiffies", b"refined-jiffies"]
        .iter()
        .any(|slow| name.starts_with(slow))
}

/// Ticks and monotonic time at one moment.
#[derive(Clone, Copy)]
struct Pair {
    ticks: u64,
    ns: u64,
}

impl Pair {
    /// Reads the clock between two reads of the counter, a few times, and keeps the closest (I2).
    fn sample() -> Pair {
        let mut best = (u64::MAX, Pair { ticks: 0, ns: 0 });
        for _ in 0..8 {
            let before = arch::ticks();
            let ns = now_ns();
            let width = arch::ticks().wrapping_sub(before);
            if width < best.0 {
                best = (
                    width,
                    Pair {
                        ticks: before.wrapping_add(width / 2),
                        ns,
                    },
                );
            }
        }
        best.1
    }
}

/// The first pair of the process. If another thread, or the code this handler interrupted, is
/// just writing it, a fresh one does as well: it only means spinning the 2 ms.
fn anchor() -> Pair {
    const EMPTY: u8 = 0;
    const BUSY: u8 = 1;
    const READY: u8 = 2;
    static STATE: AtomicU8 = AtomicU8::new(EMPTY);
    static TICKS: AtomicU64 = AtomicU64::new(0);
    static NS: AtomicU64 = AtomicU64::new(0);

    if STATE.load(Acquire) == READY {
        return Pair {
            ticks: TICKS.load(Relaxed),
            ns: NS.load(Relaxed),
        };
    }
    let pair = Pair::sample();
    if STATE
        .compare_exchange(EMPTY, BUSY, Relaxed, Relaxed)
        .is_ok()
    {
        TICKS.store(pair.ticks, Relaxed);
        NS.store(pair.ns, Relaxed);
        STATE.store(READY, Release);
    }
    pair
}

#[cold]
fn calibrate() -> u64 {
    init();
    let scale = if SOURCE.load(Relaxed) == MONOTONIC {
        1 << 32
    } else if let Some(hz) = arch::ticks_hz() {
        (NS_PER_S << 32) / hz
    } else {
        measure(anchor())
    };
    // I1: the first scale stays, so that equal differences always give equal times.
    match SCALE.compare_exchange(0, scale, Relaxed, Relaxed) {
        Ok(_) => scale,
        Err(first) => first,
    }
}

/// Nanoseconds per tick in 32.32 from `start` to a moment at least `CALIBRATION_NS` later.
fn measure(start: Pair) -> u64 {
    loop {
        let end = Pair::sample();
        let ns = end.ns.saturating_sub(start.ns);
        if ns >= CALIBRATION_NS {
            let ticks = end.ticks.wrapping_sub(start.ticks).max(1);
            return ((u128::from(ns) << 32) / u128::from(ticks)).clamp(1, u128::from(u64::MAX))
                as u64;
        }
        std::hint::spin_loop();
    }
}

/// CPU time the calling thread has used, in nanoseconds. A system call.
pub fn thread_cpu_ns() -> u64 {
    read(libc::CLOCK_THREAD_CPUTIME_ID).unwrap_or(0)
}

/// The CPU clock of one thread of this process, readable from any other.
///
/// ```
/// use runnext_sys::{clock::ThreadCpu, thread};
/// let me = ThreadCpu::of(thread::tid());
/// assert!(me.read().is_some());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ThreadCpu(clockid_t);

impl ThreadCpu {
    /// The clock of thread `tid`. Nothing is opened and nothing needs closing.
    pub fn of(tid: i32) -> Self {
        // The kernel's encoding of "a thread's scheduler clock": the complement of the id above
        // three bits.
        const PER_THREAD: clockid_t = 4;
        const SCHED: clockid_t = 2;
        ThreadCpu((!tid << 3) | PER_THREAD | SCHED)
    }

    /// CPU time used so far in nanoseconds; `None` once the thread is gone.
    pub fn read(self) -> Option<u64> {
        read(self.0)
    }
}

#[inline]
fn read(clock: clockid_t) -> Option<u64> {
    let mut now = timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    let ret = if clock == libc::CLOCK_MONOTONIC {
        // SAFETY: the timespec is alive and writable. Cannot fail, so errno stays as it is.
        unsafe { libc::clock_gettime(clock, &mut now) }
    } else {
        // SAFETY: as above; an unknown clock is reported.
        errno::preserved(|| unsafe { libc::clock_gettime(clock, &mut now) })
    };
    (ret == 0).then(|| now.tv_sec as u64 * NS_PER_S + now.tv_nsec as u64)
}

/// Nanoseconds as the kernel wants them.
#[inline]
pub(crate) fn timespec(ns: u64) -> timespec {
    timespec {
        tv_sec: (ns / NS_PER_S) as libc::time_t,
        tv_nsec: (ns % NS_PER_S) as libc::c_long,
    }
}

//! OS threads as the kernel sees them: their ids, where they may run, whether one is asleep,
//! and how long a turn it wants on a CPU.
//!
//! # Why this shape
//! The monitor judges from outside whether a thread that runs user code is blocked in the kernel.
//! It must not disturb it, so it asks `/proc` through a descriptor that it may keep ([`StatReader`]):
//! a few microseconds, no allocation, also where it is opened. Rejected: `/proc/…/syscall` and `wchan` (need ptrace
//! rights), a probing signal (the blocked call would see EINTR).
//!
//! # Context
//! [`tid`], [`cpu`] and [`StatReader`] are async-signal-safe.
//!
//! Tests: `thread/tests.rs`.

use crate::syscall;
use std::io::{self, Write};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

#[cfg(test)]
mod tests;

/// The kernel's id of the calling thread.
///
/// Asked anew each time and never inlined: a goroutine that parked may go on under another id.
#[inline(never)]
pub fn tid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall!(libc::SYS_gettid) as i32 }
}

pub(crate) fn pid() -> i32 {
    // SAFETY: no arguments, cannot fail.
    unsafe { syscall!(libc::SYS_getpid) as i32 }
}

/// Sends signal `signo` to thread `tid` of this process, like any program.
#[cfg(test)]
pub(crate) fn tgkill(tid: i32, signo: i32) -> io::Result<()> {
    crate::check(send(tid, signo)).map(drop)
}

/// Sends signal `signo` to the calling thread, if there is such a signal.
pub(crate) fn raise(signo: i32) {
    send(tid(), signo);
}

fn send(tid: i32, signo: i32) -> isize {
    // SAFETY: integers only. What the signal does is up to its disposition.
    unsafe { syscall!(libc::SYS_tgkill, pid(), tid, signo) }
}

/// The CPU the caller is on, or was just now. Async-signal-safe, and no system call.
///
/// ```
/// let here = runnext_sys::thread::cpu();
/// assert!(here < 1 << 20);
/// ```
#[inline]
pub fn cpu() -> usize {
    // SAFETY: no arguments. Where the kernel does not tell it says -1, which is no CPU of any set.
    unsafe { libc::sched_getcpu() as usize }
}

/// The CPUs a thread may run on. On machines with more than 1,024 there is none to be had.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct CpuSet([u64; 16]);

impl CpuSet {
    /// Those of thread `tid` of this process; 0 is the caller. Async-signal-safe.
    ///
    /// ```
    /// use runnext_sys::thread::CpuSet;
    /// let mine = CpuSet::of(0).unwrap();
    /// let here = CpuSet::only(runnext_sys::thread::cpu()).unwrap();
    /// assert!(mine.contains(&here));
    /// # let _ = here.bind(0); assert!(mine.bind(0));
    /// ```
    pub fn of(tid: i32) -> Option<CpuSet> {
        let mut set = CpuSet([0; 16]);
        let size = size_of_val(&set.0);
        // SAFETY: the kernel writes at most as many bytes as given.
        let len = unsafe { syscall!(libc::SYS_sched_getaffinity, tid, size, &raw mut set.0) };
        (len > 0).then_some(set)
    }

    /// One CPU only.
    pub fn only(cpu: usize) -> Option<CpuSet> {
        let mut set = CpuSet([0; 16]);
        *set.0.get_mut(cpu / 64)? = 1 << (cpu % 64);
        Some(set)
    }

    /// How many they are.
    pub fn len(&self) -> usize {
        self.0.iter().map(|word| word.count_ones() as usize).sum()
    }

    /// Whether there is none: never so for a thread's own.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The CPU that follows `cpu` in this set, round and round.
    pub fn after(&self, cpu: usize) -> Option<usize> {
        let all = 64 * self.0.len();
        let has = |cpu: &usize| self.0[cpu / 64] >> (cpu % 64) & 1 != 0;
        (1..=all).map(|step| (cpu + step) % all).find(has)
    }

    /// Whether all CPUs of `other` are in this set.
    pub fn contains(&self, other: &CpuSet) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(all, some)| some & !all == 0)
    }

    /// Lets thread `tid` of this process (0 is the caller) run on these CPUs only. Async-signal-safe. False: the kernel refuses.
    pub fn bind(&self, tid: i32) -> bool {
        let size = size_of_val(&self.0);
        // SAFETY: the kernel reads as many bytes as given.
        unsafe { syscall!(libc::SYS_sched_setaffinity, tid, size, &raw const self.0) == 0 }
    }
}

/// Tells the state of one thread of this process, again and again, cheaply.
///
/// ```
/// use runnext_sys::thread::{StatReader, tid};
/// let me = StatReader::open(tid())?;
/// assert_eq!(me.state(), Some(b'R')); // whoever asks about himself is running
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct StatReader {
    stat: OwnedFd,
}

impl StatReader {
    /// Opens the kernel's record of thread `tid` of this process.
    ///
    /// # Errors
    /// `NotFound` if there is no such thread or no `/proc`; running out of descriptors.
    pub fn open(tid: i32) -> io::Result<Self> {
        let mut path = [0u8; 48]; // with a zero behind it
        write!(&mut path[..47], "/proc/self/task/{tid}/stat")?;
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        // SAFETY: the path ends with a zero.
        let fd = unsafe { syscall!(libc::SYS_openat, libc::AT_FDCWD, path.as_ptr(), flags) };
        let fd = crate::check(fd)? as RawFd;
        // SAFETY: just opened, and nobody else's.
        let stat = unsafe { OwnedFd::from_raw_fd(fd) };
        Ok(StatReader { stat })
    }

    /// The state letter: `R` running or ready, `S` asleep, `D` asleep uninterruptibly, `T` or `t`
    /// stopped, `Z` or `X` ended. `None` once the thread is gone.
    pub fn state(&self) -> Option<u8> {
        // "tid (name) S ": the name has up to 63 bytes, of any kind.
        let mut text = [0u8; 128];
        state_in(self.read(&mut text)?)
    }

    /// The CPU it is on, if it runs or is ready to. `None` if it does neither.
    ///
    /// ```
    /// use runnext_sys::thread::{StatReader, tid};
    /// assert!(StatReader::open(tid())?.computes_on().is_some());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn computes_on(&self) -> Option<usize> {
        let mut text = [0u8; 1024]; // all of it: 52 numbers of up to 20 digits, of which most have few
        let text = self.read(&mut text)?;
        (state_in(text)? == b'R').then_some(())?;
        cpu_in(text)
    }

    fn read<'a>(&self, text: &'a mut [u8]) -> Option<&'a [u8]> {
        let fd = self.stat.as_raw_fd();
        // SAFETY: the buffer is alive and its length is the one given.
        let n = unsafe { syscall!(libc::SYS_pread64, fd, text.as_mut_ptr(), text.len(), 0) };
        text.get(..usize::try_from(n).ok()?)
    }
}

/// The number of the CPU: the 37th word from the state on.
fn cpu_in(stat: &[u8]) -> Option<usize> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    let word = stat
        .get(end_of_name + 2..)?
        .split(|&byte| byte == b' ')
        .nth(36)?;
    std::str::from_utf8(word).ok()?.parse().ok()
}

/// The letter after the last ") ". The name may contain that too, but only numbers follow the
/// letter.
fn state_in(stat: &[u8]) -> Option<u8> {
    let end_of_name = stat.iter().rposition(|&byte| byte == b')')?;
    stat.get(end_of_name + 2).copied()
}

/// Asks the scheduler to give the calling thread turns of about `slice_ns` on a CPU: short for one
/// that must start soon after waking, long for one that computes.
///
/// Linux honours it since 6.12, from 0.1 to 100 ms, without privilege; older kernels accept and
/// ignore it. Zero asks for the system's default again. Nice value and policy stay; threads that
/// this one starts inherit the wish. False if the thread is not under the normal policy or the
/// kernel refuses.
///
/// ```
/// std::thread::spawn(|| runnext_sys::thread::request_slice(100_000)).join().unwrap();
/// ```
pub fn request_slice(slice_ns: u64) -> bool {
    const THIS_THREAD: i32 = 0;
    let size = size_of::<libc::sched_attr>();
    // SAFETY: a plain structure of integers, for which zero is valid.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    // SAFETY: the kernel writes at most `size` bytes into it.
    let got = unsafe { syscall!(libc::SYS_sched_getattr, THIS_THREAD, &raw mut attr, size, 0) };
    let normal = [libc::SCHED_OTHER as u32, libc::SCHED_BATCH as u32].contains(&attr.sched_policy);
    if got < 0 || !normal {
        return false;
    }
    attr.size = size as u32;
    attr.sched_flags &= libc::SCHED_FLAG_RESET_ON_FORK as u64;
    attr.sched_runtime = slice_ns;
    // SAFETY: reads the structure only.
    unsafe { syscall!(libc::SYS_sched_setattr, THIS_THREAD, &raw const attr, 0) == 0 }
}

/// Puts the calling thread before all normal ones (`SCHED_FIFO`, lowest level): for a measuring instrument that sleeps most of
/// the time and must not be late. Threads it starts are normal again. False without the privilege.
///
/// ```
/// std::thread::spawn(|| runnext_sys::thread::request_realtime()).join().unwrap();
/// ```
pub fn request_realtime() -> bool {
    // SAFETY: a plain structure of integers, for which zero is valid.
    let mut param: libc::sched_param = unsafe { std::mem::zeroed() };
    param.sched_priority = 1;
    let policy = libc::SCHED_FIFO | libc::SCHED_RESET_ON_FORK;
    // SAFETY: reads the structure only; concerns the calling thread.
    unsafe { syscall!(libc::SYS_sched_setscheduler, 0, policy, &raw const param) == 0 }
}

/// Asks for the calling thread to be preferred to all threads of normal priority (nice -20). False: not without privilege.
///
/// Threads that it starts inherit it.
pub fn request_preference() -> bool {
    const THIS_THREAD: i32 = 0;
    let nice: isize = -20;
    // SAFETY: integers only.
    unsafe { syscall!(libc::SYS_setpriority, libc::PRIO_PROCESS, THIS_THREAD, nice) == 0 }
}

/// Lets the kernel end the calling thread's timed waits no later than `ns` after their time (50 µs
/// by default), against merging wake-ups. Affects futexes, the poller and sleeps.
pub fn set_timer_slack(ns: u64) {
    // Zero would mean "the default"; the least is one nanosecond.
    // SAFETY: integers only; cannot fail for the calling thread.
    unsafe { syscall!(libc::SYS_prctl, libc::PR_SET_TIMERSLACK, ns.max(1)) };
}

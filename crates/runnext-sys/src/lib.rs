//! The Linux underside of [runnext](https://docs.rs/runnext): everything that talks to the
//! kernel or to the CPU, and nothing that knows what a goroutine is.
//!
//! | module     | gives                                                                     |
//! |------------|---------------------------------------------------------------------------|
//! | [`futex`]  | put one thread to sleep on a word, wake it                                |
//! | [`fence`]  | a fence in all threads at once                                            |
//! | [`clock`]  | monotonic time, CPU ticks, CPU time of any thread of the process          |
//! | [`map`]    | address space, guard pages, giving memory back                            |
//! | [`thread`] | thread ids, directed signals, the kernel's view of a thread's state       |
//! | [`signal`] | handlers that chain, alternate stacks, CPU timers, dying properly         |
//! | [`errno`]  | saving and restoring `errno`                                              |
//! | [`limit`]  | which limit is behind an error                                            |
//! | [`cpu`]    | how many CPUs the process may use: affinity and cgroup quota              |
//! | [`poll`]   | readiness of file descriptors, with a breaker                             |
//! | [`ready`]  | the same for one descriptor and one thread, without a poller              |
//! | [`net`]    | connecting and accepting without waiting                                  |
//! | [`inspect`] | the own process: memory that others write, the code that is mapped       |
//! | [`mod@file`] | locks on open files                                                     |
//! | [`fork`]   | whether this process is a copy of another one                             |
//!
//! # Why a crate of its own
//! The runtime above is long; the part that depends on kernel versions and on the instruction
//! set is not. Keeping it here means that `libc`, inline assembly and raw system calls appear
//! nowhere else, and that each promise ("may run in a signal handler") is written once, next to
//! the code that keeps it.
//!
//! # What "async-signal-safe" means here
//! A function so marked takes no lock, allocates nothing, cannot panic, and leaves `errno` as it
//! found it. Most go to the kernel by an instruction of their own rather than through libc, and so
//! never touch `errno` at all.
//!
//! # Platforms
//! Linux on x86-64 (tested) and aarch64 (neither built nor tested by CI). Kernel features newer than 5.4 are
//! probed for at run time and have a fallback.

#[cfg(not(all(
    target_os = "linux",
    target_pointer_width = "64",
    any(target_arch = "x86_64", target_arch = "aarch64")
)))]
compile_error!(
    "runnext runs on 64-bit Linux only, on x86-64 or aarch64: it needs futexes, epoll, \
     per-thread CPU timers and guard pages as Linux has them"
);

mod arch;
pub mod clock;
pub mod cpu;
pub mod errno;
pub mod fence;
pub mod file;
pub mod fork;
pub mod futex;
pub mod inspect;
pub mod limit;
pub mod map;
pub mod net;
pub mod poll;
pub mod ready;
pub mod signal;
pub mod thread;

#[cfg(test)]
mod testing;

use std::io;

/// Issues a system call without going through libc, so that `errno` stays untouched.
///
/// Missing arguments are zero. The value is the kernel's: negative is minus an error number.
macro_rules! syscall {
    ($nr:expr $(, $arg:expr)* $(,)?) => {{
        $crate::arch::syscall($nr as usize, $crate::six([$($arg as usize),*]))
    }};
}
pub(crate) use syscall;

/// Fills up the arguments of a system call with zeroes.
#[inline(always)]
pub(crate) fn six<const N: usize>(args: [usize; N]) -> [usize; 6] {
    let mut all = [0; 6];
    all[..N].copy_from_slice(&args);
    all
}

/// The result of a raw system call as Rust spells it.
#[inline]
pub(crate) fn check(ret: isize) -> io::Result<usize> {
    if ret < 0 {
        Err(io::Error::from_raw_os_error(-ret as i32))
    } else {
        Ok(ret as usize)
    }
}

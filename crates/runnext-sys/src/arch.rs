//! What differs between instruction sets: the system call, the tick counter, the layout of a
//! signal context. One file each, the same functions in both; no other file of the project
//! has inline assembly or names a register.
//!
//! | function                | contract                                                       |
//! |-------------------------|----------------------------------------------------------------|
//! | `syscall(nr, args)`     | raw system call; returns the value, or minus the error number   |
//! | `ticks()`               | the CPU's counter; unserialised                                 |
//! | `ticks_are_steady()`    | counter runs at one rate on all CPUs and never stops            |
//! | `ticks_hz()`            | its rate, if the CPU states it reliably                         |
//! | `pc(ctx)`, `sp(ctx)`    | registers of the interrupted thread                             |
//! | `prefetch(line)`        | a hint that a cache line will be read soon                      |
//!
//! All are async-signal-safe.

#[cfg(target_arch = "aarch64")]
mod aarch64;
#[cfg(target_arch = "x86_64")]
mod x86_64;

#[cfg(target_arch = "aarch64")]
pub(crate) use aarch64::*;
#[cfg(target_arch = "x86_64")]
pub(crate) use x86_64::*;

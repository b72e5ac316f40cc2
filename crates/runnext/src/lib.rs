//! Goroutines for Rust: plain blocking code, in any number of goroutines, on a few threads.
//!
//! [`go`] starts a goroutine. It has a stack of its own, so it may block in any function it calls; its thread then runs
//! other goroutines. Nothing has to be `async` and nothing has to yield: a goroutine that computes for long is preempted, and
//! one that blocks in the kernel loses its processor to others.
//!
//! ```
//! use runnext::{chan, go};
//!
//! #[runnext::main]
//! fn main() {
//!     let (squares, received) = chan::bounded(0);
//!     for i in 0..1000u64 {
//!         let squares = squares.clone();
//!         go(move || squares.send(i * i).unwrap());
//!     }
//!     drop(squares);
//!     assert_eq!(received.iter().sum::<u64>(), 332_833_500);
//! }
//! ```
//!
//! # The guide
//! [`guide::tour`] shows everything in eleven small programs. Then, depending on where you come from: [`guide::from_go`],
//! [`guide::from_tokio`], [`guide::from_threads`]. When work differs in importance: [`guide::groups`]. Before a release:
//! [`guide::thread_locals`] and [`guide::deploying`].
//!
//! # The thread-local contract
//! After any call that can park it, a goroutine may resume on a different thread. Such calls are those whose
//! documentation has a `# Blocks` section; dropping a [`sync::MutexGuard`] or a [`sync::RwLockWriteGuard`] is one of them. Code
//! that runs in goroutines must therefore not hold a borrow of a `thread_local!`, or a handle into one, across such a call:
//! that is undefined behaviour. Preemption never moves a goroutine and adds nothing to this.
//!
//! [`Builder::build`] is `unsafe` for this reason alone; [`macro@main`] and [`macro@test`] accept the contract on the program's
//! behalf. Use [`goroutine_local!`] in place of `thread_local!`, and [`lock_os_thread`] around a library that needs its thread.
//! [`hazard`] lists how popular crates behave, and reports violations that involve a value registered with [`hazard::hold`].
//!
//! # What is where
//! | to                                     | use                                                             |
//! |----------------------------------------|-----------------------------------------------------------------|
//! | start goroutines and wait for them     | [`go`], [`scope()`], [`JoinHandle`], [`goroutine::Builder`]      |
//! | pass values between them               | [`chan`], [`select!`], [`select_biased!`]                       |
//! | share data                             | [`sync`], [`goroutine_local!`]                                  |
//! | sleep, set timers                      | [`time`]                                                        |
//! | cancel, set a deadline for a request   | [`context`]                                                     |
//! | use the network and files              | [`net`], [`fs`]                                                 |
//! | call code that blocks the thread       | [`blocking`]; unmarked calls are detected, a little later       |
//! | use async code                         | [`block_on`], [`spawn`], [`future`]; hyper 1: feature `hyper`      |
//! | divide CPU time                        | [`TaskGroup`], [`checkpoint`]                                   |
//! | configure, test                        | [`macro@main`], [`macro@test`], [`Runtime`], [`Builder`]        |
//! | observe a running program              | [`stats`], [`dump`], [`trace`]                                  |
//! | check the thread-local contract        | [`hazard`]                                                      |
//!
//! Everything that waits also works on plain threads, where it blocks the thread.
//!
//! # Cargo features
//! | feature     | default | gives                                                                         |
//! |-------------|---------|-------------------------------------------------------------------------------|
//! | `async`     | yes     | [`block_on`], [`spawn`], awaitable [`JoinHandle`]s, futures-io's traits for sockets |
//! | `backtrace` | yes     | call stacks of waiting goroutines in [dumps](dump)                            |
//! | `hyper`     | no      | `hyper::{Io, Executor, Timer}` for hyper 1; turns on `async`                  |
//! | `tracing`   | no      | spans of the `tracing` crate in [traces](trace): `trace::Layer`               |
//!
//! The crate is not on crates.io yet: `runnext = { git = "https://github.com/runnext/runnext" }`.
//!
//! # Limits
//! Stacks do not grow (256 KiB of address space by default, of which only touched pages use memory); an overflow is reported
//! with the goroutine's number, name and origin, and kills the process. Goroutines still alive when their runtime shuts down
//! are abandoned, not unwound. Linux on x86-64 only, for now.

#![warn(missing_debug_implementations)]
// The mechanism below `future` is part of the scheduler; without its surface it stands idle.
#![cfg_attr(not(feature = "async"), allow(dead_code, unused_imports))]

// The attributes' expansion names the crate from outside.
extern crate self as runnext;

pub mod chan;
mod config;
pub mod context;
pub mod dump;
mod fatal;
mod fences;
pub mod fs;
#[cfg(feature = "async")]
pub mod future;
mod g;
pub mod goroutine;
mod group;
pub mod guide;
pub mod hazard;
mod histogram;
#[cfg(feature = "hyper")]
pub mod hyper;
mod instant;
mod local;
mod lock;
mod m;
pub mod net;
mod note;
mod observe;
mod one_line;
mod overflow;
mod p;
mod runtime;
mod say;
mod sched;
mod scope;
mod stack;
pub mod stats;
mod swallow;
pub mod sync;
pub mod time;
pub mod trace;

#[cfg(feature = "async")]
pub use future::{block_on, spawn};
pub use goroutine::{
    Goroutine, JoinHandle, OsThreadGuard, checkpoint, current, go, lock_os_thread, num_goroutines,
    procs, set_default_procs, set_procs, yield_now,
};
pub use group::{CpuLimit, GroupStats, Priority, TaskGroup, TaskGroupBuilder};
pub use local::LocalKey;
pub use runnext_macros::{main, test};
pub use runtime::{__private, Builder, Runtime, Shutdown};
pub use sched::blocking::blocking;
pub use scope::{Scope, ScopedJoinHandle, scope};

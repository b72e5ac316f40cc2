//! Goroutines for Rust: plain blocking code, as many functions at once as you like, on a few threads.
//!
//! [`go`] starts a goroutine. It has a stack of its own, so it may block anywhere, in any function it calls; the scheduler
//! then runs others on the same thread. Nothing has to be `async`, and nothing has to give way by itself: code that
//! computes for long is preempted, code that blocks in the kernel loses its processor to others.
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
//! [`guide::tour`] shows everything in ten small programs. Then, depending on where you come from: [`guide::from_go`],
//! [`guide::from_tokio`], [`guide::from_threads`]. When work differs in importance: [`guide::groups`]. Before a release:
//! [`guide::thread_locals`] and [`guide::deploying`].
//!
//! # The thread-local contract
//! A goroutine may go on running on another thread after any call that can park it: any whose documentation has a `# Blocks`
//! section. The drops of a [`sync::MutexGuard`] and a [`sync::RwLockWriteGuard`] are among them. Code that runs in goroutines
//! must therefore not keep a borrow of a `thread_local!`, or a handle into one, over such a call.
//! [`Builder::build`] is `unsafe` for this reason alone; [`macro@main`] and [`macro@test`] accept the contract on the
//! program's behalf. [`goroutine_local!`] is the replacement, [`lock_os_thread`] the way out for a library that
//! needs its thread. [`hazard`] reports breaches by what it was told of ([`hazard::hold`]), and has a list of how popular crates behave.
//! Preemption never moves a goroutine and adds nothing to this.
//!
//! # What is where
//! | to                                     | use                                                             |
//! |----------------------------------------|-----------------------------------------------------------------|
//! | start and wait                         | [`go`], [`scope()`], [`JoinHandle`], [`goroutine::Builder`]      |
//! | talk                                   | [`chan`]                                                        |
//! | share                                  | [`sync`], [`goroutine_local!`]                                  |
//! | wait for a time                        | [`time`]                                                        |
//! | talk to the network, use files         | [`net`], [`fs`]                                                 |
//! | call what blocks the thread            | [`blocking`]; unmarked calls are noticed, a little later        |
//! | use async code                         | [`block_on`], [`spawn`], [`future`]                             |
//! | share out CPU time                     | [`TaskGroup`], [`checkpoint`]                                    |
//! | set up                                 | [`macro@main`], [`macro@test`], [`Runtime`]                     |
//!
//! Everything that waits works on plain threads too, and then blocks the thread.
//!
//! # Limits
//! Stacks do not grow (256 KiB of address space by default, of which only touched pages use memory); an overflow is reported
//! with the goroutine's number, name and origin, and kills the process. Goroutines that have not ended when their
//! runtime goes are abandoned, not unwound. Linux on x86-64 only, for now.

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

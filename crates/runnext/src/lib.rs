//! Goroutines for Rust.

#![warn(missing_debug_implementations)]

// The attributes' expansion names the crate from outside.
extern crate self as runnext;

pub mod chan;
mod config;
pub mod context;
mod fatal;
mod g;
pub mod goroutine;
mod instant;
mod local;
mod lock;
mod m;
mod overflow;
mod p;
mod runtime;
mod sched;
mod scope;
mod stack;
pub mod sync;
pub mod time;

pub use goroutine::{
    Goroutine, JoinHandle, OsThreadGuard, checkpoint, current, go, lock_os_thread, num_goroutines,
    procs, set_procs, yield_now,
};
pub use local::LocalKey;
pub use runnext_macros::{main, test};
pub use runtime::{__private, Builder, Runtime, Shutdown};
pub use sched::blocking::blocking;
pub use scope::{Scope, ScopedJoinHandle, scope};

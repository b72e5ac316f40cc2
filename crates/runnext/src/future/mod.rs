//! Futures: async code in goroutines, and goroutines in async code.
//!
//! [`block_on`] waits for a future from anywhere, as one waits for a channel: the goroutine parks, and its thread runs others.
//! [`spawn`] makes a goroutine of a future. It has no stack: it costs its header (192 bytes) and the future itself, where a goroutine with
//! a stack costs a page at least. It is scheduled, preempted and counted like any other, and its [`JoinHandle`] is the same. Every
//! `JoinHandle`, including that of [`go`](crate::go), can be awaited.
//!
//! ```
//! use runnext::{go, spawn, block_on};
//!
//! #[runnext::main]
//! fn main() {
//!     let answer = spawn(async {
//!         let six = go(|| 6);                  // with a stack: may block anywhere
//!         let seven = spawn(async { 7 });      // without
//!         six.await.unwrap() * seven.await.unwrap()
//!     });
//!     assert_eq!(block_on(answer).unwrap(), 42);
//! }
//! ```
//!
//! # Blocking inside a future
//! A call that blocks works in a future too: a channel, a lock of [`sync`](crate::sync), [`time::sleep`](crate::time::sleep), `join`. As it
//! has no stack of its own, the goroutine then keeps its thread, and its processor goes to another thread: no other goroutine is delayed,
//! but it costs microseconds. Code that waits often should be awaited, or run in a goroutine with a stack.
//!
//! # Other runtimes' futures
//! Futures that need no runtime (channels, streams, `select`) run as they are. Those made for tokio need its context around each poll;
//! `crates/ecosystem` has a wrapper. Never keep a guard that enters a runtime across an `.await` or a call that parks: it is a
//! thread-local. [`hazard::hold`](crate::hazard::hold) beside such a guard reports such a mistake.
//!
//! # When the runtime shuts down
//! Waiting futures are dropped by [`Runtime::shutdown`](crate::Runtime::shutdown), or when the `Runtime` is dropped, usually on the thread that does
//! so (see there); a future that is being polled at that moment is dropped when the poll returns. Both count as abandoned, and joining them
//! gives an error.

mod block_on;
mod io;
mod join;
mod sleep;

pub use block_on::block_on;
pub use join::spawn;
pub(crate) use join::spawn_on;
pub use sleep::{Sleep, sleep, sleep_until};

#[cfg(doc)]
use crate::goroutine::JoinHandle;

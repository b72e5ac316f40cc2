//! Futures: async code in goroutines, and goroutines in async code.
//!
//! [`block_on`] waits for a future from anywhere, as one waits for a channel: the goroutine parks, its thread goes on with others.
//! [`spawn`] makes a goroutine of a future. It has no stack: it costs its header (192 bytes) and the future itself, where one with a
//! stack costs a page at least. It is scheduled, preempted and counted like any other, and its [`JoinHandle`] is the same. Every
//! `JoinHandle`, also that of [`go`](crate::go), can be awaited.
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
//! A call that blocks works in a future too: a channel, a lock of [`sync`](crate::sync), [`time::sleep`](crate::time::sleep), `join`. With no
//! stack to leave, the goroutine then keeps its thread, and its processor goes to another thread: nothing else is held up, but it
//! costs microseconds. What is to wait often should be awaited, or be a goroutine with a stack.
//!
//! # Other runtimes' futures
//! Futures that need no runtime (channels, streams, `select`) run as they are. Those made for tokio need its context around each poll;
//! `crates/ecosystem` has a wrapper. Never keep a guard that enters a runtime over an `.await` or over a call that parks: it is a
//! thread-local. [`hazard::hold`](crate::hazard::hold) beside such a guard reports it if that happens.
//!
//! # When the runtime goes
//! Futures that are waiting are dropped by [`Runtime::shutdown`](crate::Runtime::shutdown), or when the `Runtime` is, on the thread that does it; one
//! that is being polled right then is dropped when that poll returns. Both count as abandoned, and joining them gives an error.

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

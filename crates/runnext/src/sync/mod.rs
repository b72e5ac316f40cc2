//! Locks and meeting points that block goroutines, not threads.
//!
//! The names and the behaviour are those of [`std::sync`], with Go's additions ([`WaitGroup`], [`Semaphore`]) and three
//! differences:
//!
//! - Waiting parks the goroutine; its thread runs others. On a plain thread it blocks the thread: everything
//!   here can be shared between goroutines, of one runtime or several, and plain threads.
//! - There is no poisoning: a panic releases what it held, `lock` returns the guard itself and every `try_` an `Option`.
//! - Waiting is bounded under contention: a goroutine that has waited for a millisecond is served next (see [`Mutex`] and [`RwLock`]).
//!
//! A guard may be held across calls that park, moved to another thread with its goroutine, or given to another goroutine.
//!
//! | type                      | blocks until                              | order                                      |
//! |---------------------------|-------------------------------------------|--------------------------------------------|
//! | [`Mutex`]                 | the lock is free                          | the fastest; after 1 ms, order of arrival  |
//! | [`RwLock`]                | no writer, or nobody, is inside           | phases: readers together, writers in turn  |
//! | [`Condvar`]               | notified                                  | first come, first notified                 |
//! | [`WaitGroup`]             | its count is zero                         | all at once                                |
//! | [`Semaphore`]             | a permit is free                          | first come, first served                   |
//! | [`Barrier`]               | the last party has arrived                | all at once                                |
//! | [`Once`], [`OnceLock`]    | the initialisation has ended              | all at once                                |
//!
//! # Example
//! ```
//! use runnext::sync::{Mutex, WaitGroup};
//! use std::sync::Arc;
//!
//! #[runnext::main]
//! fn main() {
//!     let words = Arc::new(Mutex::new(Vec::new()));
//!     let group = WaitGroup::new();
//!     for word in ["share", "by", "communicating"] {
//!         let words = words.clone();
//!         group.go(move || words.lock().push(word));
//!     }
//!     group.wait();
//!     assert_eq!(words.lock().len(), 3);
//! }
//! ```

// How it is built. `queue` is the wait list of all; `raw` the lock without data, which joins the rules of
// `runnext_core::mutex_state` with the scheduler; each of the others is one primitive. A primitive keeps its state
// in an atomic word for those who need not wait, and a queue under the runtime's own `Lock` for those who do:
//
//   waiter: enter the runtime, make a node, lock, look again, link, unlock, park
//   waker:  enter the runtime, lock, take out, unlock, wake
//
// Under the lock nothing allocates and no user code runs (`sched`, R1), and between linking and parking the goroutine
// must not switch, or it would lose its wake-up: so both are in one call.

#[forbid(unsafe_code)]
mod barrier;
mod condvar;
mod mutex;
mod once;
mod queue;
mod raw;
mod rwlock;
#[forbid(unsafe_code)]
mod semaphore;
#[forbid(unsafe_code)]
mod waitgroup;

pub use barrier::{Barrier, BarrierWaitResult};
pub use condvar::{Condvar, WaitTimeoutResult};
pub use mutex::{Mutex, MutexGuard};
pub use once::{Once, OnceLock};
pub use rwlock::{RwLock, RwLockReadGuard, RwLockWriteGuard};
pub use semaphore::{Permit, Semaphore};
pub use waitgroup::WaitGroup;

//! A check for the thread-local contract: what belongs to a thread must not be held across a call that parks.
//!
//! After any call that parks, a goroutine may resume on another thread. A borrow of, or a handle into, a `thread_local!` that it still
//! holds then refers to a thread on which other goroutines run. The compiler cannot see this. [`hold`] declares that the goroutine
//! holds such a value; if the goroutine changes threads before the guard is dropped, that is reported on stderr, once, with both places.
//!
//! In debug builds the check is on, at each change of threads and when the guard is dropped; `RUNNEXT_DEBUG=hazards=0` turns it off.
//! `RUNNEXT_DEBUG=hazards=1` turns it on in release builds, where only the drop is checked. Otherwise a guard costs nothing worth measuring.
//!
//! # How popular crates behave
//! | crate                          | what it keeps in a thread-local         | on goroutines                                                    |
//! |--------------------------------|-----------------------------------------|------------------------------------------------------------------|
//! | log, serde, regex, bytes, http | nothing, or caches used within one call | fine                                                             |
//! | tracing, events                | the default subscriber, looked up per event | fine, with a global default; `with_default` must not span a park |
//! | tracing, spans                 | the stack of entered spans, per thread  | `span.enter()` must not be held across a park: the span would be left on another thread. `in_scope` around code that does not park, or `Instrument` on futures |
//! | rand                           | the generator that `rand::rng()` refers to | call it where it is used; never keep its result across a park (two goroutines would draw the same numbers). An own `StdRng` is fine |
//! | tokio, `Handle::enter`         | the runtime that is entered             | around each poll, never across a park (`crates/ecosystem` has a wrapper) |
//! | tokio, `Handle::block_on`      | that a runtime is entered               | blocks the thread; works, like any call that blocks              |
//! | tokio, `spawn` on a `Handle`   | nothing                                 | fine; await the handle with [`block_on`](crate::block_on), its wakers are ordinary |
//! | reqwest (async)                | needs tokio entered while polled        | as above                                                         |
//! | reqwest::blocking              | a thread and runtime of its own         | works, blocks the thread; not inside a future                    |
//! | rayon                          | the worker a thread is, if it is one    | `join` and `install` from a goroutine block the thread; inside a pool's thread it is not a goroutine |
//! | rustls, ring                   | nothing                                 | fine                                                             |
//! | rusqlite, libraries in C       | errno-like state within one call        | fine; [`blocking`](crate::blocking) around long calls            |
//! | std's `RefCell` in a `thread_local!` | the borrow                        | must end before a park: that is the contract                     |
//! | std's `MutexGuard`             | nothing on Linux                        | works across a park, but a goroutine that waits for the lock blocks its thread: prefer [`sync::Mutex`](crate::sync::Mutex) |
//! | std's `stdout().lock()`        | which thread has it                     | must not be held across a park: other goroutines on its thread would hold it as well |
//!
//! # Example
//! ```
//! use std::cell::Cell;
//! use runnext::{hazard, lock_os_thread, yield_now};
//!
//! thread_local! { static CALLS: Cell<u32> = const { Cell::new(0) }; }
//!
//! /// Counts a call of `work`, which may park.
//! fn counted(work: impl FnOnce()) -> u32 {
//!     let _tied = lock_os_thread(); // without it, the next line would report that `work` came back elsewhere
//!     let _held = hazard::hold("the thread's count of calls");
//!     let before = CALLS.get();
//!     work();
//!     CALLS.set(before + 1);
//!     CALLS.get() - before
//! }
//!
//! #[runnext::main]
//! fn main() {
//!     assert_eq!(counted(yield_now), 1);
//! }
//! ```

use std::marker::PhantomData;
use std::panic::Location;

use crate::sched::hazards;

/// Says that the calling goroutine holds something of its thread's, until the guard is dropped. `what` completes the sentence
/// "goroutine 7 took …". On a plain thread, and when the check is off, it does nothing.
///
/// # Example
/// ```
/// use std::cell::RefCell;
/// thread_local! { static SCRATCH: RefCell<Vec<u8>> = const { RefCell::new(Vec::new()) }; }
///
/// fn render(work: impl FnOnce(&mut Vec<u8>)) {
///     SCRATCH.with_borrow_mut(|scratch| {
///         let _held = runnext::hazard::hold("the scratch buffer");
///         work(scratch); // reported if this parks and comes back elsewhere
///         scratch.clear();
///     });
/// }
/// # render(|scratch| scratch.push(1));
/// ```
#[track_caller]
pub fn hold(what: &'static str) -> Hazard {
    Hazard {
        id: hazards::hold(what, Location::caller()),
        _here: PhantomData,
    }
}

/// How many hazards were reported so far in this process: for tests that want none.
///
/// # Example
/// ```
/// use runnext::{hazard, yield_now};
///
/// #[runnext::main]
/// fn main() {
///     let before = hazard::reported();
///     let job = runnext::go(|| {
///         let held = hazard::hold("the thread's name");
///         let name = std::thread::current().name().map(str::to_owned);
///         drop(held); // nothing of the thread is left in `name`
///         yield_now();
///         name.map_or(0, |name| name.len())
///     });
///     job.join().unwrap();
///     assert_eq!(hazard::reported(), before, "stderr says which");
/// }
/// ```
pub fn reported() -> u64 {
    hazards::reported()
}

/// What [`hold`] returns.
///
/// # Example
/// ```
/// use std::cell::Cell;
/// use runnext::hazard::{self, Hazard};
///
/// thread_local! { static ENTERED: Cell<u32> = const { Cell::new(0) }; }
///
/// /// What a library gives out that belongs to its thread. It carries a guard, so that misuse is found.
/// struct Entered {
///     _held: Hazard,
/// }
///
/// #[track_caller]
/// fn enter() -> Entered {
///     ENTERED.set(ENTERED.get() + 1);
///     Entered { _held: hazard::hold("a span that was entered") }
/// }
///
/// impl Drop for Entered {
///     fn drop(&mut self) {
///         ENTERED.set(ENTERED.get() - 1);
///     }
/// }
///
/// #[runnext::main]
/// fn main() {
///     let entered = enter();
///     assert_eq!(ENTERED.get(), 1);
///     drop(entered);
///     runnext::yield_now(); // nothing to report: it was left before
/// }
/// ```
#[must_use = "the hazard is held until the guard is dropped"]
#[derive(Debug)]
pub struct Hazard {
    id: Option<u32>,
    /// It speaks for one goroutine.
    _here: PhantomData<*const ()>,
}

impl Drop for Hazard {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            hazards::release(id);
        }
    }
}

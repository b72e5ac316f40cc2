//! Channels: how goroutines, and threads, hand values to each other; and [`select!`](crate::select), which waits for several.
//!
//! ```
//! use runnext::{chan, select};
//! use std::time::Duration;
//!
//! #[runnext::main]
//! fn main() {
//!     let (tx, rx) = chan::bounded(8);
//!     for worker in 0..3 {
//!         let tx = tx.clone();
//!         runnext::go(move || tx.send(worker * 10).unwrap());
//!     }
//!     drop(tx); // the channel is closed when the last sender is gone
//!     let mut sum = 0;
//!     loop {
//!         select! {
//!             recv(rx) -> msg => match msg {
//!                 Ok(n) => sum += n,
//!                 Err(_) => break,
//!             },
//!             default(Duration::from_secs(10)) => panic!("a worker is stuck"),
//!         }
//!     }
//!     assert_eq!(sum, 30);
//! }
//! ```
//!
//! Names and shapes are those of crossbeam-channel, the behaviour is Go's: waiters are served first come, first served, and a
//! value for a receiver that waits is moved straight into its frame. Differences from Go: sending on a closed channel is an error and gives
//! the value back, closing twice is allowed, and a channel is closed by itself when one of its sides is gone. A
//! value is never lost or doubled, and dropped exactly once.
//!
//! | channel                  | room | `send` waits until          | `recv` waits until  |
//! |--------------------------|------|-----------------------------|---------------------|
//! | [`bounded(0)`](bounded)  | none | a receiver takes the value  | a sender brings one |
//! | [`bounded(n)`](bounded)  | n    | there is room               | there is a value    |
//! | [`unbounded()`](unbounded)| any | never                       | there is a value    |
//! | [`after`], [`at`], [`tick`] |   |                             | the moment comes    |
//! | [`never()`]              |      |                             | for ever            |
//!
//! # Blocks
//! The goroutine waits; its thread runs others meanwhile. On a plain thread, the thread waits.

mod arms;
mod clock;
mod dynamic;
mod ends;
mod error;
mod iter;
mod looks;
mod macros;
mod op;
mod select;
mod wait;

pub(crate) use clock::NEVER_SET;
pub use dynamic::{Select, SelectedOperation};
pub use ends::{Receiver, Sender, after, at, bounded, never, tick, unbounded};
pub(crate) use ends::{ending, timer};
pub use error::{
    RecvError, RecvTimeoutError, SelectTimeoutError, SendError, SendTimeoutError, TryRecvError,
    TrySelectError, TrySendError,
};
pub use iter::{IntoIter, Iter, TryIter};
pub use macros::{select, select_biased};

// Files, from the bottom: `wait` who waits, and with which locks · `clock` the kind that only the runtime has; the others, and the trait `Flavor` of all
// of them, are in `runnext_core` · `op` blocking operations on any kind · `ends` what users hold, `looks` what those tell · `select` the machinery of a select, on cases whose
// types are forgotten · `arms` and `macros` `select!` · `dynamic` `Select` · `iter`, `error`.
//
// Invariants that hold across them:
// C1  A value is in exactly one place: the sender's frame, a buffer, the receiver's frame. It moves under the lock that guards
//     both, by plain copy; the party that lost it never drops it.
// C2  No lock is held while anybody is woken (`Step::Done` carries the waiter out), and no two channels are locked at once.
// C3  User code (drops, and the allocator) runs outside of runtime calls only (R1 of `sched`). So do `prepare_send` and `tidy`; all else of `Flavor`
//     but what only looks is for use inside of them.

/// What `select!` expands to. Not for use by hand.
#[doc(hidden)]
pub mod __private {
    pub use super::arms::{Default, End, Order, Won, poll, recv, send, wait, wait_for};
}

use runnext_core::chain::Chain;
use runnext_core::rendezvous::Rendezvous;
use runnext_core::ring::Ring;

use crate::sched::wait::Waiter;
use wait::Locks;

/// A channel of any kind.
enum Chan<T> {
    Rendezvous(Rendezvous<Waiter, Locks>),
    Ring(Ring<T, Waiter, Locks>),
    Chain(Chain<T, Waiter, Locks>),
    /// Only of `Instant`s, unless it gives no values.
    Clock(clock::Clock),
}

/// Runs the same code on whichever kind it is.
macro_rules! each {
    ($chan:expr, $c:ident => $do:expr) => {
        match $chan {
            $crate::chan::Chan::Rendezvous($c) => $do,
            $crate::chan::Chan::Ring($c) => $do,
            $crate::chan::Chan::Chain($c) => $do,
            $crate::chan::Chan::Clock($c) => $do,
        }
    };
}
use each;

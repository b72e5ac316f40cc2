//! A guide in chapters; every program in it is a test.
//!
//! | chapter           | for whom                                                       |
//! |-------------------|----------------------------------------------------------------|
//! | [`tour`]          | everybody: the whole API in ten small programs                 |
//! | [`from_go`]       | who knows Go: the same things under their names here, and what differs |
//! | [`from_tokio`]    | who knows tokio: what becomes of `async`, and what to watch     |
//! | [`from_threads`]  | who uses threads: what changes in a program, which is little    |
//! | [`groups`]        | who has work of different importance                           |
//! | [`thread_locals`] | everybody, before the first release: the one contract           |
//! | [`deploying`]     | who runs it: limits, containers, stacks, signals                |
//!
//! # Example
//! ```
//! use std::time::Duration;
//! use runnext::{chan, go, time};
//!
//! #[runnext::main]
//! fn main() {
//!     let (orders, kitchen) = chan::bounded(0);
//!     let (dishes, table) = chan::bounded(0);
//!     for _cook in 0..3 {
//!         let (kitchen, dishes) = (kitchen.clone(), dishes.clone());
//!         go(move || {
//!             for order in kitchen.iter() {
//!                 time::sleep(Duration::from_millis(1)); // this cook waits; no thread does
//!                 dishes.send(format!("hot {order}")).unwrap();
//!             }
//!         });
//!     }
//!     drop(dishes); // each cook has a clone: the table is done when all of them are
//!     go(move || ["soup", "rice", "pie", "tea"].map(|order| orders.send(order).unwrap()));
//!     let mut served: Vec<String> = table.iter().collect();
//!     served.sort();
//!     assert_eq!(served, ["hot pie", "hot rice", "hot soup", "hot tea"]);
//! }
//! ```

#[doc = include_str!("guide/tour.md")]
pub mod tour {}

#[doc = include_str!("guide/from_go.md")]
pub mod from_go {}

#[doc = include_str!("guide/from_tokio.md")]
pub mod from_tokio {}

#[doc = include_str!("guide/from_threads.md")]
pub mod from_threads {}

#[doc = include_str!("guide/groups.md")]
pub mod groups {}

#[doc = include_str!("guide/thread_locals.md")]
pub mod thread_locals {}

#[doc = include_str!("guide/deploying.md")]
pub mod deploying {}

//! A guide in chapters; every program in it is a test.
//!
//! | chapter           | for                                                            |
//! |-------------------|----------------------------------------------------------------|
//! | [`tour`]          | everybody: the whole API in eleven small programs              |
//! | [`from_go`]       | Go programmers: what each thing is called here, and what differs |
//! | [`from_tokio`]    | tokio users: what becomes of `async`, and what to watch out for |
//! | [`from_threads`]  | programs that use threads: what changes, which is little       |
//! | [`groups`]        | services whose work differs in importance                      |
//! | [`thread_locals`] | everybody, before the first release: the one contract          |
//! | [`deploying`]     | operators: limits, containers, stacks, signals, settings       |
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

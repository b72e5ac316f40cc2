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

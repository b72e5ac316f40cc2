//! What the benchmark programs share, so that every runtime is given the same work and measured by the same rule.
//!
//! A program is called as `prog <scenario> [key=value…]` and prints one JSON line. It reads its arguments with [`Args`],
//! reports with [`Report`], burns CPU with [`work`], draws from [`Rng`], and lets [`Ticks`] and [`Tail`] keep what must
//! survive a runtime that is stuck: both are read by the plain main thread, which no scheduler can hold up.
//! Network scenarios start `bench-load`, the other end, by [`drive`].
//! The Go program has the same few functions in Go; a change here belongs there too.

mod args;
mod block;
mod http;
mod idle;
mod load;
mod lost;
mod parking;
mod phases;
mod process;
mod report;
mod tail;
mod ticks;
mod wakeups;
mod work;
mod yields;

pub use args::Args;
pub use block::{Block, Gaps};
pub use http::http_load;
pub use idle::idle;
pub use load::{Costs, drive, echo};
pub use lost::{Load, lost, sweep};
pub use parking::{Parking, Sleeper, park_futures};
pub use phases::Phases;
pub use process::{Usage, memory_bytes, pin_to_first_cpu, real_time, usage};
pub use report::{Report, percentile, unsupported};
pub use tail::Tail;
pub use ticks::Ticks;
pub use wakeups::wakeups;
pub use work::{Rng, now_ns, spin_for, stir, work};
pub use yields::{Yields, yields};

//! The scheduler's structures that have never heard of threads.
//!
//! Everything here is either a plain value (`&mut self`, no clock, no random numbers of its own) or a small
//! structure, mostly without locks, whose interleavings loom explores. Nothing parks, reads a clock or
//! makes a system call, and locks are supplied by the caller. So the runtime can drive these structures with real threads and the tests
//! with one thread and a virtual clock; so far that is done for the policy of task groups (`tests/groups`).
//!
//! | module     | what                                                        | shared?                   |
//! |------------|-------------------------------------------------------------|---------------------------|
//! | [`runq`]   | one P's run queue: ring and `runnext`                       | one owner, many thieves   |
//! | [`list`]   | intrusive FIFO of handles, the body of the global queue     | no; the caller locks      |
//! | [`next`]   | what runs next on a P: the decision                         | no; pure                  |
//! | [`park`]   | a goroutine's state word: park and wake                     | sleeper and waker         |
//! | [`life`]   | a goroutine's end: references, result, who is told          | goroutine and handles     |
//! | [`owner`]  | a thread's state word: who has its P                        | the thread and its robber |
//! | [`inbox`]  | what a thread without a P sleeps on: how it is handed one   | the thread, who hands, who stops |
//! | [`lock_word`] | the runtime's own lock                                   | by any number of lockers  |
//! | [`fence`]  | between two of whom one is often there, the other seldom    |                           |
//! | [`signal`] | between a future's poller and its wakers                    | sleeper and any wakers    |
//! | [`searchers`] | who looks for work, and who is woken for it              | submitters and idlers     |
//! | [`steal`]  | the order in which a thief visits its victims               | read-only                 |
//! | [`rng`]    | the dice behind every scheduling choice, seeded             | no; one per P             |
//! | [`group`]  | which task group runs: shares, quotas, the governor         | atomics, and plain parts  |
//! | [`timers`] | a heap of deadlines with lazy cancellation                  | no; the caller locks      |
//! | [`waiting`] | who waits at a channel, and how a wait ends                | no; the caller locks      |
//! | [`flavor`] | what a kind of channel does, and the locks it needs         |                           |
//! | [`rendezvous`] | a channel without room: values go from frame to frame   | by senders and receivers  |
//! | [`ring`]   | a bounded channel: a ring with a lock for each end          | by senders and receivers  |
//! | [`chain`]  | an unbounded channel: blocks with a lock for each end       | by senders and receivers  |
//! | [`waitlist`] | who waits for a channel or a lock, in order                | no; the caller locks      |
//! | [`probe`]  | what a channel's counters say to one without its locks      | by any number who look    |
//! | [`mutex_state`] | the word of a mutex and the rules for changing it       | by any number of lockers  |
//! | [`shim`]   | std's atomics, or loom's under `--cfg loom`                 |                           |
//!
//! Tests: `cargo test -p runnext-core`, and the loom models with
//! `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

pub mod chain;
#[forbid(unsafe_code)]
pub mod fence;
pub mod flavor;
#[forbid(unsafe_code)]
pub mod group;
#[cfg_attr(not(loom), forbid(unsafe_code))] // its models write to a loom cell
pub mod inbox;
#[cfg_attr(not(loom), forbid(unsafe_code))] // its models write to loom cells
pub mod life;
pub mod list;
#[cfg_attr(not(loom), forbid(unsafe_code))] // its models write to a loom cell
pub mod lock_word;
#[cfg_attr(not(loom), forbid(unsafe_code))] // its models read a loom cell
pub mod mutex_state;
#[forbid(unsafe_code)]
pub mod next;
#[cfg_attr(not(loom), forbid(unsafe_code))] // its models write to a loom cell
pub mod owner;
pub mod park;
#[forbid(unsafe_code)]
pub mod probe;
pub mod rendezvous;
pub mod ring;
#[forbid(unsafe_code)]
pub mod rng;
pub mod runq;
#[cfg_attr(not(loom), forbid(unsafe_code))] // its models keep notes beside loom
pub mod searchers;
pub mod shim;
#[forbid(unsafe_code)]
pub mod signal;
#[forbid(unsafe_code)]
pub mod steal;
#[forbid(unsafe_code)]
pub mod timers;
pub mod waiting;
pub mod waitlist;

#[cfg(test)]
mod testing;

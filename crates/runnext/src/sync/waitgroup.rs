//! `WaitGroup`: waiting until a number of things are done.
//!
//! | bits of `state` | meaning                        | changed by                                                  |
//! |-----------------|--------------------------------|-------------------------------------------------------------|
//! | WAITING         | the queue is not empty         | under the lock: set by `wait`, cleared with the queue        |
//! | the rest        | things not yet done            | `add`, `done`                                               |
//!
//! # Invariants
//! I1  The step from one to none, while WAITING is set, happens under the lock, and empties the queue in the same critical section. So
//!     who waits goes on at the first moment that nothing is left, also if more is added a moment later; and who waits for
//!     that more is not let go by it.
//! I2  Nobody subtracts from none, also of two that both saw the last one: each step down is a CAS from a count it has looked at.

use std::fmt;
use std::panic::Location;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;

use super::queue::{Node, Place, Queue};
use crate::g::WaitReason;
use crate::goroutine::{self, JoinHandle};
use crate::lock::Lock;
use crate::sched::call::Call;

const WAITING: usize = 1;
const ONE: usize = 2;

/// Counts things to do, and waits until all are done.
///
/// A clone is another handle to the same group. [`go`](Self::go) starts a goroutine and counts it, so most programs need neither
/// [`add`](Self::add) nor [`done`](Self::done). For goroutines that borrow, see [`scope`](crate::scope).
///
/// It can be used again once it has come to zero.
///
/// # Example
/// ```
/// use runnext::sync::WaitGroup;
/// use std::sync::atomic::{AtomicU32, Ordering::*};
///
/// static SUM: AtomicU32 = AtomicU32::new(0);
///
/// #[runnext::main]
/// fn main() {
///     let group = WaitGroup::new();
///     for i in 0..10 {
///         group.go(move || SUM.fetch_add(i, Relaxed));
///     }
///     group.wait();
///     assert_eq!(SUM.load(Relaxed), 45);
/// }
/// ```
#[derive(Clone, Default)]
pub struct WaitGroup {
    inner: Arc<Inner>,
}

struct Inner {
    state: AtomicUsize,
    queue: Lock<Queue>,
}

impl Default for Inner {
    fn default() -> Inner {
        Inner {
            state: AtomicUsize::new(0),
            queue: Lock::new(Queue::new()),
        }
    }
}

impl WaitGroup {
    /// A group with nothing to do.
    ///
    /// ```
    /// runnext::sync::WaitGroup::new().wait(); // returns at once
    /// ```
    pub fn new() -> WaitGroup {
        WaitGroup::default()
    }

    /// Counts `n` more things to do. Call it before you start what will call [`done`](Self::done); otherwise `wait` may find nothing to wait
    /// for, and return too early.
    ///
    /// ```
    /// # #[runnext::main] fn main() {
    /// let group = runnext::sync::WaitGroup::new();
    /// group.add(2);
    /// for _ in 0..2 {
    ///     let group = group.clone();
    ///     std::thread::spawn(move || group.done()); // a plain thread may, too
    /// }
    /// group.wait();
    /// # }
    /// ```
    ///
    /// # Panics
    /// If the count would overflow.
    pub fn add(&self, n: usize) {
        let state = &self.inner.state;
        let mut old = state.load(Relaxed);
        loop {
            let new = n
                .checked_mul(ONE)
                .and_then(|more| old.checked_add(more))
                .expect("WaitGroup::add: more things to do than a usize counts");
            match state.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(now) => old = now,
            }
        }
    }

    /// One thing is done.
    ///
    /// # Panics
    /// If nothing was left to do: every `done` needs an [`add`](Self::add) before it.
    ///
    /// # Example
    /// ```
    /// use runnext::{chan, go, sync::WaitGroup};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (jobs, todo) = chan::unbounded();
    ///     let left = WaitGroup::new();
    ///     let worker = left.clone();
    ///     go(move || todo.iter().for_each(|_: u32| worker.done()));
    ///     for job in 0..5 {
    ///         left.add(1);
    ///         jobs.send(job).unwrap();
    ///     }
    ///     left.wait(); // for the jobs: the worker itself goes on
    ///     assert!(jobs.is_empty() && !jobs.is_closed());
    /// }
    /// ```
    #[track_caller]
    pub fn done(&self) {
        if !self.is_one_done() {
            once_too_often();
        }
    }

    /// One thing is done. False: nothing was left to do.
    fn is_one_done(&self) -> bool {
        let state = &self.inner.state;
        let mut old = state.load(Relaxed);
        loop {
            if old < ONE {
                return false;
            }
            if old == ONE | WAITING {
                return self.inner.last_done();
            }
            match state.compare_exchange_weak(old, old - ONE, Release, Relaxed) {
                Ok(_) => return true,
                Err(now) => old = now,
            }
        }
    }

    /// Waits until nothing is left to do.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), until the count is zero.
    ///
    /// # Example
    /// ```
    /// use runnext::sync::WaitGroup;
    /// use std::sync::atomic::{AtomicU32, Ordering::*};
    ///
    /// static DONE: AtomicU32 = AtomicU32::new(0);
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let group = WaitGroup::new();
    ///     for round in 1..=3 {
    ///         (0..4).for_each(|_| drop(group.go(|| DONE.fetch_add(1, Relaxed))));
    ///         group.wait(); // no round begins before the last one has ended
    ///         assert_eq!(DONE.load(Relaxed), 4 * round);
    ///     }
    /// }
    /// ```
    pub fn wait(&self) {
        if self.inner.state.load(Acquire) >= ONE {
            self.inner.wait();
        }
    }

    /// Starts a goroutine that counts as one task until it ends, even by a panic.
    ///
    /// # Panics
    /// As [`go`](crate::go).
    ///
    /// # Example
    /// ```
    /// # #[runnext::main] fn main() {
    /// let group = runnext::sync::WaitGroup::new();
    /// let answer = group.go(|| 6 * 7);
    /// group.go(|| panic!("counts as done"));
    /// group.wait();
    /// assert_eq!(answer.join().unwrap(), 42);
    /// # }
    /// ```
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        let shared = goroutine::current_shared("sync::WaitGroup::go");
        self.add(1);
        let done = Done(self.clone());
        goroutine::go_on(shared, Location::caller(), move || {
            // Moved in whole, and dropped last: if the goroutine cannot start, too.
            let _done = done;
            f()
        })
    }
}

/// Calls `done` when it goes away.
struct Done(WaitGroup);

impl Drop for Done {
    fn drop(&mut self) {
        if !self.0.is_one_done() && !thread::panicking() {
            once_too_often();
        }
    }
}

#[cold]
#[track_caller]
fn once_too_often() -> ! {
    panic!(
        "WaitGroup::done called more often than was added: call add before starting what calls done, \
         or let WaitGroup::go do both"
    );
}

impl Inner {
    /// The step to zero, or so it looks, while somebody waits. False: others were faster, and nothing is left to be done (I2).
    #[cold]
    fn last_done(&self) -> bool {
        let call = Call::brief();
        let mut queue = self.queue.lock();
        // WAITING cannot change under the lock, so the step to zero empties the queue if somebody waits (I1).
        let step = |old: usize| match old / ONE {
            0 => None,
            1 => Some(0),
            _ => Some(old - ONE), // more was added meanwhile
        };
        // AcqRel: whom we wake sees, through us, what was done before every other `done`.
        let Ok(old) = self.state.fetch_update(AcqRel, Relaxed, step) else {
            return false;
        };
        if old == ONE | WAITING {
            let batch = queue.take_all();
            drop(queue);
            batch.wake(&call);
        }
        true
    }

    #[cold]
    fn wait(&self) {
        let mut call = Call::enter();
        let node = Node::new(&call);
        let queue = self.queue.lock();
        let mut old = self.state.load(Acquire);
        loop {
            if old < ONE {
                return;
            }
            match self
                .state
                .compare_exchange_weak(old, old | WAITING, Relaxed, Acquire)
            {
                Ok(_) => break,
                Err(now) => old = now,
            }
        }
        node.wait(
            &mut call,
            queue,
            |queue| queue,
            Place::Back,
            WaitReason::WaitGroup,
        );
    }
}

impl fmt::Debug for WaitGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitGroup")
            .field("left", &(self.inner.state.load(Relaxed) / ONE))
            .finish()
    }
}

//! `Barrier`: nobody goes on before all have come.

use std::fmt;

use super::queue::{Node, Place, Queue};
use crate::g::WaitReason;
use crate::lock::Lock;
use crate::sched::call::Call;

/// A meeting point: [`wait`](Self::wait) returns to all once the last of `n` has come. It can be used again and again.
///
/// # Example
/// ```
/// use runnext::sync::Barrier;
///
/// #[runnext::main]
/// fn main() {
///     let meeting = Barrier::new(4);
///     let leaders = runnext::scope(|s| {
///         let all: Vec<_> = (0..4).map(|_| s.go(|| meeting.wait().is_leader())).collect();
///         all.into_iter().map(|g| g.join().unwrap()).filter(|&l| l).count()
///     });
///     assert_eq!(leaders, 1);
/// }
/// ```
pub struct Barrier {
    n: usize,
    inner: Lock<Inner>,
}

struct Inner {
    /// Waiters.
    here: usize,
    queue: Queue,
}

impl Barrier {
    /// A barrier for `n`; for 0 and 1 it never blocks.
    ///
    /// ```
    /// assert!(runnext::sync::Barrier::new(1).wait().is_leader());
    /// ```
    pub const fn new(n: usize) -> Barrier {
        Barrier {
            n,
            inner: Lock::new(Inner {
                here: 0,
                queue: Queue::new(),
            }),
        }
    }

    /// Waits until `n` have come, the caller included. The last one is the leader.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread).
    ///
    /// # Example
    /// ```
    /// use runnext::sync::Barrier;
    /// use std::sync::atomic::{AtomicUsize, Ordering::*};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (ready, start) = (AtomicUsize::new(0), Barrier::new(3));
    ///     runnext::scope(|s| {
    ///         for _ in 0..3 {
    ///             s.go(|| {
    ///                 ready.fetch_add(1, Relaxed);
    ///                 start.wait();
    ///                 assert_eq!(ready.load(Relaxed), 3); // nobody starts before all are ready
    ///             });
    ///         }
    ///     });
    /// }
    /// ```
    pub fn wait(&self) -> BarrierWaitResult {
        let mut call = Call::enter();
        let node = Node::new(&call);
        let mut inner = self.inner.lock();
        inner.here += 1;
        if inner.here < self.n {
            node.wait(
                &mut call,
                inner,
                |inner| &mut inner.queue,
                Place::Back,
                WaitReason::Barrier,
            );
            return BarrierWaitResult(false);
        }
        // The next round starts here: whoever comes now counts for it.
        inner.here = 0;
        let batch = inner.queue.take_all();
        drop(inner);
        batch.wake(&call);
        BarrierWaitResult(true)
    }
}

impl fmt::Debug for Barrier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Barrier")
            .field("n", &self.n)
            .finish_non_exhaustive()
    }
}

/// The result of [`Barrier::wait`]: whether the caller was the last to arrive.
///
/// # Example
/// ```
/// use runnext::sync::{Barrier, BarrierWaitResult};
///
/// let pair = Barrier::new(2);
/// let met: [BarrierWaitResult; 2] = std::thread::scope(|s| {
///     let other = s.spawn(|| pair.wait());
///     [pair.wait(), other.join().unwrap()]
/// });
/// assert_ne!(met[0], met[1]); // one of them came last
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BarrierWaitResult(bool);

impl BarrierWaitResult {
    /// True for exactly one of the parties that met.
    ///
    /// ```
    /// assert!(runnext::sync::Barrier::new(1).wait().is_leader());
    /// ```
    pub fn is_leader(&self) -> bool {
        self.0
    }
}

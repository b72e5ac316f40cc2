//! `block_on`: a future polled where one stands.
//!
//! On a goroutine with a stack nothing is allocated: the waker is a reference to its header, whose signal it sleeps on. A plain thread
//! has no header, and a goroutine without a stack is already polled by its own: they get a signal on the heap.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};

use runnext_core::signal::Signal;

use crate::g::{G, WaitReason};
use crate::m::{self, M};
use crate::sched::call::Call;
use crate::sched::wait::Waiter;
use crate::sched::waker;

/// Polls a future until it is done, and returns its output.
///
/// Calls may nest: a function called from a future may use `block_on` again.
///
/// # Blocks
/// The goroutine (on a plain thread, the thread) until the future is done.
///
/// # Panics
/// If the future does.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// #[runnext::main]
/// fn main() {
///     let tasks = (1..=3u64).map(|i| runnext::spawn(async move {
///         runnext::future::sleep(Duration::from_millis(i)).await;
///         i
///     }));
///     let tasks: Vec<_> = tasks.collect();
///     let sum = runnext::block_on(async {
///         let mut sum = 0;
///         for task in tasks {
///             sum += task.await.unwrap();
///         }
///         sum
///     });
///     assert_eq!(sum, 6);
/// }
/// ```
pub fn block_on<F: Future>(fut: F) -> F::Output {
    let future = pin!(fut);
    match m::current().and_then(M::g) {
        Some(g) if !g.is_stackless() => on_goroutine(g, future),
        _ => on_thread(future),
    }
}

/// When a `block_on` ends, perhaps inside the poll of another one on the same goroutine, the rings it has answered may have
/// been meant for that one too. If there were none it rings nobody: the other one would be polled again and again.
struct Ring<'a> {
    signal: &'a Signal,
    answered: bool,
}

impl Ring<'_> {
    #[inline]
    fn begin(&mut self) {
        self.answered |= self.signal.begin();
    }
}

impl Drop for Ring<'_> {
    fn drop(&mut self) {
        if self.answered {
            let asleep = self.signal.ring();
            debug_assert!(!asleep, "it runs");
        }
    }
}

#[inline(always)]
fn on_goroutine<F: Future>(g: &'static G, mut future: Pin<&mut F>) -> F::Output {
    let waker = waker::lent(g);
    let mut context = Context::from_waker(&waker);
    let mut ring = Ring {
        signal: g.signal(),
        answered: false,
    };
    loop {
        ring.begin();
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        // The call first: who is rung asleep is about to park, and cannot be preempted in between.
        let mut call = Call::enter();
        if g.signal().is_rung() || !g.signal().sleep() {
            call.yield_freely(); // as a spawned one would: it may be its way to let others go first
        } else {
            call.park(WaitReason::Await);
        }
    }
}

/// The signal of somebody without a header for it.
struct Bell {
    signal: Signal,
    waiter: AtomicUsize,
}

impl Wake for Bell {
    fn wake(self: Arc<Bell>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Bell>) {
        if self.signal.ring() {
            // SAFETY: written by the waiter before it slept, and it sleeps until we wake it.
            Call::brief().wake(unsafe { Waiter::from_raw(self.waiter.load(Relaxed)) });
        }
    }
}

#[cold]
fn on_thread<F: Future>(mut future: Pin<&mut F>) -> F::Output {
    let bell = Arc::new(Bell {
        signal: Signal::new(),
        waiter: AtomicUsize::new(0),
    });
    let waker = Waker::from(Arc::clone(&bell));
    let mut context = Context::from_waker(&waker);
    loop {
        bell.signal.begin();
        if let Poll::Ready(value) = future.as_mut().poll(&mut context) {
            return value;
        }
        let mut call = Call::enter();
        bell.waiter.store(call.waiter().into_raw(), Relaxed);
        if bell.signal.sleep() {
            call.park(WaitReason::Await);
        } else {
            call.yield_freely(); // as on a goroutine with a stack
        }
    }
}

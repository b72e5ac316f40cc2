//! `spawn`, and awaiting what was spawned, with a stack or without.

use std::future::Future;
use std::panic::Location;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use crate::g::G;
use crate::goroutine::{JoinHandle, current_shared, withdraw};
use crate::group::TaskGroup;
use crate::sched::groups::Record;
use crate::sched::{Shared, drops, future, spawn as birth, waker};

/// Starts a goroutine without a stack: `fut` is polled on the runtime's processors, concurrently with the caller.
///
/// Otherwise it is a goroutine like any other: it has a number, is in the same queues and counts, and is preempted; a panic ends only
/// this goroutine and is returned by [`JoinHandle::join`]. The handle can also be awaited. Small futures (up to 40 bytes) are
/// kept in the goroutine's header, without an allocation.
///
/// # Panics
/// Outside a runtime, and when the system has no memory for another goroutine.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let answer = runnext::spawn(async { 6 * 7 });
///     assert_eq!(answer.join().unwrap(), 42);
/// }
/// ```
#[track_caller]
pub fn spawn<F>(fut: F) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    spawn_on(current_shared("spawn"), Location::caller(), fut)
}

impl TaskGroup {
    /// Starts a goroutine without a stack in this group; see [`spawn`](crate::spawn).
    ///
    /// # Panics
    /// Outside a runtime, when the system has no memory for another goroutine, and if another runtime uses the group.
    ///
    /// # Example
    /// ```
    /// use runnext::TaskGroup;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let crawl = TaskGroup::builder("crawl").weight(20).build();
    ///     let page = crawl.spawn(async { TaskGroup::current().unwrap().name().len() });
    ///     assert_eq!(page.join().unwrap(), 5);
    /// }
    /// ```
    #[track_caller]
    pub fn spawn<F>(&self, fut: F) -> JoinHandle<F::Output>
    where
        F: Future + Send + 'static,
        F::Output: Send + 'static,
    {
        start(
            current_shared("TaskGroup::spawn"),
            Location::caller(),
            Some(self.record()),
            fut,
        )
    }
}

pub(crate) fn spawn_on<F>(
    shared: &Shared,
    site: &'static Location<'static>,
    fut: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    start(shared, site, None, fut)
}

fn start<F>(
    shared: &Shared,
    site: &'static Location<'static>,
    group: Option<&Arc<Record>>,
    fut: F,
) -> JoinHandle<F::Output>
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    // SAFETY: 'static and Send by the bounds.
    match unsafe { future::spawn(shared, site, group, fut) } {
        // SAFETY: the header counts one handle for us, and its result is an F::Output.
        Ok(g) => unsafe { JoinHandle::new(g) },
        Err(e) => panic!("cannot start a goroutine: {e}"),
    }
}

/// Awaiting a handle is joining it. Dropping one that was polled detaches, as always.
///
/// # Panics
/// If it is polled again after it has given its result.
impl<T> Future for JoinHandle<T> {
    type Output = std::thread::Result<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Self::Output> {
        let g = self.goroutine().g();
        if !g.is_done() && register(g, cx.waker()) {
            return Poll::Pending;
        }
        // SAFETY: ended; we are its one JoinHandle.
        Poll::Ready(unsafe { birth::take_outcome(g) })
    }
}

/// Has `waker` woken at the end of `g`. False: it has ended.
fn register(g: &G, waker: &Waker) -> bool {
    match g.joiner() {
        Some(word) if waker::is_word_of(word, waker) => return !g.is_done(),
        Some(_) if !withdraw(g) => return false,
        _ => {}
    }
    drops::hurry(g);
    let word = waker::into_word(waker);
    if !g.register_joiner(word, waker::is_foreign(word)) {
        // SAFETY: it had ended before, so nobody else will use the word.
        drop(unsafe { waker::from_word(word) });
        return false;
    }
    true
}

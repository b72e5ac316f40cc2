//! `Runtime`: run, stop. How it starts is in [`builder`].

mod builder;

use std::fmt;
use std::mem::ManuallyDrop;
use std::panic::{self, Location};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process::{ExitCode, Termination};
use std::sync::Arc;
use std::time::Duration;

use runnext_sys::clock;

use crate::dump;
use crate::g::WaitReason;
use crate::goroutine::{JoinHandle, go_on, wait_for};
use crate::m;
use crate::say;
use crate::sched::blocking::blocking;
use crate::sched::call::Call;
use crate::sched::spawn::{self, Options};
use crate::sched::{COPY, Shared};
use crate::stats::{self, SchedStats};
pub use builder::Builder;

/// A scheduler with its threads.
///
/// Most programs have one, made by `#[runnext::main]`. Several may exist one after another or side by side; goroutines of
/// different runtimes can use the same channels and locks.
///
/// Dropping it is [`shutdown`](Self::shutdown) with no grace.
///
/// A runtime does not survive `fork`, which copies one thread only. In the child its methods panic, dropping it does nothing, and a goroutine that has to wait ends
/// the child with a message. So fork before it is built (daemons), or use exec or `_exit` in the child; another runtime may be built there.
/// `std::process::Command` is not concerned.
///
/// # Example
/// ```
/// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
/// let rt = unsafe { runnext::Runtime::builder().procs(2).build() }?;
/// let mut squares = vec![0; 8];
/// rt.run(|| {
///     runnext::scope(|s| {
///         for (i, square) in squares.iter_mut().enumerate() {
///             s.go(move || *square = i * i);
///         }
///     });
/// });
/// assert_eq!(squares[7], 49);
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Runtime {
    shared: Arc<Shared>,
}

// What is behind it is never left half-way by a panic: no user code runs inside.
impl UnwindSafe for Runtime {}
impl RefUnwindSafe for Runtime {}

impl fmt::Debug for Runtime {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Runtime")
            .field("procs", &self.shared.procs())
            .field("goroutines", &self.shared.live())
            .finish_non_exhaustive()
    }
}

/// What [`Runtime::shutdown`] found, of the goroutines that were alive when it was called.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use runnext::{Runtime, chan};
///
/// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
/// let rt = unsafe { Runtime::builder().procs(1).build() }?;
/// rt.go(|| chan::never::<()>().recv()); // nobody will tell it to end
/// let shutdown = rt.shutdown(Duration::from_millis(1));
/// assert_eq!((shutdown.finished, shutdown.abandoned), (0, 1));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Shutdown {
    /// Goroutines that ended within the grace period.
    pub finished: usize,
    /// Goroutines that did not: their stacks, and what they own, are leaked; futures among them were dropped.
    pub abandoned: usize,
}

impl Runtime {
    /// A builder with the default settings, or those of the `RUNNEXT_*` variables.
    ///
    /// # Example
    /// ```
    /// use runnext::Runtime;
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { Runtime::builder().build() }?;
    /// assert!(rt.run(runnext::procs) >= 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn builder() -> Builder {
        Builder::default()
    }

    /// Runs `f` as a goroutine and waits for its result. Other goroutines continue after `f` has ended.
    ///
    /// `f` may borrow: the caller waits until it is done.
    ///
    /// # Blocks
    /// The calling thread (or goroutine).
    ///
    /// # Panics
    /// With `f`'s panic, if it panics. In a process that was forked since the runtime was built.
    ///
    /// # Example
    /// ```
    /// let mut lines = vec!["b", "c", "a"];
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(1).build() }?;
    /// let first = rt.run(|| {
    ///     lines.sort();
    ///     lines[0]
    /// });
    /// assert_eq!((first, lines), ("a", vec!["a", "b", "c"]));
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn run<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T + Send,
        T: Send,
    {
        self.demand_threads();
        let options = Options {
            site: Location::caller(),
            ext: None,
            stack_class: None,
            group: None,
        };
        // SAFETY: we wait for it below, whatever happens, so what it borrows outlives it; Send by the bounds.
        let g = unsafe { spawn::spawn(&self.shared, options, f) }
            .unwrap_or_else(|e| panic!("cannot start a goroutine: {e}"));
        // SAFETY: the header counts one handle for us.
        let header = unsafe { g.as_ref() };
        wait_for(header, WaitReason::Join);
        // SAFETY: ended; it has no other JoinHandle.
        let outcome = unsafe { spawn::take_outcome::<T>(header) };
        spawn::drop_handle(g);
        outcome.unwrap_or_else(|payload| panic::resume_unwind(payload))
    }

    /// Starts a goroutine from any thread; see [`go`](crate::go).
    ///
    /// # Panics
    /// When the system has no memory for another goroutine, or the process was forked since the runtime was built.
    ///
    /// # Example
    /// ```
    /// use std::thread;
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(2).build() }?;
    /// let total: u32 = thread::scope(|s| {
    ///     let left = s.spawn(|| rt.go(|| 20).join().unwrap());
    ///     let right = s.spawn(|| rt.go(|| 40).join().unwrap());
    ///     left.join().unwrap() + right.join().unwrap()
    /// });
    /// assert_eq!(total, 60);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        self.demand_threads();
        go_on(&self.shared, Location::caller(), f)
    }

    /// Starts a goroutine without a stack from any thread; see [`spawn`](crate::spawn).
    ///
    /// # Panics
    /// When the system has no memory for another goroutine, or the process was forked since the runtime was built.
    ///
    /// # Example
    /// ```
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(1).build() }?;
    /// let half = rt.spawn(async { 21 });
    /// let whole = rt.spawn(async { half.await.unwrap() * 2 });
    /// assert_eq!(whole.join().unwrap(), 42); // this thread is no goroutine, and waits as threads do
    /// # Ok::<(), std::io::Error>(())
    /// ```
    #[cfg(feature = "async")]
    #[track_caller]
    pub fn spawn<F>(&self, fut: F) -> JoinHandle<F::Output>
    where
        F: std::future::Future + Send + 'static,
        F::Output: Send + 'static,
    {
        self.demand_threads();
        crate::future::spawn_on(&self.shared, Location::caller(), fut)
    }

    /// The scheduler's numbers. From any thread.
    ///
    /// # Example
    /// ```
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(2).build() }?;
    /// rt.run(|| runnext::yield_now());
    /// assert_eq!(rt.stats().total_goroutine, 1);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stats(&self) -> SchedStats {
        stats::of(&self.shared)
    }

    /// All goroutines, as [`dump::text`](crate::dump::text) shows them. From any thread.
    ///
    /// # Blocks
    /// The caller, while it gathers; nobody else.
    ///
    /// # Example
    /// ```
    /// use runnext::{Runtime, chan};
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { Runtime::builder().procs(1).build() }?;
    /// let (stop, stopped) = chan::bounded::<()>(0);
    /// let job = rt.go(move || stopped.recv());
    /// let mut text = rt.dump();
    /// while !text.contains("[chan receive]") {
    ///     text = rt.dump(); // it had not got that far
    /// }
    /// assert!(text.starts_with("goroutine 1 ["));
    /// drop(stop);
    /// assert!(job.join().unwrap().is_err());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn dump(&self) -> String {
        let mut text = Vec::new();
        // Writing to memory does not fail.
        let _ = blocking(|| dump::write_all(&self.shared, &mut text));
        dump::into_string(text)
    }

    /// Waits up to `grace` for all goroutines to end, including those started meanwhile, then stops the scheduler.
    ///
    /// Goroutines that have not ended by then are *abandoned*: they are not scheduled again and not unwound, so what they own is
    /// leaked. One that is computing, or inside a blocking call, continues on its thread until its next call that can block and has
    /// to ask the scheduler, where it stops for ever, unless it ends first. Channels always ask. Taking a lock of
    /// [`sync`](crate::sync) that is free does not: a loop of such calls alone continues, as one without calls does. Inside
    /// [`blocking`](crate::blocking) only calls that take something count: receiving, sending, and waiting for a `Mutex` or a
    /// `Semaphore`.
    ///
    /// Futures are dropped; one that is being polled, when that poll returns. The drop runs on the calling thread, on a thread that
    /// is joining the future at that moment, or, if the future is woken during the shutdown, on a helper thread. It never runs inside
    /// the call that wakes the future: that caller may hold a lock which the drop takes.
    ///
    /// When this returns, the threads and file descriptors of the runtime are gone, except those that an abandoned goroutine is
    /// using at that moment.
    ///
    /// # Blocks
    /// The calling thread, for at most `grace`, and then until every thread of the runtime has noticed the stop. For that, all
    /// preempted goroutines are resumed at once, since one of them may hold a lock of the allocator, and each needs a CPU to get on:
    /// with twenty endless loops on two CPUs this takes some 100 ms.
    ///
    /// # Panics
    /// When called from a goroutine of this runtime, which would wait for itself.
    ///
    /// # Example
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicU32, Ordering};
    /// use std::time::Duration;
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(2).build() }?;
    /// let saved = Arc::new(AtomicU32::new(0));
    /// for _ in 0..10 {
    ///     let saved = Arc::clone(&saved);
    ///     rt.go(move || {
    ///         runnext::yield_now();
    ///         saved.fetch_add(1, Ordering::Relaxed)
    ///     });
    /// }
    /// assert_eq!(rt.shutdown(Duration::MAX).abandoned, 0); // nobody joined them, yet all have ended
    /// assert_eq!(saved.load(Ordering::Relaxed), 10);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn shutdown(self, grace: Duration) -> Shutdown {
        let this = ManuallyDrop::new(self);
        // SAFETY: read out once, and `this` is never dropped.
        let shared = unsafe { std::ptr::read(&this.shared) };
        stop(shared, grace)
    }

    /// Whoever starts something from outside would wait for it for ever in a process without threads.
    #[track_caller]
    fn demand_threads(&self) {
        assert!(!self.shared.is_copy(), "{COPY}");
    }
}

impl Drop for Runtime {
    fn drop(&mut self) {
        stop(Arc::clone(&self.shared), Duration::ZERO);
    }
}

fn stop(shared: Arc<Shared>, grace: Duration) -> Shutdown {
    let own = m::current().is_some_and(|m| std::ptr::eq(m.shared, Arc::as_ptr(&shared)));
    assert!(
        !own,
        "a Runtime cannot be shut down or dropped by one of its own goroutines: do it outside, after Runtime::run"
    );
    if shared.is_copy() {
        let abandoned = shared.live();
        std::mem::forget(shared); // its locks may be held by threads that are not here
        return Shutdown {
            finished: 0,
            abandoned,
        };
    }
    let deadline =
        u64::try_from(grace.as_nanos()).map_or(u64::MAX, |ns| clock::now_ns().saturating_add(ns));
    let (finished, abandoned) = shared.drain(deadline);
    dump::retire(&shared);
    shared.reporter.stop();
    shared.stop();
    shared.groups.close(&shared);
    shared.drop_futures();
    shared.drop_tasks();
    shared.close_poller();
    shared.see_visitors_off();
    // A goroutine of another runtime may be the one to call: it is not preempted while it holds the slab's lock.
    let call = Call::brief();
    for p in shared.all_ps() {
        if p.idle.load(std::sync::atomic::Ordering::Acquire) || shared.threads.count() == 0 {
            // SAFETY: no M is left that owns it.
            let headers = unsafe { p.own() }.give_all_back(&shared);
            let last = shared.slab.free(headers);
            debug_assert!(!last, "not orphaned yet");
        }
    }
    // Or who brings back the last header might free the lock that is just given back.
    let visit = shared.visit();
    let alone = shared.slab.orphan();
    drop(visit);
    drop(call); // what follows frees memory
    if !alone {
        // Handles still point into the slab: the last of them lets go of this count (`return_header`).
        std::mem::forget(shared);
    }
    Shutdown {
        finished,
        abandoned,
    }
}

/// What the attributes expand to. Writing the attribute is accepting the thread-local contract: its
/// documentation says so.
#[doc(hidden)]
pub mod __private {
    use std::io;

    use super::*;

    /// Runs `f` as the main goroutine; reports its value inside it, since the value need not be `Send`.
    #[track_caller]
    pub fn run_main<C, F, T>(configure: C, f: F) -> ExitCode
    where
        C: FnOnce(Builder) -> Builder,
        F: FnOnce() -> T + Send,
        T: Termination,
    {
        run(configure, f).unwrap_or_else(|e| {
            say::line(format_args!("runnext: cannot start the runtime: {e}"));
            ExitCode::from(101)
        })
    }

    /// As `run_main`, for tests: a runtime that cannot start is a failed test.
    #[track_caller]
    pub fn run_test<C, F, T>(configure: C, f: F) -> ExitCode
    where
        C: FnOnce(Builder) -> Builder,
        F: FnOnce() -> T + Send,
        T: Termination,
    {
        run(configure, f).unwrap_or_else(|e| panic!("runnext: cannot start the runtime: {e}"))
    }

    #[track_caller]
    fn run<F, T>(configure: impl FnOnce(Builder) -> Builder, f: F) -> io::Result<ExitCode>
    where
        F: FnOnce() -> T + Send,
        T: Termination,
    {
        // SAFETY: accepted by whoever wrote the attribute.
        let rt = unsafe { configure(Runtime::builder()).build() }?;
        Ok(rt.run(|| f().report()))
    }
}

#[cfg(test)]
pub(crate) mod tests;

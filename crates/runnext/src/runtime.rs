//! `Runtime` and its `Builder`: start, run, stop.

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::panic::{self, Location};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::process::{ExitCode, Termination};
use std::sync::{Arc, Once};
use std::time::Duration;

use runnext_sys::{clock, cpu};

use crate::config::{self, Debug};
use crate::dump;
use crate::fatal;
use crate::fences;
use crate::g::WaitReason;
use crate::goroutine::{JoinHandle, go_on, wait_for};
use crate::group::CpuLimit;
use crate::m;
use crate::overflow;
use crate::sched::blocking::blocking;
use crate::sched::call::Call;
use crate::sched::groups::Limit;
use crate::sched::spawn::{self, Options};
use crate::sched::{Config, MAX_PROCS, Shared, start_threads};
use crate::sched::{hazards, preempt, report};
use crate::stack;
use crate::stats::{self, SchedStats};
use crate::trace;

/// The most threads a runtime may be allowed.
const MAX_THREADS: usize = 1_000_000;
/// What a time slice can be.
const LEAST_SLICE: Duration = Duration::from_micros(100);
const LONGEST_SLICE: Duration = Duration::from_secs(10);

/// A scheduler with its threads.
///
/// Most programs have one, made by `#[runnext::main]`. Several may exist one after another or side by side; goroutines of
/// different runtimes can use the same channels and locks.
///
/// Dropping it is [`shutdown`](Self::shutdown) with no grace.
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
    /// Ended within the grace period.
    pub finished: usize,
    /// Did not: their stacks, and what they own, are leaked; futures among them were dropped.
    pub abandoned: usize,
}

impl Runtime {
    /// A builder with the defaults, or what `RUNNEXT_*` variables say.
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

    /// Runs `f` as a goroutine and waits for its result. Other goroutines go on after it.
    ///
    /// `f` may borrow: the caller waits until it is done.
    ///
    /// # Blocks
    /// The calling thread (or goroutine).
    ///
    /// # Panics
    /// With `f`'s panic, if it panics.
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
    /// When the system has no memory for another goroutine.
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
        go_on(&self.shared, Location::caller(), f)
    }

    /// Starts a goroutine without a stack from any thread; see [`spawn`](crate::spawn).
    ///
    /// # Panics
    /// When the system has no memory for another goroutine.
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

    /// Waits up to `grace` for all goroutines to end, also those that are started meanwhile, then stops the scheduler. Goroutines that
    /// have not ended are abandoned: they are not dispatched again, and are not unwound, so what they own is leaked. One that is in the middle of computing, or in a
    /// blocking call, goes on with that on its thread, and stops for ever at its next call of the runtime. Futures that are waiting are
    /// dropped, on the calling thread.
    ///
    /// Threads and file descriptors of the runtime are gone when this returns, but those an abandoned goroutine
    /// is using at that moment.
    ///
    /// # Blocks
    /// The calling thread.
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
    let deadline =
        u64::try_from(grace.as_nanos()).map_or(u64::MAX, |ns| clock::now_ns().saturating_add(ns));
    let (finished, abandoned) = shared.drain(deadline);
    dump::retire(&shared);
    shared.reporter.stop();
    shared.stop();
    shared.groups.close(&shared);
    shared.drop_futures();
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

/// Configures a [`Runtime`]. For each setting a call wins over its `RUNNEXT_…` variable (the method's name in
/// capitals), and that over the default.
///
/// # Example
/// ```
/// use runnext::{Builder, Runtime, chan};
///
/// let small: Builder = Runtime::builder().procs(1).stack_size(128 << 10);
/// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
/// let (front, back) = unsafe { (small.clone().build()?, small.build()?) };
/// let (tx, rx) = chan::bounded(0);
/// front.go(move || tx.send("from one runtime to the other").unwrap());
/// assert_eq!(back.run(|| rx.recv()), Ok("from one runtime to the other"));
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default)]
#[must_use = "a builder does nothing until build is called"]
pub struct Builder {
    procs: Option<usize>,
    max_threads: Option<usize>,
    stack_size: Option<usize>,
    time_slice: Option<Duration>,
    preemption: Option<bool>,
    cpu_limit: Option<CpuLimit>,
}

impl Builder {
    /// Processors: the most goroutines that run user code at one moment. Default: the CPUs this process may use, or
    /// the cgroup's quota, whichever is less, followed as they change. `RUNNEXT_PROCS`.
    ///
    /// # Example
    /// ```
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(3).build() }?;
    /// assert_eq!(rt.run(runnext::procs), 3);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn procs(mut self, n: usize) -> Self {
        self.procs = Some(n);
        self
    }

    /// The most threads the runtime makes for goroutines, beside two of its own. A call that blocks uses one while it lasts, and so does a goroutine
    /// that is stopped while it computes: with as many of those as threads, others wait until one of them is done. Default 10,000.
    /// `RUNNEXT_MAX_THREADS`.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::{Runtime, blocking, go};
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { Runtime::builder().procs(1).max_threads(64).build() }?;
    /// let done: u32 = rt.run(|| {
    ///     let blocked = [1, 2, 3].map(|n| {
    ///         go(move || {
    ///             blocking(|| std::thread::sleep(Duration::from_millis(1))); // has a thread to itself
    ///             n
    ///         })
    ///     });
    ///     blocked.into_iter().map(|b| b.join().unwrap()).sum()
    /// });
    /// assert_eq!(done, 6);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn max_threads(mut self, n: usize) -> Self {
        self.max_threads = Some(n);
        self
    }

    /// Address space for each goroutine's stack, rounded up to a power of two of at least 64 KiB; memory is used only where it
    /// is touched. 20 KiB of it are the guard and what keeps neighbours apart in the TLB. Default 256 KiB.
    /// `RUNNEXT_STACK_SIZE`.
    ///
    /// # Example
    /// ```
    /// use std::hint::black_box;
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().stack_size(8 << 20).build() }?;
    /// let sum: u32 = rt.run(|| {
    ///     let table = [1u32; 200_000]; // 800 KB: more than the default stack has
    ///     black_box(&table).iter().sum()
    /// });
    /// assert_eq!(sum, 200_000);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn stack_size(mut self, bytes: usize) -> Self {
        self.stack_size = Some(bytes);
        self
    }

    /// How long a goroutine runs before it gives way to others that wait. Default 10 ms; from 0.1 ms to 10 s, or [`build`](Self::build)
    /// refuses it. `RUNNEXT_TIME_SLICE`, in milliseconds: `10`, `0.5`.
    ///
    /// # Example
    /// ```
    /// use std::sync::atomic::{AtomicBool, Ordering};
    /// use std::time::Duration;
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(1).time_slice(Duration::from_millis(1)).build() }?;
    /// let seen = AtomicBool::new(false);
    /// rt.run(|| {
    ///     runnext::scope(|s| {
    ///         s.go(|| seen.store(true, Ordering::Relaxed));
    ///         while !seen.load(Ordering::Relaxed) {} // has the only processor, until its slice is over
    ///     });
    /// });
    /// assert!(seen.into_inner());
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn time_slice(mut self, d: Duration) -> Self {
        self.time_slice = Some(d);
        self
    }

    /// Whether goroutines that do not give way by themselves are preempted. Default true. `RUNNEXT_PREEMPTION`.
    ///
    /// Without it nobody asks them to: they give way where they wait or yield, and a loop that polls (`try_recv`, `select!` with `default`)
    /// keeps its processor unless it calls [`yield_now`](crate::yield_now).
    ///
    /// # Example
    /// ```
    /// use runnext::{go, yield_now};
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { runnext::Runtime::builder().procs(1).preemption(false).build() }?;
    /// let answer = rt.run(|| {
    ///     let other = go(|| 6 * 7);
    ///     while !other.is_finished() {
    ///         yield_now(); // without this the other one would never get the processor
    ///     }
    ///     other.join().unwrap()
    /// });
    /// assert_eq!(answer, 42);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn preemption(mut self, on: bool) -> Self {
        self.preemption = Some(on);
        self
    }

    /// How much of all processors the [governed](crate::TaskGroupBuilder::governed) groups may use together. Default
    /// [`CpuLimit::Unlimited`]. A fraction is above 0 and up to 1, or [`build`](Self::build) refuses it, and at least 0.05 is granted; a target is
    /// clamped to 0.1 ms to 1 s. `RUNNEXT_CPU_LIMIT`: a fraction, `adaptive:` and the target in milliseconds (`adaptive:2`), or `unlimited`.
    ///
    /// # Example
    /// ```
    /// use std::io::ErrorKind;
    /// use runnext::{CpuLimit, Runtime, TaskGroup};
    ///
    /// // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    /// let rt = unsafe { Runtime::builder().cpu_limit(CpuLimit::Fraction(0.5)).build() }?;
    /// let sum = rt.run(|| {
    ///     let batch = TaskGroup::builder("batch").governed(true).build();
    ///     batch.go(|| (1..=100u32).sum::<u32>()).join().unwrap() // with half of the machine at most
    /// });
    /// assert_eq!(sum, 5050);
    ///
    /// // SAFETY: as above.
    /// let refused = unsafe { Runtime::builder().cpu_limit(CpuLimit::Fraction(1.5)).build() };
    /// assert_eq!(refused.unwrap_err().kind(), ErrorKind::InvalidInput);
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn cpu_limit(mut self, l: CpuLimit) -> Self {
        self.cpu_limit = Some(l);
        self
    }

    /// Starts the runtime.
    ///
    /// # Safety
    /// The program accepts the *thread-local contract*: a goroutine may go on running on another thread after any call that can
    /// park it (anything whose documentation has a `# Blocks` section, drops of write guards included), so code that runs in goroutines must not keep a
    /// borrow of a `thread_local!`, or a handle into one, over such a call. Use
    /// [`goroutine_local!`](crate::goroutine_local) instead, or [`lock_os_thread`](crate::lock_os_thread) around
    /// code that needs its thread. Preemption never moves a goroutine and adds nothing to this.
    ///
    /// # Errors
    /// `InvalidInput` for settings out of range, with the range; the system's error if a thread or mapping cannot be
    /// had.
    ///
    /// # Example
    /// ```
    /// use runnext::Runtime;
    ///
    /// // SAFETY: the goroutines below use no thread-local at all.
    /// let rt = unsafe { Runtime::builder().procs(2).build() }?;
    /// assert_eq!(rt.run(|| runnext::go(|| 6 * 7).join().unwrap()), 42);
    ///
    /// // SAFETY: as above; this one does not even start.
    /// let refused = unsafe { Runtime::builder().procs(0).build() }.unwrap_err();
    /// assert_eq!(refused.to_string(), "procs must be from 1 to 1024, not 0");
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub unsafe fn build(self) -> io::Result<Runtime> {
        let debug = Debug::from_env();
        let (signal, sigquit) = (debug.preempt_signal, debug.sigquit);
        let membarrier = debug.membarrier;
        let recorded = debug.flight_recorder;
        hazards::set(debug.hazards);
        let reports = report::Reports {
            schedtrace: Duration::from_millis(debug.schedtrace),
            detail: debug.scheddetail,
            stalls: Duration::from_millis(debug.stalls),
        };
        let config = self.config(debug)?;
        report_panics();
        overflow::install()?;
        preempt::install(signal)?;
        fences::choose(membarrier);
        clock::init();
        let shared = Arc::new(Shared::new(config)?);
        // From here on an error drops it, which ends the threads that were made.
        let runtime = Runtime {
            shared: Arc::clone(&shared),
        };
        start_threads(&shared)?;
        report::start(&shared, reports)?;
        if recorded > 0 {
            let options = trace::Options::default().events_per_proc(recorded as usize);
            trace::begin(&shared, options, true)?;
        }
        let _ = fatal::LAST_WORDS.set(dump::on_fatal);
        dump::set_sigquit(sigquit);
        dump::enlist(&shared);
        Ok(runtime)
    }

    fn config(self, debug: Debug) -> io::Result<Config> {
        let chosen = self
            .procs
            .or_else(|| config::number("RUNNEXT_PROCS", 1, MAX_PROCS));
        let procs = chosen.unwrap_or_else(|| cpu::default_procs().min(MAX_PROCS));
        config::in_range("procs", procs, 1, MAX_PROCS)?;
        let max_threads = self
            .max_threads
            .or_else(|| config::number("RUNNEXT_MAX_THREADS", 1, MAX_THREADS))
            .unwrap_or(10_000);
        config::in_range("max_threads", max_threads, 1, MAX_THREADS)?;
        let stack_size = self
            .stack_size
            .or_else(|| config::number("RUNNEXT_STACK_SIZE", 1, stack::MAX_SIZE))
            .unwrap_or(256 << 10);
        let slice = self
            .time_slice
            .or_else(|| config::millis("RUNNEXT_TIME_SLICE", LEAST_SLICE, LONGEST_SLICE))
            .unwrap_or(Duration::from_millis(10));
        let us = |d: Duration| d.as_micros().try_into().unwrap_or(usize::MAX);
        config::in_range(
            "time_slice in microseconds",
            us(slice),
            us(LEAST_SLICE),
            us(LONGEST_SLICE),
        )?;
        let preemption = self
            .preemption
            .or_else(|| config::switch("RUNNEXT_PREEMPTION"))
            .unwrap_or(true);
        let cpu_limit = self
            .cpu_limit
            .or_else(|| config::cpu_limit("RUNNEXT_CPU_LIMIT"))
            .unwrap_or_default();
        let cpu_limit = Limit::new(cpu_limit)
            .map_err(|why| io::Error::new(io::ErrorKind::InvalidInput, why.to_string()))?;
        let config = Config {
            procs,
            follows_system: chosen.is_none(),
            max_threads,
            stack_class: stack::class_for(stack_size)?,
            time_slice: slice,
            preemption: preemption && !debug.async_preempt_off,
            chaos: debug.chaos,
            mprotect_guards: debug.mprotect_guards,
            seed: debug.seed,
            cpu_limit,
            lend: debug.lend,
        };
        Ok(config)
    }
}

/// A goroutine's panic is announced with its number, name and origin; then whatever hook the program had does its part.
fn report_panics() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let previous = panic::take_hook();
        panic::set_hook(Box::new(move |info| {
            if let Some(g) = m::current().and_then(m::M::g) {
                match g.name() {
                    Some(name) => eprintln!(
                        "\ngoroutine {} '{name}', spawned at {}, panicked:",
                        g.id(),
                        g.site()
                    ),
                    None => eprintln!("\ngoroutine {}, spawned at {}, panicked:", g.id(), g.site()),
                }
            }
            previous(info);
        }));
    });
}

/// What the attributes expand to. Writing the attribute is accepting the thread-local contract: its
/// documentation says so.
#[doc(hidden)]
pub mod __private {
    use super::*;

    /// Runs `f` as the main goroutine; reports its value inside it, since the value need not be `Send`.
    pub fn run_main<C, F, T>(configure: C, f: F) -> ExitCode
    where
        C: FnOnce(Builder) -> Builder,
        F: FnOnce() -> T + Send,
        T: Termination,
    {
        // SAFETY: accepted by whoever wrote the attribute.
        match unsafe { configure(Runtime::builder()).build() } {
            Ok(rt) => rt.run(|| f().report()),
            Err(e) => {
                eprintln!("runnext: cannot start the runtime: {e}");
                ExitCode::from(101)
            }
        }
    }

    /// As `run_main`, for tests: a runtime that cannot start is a failed test.
    pub fn run_test<C, F, T>(configure: C, f: F) -> ExitCode
    where
        C: FnOnce(Builder) -> Builder,
        F: FnOnce() -> T + Send,
        T: Termination,
    {
        // SAFETY: accepted by whoever wrote the attribute.
        match unsafe { configure(Runtime::builder()).build() } {
            Ok(rt) => rt.run(|| f().report()),
            Err(e) => panic!("runnext: cannot start the runtime: {e}"),
        }
    }
}

#[cfg(test)]
mod tests;

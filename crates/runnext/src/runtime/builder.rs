//! The `Builder` of a [`Runtime`]: its settings, and the start.

use std::io;
use std::panic;
use std::sync::{Arc, Once};
use std::time::Duration;

use runnext_sys::{clock, cpu, fork, limit};

use super::Runtime;
use crate::config::{self, Debug};
use crate::dump;
use crate::fatal;
use crate::fences;
use crate::group::CpuLimit;
use crate::m;
use crate::one_line::OneLine;
use crate::overflow;
use crate::say;
use crate::sched::groups::Limit;
use crate::sched::{Config, MAX_PROCS, Shared, start_threads};
use crate::sched::{hazards, preempt, report};
use crate::stack;
use crate::trace;

/// The most threads a runtime may be allowed.
const MAX_THREADS: usize = 1_000_000;
/// What a time slice can be.
const LEAST_SLICE: Duration = Duration::from_micros(100);
const LONGEST_SLICE: Duration = Duration::from_secs(10);

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
    /// that is stopped while it computes. Once all of them are taken by such goroutines, others wait until one of those is done. Default 10,000.
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
    /// is touched. 20 KiB of it are the guard and padding. Default 256 KiB. How to choose it: [`guide::deploying`](crate::guide::deploying).
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

    /// How much CPU time a goroutine uses before it is preempted while others wait. Default 10 ms; from 0.1 ms to 10 s, or [`build`](Self::build)
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

    /// Whether goroutines that compute for longer than a time slice are preempted. Default true. `RUNNEXT_PREEMPTION`.
    ///
    /// Without preemption a goroutine keeps its processor until it waits or yields; at a [`checkpoint`](crate::checkpoint) it yields once it has used up a
    /// time slice and others wait. A loop that polls (`try_recv`, `select!` with `default`) keeps it too, unless it calls one of these.
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
    /// The program accepts the *thread-local contract*: after any call that can park it, a goroutine may resume on another thread. Code that
    /// runs in goroutines must not hold a borrow of a `thread_local!`, or a handle into one, across such a call. Calls that can park are those
    /// whose documentation has a `# Blocks` section, and dropping a [`MutexGuard`](crate::sync::MutexGuard) or an
    /// [`RwLockWriteGuard`](crate::sync::RwLockWriteGuard). Use
    /// [`goroutine_local!`](crate::goroutine_local) instead, or [`lock_os_thread`](crate::lock_os_thread) around
    /// code that needs its thread. Preemption never moves a goroutine and adds nothing to this.
    ///
    /// # Errors
    /// `InvalidInput` for settings out of range, with the range; the system's error if it refuses a thread, descriptor or mapping,
    /// with the limit that may be the cause.
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
        fork::watch();
        let shared = Arc::new(Shared::new(config).map_err(limit::explain)?);
        // From here on an error drops it, which ends the threads that were made.
        let runtime = Runtime {
            shared: Arc::clone(&shared),
        };
        start_threads(&shared).map_err(limit::explain)?;
        report::start(&shared, reports).map_err(limit::explain)?;
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
                let (id, site) = (g.id(), g.site());
                match g.name().map(OneLine) {
                    Some(name) => say::line(format_args!(
                        "\ngoroutine {id} '{name}', spawned at {site}, panicked:"
                    )),
                    None => say::line(format_args!(
                        "\ngoroutine {id}, spawned at {site}, panicked:"
                    )),
                }
            }
            previous(info);
        }));
    });
}

//! Traces: every scheduling event of a period, for a viewer.
//!
//! [`start`] makes every processor record its scheduling events; [`stop`] returns them as a [`Trace`], which
//! [`Trace::write_chrome`] writes in the form that <https://ui.perfetto.dev> and `chrome://tracing` open: a track for each processor with
//! goroutines as slices, arrows from wakers to the goroutines they woke, counters for the queues, and the program's own [`span`]s.
//!
//! [`start_flight_recorder`] records permanently: only the last events are kept, and [`snapshot`] returns them, for when something
//! has just gone wrong.
//!
//! # What it costs
//! While off, only a branch on a word of the processor. A trace reads the CPU's tick counter for each event, some 10 ns. The
//! flight recorder reads it for every 128th event of a processor, and whenever the monitor has looked since the last: the order on a processor is exact,
//! the times between are those of the last reading, so slices of a busy processor may be shown with no length at all, but never
//! those of 10 ms or more.
//!
//! # What is lost
//! Each processor keeps the last events that fit; older ones are overwritten, counted in [`Trace::lost`], and the count is in what is
//! exported. Events of threads without a processor have a ring of their own. Of [groups](crate::TaskGroup) 63 have their counters in it, those in use for
//! longest as a rule: a new group gets the place of one that is gone.
//!
//! # Example
//! ```
//! use runnext::trace;
//!
//! #[runnext::main]
//! fn main() -> std::io::Result<()> {
//!     trace::start(trace::Options::default())?;
//!     {
//!         let _span = trace::span("squares");
//!         runnext::scope(|s| {
//!             for _ in 0..10 {
//!                 s.go(runnext::yield_now);
//!             }
//!         });
//!     }
//!     let trace = trace::stop().expect("it was started");
//!     assert!(trace.events() > 20 && trace.lost() == 0);
//!     let mut json = Vec::new();
//!     trace.write_chrome(&mut json)
//! }
//! ```

mod chrome;
#[cfg(feature = "tracing")]
mod layer;
mod story;

use std::collections::HashMap;
use std::io;
use std::ptr;
use std::sync::Arc;

use runnext_sys::clock;

#[cfg(feature = "tracing")]
pub use layer::Layer;

use crate::g::G;
use crate::goroutine::current_shared;
use crate::m;
use crate::observe::event::Kind;
use crate::observe::ring::{Copied, Ring};
use crate::observe::session::{OUTSIDE, Parts};
use crate::sched::Shared;
use crate::sched::call::Call;

/// How a trace is kept.
///
/// # Example
/// ```
/// use runnext::trace::{self, Options};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     trace::start(Options::default().events_per_proc(1024))?; // a short look: less memory
///     runnext::go(|| ()).join().unwrap();
///     let trace = trace::stop().unwrap();
///     assert!(trace.events() > 0 && trace.lost() == 0);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use]
pub struct Options {
    events: usize,
}

impl Default for Options {
    /// A quarter of a million events for each processor: 4 MiB.
    fn default() -> Self {
        Options { events: 1 << 18 }
    }
}

impl Options {
    /// Keeps the last `n` events of each processor, rounded up to a power of two, from 64 to 16 million; 16 bytes each, or 8 in a flight recorder.
    ///
    /// # Example
    /// ```
    /// use runnext::trace::{self, Options};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     trace::start(Options::default().events_per_proc(64))?;
    ///     for _ in 0..1000 {
    ///         runnext::go(|| ()).join().unwrap();
    ///     }
    ///     let trace = trace::stop().unwrap();
    ///     assert!(trace.events() > 0 && trace.lost() > 0); // only the last ones were kept
    ///     Ok(())
    /// }
    /// ```
    pub fn events_per_proc(mut self, n: usize) -> Self {
        self.events = n.clamp(64, 1 << 24);
        self
    }
}

/// Starts to write down what happens.
///
/// # Errors
/// `AlreadyExists` if a trace or a flight recorder runs; the system's, usually `OutOfMemory`, if there is no room for so many events.
///
/// # Panics
/// Outside a runtime.
///
/// # Example
/// ```
/// use std::io::ErrorKind;
/// use runnext::trace::{self, Options};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     trace::start(Options::default())?;
///     let second = trace::start(Options::default()).unwrap_err();
///     assert_eq!(second.kind(), ErrorKind::AlreadyExists);
///     assert!(!trace::stop().unwrap().is_coarse());
///     trace::start(Options::default()) // now there is room for another
/// }
/// ```
#[track_caller]
pub fn start(options: Options) -> io::Result<()> {
    begin(current_shared("trace::start"), options, false)
}

/// Starts to record events permanently and at less cost: see the [module](self). [`snapshot`] returns the last
/// events, [`stop`] ends the recording.
///
/// `RUNNEXT_DEBUG=flightrecorder=n` starts one with the runtime, with room for `n` events of each processor.
///
/// # Errors
/// `AlreadyExists` if a trace or a flight recorder runs; the system's, usually `OutOfMemory`, if there is no room for so many events.
///
/// # Panics
/// Outside a runtime.
///
/// # Example
/// ```
/// use runnext::trace::{self, Options};
///
/// fn handle(request: &str) -> Result<usize, std::num::ParseIntError> {
///     let _span = trace::span("handle");
///     request.parse()
/// }
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     trace::start_flight_recorder(Options::default().events_per_proc(4096))?;
///     if handle("not a number").is_err() {
///         let just_now = trace::snapshot().unwrap(); // to be looked at later; the recorder goes on
///         assert!(just_now.to_chrome().contains("handle"));
///     }
///     Ok(())
/// }
/// ```
#[track_caller]
pub fn start_flight_recorder(options: Options) -> io::Result<()> {
    begin(
        current_shared("trace::start_flight_recorder"),
        options,
        true,
    )
}

pub(crate) fn begin(shared: &Shared, options: Options, coarse: bool) -> io::Result<()> {
    let _one = shared.observe.tracer();
    let mut session = shared.observe.session();
    if session.is_on() {
        return Err(io::Error::new(
            io::ErrorKind::AlreadyExists,
            "a trace runs already in this runtime: end it with trace::stop",
        ));
    }
    session.begin(options.events, coarse);
    // All rings before the first event: there may be no room for them.
    let mut ids = shared.all_ps().map(|p| p.id).chain([OUTSIDE]);
    if let Err(refused) = ids.try_for_each(|id| session.ring(id).map(drop)) {
        session.end().release();
        return Err(refused.into());
    }
    for p in shared.all_ps() {
        p.eye.set_tracing(session.ring(p.id).ok(), coarse);
    }
    let outside = ptr::from_ref(session.ring(OUTSIDE)?);
    drop(session);
    let _call = Call::brief(); // under a lock of the runtime's
    // SAFETY: rings are kept until the runtime is gone.
    unsafe { shared.observe.set_tracing(Some(&*outside)) };
    Ok(())
}

/// The events recorded so far; recording continues. None if nothing is being recorded.
///
/// # Panics
/// Outside a runtime.
///
/// # Example
/// ```
/// use runnext::trace::{self, Options};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     assert!(trace::snapshot().is_none());
///     trace::start(Options::default())?;
///     let first = trace::snapshot().unwrap();
///     runnext::go(|| ()).join().unwrap();
///     let second = trace::snapshot().unwrap();
///     assert!(second.events() > first.events());
///     Ok(())
/// }
/// ```
#[track_caller]
pub fn snapshot() -> Option<Trace> {
    let shared = current_shared("trace::snapshot");
    let _one = shared.observe.tracer();
    let parts = {
        let session = shared.observe.session();
        session.is_on().then(|| session.parts())
    };
    parts.map(|parts| collect(shared, &parts))
}

/// Ends the trace, or the flight recorder. None if none runs. The memory it was written to is given back; the [`Trace`] has a copy of its own.
///
/// # Panics
/// Outside a runtime.
///
/// # Example
/// ```
/// use runnext::trace::{self, Options};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     assert!(trace::stop().is_none());
///     trace::start(Options::default())?;
///     runnext::go(|| drop(trace::span("in between"))).join().unwrap();
///     let trace = trace::stop().unwrap();
///     assert!(trace.to_chrome().contains("in between"));
///     assert!(trace::stop().is_none());
///     Ok(())
/// }
/// ```
#[track_caller]
pub fn stop() -> Option<Trace> {
    let shared = current_shared("trace::stop");
    let _one = shared.observe.tracer(); // until all is copied: the next trace uses the same rings
    if !shared.observe.session().is_on() {
        return None;
    }
    {
        let _call = Call::brief();
        // SAFETY: nothing is given.
        unsafe { shared.observe.set_tracing(None) };
    }
    let parts = {
        let mut session = shared.observe.session();
        // Under it: a P that is made just now is adopted before, or not at all.
        for p in shared.all_ps() {
            p.eye.set_tracing(None, false);
        }
        session.end()
    };
    let trace = collect(shared, &parts);
    parts.release();
    Some(trace)
}

/// Copies what the rings hold. A goroutine without a known number is asked for it, if it is still alive.
fn collect(shared: &Shared, parts: &Parts) -> Trace {
    let copy = |(id, ring, since): &(usize, Arc<Ring>, u64)| (*id, ring.copy(*since));
    let rings: Vec<(usize, Copied)> = parts.rings.iter().map(copy).collect();
    let ended = clock::ticks();
    let mut numbers = HashMap::new();
    for header in story::headers(&rings) {
        let g = header as *const G;
        let call = Call::brief(); // for the slab's lock
        let known = shared.slab.contains(g);
        drop(call);
        if known {
            // SAFETY: in the slab, whose headers are type-stable.
            numbers.insert(header, unsafe { &*g }.id());
        }
    }
    Trace {
        began: parts.began,
        ended,
        coarse: parts.coarse,
        rings,
        numbers,
        names: parts.names.clone(),
        groups: shared.groups.names(),
    }
}

/// What happened in a while.
///
/// # Example
/// ```
/// use runnext::{go, trace};
///
/// #[runnext::main(procs = 2)]
/// fn main() -> std::io::Result<()> {
///     trace::start(trace::Options::default())?;
///     let number = go(|| runnext::current().unwrap().id()).join().unwrap();
///     let trace = trace::stop().unwrap();
///     println!("{trace:?} in {:?}", trace.duration());
///     assert!(trace.to_chrome().contains(&format!("goroutine {number}")));
///     Ok(())
/// }
/// ```
pub struct Trace {
    began: u64,
    ended: u64,
    coarse: bool,
    /// By P, [`OUTSIDE`] for those without one.
    rings: Vec<(usize, Copied)>,
    /// The goroutines of headers, as of the end.
    numbers: HashMap<u64, u64>,
    /// Of spans.
    names: Vec<Arc<str>>,
    groups: HashMap<u32, Arc<str>>,
}

impl std::fmt::Debug for Trace {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Trace")
            .field("events", &self.events())
            .field("lost", &self.lost())
            .finish_non_exhaustive()
    }
}

impl Trace {
    /// How many events it holds.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     runnext::trace::start(runnext::trace::Options::default())?;
    ///     for _ in 0..10 {
    ///         runnext::go(|| ()).join().unwrap();
    ///     }
    ///     // Each was born, ran and ended, at least.
    ///     assert!(runnext::trace::stop().unwrap().events() >= 30);
    ///     Ok(())
    /// }
    /// ```
    pub fn events(&self) -> usize {
        let all = self.rings.iter().flat_map(|(_, copied)| &copied.events);
        all.filter(|e| e.clock().is_none()).count()
    }

    /// How many words there were before those, and are gone: an event is one, or two with its time.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     runnext::trace::start(runnext::trace::Options::default().events_per_proc(64))?;
    ///     assert_eq!(runnext::trace::snapshot().unwrap().lost(), 0);
    ///     (0..1000).for_each(|_| runnext::go(|| ()).join().unwrap());
    ///     assert!(runnext::trace::stop().unwrap().lost() > 0); // the beginning is missing
    ///     Ok(())
    /// }
    /// ```
    pub fn lost(&self) -> u64 {
        self.rings.iter().map(|(_, copied)| copied.lost).sum()
    }

    /// Whether it is a flight recorder's: events share clock readings.
    ///
    /// # Example
    /// ```
    /// use runnext::trace::{self, Options};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     trace::start_flight_recorder(Options::default())?;
    ///     assert!(trace::stop().unwrap().is_coarse()); // do not measure slices in it
    ///     Ok(())
    /// }
    /// ```
    pub fn is_coarse(&self) -> bool {
        self.coarse
    }

    /// How long it lasted.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::{time, trace};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     trace::start(trace::Options::default())?;
    ///     time::sleep(Duration::from_millis(3));
    ///     assert!(trace::stop().unwrap().duration() > Duration::from_millis(2));
    ///     Ok(())
    /// }
    /// ```
    pub fn duration(&self) -> std::time::Duration {
        std::time::Duration::from_nanos(clock::ticks_to_ns(self.ended.saturating_sub(self.began)))
    }

    /// Writes it as JSON in Chrome's trace event format, which Perfetto and `chrome://tracing` open.
    ///
    /// # Errors
    /// Those of the writer.
    ///
    /// # Example
    /// ```
    /// use runnext::{fs, trace};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     trace::start(trace::Options::default())?;
    ///     runnext::go(|| ()).join().unwrap();
    ///     let path = std::env::temp_dir().join(format!("runnext-write_chrome-{}.json", std::process::id()));
    ///     trace::stop().unwrap().write_chrome(&mut fs::File::create(&path)?)?;
    ///     assert!(fs::read_to_string(&path)?.contains("traceEvents")); // open it at ui.perfetto.dev
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn write_chrome(&self, out: &mut impl io::Write) -> io::Result<()> {
        chrome::write(self, out)
    }

    /// As [`write_chrome`](Self::write_chrome), as a string.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     runnext::trace::start(runnext::trace::Options::default())?;
    ///     runnext::go(|| ()).join().unwrap();
    ///     let json = runnext::trace::stop().unwrap().to_chrome();
    ///     assert!(json.contains(r#""name":"P0""#)); // a track for each processor
    ///     Ok(())
    /// }
    /// ```
    pub fn to_chrome(&self) -> String {
        let mut json = Vec::new();
        // Writing to memory does not fail.
        let _ = self.write_chrome(&mut json);
        crate::dump::into_string(json)
    }
}

/// A part of a goroutine's life that has a name, from [`span`] to its being dropped.
///
/// # Example
/// ```
/// use runnext::trace::{self, Span};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     trace::start(trace::Options::default())?;
///     let outer: Span = trace::span("request");
///     for part in ["parse", "answer"] {
///         let _inner = trace::span(part); // until the end of the round
///         runnext::yield_now();
///     }
///     drop(outer);
///     let json = trace::stop().unwrap().to_chrome();
///     assert_eq!(json.matches(r#""name":"request""#).count(), 2); // its beginning and its end
///     assert_eq!(json.matches(r#""name":"parse""#).count(), 2);
///     Ok(())
/// }
/// ```
#[derive(Debug)]
#[must_use = "a span ends when it is dropped"]
pub struct Span {
    open: bool,
}

/// Begins a span of the calling goroutine, if a trace is being written; it may park and move meanwhile. Spans nest: the last one to
/// begin is the first to end. A trace tells 65,536 names apart; further ones are "(other)" in it.
///
/// # Example
/// ```
/// use runnext::trace;
///
/// fn load() -> Vec<u8> {
///     let _span = trace::span("load"); // free while nobody traces
///     runnext::go(|| vec![1, 2, 3]).join().unwrap()
/// }
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     load();
///     trace::start(trace::Options::default())?;
///     load();
///     assert!(trace::stop().unwrap().to_chrome().contains("load"));
///     Ok(())
/// }
/// ```
pub fn span(name: &str) -> Span {
    Span { open: enter(name) }
}

/// Begins a span. False: nobody traces.
fn enter(name: &str) -> bool {
    let Some(observe) = m::current().map(|m| &m.shared_static().observe) else {
        return false;
    };
    if !observe.is_tracing() {
        return false;
    }
    let number = observe.session().name(name);
    note(Kind::Span, Some(number));
    true
}

fn leave() {
    note(Kind::SpanEnd, None);
}

fn note(kind: Kind, value: Option<u64>) {
    let call = Call::brief();
    if let Some(m) = call.m()
        && let Some(g) = m.g()
    {
        match value {
            Some(value) => m.p().eye.note_with(kind, g, value),
            None => m.p().eye.note(kind, 0, g),
        }
    }
}

impl Drop for Span {
    fn drop(&mut self) {
        if self.open {
            leave();
        }
    }
}

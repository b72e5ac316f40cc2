//! All goroutines: what each does, since when, and where it stands.
//!
//! # Why this shape
//! A dump is wanted most when something is wrong. So it stops no goroutine and waits for none: headers are read as they are, stacks are
//! copied by the kernel, and names are looked up once for all goroutines at the same place. Goroutines continue meanwhile; a goroutine that
//! changes its state while it is read is shown as it was before or after, and one that changes too often may be missed.
//!
//! # Form
//! Go's, so that its tools and readers' eyes know it:
//!
//! ```text
//! goroutine 7 [chan receive, 2 minutes]: 'worker' (group web)
//! runnext::chan::Receiver<T>::recv
//!     src/chan/ends.rs:120
//! my_program::worker
//!     src/main.rs:31
//!     spawned at src/main.rs:12:5
//! ```
//!
//! Call stacks are those of goroutines that wait or are queued, and of those whose thread sleeps in the kernel; they need the
//! feature `backtrace`, which is on by default.
//!
//! # Example
//! ```
//! #[runnext::main]
//! fn main() {
//!     let (tx, rx) = runnext::chan::bounded::<()>(0);
//!     let waiter = runnext::go(move || rx.recv());
//!     while !runnext::dump::text().contains("[chan receive]:") {
//!         runnext::yield_now(); // it has not got that far
//!     }
//!     drop(tx);
//!     waiter.join().unwrap().unwrap_err();
//! }
//! ```

#[cfg(not(feature = "backtrace"))]
mod none;
mod signal;
#[cfg(feature = "backtrace")]
mod symbols;
#[cfg(feature = "backtrace")]
mod unwind;

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use runnext_core::owner::State;
use runnext_core::park;
use runnext_sys::{clock, inspect};

#[cfg(not(feature = "backtrace"))]
use none::{Symbols, Unwinder};
#[cfg(feature = "backtrace")]
use symbols::Symbols;
#[cfg(feature = "backtrace")]
use unwind::Unwinder;

use crate::g::{G, Peek};
use crate::m::{self, M};
use crate::one_line::OneLine;
use crate::sched::Shared;
use crate::sched::blocking::blocking;
use crate::sched::call::Call;

pub(crate) use signal::{enlist, on_fatal, retire, serve, set_sigquit};

/// Threads whose kernel state is asked for in one dump.
const THREADS_ASKED: usize = 256;

/// One goroutine, as it was seen.
///
/// # Example
/// ```
/// use runnext::{chan, dump, goroutine, yield_now};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let (end, wait) = chan::bounded::<()>(0);
///     let worker = goroutine::Builder::new().name("worker").spawn(move || wait.recv())?;
///     let mut state = "";
///     while state != "chan receive" {
///         yield_now(); // it has not got that far
///         dump::for_each(|entry| if entry.name.as_deref() == Some("worker") { state = entry.state });
///     }
///     drop(end);
///     worker.join().unwrap().unwrap_err();
///     Ok(())
/// }
/// ```
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Entry {
    /// Its number.
    pub id: u64,
    /// Its name, if it has one.
    pub name: Option<String>,
    /// Its state: `running`, `runnable`, `preempted`, `syscall`, or what it waits for, in Go's words.
    pub state: &'static str,
    /// For how long it has waited, to within some 10 ms.
    pub waiting: Option<Duration>,
    /// It can resume only on the thread it has.
    pub locked: bool,
    /// The group it belongs to.
    pub group: Option<String>,
    /// Where it was spawned.
    pub spawned_at: &'static std::panic::Location<'static>,
    /// Where it stands, innermost first; empty if that is not known.
    pub stack: Arc<[Frame]>,
    /// The same as text, made once for all goroutines at this place.
    written: Arc<str>,
}

/// One function in a call stack.
///
/// # Example
/// ```
/// # #[cfg(feature = "backtrace")]
/// use runnext::{chan, dump, go, yield_now};
///
/// # #[cfg(feature = "backtrace")]
/// #[runnext::main]
/// fn main() {
///     let (end, wait) = chan::bounded::<()>(0);
///     let waiter = go(move || wait.recv());
///     let mut innermost = None;
///     while innermost.is_none() {
///         yield_now();
///         dump::for_each(|entry| if entry.state == "chan receive" { innermost = entry.stack.first().cloned() });
///     }
///     assert!(innermost.unwrap().function.contains("recv"));
///     drop(end);
///     waiter.join().unwrap().unwrap_err();
/// }
/// # #[cfg(not(feature = "backtrace"))]
/// # fn main() {}
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Frame {
    /// Its name, or its address.
    pub function: String,
    /// Where it stands, if the program has debug information.
    pub file: Option<String>,
    /// The line there.
    pub line: Option<u32>,
}

/// A call stack, in both forms.
#[derive(Clone)]
struct Stack {
    frames: Arc<[Frame]>,
    written: Arc<str>,
}

impl Stack {
    fn new(frames: Vec<Frame>) -> Stack {
        let mut written = String::new();
        for frame in &frames {
            written.push_str(&frame.function);
            written.push('\n');
            if let Some(file) = &frame.file {
                written.push_str(&format!("\t{file}:{}\n", frame.line.unwrap_or(0)));
            }
        }
        Stack {
            frames: frames.into(),
            written: written.into(),
        }
    }
}

impl fmt::Display for Entry {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "goroutine {} [{}", self.id, self.state)?;
        match self.waiting.map_or(0, |d| d.as_secs() / 60) {
            0 => {}
            1 => write!(f, ", 1 minutes")?, // as Go has it
            n => write!(f, ", {n} minutes")?,
        }
        if self.locked {
            write!(f, ", locked to thread")?;
        }
        write!(f, "]:")?;
        if let Some(name) = &self.name {
            write!(f, " '{}'", OneLine(name))?;
        }
        if let Some(group) = &self.group {
            write!(f, " (group {})", OneLine(group))?;
        }
        writeln!(f)?;
        f.write_str(&self.written)?;
        let site = self.spawned_at;
        writeln!(
            f,
            "\tspawned at {}:{}:{}",
            site.file(),
            site.line(),
            site.column()
        )
    }
}

/// All goroutines of the current runtime, as text.
///
/// # Blocks
/// The goroutine, for as long as it takes: milliseconds for a thousand goroutines, a second for a hundred thousand. Other goroutines continue.
///
/// # Panics
/// Outside a runtime. [`Runtime::dump`](crate::Runtime::dump) works anywhere.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let all = runnext::dump::text();
///     let own = format!("goroutine {} [", runnext::current().unwrap().id());
///     assert!(all.lines().any(|line| line.starts_with(&own)));
/// }
/// ```
pub fn text() -> String {
    let mut text = Vec::new();
    // Writing to memory does not fail.
    let _ = write_to(&mut text);
    into_string(text)
}

/// Without a copy, where it is what it should be.
pub(crate) fn into_string(text: Vec<u8>) -> String {
    String::from_utf8(text).unwrap_or_else(|e| String::from_utf8_lossy(e.as_bytes()).into_owned())
}

/// As [`text`], written bit by bit.
///
/// # Blocks
/// As [`text`].
///
/// # Errors
/// Those of the writer.
///
/// # Panics
/// As [`text`].
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let mut report = b"what everybody was doing:\n".to_vec();
///     runnext::dump::write_to(&mut report)?; // or a file, or a socket
///     assert!(String::from_utf8_lossy(&report).contains("\n\tspawned at "));
///     Ok(())
/// }
/// ```
pub fn write_to(out: &mut impl Write) -> io::Result<()> {
    let shared = current("write_to");
    blocking(|| write_all(shared, out))
}

/// Calls `f` with every goroutine of the current runtime.
///
/// # Blocks
/// As [`text`].
///
/// # Panics
/// As [`text`].
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let group = runnext::TaskGroup::new("reports");
///     let mut found = Vec::new();
///     // In a group itself, so that there is one to be found.
///     group.enter(|| runnext::dump::for_each(|entry| if entry.group.as_deref() == Some("reports") { found.push(entry.id) }));
///     assert_eq!(found, [runnext::current().unwrap().id()]);
/// }
/// ```
pub fn for_each(f: impl FnMut(Entry)) {
    let shared = current("for_each");
    blocking(|| gather(shared, usize::MAX, f));
}

/// As [`for_each`], with no more than `limit` goroutines: the others are counted, not looked at. Returns how many those are.
///
/// # Blocks
/// As [`text`].
///
/// # Panics
/// As [`text`].
///
/// # Example
/// ```
/// use runnext::{chan, dump, go};
///
/// #[runnext::main]
/// fn main() {
///     let (open, closed) = chan::bounded::<()>(0);
///     let waiting: Vec<_> = (0..50).map(|_| { let closed = closed.clone(); go(move || closed.recv()) }).collect();
///     let mut shown = Vec::new();
///     let more = dump::for_some(10, |entry| shown.push(entry.id));
///     assert!(shown.len() == 10 && more > 0);
///     drop(open);
///     waiting.into_iter().for_each(|one| drop(one.join()));
/// }
/// ```
pub fn for_some(limit: usize, f: impl FnMut(Entry)) -> usize {
    let shared = current("for_some");
    blocking(|| gather(shared, limit, f))
}

fn current(what: &str) -> &'static Shared {
    match m::current() {
        Some(m) => m.shared_static(),
        None => panic!(
            "runnext::dump::{what} called outside a runtime: call it from a goroutine, or use Runtime::dump of a \
             Runtime you have built"
        ),
    }
}

/// All goroutines of a runtime, as text. In user context, or by a plain thread.
pub(crate) fn write_all(shared: &Shared, out: &mut impl Write) -> io::Result<()> {
    let mut result = Ok(());
    gather(shared, usize::MAX, |entry| {
        if result.is_ok() {
            result = writeln!(out, "{entry}");
        }
    });
    result
}

/// Writes up to `most` goroutines to stderr; returns how many.
pub(crate) fn write_some(shared: &Shared, most: usize) -> usize {
    let mut shown = 0;
    gather(shared, most, |entry| {
        shown += 1;
        let _ = write!(signal::Stderr, "{entry}");
    });
    shown
}

/// What an M was seen doing.
struct Seen {
    g: *const G,
    state: State,
    in_handler: bool,
    tid: i32,
}

/// Looks at the Ms, briefly: a thread that frees one waits meanwhile.
fn look_at_ms(shared: &Shared) -> HashMap<*const G, Seen> {
    let mut seen = Vec::with_capacity(shared.threads.count() + 16);
    {
        let _call = Call::brief(); // under a lock of the runtime's
        shared.observe.while_looking(|| {
            shared.threads.for_each(|m: &M| {
                if seen.len() < seen.capacity()
                    && let Some(g) = m.g()
                {
                    seen.push(Seen {
                        g,
                        state: m.state(),
                        in_handler: m.in_handler.load(Relaxed),
                        tid: m.tid(),
                    });
                }
            });
        });
    }
    seen.into_iter().map(|s| (s.g, s)).collect()
}

/// A goroutine as it was seen, and on which thread. Its stack is a number: most goroutines stand where others do.
struct Sighting {
    peek: Peek,
    on: Option<Seen>,
    stack: u32,
}

/// Calls `f` with every goroutine, but no more than `most`; returns how many more there are. Allocates.
///
/// All are looked at before anything is looked up: the first name of a program with much debug information takes a good part of a second,
/// and by then they would have gone on.
pub(crate) fn gather(shared: &Shared, most: usize, mut f: impl FnMut(Entry)) -> usize {
    let now = clock::now_ns();
    let Looked { seen, stacks, more } = look_at(shared, most);
    let groups = shared.groups.named();
    let mut symbols = Symbols::default();
    let mut named: Vec<Option<Stack>> = stacks.iter().map(|_| None).collect();
    for Sighting { peek, on, stack } in seen {
        let number = stack as usize;
        let stack = named[number].get_or_insert_with(|| match &stacks[number][..] {
            [] => Stack::new(Vec::new()),
            pcs => symbols.stack(pcs),
        });
        f(describe(peek, on.as_ref(), &groups, now, stack.clone()));
    }
    more
}

/// Finds out where threads stand, mostly such as sleep in the kernel, for reports about a few of them. Made when something is to be reported:
/// it knows the images that were loaded by then.
pub(crate) struct Places {
    unwinder: Option<Unwinder>,
    symbols: Symbols,
    pcs: Vec<usize>,
}

impl Places {
    /// Allocates, and so does all it does: for a thread that nobody waits for.
    pub(crate) fn new() -> Places {
        Places {
            unwinder: Unwinder::new(),
            symbols: Symbols::default(),
            pcs: Vec::new(),
        }
    }

    /// The call stack of this thread, as dumps write it. Empty if it does not sleep, or nobody knows.
    pub(crate) fn stack(&mut self, tid: i32) -> Arc<str> {
        self.pcs.clear();
        if let Some(unwinder) = &mut self.unwinder
            && let Some((sp, pc)) = inspect::where_in_kernel(tid)
        {
            unwinder.asleep(sp, pc, usize::MAX, &mut self.pcs);
        }
        match &self.pcs[..] {
            [] => Arc::from(""),
            pcs => self.symbols.stack(pcs).written,
        }
    }

    /// The function at this address, with those it is inlined into, as dumps write them.
    pub(crate) fn function(&mut self, pc: usize) -> Arc<str> {
        self.symbols.stack(&[pc]).written
    }
}

/// What was seen.
struct Looked {
    seen: Vec<Sighting>,
    /// The stacks they stand on: their return addresses.
    stacks: Vec<Rc<[usize]>>,
    /// Goroutines that were not looked at.
    more: usize,
}

/// Looks at goroutines, but no more than `most`.
fn look_at(shared: &Shared, most: usize) -> Looked {
    let mut ms = look_at_ms(shared);
    let mut unwinder = Unwinder::new();
    let mut seen = Vec::new();
    let mut stacks: Vec<Rc<[usize]>> = Vec::new();
    let mut numbers: HashMap<Rc<[usize]>, u32> = HashMap::new();
    let mut pcs = Vec::new();
    let (mut asked, mut more) = (0, 0);
    shared.slab.for_each(|g| {
        if seen.len() >= most {
            more += usize::from(g.alive().is_some());
            return;
        }
        let Some(peek) = g.peek() else { return };
        let on = ms.remove(&std::ptr::from_ref(g));
        pcs.clear();
        if let Some(unwinder) = &mut unwinder {
            match (peek.suspended, &on) {
                (Some((sp, end)), _) => unwinder.suspended(sp, end, &mut pcs),
                (None, Some(m)) if asked < THREADS_ASKED && !m.in_handler => {
                    asked += 1;
                    if let Some((sp, pc)) = inspect::where_in_kernel(m.tid) {
                        unwinder.asleep(sp, pc, usize::MAX, &mut pcs);
                    }
                }
                _ => {}
            }
        }
        let stack = numbers.get(&pcs[..]).copied().unwrap_or_else(|| {
            let (number, pcs) = (stacks.len() as u32, Rc::<[usize]>::from(&pcs[..]));
            stacks.push(Rc::clone(&pcs));
            numbers.insert(pcs, number);
            number
        });
        seen.push(Sighting { peek, on, stack });
    });
    Looked { seen, stacks, more }
}

fn describe(
    peek: Peek,
    on: Option<&Seen>,
    groups: &HashMap<usize, Arc<str>>,
    now: u64,
    stack: Stack,
) -> Entry {
    let waits = peek.state == park::WAITING;
    let state = match (peek.state, on) {
        (park::WAITING, _) => peek.reason.text(),
        (park::RUNNABLE, Some(m)) if m.in_handler => "preempted",
        (park::RUNNABLE, _) => "runnable",
        (_, Some(m)) if matches!(m.state, State::Blk | State::Out | State::Robbed) => "syscall",
        _ => "running",
    };
    let waiting = waits.then(|| Duration::from_nanos(now.saturating_sub(peek.since)));
    Entry {
        id: peek.id,
        name: peek.name,
        state,
        waiting,
        locked: peek.wired && state != "preempted",
        group: groups.get(&peek.group).map(|name| name.to_string()),
        spawned_at: peek.site,
        stack: stack.frames,
        written: stack.written,
    }
}

//! Reports on stderr at intervals: `RUNNEXT_DEBUG=schedtrace=ms,scheddetail=1` and `stalls=ms`.
//!
//! # Why a thread of its own
//! Writing to stderr may block for as long as its reader likes, and gathering allocates. Nobody the scheduler waits for may do
//! either, so a thread does that nobody waits for; it exists only if somebody asked for reports.
//!
//! # The trace
//! Go's, letter by letter, so that what reads one reads the other. What has no counterpart here is zero or false: nothing collects
//! garbage, and nothing stops the world.
//!
//! # Stalls
//! A thread with a goroutine on it that makes no runtime call from one look to the next is computing or asleep. Once that has lasted
//! for the given time it is counted and reported, with the goroutine's origin, and reported again each time it has lasted twice as
//! long. Goroutines that compute are preempted when others wait: then they are not on a P, and their thread sleeps in the handler,
//! which is no stall.
//!
//! One that blocks is shown with its call stack: its thread sleeps in the kernel, which says where it came from, and copies
//! its stack. One that computes is shown with the function it was in when its CPU timer last ticked, if that was since it stalls
//! (never with preemption off). Who called that is not known: the stack has changed since, and another signal, only to see it,
//! could interrupt system calls of code that we are to watch, not to change.

use std::fmt::Write as _;
use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering::*};
use std::thread::{self, JoinHandle};
use std::time::Duration;

use runnext_core::owner::State;
use runnext_core::park;
use runnext_sys::signal::raw_write;
use runnext_sys::{clock, futex};

use super::call::Call;
use super::{Census, Shared};
use crate::dump::Places;
use crate::g::{G, Peek};
use crate::m::M;
use crate::one_line::OneLine;

/// How often stalls are looked for: this part of the threshold.
const LOOKS_PER_STALL: u32 = 4;

/// What is to be reported. Zero: not.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Reports {
    pub(crate) schedtrace: Duration,
    pub(crate) detail: bool,
    pub(crate) stalls: Duration,
}

/// The thread, if there is one.
#[derive(Default)]
pub(crate) struct Reporter {
    word: AtomicU32,
    on: AtomicBool,
    /// Stalls found: each once, however often it is reported.
    stalls: AtomicU64,
    handle: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Reporter {
    /// How many threads it has.
    pub(super) fn threads(&self) -> usize {
        usize::from(self.on.load(Relaxed))
    }

    /// How many stalls it has found.
    pub(crate) fn stalls(&self) -> u64 {
        self.stalls.load(Relaxed)
    }

    pub(crate) fn stop(&self) {
        self.word.fetch_add(1, Release);
        futex::wake_all(&self.word);
        let handle = self.handle.lock().unwrap_or_else(|e| e.into_inner()).take();
        if let Some(handle) = handle {
            // It does not panic; if it did, it has ended.
            let _ = handle.join();
        }
    }
}

/// Starts it, if anything is to be reported.
pub(crate) fn start(shared: &Arc<Shared>, reports: Reports) -> io::Result<()> {
    if reports.schedtrace.is_zero() && reports.stalls.is_zero() {
        return Ok(());
    }
    let work = Work {
        shared: Arc::clone(shared),
        reports,
        began: clock::now_ns(),
        looks: Vec::new(),
    };
    let handle = thread::Builder::new()
        .name("runnext-report".into())
        .spawn(move || work.run())?;
    shared.reporter.on.store(true, Relaxed);
    *shared
        .reporter
        .handle
        .lock()
        .unwrap_or_else(|e| e.into_inner()) = Some(handle);
    Ok(())
}

/// What was seen of an M.
#[derive(Clone, Copy, Default)]
struct Look {
    turn: u64,
    since: u64,
    /// Report it when it has lasted this long.
    next: u64,
}

struct Work {
    shared: Arc<Shared>,
    reports: Reports,
    began: u64,
    /// By M.
    looks: Vec<Look>,
}

/// What the trace shows of an M.
struct MLine {
    id: u32,
    p: Option<usize>,
    g: Option<u64>,
    state: State,
    locked: bool,
}

impl Work {
    fn run(mut self) {
        let shared = Arc::clone(&self.shared);
        let trace = self.reports.schedtrace.as_nanos() as u64;
        let stall = (self.reports.stalls / LOOKS_PER_STALL).as_nanos() as u64;
        let (mut next_trace, mut next_look) = (self.began, self.began + stall);
        loop {
            let seen = shared.reporter.word.load(Acquire);
            if seen != 0 || shared.stopped.load(SeqCst) {
                return;
            }
            let now = clock::now_ns();
            if trace > 0 && now >= next_trace {
                next_trace = now + trace;
                print(&self.trace(now));
            }
            if stall > 0 && now >= next_look {
                next_look = now + stall;
                print(&self.stalls(now));
            }
            let until = match (trace, stall) {
                (_, 0) => next_trace,
                (0, _) => next_look,
                _ => next_trace.min(next_look),
            };
            futex::wait_until(&shared.reporter.word, seen, until);
        }
    }

    fn trace(&self, now: u64) -> String {
        let Census {
            procs,
            busy,
            spinning,
            need_spinning,
            threads,
            idle_threads,
            global,
            ..
        } = self.shared.census();
        let mut text = format!(
            "SCHED {}ms: gomaxprocs={procs} idleprocs={} threads={} spinningthreads={spinning} \
             needspinning={} idlethreads={idle_threads} runqueue={global}",
            (now - self.began) / 1_000_000,
            procs - busy,
            threads + 2, // the monitor and the maker of threads
            u32::from(need_spinning),
        );
        if self.reports.detail {
            self.detail(&mut text);
            return text;
        }
        let ps = || self.shared.all_ps().take(procs);
        text.push_str(" [");
        for p in ps() {
            let _ = write!(text, " {}", p.behind_next());
        }
        text.push_str(" ] schedticks=[");
        for p in ps() {
            let _ = write!(text, " {}", p.stats.dispatched.load(Relaxed));
        }
        text.push_str(" ]\n");
        text
    }

    fn detail(&self, text: &mut String) {
        let shared = &self.shared;
        let asleep = shared.searchers.idle() == shared.procs();
        let _ = writeln!(
            text,
            " gcwaiting=false nmidlelocked=0 stopwait=0 sysmonwait={asleep}"
        );
        let ms = self.ms();
        for p in shared.all_ps().take(shared.procs()) {
            let m = ms.iter().find(|m| m.p == Some(p.id));
            let status = match m {
                _ if p.idle.load(Relaxed) => 0,
                Some(m) if m.state == State::Blk => 2,
                _ => 1,
            };
            let _ = writeln!(
                text,
                "  P{}: status={status} schedtick={} syscalltick={} m={} runqsize={} gfreecnt=0 timerslen={}",
                p.id,
                p.stats.dispatched.load(Relaxed),
                p.stats.sections.load(Relaxed),
                or_nil(m.map(|m| m.id.into())),
                p.behind_next(),
                p.timers.count(),
            );
        }
        for m in &ms {
            let _ = writeln!(
                text,
                "  M{}: p={} curg={} mallocing=0 throwing=0 preemptoff= locks=0 dying=0 spinning={} blocked={} lockedg={}",
                m.id,
                or_nil(m.p.map(|p| p as u64)),
                or_nil(m.g),
                m.p.is_some() && m.g.is_none(),
                m.state == State::Nop,
                or_nil(m.g.filter(|_| m.locked)),
            );
        }
        shared.slab.for_each(|g| {
            if let Some(peek) = g.peek() {
                describe(text, &peek, &ms);
            }
        });
    }

    /// The Ms, as of now.
    fn ms(&self) -> Vec<MLine> {
        let mut seen = Vec::with_capacity(self.shared.threads.count() + 16);
        self.look(|m| {
            if seen.len() < seen.capacity() {
                let g = m.g();
                let has_p = m.state().has_p();
                // SAFETY: Ps live as long as the runtime.
                let p = unsafe { m.p_ptr().as_ref() }.filter(|_| has_p);
                seen.push(MLine {
                    id: m.id,
                    p: p.map(|p| p.id),
                    g: g.map(|g| g.id()),
                    state: m.state(),
                    locked: g.is_some_and(|g| !g.wired().is_null()),
                });
            }
        });
        seen
    }

    /// Shows every M to `f`, which must be brief and not allocate.
    fn look(&self, f: impl FnMut(&M)) {
        let _call = Call::brief();
        self.shared
            .observe
            .while_looking(|| self.shared.threads.for_each(f));
    }

    fn stalls(&mut self, now: u64) -> String {
        let due = self.due(now);
        if due.is_empty() {
            return String::new();
        }
        let mut text = String::new();
        let mut places = Places::new();
        for stall in due {
            // SAFETY: headers are type-stable while the runtime lives.
            let Some(peek) = (unsafe { &*stall.g }).peek() else {
                continue;
            };
            if stall.first {
                self.shared.reporter.stalls.fetch_add(1, Relaxed);
            }
            stall.describe(&mut text, &peek);
            text.push_str(&match stall.computes_at {
                Some(pc) => places.function(pc),
                None => places.stack(stall.tid),
            });
        }
        text
    }

    /// Those that have lasted long enough.
    fn due(&mut self, now: u64) -> Vec<Stall> {
        let most = self.reports.stalls.as_nanos() as u64;
        let mut looks = std::mem::take(&mut self.looks);
        looks.reserve(self.shared.threads.count() + 64);
        let mut due: Vec<Stall> = Vec::with_capacity(16);
        self.look(|m| {
            let id = m.id as usize;
            if id >= looks.len() {
                if id >= looks.capacity() {
                    return;
                }
                looks.resize(id + 1, Look::default());
            }
            let look = &mut looks[id];
            let word = m.look();
            let outside = !matches!(word.state(), State::Rt | State::Nop);
            // The state may change while it stalls, when it loses its P; the turn does not.
            let turn = word.turn();
            if !outside || m.g().is_none() || look.turn != turn {
                *look = Look {
                    turn,
                    since: now,
                    next: most,
                };
                return;
            }
            if now - look.since >= look.next
                && due.len() < due.capacity()
                && let Some(g) = m.g()
            {
                let kernel = m.kernel_state();
                due.push(Stall {
                    g,
                    tid: m.tid(),
                    lasted: now - look.since,
                    first: look.next == most,
                    state: word.state(),
                    computes_at: m.ticked_at(turn).filter(|_| kernel == Some(b'R')),
                    kernel,
                });
                look.next = (now - look.since) * 2;
            }
        });
        self.looks = looks;
        due
    }
}

/// A goroutine that stalls, as it was seen.
struct Stall {
    g: *const G,
    tid: i32,
    lasted: u64,
    /// It was not reported before.
    first: bool,
    state: State,
    /// What the kernel says of its thread.
    kernel: Option<u8>,
    /// Where its CPU timer last found it, if it computes.
    computes_at: Option<usize>,
}

impl Stall {
    fn describe(&self, text: &mut String, peek: &Peek) {
        let _ = write!(text, "runnext: goroutine {}", peek.id);
        if let Some(name) = &peek.name {
            let _ = write!(text, " '{}'", OneLine(name));
        }
        let what = match (self.state, self.kernel) {
            (State::Blk | State::Out, _) => "is in a blocking section",
            (_, Some(b'R')) => "computes without giving way",
            _ => "blocks its thread in undeclared code",
        };
        let _ = writeln!(
            text,
            " {what} since {} ms (spawned at {}:{}:{})",
            self.lasted / 1_000_000,
            peek.site.file(),
            peek.site.line(),
            peek.site.column()
        );
    }
}

/// A goroutine's line in the trace.
fn describe(text: &mut String, peek: &Peek, ms: &[MLine]) {
    // Go's numbers.
    let (status, reason) = match peek.state {
        park::RUNNABLE => (1, ""),
        park::WAITING => (4, peek.reason.text()),
        _ => (2, ""),
    };
    let m = ms.iter().find(|m| m.g == Some(peek.id));
    let _ = writeln!(
        text,
        "  G{}: status={status}({reason}) m={} lockedm={}",
        peek.id,
        or_nil(m.map(|m| m.id.into())),
        or_nil(m.filter(|_| peek.wired).map(|m| m.id.into())),
    );
}

fn or_nil(n: Option<u64>) -> String {
    n.map_or_else(|| "nil".into(), |n| n.to_string())
}

/// Past the lock of `std::io::stderr`, which a goroutine may hold.
fn print(text: &str) {
    // SAFETY: an initialised slice, and stderr is always a valid target for write(2).
    unsafe { raw_write(2, text.as_bytes()) };
}

//! Deadlock: every goroutine waits and nothing is left that could wake one.
//!
//! # When
//! All of these at once, seen by the monitor before it sleeps deeply: every P idle and nothing queued; no timer armed; no
//! descriptor waited for; no thread of the runtime with a goroutine of its own (blocked in the kernel, locked, preempted);
//! goroutines alive; and every other thread of the process asleep in one of our primitives without a deadline.
//! That state cannot end by itself, so there is no false alarm. Our own threads are counted between their first and their last line: one
//! that is on its way out is a stranger, and not a number that some other thread could hide behind. Whoever could still act makes it unprovable, and
//! nothing is said: another runtime, a thread that does something else, a wait with a deadline.
//!
//! # Who counts as asleep
//! `BLOCKED` is the number of parks of plain threads less the number of wake-ups they were sent. The *waker* takes a thread
//! out of it, before it wakes it: so one that was woken and has not run yet does not count. A fork begins to count anew.
//!
//! # Who suspects it
//! The last of them to rest: the P that becomes idle when threads wait, once its M has found no timer (`Shared::note_rest`), or the thread that goes to sleep
//! when all Ps are idle ([`thread_rests`]). Each counts itself, then a full fence, then looks at the other, so one of them sees both.
//!
//! # Context
//! By the monitor. Reads headers that nobody changes any more; writes with write(2) and ends the process with status 2.

use std::fmt::Write;
use std::ptr;
use std::sync::atomic::{AtomicIsize, Ordering::*, fence};
use std::sync::{Mutex, Once};

use runnext_sys::fork;

use super::Shared;
use super::shield::{self, Shielded};
use super::timers::NEVER;
use crate::dump;
use crate::fatal::Line;

/// Plain threads that wait for a wake-up nobody has sent.
pub(super) static BLOCKED: AtomicIsize = AtomicIsize::new(0);
/// Those of them that will wake by themselves.
pub(super) static TIMED: AtomicIsize = AtomicIsize::new(0);

/// Goroutines named in the report; the rest is counted.
const SHOWN: usize = 1000;

/// The runtimes whose monitor runs.
static RUNTIMES: Mutex<Vec<Watched>> = Mutex::new(Vec::new());

struct Watched(*const Shared);

// SAFETY: only used while it is in the list, and it leaves the list before it is freed.
unsafe impl Send for Watched {}

fn runtimes() -> Shielded<'static, Vec<Watched>> {
    shield::lock(&RUNTIMES)
}

/// A child has none of the threads that are counted here: it begins anew. Before the first is counted.
#[inline]
pub(super) fn watch_forks() {
    fn begin_anew() {
        BLOCKED.store(0, Relaxed);
        TIMED.store(0, Relaxed);
    }
    static ONCE: Once = Once::new();
    // SAFETY: it stores two words.
    ONCE.call_once(|| unsafe { fork::in_child(begin_anew) });
}

/// A plain thread is about to sleep until somebody wakes it, and has counted itself in `BLOCKED`.
pub(super) fn thread_rests() {
    fence(SeqCst); // pairs with the one in `note_rest`
    for Watched(shared) in runtimes().iter() {
        // SAFETY: in the list, which is locked.
        let shared = unsafe { &**shared };
        if !shared.is_copy() {
            shared.note_rest();
        }
    }
}

impl Shared {
    /// A P has become idle, and its M has found nothing to wait for, or a thread goes to sleep. If that was the last, the monitor should have a look. Timers
    /// do not count: those that were stopped are in their heap until somebody settles it, as the M has done, and the monitor does ([`check`]).
    #[inline]
    pub(super) fn note_rest(&self) {
        fence(SeqCst); // pairs with the one in `thread_rests`
        if self.searchers.idle() == self.procs()
            && BLOCKED.load(Relaxed) > 0
            && !self.seat.hub().is_waited_for()
        {
            self.monitor.suspect_deadlock();
        }
    }

    /// Its monitor runs from here on.
    pub(super) fn watch_for_deadlock(&self) {
        runtimes().push(Watched(self));
    }

    /// Its monitor is about to end.
    pub(super) fn unwatch_for_deadlock(&self) {
        runtimes().retain(|watched| !ptr::eq(watched.0, self));
    }
}

/// Says so and ends the process if nothing can ever happen again.
pub(super) fn check(shared: &Shared) {
    // Timers that were stopped are none; one that is armed later is seen below.
    if shared.next_timer_ns() != NEVER || !is_certain(shared) {
        return;
    }
    let alive = shared.live();
    let mut line = Line::new();
    let _ = writeln!(
        line,
        "\nrunnext: fatal error: all goroutines are asleep - deadlock!"
    );
    line.print();
    // A thread of its own, for its stack. Nobody holds the allocator's lock for ever: nobody runs.
    std::thread::scope(|s| {
        let shown = std::thread::Builder::new().spawn_scoped(s, || dump::write_some(shared, SHOWN));
        let shown = shown.ok().and_then(|t| t.join().ok()).unwrap_or(0);
        if alive > shown {
            let mut line = Line::new();
            let _ = writeln!(line, "... and {} more", alive - shown);
            line.print();
        }
    });
    std::process::exit(2);
}

fn is_certain(shared: &Shared) -> bool {
    let blocked = BLOCKED.load(SeqCst);
    let alive = shared.threads.alive();
    // The monitor, which asks, and the maker of threads.
    let own = alive.count() + 2 + shared.reporter.threads();
    shared.live() > 0
        && blocked > 0
        && TIMED.load(SeqCst) == 0
        && shared.is_dormant()
        && threads_of_process().is_some_and(|n| n == own + blocked as usize)
        // Again, last: what was read above was true at one moment if nobody could move in between.
        && BLOCKED.load(SeqCst) == blocked
        && shared.threads.alive() == alive
        && shared.is_dormant()
}

fn threads_of_process() -> Option<usize> {
    Some(std::fs::read_dir("/proc/self/task").ok()?.count())
}

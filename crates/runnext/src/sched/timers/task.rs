//! Functions that a timer starts: each time it fires, in a goroutine, never two of them at once.
//!
//! # Why this shape
//! The heap holds no count on a function: entries leave it in RT, where nothing may be freed. It holds a [`Cell`]. While armed,
//! one count of the `Arc` belongs to whoever claims the cell: the one who fires gives it to the goroutine, the one who
//! stops drops it. A timer that waits is no goroutine and has no stack.
//!
//! # Invariants
//! I1  `runs` counts firings that have not run to their end, and each of them owns one count of the `Arc`. Who raises it from
//!     zero starts a goroutine, which runs the function until it is zero again. So it never runs twice at once, and never
//!     less often than it fired.
//!
//! # Context
//! `fire` is in RT. The rest is in user context.

use std::cell::UnsafeCell;
use std::panic::Location;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicPtr, AtomicU32, Ordering::*};
use std::sync::{Arc, Weak};

use super::Sleeper;
use super::cell::{Cell, Pool};
use crate::fatal::fatal;
use crate::g::G;
use crate::lock::Lock;
use crate::m::M;
use crate::p::P;
use crate::sched::call::Call;
use crate::sched::groups::{self, Belongs, Record};
use crate::sched::{Shared, spawn};
use crate::swallow;

/// What a cell has to fire: the function, with a count of its own while armed.
pub(super) struct Armed(AtomicPtr<Task>);

static POOL: Pool<Armed> = Pool::new();

impl Cell<Armed> {
    /// The deadline of that arming has come. A goroutine to be queued by the owner of `p`, unless it was stopped, or one runs it already.
    pub(super) fn fire(&self, turn: u32, shared: &Shared, p: &P) -> Option<NonNull<G>> {
        if !self.claim(turn) {
            return None;
        }
        // SAFETY: the claim gave us the count that keeps it.
        let task = unsafe { Arc::from_raw(self.content.0.load(Relaxed)) };
        if task.runs.fetch_add(1, AcqRel) > 0 {
            std::mem::forget(task); // I1: the count is the firing's
            return None;
        }
        let site = task.site;
        let belongs = match &task.group {
            // SAFETY: the task keeps its group.
            Some(group) => unsafe { Record::join_in(Arc::as_ptr(group).cast(), shared) },
            None => Belongs::NOWHERE,
        };
        // SAFETY: 'static and Send.
        match unsafe { spawn::detached_in(shared, Some(p), belongs, site, Run(task)) } {
            Ok(g) => Some(g),
            Err(e) => fatal(format_args!("no memory for the goroutine of a timer: {e}")),
        }
    }

    /// The runtime has stopped, and the entry has left the heap: drops the function. In user context.
    pub(super) fn give_up(&self, turn: u32) {
        if self.claim(turn) {
            // SAFETY: the claim gave us the count.
            let task = unsafe { Arc::from_raw(self.content.0.load(Relaxed)) };
            // A panic in the drop of what it captured has nobody to go to.
            swallow::panics(move || drop(task));
        }
    }
}

/// A function and its timer.
pub(crate) struct Task {
    cell: &'static Cell<Armed>,
    /// Serialises arming and stopping. The P whose heap it was last put into.
    lock: Lock<usize>,
    runs: AtomicU32,
    shared: Weak<Shared>,
    site: &'static Location<'static>,
    /// The group of who made it.
    group: Option<Arc<Record>>,
    f: UnsafeCell<Box<dyn FnMut() + Send>>,
}

// SAFETY: `f` is called by one goroutine at a time (I1), and is `Send`; the rest is.
unsafe impl Sync for Task {}
// SAFETY: as above.
unsafe impl Send for Task {}

impl Task {
    /// A function of the runtime that `m` belongs to. Not armed.
    pub(crate) fn new(
        m: &M,
        site: &'static Location<'static>,
        f: Box<dyn FnMut() + Send>,
    ) -> Arc<Task> {
        let task = Arc::new(Task {
            cell: POOL.take(|| Armed(AtomicPtr::new(std::ptr::null_mut()))),
            lock: Lock::new(0),
            runs: AtomicU32::new(0),
            shared: m.shared().weak(),
            site,
            group: m.g().and_then(groups::of),
            f: UnsafeCell::new(f),
        });
        let this = Arc::as_ptr(&task).cast_mut();
        task.cell.content.0.store(this, Relaxed);
        task
    }

    /// Sets it to fire at `when`, and not at what it was set to before; not if the runtime has stopped. True: it was set, and had not fired.
    pub(crate) fn arm(self: &Arc<Task>, when: u64) -> bool {
        let Some(shared) = self.shared.upgrade() else {
            return false;
        };
        if shared.stopped.load(Relaxed) {
            return false; // or `drop_tasks` is about to find it
        }
        let call = Call::brief();
        let (was, first) = {
            let mut heap = self.lock.lock();
            let was = self.undo(&shared, *heap);
            if !was {
                std::mem::forget(Arc::clone(self));
            }
            let turn = self.cell.arm();
            let p = shared.p_of(&call);
            *heap = p.id;
            let sleeper = Sleeper::task(self.cell, turn);
            (was, p.timers.insert(when, sleeper, false, &shared))
        };
        if shared.stopped.load(SeqCst) {
            // `drop_tasks` may have gone by, in which case the heap's lock has shown us that it did.
            drop(call);
            self.stop();
            return was;
        }
        if first {
            shared.tell_earlier(when);
        }
        drop(call);
        was
    }

    /// It does not fire any more, until armed. True: it was set, and had not fired.
    pub(crate) fn stop(&self) -> bool {
        let Some(shared) = self.shared.upgrade() else {
            return false; // given up with the runtime
        };
        let call = Call::brief();
        let was = self.undo(&shared, *self.lock.lock());
        drop(call);
        if was {
            // SAFETY: the claim gave us the count; the caller has another.
            unsafe { Arc::decrement_strong_count(self) };
        }
        was
    }
}

impl Task {
    /// Claims it if it is set; its entry is in that P's heap. With the lock held.
    fn undo(&self, shared: &Shared, heap: usize) -> bool {
        let was = self.cell.armed().is_some_and(|turn| self.cell.claim(turn));
        if was && let Some(p) = shared.p(heap) {
            p.timers.note_dead(shared);
        }
        was
    }
}

impl Drop for Task {
    fn drop(&mut self) {
        // Nobody has a count, so it is not armed. What is left in a heap is stale.
        POOL.put(self.cell);
    }
}

/// What the goroutine runs; it owns the count of the first firing.
struct Run(Arc<Task>);

impl spawn::Body for Run {
    type Output = ();

    fn run(self) -> (spawn::Outcome<()>, crate::g::After) {
        let Run(task) = self;
        loop {
            // SAFETY: I1.
            let f = unsafe { &mut *task.f.get() };
            // The hook has reported a panic; there is nobody else to tell.
            swallow::panics(f);
            if task.runs.fetch_sub(1, AcqRel) == 1 {
                break;
            }
            // SAFETY: that of the run that has ended; we go on with the next one's.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&task)) };
        }
        // A panic in the drop of what it captured has nobody to go to either.
        swallow::panics(move || drop(task));
        (Ok(()), crate::g::After::NOTHING)
    }

    fn fail(self) -> crate::g::After {
        // There was no stack for it, which was reported: these firings are lost.
        let Run(task) = self;
        while task.runs.fetch_sub(1, AcqRel) > 1 {
            // SAFETY: as above.
            unsafe { Arc::decrement_strong_count(Arc::as_ptr(&task)) };
        }
        // On the worker's stack: a panic in the drop of what it captured must not go on from here.
        swallow::panics(move || drop(task));
        crate::g::After::NOTHING
    }
}

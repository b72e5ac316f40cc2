//! Alarms: moments at which a waker is rung.
//!
//! A future cannot hold a ticket: it has no wait of its own, only the goroutine that polls it does, and that one may poll many. So the
//! heap refers to a [`Cell`] with room for a waker in it. A stale entry does nothing, or at worst rings somebody who then finds nothing to do.
//!
//! # Context
//! `fire` is in RT. The rest is in user context, by the one owner of the alarm.

use std::ptr::{self, NonNull};
use std::sync::Weak;
use std::sync::atomic::Ordering::*;
use std::task::Waker;

use super::Sleeper;
use super::cell::{Cell, Pool};
use crate::g::G;
use crate::m::M;
use crate::p::P;
use crate::sched::Shared;
use crate::sched::call::Call;
use crate::sched::waker::{Slot, use_up};

static POOL: Pool<Slot> = Pool::new();

impl Cell<Slot> {
    /// The moment has come. A goroutine that is runnable by that, to be queued by the owner of `p`.
    pub(super) fn fire(&self, turn: u32, shared: &Shared, p: &P) -> Option<NonNull<G>> {
        if !self.claim(turn) {
            return None;
        }
        self.content.ring(shared, Some(p))
    }

    /// The runtime has stopped, and nobody comes at that moment: rings at once. The future need not be of this runtime; it is polled again, and
    /// waits elsewhere. In user context.
    pub(super) fn give_up(&self, turn: u32) {
        if self.claim(turn)
            && let Some(waker) = self.content.take()
        {
            use_up(waker);
        }
    }
}

/// A moment in the heap of a runtime, and who is to be rung then.
pub(crate) struct Alarm {
    cell: &'static Cell<Slot>,
    shared: Weak<Shared>,
    /// The P whose heap has it.
    heap: usize,
    turn: u32,
}

impl Alarm {
    /// Rings `waker` at `when`; before that if the runtime stops.
    pub(crate) fn new(m: &M, when: u64, waker: &Waker) -> Alarm {
        let shared = m.shared();
        let cell = POOL.take(Slot::new);
        cell.content.set(waker);
        let call = Call::brief();
        let turn = cell.arm();
        let p = shared.p_of(&call);
        let first = p.timers.insert(when, Sleeper::alarm(cell, turn), shared);
        let stopped = shared.stopped.load(SeqCst);
        if first && !stopped {
            shared.tell_earlier(when);
        }
        let heap = p.id;
        drop(call);
        if stopped {
            cell.give_up(turn); // as in `Task::arm`: `drop_tasks` may have gone by
        }
        Alarm {
            cell,
            shared: shared.weak(),
            heap,
            turn,
        }
    }

    /// Whether it is in a heap of that M's runtime.
    pub(crate) fn is_of(&self, m: &M) -> bool {
        ptr::eq(self.shared.as_ptr(), m.shared())
    }

    /// Rings this one instead. False: it has rung already.
    pub(crate) fn set_waker(&self, waker: &Waker) -> bool {
        self.cell.content.set(waker);
        // After that: who fires now rings this one.
        self.cell.is_armed(self.turn)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        if self.cell.claim(self.turn)
            && let Some(shared) = self.shared.upgrade()
        {
            let call = Call::brief();
            if let Some(p) = shared.p(self.heap) {
                p.timers.note_dead(&shared);
            }
            drop(call);
        }
        self.cell.content.clear();
        POOL.put(self.cell);
    }
}

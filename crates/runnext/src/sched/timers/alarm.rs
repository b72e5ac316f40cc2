//! Alarms: moments at which a waker is rung.
//!
//! A future cannot hold a ticket: it has no wait of its own, only the goroutine that polls it does, and that one may poll many. So the
//! heap refers to a [`Cell`], like that of a `task`, with room for a waker in it. Cells are recycled but never freed; a stale entry finds
//! another number and does nothing, or at worst rings somebody who then finds nothing to do.
//!
//! | claim word | meaning         | left by                                        |
//! |------------|-----------------|------------------------------------------------|
//! | even       | armed           | fire, or the owner when it disarms (CAS) → odd |
//! | odd        | not armed       | the owner → the next even number               |
//!
//! # Context
//! `fire` is in RT. The rest is in user context, by the one owner of the alarm.

use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU32, Ordering::*, fence};
use std::sync::{Arc, Mutex, Weak};
use std::task::Waker;

use super::Sleeper;
use crate::g::G;
use crate::m::M;
use crate::p::P;
use crate::sched::Shared;
use crate::sched::call::Call;
use crate::sched::waker::Slot;

/// What the heap refers to.
#[repr(align(64))]
pub(super) struct Cell {
    claim: AtomicU32,
    slot: Slot,
}

static RECYCLED: Mutex<Vec<&'static Cell>> = Mutex::new(Vec::new());

impl Cell {
    fn fresh() -> &'static Cell {
        let recycled = RECYCLED.lock().unwrap_or_else(|e| e.into_inner()).pop();
        recycled.unwrap_or_else(|| {
            Box::leak(Box::new(Cell {
                claim: AtomicU32::new(1),
                slot: Slot::new(),
            }))
        })
    }

    pub(super) fn is_armed(&self, turn: u32) -> bool {
        self.claim.load(Acquire) == turn
    }

    fn claim(&self, turn: u32) -> bool {
        self.claim
            .compare_exchange(turn, turn | 1, AcqRel, Relaxed)
            .is_ok()
    }

    /// The moment has come. A goroutine that is runnable by that, to be queued by the owner of `p`.
    pub(super) fn fire(&self, turn: u32, shared: &Shared, p: &P) -> Option<NonNull<G>> {
        if !self.claim(turn) {
            return None;
        }
        self.slot.ring(shared, Some(p))
    }
}

/// A moment in the heap of a runtime, and who is to be rung then.
pub(crate) struct Alarm {
    cell: &'static Cell,
    shared: Weak<Shared>,
    /// The P whose heap has it.
    heap: usize,
    turn: u32,
}

impl Alarm {
    /// Rings `waker` at `when`.
    pub(crate) fn new(m: &M, when: u64, waker: &Waker) -> Alarm {
        // SAFETY: the pointer is that of the runtime's `Arc`, which its threads keep alive.
        let shared = unsafe {
            Arc::increment_strong_count(m.shared);
            Arc::from_raw(m.shared)
        };
        let cell = Cell::fresh();
        cell.slot.set(waker);
        let turn = (cell.claim.load(Relaxed) | 1).wrapping_add(1);
        let mut alarm = Alarm {
            cell,
            shared: Arc::downgrade(&shared),
            heap: 0,
            turn,
        };
        alarm.arm(&shared, when);
        alarm
    }

    fn arm(&mut self, shared: &Shared, when: u64) {
        let call = Call::brief();
        self.cell.claim.store(self.turn, Release);
        let p = shared.p_of(&call);
        self.heap = p.id;
        let sleeper = Sleeper::alarm(self.cell, self.turn);
        if p.timers.insert(when, sleeper, shared) {
            fence(SeqCst); // pairs with the one in `seat::wait`
            shared.seat.told_earlier(when);
            shared.watch_until(when);
        }
    }

    /// Rings this one instead. False: it has rung already.
    pub(crate) fn set_waker(&self, waker: &Waker) -> bool {
        self.cell.slot.set(waker);
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
        self.cell.slot.clear();
        RECYCLED
            .lock()
            .unwrap_or_else(|e| e.into_inner())
            .push(self.cell);
    }
}

impl Sleeper {
    fn alarm(cell: &'static Cell, turn: u32) -> Sleeper {
        let word = ptr::from_ref(cell).addr() | super::TASK | super::ALARM;
        Sleeper { word, turn }
    }
}

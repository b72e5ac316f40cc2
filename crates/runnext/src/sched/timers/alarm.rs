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
use crate::sched::groups::ROOT_LANE;
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
///
/// One that is set again and again keeps its cell: the pool is one lock for the whole process.
pub(crate) struct Alarm {
    cell: &'static Cell<Slot>,
    set: Setting,
}

/// Where a cell was entered.
struct Setting {
    shared: Weak<Shared>,
    /// The P whose heap has it.
    heap: usize,
    turn: u32,
}

impl Setting {
    /// Enters a cell, which is not armed.
    fn new(cell: &'static Cell<Slot>, m: &M, when: u64, waker: &Waker) -> Setting {
        let shared = m.shared();
        cell.content.set(waker);
        let call = Call::brief();
        let turn = cell.arm();
        let p = shared.p_of(&call);
        let grouped = m.g().is_some_and(|g| g.lane() != ROOT_LANE); // whose poll waits for it
        let first = (p.timers).insert(when, Sleeper::alarm(cell, turn), grouped, shared);
        let stopped = shared.stopped.load(SeqCst);
        if first && !stopped {
            shared.tell_earlier(when);
        }
        let heap = p.id;
        drop(call);
        if stopped {
            cell.give_up(turn); // as in `Task::arm`: `drop_tasks` may have gone by
        }
        Setting {
            shared: shared.weak(),
            heap,
            turn,
        }
    }
}

impl Alarm {
    /// Rings `waker` at `when`; before that if the runtime stops.
    pub(crate) fn new(m: &M, when: u64, waker: &Waker) -> Alarm {
        let cell = POOL.take(Slot::new);
        let set = Setting::new(cell, m, when, waker);
        Alarm { cell, set }
    }

    /// The same with this one, whatever it was set to.
    pub(crate) fn reset(&mut self, m: &M, when: u64, waker: &Waker) {
        self.stop();
        self.set = Setting::new(self.cell, m, when, waker);
    }

    /// It rings no more, until it is set again. Who is ringing just now may still do so.
    pub(crate) fn stop(&self) {
        let set = &self.set;
        if self.cell.claim(set.turn)
            && let Some(shared) = set.shared.upgrade()
        {
            let call = Call::brief();
            if let Some(p) = shared.p(set.heap) {
                p.timers.note_dead(&shared);
            }
            drop(call);
        }
        self.cell.content.clear();
    }

    /// Whether it is in a heap of that M's runtime.
    pub(crate) fn is_of(&self, m: &M) -> bool {
        ptr::eq(self.set.shared.as_ptr(), m.shared())
    }

    /// Rings this one instead. False: it has rung already.
    pub(crate) fn set_waker(&self, waker: &Waker) -> bool {
        self.cell.content.set(waker);
        // After that: who fires now rings this one.
        self.cell.is_armed(self.set.turn)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        self.stop();
        POOL.put(self.cell);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::m;
    use crate::runtime::tests::runtime;

    /// A server that sets its time-out anew for each request went to the pool twice each time.
    #[test]
    fn one_that_is_set_again_keeps_its_cell() {
        const FAR: u64 = u64::MAX / 2;
        runtime(1).run(|| {
            let (m, waker) = (m::current().unwrap(), Waker::noop());
            let mut alarm = Alarm::new(m, FAR, waker);
            let (cell, first) = (alarm.cell, alarm.set.turn);
            alarm.stop();
            assert!(!alarm.set_waker(waker), "it does not ring");
            alarm.reset(m, FAR, waker);
            assert!(alarm.set_waker(waker));
            alarm.reset(m, FAR, waker);
            assert!(ptr::eq(alarm.cell, cell) && alarm.set.turn != first);
            assert!(!cell.is_armed(first), "what is left in the heap is stale");
        });
    }
}

//! What a timer heap sorts: who waits for a deadline, or what is to happen then.
//!
//! # Context
//! As `timers`: in RT, nothing allocates.

use runnext_core::timers::Entry;

use super::{cell, task};
use crate::sched::wait::{Ticket, Who};
use crate::sched::waker::Slot;

/// What happens at the deadline it is sorted by: a wait ends, a function is started, or a waker is rung. Two words: the waiter of
/// a ticket, or a marked pointer to a cell, and the turn of either.
#[derive(Clone, Copy)]
pub(super) struct Sleeper {
    word: usize,
    turn: u32,
}

/// Marks a cell; a ticket's waiter never has this bit.
const TASK: usize = 2;
/// Marks a cell as that of an alarm.
const ALARM: usize = 4;

pub(super) enum What {
    Wait(Ticket),
    Start(&'static cell::Cell<task::Armed>, u32),
    Ring(&'static cell::Cell<Slot>, u32),
}

impl Sleeper {
    #[inline]
    pub(super) fn wait(ticket: Ticket) -> Sleeper {
        let (word, turn) = ticket.into_raw();
        debug_assert_eq!(word & TASK, 0);
        Sleeper { word, turn }
    }

    pub(super) fn task(cell: &'static cell::Cell<task::Armed>, turn: u32) -> Sleeper {
        let word = (&raw const *cell).addr() | TASK;
        Sleeper { word, turn }
    }

    pub(super) fn alarm(cell: &'static cell::Cell<Slot>, turn: u32) -> Sleeper {
        let word = (&raw const *cell).addr() | TASK | ALARM;
        Sleeper { word, turn }
    }

    #[inline]
    pub(super) fn what(self) -> What {
        if self.word & TASK == 0 {
            // SAFETY: made by `wait`.
            What::Wait(unsafe { Ticket::from_raw(self.word, self.turn) })
        } else if self.word & ALARM == 0 {
            // SAFETY: made by `task`, from a cell, which is never freed.
            let cell = unsafe { &*((self.word & !TASK) as *const cell::Cell<task::Armed>) };
            What::Start(cell, self.turn)
        } else {
            // SAFETY: made by `alarm`, from a cell, which is never freed.
            let cell = unsafe { &*((self.word & !(TASK | ALARM)) as *const cell::Cell<Slot>) };
            What::Ring(cell, self.turn)
        }
    }

    /// The lane of the goroutine it wakes; None if that is not known.
    pub(super) fn lane(self) -> Option<u32> {
        match self.what() {
            What::Wait(ticket) => match ticket.waiter.who() {
                // SAFETY: headers are type-stable, whoever has this one by now.
                Who::Goroutine(g) => Some(unsafe { g.as_ref() }.lane()),
                Who::Thread(_) => None,
            },
            What::Start(..) | What::Ring(..) => None,
        }
    }

    /// Asks for what firing it will touch, so that a batch waits for memory once and not for one after the other.
    #[inline]
    pub(super) fn prefetch(self) {
        if let What::Wait(ticket) = self.what()
            && let Who::Goroutine(g) = ticket.waiter.who()
        {
            // SAFETY: headers are type-stable, whoever has this one by now.
            unsafe { g.as_ref() }.prefetch_header();
        }
    }
}

impl Entry for Sleeper {
    #[inline]
    fn is_dead(&self) -> bool {
        match self.what() {
            What::Wait(ticket) => !ticket.is_open(),
            What::Start(cell, turn) => !cell.is_armed(turn),
            What::Ring(cell, turn) => !cell.is_armed(turn),
        }
    }
}

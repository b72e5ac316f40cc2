//! Askers: the futures that wait in one direction of a descriptor.
//!
//! # Why this shape
//! Nearly always it is one task. So the first waker has a place of its own, where one of ours stays after it was rung: the next wait
//! of the same task clones nothing. Further ones are in a vector, made and dropped in user context, and leave it when
//! they are woken. An event wakes all of them, not one: nobody tells when a future that has asked is dropped, so the one chosen
//! might not care. Rejected: the last waker only (the others wait for ever), waking the one that is replaced (two tasks
//! would wake each other without end).
//!
//! | first | meaning                                     | next                                           |
//! |-------|---------------------------------------------|------------------------------------------------|
//! | ASKED | it waits                                    | an event: RUNG if it is ours, else DUE          |
//! | DUE   | it is to be woken in user context           | woken and taken out; or it asks again: ASKED    |
//! | RUNG  | none, or one that has not asked since       | it asks again, or another takes its place: ASKED|
//!
//! # Growth
//! Wakers of futures that were dropped stay until the next event, and on a socket where nothing happens that could be any number.
//! So a vector that is full is not made larger if its oldest waker has waited for [`STALE_NS`]: it is emptied, and all in it
//! are woken; who still waits asks again. So it holds at most twice as many as have asked within that time.
//!
//! # Context
//! All of it under the lock of the slot, in RT: nothing is allocated, cloned, woken or dropped here. What is needed for that comes in, and what
//! is left goes out, through [`Spare`] and [`Taken`].

use std::mem;
use std::ptr::NonNull;
use std::task::Waker;

use runnext_sys::clock;

use crate::g::G;
use crate::sched::Shared;
use crate::sched::waker::{goroutine_in, use_up};

/// How long wakers are kept before those who still wait are asked to say so. A guess.
const STALE_NS: u64 = 1_000_000_000;

/// Room for so many is made at first.
const FEW: usize = 4;

#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    Asked,
    Due,
    Rung,
}

/// Who has asked.
pub(super) struct Askers {
    first: Option<Waker>,
    turn: Turn,
    more: Vec<Waker>,
    /// When the oldest of `more` came.
    since: u64,
    /// An event has come for `more`.
    more_due: bool,
}

/// What is missing to store a waker, for the caller to get in user context.
pub(super) enum Need {
    /// A clone of it.
    Clone,
    /// An empty vector with that capacity.
    Room(usize),
}

/// What [`Askers::ask`] may take. Afterwards: a waker to be dropped, and wakers to be woken.
pub(super) struct Spare {
    clone: Option<Waker>,
    room: Vec<Waker>,
}

impl Spare {
    pub(super) fn new() -> Spare {
        Spare {
            clone: None,
            room: Vec::new(),
        }
    }

    /// Gets what is missing to store `waker`. In user context.
    pub(super) fn get(&mut self, need: Need, waker: &Waker) {
        match need {
            Need::Clone => self.clone = Some(waker.clone()),
            Need::Room(capacity) => self.room = Vec::with_capacity(capacity),
        }
    }

    /// Wakes those that had to make room. In user context.
    pub(super) fn wake(self) {
        self.room.into_iter().for_each(use_up);
    }
}

/// Wakers that were taken out, to be woken or dropped in user context.
pub(super) struct Taken {
    first: Option<Waker>,
    more: Vec<Waker>,
}

impl Taken {
    pub(super) fn nobody() -> Taken {
        Taken {
            first: None,
            more: Vec::new(),
        }
    }

    /// Wakes them all. A panic in one does not keep the others asleep; the hook has reported it.
    pub(super) fn wake(self) {
        self.first.into_iter().chain(self.more).for_each(use_up);
    }
}

impl Askers {
    pub(super) fn new() -> Askers {
        Askers {
            first: None,
            turn: Turn::Rung,
            more: Vec::new(),
            since: 0,
            more_due: false,
        }
    }

    /// `waker` is woken by the next event, unless something is missing.
    pub(super) fn ask(&mut self, waker: &Waker, spare: &mut Spare) -> Result<(), Need> {
        if self.first.as_ref().is_some_and(|w| w.will_wake(waker)) {
            self.turn = Turn::Asked;
            return Ok(());
        }
        if self.more.iter().any(|w| w.will_wake(waker)) {
            return Ok(()); // if they are due, it is woken once for nothing
        }
        if spare.clone.is_none() {
            return Err(Need::Clone);
        }
        if self.turn == Turn::Rung {
            mem::swap(&mut self.first, &mut spare.clone);
            self.turn = Turn::Asked;
            return Ok(());
        }
        if self.more.len() == self.more.capacity() {
            self.make_room(&mut spare.room)?;
        }
        if self.more.is_empty() {
            self.since = clock::now_ns();
            self.more_due = false;
        }
        self.more.extend(spare.clone.take()); // there is room
        Ok(())
    }

    #[cold]
    fn make_room(&mut self, room: &mut Vec<Waker>) -> Result<(), Need> {
        let held = self.more.len();
        let stale = held != 0 && clock::now_ns().saturating_sub(self.since) >= STALE_NS;
        let want = if stale { FEW } else { (2 * held).max(FEW) };
        if room.capacity() < want {
            return Err(Need::Room(want));
        }
        if !stale {
            room.append(&mut self.more); // it has the capacity
        }
        mem::swap(&mut self.more, room);
        Ok(())
    }

    /// Whether somebody waits for an event. Who is due does not.
    pub(super) fn wait(&self) -> bool {
        self.turn == Turn::Asked || !self.more.is_empty() && !self.more_due
    }

    /// An event. One of ours that sleeps and is to be woken by the caller; and whether others are, by [`take_due`](Self::take_due).
    /// Ours are those of the runtime that rings: another may have stopped, and then waking one is dropping it (`sched::future`).
    pub(super) fn ring(&mut self, shared: Option<&Shared>) -> (Option<NonNull<G>>, bool) {
        self.more_due = !self.more.is_empty();
        let mut ours = None;
        if let Some(first) = &self.first
            && self.turn != Turn::Rung
        {
            self.turn = match shared.and_then(|shared| goroutine_in(first, shared)) {
                Some(g) => {
                    ours = g.signal().ring().then(|| g.ptr());
                    Turn::Rung
                }
                None => Turn::Due,
            };
        }
        (ours, self.more_due || self.turn == Turn::Due)
    }

    /// Those for whom an event has come, and who are still here.
    pub(super) fn take_due(&mut self) -> Taken {
        let mut taken = Taken::nobody();
        if self.turn == Turn::Due {
            self.turn = Turn::Rung;
            taken.first = self.first.take();
        }
        if mem::take(&mut self.more_due) {
            taken.more = mem::take(&mut self.more);
        }
        taken
    }

    /// Everybody.
    pub(super) fn take_all(&mut self) -> Taken {
        self.turn = Turn::Rung;
        self.more_due = false;
        Taken {
            first: self.first.take(),
            more: mem::take(&mut self.more),
        }
    }
}

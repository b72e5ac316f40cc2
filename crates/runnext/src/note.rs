//! A note to a thread: give way.
//!
//! Whoever wants an M to give way leaves a note; the M reads it at the end of a runtime call, at a checkpoint, or in the signal handler
//! if a signal follows. Each note names the turn it is meant for (`P::slice`): by the time it is read, the goroutine that was meant may have
//! left the P by itself, and the one that runs now, perhaps the one for whose sake the note was left, must not be stopped.
//!
//! | state      | read by                                        | counted | left when                                         |
//! |------------|------------------------------------------------|---------|---------------------------------------------------|
//! | NONE       |                                                |         |                                                   |
//! | CHECKPOINT | checkpoints                                    | yes     | without preemption, a slice is used up            |
//! | ASKED      | ends of calls, checkpoints, the signal handler | yes     | somebody more entitled waits, or a slice is used up |
//! | LAST       | as ASKED                                       | no      | the runtime has stopped; meant for any turn       |
//!
//! A newer note replaces an older one that was not read, unless fewer would read it. A note that cannot be read is withdrawn. *Counted*: in
//! [`LEFT`], where checkpoints look. LAST is not: a goroutine that computes for ever does not read it, and checkpoints of other runtimes would look for
//! it for ever.
//!
//! The parts are read one by one: if two notes are left at once, a mixture may be taken, which is then for no turn that runs, or for the right
//! one. A note may be lost, never misdelivered.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64, Ordering::*};

use runnext_sys::clock;

/// How many notes have not been read, in the whole process. A checkpoint reads this one word: no thread-local, whose address the
/// compiler might keep over a switch.
static LEFT: AtomicU32 = AtomicU32::new(0);

/// Whether any thread of the process has a note to read.
#[inline]
pub(crate) fn any() -> bool {
    LEFT.load(Relaxed) != 0
}

const NONE: u8 = 0;
const CHECKPOINT: u8 = 1;
const ASKED: u8 = 2;
const LAST: u8 = 3;

fn is_counted(state: u8) -> bool {
    matches!(state, CHECKPOINT | ASKED)
}

/// Where a thread's notes are left. See the [module](self).
pub(crate) struct Note {
    state: AtomicU8,
    blamed: AtomicBool,
    slice: AtomicU32,
    at: AtomicU64,
}

/// What a note said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The turn it is for.
    pub(crate) slice: u32,
    /// The goroutine is to gain weight, because it has run for long. Otherwise it only gives way to one that is more entitled.
    pub(crate) blamed: bool,
    /// When it was left, in ns.
    pub(crate) at: u64,
}

impl Note {
    pub(crate) const fn new() -> Note {
        Note {
            state: AtomicU8::new(NONE),
            blamed: AtomicBool::new(false),
            slice: AtomicU32::new(0),
            at: AtomicU64::new(0),
        }
    }

    /// Leaves one for the next call that ends, the next checkpoint or a signal. By any thread, in a signal handler too.
    pub(crate) fn leave(&self, slice: u32, blamed: bool) {
        self.write(slice, blamed);
        self.replace(ASKED);
    }

    /// Leaves one for the next checkpoint. By any thread.
    pub(crate) fn leave_for_checkpoint(&self, slice: u32) {
        if !self.is_for_calls() {
            self.write(slice, false);
            let new = self
                .state
                .compare_exchange(NONE, CHECKPOINT, Release, Relaxed);
            if new.is_ok() {
                LEFT.fetch_add(1, Relaxed);
            }
        }
    }

    /// Leaves the last one. By any thread, in a signal handler too.
    pub(crate) fn leave_last(&self) {
        self.replace(LAST);
    }

    /// Takes back one that was not read, because the thread sleeps or the turn is over: checkpoints of other threads would look for it all the
    /// while. Not the last one. By any thread.
    pub(crate) fn withdraw(&self) {
        let state = self.state.load(Relaxed);
        if is_counted(state)
            && self
                .state
                .compare_exchange(state, NONE, Relaxed, Relaxed)
                .is_ok()
        {
            LEFT.fetch_sub(1, Relaxed);
        }
    }

    /// Whether there is one. For checkpoints.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        self.state.load(Relaxed) != NONE
    }

    /// Whether there is one that is read at the end of calls too.
    #[inline]
    pub(crate) fn is_for_calls(&self) -> bool {
        self.state.load(Relaxed) >= ASKED
    }

    /// Takes it.
    pub(crate) fn take(&self) -> Option<Asked> {
        if self.replace(NONE) == NONE {
            return None;
        }
        Some(Asked {
            slice: self.slice.load(Relaxed),
            blamed: self.blamed.load(Relaxed),
            at: self.at.load(Relaxed),
        })
    }

    /// The time is that of the first note of a turn.
    fn write(&self, slice: u32, blamed: bool) {
        let again = is_counted(self.state.load(Acquire)) && self.slice.load(Relaxed) == slice;
        if !again {
            self.at.store(clock::now_ns(), Relaxed);
        }
        self.blamed.store(blamed, Relaxed);
        self.slice.store(slice, Relaxed);
    }

    /// Changes the state, and the count with it. Returns what it was.
    fn replace(&self, state: u8) -> u8 {
        let old = self.state.swap(state, AcqRel);
        match (is_counted(old), is_counted(state)) {
            (false, true) => drop(LEFT.fetch_add(1, Relaxed)),
            (true, false) => drop(LEFT.fetch_sub(1, Relaxed)),
            _ => {}
        }
        old
    }
}

impl Drop for Note {
    /// Otherwise every checkpoint of the process would look for it for ever.
    fn drop(&mut self) {
        self.take();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_note_is_read_once_and_the_newest_counts() {
        let note = Note::new();
        assert!(note.take().is_none());
        note.leave(7, true);
        note.leave(8, false);
        assert!(note.is_left() && any());
        let asked = note.take().unwrap();
        assert_eq!((asked.slice, asked.blamed), (8, false));
        assert!(!note.is_left() && note.take().is_none());
    }

    #[test]
    fn a_note_for_a_checkpoint_is_not_for_calls() {
        let note = Note::new();
        note.leave_for_checkpoint(7);
        assert!(note.is_left() && !note.is_for_calls());
        note.leave(8, true);
        assert!(note.is_for_calls());
        note.leave_for_checkpoint(9); // it would be read later than the other
        assert!(note.is_for_calls());
        assert_eq!(note.take().unwrap().slice, 8);
        note.leave_for_checkpoint(7);
        note.withdraw();
        assert!(!note.is_left());
    }

    #[test]
    fn the_last_note_is_read_at_calls_whatever_was_left_before() {
        let note = Note::new();
        for before in [Note::leave_for_checkpoint, |note: &Note, slice| {
            note.leave(slice, true)
        }] {
            before(&note, 7);
            note.leave_last();
            note.leave_for_checkpoint(8);
            assert!(note.is_for_calls());
            assert!(note.take().is_some() && note.take().is_none());
        }
    }

    #[test]
    fn one_that_is_withdrawn_is_not_read_except_the_last() {
        let note = Note::new();
        note.leave(7, true);
        note.withdraw();
        assert!(note.take().is_none());
        note.leave_last();
        note.withdraw();
        assert!(note.is_left());
    }

    #[test]
    fn the_time_is_that_of_the_first_note_of_a_turn() {
        let note = Note::new();
        note.leave(7, true);
        let first = note.at.load(Relaxed);
        while clock::now_ns() == first {}
        note.leave(7, true);
        assert_eq!(note.at.load(Relaxed), first);
        note.leave(8, true);
        assert!(note.take().unwrap().at > first);
    }
}

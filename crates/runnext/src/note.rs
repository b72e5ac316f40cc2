//! A note to a thread: give way.
//!
//! Whoever wants an M to give way leaves one; the M reads it on the way out of a runtime call, at a checkpoint, or in the signal handler
//! if a signal follows. Each note names the turn it is meant for (`P::slice`): by the time it is read, whoever was meant may have gone by
//! itself, and the one that runs now, perhaps the one for whose sake it was left, has done nothing to be stopped for.
//!
//! A newer note replaces one that was not read; one that cannot be is taken back. The parts are read one by one: of two that meet, a mixture may be taken, which is then for
//! no turn that runs, or for the right one. A note may be lost, never misdelivered.
//!
//! The last one says that the runtime has stopped. It is for whoever runs, and read on the way out of a call only: a goroutine that computes for ever
//! does not read it, and checkpoints of other runtimes must not look for it for ever.

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
/// There is one, counted in [`LEFT`].
const ASKED: u8 = 1;
/// All has stopped. Not counted.
const LAST: u8 = 2;

/// Where a thread's notes are left. See the [module](self).
pub(crate) struct Note {
    left: AtomicU8,
    blamed: AtomicBool,
    slice: AtomicU32,
    at: AtomicU64,
}

/// What a note said.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Asked {
    /// The turn it is for.
    pub(crate) slice: u32,
    /// The goroutine has run for so long that it counts as one that runs on and on. Else it gives way to somebody more entitled.
    pub(crate) blamed: bool,
    /// When, in ns.
    pub(crate) at: u64,
}

impl Note {
    pub(crate) const fn new() -> Note {
        Note {
            left: AtomicU8::new(NONE),
            blamed: AtomicBool::new(false),
            slice: AtomicU32::new(0),
            at: AtomicU64::new(0),
        }
    }

    /// Leaves one. By anybody, a signal handler included.
    pub(crate) fn leave(&self, slice: u32, blamed: bool) {
        let again = self.left.load(Acquire) == ASKED && self.slice.load(Relaxed) == slice;
        if !again {
            self.at.store(clock::now_ns(), Relaxed);
        }
        self.blamed.store(blamed, Relaxed);
        self.slice.store(slice, Relaxed);
        if self.left.swap(ASKED, Release) != ASKED {
            LEFT.fetch_add(1, Relaxed);
        }
    }

    /// Leaves the last one, unless there is another: who reads that sees that all has stopped. By anybody, a signal handler included.
    pub(crate) fn leave_last(&self) {
        let _ = self.left.compare_exchange(NONE, LAST, Release, Relaxed);
    }

    /// Takes one back that was not read, for whoever it is meant for sleeps: checkpoints of others would look for it all the while. By anybody.
    pub(crate) fn withdraw(&self) {
        if self
            .left
            .compare_exchange(ASKED, NONE, Relaxed, Relaxed)
            .is_ok()
        {
            LEFT.fetch_sub(1, Relaxed);
        }
    }

    /// Whether there is one.
    #[inline]
    pub(crate) fn is_left(&self) -> bool {
        self.left.load(Relaxed) != NONE
    }

    /// Whether the one that was left last is for this turn.
    pub(crate) fn is_for(&self, slice: u32) -> bool {
        self.slice.load(Relaxed) == slice
    }

    /// Takes it.
    pub(crate) fn take(&self) -> Option<Asked> {
        match self.left.swap(NONE, Acquire) {
            NONE => return None,
            ASKED => drop(LEFT.fetch_sub(1, Relaxed)),
            _ => {}
        }
        Some(Asked {
            slice: self.slice.load(Relaxed),
            blamed: self.blamed.load(Relaxed),
            at: self.at.load(Relaxed),
        })
    }
}

impl Drop for Note {
    /// Or every checkpoint of the process would look for it for ever.
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
    fn the_last_note_replaces_none() {
        let note = Note::new();
        note.leave_last();
        assert!(note.is_left());
        note.leave(7, true); // as one that was not read
        note.leave_last();
        assert_eq!(note.take().unwrap().slice, 7);
        assert!(note.take().is_none());
    }

    #[test]
    fn one_that_is_taken_back_is_not_read_but_for_the_last() {
        let note = Note::new();
        note.leave(7, true);
        note.withdraw();
        assert!(note.take().is_none());
        note.leave_last();
        note.withdraw();
        assert!(note.is_left());
    }

    #[test]
    fn since_when_is_of_the_first_of_a_turn() {
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

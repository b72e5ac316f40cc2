//! A ring of events with one writer, who never waits, and readers who find out what they missed.
//!
//! # Protocol
//! The ring is a row of blocks. What the writer needs for an event is where to put it and where to stop and think: at the end of its block.
//!
//! writer: 1 write the slot at the cursor  2 publish the cursor after it
//! between blocks: 1 publish the number of the first event of the next  2 publish the cursor there
//! reader: 1 `written`: the number its block began with, and how far the cursor is from there  2 copy the slots before it  3 `written`
//! again: of what was copied, all that the writer may have begun to overwrite meanwhile is dropped
//!
//! # Invariants
//! I1  A copy holds a gapless run of events, in order, and begins with a time; `lost` says how many came before it and are gone.
//! I2  A slot being overwritten is dropped by the reader: slots are atomics, so reading it is no race.
//! I3  The cursor is in the block that `turned` tells of, or at its end; or, between blocks, at the end of the one before.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*, fence};
use std::{mem, ptr};

use runnext_sys::{clock, cpu};

use super::event::{Event, Kind};

/// Events in a block: in a coarse trace they share a clock reading.
const BLOCK: usize = 128;
/// Slots in a cache line.
const SLOTS_PER_LINE: usize = 8;

/// See the [module](self). Those of several Ps are made one after the other, and each is written at every switch: on lines of their own.
#[repr(align(128))]
pub(crate) struct Ring {
    /// The next slot to write.
    cursor: AtomicPtr<AtomicU64>,
    /// Where the writer stops: at the end of its block, or at once if null.
    limit: AtomicPtr<AtomicU64>,
    /// The number of the first event of the block.
    turned: AtomicU64,
    slots: Box<[AtomicU64]>,
    block: usize,
}

/// What a reader got.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) events: Vec<Event>,
    /// Events before those that were overwritten.
    pub(crate) lost: u64,
}

impl Ring {
    /// Room for `capacity` words, rounded up to a power of two. Allocates.
    pub(crate) fn new(capacity: usize) -> Ring {
        let capacity = capacity.next_power_of_two().max(2);
        let slots: Box<[_]> = (0..capacity).map(|_| AtomicU64::new(0)).collect();
        Ring {
            cursor: AtomicPtr::new(slots.as_ptr().cast_mut()),
            limit: AtomicPtr::new(ptr::null_mut()),
            turned: AtomicU64::new(0),
            block: BLOCK.min(capacity / 2),
            slots,
        }
    }

    /// Events ever written. A moment's view, unless nobody writes.
    pub(crate) fn written(&self) -> u64 {
        loop {
            let turned = self.turned.load(Acquire);
            let cursor = self.cursor.load(Acquire);
            // A cursor from after the turn tells of it.
            if self.turned.load(Relaxed) == turned {
                let from = self.place(turned);
                let ahead = cursor.addr().wrapping_sub(from.addr()) / mem::size_of::<AtomicU64>();
                // I3: between blocks it may be anywhere.
                return turned + if ahead <= self.block { ahead as u64 } else { 0 };
            }
        }
    }

    /// Where an event lies.
    fn place(&self, n: u64) -> *mut AtomicU64 {
        let slot = &self.slots[n as usize & (self.slots.len() - 1)];
        ptr::from_ref(slot).cast_mut()
    }

    /// Adds an event. By the one writer.
    #[inline]
    pub(crate) fn push(&self, event: Event) {
        let mut at = self.cursor.load(Relaxed);
        if at >= self.limit.load(Relaxed) {
            at = self.go_on();
        }
        self.put(at, event);
    }

    /// The same, after its time where a block begins, or time has passed ([`doubt_clock`](Self::doubt_clock)).
    #[inline(always)]
    pub(crate) fn push_coarse(&self, event: Event) {
        let mut at = self.cursor.load(Relaxed);
        if at >= self.limit.load(Relaxed) {
            at = self.put_clock();
        }
        self.put(at, event);
    }

    /// The next event needs a clock. By anybody.
    pub(crate) fn doubt_clock(&self) {
        self.limit.store(ptr::null_mut(), Relaxed);
    }

    #[inline(always)]
    fn put(&self, at: *mut AtomicU64, event: Event) {
        // SAFETY: the cursor is before the end of its block, where the limit is, or came from `go_on`.
        unsafe {
            // Released: who sees it sees that the number before was published.
            (*at).store(event.0, Release);
            self.cursor.store(at.add(1), Release);
        }
    }

    /// Returns where the event after it goes.
    #[cold]
    #[inline(never)]
    fn put_clock(&self) -> *mut AtomicU64 {
        self.put(self.go_on(), Event::value(Kind::Clock, clock::ticks()));
        self.go_on()
    }

    /// Sets the limit anew, at the end of a block that of the next. Returns the cursor, which is before it.
    #[cold]
    fn go_on(&self) -> *mut AtomicU64 {
        let mut turned = self.turned.load(Relaxed);
        let mut at = self.cursor.load(Relaxed);
        if at == self.end_of(turned) {
            turned += self.block as u64;
            self.turned.store(turned, Release);
            at = self.place(turned);
            self.cursor.store(at, Release);
            self.prefetch(turned + self.block as u64);
        }
        self.limit.store(self.end_of(turned), Relaxed);
        at
    }

    /// Behind the block that begins with event number `turned`.
    fn end_of(&self, turned: u64) -> *mut AtomicU64 {
        // SAFETY: a ring is a row of whole blocks.
        unsafe { self.place(turned).add(self.block) }
    }

    /// The block of event number `n` will be written soon, and may not be in a cache any more.
    fn prefetch(&self, n: u64) {
        for i in (0..self.block).step_by(SLOTS_PER_LINE) {
            cpu::prefetch(self.place(n + i as u64));
        }
    }

    /// What was written since `since` and is still there, from the first time on.
    pub(crate) fn copy(&self, since: u64) -> Copied {
        let end = self.written();
        let len = self.slots.len() as u64;
        let start = end.saturating_sub(len).max(since.min(end));
        let events: Vec<Event> = (start..end)
            .map(|n| {
                let slot = &self.slots[n as usize & (self.slots.len() - 1)];
                Event(slot.load(Relaxed))
            })
            .collect();
        fence(Acquire);
        // The writer may be in the middle of number `now`, which takes the place of `now - len`.
        let now = self.written();
        let whole = (now + 1).saturating_sub(len).clamp(start, end);
        let kept = &events[(whole - start) as usize..];
        // Events whose time was overwritten happened nobody knows when.
        let timeless = kept.iter().take_while(|e| e.clock().is_none()).count();
        Copied {
            events: kept[timeless..].to_vec(),
            lost: whole + timeless as u64 - since.min(whole),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::observe::event::Kind;

    fn event(n: u64) -> Event {
        Event::value(Kind::Clock, n)
    }

    #[test]
    fn the_newest_stay_and_the_rest_is_counted() {
        let ring = Ring::new(8);
        for n in 0..5 {
            ring.push(event(n));
        }
        let copied = ring.copy(0);
        assert_eq!((copied.events.len(), copied.lost), (5, 0));
        for n in 5..20 {
            ring.push(event(n));
        }
        let copied = ring.copy(0);
        // One less than it holds: the oldest might be being overwritten.
        assert_eq!(copied.events, (13..20).map(event).collect::<Vec<_>>());
        assert_eq!(copied.lost, 13);
        let copied = ring.copy(18);
        assert_eq!(copied.events, vec![event(18), event(19)]);
        assert_eq!(copied.lost, 0);
    }

    #[test]
    fn copies_beside_a_writer_have_no_gaps() {
        let ring = Ring::new(64);
        std::thread::scope(|s| {
            let writer = s.spawn(|| (0..200_000).for_each(|n| ring.push(event(n))));
            while !writer.is_finished() {
                let copied = ring.copy(0);
                for (i, e) in copied.events.iter().enumerate() {
                    assert_eq!(*e, event(copied.lost + i as u64));
                }
            }
        });
        assert_eq!(ring.copy(0).lost, 200_000 - 63);
    }
}

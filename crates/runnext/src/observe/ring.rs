//! A ring of events with one writer, who never waits, and readers who find out what they missed.
//!
//! # Protocol
//! writer: 1 write the slot of number `written`  2 publish `written + 1`
//! reader: 1 read `written`  2 copy the slots before it  3 read `written` again: of what was copied, all that the
//! writer may have begun to overwrite meanwhile is dropped
//!
//! # Invariants
//! I1  A copy holds a gapless run of events, in order, and begins with a time; `lost` says how many came before it and are gone.
//! I2  A slot being overwritten is dropped by the reader: slots are atomics, so reading it is no race.

use std::sync::atomic::{AtomicU64, Ordering::*, fence};

use super::event::Event;

pub(crate) struct Ring {
    slots: Box<[AtomicU64]>,
    /// Events ever written.
    written: AtomicU64,
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
        Ring {
            slots: (0..capacity).map(|_| AtomicU64::new(0)).collect(),
            written: AtomicU64::new(0),
        }
    }

    /// Events ever written.
    #[inline(always)]
    pub(crate) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Adds an event. By the one writer.
    #[inline(always)]
    pub(crate) fn push(&self, event: Event) {
        let n = self.written.load(Relaxed);
        // SAFETY: there are at least two slots, and the mask is one less than how many.
        let slot = unsafe {
            self.slots
                .get_unchecked(n as usize & (self.slots.len() - 1))
        };
        // Released: who sees it sees that the number before was published.
        slot.store(event.0, Release);
        self.written.store(n + 1, Release);
    }

    /// What was written since `since` and is still there, from the first time on.
    pub(crate) fn copy(&self, since: u64) -> Copied {
        let end = self.written.load(Acquire);
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
        let now = self.written.load(Relaxed);
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

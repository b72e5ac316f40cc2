//! A ring of events with one writer, who never waits, and readers who find out what they missed.
//!
//! # Protocol
//! The ring is a row of blocks. What the writer needs for an event is where to put it; a look at that address tells it whether a block
//! begins there, where it has to stop and think.
//!
//! writer: 1 write the slot at the cursor  2 publish the cursor after it
//! between blocks: 1 publish the number of the first event of the next  2 publish the cursor there
//! reader: 1 `written`: the number its block began with, and how far the cursor is from there  2 copy the slots before it  3 `written`
//! again: of what was copied, all that the writer may have begun to overwrite meanwhile is dropped
//!
//! Its memory may go back to the system while nobody reads (`release`): the blocks stay where they are and read as zeroes, which no reader looks at, for each begins
//! with what was written after that. A writer who comes late notices nothing.
//!
//! # Invariants
//! I1  A copy holds a gapless run of events, in order, and begins with a time; `lost` says how many came before it and are gone.
//! I2  A slot being overwritten is dropped by the reader: slots are atomics, so reading it is no race.
//! I3  The cursor is in the block that `turned` tells of, or at its end; or, between blocks, at the end of the one before.
//! I4  Where the writer leaves the cursor at the edge of a block, it is the end of a full one: the next has not begun.
//! I5  The cursor, and so every address the writer uses, stays mapped for as long as the ring lives.

use std::sync::atomic::{AtomicPtr, AtomicU64, Ordering::*, fence};
use std::{ptr, slice};

use runnext_sys::map::{self, Region};
use runnext_sys::{clock, cpu};

use super::event::{Event, Kind};

/// Events in a block: in a coarse trace they share a clock reading.
const BLOCK: usize = 128;
const SLOT_BYTES: usize = size_of::<AtomicU64>();
/// Slots in a cache line.
const SLOTS_PER_LINE: usize = 8;

/// Aligned to its size, so that an address tells where in a block it is.
#[repr(align(1024))]
struct Block([AtomicU64; BLOCK]);

const _: () = assert!(size_of::<Block>() == align_of::<Block>());

/// See the [module](self). Those of several Ps are made one after the other, and each is written at every switch: on lines of their own.
#[repr(align(128))]
pub(crate) struct Ring {
    /// The next slot to write.
    cursor: AtomicPtr<AtomicU64>,
    /// The number of the first event of the block.
    turned: AtomicU64,
    /// How many blocks there are, and where.
    len: usize,
    memory: Region,
}

/// What a reader got.
#[derive(Debug, Default)]
pub(crate) struct Copied {
    pub(crate) events: Vec<Event>,
    /// Events before those that were overwritten.
    pub(crate) lost: u64,
}

impl Ring {
    /// Room for `capacity` words, rounded up to a power of two, and two blocks at least. For who may block.
    pub(crate) fn new(capacity: usize) -> Result<Ring, map::Refused> {
        let len = capacity.div_ceil(BLOCK).next_power_of_two().max(2);
        let ring = Ring {
            cursor: AtomicPtr::new(ptr::null_mut()),
            // I4: as if all before number 0 were full.
            turned: AtomicU64::new(0_u64.wrapping_sub(BLOCK as u64)),
            len,
            memory: Region::reserve(len * size_of::<Block>(), align_of::<Block>(), true)?,
        };
        let end = ring.blocks().as_ptr_range().end;
        ring.cursor.store(end.cast_mut().cast(), Relaxed);
        Ok(ring)
    }

    fn blocks(&self) -> &[Block] {
        // SAFETY: the region has room for so many, is aligned for them and is there for as long as the ring; atomics of any value are valid, and
        // that `release` makes zeroes of them is a write like another thread's.
        unsafe { slice::from_raw_parts(self.memory.base().cast(), self.len) }
    }

    /// It will be written: its memory is got now, not by the writer. For who may block.
    pub(crate) fn prepare(&self) {
        self.memory.populate();
    }

    /// What was written so far is not needed any more: its memory goes, but for what a writer who comes late touches after that. For who
    /// may block.
    pub(crate) fn release(&self) {
        self.memory.discard(0, self.memory.len());
    }

    /// How many words there is room for.
    fn capacity(&self) -> usize {
        self.len * BLOCK
    }

    /// Events ever written. A moment's view, unless nobody writes.
    pub(crate) fn written(&self) -> u64 {
        loop {
            let turned = self.turned.load(Acquire);
            let cursor = self.cursor.load(Acquire);
            // A cursor from after the turn tells of it.
            if self.turned.load(Relaxed) == turned {
                let from = ptr::from_ref(self.slot(turned));
                let ahead = cursor.addr().wrapping_sub(from.addr()) / SLOT_BYTES;
                // I3: between blocks it may be anywhere.
                let ahead = if ahead <= BLOCK { ahead as u64 } else { 0 };
                return turned.wrapping_add(ahead);
            }
        }
    }

    /// Where an event lies.
    fn slot(&self, n: u64) -> &AtomicU64 {
        let n = n as usize & (self.capacity() - 1);
        &self.blocks()[n / BLOCK].0[n % BLOCK]
    }

    /// Adds an event. By the one writer.
    #[inline]
    pub(crate) fn push(&self, event: Event) {
        let mut at = self.cursor.load(Relaxed);
        if is_edge(at) {
            at = self.turn();
        }
        self.put(at, event);
    }

    /// The same, after its time where a block begins.
    #[inline(always)]
    pub(crate) fn push_coarse(&self, event: Event) {
        let at = self.cursor.load(Relaxed);
        if is_edge(at) {
            return self.begin_block(event);
        }
        self.put(at, event);
    }

    /// The time of what follows. By the one writer.
    pub(crate) fn push_clock(&self) {
        self.push(Event::value(Kind::Clock, clock::ticks()));
    }

    #[inline(always)]
    fn put(&self, at: *mut AtomicU64, event: Event) {
        // SAFETY: a cursor that is not at an edge is within a block, and so is one from `turn`; blocks stay where they are (I5).
        unsafe {
            // Released: who sees it sees that the number before was published.
            (*at).store(event.0, Release);
            self.cursor.store(at.add(1), Release);
        }
    }

    #[cold]
    #[inline(never)]
    fn begin_block(&self, event: Event) {
        self.push_clock();
        self.push(event);
    }

    /// Begins the next block (I4). Returns the cursor.
    #[cold]
    fn turn(&self) -> *mut AtomicU64 {
        let turned = self.turned.load(Relaxed).wrapping_add(BLOCK as u64);
        self.turned.store(turned, Release);
        let at = ptr::from_ref(self.slot(turned)).cast_mut();
        self.cursor.store(at, Release);
        self.prefetch(turned + BLOCK as u64);
        at
    }

    /// The block of event number `n` will be written soon, and may not be in a cache any more.
    fn prefetch(&self, n: u64) {
        for i in (0..BLOCK).step_by(SLOTS_PER_LINE) {
            cpu::prefetch(self.slot(n + i as u64));
        }
    }

    /// What was written since `since` and is still there, from the first time on.
    pub(crate) fn copy(&self, since: u64) -> Copied {
        let end = self.written();
        let len = self.capacity() as u64;
        let start = end.saturating_sub(len).max(since.min(end));
        let events: Vec<Event> = (start..end)
            .map(|n| Event(self.slot(n).load(Relaxed)))
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

/// Whether this is where a block begins, or has ended.
#[inline(always)]
fn is_edge(slot: *mut AtomicU64) -> bool {
    slot.addr().is_multiple_of(align_of::<Block>())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn event(n: u64) -> Event {
        Event::value(Kind::Clock, n)
    }

    #[test]
    fn the_newest_stay_and_the_rest_is_counted() {
        let ring = Ring::new(1).unwrap();
        assert_eq!((ring.capacity(), ring.written()), (256, 0));
        for n in 0..5 {
            ring.push(event(n));
        }
        let copied = ring.copy(0);
        assert_eq!((copied.events.len(), copied.lost), (5, 0));
        for n in 5..1000 {
            assert_eq!(ring.written(), n);
            ring.push(event(n));
        }
        let copied = ring.copy(0);
        // One less than it holds: the oldest might be being overwritten.
        assert_eq!(copied.events, (745..1000).map(event).collect::<Vec<_>>());
        assert_eq!(copied.lost, 745);
        let copied = ring.copy(998);
        assert_eq!(copied.events, vec![event(998), event(999)]);
        assert_eq!(copied.lost, 0);
    }

    #[test]
    fn each_block_of_a_coarse_trace_begins_with_a_clock() {
        let ring = Ring::new(4 * BLOCK).unwrap();
        let other = Event::value(Kind::Id, 1);
        (0..3 * BLOCK - 3).for_each(|_| ring.push_coarse(other));
        let copied = ring.copy(0);
        assert_eq!(copied.events.len(), 3 * BLOCK);
        for (i, event) in copied.events.iter().enumerate() {
            assert_eq!(event.clock().is_some(), i % BLOCK == 0, "{i}");
        }
    }

    #[test]
    fn what_was_released_is_written_again() {
        let ring = Ring::new(4 * BLOCK).unwrap();
        let since = 7 * BLOCK as u64 + 5;
        (0..since).for_each(|n| ring.push(event(n)));
        ring.release();
        assert!((0..4 * BLOCK as u64).all(|n| ring.slot(n).load(Relaxed) == 0));
        ring.prepare();
        assert_eq!(ring.written(), since);
        (since..since + 300).for_each(|n| ring.push(event(n)));
        let copied = ring.copy(since);
        let all: Vec<_> = (since..since + 300).map(event).collect();
        assert_eq!((copied.events, copied.lost), (all, 0));
    }

    #[test]
    fn who_writes_while_it_is_released_loses_nothing_later() {
        let ring = Ring::new(64 * BLOCK).unwrap();
        let released = AtomicU64::new(0);
        std::thread::scope(|s| {
            let writer = s.spawn(|| {
                let mut n = 0;
                while released.load(Relaxed) < 1000 {
                    ring.push(event(n));
                    n += 1;
                }
                // From here on nobody takes anything away.
                (n..n + 1000).for_each(|n| ring.push(event(n)));
                n
            });
            while released.load(Relaxed) < 1000 {
                ring.release();
                released.fetch_add(1, Relaxed);
            }
            let since = writer.join().unwrap();
            let all: Vec<_> = (since..since + 1000).map(event).collect();
            assert_eq!(ring.copy(since).events, all);
        });
    }

    #[test]
    fn copies_beside_a_writer_have_no_gaps() {
        let ring = Ring::new(1).unwrap();
        std::thread::scope(|s| {
            let writer = s.spawn(|| (0..200_000).for_each(|n| ring.push(event(n))));
            while !writer.is_finished() {
                let copied = ring.copy(0);
                for (i, e) in copied.events.iter().enumerate() {
                    assert_eq!(*e, event(copied.lost + i as u64));
                }
            }
        });
        assert_eq!(ring.copy(0).lost, 200_000 - 255);
    }
}

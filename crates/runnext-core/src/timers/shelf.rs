//! Entries that are not due for a while, in slots of time, and in no order within one.
//!
//! A heap of many entries lies in memory that the cache does not hold, and each entry goes up and down in it. Here an entry is written once, behind the last one of its
//! slot, and read once, with its neighbours, when the heap comes to that slot: so the heap itself stays small (`bench timers`).
//!
//! # Invariants
//! S1  All that is kept lies in the slots `base` to `base + SLOTS - 1`. Slot `s` is at place `s % SLOTS`.
//! S2  A place's bit is set while it has chunks; it has some while it has entries.
//!
//! # Tunables
//! [`WIDTH`] and [`SLOTS`]: half a second, a few hundred entries in a slot if there are a million. [`MOST`]: a slot is emptied at one go, in some 20 µs then.

use super::{Array, Memory};

/// The width of a slot: 2^17 ns, 131 µs.
const WIDTH: u32 = 17;
/// How many slots there are: as many as a word has bits, squared.
pub(super) const SLOTS: usize = 64 * 64;
/// Entries in a slot. Others stay in the heap.
const MOST: u32 = 1024;
/// Entries that lie together.
const CHUNK: usize = 12;
const NONE: u32 = u32::MAX;

/// The number of the slot of a time in ns.
#[inline]
pub(super) fn slot_of(when: u64) -> u64 {
    when >> WIDTH
}

#[inline]
fn place_of(slot: u64) -> usize {
    (slot % SLOTS as u64) as usize
}

/// A stack of chunks. Only the first may have room.
#[derive(Clone, Copy)]
pub(super) struct Slot {
    first: u32,
    len: u32,
}

/// Entries from the start on, with gaps where some were purged.
pub(super) struct Chunk<N> {
    nodes: [Option<N>; CHUNK],
    used: usize,
    next: u32,
}

impl<N> Chunk<N> {
    fn pop(&mut self) -> Option<N> {
        while self.used > 0 {
            self.used -= 1;
            if let Some(node) = self.nodes[self.used].take() {
                return Some(node);
            }
        }
        None
    }
}

pub(super) struct Shelf<N, M: Memory> {
    /// None before the first use, then one for each place.
    slots: M::Array<Slot>,
    chunks: M::Array<Chunk<N>>,
    /// The first of the chunks that no slot has.
    free: u32,
    base: u64,
    len: usize,
    /// The places with chunks, and the words of that which are not 0.
    taken: [u64; SLOTS / 64],
    words: u64,
}

impl<N, M: Memory> Shelf<N, M> {
    pub(super) fn new() -> Shelf<N, M> {
        Shelf {
            slots: Default::default(),
            chunks: Default::default(),
            free: NONE,
            base: 0,
            len: 0,
            taken: [0; SLOTS / 64],
            words: 0,
        }
    }

    #[cfg(test)]
    pub(super) fn memory(&self) -> usize {
        self.chunks.len()
    }

    #[inline(always)]
    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Keeps an entry of a slot after `now`, as all are that are kept. It comes back if there is no room for it: it is too far off, or too many are of that slot.
    pub(super) fn put(&mut self, slot: u64, now: u64, node: N) -> Result<(), N> {
        if self.len == 0 {
            self.base = now;
        } else if slot.saturating_sub(self.base) >= SLOTS as u64 {
            self.base = self.base.max(now);
        }
        let in_reach = slot >= self.base && slot - self.base < SLOTS as u64;
        if slot <= now || !in_reach {
            return Err(node);
        }
        self.unfold();
        let place = place_of(slot);
        if self.slots[place].len >= MOST {
            return Err(node);
        }
        let chunk = self.chunk_with_room(place);
        chunk.nodes[chunk.used] = Some(node);
        chunk.used += 1;
        self.slots[place].len += 1;
        self.taken[place / 64] |= 1 << (place % 64);
        self.words |= 1 << (place / 64);
        self.len += 1;
        Ok(())
    }

    #[inline]
    fn unfold(&mut self) {
        while self.slots.len() < SLOTS {
            self.slots.push(Slot {
                first: NONE,
                len: 0,
            });
        }
    }

    /// The first chunk of a place: a new one if that is full.
    #[inline]
    fn chunk_with_room(&mut self, place: usize) -> &mut Chunk<N> {
        let first = self.slots[place].first;
        if first != NONE && self.chunks[first as usize].used < CHUNK {
            return &mut self.chunks[first as usize];
        }
        let new = match self.free {
            NONE => {
                self.chunks.push(Chunk {
                    nodes: [const { None }; CHUNK],
                    used: 0,
                    next: NONE,
                });
                self.chunks.len() as u32 - 1
            }
            free => free,
        };
        self.slots[place].first = new;
        let chunk = &mut self.chunks[new as usize];
        if self.free == new {
            self.free = chunk.next;
        }
        chunk.next = first;
        chunk
    }

    /// The first slot with entries.
    pub(super) fn first(&self) -> Option<u64> {
        let start = place_of(self.base);
        let (word, bit) = (start / 64, start % 64);
        let here = self.taken[word] & (!0 << bit);
        let place = if here != 0 {
            word * 64 + here.trailing_zeros() as usize
        } else {
            // From the next word around to this one again, of which the places before the base are the last.
            let others = self.words.rotate_right(word as u32 + 1);
            if others == 0 {
                return None;
            }
            let word = (word + 1 + others.trailing_zeros() as usize) % 64;
            word * 64 + self.taken[word].trailing_zeros() as usize
        };
        Some(self.base + ((place + SLOTS - start) % SLOTS) as u64)
    }

    /// Takes any entry of a slot. None: it has no more.
    #[inline]
    pub(super) fn pop(&mut self, slot: u64) -> Option<N> {
        let place = place_of(slot);
        let slot = &mut self.slots[place];
        while slot.len > 0 {
            let first = slot.first;
            let chunk = &mut self.chunks[first as usize];
            if let Some(node) = chunk.pop() {
                slot.len -= 1;
                self.len -= 1;
                if slot.len == 0 {
                    self.clear(place);
                }
                return Some(node);
            }
            slot.first = chunk.next;
            chunk.next = self.free;
            self.free = first;
        }
        None
    }

    /// A place has no more entries.
    fn clear(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        while slot.first != NONE {
            let first = slot.first;
            let chunk = &mut self.chunks[first as usize];
            chunk.used = 0;
            slot.first = chunk.next;
            chunk.next = self.free;
            self.free = first;
        }
        self.taken[place / 64] &= !(1 << (place % 64));
        if self.taken[place / 64] == 0 {
            self.words &= !(1 << (place / 64));
        }
    }

    /// The entries of the first slot.
    pub(super) fn iter_first(&self) -> impl Iterator<Item = &N> {
        self.first().into_iter().flat_map(|slot| {
            let first = self.slots[place_of(slot)].first;
            let chunk = |i: u32| self.chunks.get(i as usize);
            std::iter::successors(chunk(first), move |of| chunk(of.next))
                .flat_map(|chunk| chunk.nodes.iter().flatten())
        })
    }

    /// All entries.
    pub(super) fn iter(&self) -> impl Iterator<Item = &N> {
        self.chunks
            .iter()
            .flat_map(|chunk| chunk.nodes.iter().flatten())
    }

    /// Drops all but some, and gives memory back if none is left.
    pub(super) fn retain(&mut self, keep: impl Fn(&N) -> bool) {
        for place in 0..self.slots.len() {
            let mut chunk = self.slots[place].first;
            while chunk != NONE {
                let Chunk { nodes, next, .. } = &mut self.chunks[chunk as usize];
                for node in nodes {
                    if node.take_if(|node| !keep(node)).is_some() {
                        self.slots[place].len -= 1;
                        self.len -= 1;
                    }
                }
                chunk = *next;
            }
            if self.slots[place].len == 0 {
                self.clear(place);
            }
        }
        if self.len == 0 {
            self.release();
        }
    }

    /// Whether its memory is that of many more than it keeps: of each slot there may be one chunk that is not full.
    pub(super) fn is_sparse(&self) -> bool {
        let needed = self.len / CHUNK + self.len.min(SLOTS);
        self.chunks.len() > 4 * needed + 64
    }

    /// Gives memory back. It is empty.
    pub(super) fn release(&mut self) {
        debug_assert_eq!(self.len, 0);
        while self.chunks.pop().is_some() {}
        self.chunks.shrink();
        self.free = NONE;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::super::Allocated;
    use super::*;

    type OfNumbers = Shelf<u64, Allocated>;

    /// A shelf at time 0 with one entry in each of these slots: its number.
    fn shelf(slots: impl IntoIterator<Item = u64>) -> OfNumbers {
        let mut shelf = OfNumbers::new();
        for slot in slots {
            assert_eq!(shelf.put(slot, 0, slot), Ok(()));
        }
        shelf
    }

    /// What is in the slots up to the last, slot by slot.
    fn empty(shelf: &mut OfNumbers) -> Vec<u64> {
        let mut all = Vec::new();
        while let Some(first) = shelf.first() {
            while let Some(node) = shelf.pop(first) {
                assert_eq!(node, first);
                all.push(node);
            }
        }
        assert_eq!((shelf.len(), shelf.words), (0, 0));
        all
    }

    #[test]
    fn slots_come_in_order() {
        let mut some = shelf([700, 3, 64, 3, 63, 4095, 128, 1, 64]);
        assert_eq!(some.len(), 9);
        assert_eq!(empty(&mut some), [1, 3, 3, 63, 64, 64, 128, 700, 4095]);
    }

    #[test]
    fn they_come_in_order_across_the_end() {
        let mut some = shelf([1, 4000]);
        assert_eq!(some.pop(1), Some(1));
        for slot in [4100, 4096, 7999, 4001] {
            assert_eq!(some.put(slot, 3999, slot), Ok(()));
        }
        assert_eq!(empty(&mut some), [4000, 4001, 4096, 4100, 7999]);
    }

    #[test]
    fn what_is_too_far_off_or_too_near_comes_back() {
        let mut some = shelf([10]);
        let last = SLOTS as u64 - 1;
        assert_eq!(some.put(0, 0, 0), Err(0));
        assert_eq!(some.put(last + 1, 0, 1), Err(1));
        assert_eq!(some.put(last, 0, last), Ok(()));
        assert_eq!(some.put(last + 1, 1, last + 1), Ok(()));
        assert_eq!(some.put(u64::MAX, 9, 2), Err(2));
        assert_eq!(some.put(1, 0, 3), Err(3)); // before the base now, which would be `last + 1`'s place
        assert_eq!(empty(&mut some), [10, last, last + 1]);
    }

    #[test]
    fn a_slot_is_never_too_long_for_one_go() {
        let mut some = shelf(vec![5; MOST as usize]);
        assert_eq!(some.put(5, 0, 5), Err(5));
        assert_eq!(some.iter_first().count(), MOST as usize);
        assert_eq!(empty(&mut some).len(), MOST as usize);
        assert_eq!(some.put(5, 0, 5), Ok(()));
        assert_eq!(some.chunks.len(), (MOST as usize).div_ceil(CHUNK));
    }

    #[test]
    fn what_is_purged_leaves_gaps_that_nobody_sees() {
        let mut some = shelf((1..=300).flat_map(|slot| [slot; 20]));
        some.retain(|slot| slot % 3 == 0);
        assert_eq!((some.len(), some.iter().count()), (2000, 2000));
        assert_eq!((some.first(), some.iter_first().count()), (Some(3), 20));
        assert_eq!(some.put(3, 2, 3), Ok(()));
        let want: Vec<u64> = (3..=300).step_by(3).flat_map(|slot| [slot; 20]).collect();
        assert_eq!(empty(&mut some)[1..], want);
        some.retain(|_| false);
        assert_eq!((some.chunks.len(), some.first()), (0, None));
    }
}

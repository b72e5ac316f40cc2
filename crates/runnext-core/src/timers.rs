//! Deadlines in order: a 4-ary heap whose entries are cancelled from outside, without touching it.
//!
//! # Why this shape
//! Most timers never fire: a time-out is armed, the reply comes, the timer is stopped. So arming is cheap, and stopping is only
//! a mark in the entry, seen when the entry is reached; the heap may belong to another P. A timer that is moved is cancelled, and inserted
//! again. Four children per node: half the levels of a binary heap.
//!
//! Keys lie apart from all else. The way down reads four keys at each level before it knows where to look next, so it waits for
//! memory once a level: 8 bytes a node are in the cache where 32 are not. What moves along is written on the way, and nobody waits for
//! that (`bench timers`: 5 to 10 % less CPU time). Entries that stay where they are, with short numbers moving in their stead, were tried: no
//! better.
//!
//! A heap that does not fit in the cache waits for memory all the same, and sleeps in the thousands are due one close after the other. So beyond `NEAR` entries those of later
//! slots of time are put on a `shelf`, unsorted, and come into the heap with their whole slot, when its head has got there (`bench timers`: 22 % of all
//! CPU time was spent in the heaps, 8 % is).
//!
//! Rejected: a wheel alone (rounds deadlines to its tick, and sub-millisecond sleeps are promised; finding the next deadline, asked before
//! every sleep, means a scan); a `BTreeMap` (removal from the middle costs what laziness saves, and it allocates); writing each
//! entry's position back into it (O(log n) removal, but every sift step writes to memory that other threads read).
//!
//! # Words
//! *key*: the deadline of an entry, by which the heap sorts. *dead*: cancelled, not yet removed. Dead entries leave at the head, when they
//! are due, or in a [`purge`](TimerHeap::purge), for which the owner counts them.
//!
//! # Invariants
//! I1  A node's key, and among equal keys its number, is not less than its parent's. Numbers count insertions, so equal
//!     deadlines fire in the order they were inserted.
//! I2  Node `i` is `keys[i]` and `rest[i]`.
//! I3  What is on the shelf is of later slots of time than the head; there is nothing if there is no head.
//!
//! # Context
//! A pure `&mut` structure: no clock (`now` is an argument), no lock. Its memory is a parameter ([`Memory`]), so that one who may
//! not call the allocator can bring its own; the default is `Vec`. Entries may be cancelled by other threads at any time.
//!
//! Tests: below; `tests/timers_model.rs` (against a sorted map, proptest).
//!
//! # Tunables
//! Four children: Go's value.

mod shelf;

use core::fmt;
use core::hint;
use core::mem;
use core::ops::DerefMut;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

use shelf::{SLOTS, Shelf, slot_of};

/// The deadline that is never reached. [`deadline`] saturates to it.
pub const NEVER: u64 = u64::MAX;

/// Children per node.
const ARITY: usize = 4;

/// So many in the heap, and others are put aside until it comes to them.
const NEAR: usize = 128;

/// The time `after` from `now`, both in ns; [`NEVER`] if it is out of range.
#[inline]
pub fn deadline(now: u64, after: Duration) -> u64 {
    let after = u64::try_from(after.as_nanos()).unwrap_or(NEVER);
    now.saturating_add(after)
}

/// What a [`TimerHeap`] holds: usually a reference to a timer that its owner may cancel meanwhile.
pub trait Entry {
    /// Whether the entry was cancelled. A yes is final for this entry: the heap drops it.
    fn is_dead(&self) -> bool;
}

macro_rules! entry_behind {
    ($($pointer:ty),*) => {$(
        impl<E: Entry + ?Sized> Entry for $pointer {
            #[inline]
            fn is_dead(&self) -> bool {
                (**self).is_dead()
            }
        }
    )*};
}

entry_behind!(&E, Rc<E>, Arc<E>);

/// Where a heap keeps what it holds.
pub trait Memory {
    /// A growable array of these.
    type Array<N>: Array<N>;
}

/// A growable array, which is empty at first.
pub trait Array<N>: Default + DerefMut<Target = [N]> {
    /// Adds an element at the end.
    fn push(&mut self, element: N);
    /// Takes the last element.
    fn pop(&mut self) -> Option<N>;
    /// Many have left: memory they used may be given back.
    fn shrink(&mut self);
}

/// The allocator's memory.
#[derive(Debug)]
pub struct Allocated;

impl Memory for Allocated {
    type Array<N> = Vec<N>;
}

impl<N> Array<N> for Vec<N> {
    #[inline]
    fn push(&mut self, element: N) {
        Vec::push(self, element);
    }

    #[inline]
    fn pop(&mut self) -> Option<N> {
        Vec::pop(self)
    }

    fn shrink(&mut self) {
        // A burst of timers does not keep its memory for ever.
        if self.capacity() > 64 && self.len() < self.capacity() / 8 {
            self.shrink_to(self.len() * 2);
        }
    }
}

/// A heap of deadlines. See the [module](self).
///
/// ```
/// use std::{cell::Cell, rc::Rc};
/// use runnext_core::timers::{Entry, TimerHeap};
///
/// struct Timer { cancelled: Cell<bool> }
/// impl Entry for Timer {
///     fn is_dead(&self) -> bool { self.cancelled.get() }
/// }
///
/// let timer = || Rc::new(Timer { cancelled: Cell::new(false) });
/// let (a, b) = (timer(), timer());
/// let mut heap = TimerHeap::<Rc<Timer>>::new();
/// heap.insert(10, a.clone());
/// heap.insert(20, b.clone());
/// assert_eq!(heap.next_deadline(), Some(10));
/// a.cancelled.set(true);                          // nothing to tell the heap
/// assert_eq!(heap.next_deadline(), Some(20));
/// assert!(heap.pop_due(19).is_none());
/// assert_eq!(heap.pop_due(20).map(|(when, _)| when), Some(20));
/// ```
pub struct TimerHeap<T, M: Memory = Allocated> {
    keys: M::Array<u64>,
    rest: M::Array<Rest<T>>,
    /// Those of later slots of time (I3).
    shelf: Shelf<Node<T>, M>,
    /// The number of the next insertion (I1).
    inserted: u64,
    /// The slot of the time at which somebody asked last who is due.
    seen: u64,
}

struct Node<T> {
    key: u64,
    rest: Rest<T>,
}

/// A node, but for its key.
struct Rest<T> {
    number: u64,
    item: T,
}

#[inline(always)]
fn lesser(a: (usize, u64), b: (usize, u64)) -> (usize, u64) {
    let b_is_less = b.1 < a.1;
    (
        hint::select_unpredictable(b_is_less, b.0, a.0),
        hint::select_unpredictable(b_is_less, b.1, a.1),
    )
}

impl<T, M: Memory> TimerHeap<T, M> {
    /// An empty heap, without memory.
    pub fn new() -> TimerHeap<T, M> {
        TimerHeap {
            keys: Default::default(),
            rest: Default::default(),
            shelf: Shelf::new(),
            inserted: 0,
            seen: 0,
        }
    }

    /// How many entries it holds, dead ones included.
    pub fn len(&self) -> usize {
        self.keys.len() + self.shelf.len()
    }

    /// Whether it holds none, dead ones included.
    pub fn is_empty(&self) -> bool {
        self.keys.is_empty()
    }

    /// All entries, in no particular order, dead ones included: for dumps.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        let later = self.shelf.iter().map(|node| &node.rest);
        self.rest.iter().chain(later).map(|rest| &rest.item)
    }

    /// Some of those that are due, dead ones included, without taking them: all, if they are a few. For who wants to know whose they are.
    pub fn peek_due(&self, now: u64) -> impl Iterator<Item = &T> {
        const NODES: usize = 1 + ARITY + ARITY * ARITY; // the first three levels
        let first = self.keys.iter().zip(self.rest.iter()).take(NODES);
        let later = self.shelf.iter_first().take(NODES);
        first
            .chain(later.map(|node| (&node.key, &node.rest)))
            .filter(move |(key, _)| **key <= now)
            .map(|(_, rest)| &rest.item)
    }

    /// Whether node `a` comes before `b`. Numbers, which may be far away, are read only if they have to be.
    #[inline(always)]
    fn precedes(&self, a: usize, b: usize) -> bool {
        let (key_a, key_b) = (self.keys[a], self.keys[b]);
        key_a < key_b || key_a == key_b && self.rest[a].number < self.rest[b].number
    }

    #[inline(always)]
    fn swap(&mut self, a: usize, b: usize) {
        self.keys.swap(a, b);
        self.rest.swap(a, b);
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if !self.precedes(at, parent) {
                break;
            }
            self.swap(parent, at);
            at = parent;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        while let Some(least) = self.least_child(at)
            && self.precedes(least, at)
        {
            self.swap(at, least);
            at = least;
        }
    }

    #[inline(always)]
    fn least_child(&self, at: usize) -> Option<usize> {
        let first = at * ARITY + 1;
        if let [a, b, c, d, ..] = *self.keys.get(first..)? {
            // Two pairs, then their winners: the first two comparisons do not wait for each other.
            let (least, key) = lesser(lesser((0, a), (1, b)), lesser((2, c), (3, d)));
            let as_early = [a, b, c, d].map(|other| u32::from(other == key));
            if as_early.iter().sum::<u32>() == 1 {
                return Some(first + least);
            }
        }
        self.first_of(first)
    }

    /// The least of up to four children: the last of all are fewer, and of several with one key the number decides.
    #[cold]
    fn first_of(&self, first: usize) -> Option<usize> {
        let children = first..(first + ARITY).min(self.keys.len());
        children.reduce(|a, b| if self.precedes(b, a) { b } else { a })
    }

    /// Takes the head out, if there is one.
    fn remove_head(&mut self) -> Option<(u64, T)> {
        let (mut key, mut rest) = self.keys.pop().zip(self.rest.pop())?;
        if let (Some(first_key), Some(first)) = (self.keys.first_mut(), self.rest.first_mut()) {
            mem::swap(first_key, &mut key);
            mem::swap(first, &mut rest);
            self.sift_down(0);
        }
        if self.shelf.len() != 0 {
            self.come_to_later();
        }
        Some((key, rest.item))
    }

    fn push(&mut self, Node { key, rest }: Node<T>) {
        self.keys.push(key);
        self.rest.push(rest);
        self.sift_up(self.keys.len() - 1);
    }

    /// Brings (I3) about.
    fn come_to_later(&mut self) {
        while let Some(first) = self.shelf.first()
            && self.keys.first().is_none_or(|&head| first <= slot_of(head))
        {
            while let Some(node) = self.shelf.pop(first) {
                self.push(node);
            }
        }
    }

    /// Adds an entry that is due at `when`. Returns whether it is now the earliest: then who sleeps until the
    /// next deadline must be told.
    pub fn insert(&mut self, when: u64, item: T) -> bool {
        let number = self.inserted;
        self.inserted += 1;
        let mut node = Node {
            key: when,
            rest: Rest { number, item },
        };
        let slot = slot_of(when);
        // Not what is far off, even if it is due soon after the first: the shelf would begin there, and have no room for all that comes before.
        if self.keys.len() >= NEAR && slot.saturating_sub(self.seen) < SLOTS as u64 {
            let now = slot_of(self.keys[0]);
            match self.shelf.put(slot, now, node) {
                Ok(()) => return false,
                Err(back) => node = back,
            }
        }
        self.push(node);
        self.rest[0].number == number
    }

    /// Takes out the entry that is due first, if its deadline is not after `now`, with that deadline. In the order of deadlines, those with
    /// the same one in the order they were inserted.
    ///
    /// It may be dead. Who fires it has to claim it anyway, since it may be cancelled just now; and asking here would wait for the memory of
    /// one after the other, where the caller can ask for that of many at once.
    #[inline]
    pub fn pop_due(&mut self, now: u64) -> Option<(u64, T)> {
        self.seen = slot_of(now);
        let first = *self.keys.first()?;
        if first > now || first == NEVER {
            return None;
        }
        self.remove_head()
    }

    /// Takes out any entry, dead or not: for who empties the heap.
    pub fn pop_any(&mut self) -> Option<T> {
        if let Some(node) = self.shelf.first().and_then(|slot| self.shelf.pop(slot)) {
            return Some(node.rest.item);
        }
        self.keys.pop();
        self.rest.pop().map(|rest| rest.item)
    }
}

impl<T: Entry, M: Memory> TimerHeap<T, M> {
    /// The earliest deadline in force, if there is one before [`NEVER`]. Removes dead entries it meets.
    pub fn next_deadline(&mut self) -> Option<u64> {
        while self.rest.first()?.item.is_dead() {
            self.remove_head();
        }
        self.keys.first().copied().filter(|&when| when != NEVER)
    }

    /// Removes all dead entries. O(n).
    pub fn purge(&mut self) {
        let mut kept = 0;
        for node in 0..self.keys.len() {
            if !self.rest[node].item.is_dead() {
                self.swap(kept, node);
                kept += 1;
            }
        }
        while self.keys.len() > kept {
            self.keys.pop();
            self.rest.pop();
        }
        self.keys.shrink();
        self.rest.shrink();
        for node in (0..kept.div_ceil(ARITY)).rev() {
            self.sift_down(node);
        }
        if self.shelf.len() != 0 {
            self.shelf.retain(|node| !node.rest.item.is_dead());
            self.come_to_later();
        }
        if self.shelf.is_sparse() {
            // A few keep the memory of many: they go into the heap.
            while let Some(first) = self.shelf.first() {
                while let Some(node) = self.shelf.pop(first) {
                    self.push(node);
                }
            }
            self.shelf.release();
        }
    }
}

impl<T, M: Memory> Default for TimerHeap<T, M> {
    fn default() -> TimerHeap<T, M> {
        TimerHeap::new()
    }
}

impl<T, M: Memory> fmt::Debug for TimerHeap<T, M> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerHeap")
            .field("len", &self.len())
            .field("head", &self.keys.first())
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A timer: its deadline, its number, and whether it was cancelled.
    #[derive(Debug)]
    struct Timer(u64, usize, Cell<bool>);

    impl Timer {
        fn cancel(&self) {
            self.2.set(true);
        }
    }

    impl Entry for Timer {
        fn is_dead(&self) -> bool {
            self.2.get()
        }
    }

    fn timers(whens: impl IntoIterator<Item = u64>) -> Vec<Timer> {
        let timer = |(number, when)| Timer(when, number, Cell::new(false));
        whens.into_iter().enumerate().map(timer).collect()
    }

    fn heap(timers: &[Timer]) -> TimerHeap<&Timer> {
        let mut heap = TimerHeap::new();
        for timer in timers {
            heap.insert(timer.0, timer);
        }
        heap
    }

    fn fire_all(heap: &mut TimerHeap<&Timer>, now: u64) -> Vec<usize> {
        std::iter::from_fn(|| heap.pop_due(now))
            .filter(|(_, timer)| !timer.is_dead())
            .map(|(_, timer)| timer.1)
            .collect()
    }

    #[test]
    fn equal_deadlines_fire_in_insertion_order() {
        let timers = timers((0..100).map(|i| 1 + i % 3));
        let mut want: Vec<_> = (0..100).collect();
        want.sort_by_key(|i| i % 3);
        assert_eq!(fire_all(&mut heap(&timers), 3), want);
    }

    #[test]
    fn nothing_fires_early() {
        let timers = timers([5]);
        let mut heap = heap(&timers);
        assert_eq!(heap.next_deadline(), Some(5));
        assert!(heap.pop_due(4).is_none());
        assert!(heap.pop_due(5).is_some());
        assert_eq!(heap.next_deadline(), None);
    }

    #[test]
    fn who_is_due_can_be_seen_before() {
        let timers = timers([5, 9, 2, 7, 1, 6]);
        let heap = heap(&timers);
        let due = |now| {
            let mut due: Vec<_> = heap.peek_due(now).map(|timer| timer.0).collect();
            due.sort_unstable();
            due
        };
        assert_eq!(due(0), []);
        assert_eq!(due(6), [1, 2, 5, 6]);
        assert_eq!(heap.len(), 6);
    }

    #[test]
    fn any_entry_can_be_taken_and_the_rest_stay_in_order() {
        let timers = timers([5, NEVER, 2, 7, 1, 6]);
        let mut heap = heap(&timers);
        let mut taken: Vec<_> = (0..3).map(|_| heap.pop_any().unwrap().0).collect();
        while let Some((when, _)) = heap.pop_due(NEVER - 1) {
            taken.push(when);
        }
        assert!(taken[3..].is_sorted());
        taken.extend(heap.pop_any().map(|timer| timer.0));
        taken.sort_unstable();
        assert_eq!(taken, [1, 2, 5, 6, 7, NEVER]);
        assert!(heap.is_empty() && heap.pop_any().is_none());
    }

    #[test]
    fn insert_tells_who_is_first() {
        let timers = timers([5, 5, 4, 9, 3]);
        let mut heap = TimerHeap::<&Timer>::new();
        let first: Vec<_> = timers.iter().map(|t| heap.insert(t.0, t)).collect();
        assert_eq!(first, [true, false, true, false, true]);
    }

    #[test]
    fn a_purge_leaves_the_living_in_order() {
        let timers = timers((1..=100).rev());
        let mut heap = heap(&timers);
        for timer in &timers[50..75] {
            timer.cancel();
        }
        assert_eq!(heap.len(), 100);
        heap.purge();
        assert_eq!(heap.len(), 75);
        let want: Vec<_> = (0..50).chain(75..100).rev().collect();
        assert_eq!(fire_all(&mut heap, 100), want);
    }

    #[test]
    fn a_burst_gives_its_memory_back() {
        let timers = timers(1..=10_000);
        let mut heap = heap(&timers);
        for timer in &timers[1..] {
            timer.cancel();
        }
        heap.purge();
        assert_eq!(heap.len(), 1);
        assert!(heap.keys.capacity() < 1000 && heap.rest.capacity() < 1000);
        assert_eq!(fire_all(&mut heap, 1), [0]);
    }

    #[test]
    fn what_is_far_off_does_not_keep_the_near_from_the_shelf() {
        const HOUR: u64 = 3_600_000_000_000;
        let timers = timers((0..1000).map(|i| HOUR + i * 100_000).chain(1..=5000));
        let mut heap = heap(&timers[..1000]);
        let near: Vec<_> = (0..5000)
            .map(|i| Timer(1_000_000 + i * 50_000, i as usize, Cell::new(false)))
            .collect();
        for timer in &near {
            heap.insert(timer.0, timer);
        }
        assert!(heap.shelf.len() > 3000, "{} of 5000", heap.shelf.len());
    }

    #[test]
    fn a_burst_that_fired_gives_its_memory_back_with_the_next_purge() {
        let timers = timers((0..100_000).map(|i| 1_000_000 + i * 5_000));
        let mut heap = heap(&timers);
        assert!(heap.shelf.len() > 90_000);
        assert_eq!(fire_all(&mut heap, NEVER - 1).len(), 100_000);
        heap.purge();
        assert!(heap.keys.capacity() < 1000 && heap.rest.capacity() < 1000);
        assert!(heap.shelf.memory() < 1000, "{} chunks", heap.shelf.memory());
    }

    #[test]
    fn a_burst_gives_its_memory_back_beside_a_few_that_live() {
        let timers = timers((0..100_000).map(|i| 1_000_000 + i * 5_000));
        let mut heap = heap(&timers);
        for timer in timers.iter().filter(|timer| timer.1 % 1000 != 0) {
            timer.cancel();
        }
        heap.purge();
        assert_eq!(heap.len(), 100);
        assert!(heap.keys.capacity() < 1000 && heap.rest.capacity() < 1000);
        assert!(heap.shelf.memory() < 1000, "{} chunks", heap.shelf.memory());
        assert_eq!(fire_all(&mut heap, NEVER - 1).len(), 100);
    }

    #[test]
    fn the_dead_in_front_are_not_waited_for() {
        let timers = timers(1..=8);
        let mut heap = heap(&timers);
        for timer in &timers[..3] {
            timer.cancel();
        }
        timers[6].cancel();
        assert_eq!(heap.next_deadline(), Some(4));
        assert_eq!(heap.len(), 5);
        assert_eq!(fire_all(&mut heap, 8), [3, 4, 5, 7]);
    }

    #[test]
    fn never_does_not_fire() {
        let timers = timers([NEVER, NEVER, 3]);
        let mut heap = heap(&timers);
        assert_eq!(heap.next_deadline(), Some(3));
        assert_eq!(fire_all(&mut heap, NEVER), [2]);
        assert_eq!(heap.next_deadline(), None);
        assert_eq!(heap.len(), 2);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(deadline(5, Duration::from_nanos(6)), 11);
        assert_eq!(deadline(5, Duration::ZERO), 5);
        assert_eq!(deadline(0, Duration::MAX), NEVER);
        assert_eq!(deadline(NEVER - 1, Duration::from_secs(1)), NEVER);
    }
}

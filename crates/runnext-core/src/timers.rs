//! Deadlines in order: a 4-ary heap whose entries are cancelled and moved from outside, without touching it.
//!
//! # Why this shape
//! Most timers never fire: a time-out is armed, the reply comes, the timer is stopped or pushed back. So
//! arming is cheap, and stopping or moving is only a mark in the entry, seen when the entry is reached; the
//! heap may belong to another P. Four children per node: half the levels of a binary heap, and the four keys
//! compared on the way down lie next to each other. Rejected: a wheel (rounds deadlines to its tick, and
//! sub-millisecond sleeps are promised; finding the next deadline, asked before every sleep, means a scan); a
//! `BTreeMap` (removal from the middle costs what laziness saves, and it allocates); writing each entry's
//! position back into it (O(log n) removal, but every sift step writes to memory that other threads read).
//!
//! # Words
//! *key*: the deadline the heap sorts by, copied when the entry came in or was last looked at. The entry's
//! own [`when`](Entry::when) may differ. *dead*: cancelled, not yet removed.
//!
//! | change of an entry | what its owner does                    | when the heap follows                              |
//! |--------------------|----------------------------------------|----------------------------------------------------|
//! | cancelled          | marks it, [`note_dead`]                | at the head, or when more than a quarter are dead  |
//! | moved later        | changes `when`                         | at the head: new key, sifts down                   |
//! | moved earlier      | changes `when`, [`note_earlier`]       | when that time is reached: all keys anew, O(n)     |
//!
//! Who moves timers earlier often inserts a second entry instead, and lets the first one call itself dead:
//! O(log n).
//!
//! # Invariants
//! I1  A node's `(key, number)` is not less than its parent's. Numbers count insertions, and so equal
//!     deadlines fire in the order they were inserted, moved entries too.
//! I2  A live entry's `when` is not before its key, or not before `earliest_moved`. So nothing due is missed
//!     by looking at these two only.
//! I3  [`Entry::is_dead`] is asked only of entries in the heap, and one that answers yes leaves it there and
//!     then.
//!
//! # Context
//! A pure `&mut` structure: no clock (`now` is an argument), no lock. Its memory is a [`Store`], so that one who may
//! not call the allocator can bring its own; the default is a `Vec`. Entries
//! may be marked by other threads at any time, so what [`pop_due`](TimerHeap::pop_due) returns may have been
//! cancelled a moment ago: who fires it claims it first.
//!
//! Tests: below; `tests/timers_model.rs` (against a sorted map, proptest).
//!
//! # Tunables
//! Four children, and purging at a quarter dead: Go's values.
//!
//! [`note_dead`]: TimerHeap::note_dead
//! [`note_earlier`]: TimerHeap::note_earlier

use core::fmt;
use core::hint;
use core::marker::PhantomData;
use core::mem;
use core::ops::DerefMut;
use core::time::Duration;
use std::rc::Rc;
use std::sync::Arc;

/// The deadline that is never reached. [`deadline`] saturates to it.
pub const NEVER: u64 = u64::MAX;

/// Children per node.
const ARITY: usize = 4;

/// The time `after` from `now`, both in ns; [`NEVER`] if it is out of range.
#[inline]
pub fn deadline(now: u64, after: Duration) -> u64 {
    let after = u64::try_from(after.as_nanos()).unwrap_or(NEVER);
    now.saturating_add(after)
}

/// The first time after `now` that lies a whole number of periods after `when`: what a ticker that was due at
/// `when` is set to, skipping the ticks it missed. A period of 0 counts as 1 ns.
#[inline]
pub fn next_tick(when: u64, period: u64, now: u64) -> u64 {
    let period = period.max(1);
    let missed = now.saturating_sub(when) / period;
    when.saturating_add(period.saturating_mul(missed.saturating_add(1)))
}

/// What a [`TimerHeap`] holds: usually a reference to a timer that its owner can change meanwhile.
pub trait Entry {
    /// Whether the entry was cancelled. A yes is final for this entry: the heap drops it (I3).
    ///
    /// A timer that can be armed again after being stopped does the change from "stopped, in the heap" to "in
    /// no heap" right here, atomically, and answers whether it succeeded.
    fn is_dead(&self) -> bool;

    /// The deadline in force, of an entry that the heap sorts by `key`. An entry that never moves has nothing to
    /// add to that.
    #[inline]
    fn when(&self, key: u64) -> u64 {
        key
    }
}

macro_rules! entry_behind {
    ($($pointer:ty),*) => {$(
        impl<E: Entry + ?Sized> Entry for $pointer {
            #[inline]
            fn is_dead(&self) -> bool {
                (**self).is_dead()
            }

            #[inline]
            fn when(&self, key: u64) -> u64 {
                (**self).when(key)
            }
        }
    )*};
}

entry_behind!(&E, Rc<E>, Arc<E>);

/// Where a heap keeps its nodes: a growable array.
pub trait Store<N>: DerefMut<Target = [N]> {
    /// Adds a node at the end.
    fn push(&mut self, node: N);
    /// Takes the last node.
    fn pop(&mut self) -> Option<N>;
    /// Many nodes have left: memory they used may be given back.
    fn shrink(&mut self);
}

impl<N> Store<N> for Vec<N> {
    #[inline]
    fn push(&mut self, node: N) {
        Vec::push(self, node);
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
/// struct Timer(Cell<u64>);                        // 0 = cancelled
/// impl Entry for Timer {
///     fn is_dead(&self) -> bool { self.0.get() == 0 }
///     fn when(&self, _key: u64) -> u64 { self.0.get() }
/// }
///
/// let (a, b) = (Rc::new(Timer(Cell::new(10))), Rc::new(Timer(Cell::new(20))));
/// let mut heap = TimerHeap::new();
/// heap.insert(10, a.clone());
/// heap.insert(20, b.clone());
/// a.0.set(30);                                    // moved later: nothing to tell the heap
/// assert_eq!(heap.next_deadline(), Some(20));
/// b.0.set(0);                                     // cancelled
/// heap.note_dead();
/// assert!(heap.pop_due(29).is_none());
/// assert_eq!(heap.pop_due(30).map(|(when, _)| when), Some(30));
/// ```
pub struct TimerHeap<T, S = Vec<Node<T>>> {
    nodes: S,
    /// The number of the next insertion (I1).
    inserted: u64,
    /// Not after any deadline that was moved before its key; [`NEVER`] if there is none (I2).
    earliest_moved: u64,
    /// Reported dead and not known to have left. May be too high (one was reported after it left), which only
    /// purges sooner.
    dead: usize,
    _item: PhantomData<T>,
}

/// An entry in its place.
#[derive(Debug)]
pub struct Node<T> {
    key: u64,
    number: u64,
    item: T,
}

impl<T> Node<T> {
    /// Key and number as one integer: the least of four is then found without a branch.
    #[inline(always)]
    fn rank(&self) -> u128 {
        u128::from(self.key) << 64 | u128::from(self.number)
    }
}

#[inline(always)]
fn lesser(a: (usize, u128), b: (usize, u128)) -> (usize, u128) {
    let b_is_less = b.1 < a.1;
    (
        hint::select_unpredictable(b_is_less, b.0, a.0),
        hint::select_unpredictable(b_is_less, b.1, a.1),
    )
}

impl<T> TimerHeap<T> {
    /// An empty heap, without memory.
    pub const fn new() -> TimerHeap<T> {
        TimerHeap::with_store(Vec::new())
    }
}

impl<T, S> TimerHeap<T, S> {
    /// An empty heap that keeps its nodes in `store`, which is empty.
    pub const fn with_store(store: S) -> TimerHeap<T, S> {
        TimerHeap {
            nodes: store,
            inserted: 0,
            earliest_moved: NEVER,
            dead: 0,
            _item: PhantomData,
        }
    }
}

impl<T, S: Store<Node<T>>> TimerHeap<T, S> {
    /// How many entries it holds, dead ones included.
    pub fn len(&self) -> usize {
        self.nodes.len()
    }

    /// Whether it holds none, dead ones included.
    pub fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// All entries with their keys, in no particular order, dead ones included: for dumps.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (u64, &T)> {
        self.nodes.iter().map(|node| (node.key, &node.item))
    }

    fn sift_up(&mut self, mut at: usize) {
        while at > 0 {
            let parent = (at - 1) / ARITY;
            if self.nodes[parent].rank() <= self.nodes[at].rank() {
                break;
            }
            self.nodes.swap(parent, at);
            at = parent;
        }
    }

    fn sift_down(&mut self, mut at: usize) {
        while let Some(least) = self.least_child(at) {
            if self.nodes[at].rank() <= self.nodes[least].rank() {
                break;
            }
            self.nodes.swap(at, least);
            at = least;
        }
    }

    #[inline(always)]
    fn least_child(&self, at: usize) -> Option<usize> {
        let first = at * ARITY + 1;
        let children = self.nodes.get(first..)?;
        // Two pairs, then their winners: the first two comparisons do not wait for each other.
        if let [a, b, c, d, ..] = children {
            let (ab, ab_rank) = lesser((0, a.rank()), (1, b.rank()));
            let (cd, cd_rank) = lesser((2, c.rank()), (3, d.rank()));
            return Some(first + lesser((ab, ab_rank), (cd, cd_rank)).0);
        }
        let ranks = children.iter().map(Node::rank).enumerate();
        ranks
            .min_by_key(|&(_, rank)| rank)
            .map(|(child, _)| first + child)
    }

    /// Takes the head out; there is one.
    fn remove_head(&mut self) -> Node<T> {
        let mut head = self.nodes.pop().expect("a heap that is not empty");
        if let Some(first) = self.nodes.first_mut() {
            mem::swap(first, &mut head);
            self.sift_down(0);
        }
        head
    }
}

impl<T: Entry, S: Store<Node<T>>> TimerHeap<T, S> {
    /// Adds an entry that is due at `when`. Returns whether it is now the earliest: then who sleeps until the
    /// next deadline must be told.
    pub fn insert(&mut self, when: u64, item: T) -> bool {
        let number = self.inserted;
        self.inserted += 1;
        self.nodes.push(Node {
            key: when,
            number,
            item,
        });
        self.sift_up(self.nodes.len() - 1);
        self.nodes[0].number == number && when < self.earliest_moved
    }

    /// The earliest deadline in force, if there is one before [`NEVER`]. Removes dead entries it meets.
    ///
    /// Too early if an entry was moved earlier and then later again or cancelled.
    pub fn next_deadline(&mut self) -> Option<u64> {
        self.settle_head(NEVER);
        let head = self.nodes.first().map_or(NEVER, |node| node.key);
        Some(head.min(self.earliest_moved)).filter(|&when| when != NEVER)
    }

    /// The entry that is due first, and when, if before [`NEVER`]. Exact, so O(n) after an entry was moved
    /// earlier.
    pub fn peek(&mut self) -> Option<(u64, &T)> {
        if self.earliest_moved != NEVER {
            self.rebuild();
        }
        self.settle_head(NEVER);
        let head = self.nodes.first()?;
        (head.key != NEVER).then_some((head.key, &head.item))
    }

    /// Takes out the entry that is due first, if its deadline is not after `now`, with that deadline.
    ///
    /// Entries come in the order of their deadlines, those with the same one in the order they were inserted.
    #[inline]
    pub fn pop_due(&mut self, now: u64) -> Option<(u64, T)> {
        if self.nodes.first()?.key > now && self.earliest_moved > now {
            return None; // I2
        }
        self.pop_due_slow(now)
    }

    fn pop_due_slow(&mut self, now: u64) -> Option<(u64, T)> {
        if self.earliest_moved <= now && self.earliest_moved != NEVER {
            self.rebuild();
        }
        self.settle_head(now);
        let head = self.nodes.first()?;
        if head.key > now || head.key == NEVER {
            return None;
        }
        let node = self.remove_head();
        Some((node.key, node.item))
    }

    /// Says that an entry of this heap was cancelled. Once more than a quarter of them are, removes them all.
    pub fn note_dead(&mut self) {
        self.dead += 1;
        if self.dead * 4 > self.nodes.len() {
            self.rebuild();
        }
    }

    /// Removes all dead entries, for one who counts them himself. O(n).
    pub fn purge(&mut self) {
        self.rebuild();
    }

    /// Says that an entry of this heap now has the earlier deadline `when`. Returns whether that is now the
    /// earliest, as far as is known without looking at all entries: then who sleeps until the next deadline
    /// must be told.
    pub fn note_earlier(&mut self, when: u64) -> bool {
        let known = self.nodes.first().map_or(NEVER, |node| node.key);
        let earliest = when < known.min(self.earliest_moved);
        self.earliest_moved = self.earliest_moved.min(when);
        earliest
    }

    /// Moves all live entries of `other` here, as inserted now in the order of their deadlines.
    pub fn absorb(&mut self, other: &mut TimerHeap<T, S>) {
        other.rebuild();
        while !other.is_empty() {
            let node = other.remove_head();
            self.insert(node.key, node.item);
        }
    }

    /// Brings the head up to date, if its key is not after `until`: removes it if dead, gives it its new key if
    /// moved later.
    fn settle_head(&mut self, until: u64) {
        while let Some(head) = self.nodes.first_mut().filter(|node| node.key <= until) {
            if head.item.is_dead() {
                self.dead = self.dead.saturating_sub(1);
                self.remove_head();
                continue;
            }
            let when = head.item.when(head.key);
            if when <= head.key {
                break;
            }
            head.key = when;
            self.sift_down(0);
        }
    }

    /// Drops all dead entries and brings all keys up to date. O(n).
    #[cold]
    fn rebuild(&mut self) {
        self.dead = 0;
        self.earliest_moved = NEVER;
        let mut kept = 0;
        for at in 0..self.nodes.len() {
            let node = &mut self.nodes[at];
            if node.item.is_dead() {
                continue;
            }
            node.key = node.item.when(node.key);
            self.nodes.swap(kept, at);
            kept += 1;
        }
        while self.nodes.len() > kept {
            self.nodes.pop();
        }
        self.nodes.shrink();
        for at in (0..self.nodes.len().div_ceil(ARITY)).rev() {
            self.sift_down(at);
        }
    }
}

impl<T> Default for TimerHeap<T> {
    fn default() -> TimerHeap<T> {
        TimerHeap::new()
    }
}

impl<T, S: Store<Node<T>>> fmt::Debug for TimerHeap<T, S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TimerHeap")
            .field("len", &self.len())
            .field("dead", &self.dead)
            .field("head", &self.nodes.first().map(|node| node.key))
            .finish()
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::cell::Cell;

    /// A timer and its number. Deadline 0 is "cancelled".
    #[derive(Debug)]
    struct Timer(Cell<u64>, usize);

    impl Entry for Timer {
        fn is_dead(&self) -> bool {
            self.0.get() == 0
        }

        fn when(&self, _key: u64) -> u64 {
            self.0.get()
        }
    }

    fn timers(whens: impl IntoIterator<Item = u64>) -> Vec<Timer> {
        let timer = |(number, when)| Timer(Cell::new(when), number);
        whens.into_iter().enumerate().map(timer).collect()
    }

    fn heap(timers: &[Timer]) -> TimerHeap<&Timer> {
        let mut heap = TimerHeap::new();
        for timer in timers {
            heap.insert(timer.0.get(), timer);
        }
        heap
    }

    fn fire_all(heap: &mut TimerHeap<&Timer>, now: u64) -> Vec<usize> {
        std::iter::from_fn(|| heap.pop_due(now))
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
    fn insert_tells_who_is_first() {
        let timers = timers([5, 5, 4, 9, 3]);
        let mut heap = TimerHeap::new();
        let first: Vec<_> = timers.iter().map(|t| heap.insert(t.0.get(), t)).collect();
        assert_eq!(first, [true, false, true, false, true]);
        timers[3].0.set(2);
        assert!(heap.note_earlier(2));
        assert!(!heap.note_earlier(2));
        assert_eq!(heap.next_deadline(), Some(2));
    }

    #[test]
    fn a_quarter_dead_are_purged() {
        let timers = timers(1..=100);
        let mut heap = heap(&timers);
        for timer in &timers[50..75] {
            timer.0.set(0);
            heap.note_dead();
        }
        assert_eq!(heap.len(), 100);
        timers[99].0.set(0);
        heap.note_dead();
        assert_eq!(heap.len(), 74);
        assert_eq!(
            fire_all(&mut heap, 100),
            (0..50).chain(75..99).collect::<Vec<_>>()
        );
    }

    #[test]
    fn a_burst_gives_its_memory_back() {
        let timers = timers(1..=10_000);
        let mut heap = heap(&timers);
        for timer in &timers[1..] {
            timer.0.set(0);
            heap.note_dead();
        }
        assert!(heap.len() < 10, "{heap:?}");
        assert!(heap.nodes.capacity() < 1000);
    }

    #[test]
    fn deaths_of_entries_that_left_do_no_harm() {
        let timers = timers(1..=8);
        let mut heap = heap(&timers);
        assert_eq!(fire_all(&mut heap, 4), [0, 1, 2, 3]);
        for _ in 0..10 {
            heap.note_dead();
        }
        timers[5].0.set(0); // not reported
        assert_eq!(fire_all(&mut heap, 8), [4, 6, 7]);
    }

    #[test]
    fn never_does_not_fire_until_moved() {
        let timers = timers([NEVER, NEVER]);
        let mut heap = heap(&timers);
        assert!(heap.pop_due(NEVER).is_none());
        assert_eq!(heap.next_deadline(), None);
        assert!(heap.peek().is_none());
        timers[1].0.set(7);
        assert!(heap.note_earlier(7));
        assert_eq!(
            heap.peek().map(|(when, timer)| (when, timer.1)),
            Some((7, 1))
        );
        assert_eq!(fire_all(&mut heap, NEVER), [1]);
    }

    #[test]
    fn absorbing_keeps_the_order() {
        let (a, b) = (timers([3, 1, 2]), timers([2, 0, 1, 3]));
        let (mut into, mut from) = (heap(&a), heap(&b));
        into.absorb(&mut from);
        assert!(from.is_empty());
        // Of `b`, number 1 is dead; at equal deadlines those that were here before come first.
        let fired: Vec<_> = std::iter::from_fn(|| into.pop_due(9))
            .map(|(when, t)| (when, t.1))
            .collect();
        assert_eq!(fired, [(1, 1), (1, 2), (2, 2), (2, 0), (3, 0), (3, 3)]);
    }

    #[test]
    fn arithmetic_saturates() {
        assert_eq!(deadline(5, Duration::from_nanos(6)), 11);
        assert_eq!(deadline(5, Duration::ZERO), 5);
        assert_eq!(deadline(0, Duration::MAX), NEVER);
        assert_eq!(deadline(NEVER - 1, Duration::from_secs(1)), NEVER);
        assert_eq!(next_tick(100, 10, 100), 110);
        assert_eq!(next_tick(100, 10, 109), 110);
        assert_eq!(next_tick(100, 10, 110), 120);
        assert_eq!(next_tick(100, 10, 99), 110);
        assert_eq!(next_tick(100, 0, 200), 201);
        assert_eq!(next_tick(1, NEVER, NEVER), NEVER);
        assert_eq!(next_tick(NEVER - 1, 1, 0), NEVER);
    }
}

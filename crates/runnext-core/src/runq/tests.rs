//! The queue on one thread: order, numbers, overflow, and emptiness polled by a second thread.

use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

use super::*;
use crate::testing::{Item, Items};

/// A queue used by its owner only, so that the tests need not say so at each call.
struct Owned(RunQueue<Item>);

impl Owned {
    fn new() -> Owned {
        Owned(RunQueue::new())
    }

    fn push(&self, g: NonNull<Item>) -> Result<(), Vec<usize>> {
        // SAFETY: the thread that made the queue is its owner; tests queue an item once.
        unsafe { self.0.push(g) }.map_err(ids)
    }

    fn kick(&self, g: NonNull<Item>) -> Result<(), Vec<usize>> {
        // SAFETY: as in `push`.
        unsafe { self.0.put_next_kick(g) }.map_err(ids)
    }

    fn pop(&self) -> Option<usize> {
        // SAFETY: as in `push`.
        unsafe { self.0.pop() }.map(Item::id)
    }

    fn take_next(&self) -> Option<usize> {
        // SAFETY: as in `push`.
        unsafe { self.0.take_next() }.map(Item::id)
    }

    fn steal_into(&self, thief: &Owned) -> Option<usize> {
        // SAFETY: one thread owns both.
        unsafe { self.0.steal_into(&thief.0) }.map(Item::id)
    }

    fn pop_all(&self) -> Vec<usize> {
        std::iter::from_fn(|| self.pop()).collect()
    }
}

fn ids(list: List<Item>) -> Vec<usize> {
    list.iter().map(Item::id).collect()
}

fn filled(items: &Items, n: usize) -> Owned {
    let q = Owned::new();
    for id in 0..n {
        q.push(items.get(id)).unwrap();
    }
    q
}

#[test]
fn is_a_fifo_at_every_size_and_position() {
    let items = Items::new(CAPACITY);
    let q = Owned::new();
    for n in 0..=CAPACITY {
        for id in 0..n {
            assert_eq!(q.0.len(), id);
            q.push(items.get(id)).unwrap();
            assert!(!q.0.is_empty());
        }
        assert_eq!(q.pop_all(), (0..n).collect::<Vec<_>>());
        assert!(q.0.is_empty());
    }
}

#[test]
fn overflow_hands_out_the_older_half_and_the_new_one() {
    let items = Items::new(CAPACITY + 1);
    let q = filled(&items, CAPACITY);
    let spilt = q.push(items.get(CAPACITY)).unwrap_err();
    assert_eq!(spilt, (0..HALF).chain([CAPACITY]).collect::<Vec<_>>());
    assert_eq!(q.pop_all(), (HALF..CAPACITY).collect::<Vec<_>>());
}

#[test]
fn the_newest_runs_first_and_kicks_its_predecessor_to_the_tail() {
    let items = Items::new(5);
    let q = Owned::new();
    assert_eq!(q.take_next(), None);
    for id in 0..5 {
        q.kick(items.get(id)).unwrap();
        assert!(q.0.has_next());
        assert_eq!(q.0.len(), id);
    }
    assert_eq!(q.take_next(), Some(4));
    assert_eq!(q.take_next(), None);
    assert!(!q.0.is_empty());
    assert_eq!(q.pop_all(), [0, 1, 2, 3]);
    assert!(q.0.is_empty());
}

#[test]
fn a_kick_into_a_full_ring_spills_and_leaves_no_mark() {
    let items = Items::new(CAPACITY + 2);
    let q = filled(&items, CAPACITY);
    q.kick(items.get(CAPACITY)).unwrap();
    let spilt = q.kick(items.get(CAPACITY + 1)).unwrap_err();
    assert_eq!(spilt, (0..HALF).chain([CAPACITY]).collect::<Vec<_>>());
    assert_eq!(q.take_next(), Some(CAPACITY + 1));
    assert_eq!(q.pop_all(), (HALF..CAPACITY).collect::<Vec<_>>());
    assert!(q.0.is_empty());
}

/// The order Go 1.27 runs 300 spawns on one P in: newest, the ring, then the global queue.
#[test]
fn three_hundred_spawns() {
    let items = Items::new(300);
    let q = Owned::new();
    let mut global = Vec::new();
    for id in 0..300 {
        if let Err(spilt) = q.kick(items.get(id)) {
            global.extend(spilt);
        }
    }
    let mut order = vec![q.take_next().unwrap()];
    order.extend(q.pop_all());
    order.extend(global);
    let want: Vec<_> = [299]
        .into_iter()
        .chain(128..256)
        .chain(257..299)
        .chain(0..128)
        .chain([256])
        .collect();
    assert_eq!(order, want);
}

#[test]
fn a_thief_gets_the_older_half_and_runs_the_last() {
    let items = Items::new(CAPACITY);
    for n in 0..=CAPACITY {
        let (victim, thief) = (filled(&items, n), Owned::new());
        let half = n.div_ceil(2);
        assert_eq!(victim.steal_into(&thief), half.checked_sub(1));
        assert_eq!(
            thief.pop_all(),
            (0..half.saturating_sub(1)).collect::<Vec<_>>()
        );
        assert_eq!(victim.pop_all(), (half..n).collect::<Vec<_>>());
    }
}

#[test]
fn a_thief_with_little_room_takes_little() {
    let items = Items::new(2 * CAPACITY);
    for room in 0..5 {
        let (victim, thief) = (filled(&items, CAPACITY), Owned::new());
        for id in CAPACITY..2 * CAPACITY - room {
            thief.push(items.get(id)).unwrap();
        }
        assert_eq!(victim.steal_into(&thief), room.checked_sub(1));
        assert_eq!(victim.0.len(), CAPACITY - room);
        assert_eq!(thief.0.len(), CAPACITY - usize::from(room > 0));
    }
}

#[test]
fn a_thief_leaves_next_alone() {
    let items = Items::new(1);
    let (victim, thief) = (Owned::new(), Owned::new());
    victim.kick(items.get(0)).unwrap();
    assert_eq!(victim.steal_into(&thief), None);
    assert!(victim.0.has_next());
}

#[test]
fn a_batch_fills_the_ring_and_leaves_the_rest() {
    let items = Items::new(CAPACITY + 10);
    let q = filled(&items, 3);
    let mut list = List::new();
    for id in 3..CAPACITY + 10 {
        // SAFETY: in no queue yet.
        unsafe { list.push_back(items.get(id)) };
    }
    // SAFETY: this thread is the owner.
    unsafe { q.0.push_batch(&mut list) };
    assert_eq!(ids(list), (CAPACITY..CAPACITY + 10).collect::<Vec<_>>());
    assert_eq!(q.pop_all(), (0..CAPACITY).collect::<Vec<_>>());
}

#[test]
fn drain_takes_everything_in_running_order() {
    let items = Items::new(6);
    let q = Owned::new();
    // SAFETY: this thread is the owner.
    let drain = || ids(unsafe { q.0.drain() });
    assert_eq!(drain(), []);
    for id in 0..6 {
        q.kick(items.get(id)).unwrap();
    }
    assert_eq!(q.pop(), Some(0));
    assert_eq!(drain(), [5, 1, 2, 3, 4]);
    assert!(q.0.is_empty());
}

/// With at least one handle always queued, nobody sees "empty".
#[test]
fn a_kick_is_never_seen_as_empty() {
    let items = Items::new(3);
    let q = Owned::new();
    q.kick(items.get(0)).unwrap();
    let done = AtomicBool::new(false);
    let false_empties = std::thread::scope(|s| {
        let poller = s.spawn(|| {
            let mut seen = 0;
            while !done.load(Relaxed) {
                seen += usize::from(q.0.is_empty());
            }
            seen
        });
        let mut spare = vec![1, 2];
        for _ in 0..200_000 {
            // One is queued; two more, then take two, so that each position is left and entered.
            for id in spare.drain(..) {
                q.kick(items.get(id)).unwrap();
            }
            spare.extend(q.take_next());
            spare.extend(q.pop());
        }
        done.store(true, Relaxed);
        poller.join().unwrap()
    });
    assert_eq!(false_empties, 0);
}

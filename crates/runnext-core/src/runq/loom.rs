//! The queue in every interleaving of up to three preemptions (by default), at capacity 4.
//!
//! Each model gives every handle to be queued to one thread, lets the threads race, and then counts: each
//! handle was taken once. `Item::id` writes to the item without synchronisation, so a handle that reaches two
//! threads, or reaches its taker before what the owner wrote to the item, is reported by loom as a race.
//!
//! All models together take seconds. Bugs planted in the code are found by at least one of them: `tail` or
//! `next` published or taken over Relaxed, a kick without its mark or that forgets to remove it, emptiness
//! without the second look at `tail`, `next` taken by load and store. What loom cannot find is a Relaxed
//! `head` (I7): that needs a load that sees a store from its future, which loom does not simulate.

use ::loom::sync::Arc;
use ::loom::thread;

use super::*;
use crate::testing::{Item, Items};

struct World {
    items: Items,
    queue: RunQueue<Item>,
}

impl World {
    fn new(items: usize) -> Arc<World> {
        Arc::new(World {
            items: Items::new(items),
            queue: RunQueue::new(),
        })
    }

    /// The handle of an item nobody holds, written to by the caller, who is the owner.
    fn fresh(&self, id: usize) -> NonNull<Item> {
        let g = self.items.get(id);
        assert_eq!(Item::id(g), id);
        g
    }

    /// As the owner: pushes a fresh item; what overflowed is added to `taken`.
    fn push(&self, id: usize, taken: &mut Vec<usize>) {
        // SAFETY: models call this from the owner's thread, with each item once.
        if let Err(list) = unsafe { self.queue.push(self.fresh(id)) } {
            assert_eq!(list.len(), HALF + 1);
            taken.extend(list.iter().map(Item::id));
        }
    }

    /// As the owner: kicks with a fresh item; what overflowed is added to `taken`.
    fn kick(&self, id: usize, taken: &mut Vec<usize>) {
        // SAFETY: as in `push`.
        if let Err(list) = unsafe { self.queue.put_next_kick(self.fresh(id)) } {
            taken.extend(list.iter().map(Item::id));
        }
    }

    /// As the owner.
    fn pop(&self) -> Option<usize> {
        // SAFETY: as in `push`.
        unsafe { self.queue.pop() }.map(Item::id)
    }

    /// As the owner.
    fn take_next(&self) -> Option<usize> {
        // SAFETY: as in `push`.
        unsafe { self.queue.take_next() }.map(Item::id)
    }

    /// As the owner: takes everything left, after which the queue has to look empty.
    fn drain(&self) -> Vec<usize> {
        // SAFETY: as in `push`.
        let all = unsafe { self.queue.drain() };
        assert!(self.queue.is_empty());
        all.iter().map(Item::id).collect()
    }
}

/// Starts a thread that steals `times` times into a queue of its own, and returns all it got.
fn thief(world: &Arc<World>, times: usize) -> thread::JoinHandle<Vec<usize>> {
    let world = world.clone();
    thread::spawn(move || {
        let own = RunQueue::new();
        let mut got = Vec::new();
        for _ in 0..times {
            // SAFETY: this thread owns `own`.
            got.extend(unsafe { world.queue.steal_into(&own) }.map(Item::id));
            // SAFETY: as above.
            got.extend(std::iter::from_fn(|| unsafe { own.pop() }).map(Item::id));
        }
        got
    })
}

fn once_each(mut taken: Vec<usize>, items: usize) {
    taken.sort_unstable();
    assert_eq!(taken, (0..items).collect::<Vec<_>>());
}

fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    // Loom takes its own variable, LOOM_MAX_PREEMPTIONS, for a deeper search.
    builder.preemption_bound.get_or_insert(3);
    builder.check(f);
}

/// Slots are used a second time while the thief may still look at their first use.
#[test]
fn owner_against_thief() {
    model(|| {
        let world = World::new(6);
        let mut taken = Vec::new();
        world.push(0, &mut taken);
        world.push(1, &mut taken);
        let thief = thief(&world, 2);
        for id in 2..6 {
            world.push(id, &mut taken);
            taken.extend(world.pop());
        }
        taken.extend(thief.join().unwrap());
        taken.extend(world.drain());
        once_each(taken, 6);
    });
}

#[test]
fn two_thieves() {
    model(|| {
        let world = World::new(4);
        let mut taken = Vec::new();
        for id in 0..3 {
            world.push(id, &mut taken);
        }
        let thieves = [thief(&world, 1), thief(&world, 1)];
        taken.extend(world.pop());
        world.push(3, &mut taken);
        for thief in thieves {
            taken.extend(thief.join().unwrap());
        }
        taken.extend(world.drain());
        once_each(taken, 4);
    });
}

/// The thief's own ring is robbed while it is being filled.
#[test]
fn thief_of_a_thief() {
    model(|| {
        let first = World::new(3);
        let second = World::new(0);
        let mut taken = Vec::new();
        for id in 0..3 {
            first.push(id, &mut taken);
        }
        let robber = thief(&second, 1);
        // SAFETY: this thread owns both queues.
        taken.extend(unsafe { first.queue.steal_into(&second.queue) }.map(Item::id));
        taken.extend(second.pop());
        taken.extend(robber.join().unwrap());
        taken.extend(first.drain());
        taken.extend(second.drain());
        once_each(taken, 3);
    });
}

#[test]
fn spill_against_thief() {
    model(|| {
        let world = World::new(6);
        let mut taken = Vec::new();
        for id in 0..CAPACITY {
            world.push(id, &mut taken);
        }
        let thief = thief(&world, 1);
        world.push(4, &mut taken);
        world.push(5, &mut taken);
        taken.extend(thief.join().unwrap());
        taken.extend(world.drain());
        once_each(taken, 6);
    });
}

#[test]
fn take_next_against_steal_next() {
    model(|| {
        let world = World::new(2);
        let mut taken = Vec::new();
        world.kick(0, &mut taken);
        let robber = {
            let world = world.clone();
            thread::spawn(move || {
                [world.queue.steal_next(), world.queue.steal_next()]
                    .into_iter()
                    .flatten()
                    .map(Item::id)
                    .collect::<Vec<_>>()
            })
        };
        taken.extend(world.take_next());
        world.kick(1, &mut taken);
        taken.extend(world.take_next());
        taken.extend(robber.join().unwrap());
        taken.extend(world.drain());
        once_each(taken, 2);
    });
}

/// The owner reads an occupied `next`, marks, and swaps out null.
#[test]
fn kick_against_steal_next() {
    model(|| {
        let world = World::new(2);
        let mut taken = Vec::new();
        world.kick(0, &mut taken);
        let robber = {
            let world = world.clone();
            thread::spawn(move || world.queue.steal_next().map(Item::id))
        };
        world.kick(1, &mut taken);
        taken.extend(robber.join().unwrap());
        taken.extend(world.drain());
        once_each(taken, 2);
    });
}

/// 0 is never taken, so nobody may say "empty", though it moves to the ring while a thief takes the one that
/// displaced it.
#[test]
fn kick_against_steal_next_and_a_poller() {
    model(|| {
        let world = World::new(2);
        let mut taken = Vec::new();
        world.kick(0, &mut taken);
        let robber = {
            let world = world.clone();
            thread::spawn(move || {
                // Waits for nothing: if 1 is not there yet, this run is not the one in question.
                let next = world.queue.own.next.load(Relaxed);
                (next == world.items.get(1).as_ptr())
                    .then(|| world.queue.steal_next().map(Item::id))
                    .flatten()
            })
        };
        let poller = {
            let world = world.clone();
            thread::spawn(move || world.queue.is_empty())
        };
        world.kick(1, &mut taken);
        assert!(!poller.join().unwrap());
        taken.extend(robber.join().unwrap());
        taken.extend(world.drain());
        once_each(taken, 2);
    });
}

/// The same with the owner itself taking the displacer, twice, so that the tail moves while the poller looks.
#[test]
fn kick_and_take_against_a_poller() {
    model(|| {
        let world = World::new(3);
        let mut taken = Vec::new();
        world.kick(0, &mut taken);
        let poller = {
            let world = world.clone();
            thread::spawn(move || world.queue.is_empty())
        };
        world.kick(1, &mut taken);
        taken.extend(world.take_next());
        world.kick(2, &mut taken);
        taken.extend(world.pop());
        assert!(!poller.join().unwrap());
        taken.extend(world.drain());
        once_each(taken, 3);
    });
}

/// A kick into a full ring removes its mark without moving the tail.
#[test]
fn spilling_kick_against_thief_and_poller() {
    model(|| {
        let world = World::new(6);
        let mut taken = Vec::new();
        for id in 0..CAPACITY {
            world.push(id, &mut taken);
        }
        world.kick(4, &mut taken);
        let thief = thief(&world, 1);
        let poller = {
            let world = world.clone();
            thread::spawn(move || world.queue.is_empty())
        };
        world.kick(5, &mut taken);
        assert!(!poller.join().unwrap());
        taken.extend(thief.join().unwrap());
        taken.extend(world.drain());
        once_each(taken, 6);
    });
}

/// Others than the owner guess who is first: what they are shown was a handle at some time, also while a kick is under way.
#[test]
fn kick_against_a_guess() {
    model(|| {
        let world = World::new(3);
        let guesser = {
            let world = Arc::clone(&world);
            // SAFETY: what it says is taken for a guess.
            thread::spawn(move || unsafe { world.queue.peek(0) })
        };
        let mut taken = Vec::new();
        (0..3).for_each(|id| world.kick(id, &mut taken));
        if let Some(guess) = guesser.join().unwrap() {
            assert!((0..3).any(|id| world.items.get(id) == guess));
        }
        taken.extend(world.drain());
        once_each(taken, 3);
    });
}

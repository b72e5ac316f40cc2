//! The end of a goroutine while its handle and a reference go, in every interleaving: what it leaves is dropped once, by who may, and before
//! the header is free.

use ::loom::cell::UnsafeCell;
use ::loom::sync::Arc;
use ::loom::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use ::loom::{model, thread};

use super::*;

struct World {
    life: Life,
    /// What is left in the payload, and in the extension record: one before they are dropped, then none.
    result: UnsafeCell<usize>,
    ext: UnsafeCell<usize>,
    /// Who was registered: how often it was told, or given back.
    answered: AtomicUsize,
    freed: AtomicUsize,
}

// SAFETY: that the protocol makes accesses to the cells exclusive is what the model checks.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn begin() -> Arc<World> {
        let world = World {
            life: Life::new(),
            result: UnsafeCell::new(0),
            ext: UnsafeCell::new(1),
            answered: AtomicUsize::new(0),
            freed: AtomicUsize::new(0),
        };
        world.life.begin();
        Arc::new(world)
    }

    fn set(cell: &UnsafeCell<usize>, from: usize, to: usize) {
        // SAFETY: as above.
        cell.with_mut(|v| unsafe {
            assert_eq!(*v, from);
            *v = to;
        });
    }

    /// What a reference may look at.
    fn look(&self) {
        // SAFETY: as above.
        self.ext.with(|v| assert_eq!(unsafe { *v }, 1));
    }

    fn drop_ref(&self) {
        let free = self.life.drop_ref(|| World::set(&self.ext, 1, 0));
        if free {
            self.free();
        }
    }

    fn free(&self) {
        World::set(&self.ext, 0, 0);
        World::set(&self.result, 0, 0);
        self.freed.fetch_add(1, Relaxed);
    }

    /// The goroutine, from the end of its own code on.
    fn end(&self) {
        World::set(&self.result, 0, 1);
        let mut dropped = false;
        if self.life.is_unwanted() {
            World::set(&self.result, 1, 0);
            dropped = true;
        }
        let finished = self.life.finish(true); // it has an extension record
        if finished.told {
            self.answered.fetch_add(1, Relaxed);
            self.look(); // its waker is code of others, and may ask for its name (I4)
        }
        if finished.held {
            if self.life.is_unwanted() && !dropped {
                self.look();
                World::set(&self.result, 1, 0);
            }
            self.drop_ref();
        }
        if self.life.leave_cpu() {
            self.free();
        }
    }

    fn drop_handle(&self) {
        match self.life.give_up() {
            GivenUp::Before { registered } => {
                self.answered.fetch_add(usize::from(registered), Relaxed);
            }
            GivenUp::After => {
                World::set(&self.result, 1, 0);
                self.drop_ref();
            }
        }
    }
}

fn run(others: Vec<fn(&World)>, answers: usize, before: fn(&World)) {
    model(move || {
        let world = World::begin();
        before(&world);
        let threads: Vec<_> = others
            .iter()
            .map(|&other| {
                let world = Arc::clone(&world);
                thread::spawn(move || other(&world))
            })
            .collect();
        world.end();
        for thread in threads {
            thread.join().unwrap();
        }
        assert_eq!(world.freed.load(Relaxed), 1);
        assert_eq!(world.answered.load(Relaxed), answers);
    });
}

#[test]
fn loom_what_is_left_is_dropped_once() {
    run(vec![World::drop_handle], 0, |_| ());
}

#[test]
fn loom_references_keep_no_result() {
    run(vec![World::drop_handle, World::drop_ref], 0, |world| {
        world.life.add_ref();
    });
}

#[test]
fn loom_who_is_registered_is_answered_once() {
    run(vec![World::drop_handle, World::drop_ref], 1, |world| {
        world.life.add_ref();
        assert!(world.life.register(true));
    });
}

#[test]
fn loom_who_registers_at_the_end_is_answered_once() {
    fn register(world: &World) {
        if !world.life.register(true) {
            world.answered.fetch_add(1, Relaxed);
        } else if world.life.withdraw() && !world.life.register(true) {
            world.answered.fetch_add(1, Relaxed);
        }
        world.drop_handle();
    }
    run(vec![register], 1, |_| ());
}

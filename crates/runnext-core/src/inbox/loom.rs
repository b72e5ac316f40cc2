//! A thread that waits for a P, one who hands it one, and one who stops everything, in every interleaving. What a P is made of is not atomic, so
//! two owners at once are a data race, and one that is nobody's is counted. A thread that nobody wakes is a deadlock. Loom reports both.

use ::loom::sync::{Arc, Condvar, Mutex};
use ::loom::{model, thread};

use super::*;
use crate::shim::{AtomicBool, UnsafeCell};

/// A P: owners write to it.
struct Proc {
    uses: UnsafeCell<usize>,
}

struct World {
    inbox: Inbox<Proc>,
    /// The runtime has stopped. Relaxed: that it is seen after `close` is I3.
    stopped: AtomicBool,
    /// How often the thread waits in the queue, and the P that is not with anybody.
    queue: Mutex<usize>,
    idle: Mutex<Option<NonNull<Proc>>>,
    /// The kernel's part of a sleep on the word.
    futex: Mutex<()>,
    woken: Condvar,
    proc: Proc,
}

// SAFETY: that the protocol makes accesses to a P exclusive is what the models check.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    fn new() -> Arc<World> {
        let world = Arc::new(World {
            inbox: Inbox::new(),
            stopped: AtomicBool::new(false),
            queue: Mutex::new(0),
            idle: Mutex::new(None),
            futex: Mutex::new(()),
            woken: Condvar::new(),
            proc: Proc {
                uses: UnsafeCell::new(0),
            },
        });
        *world.idle.lock().unwrap() = Some(NonNull::from(&world.proc));
        world
    }

    /// The thread queues its goroutine.
    fn queue(&self) {
        *self.queue.lock().unwrap() += 1;
    }

    /// And waits with it.
    fn wait(&self) -> Option<NonNull<Proc>> {
        loop {
            match self.inbox.take() {
                Found::P(p) => return Some(p),
                Found::Closed => {
                    assert!(self.stopped.load(Relaxed), "I3");
                    return None;
                }
                Found::Nothing => {
                    let kernel = self.futex.lock().unwrap();
                    if self.inbox.word().load(Relaxed) == EMPTY {
                        drop(self.woken.wait(kernel).unwrap());
                    }
                }
            }
        }
    }

    fn wake(&self) {
        drop(self.futex.lock().unwrap());
        self.woken.notify_one();
    }

    /// Waits, uses what comes, and leaves it for the next; so often, or until it is sent on.
    fn thread(&self, times: usize) {
        for _ in 0..times {
            self.queue();
            let Some(p) = self.wait() else {
                return;
            };
            self.use_and_leave(p);
        }
    }

    /// One who dispatches: has the P and finds the goroutine in the queue.
    fn dispatch(&self) {
        let Some(p) = self.idle.lock().unwrap().take() else {
            return;
        };
        let found = {
            let mut queue = self.queue.lock().unwrap();
            let found = *queue > 0;
            *queue -= usize::from(found);
            found
        };
        if !found {
            return self.use_and_leave(p);
        }
        touch(p);
        if self.inbox.hand(p) {
            self.wake();
        } else {
            self.use_and_leave(p);
        }
    }

    fn use_and_leave(&self, p: NonNull<Proc>) {
        touch(p);
        let before = self.idle.lock().unwrap().replace(p);
        assert_eq!(before, None, "there is one");
    }

    fn stop(&self) {
        self.stopped.store(true, Relaxed);
        self.inbox.close();
        self.wake();
    }
}

fn touch(p: NonNull<Proc>) {
    // SAFETY: it lives as long as the world.
    let p = unsafe { p.as_ref() };
    // SAFETY: the caller owns it, which is what the models check.
    p.uses.with_mut(|uses| unsafe { *uses += 1 });
}

fn start(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || f(&world))
}

/// However the two meet, the P is somebody's in the end.
#[test]
fn a_p_that_is_handed_over_at_the_stop_is_not_lost() {
    model(|| {
        let world = World::new();
        let waits = start(&world, |world| world.thread(1));
        let stops = start(&world, World::stop);
        world.dispatch();
        waits.join().unwrap();
        stops.join().unwrap();
        assert!(world.idle.lock().unwrap().is_some(), "nobody's");
    });
}

/// The thread waits again, and is handed to again, with the stop at any moment: also while it takes what has come.
#[test]
fn nor_one_that_comes_the_second_time() {
    model(|| {
        let world = World::new();
        let waits = start(&world, |world| world.thread(2));
        let hands = start(&world, |world| {
            world.dispatch();
            world.dispatch();
        });
        world.stop();
        waits.join().unwrap();
        hands.join().unwrap();
        assert!(world.idle.lock().unwrap().is_some(), "nobody's");
    });
}

/// Nobody stops anything: it does not sleep on.
#[test]
fn who_is_handed_a_p_wakes_up() {
    model(|| {
        let world = World::new();
        world.queue();
        let hands = start(&world, World::dispatch);
        let p = world.wait().expect("nobody closes it");
        world.use_and_leave(p);
        hands.join().unwrap();
    });
}

//! A thread and those who rob it, in every interleaving. What a P is made of is not atomic, so two owners at once are a data race, which
//! loom reports.

use core::ptr::NonNull;

use ::loom::sync::atomic::{AtomicUsize, Ordering::*, fence};
use ::loom::sync::{Arc, Mutex};
use ::loom::{model, thread};

use super::*;
use crate::shim::UnsafeCell;

/// A P: owners write to it.
struct Proc {
    uses: UnsafeCell<usize>,
}

/// One thread, the P it begins with, and a spare one.
struct World {
    m: Owner<Proc>,
    /// Who robs has this one.
    robber: Mutex<Robber>,
    first: Proc,
    spare: Proc,
    /// Successful robberies, by the turn they happened in.
    robbed: [AtomicUsize; 4],
}

// SAFETY: that the protocol makes accesses to a P exclusive is what the models check.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    /// The thread is away, on its first turn, with its first P.
    fn new(home: Home) -> Arc<World> {
        let proc = || Proc {
            uses: UnsafeCell::new(0),
        };
        let world = Arc::new(World {
            m: Owner::new(),
            robber: Mutex::new(Robber::only()),
            first: proc(),
            spare: proc(),
            robbed: core::array::from_fn(|_| AtomicUsize::new(0)),
        });
        world.m.take(NonNull::from(&world.first));
        world.touch();
        world.m.leave(home);
        world
    }

    /// Uses the P of the thread, in RT.
    fn touch(&self) {
        // SAFETY: in RT it has one, which lives as long as the world.
        unsafe { &*self.m.p() }.touch();
    }

    /// A robber, with a word it has seen before or sees now. The P it got must be the one of that word.
    fn rob(&self, seen: Seen, whose: impl FnOnce(u64) -> *const Proc) -> bool {
        let robbed = {
            let mut robber = self.robber.lock().unwrap();
            self.m.rob(&mut robber, seen, || fence(SeqCst))
        };
        let Some(p) = robbed else {
            return false;
        };
        assert_eq!(p.as_ptr().cast_const(), whose(seen.turn()), "another P");
        let before = self.robbed[seen.turn() as usize].fetch_add(1, Relaxed);
        assert_eq!(before, 0, "robbed twice in one turn");
        // SAFETY: it lives as long as the world.
        unsafe { p.as_ref() }.touch();
        true
    }

    /// A call by the thread. False: it was robbed, and waits for a P.
    fn call(&self, home: Home) -> bool {
        if self.m.try_enter() {
            self.touch();
            self.m.leave(home);
            return true;
        }
        let lost = self.m.stop_robbed();
        assert!(matches!(lost, Some(State::Robbed | State::Out)), "{lost:?}");
        false
    }

    /// As [`call`](Self::call); if it was robbed it goes on with the spare P.
    fn call_or_go_on(&self) {
        if !self.call(Home::User) {
            self.m.take(NonNull::from(&self.spare));
            self.touch();
            self.m.leave(Home::User);
        }
    }

    fn robberies(&self) -> usize {
        self.robbed.iter().map(|turn| turn.load(Relaxed)).sum()
    }
}

impl Proc {
    fn touch(&self) {
        // SAFETY: the caller owns it, which is what the models check.
        self.uses.with_mut(|uses| unsafe { *uses += 1 });
    }
}

fn start(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || f(&world))
}

/// Calls while somebody looks and robs, twice.
fn one_robber(home: Home) {
    model(move || {
        let world = World::new(home);
        let robber = start(&world, |world| {
            for _ in 0..2 {
                world.rob(world.m.look(), |_| &raw const world.first);
            }
        });
        let mine = (0..2).all(|_| world.call(home));
        robber.join().unwrap();
        // Who has it in the end?
        assert!(mine || world.robberies() == 1);
        match world.m.state() {
            State::Nop => assert!(!mine),
            State::User | State::Blk => assert_eq!(world.robberies(), 0),
            State::Robbed | State::Out => assert_eq!(world.robberies(), 1),
            State::Rt => panic!("still in the runtime"),
        }
    });
}

#[test]
fn loom_a_p_has_one_owner() {
    one_robber(Home::User);
}

#[test]
fn loom_a_p_has_one_owner_in_a_section() {
    one_robber(Home::Blk);
}

/// I3: the robbed thread goes on with another P while its robber still does not know whose it has.
#[test]
fn loom_the_robber_gets_the_p_it_saw() {
    model(|| {
        let world = World::new(Home::User);
        let seen = world.m.look();
        let robber = start(&world, move |world| {
            world.rob(seen, |_| &raw const world.first);
        });
        world.call_or_go_on();
        world.call_or_go_on();
        robber.join().unwrap();
    });
}

/// I3, the other end: who sees the word of a new turn sees the P of that turn.
#[test]
fn loom_the_word_brings_its_p() {
    model(|| {
        let world = World::new(Home::User);
        assert!(world.rob(world.m.look(), |_| &raw const world.first));
        let robber = start(&world, |world| {
            // Its first turn is over: what can be robbed is the second.
            world.rob(world.m.look(), |_| &raw const world.spare);
        });
        world.call_or_go_on();
        world.call(Home::User);
        robber.join().unwrap();
    });
}

/// I4: of two robbers with the same old word one at most succeeds, also if the thread is back by then, on another P.
#[test]
fn loom_an_old_word_is_worth_nothing() {
    model(|| {
        let world = World::new(Home::User);
        let seen = world.m.look();
        let robbers = [(); 2].map(|()| {
            start(&world, move |world| {
                world.rob(seen, |_| &raw const world.first);
            })
        });
        world.call_or_go_on();
        for robber in robbers {
            robber.join().unwrap();
        }
        assert!(world.robberies() <= 1);
    });
}

/// Two robbers, each of which looks for itself.
#[test]
fn loom_two_robbers() {
    model(|| {
        let world = World::new(Home::User);
        let robbers = [(); 2].map(|()| {
            start(&world, |world| {
                world.rob(world.m.look(), |_| &raw const world.first);
            })
        });
        let mine = world.call(Home::User);
        for robber in robbers {
            robber.join().unwrap();
        }
        assert!(world.robberies() <= 1 && (mine || world.robberies() == 1));
    });
}

/// A section ends, by itself or by a call inside, while its P is taken.
#[test]
fn loom_a_section_ends() {
    model(|| {
        let world = World::new(Home::Blk);
        let robber = start(&world, |world| {
            for _ in 0..2 {
                world.rob(world.m.look(), |_| &raw const world.first);
            }
        });
        if world.m.leave_blocking() {
            world.call(Home::User);
        } else {
            assert_eq!(world.m.stop_robbed(), Some(State::Out));
        }
        robber.join().unwrap();
        assert!(world.robberies() <= 1);
    });
}

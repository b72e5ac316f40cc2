//! One P or two, those who run on them, and a submitter, in every interleaving; without the monitor, who would find what was forgotten.
//!
//! A thread that goes to sleep ends. One that is woken goes on as part of its waker, when that has nothing else to do: a legal order, and one
//! thread less to walk through. What is queued is a number, changed under a lock of its own and looked at without, as the global queue's is.

use core::cell::Cell;

use ::loom::sync::atomic::{AtomicUsize, Ordering::*};
use ::loom::sync::{Arc, Mutex};
use ::loom::{model, thread};

use super::*;

/// What the idle lock guards.
struct Idle {
    ps: usize,
    roster: Roster,
}

struct World {
    procs: usize,
    all: Searchers,
    idle: Mutex<Idle>,
    queue: Mutex<()>,
    len: AtomicUsize,
    /// Every owner of a P looks at the queue, also just before it goes idle (as at the global one); or only searchers do (as at
    /// another P's).
    glance: bool,
    /// Goroutines run for ever: who has one never comes back.
    hogs: bool,
    notes: Notes,
}

/// What the model remembers. Not loom's, so that nothing is ordered by it and nothing to try out: loom runs one thread at a time.
#[derive(Default)]
struct Notes {
    taken: Cell<usize>,
    /// Searchers that were started and do not run yet.
    started: Cell<usize>,
    /// Somebody was told that no P is idle, and told the monitor.
    told: Cell<bool>,
}

// SAFETY: see `Notes`; all else may be shared.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

impl World {
    /// `idle` of its Ps are idle.
    fn new(procs: usize, idle: usize, glance: bool, hogs: bool) -> Arc<World> {
        let world = World {
            procs,
            all: Searchers::new(),
            idle: Mutex::new(Idle {
                ps: 0,
                roster: Roster::new(),
            }),
            queue: Mutex::new(()),
            len: AtomicUsize::new(0),
            glance,
            hogs,
            notes: Notes::default(),
        };
        for _ in 0..idle {
            world.push(&mut world.idle.lock().unwrap());
        }
        Arc::new(world)
    }

    fn has_work(&self) -> bool {
        self.len.load(Relaxed) != 0
    }

    fn take(&self) -> bool {
        let _locked = self.queue.lock().unwrap();
        let len = self.len.load(Relaxed);
        if len != 0 {
            self.len.store(len - 1, Relaxed);
            self.notes.taken.update(|n| n + 1);
        }
        len != 0
    }

    fn submit(&self) {
        let locked = self.queue.lock().unwrap();
        self.len.store(self.len.load(Relaxed) + 1, Relaxed);
        drop(locked);
        self.wake_one();
    }

    fn wake_one(&self) {
        match self.all.queued() {
            Need::Nothing => {}
            Need::Turn => self.notes.told.set(true),
            Need::Searcher if self.all.claim() => {
                let mut idle = self.idle.lock().unwrap();
                if idle.ps == 0 {
                    self.all.disclaim(&mut idle.roster);
                } else {
                    self.pop(&mut idle);
                    self.notes.started.update(|n| n + 1);
                }
            }
            Need::Searcher => {}
        }
    }

    fn push(&self, idle: &mut Idle) {
        idle.ps += 1;
        self.all.p_idles(&mut idle.roster);
    }

    fn pop(&self, idle: &mut Idle) {
        idle.ps -= 1;
        self.all.p_taken(&mut idle.roster);
    }

    fn take_idle_p(&self) -> bool {
        let mut idle = self.idle.lock().unwrap();
        let any = idle.ps != 0;
        if any {
            self.pop(&mut idle);
        }
        any
    }

    /// The loop of an M that has a P, until it sleeps.
    fn run(&self, mut spinning: bool) {
        loop {
            if (self.glance || spinning) && self.take() {
                if core::mem::take(&mut spinning) {
                    self.all.leave();
                    self.wake_one();
                }
                if self.hogs {
                    return;
                }
            } else if !spinning && self.all.join(self.procs) {
                spinning = true;
            } else if !self.give_up_p(&mut spinning) {
                return;
            }
        }
    }

    /// True: go on.
    fn give_up_p(&self, spinning: &mut bool) -> bool {
        let mut idle = self.idle.lock().unwrap();
        if self.glance && self.has_work() {
            return true;
        }
        if !*spinning && self.all.relieve(&mut idle.roster) {
            *spinning = true;
            return true;
        }
        self.push(&mut idle);
        drop(idle);
        if core::mem::take(spinning) {
            self.all.stop();
            if self.has_work() && self.take_idle_p() {
                self.all.begin();
                *spinning = true;
                return true;
            }
        }
        false
    }

    /// Those that were started get their turn.
    fn run_started(&self) {
        while self.notes.started.get() != 0 {
            self.notes.started.update(|n| n - 1);
            self.run(true);
        }
    }

    /// Everybody is asleep, or a hog.
    fn check(&self, submitted: usize) {
        let (idle, left) = (self.idle.lock().unwrap().ps, self.len.load(Relaxed));
        assert_eq!(self.notes.started.get(), 0);
        assert_eq!(self.all.spinning(), 0);
        assert_eq!(self.all.idle(), idle);
        assert_eq!(self.notes.taken.get() + left, submitted);
        if self.hogs {
            assert!(left == 0 || idle == 0 || self.notes.told.get(), "I2");
        } else {
            assert_eq!((idle, left), (self.procs, 0), "I1");
        }
    }
}

fn start(world: &Arc<World>, f: impl FnOnce(&World) + 'static) -> thread::JoinHandle<()> {
    let world = Arc::clone(world);
    thread::spawn(move || {
        f(&world);
        world.run_started();
    })
}

/// Runs the parties to their end, with a submitter on this thread. `submitted` counts what the others submit, too.
fn play(world: &Arc<World>, others: Vec<thread::JoinHandle<()>>, submitted: usize) {
    world.submit();
    world.run_started();
    for other in others {
        other.join().unwrap();
    }
    world.check(submitted);
}

/// Both Ps run dry while something is queued from outside.
fn both_run_dry(glance: bool) {
    model(move || {
        let world = World::new(2, 0, glance, false);
        let others = (0..2).map(|_| start(&world, |w| w.run(false))).collect();
        play(&world, others, 1);
    });
}

#[test]
fn loom_nothing_is_stranded() {
    both_run_dry(true);
}

#[test]
fn loom_nothing_is_stranded_where_only_searchers_look() {
    both_run_dry(false);
}

/// The P is taken from its thread, which sits in the kernel, and put on the list.
#[test]
fn loom_an_idled_p_is_of_use() {
    model(|| {
        let world = World::new(1, 0, false, false);
        let robber = start(&world, |w| {
            w.push(&mut w.idle.lock().unwrap());
            w.all.look_again();
            if w.has_work() {
                w.wake_one();
            }
        });
        play(&world, vec![robber], 1);
    });
}

/// The P is idle when the submitter looks; a thread that comes back from the kernel takes it, so that there is none to start a searcher on,
/// and runs dry.
#[test]
fn loom_a_void_claim_is_not_forgotten() {
    model(|| {
        let world = World::new(1, 1, false, false);
        let back = start(&world, |w| {
            if w.take_idle_p() {
                w.run(false);
            }
        });
        play(&world, vec![back], 1);
    });
}

/// Both Ps sleep, and two goroutines come that run for ever: each gets a P.
#[test]
fn loom_a_burst_spreads() {
    model(|| {
        let world = World::new(2, 2, true, true);
        let other = start(&world, |w| w.submit());
        play(&world, vec![other], 2);
    });
}

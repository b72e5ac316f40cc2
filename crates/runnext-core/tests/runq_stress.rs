//! Run queues under real threads: nothing lost, nothing twice.
//!
//! Each worker owns a queue, makes a fixed number of jobs, and runs what it finds: its `next`, its ring, a
//! global list, the others' rings and `next`s. A job counts its runs without an atomic, so a job in two hands
//! is also a data race for Miri and the sanitizers to see. Bounded by the number of jobs, about a second on
//! two cores.
#![cfg(not(loom))]

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::Mutex;
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::Relaxed};

use runnext_core::list::{Linked, List};
use runnext_core::rng::Dice;
use runnext_core::runq::{HALF, RunQueue};
use runnext_core::steal::StealOrder;

struct Job {
    runs: UnsafeCell<u32>,
    link: AtomicPtr<Job>,
}

// SAFETY: the link is a field that only lists use, and a job is not tied to a thread.
unsafe impl Linked for Job {
    fn link(this: NonNull<Job>) -> *const AtomicPtr<Job> {
        // SAFETY: an address inside a valid job.
        unsafe { &raw const (*this.as_ptr()).link }
    }
}

struct World {
    jobs: Vec<Job>,
    queues: Vec<RunQueue<Job>>,
    global: Mutex<List<Job>>,
    order: StealOrder,
    ran: AtomicUsize,
    sum: AtomicUsize,
}

// SAFETY: `runs` of a job is touched by the holder of its handle alone, which is what is tested.
unsafe impl Sync for World {}

impl World {
    fn new(workers: usize, jobs: usize) -> World {
        let job = |_| Job {
            runs: UnsafeCell::new(0),
            link: AtomicPtr::new(ptr::null_mut()),
        };
        World {
            jobs: (0..jobs).map(job).collect(),
            queues: (0..workers).map(|_| RunQueue::new()).collect(),
            global: Mutex::new(List::new()),
            order: StealOrder::new(workers),
            ran: AtomicUsize::new(0),
            sum: AtomicUsize::new(0),
        }
    }

    fn run(&self, g: NonNull<Job>) {
        let index = (g.as_ptr() as usize - self.jobs.as_ptr() as usize) / size_of::<Job>();
        // SAFETY: whoever took the handle out of a queue holds it alone.
        unsafe { *self.jobs[index].runs.get() += 1 };
        self.ran.fetch_add(1, Relaxed);
        self.sum.fetch_add(index, Relaxed);
    }

    /// Queues a job, as the owner of queue `me`, in one of the ways a goroutine becomes runnable.
    fn submit(&self, me: usize, index: usize, dice: &mut Dice) {
        let g = NonNull::from(&self.jobs[index]);
        let spilt = match dice.below(8) {
            // SAFETY: worker `me` is the only one to call this with `me`, and submits each job once.
            0..4 => unsafe { self.queues[me].put_next_kick(g) },
            // SAFETY: as above.
            4..7 => unsafe { self.queues[me].push(g) },
            _ => {
                let mut one = List::new();
                // SAFETY: in no queue.
                unsafe { one.push_back(g) };
                Err(one)
            }
        };
        if let Err(list) = spilt {
            self.global.lock().unwrap().append(list);
        }
    }

    /// Something to run, as the owner of queue `me`.
    fn find(&self, me: usize, dice: &mut Dice) -> Option<NonNull<Job>> {
        let own = &self.queues[me];
        // SAFETY: worker `me` is the only one to call this with `me`.
        if let Some(g) = unsafe { own.take_next().or_else(|| own.pop()) } {
            return Some(g);
        }
        let mut batch = self.global.lock().unwrap().take(HALF);
        if let Some(g) = batch.pop_front() {
            // SAFETY: as above.
            unsafe { own.push_batch(&mut batch) };
            assert!(batch.is_empty(), "an empty ring has room for half its size");
            return Some(g);
        }
        self.order
            .start(dice.u32())
            .filter(|&v| v != me)
            .find_map(|victim| {
                let victim = &self.queues[victim];
                // SAFETY: this worker owns the thief's queue.
                unsafe { victim.steal_into(own) }.or_else(|| victim.steal_next())
            })
    }

    fn work(&self, me: usize, mine: std::ops::Range<usize>) {
        let mut dice = Dice::new(me as u64);
        let mut mine = mine.into_iter();
        while self.ran.load(Relaxed) < self.jobs.len() {
            // Bursts up to beyond the ring's size, now and then.
            let burst = if dice.below(64) == 0 {
                300
            } else {
                dice.below(4)
            };
            for index in mine.by_ref().take(burst as usize) {
                self.submit(me, index, &mut dice);
            }
            for _ in 0..dice.below(6) {
                match self.find(me, &mut dice) {
                    Some(g) => self.run(g),
                    None => std::thread::yield_now(),
                }
            }
        }
    }
}

fn stress(workers: usize, jobs_each: usize) {
    let jobs = workers * jobs_each;
    let world = &mut World::new(workers, jobs);
    std::thread::scope(|s| {
        for me in 0..workers {
            let world = &*world;
            s.spawn(move || world.work(me, me * jobs_each..(me + 1) * jobs_each));
        }
    });
    assert_eq!(*world.ran.get_mut(), jobs);
    assert_eq!(*world.sum.get_mut(), jobs * (jobs - 1) / 2);
    for (index, job) in world.jobs.iter_mut().enumerate() {
        assert_eq!(*job.runs.get_mut(), 1, "job {index}");
    }
    assert!(world.queues.iter().all(RunQueue::is_empty));
}

#[test]
fn two_workers() {
    stress(2, 400_000);
}

#[test]
fn more_workers_than_cores() {
    stress(7, 80_000);
}

#[test]
fn alone() {
    stress(1, 100_000);
}

//! An allocator behind one lock, and goroutines that are preempted while they hold it: the runtime must go on without
//! allocating until the holder has had its turn.

mod common;
mod stall;

use std::alloc::{GlobalAlloc, Layout, System};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::{Duration, Instant};

use common::impatient;
use stall::watchdog;

/// One lock for everybody, held long enough for slices to end inside.
struct OneLock {
    lock: Mutex<u64>,
}

/// Only while a test wants it: starting the harness need not be slow.
static SLOW: AtomicBool = AtomicBool::new(false);

impl OneLock {
    fn held<T>(&self, f: impl FnOnce() -> T) -> T {
        if !SLOW.load(Relaxed) {
            return f();
        }
        let mut turns = self.lock.lock().unwrap_or_else(PoisonError::into_inner);
        *turns += 1;
        // Now and then a long time, as an allocator that asks the kernel or merges its lists.
        let rounds = if turns.is_multiple_of(64) {
            200_000
        } else {
            200
        };
        for i in 0..rounds {
            std::hint::black_box(i);
        }
        f()
    }
}

// SAFETY: the system's allocator, one call at a time.
unsafe impl GlobalAlloc for OneLock {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        // SAFETY: the caller's promise.
        self.held(|| unsafe { System.alloc(layout) })
    }

    unsafe fn dealloc(&self, ptr: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        self.held(|| unsafe { System.dealloc(ptr, layout) })
    }
}

#[global_allocator]
static ALLOCATOR: OneLock = OneLock {
    lock: Mutex::new(0),
};

#[test]
fn the_runtime_never_waits_for_a_preempted_allocation() {
    let _dog = watchdog("an allocator with one lock");
    for procs in [1, 2] {
        let rt = impatient(procs);
        SLOW.store(true, Relaxed);
        let done = rt.run(|| {
            let end = Instant::now() + Duration::from_secs(2);
            let workers: Vec<_> = (0..24u64)
                .map(|id| {
                    runnext::go(move || {
                        let mut sum = 0u64;
                        let mut rounds = 0u64;
                        while Instant::now() < end {
                            rounds += 1;
                            let block = vec![id; 64 + (rounds as usize % 512)];
                            sum = sum.wrapping_add(block.iter().sum::<u64>());
                            assert!(block.iter().all(|x| *x == id));
                            if rounds.is_multiple_of(32) {
                                // New goroutines, and sleeps that cost a thread.
                                runnext::go(move || std::thread::sleep(Duration::from_micros(300)));
                            }
                        }
                        std::hint::black_box(sum);
                        rounds
                    })
                })
                .collect();
            workers.into_iter().map(|w| w.join().unwrap()).sum::<u64>()
        });
        SLOW.store(false, Relaxed);
        assert!(done > 100, "{done} rounds");
    }
}

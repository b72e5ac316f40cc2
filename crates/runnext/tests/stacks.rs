//! Stacks: many of them, of several sizes, under both kinds of guard, and when there is room for no more.

mod common;

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};

use common::{child, message, runtime, until};
use runnext::{JoinHandle, go, goroutine, yield_now};

/// Uses about `bytes` of stack.
fn deep(bytes: usize) -> usize {
    let frame = black_box([1u8; 1024]);
    if bytes <= 2048 {
        return frame[bytes % 1024] as usize;
    }
    // In a debug build a frame takes more than its array: count it twice.
    frame[0] as usize + deep(bytes - 2048)
}

#[runnext::test(procs = 2)]
fn a_goroutine_can_use_most_of_its_stack() {
    for _ in 0..50 {
        let handles: Vec<_> = (0..8).map(|_| go(|| deep(200 << 10))).collect();
        for handle in handles {
            assert_eq!(handle.join().unwrap(), 100);
        }
    }
}

#[runnext::test(procs = 2)]
fn sizes_of_all_classes_side_by_side() {
    let sizes = [32 << 10, 64 << 10, 100 << 10, 1 << 20, 8 << 20, 64 << 20];
    for round in 0..20 {
        let handles: Vec<_> = sizes
            .iter()
            .map(|&size| {
                let builder = goroutine::Builder::new().stack_size(size);
                let use_it = move || {
                    yield_now();
                    // The guard takes 16 KiB of it, and what starts a goroutine some more.
                    let used = deep((size / 2).saturating_sub(8 << 10).min(4 << 20));
                    yield_now();
                    used
                };
                builder.spawn(use_it).unwrap()
            })
            .collect();
        for (handle, size) in handles.into_iter().zip(sizes) {
            assert!(handle.join().unwrap() > 0, "{size} in round {round}");
        }
    }
}

#[test]
fn the_runtimes_size_is_the_default() {
    // SAFETY: no thread-local is borrowed over a call that can park.
    let rt = unsafe {
        runnext::Runtime::builder()
            .procs(1)
            .stack_size(4 << 20)
            .build()
    }
    .unwrap();
    assert!(rt.run(|| deep(3 << 20)) > 0);
    assert!(rt.run(|| go(|| deep(3 << 20)).join().unwrap()) > 0);
}

/// A row of goroutines, each parked until the one before it ends.
fn parked_row(n: usize, release: &Arc<AtomicBool>) -> JoinHandle<usize> {
    let release = Arc::clone(release);
    let mut last = go(move || {
        until(|| release.load(Relaxed));
        0
    });
    for _ in 0..n {
        last = go(move || {
            last.join()
                .map_or(usize::MAX, |n: usize| n.saturating_add(1))
        });
    }
    last
}

#[runnext::test(procs = 2)]
fn a_hundred_thousand_parked() {
    let release = Arc::new(AtomicBool::new(false));
    let last = parked_row(100_000, &release);
    // Everybody has been dispatched, and parked, once the queues have gone round.
    for _ in 0..1000 {
        yield_now();
    }
    assert_eq!(runnext::num_goroutines(), 100_002);
    release.store(true, Relaxed);
    assert_eq!(last.join().unwrap(), 100_000);
    assert_eq!(runnext::num_goroutines(), 1);
}

/// What one goroutine leaves on a stack reaches the next only as garbage below its frames; a million in turn use few.
#[test]
fn goroutines_that_do_not_block_share_few_stacks() {
    child(&[], || {
        let resident = || {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
            pages * 4096
        };
        let rt = runtime(2);
        rt.run(|| {
            let ran = Arc::new(AtomicUsize::new(0));
            let batch = |n: usize| {
                let handles: Vec<_> = (0..n)
                    .map(|_| {
                        let ran = Arc::clone(&ran);
                        go(move || ran.fetch_add(1, Relaxed))
                    })
                    .collect();
                for handle in handles {
                    handle.join().unwrap();
                }
            };
            batch(50_000);
            let before = resident();
            for _ in 0..10 {
                batch(50_000);
            }
            let grown = resident().saturating_sub(before);
            assert_eq!(ran.load(Relaxed), 550_000);
            // 50,000 stacks would be 200 MB.
            assert!(grown < 32 << 20, "grew by {grown} bytes");
        });
    })
    .passed();
}

#[test]
fn mprotected_guards_work_as_well() {
    child(&[("RUNNEXT_DEBUG", "mprotectguards=1")], || {
        let rt = runtime(2);
        rt.run(|| {
            let release = Arc::new(AtomicBool::new(false));
            let last = parked_row(5_000, &release);
            for _ in 0..100 {
                yield_now();
            }
            release.store(true, Relaxed);
            assert_eq!(last.join().unwrap(), 5_000);
            assert_eq!(go(|| deep(200 << 10)).join().unwrap(), 100);
        });
    })
    .passed();
}

/// Where every guard takes mappings, stacks end before the process's mappings do: with an error that says so, for those
/// goroutines only.
#[test]
fn the_end_of_mappings_is_an_error_for_those_too_many() {
    child(&[("RUNNEXT_DEBUG", "mprotectguards=1")], || {
        let rt = runtime(2);
        rt.run(|| refused_when_there_is_room_for_no_more(40_000, "vm.max_map_count"));
    })
    .passed()
    .said(&["cannot start: no stack for it", "vm.max_map_count"]);
}

/// Starts `n` that park, each until the one before it ends. Some cannot start, and say `why`; the others stay parked until
/// they are released, and the runtime goes on.
fn refused_when_there_is_room_for_no_more(n: usize, why: &'static str) {
    static REFUSED: AtomicUsize = AtomicUsize::new(0);
    let release = Arc::new(AtomicBool::new(false));
    let mut last = parked_row(0, &release);
    for _ in 0..n {
        last = go(move || match last.join() {
            Ok(n) => n,
            Err(payload) => {
                let text = message(&*payload);
                assert!(
                    text.contains("cannot start") && text.contains(why),
                    "{text}"
                );
                REFUSED.fetch_add(1, Relaxed);
                0
            }
        });
    }
    until(|| REFUSED.load(Relaxed) > 0);
    assert!(
        runnext::num_goroutines() > 100,
        "the others are still there"
    );
    release.store(true, Relaxed);
    drop(last);
    until(|| runnext::num_goroutines() == 1);
    // Freed stacks serve the next ones.
    assert_eq!(go(|| 1).join().unwrap(), 1);
}

#[test]
fn the_end_of_address_space_is_an_error_for_those_too_many() {
    // One arena: glibc reserves 64 MiB for each further one, and what is left here should be for small things.
    child(&[("MALLOC_ARENA_MAX", "1")], || {
        let rt = runtime(2);
        rt.run(|| go(|| ()).join().unwrap());
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
        let limit = pages * 4096 + (600 << 20);
        let limits = libc::rlimit {
            rlim_cur: limit,
            rlim_max: limit,
        };
        // SAFETY: a valid argument.
        assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_AS, &limits) }, 0);
        rt.run(|| refused_when_there_is_room_for_no_more(4_000, "memory"));
    })
    .passed()
    .said(&["cannot start: no stack for it"]);
}

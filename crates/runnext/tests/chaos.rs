//! Everything at once with `chaos=1`, which puts goroutines in random places: nothing may depend on where they were.

mod common;

use std::cell::Cell;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{Counted, child, runtime};
use runnext::{checkpoint, go, goroutine_local, lock_os_thread, scope, set_procs, yield_now};

goroutine_local! {
    static MINE: Cell<u64> = Cell::new(0);
}

fn tree(depth: u64, tag: u64) -> u64 {
    MINE.with(|m| m.set(tag));
    if depth == 0 {
        yield_now();
        return MINE.with(Cell::get);
    }
    let children: Vec<_> = (0..3)
        .map(|i| go(move || tree(depth - 1, tag * 3 + i)))
        .collect();
    checkpoint();
    let sum = children.into_iter().map(|c| c.join().unwrap()).sum();
    assert_eq!(MINE.with(Cell::get), tag);
    sum
}

fn everything(drops: &Arc<AtomicUsize>) {
    let sum = AtomicUsize::new(0);
    scope(|s| {
        for i in 0..40usize {
            let (sum, held) = (&sum, Counted::new(drops));
            s.go(move || {
                let _held = held;
                match i % 5 {
                    0 => drop(go(yield_now)),
                    1 => assert!(
                        go(|| std::panic::resume_unwind(Box::new(())))
                            .join()
                            .is_err()
                    ),
                    2 => {
                        let _tied = lock_os_thread();
                        yield_now();
                        go(|| ()).join().unwrap();
                    }
                    3 => drop(set_procs(1 + i % 6)),
                    _ => runnext::blocking(yield_now),
                }
                sum.fetch_add(i, Relaxed);
            });
        }
    });
    assert_eq!(sum.load(Relaxed), 780);
    // Sum of the leaves' tags of a ternary tree of depth 4 below the root's 1.
    assert_eq!(tree(4, 1), (81..162).sum::<u64>());
}

fn run(rounds: usize) {
    let rt = runtime(4);
    let drops = Arc::new(AtomicUsize::new(0));
    rt.run(|| {
        for _ in 0..rounds {
            everything(&drops);
        }
    });
    let ends = rt.shutdown(Duration::MAX);
    assert_eq!(ends.abandoned, 0);
    assert_eq!(drops.load(SeqCst), 40 * rounds);
}

#[test]
fn in_order() {
    run(20);
}

#[test]
fn in_disorder() {
    child(&[("RUNNEXT_DEBUG", "chaos=1")], || run(20)).passed();
}

#[test]
fn in_disorder_from_a_few_seeds() {
    for seed in ["1", "2", "3"] {
        let debug = format!("chaos=1,seed={seed}");
        child(&[("RUNNEXT_DEBUG", &debug)], || run(5)).passed();
    }
}

#[test]
fn in_disorder_without_preemption_and_with_mprotected_guards() {
    child(
        &[(
            "RUNNEXT_DEBUG",
            "chaos=1,asyncpreemptoff=1,mprotectguards=1",
        )],
        || run(10),
    )
    .passed();
}

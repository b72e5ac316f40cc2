//! Everything at once, with sums that must come out: groups of all kinds come and go while their goroutines block, lock, sleep, spawn,
//! compute, change groups and have their settings changed.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::time::Duration;

use runnext::sync::{Mutex, WaitGroup};
use runnext::{CpuLimit, Priority, Runtime, TaskGroup, chan, go};

use crate::common::built;

fn dice(x: &mut u64) -> u64 {
    *x ^= *x << 13;
    *x ^= *x >> 7;
    *x ^= *x << 17;
    *x
}

fn some_group(i: u64, parents: &[TaskGroup]) -> TaskGroup {
    let builder = TaskGroup::builder(&format!("group {i}"))
        .weight(50 + (i as u32 % 7) * 50)
        .slice(Duration::from_micros(200 + 300 * (i % 9)))
        .governed(i.is_multiple_of(3))
        .priority(match i % 5 {
            0 => Priority::High,
            1 => Priority::Low,
            _ => Priority::Normal,
        });
    match i % 4 {
        0 => builder.quota(0.3 + (i % 3) as f64),
        1 => builder.parent(&parents[i as usize % parents.len()]),
        _ => builder,
    }
    .build()
}

/// One goroutine's part; returns how many it counted.
fn work(mut x: u64, depth: u32, lock: &Arc<Mutex<u64>>, other: &TaskGroup) -> u64 {
    let mut count = 1;
    for _ in 0..6 {
        match dice(&mut x) % 9 {
            0 => runnext::yield_now(),
            1 => runnext::time::sleep(Duration::from_micros(dice(&mut x) % 700)),
            2 => {
                let mut held = lock.lock();
                *held += 1;
                runnext::yield_now();
                *held -= 1;
            }
            3 => runnext::blocking(|| std::thread::sleep(Duration::from_micros(100))),
            4 => {
                let end = std::time::Instant::now() + Duration::from_micros(dice(&mut x) % 900);
                while std::time::Instant::now() < end {
                    std::hint::spin_loop();
                }
            }
            5 if depth > 0 => {
                let (lock, other) = (Arc::clone(lock), other.clone());
                let seed = dice(&mut x) | 1;
                count += go(move || work(seed, depth - 1, &lock, &other))
                    .join()
                    .unwrap();
            }
            6 => other.enter(|| {
                runnext::checkpoint();
                assert_eq!(TaskGroup::current().as_ref(), Some(other));
            }),
            7 => {
                let (tx, rx) = chan::bounded(0);
                other.go(move || tx.send(1).unwrap());
                count += rx.recv().unwrap();
                count -= 1;
            }
            _ => {
                other.set_weight(1 + (dice(&mut x) % 400) as u32);
                if dice(&mut x).is_multiple_of(4) {
                    other.set_quota(Some(0.5 + (dice(&mut x) % 3) as f64));
                    other.set_quota(None);
                }
            }
        }
    }
    count
}

fn everything(limit: CpuLimit, procs: usize, seed: u64) {
    let rt = built(Runtime::builder().procs(procs).cpu_limit(limit));
    let counted = rt.run(|| {
        let lock = Arc::new(Mutex::new(0u64));
        let started = Arc::new(AtomicU64::new(0));
        let parents = [
            TaskGroup::builder("one").quota(0.7).build(),
            TaskGroup::new("two"),
        ];
        let all = WaitGroup::new();
        let mut x = seed;
        for round in 0..12 {
            let groups: Vec<TaskGroup> = (0..8)
                .map(|i| some_group(round * 8 + i, &parents))
                .collect();
            for i in 0..40 {
                let (lock, started) = (Arc::clone(&lock), Arc::clone(&started));
                let other = groups[(i + 3) % 8].clone();
                let seed = dice(&mut x) | 1;
                let group = groups[i % 8].clone();
                all.add(1);
                let done = all.clone();
                group.go(move || {
                    started.fetch_add(work(seed, 2, &lock, &other), Relaxed);
                    done.done();
                });
            }
            if round % 4 == 3 {
                runnext::set_procs(1 + (round as usize / 4) % 3);
            }
        }
        all.wait();
        assert_eq!(*lock.lock(), 0);
        started.load(Relaxed)
    });
    assert!(counted >= 480, "{counted}");
}

#[test]
fn without_a_limit() {
    everything(CpuLimit::Unlimited, 2, 0x9e37_79b9);
}

#[test]
fn with_a_part_for_the_governed() {
    everything(CpuLimit::Fraction(0.5), 3, 0x1234_5677);
}

#[test]
fn with_a_limit_that_adapts() {
    let target_p99 = Duration::from_micros(500);
    everything(CpuLimit::Adaptive { target_p99 }, 1, 0xdead_beef);
}

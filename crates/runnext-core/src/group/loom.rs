//! The shared record under every interleaving: whatever races, weights and counts come out exact.
//!
//! Vtimes may be off by a step while others are half-way (see `vtime`); the sum of weights, the level of a bucket and the number of
//! Ps a group is on may not.

use std::sync::Arc;

use ::loom::thread;

use super::Clocks;
use super::bucket::Bucket;
use super::config::{MS, Priority, Rate};
use super::shared::Group;
use super::word::{HIGH_FACTOR, Word};

/// Up to two preemptions, unless `LOOM_MAX_PREEMPTIONS` says otherwise.
fn model(f: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(2);
    builder.check(f);
}

fn group(weight: u32) -> Arc<(Group, Clocks)> {
    let group = Group::empty();
    assert!(group.claim(Word::dead(), Word::alive(weight, Priority::Normal)));
    Arc::new((group, Clocks::default()))
}

#[test]
fn weights_are_exact_when_all_change_at_once() {
    model(|| {
        let shared = group(100);
        let a = shared.clone();
        let other = thread::spawn(move || {
            a.0.appear(&a.1, 1, 0);
            a.0.set_weight(&a.1, 300, 0);
            a.0.vanish(&a.1, 1, 0);
        });
        shared.0.appear(&shared.1, 0, 0);
        other.join().expect("no panic");
        let (group, clocks) = &*shared;
        assert_eq!(group.word().present(), 1);
        assert_eq!(clocks.of(Priority::Normal).weight(), 300);
        group.vanish(clocks, 0, 0);
        assert_eq!(clocks.of(Priority::Normal).weight(), 0);
    });
}

#[test]
fn a_group_is_in_one_clock_only() {
    model(|| {
        let shared = group(100);
        let a = shared.clone();
        shared.0.appear(&shared.1, 0, 0);
        let changes = thread::spawn(move || a.0.set_priority(&a.1, Priority::Low, 0));
        shared.0.throttle(&shared.1, 5, 0);
        shared.0.resume(&shared.1, 5);
        changes.join().expect("no panic");
        let (group, clocks) = &*shared;
        assert_eq!(clocks.of(Priority::Normal).weight(), 0);
        assert_eq!(clocks.of(Priority::Low).weight(), 100);
        group.set_priority(clocks, Priority::High, 0);
        assert_eq!(clocks.of(Priority::Low).weight(), 0);
        let high = u64::from(100 * HIGH_FACTOR);
        assert_eq!(clocks.of(Priority::High).weight(), high);
    });
}

#[test]
fn a_bucket_counts_every_take_and_gift() {
    model(|| {
        let rate = Rate::cores(1.0).expect("good");
        let bucket = Arc::new(Bucket::new(rate, 8 * MS, 8 * MS, 0));
        let a = bucket.clone();
        let other = thread::spawn(move || {
            a.take(0, 3 * MS);
            a.give(MS);
        });
        bucket.take(0, 2 * MS);
        other.join().expect("no panic");
        assert_eq!(bucket.level(0), 4 * MS as i64);
    });
}

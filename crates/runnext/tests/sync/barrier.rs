use std::sync::atomic::{AtomicUsize, Ordering::*};

use runnext::sync::Barrier;

use crate::{mixed, on_each};

/// Nobody is a round ahead of anybody, and each round has one leader.
#[test]
fn rounds() {
    on_each(|| {
        const N: usize = 7;
        let barrier = Barrier::new(N);
        let (came, leaders) = (AtomicUsize::new(0), AtomicUsize::new(0));
        mixed(N, |_| {
            for round in 1..=100 {
                came.fetch_add(1, Relaxed);
                if barrier.wait().is_leader() {
                    leaders.fetch_add(1, Relaxed);
                }
                assert!(came.load(Relaxed) >= round * N);
                barrier.wait();
            }
        });
        assert_eq!(leaders.into_inner(), 100);
    });
}

#[test]
fn of_none_and_of_one() {
    assert!(Barrier::new(0).wait().is_leader());
    assert!(Barrier::new(1).wait().is_leader());
}

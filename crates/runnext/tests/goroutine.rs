//! Goroutines as their users see them.

use std::sync::atomic::{AtomicUsize, Ordering::*};

#[runnext::test]
fn join_returns_the_value() {
    assert_eq!(runnext::go(|| 6 * 7).join().unwrap(), 42);
}

#[runnext::test(procs = 2)]
fn many() {
    static N: AtomicUsize = AtomicUsize::new(0);
    for _ in 0..100 {
        let hs: Vec<_> = (0..1000)
            .map(|i| {
                runnext::go(move || {
                    N.fetch_add(1, Relaxed);
                    i
                })
            })
            .collect();
        for (i, h) in hs.into_iter().enumerate() {
            assert_eq!(h.join().unwrap(), i);
        }
    }
    assert_eq!(N.load(Relaxed), 100_000);
    assert_eq!(runnext::num_goroutines(), 1);
}

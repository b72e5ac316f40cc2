//! Who gets how much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use runnext::TaskGroup;

use crate::common::runtime;

/// Hogs that checkpoint, in each group, for a while; what each used.
fn share(groups: &[(TaskGroup, usize)], d: Duration, procs: usize) -> Vec<Duration> {
    let stop = Arc::new(AtomicBool::new(false));
    runtime(procs).run(|| {
        let mut all = Vec::new();
        for (group, hogs) in groups {
            for _ in 0..*hogs {
                let stop = Arc::clone(&stop);
                all.push(group.go(move || {
                    while !stop.load(Relaxed) {
                        std::hint::black_box((0..200u64).sum::<u64>());
                        runnext::checkpoint();
                    }
                }));
            }
        }
        let before: Vec<Duration> = groups.iter().map(|(g, _)| g.stats().cpu_time).collect();
        runnext::time::sleep(d);
        let used = groups
            .iter()
            .zip(before)
            .map(|((g, _), b)| g.stats().cpu_time - b)
            .collect();
        stop.store(true, Relaxed);
        for hog in all {
            hog.join().unwrap();
        }
        used
    })
}

#[test]
fn weights_share_the_processors() {
    let groups: Vec<(TaskGroup, usize)> = [(100, 20), (200, 8), (400, 4)]
        .into_iter()
        .map(|(w, n)| (TaskGroup::builder(&format!("w{w}")).weight(w).build(), n))
        .collect();
    let used = share(&groups, Duration::from_secs(1), 2);
    let all: Duration = used.iter().sum();
    for (used, weight) in used.iter().zip([1.0, 2.0, 4.0]) {
        let part = used.as_secs_f64() / all.as_secs_f64();
        assert!(
            (part / (weight / 7.0) - 1.0).abs() < 0.25,
            "{weight}: {part}; {used:?}"
        );
    }
}

//! Who gets how much.

use std::ops::Sub;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use runnext::{CpuLimit, Priority, Runtime, TaskGroup};

use crate::common::{built, runtime, until};

/// How long hogs run.
#[derive(Clone, Copy)]
enum For {
    /// Until they have used so much together: what shares are of, however busy the machine is.
    Cpu(Duration),
    /// For so long: what limits are relative to.
    Wall(Duration),
}

/// Hogs that checkpoint, in each group, for a while; what each used.
fn share(groups: &[(TaskGroup, usize)], how_long: For) -> Vec<Duration> {
    share_on(&runtime(2), groups, how_long)
}

fn share_on(rt: &Runtime, groups: &[(TaskGroup, usize)], how_long: For) -> Vec<Duration> {
    let stop = Arc::new(AtomicBool::new(false));
    let done: Vec<_> = groups.iter().map(|_| Arc::new(AtomicU64::new(0))).collect();
    rt.run(|| {
        let mut all = Vec::new();
        for ((group, hogs), done) in groups.iter().zip(&done) {
            for _ in 0..*hogs {
                let (stop, done) = (Arc::clone(&stop), Arc::clone(done));
                all.push(group.go(move || {
                    while !stop.load(Relaxed) {
                        std::hint::black_box((0..200u64).sum::<u64>());
                        done.fetch_add(1, Relaxed);
                        runnext::checkpoint();
                    }
                }));
            }
        }
        let used = since(|| groups.iter().map(|(g, _)| g.stats().cpu_time).collect());
        let work = since(|| done.iter().map(|n| n.load(Relaxed)).collect());
        let used = match how_long {
            For::Wall(d) => {
                runnext::time::sleep(d);
                used()
            }
            For::Cpu(d) => {
                while used().iter().sum::<Duration>() < d {
                    runnext::time::sleep(Duration::from_millis(20));
                }
                // By the work done: while the system runs something else in the middle of a turn, the group's time runs on until the
                // monitor has seen it.
                let work = work();
                let all = work.iter().sum::<u64>() as f64;
                work.iter().map(|&n| d.mul_f64(n as f64 / all)).collect()
            }
        };
        stop.store(true, Relaxed);
        for hog in all {
            hog.join().unwrap();
        }
        used
    })
}

/// How much each of what `read` gives has grown since now.
fn since<T: Copy + Sub<Output = T>>(read: impl Fn() -> Vec<T>) -> impl Fn() -> Vec<T> {
    let before = read();
    move || {
        let grown = |(now, before): (T, &T)| now - *before;
        read().into_iter().zip(&before).map(grown).collect()
    }
}

#[test]
fn weights_share_the_processors() {
    let groups: Vec<(TaskGroup, usize)> = [(100, 20), (200, 8), (400, 4)]
        .into_iter()
        .map(|(w, n)| (TaskGroup::builder(&format!("w{w}")).weight(w).build(), n))
        .collect();
    let used = share(&groups, For::Cpu(Duration::from_secs(1)));
    let all: Duration = used.iter().sum();
    for (used, weight) in used.iter().zip([1.0, 2.0, 4.0]) {
        let part = used.as_secs_f64() / all.as_secs_f64();
        assert!(
            (part / (weight / 7.0) - 1.0).abs() < 0.25,
            "{weight}: {part}; {used:?}"
        );
    }
}

#[test]
fn a_quota_is_kept_and_a_parents_binds() {
    const QUOTA: f64 = 0.1;
    let parent = TaskGroup::builder("parent").quota(QUOTA).build();
    let groups = [
        (TaskGroup::builder("a").parent(&parent).build(), 2),
        (TaskGroup::builder("b").parent(&parent).build(), 2),
        (TaskGroup::new("rest"), 2),
    ];
    let d = Duration::from_secs(1);
    let used = share(&groups, For::Wall(d));
    let all = used[0] + used[1];
    assert!(all < d.mul_f64(QUOTA * 1.5), "both together: {used:?}");
    // If the machine left us enough: a third of what there was is theirs, and more than the quota.
    if all + used[2] > d.mul_f64(QUOTA * 6.0) {
        assert!(all > d.mul_f64(QUOTA / 2.0), "and not much less: {used:?}");
    }
    assert!(used[0] < 4 * used[1] && used[1] < 4 * used[0], "{used:?}");
    let throttled = groups.iter().map(|(g, _)| g.stats().throttled_count);
    assert!(throttled.sum::<u64>() > 0);
}

#[test]
fn low_gets_the_rest_and_never_nothing() {
    let low = TaskGroup::builder("low").priority(Priority::Low).build();
    let groups = [(TaskGroup::new("normal"), 4), (low, 4)];
    let used = share(&groups, For::Cpu(Duration::from_secs(1)));
    let part = used[1].as_secs_f64() / (used[0] + used[1]).as_secs_f64();
    assert!((0.02..0.45).contains(&part), "{used:?}");
    groups[0].0.set_quota(Some(0.05));
    let used = share(&groups, For::Wall(Duration::from_secs(1)));
    // If the machine left us more than twice the quota.
    if used[0] + used[1] > Duration::from_millis(150) {
        assert!(used[1] > used[0], "{used:?}");
    }
}

/// One that was alone on its P stayed alone there, while the others of its group shared one.
#[test]
fn goroutines_of_a_group_share_all_processors() {
    const HOGS: usize = 9;
    let group = TaskGroup::new("nine");
    let stop = Arc::new(AtomicBool::new(false));
    runtime(2).run(|| {
        let start = || {
            let stop = Arc::clone(&stop);
            group.go(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let first = start();
        until(|| group.stats().running == 1); // on the other P
        let hogs: Vec<_> = std::iter::once(first)
            .chain((1..HOGS).map(|_| start()))
            .collect();
        let used = || hogs.iter().map(|hog| hog.goroutine().cpu_time());
        while used().sum::<Duration>() < Duration::from_secs(2) {
            runnext::time::sleep(Duration::from_millis(20));
        }
        let used: Vec<Duration> = used().collect();
        stop.store(true, Relaxed);
        for hog in hogs {
            hog.join().unwrap();
        }
        let mean = used.iter().sum::<Duration>() / HOGS as u32;
        assert!(used.iter().all(|used| *used < 3 * mean), "{used:?}");
    });
}

#[test]
fn a_weight_change_is_felt() {
    let groups = [(TaskGroup::new("a"), 4), (TaskGroup::new("b"), 4)];
    let used = share(&groups, For::Cpu(Duration::from_millis(500)));
    let ratio = used[0].as_secs_f64() / used[1].as_secs_f64();
    assert!((0.7..1.4).contains(&ratio), "{used:?}");
    groups[0].0.set_weight(500);
    let used = share(&groups, For::Cpu(Duration::from_millis(500)));
    let ratio = used[0].as_secs_f64() / used[1].as_secs_f64();
    assert!((3.0..8.0).contains(&ratio), "{used:?}");
}

#[test]
fn the_governor_leaves_what_it_should() {
    let rt = built(
        Runtime::builder()
            .procs(2)
            .cpu_limit(CpuLimit::Fraction(0.1)),
    );
    let governed = TaskGroup::builder("governed").governed(true).build();
    let groups = [(governed, 4)];
    let d = Duration::from_secs(1);
    let used = share_on(&rt, &groups, For::Wall(d));
    // A tenth of two cores, far less than is left to us on a busy machine, and what the bucket held at first.
    assert!(used[0] < d.mul_f64(0.4), "{used:?}");
    assert!(used[0] > d.mul_f64(0.1), "{used:?}");
    assert!(groups[0].0.stats().throttled_count > 0);
}

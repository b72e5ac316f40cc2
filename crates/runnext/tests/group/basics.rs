//! Belonging: inheritance, entering, nesting, ends, accounts.

use std::time::{Duration, Instant};

use runnext::{TaskGroup, chan, go};

use crate::common::runtime;

fn spin(d: Duration) {
    let end = Instant::now() + d;
    while Instant::now() < end {
        std::hint::spin_loop();
    }
}

#[test]
fn children_inherit_and_strangers_do_not() {
    let group = TaskGroup::new("family");
    runtime(2).run(|| {
        let names = group.go(|| {
            let child = go(|| {
                go(|| TaskGroup::current().map(|g| g.name().to_owned()))
                    .join()
                    .unwrap()
            });
            child.join().unwrap()
        });
        assert_eq!(names.join().unwrap().as_deref(), Some("family"));
        assert!(go(TaskGroup::current).join().unwrap().is_none());
        assert_eq!(group.stats().goroutines, 0);
    });
}

#[test]
fn many_switches_in_groups() {
    runtime(2).run(|| {
        let groups: Vec<TaskGroup> = (0..5).map(|i| TaskGroup::new(&format!("g{i}"))).collect();
        let all: Vec<_> = (0..100)
            .map(|i| {
                groups[i % 5].go(move || {
                    for _ in 0..1000 {
                        runnext::yield_now();
                    }
                    i
                })
            })
            .collect();
        let sum: usize = all.into_iter().map(|j| j.join().unwrap()).sum();
        assert_eq!(sum, 4950);
    });
}

#[test]
fn channels_between_groups() {
    runtime(2).run(|| {
        let (a, b) = (TaskGroup::new("a"), TaskGroup::new("b"));
        let (tx, rx) = chan::bounded(0);
        let (back, answers) = chan::bounded(0);
        a.go(move || {
            for i in 0..10_000u64 {
                tx.send(i).unwrap();
                assert_eq!(answers.recv().unwrap(), i * 2);
            }
        });
        let echo = b.go(move || rx.iter().map(|i| back.send(i * 2).unwrap()).count());
        assert_eq!(echo.join().unwrap(), 10_000);
    });
}

#[test]
fn time_is_counted() {
    let group = TaskGroup::new("work");
    runtime(2).run(|| {
        let work = group.go(|| spin(Duration::from_millis(50)));
        let goroutine = work.goroutine().clone();
        work.join().unwrap();
        let stats = group.stats();
        assert!(stats.cpu_time >= Duration::from_millis(10), "{stats:?}");
        assert!(goroutine.cpu_time() >= Duration::from_millis(10));
    });
    assert!(
        group.stats().cpu_time >= Duration::from_millis(10),
        "kept after the runtime"
    );
}

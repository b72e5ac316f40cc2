//! Settings that make no sense are refused with advice or clamped; nothing hangs.

use std::panic;
use std::time::Duration;

use runnext::{CpuLimit, Priority, Runtime, TaskGroup};

use crate::common::{built, message, runtime};

#[test]
fn quotas_that_are_no_quotas_are_refused() {
    let group = TaskGroup::new("any");
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -1.0] {
        let refused = panic::catch_unwind(|| TaskGroup::builder("bad").quota(bad).build());
        let why = refused.expect_err("no such quota");
        assert!(message(&*why).contains("positive number of cores"), "{bad}");
        let group = group.clone();
        assert!(panic::catch_unwind(move || group.set_quota(Some(bad))).is_err());
    }
    group.set_quota(Some(1.0));
    group.set_quota(None);
}

#[test]
fn extremes_are_clamped_and_work() {
    let extremes = [
        TaskGroup::builder("least")
            .weight(0)
            .quota(f64::MIN_POSITIVE)
            .burst(Duration::ZERO)
            .slice(Duration::ZERO)
            .build(),
        TaskGroup::builder("most")
            .weight(u32::MAX)
            .quota(1e300)
            .burst(Duration::MAX)
            .slice(Duration::from_secs(3600))
            .build(),
        TaskGroup::builder("low")
            .priority(Priority::Low)
            .governed(true)
            .build(),
    ];
    runtime(2).run(|| {
        let all: Vec<_> = (0..60)
            .map(|i| {
                extremes[i % 3].go(move || {
                    runnext::yield_now();
                    i
                })
            })
            .collect();
        let sum: usize = all.into_iter().map(|g| g.join().unwrap()).sum();
        assert_eq!(sum, 1770);
        extremes[0].set_weight(0);
        extremes[1].set_weight(u32::MAX);
    });
}

#[test]
fn groups_nest_two_deep() {
    let top = TaskGroup::new("top");
    let middle = TaskGroup::builder("middle").parent(&top).build();
    assert_eq!(middle.parent(), Some(top));
    let refused = panic::catch_unwind(|| TaskGroup::builder("deep").parent(&middle).build());
    let why = refused.expect_err("too deep");
    assert!(message(&*why).contains("two deep"));
}

#[test]
fn limits_of_the_runtime() {
    for bad in [f64::NAN, f64::INFINITY, 0.0, -0.5, 1.001, 2.0, 80.0] {
        // SAFETY: nothing runs.
        let refused = unsafe {
            Runtime::builder()
                .procs(1)
                .cpu_limit(CpuLimit::Fraction(bad))
                .build()
        };
        let why = refused.expect_err("no such limit");
        assert_eq!(why.kind(), std::io::ErrorKind::InvalidInput, "{bad}");
        assert!(why.to_string().contains("above 0 and up to 1"), "{why}");
    }
    // Below the floor, all, and targets of nothing and for ever.
    for odd in [
        CpuLimit::Fraction(1e-9),
        CpuLimit::Fraction(1.0),
        CpuLimit::Adaptive {
            target_p99: Duration::ZERO,
        },
        CpuLimit::Adaptive {
            target_p99: Duration::MAX,
        },
    ] {
        let rt = built(Runtime::builder().procs(2).cpu_limit(odd));
        let group = TaskGroup::builder("governed").governed(true).build();
        assert_eq!(rt.run(|| group.go(|| 5).join().unwrap()), 5);
    }
}

#[test]
fn a_group_belongs_to_one_runtime_at_a_time() {
    let group = TaskGroup::new("shared");
    let one = runtime(1);
    one.run(|| group.go(|| ()).join().unwrap());
    let two = runtime(1);
    let refused = panic::catch_unwind(panic::AssertUnwindSafe(|| {
        two.run(|| drop(group.go(|| ())))
    }));
    let why = refused.expect_err("in use elsewhere");
    assert!(message(&*why).contains("another runtime"));
    drop(one);
    two.run(|| group.go(|| ()).join().unwrap());
    assert_eq!(group.stats().goroutines, 0);
}

use super::*;
use crate::testing::{burn_cpu, child_passes};
use crate::thread;
use std::sync::atomic::{AtomicBool, AtomicI32};
use std::thread as os;
use std::time::Duration;

#[test]
fn monotonic_time_does_not_go_back() {
    let mut last = now_ns();
    for _ in 0..1000 {
        let now = now_ns();
        assert!(now >= last);
        last = now;
    }
}

#[test]
fn ticks_agree_with_the_clock() {
    init();
    // The tick interval lies inside the outer clock interval and around the inner one, so a
    // preemption anywhere widens the bounds.
    let outer_start = now_ns();
    let start = ticks();
    let inner_start = now_ns();
    while now_ns() < inner_start + 20_000_000 {}
    let inner = now_ns() - inner_start;
    let delta = ticks_to_ns(ticks() - start);
    let outer = now_ns() - outer_start;
    // A part in a hundred for the calibration.
    assert!(
        delta >= inner - inner / 100,
        "{delta} ns by ticks, at least {inner} by the clock"
    );
    assert!(
        delta <= outer + outer / 100,
        "{delta} ns by ticks, at most {outer} by the clock"
    );
}

#[test]
fn conversion_is_linear_and_stays_the_same() {
    assert_eq!(ticks_to_ns(0), 0);
    let hour = ticks_to_ns(1 << 43);
    assert_eq!(hour, ticks_to_ns(1 << 43));
    assert!(ticks_to_ns(1 << 44).abs_diff(2 * hour) <= 2);
    assert!(ticks_to_ns(u64::MAX) > 0, "no overflow panic");
}

#[test]
fn threads_that_calibrate_at_once_agree() {
    child_passes(|| {
        let scales: Vec<u64> = os::scope(|s| {
            let threads: Vec<_> = (0..4).map(|_| s.spawn(|| ticks_to_ns(1 << 40))).collect();
            threads
                .into_iter()
                .map(|t| t.join().expect("no panic"))
                .collect()
        });
        assert!(scales.iter().all(|&scale| scale == scales[0]), "{scales:?}");
    });
}

#[test]
fn without_a_steady_counter_ticks_are_nanoseconds() {
    child_passes(|| {
        SOURCE.store(MONOTONIC, Relaxed);
        let before = now_ns();
        let now = ticks();
        assert!(before <= now && now <= now_ns());
        assert_eq!(ticks_to_ns(123_456_789), 123_456_789);
    });
}

#[test]
fn only_slow_hardware_clocks_are_a_verdict() {
    for slow in ["hpet\n", "acpi_pm\n", "refined-jiffies\n"] {
        assert!(is_fallback_clock(slow.as_bytes()), "{slow}");
    }
    for fine in [
        "tsc\n",
        "kvm-clock\n",
        "hyperv_clocksource_tsc_page\n",
        "arch_sys_counter\n",
        "",
    ] {
        assert!(!is_fallback_clock(fine.as_bytes()), "{fine}");
    }
}

#[test]
fn cpu_time_counts_work_and_not_sleep() {
    os::spawn(|| {
        let start = thread_cpu_ns();
        burn_cpu(2_000_000);
        let worked = thread_cpu_ns();
        assert!(worked >= start + 2_000_000);
        os::sleep(Duration::from_millis(200));
        assert!(
            thread_cpu_ns() - worked < 200_000_000,
            "200 ms of sleep cost 200 ms of CPU"
        );
    })
    .join()
    .expect("no panic");
}

#[test]
fn another_threads_cpu_time() {
    let (tid, stop) = (AtomicI32::new(0), AtomicBool::new(false));
    let clock = os::scope(|s| {
        s.spawn(|| {
            tid.store(thread::tid(), Release);
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        });
        while tid.load(Acquire) == 0 {
            os::yield_now();
        }
        let clock = ThreadCpu::of(tid.load(Acquire));
        let first = clock.read().expect("alive");
        while clock.read().expect("alive") <= first + 1_000_000 {
            os::yield_now();
        }
        stop.store(true, Relaxed);
        clock
    });
    errno::set(4711);
    // Joining returns a little before the kernel has taken the thread off its list.
    while clock.read().is_some() {
        os::yield_now();
    }
    assert_eq!(errno::get(), 4711, "errno is left alone, also by a failure");
}

#[test]
fn own_clock_and_own_thread_agree() {
    os::spawn(|| {
        let me = ThreadCpu::of(thread::tid());
        let before = thread_cpu_ns();
        let between = me.read().expect("alive");
        assert!(before <= between && between <= thread_cpu_ns());
    })
    .join()
    .expect("no panic");
}

#[test]
fn nanoseconds_split() {
    let t = timespec(1_000_000_001);
    assert_eq!((t.tv_sec, t.tv_nsec), (1, 1));
    let t = timespec(u64::MAX);
    assert!(t.tv_sec > 0 && (0..1_000_000_000).contains(&t.tv_nsec));
}

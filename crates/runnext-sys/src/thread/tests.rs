use super::*;
use crate::testing::await_sleep;
use crate::{errno, futex};
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicU32, Ordering::*};
use std::thread as os;

/// Starts a thread that runs `body`, gives its id to `observer`, and joins it when that returns.
fn observe<T>(body: impl FnOnce() + Send, observer: impl FnOnce(i32) -> T) -> T {
    let id = AtomicI32::new(0);
    os::scope(|s| {
        s.spawn(|| {
            id.store(tid(), Release);
            body();
        });
        while id.load(Acquire) == 0 {
            os::yield_now();
        }
        observer(id.load(Acquire))
    })
}

#[test]
fn ids_differ_by_thread() {
    observe(|| (), |other| assert_ne!(other, tid()));
    assert_eq!(tid(), tid());
}

#[test]
fn tgkill_reports() {
    tgkill(tid(), 0).expect("signal 0 only asks whether the thread is there");
    assert_eq!(
        tgkill(tid(), 999)
            .expect_err("no such signal")
            .raw_os_error(),
        Some(libc::EINVAL)
    );
    assert_eq!(
        tgkill(i32::MAX, 0)
            .expect_err("no such thread")
            .raw_os_error(),
        Some(libc::ESRCH)
    );
    let init = 1;
    assert_eq!(
        tgkill(init, 0).expect_err("not ours").raw_os_error(),
        Some(libc::ESRCH)
    );
}

#[test]
fn a_sleeper_shows_s() {
    let word = AtomicU32::new(0);
    let sleep = || {
        while word.load(Acquire) == 0 {
            futex::wait(&word, 0);
        }
    };
    observe(sleep, |id| {
        await_sleep(id);
        word.store(1, Release);
        futex::wake_one(&word);
    });
}

#[test]
fn a_spinner_shows_r() {
    let stop = AtomicBool::new(false);
    let spin = || {
        while !stop.load(Relaxed) {
            std::hint::spin_loop();
        }
    };
    let states = observe(spin, |id| {
        let thread = StatReader::open(id).expect("alive");
        while thread.state() != Some(b'R') {
            os::yield_now();
        }
        // Also while it waits for a CPU: what counts is that it does not sleep.
        let states: Vec<_> = (0..100).map(|_| thread.state()).collect();
        stop.store(true, Relaxed);
        states
    });
    assert!(
        states.iter().all(|&state| state == Some(b'R')),
        "{states:?}"
    );
}

#[test]
fn the_dead_have_no_state() {
    let word = AtomicU32::new(0);
    let sleep = || {
        while word.load(Acquire) == 0 {
            futex::wait(&word, 0);
        }
    };
    let thread = observe(sleep, |id| {
        let thread = StatReader::open(id).expect("alive");
        word.store(1, Release);
        futex::wake_one(&word);
        thread
    });
    errno::set(4711);
    while thread
        .state()
        .is_some_and(|state| state != b'X' && state != b'Z')
    {
        os::yield_now();
    }
    assert_eq!(errno::get(), 4711);
    let error = StatReader::open(i32::MAX).expect_err("no such thread");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn names_do_not_confuse_the_parser() {
    assert_eq!(state_in(b"12 (worker) S 1 12 12"), Some(b'S'));
    assert_eq!(state_in(b"12 (a) R 1 (b) D 1 12"), Some(b'D'));
    assert_eq!(state_in(b"12 ()) T 1 12 12"), Some(b'T'));
    assert_eq!(state_in(b"12 (worker)"), None);
    assert_eq!(state_in(b""), None);
}

#[test]
fn the_cpu_is_found_behind_any_name() {
    let numbers = (4..=52).map(|field| (100 + field).to_string());
    let rest = numbers.collect::<Vec<_>>().join(" ");
    for name in ["worker", "a) R 1 (b", ""] {
        let stat = format!("12 ({name}) R {rest}\n");
        assert_eq!(cpu_in(stat.as_bytes()), Some(139));
    }
    assert_eq!(cpu_in(b"12 (worker) R 1 2 3"), None);
    assert_eq!(cpu_in(b""), None);
    let me = StatReader::open(tid()).unwrap();
    assert!(me.computes_on().unwrap() < 1 << 20);
}

#[test]
fn the_descriptor_is_not_inherited() {
    let thread = StatReader::open(tid()).expect("alive");
    // SAFETY: asks for a flag.
    let flags = unsafe { libc::fcntl(thread.stat.as_raw_fd(), libc::F_GETFD) };
    assert_ne!(flags & libc::FD_CLOEXEC, 0);
}

fn attributes() -> libc::sched_attr {
    // SAFETY: integers, for which zero is valid.
    let mut attr: libc::sched_attr = unsafe { std::mem::zeroed() };
    let size = size_of_val(&attr);
    // SAFETY: the kernel writes at most `size` bytes.
    crate::check(unsafe { syscall!(libc::SYS_sched_getattr, 0, &raw mut attr, size, 0) })
        .expect("readable");
    attr
}

#[test]
fn a_slice_keeps_nice_and_policy() {
    let body = || {
        // SAFETY: makes this thread nicer.
        unsafe { libc::setpriority(libc::PRIO_PROCESS, tid() as u32, 3) };
        let before = attributes();
        assert!(request_slice(300_000));
        let after = attributes();
        assert_eq!(after.sched_nice, 3);
        assert_eq!(after.sched_policy, before.sched_policy);
        // Kernels before 6.12 say 0 here.
        assert!(
            [0, 300_000].contains(&after.sched_runtime),
            "{}",
            after.sched_runtime
        );
    };
    observe(body, |_| ());
}

#[test]
fn a_slice_is_refused_off_the_normal_policy() {
    let body = || {
        let param = libc::sched_param { sched_priority: 0 };
        // SAFETY: concerns this thread only.
        let set = unsafe { libc::sched_setscheduler(0, libc::SCHED_IDLE, &param) };
        assert_eq!(set, 0);
        assert!(!request_slice(300_000));
        assert_eq!(attributes().sched_policy, libc::SCHED_IDLE as u32);
    };
    observe(body, |_| ());
}

#[test]
fn timer_slack_is_the_threads_own() {
    // SAFETY: asks for an integer.
    let slack = || unsafe { libc::prctl(libc::PR_GET_TIMERSLACK) };
    let before = slack();
    let body = || {
        set_timer_slack(0);
        assert_eq!(slack(), 1);
    };
    observe(body, |_| ());
    assert_eq!(slack(), before);
}

#[test]
fn the_next_cpu_of_a_set() {
    let mut set = CpuSet([0; 16]);
    assert_eq!(set.after(5), None, "of none there is no next one");
    assert!(set.is_empty());
    for cpu in [3, 64, 1023] {
        set.0[cpu / 64] |= 1 << (cpu % 64);
    }
    assert_eq!(set.len(), 3);
    let next = |cpu| set.after(cpu).expect("there are some");
    assert_eq!([0, 3, 64, 1023].map(next), [3, 64, 1023, 3]);
    assert_eq!(CpuSet::only(64).and_then(|one| one.after(64)), Some(64));
    assert_eq!(CpuSet::only(1024), None);
}

#[test]
fn a_thread_is_on_a_cpu_of_its_set() {
    let may = CpuSet::of(0).expect("fewer than 1,024 CPUs");
    let here = CpuSet::only(cpu()).expect("fewer than 1,024 CPUs");
    assert!(may.contains(&here));
}

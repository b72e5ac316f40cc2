use super::*;
use crate::testing::{await_sleep, child_passes, forbid};
use crate::{errno, signal, thread};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicI32, AtomicU64};
use std::thread as os;

fn pair() -> (UnixStream, UnixStream) {
    let (a, b) = UnixStream::pair().expect("a socket pair");
    a.set_nonblocking(true).expect("set");
    b.set_nonblocking(true).expect("set");
    (a, b)
}

fn now(poller: &Poller) -> Vec<Event> {
    let mut events = Events::new();
    let n = poller.poll(&mut events, Some(0)).expect("polled");
    assert_eq!((n, n == 0), (events.len(), events.is_empty()));
    events.iter().collect()
}

#[test]
fn tells_what_is_ready_once() {
    let (mut here, mut there) = pair();
    let poller = Poller::new().expect("made");
    poller.add(there.as_raw_fd(), 7).expect("added");
    let writable = Event {
        token: 7,
        readable: false,
        writable: true,
        error: false,
        ending: false,
    };
    assert_eq!(now(&poller), [writable], "ready when added");
    assert_eq!(now(&poller), [], "an edge is told once");
    here.write_all(b"x").expect("written");
    assert_eq!(
        now(&poller),
        [Event {
            readable: true,
            ..writable
        }]
    );
    assert_eq!(now(&poller), [], "still unread, but no new edge");
    here.write_all(b"y").expect("written");
    assert_eq!(now(&poller).len(), 1, "new data is a new edge");
    assert_eq!(there.read(&mut [0; 8]).expect("read"), 2);
}

#[test]
fn hang_up_is_ready_both_ways() {
    let (here, there) = pair();
    let poller = Poller::new().expect("made");
    poller.add(there.as_raw_fd(), 7).expect("added");
    drop(here);
    assert_eq!(
        now(&poller),
        [Event {
            token: 7,
            readable: true,
            writable: true,
            error: false,
            ending: true
        }]
    );
}

#[test]
fn bits_become_directions() {
    let directions = |bits: i32| {
        let event = Event::new(1, bits as u32);
        (event.readable, event.writable, event.error)
    };
    assert_eq!(directions(libc::EPOLLIN), (true, false, false));
    assert_eq!(directions(libc::EPOLLRDHUP), (true, false, false));
    assert_eq!(directions(libc::EPOLLOUT), (false, true, false));
    assert_eq!(directions(libc::EPOLLHUP), (true, true, false));
    assert_eq!(directions(libc::EPOLLERR), (true, true, true));
    assert_eq!(
        directions(libc::EPOLLERR | libc::EPOLLIN),
        (true, true, false)
    );
}

#[test]
fn removed_means_silent() {
    let (mut here, there) = pair();
    let poller = Poller::new().expect("made");
    poller.add(there.as_raw_fd(), 7).expect("added");
    let again = poller
        .add(there.as_raw_fd(), 8)
        .expect_err("already watched");
    assert_eq!(again.kind(), io::ErrorKind::AlreadyExists);
    poller.remove(there.as_raw_fd()).expect("removed");
    here.write_all(b"x").expect("written");
    assert_eq!(now(&poller), []);
    let error = poller.remove(there.as_raw_fd()).expect_err("not watched");
    assert_eq!(error.kind(), io::ErrorKind::NotFound);
}

#[test]
fn a_regular_file_cannot_be_polled() {
    let file = std::fs::File::open("/proc/self/exe").expect("opened");
    let error = Poller::new()
        .expect("made")
        .add(file.as_raw_fd(), 1)
        .expect_err("a file");
    assert_eq!(error.kind(), io::ErrorKind::PermissionDenied);
}

#[test]
#[should_panic(expected = "reserved")]
fn the_breakers_token_is_a_mistake() {
    let (here, _there) = pair();
    let _ = Poller::new().expect("made").add(here.as_raw_fd(), u64::MAX);
}

#[test]
fn more_events_than_fit_come_later() {
    let poller = Poller::new().expect("made");
    let pairs: Vec<_> = (0..CAPACITY + 9).map(|_| pair()).collect();
    for (i, (_, there)) in pairs.iter().enumerate() {
        poller.add(there.as_raw_fd(), i as u64).expect("added");
    }
    let mut tokens: Vec<u64> = now(&poller).iter().map(|event| event.token).collect();
    assert!(tokens.len() <= CAPACITY);
    tokens.extend(now(&poller).iter().map(|event| event.token));
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), pairs.len());
}

#[test]
fn a_timeout_is_never_early() {
    let poller = Poller::new().expect("made");
    let mut events = Events::new();
    for ns in [1, 20_000, 1_500_000, 3_000_001] {
        let start = clock::now_ns();
        assert_eq!(poller.poll(&mut events, Some(ns)).expect("polled"), 0);
        assert!(clock::now_ns() >= start + ns);
        // The older system call, as on kernels without the newer one.
        let start = clock::now_ns();
        assert_eq!(poller.wait_ms(&mut events.buffer, Some(ns)), 0);
        assert!(clock::now_ns() >= start + ns);
    }
}

#[test]
fn a_kernel_without_nanoseconds_still_polls() {
    child_passes(|| {
        forbid(libc::SYS_epoll_pwait2, None, libc::ENOSYS);
        let poller = Poller::new().expect("made");
        let mut events = Events::new();
        assert_eq!(
            poller.wait_ns(&mut events.buffer, 1),
            -(libc::ENOSYS as isize)
        );
        for ns in [1, 1_500_000] {
            let start = clock::now_ns();
            assert_eq!(poller.poll(&mut events, Some(ns)).expect("polled"), 0);
            assert!(clock::now_ns() >= start + ns);
        }
        poller.notify();
        poller.poll(&mut events, Some(u64::MAX)).expect("polled");
        assert!(events.notified());
    });
}

#[test]
fn milliseconds_round_up() {
    assert_eq!(timeout_ms(None), -1);
    assert_eq!(timeout_ms(Some(0)), 0);
    assert_eq!(timeout_ms(Some(1)), 1);
    assert_eq!(timeout_ms(Some(1_000_000)), 1);
    assert_eq!(timeout_ms(Some(1_000_001)), 2);
    assert_eq!(timeout_ms(Some(u64::MAX)), i32::MAX);
}

#[test]
fn a_long_wait_leaves_room_for_the_kernels_leeway() {
    for long in [LONG_NS + 1, 1_000_000_000, 3_600_000_000_000, u64::MAX] {
        let (mut left, mut parts) = (long, 0);
        while left > LONG_NS {
            let part = part_of(left);
            let leeway = (part / 200).min(100_000_000);
            assert!(part + leeway < left, "{part} of {left}");
            (left, parts) = (left - part, parts + 1);
        }
        assert_eq!(part_of(left), left);
        assert!(parts <= 6, "{parts} wake-ups for {long}");
    }
}

#[test]
fn a_huge_timeout_is_accepted() {
    let poller = Poller::new().expect("made");
    let mut events = Events::new();
    for timeout in [
        None,
        Some(u64::MAX),
        Some(i64::MAX as u64),
        Some(3_600_000_000_000),
    ] {
        poller.notify();
        assert_eq!(poller.poll(&mut events, timeout).expect("polled"), 0);
        assert!(events.notified());
    }
}

#[test]
fn notifications_merge_into_one() {
    let poller = Poller::new().expect("made");
    for _ in 0..1000 {
        poller.notify();
    }
    let mut count = 0u64;
    // SAFETY: eight bytes of a live integer.
    let n = unsafe {
        syscall!(
            libc::SYS_read,
            poller.breaker.as_raw_fd(),
            &raw mut count,
            size_of::<u64>()
        )
    };
    assert_eq!((n, count), (8, 1), "one write for all of them");
}

#[test]
fn only_a_blocking_poll_takes_a_notification() {
    let poller = Poller::new().expect("made");
    let mut events = Events::new();
    poller.notify();
    for _ in 0..2 {
        assert_eq!(poller.poll(&mut events, Some(0)).expect("polled"), 0);
        assert!(!events.notified());
    }
    assert_eq!(poller.poll(&mut events, None).expect("polled"), 0);
    assert!(events.notified());
    assert_eq!(
        poller.poll(&mut events, Some(1_000_000)).expect("polled"),
        0
    );
    assert!(!events.notified(), "taken");
    poller.notify();
    poller.poll(&mut events, None).expect("polled");
    assert!(events.notified(), "and armed again");
}

#[test]
fn a_notification_does_not_hide_events() {
    let (_here, there) = pair();
    let poller = Poller::new().expect("made");
    poller.notify();
    poller.add(there.as_raw_fd(), 7).expect("added");
    let mut events = Events::new();
    assert_eq!(poller.poll(&mut events, None).expect("polled"), 1);
    assert!(events.notified());
    assert_eq!(events.iter().next().map(|event| event.token), Some(7));
    assert!(format!("{events:?}").contains("token: 7"));
}

#[test]
fn notify_ends_a_wait_under_way() {
    let (poller, sleeper) = (Poller::new().expect("made"), AtomicI32::new(0));
    os::scope(|s| {
        s.spawn(|| {
            sleeper.store(thread::tid(), Release);
            poller.poll(&mut Events::new(), None).expect("polled");
        });
        while sleeper.load(Acquire) == 0 {
            os::yield_now();
        }
        await_sleep(sleeper.load(Acquire));
        poller.notify();
    });
}

/// If a notification were ever lost, or what came before it invisible (I2), the consumers would
/// hang.
#[test]
fn no_notification_is_lost() {
    const PRODUCERS: u64 = 3;
    const EACH: u64 = 2_000;
    let poller = Poller::new().expect("made");
    let made = AtomicU64::new(0);
    os::scope(|s| {
        for _ in 0..PRODUCERS {
            s.spawn(|| {
                for _ in 0..EACH {
                    made.fetch_add(1, Relaxed);
                    poller.notify();
                }
            });
        }
        for _ in 0..2 {
            s.spawn(|| {
                let mut events = Events::new();
                while made.load(Relaxed) < PRODUCERS * EACH {
                    poller.poll(&mut events, None).expect("polled");
                }
                // Pass it on: one notification ends one poll.
                poller.notify();
            });
        }
    });
}

#[test]
fn notify_leaves_errno_alone() {
    let poller = Poller::new().expect("made");
    errno::set(4711);
    poller.notify();
    poller.notify();
    assert_eq!(errno::get(), 4711);
}

#[test]
fn a_signal_is_an_empty_poll() {
    unsafe extern "C" fn nothing(_: i32, _: *mut libc::siginfo_t, _: *mut libc::c_void) {}
    child_passes(|| {
        // SAFETY: a handler that does nothing.
        unsafe { signal::install(libc::SIGUSR1, nothing) }.expect("installed");
        let (poller, sleeper) = (Poller::new().expect("made"), AtomicI32::new(0));
        os::scope(|s| {
            s.spawn(|| {
                sleeper.store(thread::tid(), Release);
                let mut events = Events::new();
                assert_eq!(poller.poll(&mut events, None).expect("not an error"), 0);
                assert!(!events.notified());
            });
            while sleeper.load(Acquire) == 0 {
                os::yield_now();
            }
            await_sleep(sleeper.load(Acquire));
            thread::tgkill(sleeper.load(Acquire), libc::SIGUSR1).expect("sent");
        });
    });
}

#[test]
fn descriptors_are_not_inherited() {
    let poller = Poller::new().expect("made");
    for fd in [poller.epoll.as_raw_fd(), poller.breaker.as_raw_fd()] {
        // SAFETY: asks for a flag.
        let flags = unsafe { libc::fcntl(fd, libc::F_GETFD) };
        assert_ne!(flags & libc::FD_CLOEXEC, 0);
    }
}

#[test]
fn a_poller_is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Poller>();
    check::<Events>();
}

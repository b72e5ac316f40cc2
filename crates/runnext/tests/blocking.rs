//! Goroutines that block their thread, declared or not, do not keep others from running.

mod common;
mod stall;

use std::io::{Read, Write};
use std::net::ToSocketAddrs;
use std::os::fd::FromRawFd;
use std::panic::{self, AssertUnwindSafe};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::{Duration, Instant};

use common::{child, message, runtime};
use runnext::{blocking, go, lock_os_thread, scope, yield_now};
use stall::{Hogs, watchdog};

const BLOCK: Duration = Duration::from_millis(250);

/// At P=1: how often another goroutine runs while one is inside `block`, which tells when it is; and how often a plain thread wakes up meanwhile.
fn progress_during(block: impl FnOnce(&AtomicBool) + Send) -> (u64, u64) {
    let rt = runtime(1);
    let (inside, stop) = (AtomicBool::new(false), AtomicBool::new(false));
    let count_until_stop = |pause: fn()| {
        let mut count = 0;
        while !stop.load(Acquire) {
            count += u64::from(inside.load(Acquire));
            pause();
        }
        count
    };
    thread::scope(|threads| {
        let thread = threads.spawn(|| count_until_stop(|| thread::sleep(BLOCK / 50)));
        let during = rt.run(|| {
            scope(|s| {
                let other = s.go(|| count_until_stop(yield_now));
                yield_now();
                block(&inside);
                inside.store(false, Release);
                stop.store(true, Release);
                other.join().unwrap()
            })
        });
        (during, thread.join().unwrap())
    })
}

/// Where a plain thread hardly ran there is nothing to judge: a virtual machine may be stopped for longer than this takes.
#[track_caller]
fn others_progress(block: impl FnOnce(&AtomicBool) + Send) {
    let (during, threads) = progress_during(block);
    assert!(
        during > 100 || threads < 10,
        "another goroutine ran {during} times meanwhile, a thread {threads} times"
    );
}

#[test]
fn thread_sleep() {
    let _dog = watchdog("thread::sleep");
    others_progress(|inside| {
        inside.store(true, Release);
        thread::sleep(BLOCK);
    });
}

/// Where the kernel has no fence for all threads, those that call the runtime pay for theirs.
#[test]
fn without_membarrier() {
    child(&[("RUNNEXT_DEBUG", "membarrier=0")], || {
        let _dog = watchdog("without membarrier");
        others_progress(|inside| {
            inside.store(true, Release);
            thread::sleep(BLOCK);
        });
    })
    .passed();
}

#[test]
fn usleep() {
    unsafe extern "C" {
        fn usleep(us: u32) -> i32;
    }
    let _dog = watchdog("usleep");
    others_progress(|inside| {
        inside.store(true, Release);
        // SAFETY: no preconditions.
        assert_eq!(unsafe { usleep(BLOCK.as_micros() as u32) }, 0);
    });
}

#[test]
fn reading_a_pipe() {
    let _dog = watchdog("read");
    let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
    let feeder = thread::spawn(move || {
        for _ in 0..3 {
            thread::sleep(BLOCK / 2);
            writer.write_all(b"x").expect("written");
        }
    });
    others_progress(|inside| {
        inside.store(true, Release);
        let mut all = Vec::new();
        assert_eq!(reader.read_to_end(&mut all).expect("read"), 3);
    });
    feeder.join().unwrap();
}

#[test]
fn a_contended_std_mutex() {
    let _dog = watchdog("std Mutex");
    let lock = Mutex::new(());
    let held = AtomicBool::new(false);
    thread::scope(|s| {
        s.spawn(|| {
            let _guard = lock.lock();
            held.store(true, Release);
            thread::sleep(2 * BLOCK);
        });
        while !held.load(Acquire) {
            thread::yield_now();
        }
        others_progress(|inside| {
            inside.store(true, Release);
            drop(lock.lock());
        });
    });
}

/// The holder of a std Mutex is preempted, the rest wait for it: each loses its P, and the holder gets one back.
#[test]
fn a_std_mutex_held_by_a_preempted_goroutine() {
    let _dog = watchdog("std Mutex of a preempted one");
    for procs in [1, 2] {
        let rt = runtime(procs);
        let lock = Arc::new(Mutex::new(0u64));
        rt.run(|| {
            let hogs = Hogs::start(2);
            let workers: Vec<_> = (0..6)
                .map(|_| {
                    let lock = Arc::clone(&lock);
                    go(move || {
                        for _ in 0..4 {
                            let mut guard = lock.lock().unwrap();
                            stall::hog_for(Duration::from_millis(15));
                            *guard += 1;
                        }
                    })
                })
                .collect();
            for w in workers {
                w.join().unwrap();
            }
            hogs.stop();
        });
        assert_eq!(*lock.lock().unwrap(), 24);
    }
}

#[test]
fn getaddrinfo() {
    let _dog = watchdog("getaddrinfo");
    // How long a look-up takes is the resolver's business: only that it works, among others, beside a hog.
    let rt = runtime(1);
    rt.run(|| {
        let hogs = Hogs::start(1);
        let lookups: Vec<_> = (0..8)
            .map(|_| go(|| ("localhost", 80).to_socket_addrs().map(|a| a.count())))
            .collect();
        for l in lookups {
            assert!(l.join().unwrap().expect("localhost has an address") > 0);
        }
        hogs.stop();
    });
}

#[test]
fn a_declared_section() {
    let _dog = watchdog("blocking");
    others_progress(|inside| {
        blocking(|| {
            inside.store(true, Release);
            thread::sleep(BLOCK);
        });
    });
}

/// A section that computes instead of blocking does not count as running: its P goes on.
#[test]
fn a_declared_section_that_computes() {
    let _dog = watchdog("blocking that computes");
    others_progress(|inside| {
        blocking(|| {
            inside.store(true, Release);
            stall::hog_for(2 * BLOCK);
        });
    });
}

#[test]
fn sections_nest() {
    let _dog = watchdog("nested");
    for procs in [1, 2] {
        let rt = runtime(procs);
        let value = rt.run(|| {
            blocking(|| {
                let inner = blocking(|| {
                    thread::sleep(Duration::from_millis(2));
                    blocking(|| 40)
                });
                // Still inside: others go on.
                let other = go(|| 2);
                thread::sleep(Duration::from_millis(2));
                inner + other.join().unwrap()
            })
        });
        assert_eq!(value, 42);
    }
}

#[test]
fn goroutine_calls_work_inside_a_section() {
    let _dog = watchdog("calls inside");
    for procs in [1, 2, 4] {
        let rt = runtime(procs);
        rt.run(|| {
            let sections: Vec<_> = (0..16u64)
                .map(|i| {
                    go(move || {
                        blocking(|| {
                            let mut sum = 0;
                            for k in 0..20 {
                                sum += go(move || i * k).join().unwrap();
                                yield_now();
                                if k % 8 == 0 {
                                    thread::sleep(Duration::from_micros(300)); // long enough to lose the P
                                }
                                sum += scope(|s| s.go(|| k).join().unwrap());
                            }
                            sum
                        })
                    })
                })
                .collect();
            for (i, section) in sections.into_iter().enumerate() {
                let i = i as u64;
                let expected: u64 = (0..20).map(|k| i * k + k).sum();
                assert_eq!(section.join().unwrap(), expected);
            }
            // What was a section is none any more: hogs share the P.
            let hogs = Hogs::start(procs + 1);
            while hogs.started() <= procs {
                yield_now();
            }
            hogs.stop();
        });
    }
}

#[test]
fn a_panic_leaves_the_section() {
    let _dog = watchdog("panic inside");
    let rt = runtime(1);
    rt.run(|| {
        for sleep in [0, 2] {
            let caught = panic::catch_unwind(AssertUnwindSafe(|| {
                blocking(|| {
                    thread::sleep(Duration::from_millis(sleep));
                    panic!("inside");
                })
            }));
            let payload: Box<dyn std::any::Any + Send> = caught.unwrap_err();
            assert_eq!(message(&*payload), "inside");
        }
        // Outside again: this goroutine is preempted, so the other runs although this one never calls.
        let ran = Arc::new(AtomicBool::new(false));
        let other = {
            let ran = Arc::clone(&ran);
            go(move || ran.store(true, Release))
        };
        while !ran.load(Acquire) {
            std::hint::spin_loop();
        }
        other.join().unwrap();
    });
}

#[test]
fn on_a_plain_thread_it_is_a_call() {
    assert_eq!(blocking(|| blocking(|| 6) * 7), 42);
    let caught = panic::catch_unwind(|| blocking(|| panic!("plain")));
    assert!(caught.is_err());
}

#[test]
fn many_blocked_goroutines_each_on_a_thread_of_its_own() {
    let _dog = watchdog("many blocked");
    let rt = runtime(2);
    rt.run(|| {
        let (mut reader, writer) = std::io::pipe().expect("a pipe");
        let readers: Vec<_> = (0..40)
            .map(|_| {
                let mut end = reader.try_clone().expect("cloned");
                go(move || {
                    let mut byte = [0];
                    end.read_exact(&mut byte).expect("read");
                })
            })
            .collect();
        for _ in 0..100 {
            yield_now();
        }
        let mut writer = writer;
        writer.write_all(&[0; 40]).expect("written");
        for r in readers {
            r.join().unwrap();
        }
        drop(writer);
        let mut rest = Vec::new();
        reader.read_to_end(&mut rest).expect("read");
        assert!(rest.is_empty());
    });
}

#[test]
fn a_locked_thread_stays_the_same_beside_hogs() {
    let _dog = watchdog("lock_os_thread beside hogs");
    for procs in [1, 2] {
        let rt = runtime(procs);
        rt.run(|| {
            let hogs = Hogs::start(procs + 1);
            let locked: Vec<_> = (0..3)
                .map(|_| {
                    go(|| {
                        let _outer = lock_os_thread();
                        let thread = thread::current().id();
                        for i in 0..12 {
                            let _inner = lock_os_thread();
                            match i % 4 {
                                0 => yield_now(),
                                1 => assert_eq!(go(|| 1).join().unwrap(), 1),
                                2 => blocking(|| thread::sleep(Duration::from_micros(300))),
                                _ => {
                                    stall::hog_for(Duration::from_millis(12));
                                }
                            }
                            assert_eq!(thread::current().id(), thread);
                        }
                    })
                })
                .collect();
            for l in locked {
                l.join().unwrap();
            }
            // One that ends locked takes its thread along; nothing else is lost.
            for _ in 0..5 {
                go(|| std::mem::forget(lock_os_thread())).join().unwrap();
            }
            hogs.stop();
        });
    }
}

/// A drop that waits while its goroutine unwinds keeps its thread, because the count of panics is the thread's.
#[test]
fn a_drop_that_waits_during_unwinding_beside_hogs() {
    struct Waits(Arc<AtomicU64>);
    impl Drop for Waits {
        fn drop(&mut self) {
            assert!(thread::panicking());
            let thread = thread::current().id();
            let other = go(|| stall::hog_for(Duration::from_millis(2)));
            other.join().unwrap();
            yield_now();
            thread::sleep(Duration::from_millis(1));
            stall::hog_for(Duration::from_millis(12)); // preempted while it unwinds
            assert!(thread::panicking() && thread::current().id() == thread);
            self.0.fetch_add(1, Relaxed);
        }
    }
    let _dog = watchdog("drop during unwinding");
    for procs in [1, 2] {
        let rt = runtime(procs);
        let waited = Arc::new(AtomicU64::new(0));
        rt.run(|| {
            let hogs = Hogs::start(procs);
            let unwinding: Vec<_> = (0..4)
                .map(|_| {
                    let waits = Waits(Arc::clone(&waited));
                    go(move || {
                        let _waits = waits;
                        panic!("expected: it unwinds");
                    })
                })
                .collect();
            for u in unwinding {
                assert!(u.join().is_err());
                assert!(!thread::panicking());
            }
            hogs.stop();
        });
        assert_eq!(waited.load(Relaxed), 4);
    }
}

/// Go's GCFairness: calls of the system in a loop, each too short to be noticed, do not keep a P.
#[test]
fn short_system_calls_in_loops() {
    let _dog = watchdog("write in a loop");
    let rt = runtime(1);
    rt.run(|| {
        let (stop, writes) = (AtomicBool::new(false), AtomicU64::new(0));
        scope(|s| {
            for _ in 0..2 {
                s.go(|| {
                    let null = std::fs::OpenOptions::new().write(true).open("/dev/null");
                    let fd = std::os::fd::OwnedFd::from(null.unwrap());
                    while !stop.load(Relaxed) {
                        let fd = std::os::fd::AsRawFd::as_raw_fd(&fd);
                        // SAFETY: a live descriptor, and one byte to read.
                        let n = unsafe { libc::write(fd, [0u8].as_ptr().cast(), 1) };
                        assert_eq!(n, 1);
                        writes.fetch_add(1, Relaxed);
                    }
                });
            }
            while writes.load(Relaxed) == 0 {
                yield_now();
            }
            for _ in 0..5 {
                runnext::time::sleep(Duration::from_millis(10));
            }
            stop.store(true, Relaxed);
        });
    });
}

/// Go's TestPreemptionAfterSyscall: a P comes back from each call that blocks, marked or not, while the number of Ps changes.
#[test]
fn calls_of_all_lengths_beside_resizes() {
    let _dog = watchdog("calls beside resizes");
    let rt = runtime(2);
    rt.run(|| {
        let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
        scope(|s| {
            for i in 0..8u32 {
                let (stop, us) = (&stop, [10, 100, 1000][i as usize % 3]);
                // SAFETY: no preconditions.
                let sleep = move || unsafe { libc::usleep(us) };
                s.go(move || {
                    while !stop.load(Relaxed) {
                        match i % 2 {
                            0 => blocking(sleep),
                            _ => sleep(),
                        };
                    }
                });
            }
            s.go(|| {
                while !stop.load(Relaxed) {
                    turns.fetch_add(1, Relaxed);
                    yield_now();
                }
            });
            for i in 0..200 {
                runnext::set_procs(1 + i % 4);
                let seen = turns.load(Relaxed);
                while turns.load(Relaxed) == seen {
                    yield_now();
                }
            }
            stop.store(true, Relaxed);
        });
        common::until(|| {
            let stats = runnext::stats::read();
            (stats.num_sys_calls, stats.num_ffi_calls) == (0, 0)
        });
        assert_eq!(runnext::num_goroutines(), 1);
    });
}

/// Raw system calls that no handler may restart must not see a signal of ours: how many did, of how many, in so long.
fn interruptions(rt: &runnext::Runtime, time: Duration) -> (u64, u64) {
    let (eintr, calls) = (AtomicU64::new(0), AtomicU64::new(0));
    rt.run(|| {
        let hogs = Hogs::start(2 * runnext::procs());
        let end = Instant::now() + time;
        let count = |result: i32| {
            calls.fetch_add(1, Relaxed);
            let error = std::io::Error::last_os_error();
            if result < 0 && error.raw_os_error() == Some(libc::EINTR) {
                eintr.fetch_add(1, Relaxed);
            }
        };
        scope(|s| {
            s.go(|| {
                while Instant::now() < end {
                    // SAFETY: no descriptors.
                    count(unsafe { libc::poll(std::ptr::null_mut(), 0, 1) });
                }
            });
            s.go(|| {
                let ms = libc::timespec {
                    tv_sec: 0,
                    tv_nsec: 1_000_000,
                };
                while Instant::now() < end {
                    // SAFETY: a live timespec.
                    count(unsafe { libc::nanosleep(&ms, std::ptr::null_mut()) });
                }
            });
            s.go(|| {
                // SAFETY: a descriptor that is ours alone.
                let epoll = unsafe { std::os::fd::OwnedFd::from_raw_fd(libc::epoll_create1(0)) };
                // SAFETY: an event is integers.
                let mut event: libc::epoll_event = unsafe { std::mem::zeroed() };
                let fd = std::os::fd::AsRawFd::as_raw_fd(&epoll);
                while Instant::now() < end {
                    // SAFETY: room for one event.
                    count(unsafe { libc::epoll_wait(fd, &mut event, 1, 1) });
                }
            });
        });
        hogs.stop();
    });
    (eintr.into_inner(), calls.into_inner())
}

#[test]
fn raw_system_calls_see_no_signal_of_ours() {
    let _dog = watchdog("EINTR");
    for procs in [1, 2] {
        let (eintr, calls) = interruptions(&runtime(procs), Duration::from_secs(2));
        assert!(calls > 10, "{calls} calls");
        assert_eq!(eintr, 0, "of {calls} calls at {procs} Ps");
    }
}

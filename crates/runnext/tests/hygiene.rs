//! The runtime as a guest in the process: other signals, other handlers, children.

mod common;
mod stall;

use std::future::{Future, poll_fn};
use std::io::{BufRead, BufReader, Write};
use std::os::fd::AsRawFd;
use std::panic::catch_unwind;
use std::pin::pin;
use std::process::Command;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::task::{Context, Waker};
use std::time::{Duration, Instant};

use common::{child, message, runtime, until};
use runnext::future::sleep;
use runnext::net::{TcpListener, TcpStream, UnixStream};
use runnext::{block_on, go, yield_now};
use stall::{Hogs, status_line, watchdog};

static SEEN: AtomicU64 = AtomicU64::new(0);

extern "C" fn count(_: i32) {
    SEEN.fetch_add(1, Relaxed);
}

fn handle(signo: i32, handler: extern "C" fn(i32), flags: i32) {
    // SAFETY: an action made of a handler that only counts, and an empty mask.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = handler as *const () as usize;
        action.sa_flags = flags;
        assert_eq!(libc::sigaction(signo, &action, std::ptr::null_mut()), 0);
    }
}

fn bit(signo: i32) -> u64 {
    1 << (signo - 1)
}

#[test]
fn children_inherit_neither_mask_nor_handlers() {
    let _dog = watchdog("children");
    for procs in [1, 2] {
        let rt = runtime(procs);
        rt.run(|| {
            let hogs = Hogs::start(procs);
            let readers: Vec<_> = (0..4)
                .map(|_| go(|| Command::new("/bin/cat").arg("/proc/self/status").output()))
                .collect();
            for reader in readers {
                let output = reader.join().unwrap().expect("cat runs");
                assert!(output.status.success());
                let text = String::from_utf8(output.stdout).unwrap();
                let urg = bit(libc::SIGURG);
                assert_eq!(status_line(&text, "SigBlk") & urg, 0, "{text}");
                assert_eq!(status_line(&text, "SigIgn") & urg, 0, "{text}");
                assert_eq!(status_line(&text, "SigCgt") & urg, 0, "{text}");
                assert_eq!(status_line(&text, "SigPnd") & urg, 0, "{text}");
            }
            hogs.stop();
        });
    }
}

/// A child that computes longer than a slice would die of an inherited timer's signal, or see it.
#[test]
fn children_inherit_no_timers() {
    let _dog = watchdog("no timers");
    let rt = runtime(1);
    rt.run(|| {
        let hogs = Hogs::start(1);
        let output = Command::new("/bin/sh")
            .args([
                "-c",
                "i=0; while [ $i -lt 20000 ]; do i=$((i+1)); done; cat /proc/$$/timers; echo end",
            ])
            .output()
            .expect("sh runs");
        hogs.stop();
        assert!(output.status.success(), "{output:?}");
        assert_eq!(String::from_utf8_lossy(&output.stdout), "end\n");
    });
}

#[test]
fn processes_come_and_go_in_goroutines() {
    let _dog = watchdog("processes");
    let rt = runtime(2);
    rt.run(|| {
        let hogs = Hogs::start(2);
        let runs: Vec<_> = (0..8)
            .map(|i| {
                go(move || {
                    (0..3).all(|k| {
                        let text = format!("{i}-{k}");
                        let output = Command::new("/bin/echo").arg(&text).output().expect("echo");
                        output.stdout == format!("{text}\n").as_bytes()
                    })
                })
            })
            .collect();
        for run in runs {
            assert!(run.join().unwrap());
        }
        hogs.stop();
    });
}

#[test]
fn a_handler_that_was_there_before_is_passed_what_is_not_ours() {
    let _dog = watchdog("chained");
    child(&[], || {
        handle(libc::SIGURG, count, libc::SA_RESTART);
        let rt = runtime(2);
        rt.run(|| {
            let hogs = Hogs::start(5);
            for _ in 0..50 {
                yield_now(); // preemptions, none of which it may see
            }
            hogs.stop();
        });
        assert_eq!(SEEN.load(Relaxed), 0, "it saw signals of ours");
        rt.run(|| {
            let hogs = Hogs::start(2);
            for sent in 1..=20 {
                // SAFETY: to ourselves.
                unsafe { libc::kill(libc::getpid(), libc::SIGURG) };
                while SEEN.load(Relaxed) < sent {
                    std::hint::spin_loop();
                }
            }
            hogs.stop();
        });
        assert_eq!(SEEN.load(Relaxed), 20);
    })
    .passed();
}

/// The default action of SIGUSR1 is the end of the process: none of ours may be taken for somebody else's.
#[test]
fn another_signal_can_be_chosen() {
    let _dog = watchdog("preemptsignal");
    let signal = libc::SIGUSR1.to_string();
    child(
        &[("RUNNEXT_DEBUG", &format!("preemptsignal={signal}"))],
        || {
            handle(libc::SIGURG, count, libc::SA_RESTART);
            for procs in [1, 2] {
                let rt = runtime(procs);
                rt.run(|| {
                    let hogs = Hogs::start(procs + 2);
                    let end = Instant::now() + Duration::from_millis(1500);
                    while Instant::now() < end {
                        // Calls beside computation: notes that are obeyed while the signal is on its way.
                        for _ in 0..20 {
                            go(|| stall::hog_for(Duration::from_micros(300)));
                        }
                        yield_now();
                    }
                    hogs.stop();
                });
            }
            assert_eq!(SEEN.load(Relaxed), 0, "SIGURG was used all the same");
        },
    )
    .passed();
}

#[test]
fn a_storm_of_other_signals_disturbs_nothing() {
    let _dog = watchdog("storm");
    child(&[], || {
        handle(libc::SIGPROF, count, libc::SA_RESTART);
        let every = libc::timeval {
            tv_sec: 0,
            tv_usec: 1000,
        };
        let spec = libc::itimerval {
            it_interval: every,
            it_value: every,
        };
        // SAFETY: a live specification.
        let set = unsafe { libc::setitimer(libc::ITIMER_PROF, &spec, std::ptr::null_mut()) };
        assert_eq!(set, 0);
        for procs in [1, 2] {
            let before = SEEN.load(Relaxed);
            let rt = runtime(procs);
            rt.run(|| {
                let hogs = Hogs::start(4);
                while hogs.started() < 4 {
                    yield_now();
                }
                let sums: Vec<_> = (0..200u64)
                    .map(|i| go(move || (0..=i).sum::<u64>()))
                    .collect();
                for (i, sum) in sums.into_iter().enumerate() {
                    let i = i as u64;
                    assert_eq!(sum.join().unwrap(), i * (i + 1) / 2);
                }
                while SEEN.load(Relaxed) < before + 100 {
                    yield_now();
                }
                hogs.stop();
            });
        }
    })
    .passed();
}

#[test]
fn sigchld_reaches_its_handler() {
    let _dog = watchdog("SIGCHLD");
    child(&[], || {
        handle(libc::SIGCHLD, count, libc::SA_RESTART);
        let rt = runtime(2);
        rt.run(|| {
            let hogs = Hogs::start(2);
            for _ in 0..5 {
                let before = SEEN.load(Relaxed);
                assert!(
                    Command::new("/bin/true")
                        .status()
                        .expect("true runs")
                        .success()
                );
                while SEEN.load(Relaxed) == before {
                    yield_now();
                }
            }
            hogs.stop();
        });
    })
    .passed();
}

/// A program that blocks SIGURG before it starts the runtime is preempted all the same, and keeps its mask.
#[test]
fn a_blocked_signal_is_unblocked_on_the_runtimes_threads_only() {
    let _dog = watchdog("blocked SIGURG");
    child(&[], || {
        // SAFETY: a set that is initialised before it is used.
        let blocked = |how| unsafe {
            let mut set: libc::sigset_t = std::mem::zeroed();
            libc::sigemptyset(&mut set);
            libc::sigaddset(&mut set, libc::SIGURG);
            let mut old: libc::sigset_t = std::mem::zeroed();
            let set = if how == libc::SIG_BLOCK {
                &raw const set
            } else {
                std::ptr::null()
            };
            libc::pthread_sigmask(how, set, &mut old);
            libc::sigismember(&old, libc::SIGURG) == 1
        };
        assert!(!blocked(libc::SIG_BLOCK));
        let rt = runtime(1);
        let stop = AtomicBool::new(false);
        rt.run(|| {
            runnext::scope(|s| {
                s.go(|| stall::hog(&stop));
                yield_now();
                stop.store(true, Relaxed);
            });
        });
        drop(rt);
        assert!(blocked(libc::SIG_SETMASK), "the caller's mask was changed");
    })
    .passed();
}

/// Runs `body` in a fork of this process, which must not take for ever. Gives how it ended, for `waitpid`'s macros.
fn in_a_fork(body: impl FnOnce()) -> i32 {
    // SAFETY: what the test does in the child is what programs do there; it never returns from here.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        // SAFETY: as above.
        unsafe { libc::alarm(60) };
        body();
        // SAFETY: as above.
        unsafe { libc::_exit(0) };
    }
    let mut status = 0;
    // SAFETY: a place for the status of our child.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    status
}

/// `run` and `shutdown` hung in the child, and a drop aborted it.
#[test]
fn a_runtime_says_that_it_does_not_survive_a_fork() {
    child(&[], || {
        let mut rt = Some(runtime(2));
        rt.as_ref().unwrap().run(|| ());
        let status = in_a_fork(|| {
            let old = rt.take().unwrap();
            let refused = [
                catch_unwind(|| old.run(|| ())).unwrap_err(),
                catch_unwind(|| old.go(|| ()).join()).unwrap_err(),
            ];
            for why in refused {
                assert!(message(&*why).contains("fork before the runtime is built"));
            }
            drop(old);
            assert_eq!(runtime(1).run(|| go(|| 42).join().unwrap()), 42);
        });
        assert_eq!(status, 0, "the child");
        let status = in_a_fork(|| {
            rt.take().unwrap().shutdown(Duration::MAX);
        });
        assert_eq!(status, 0, "the child that shuts down");
        assert_eq!(rt.unwrap().run(|| go(|| 42).join().unwrap()), 42); // unharmed
    })
    .passed();
}

/// What the child closed was not watched in the parent any more, whose next `accept` waited for ever. What it waited for itself was watched there,
/// too, under an address that is another thing in the parent.
#[test]
fn what_a_fork_does_to_its_sockets_is_nothing_to_the_parent() {
    child(&[], || {
        runtime(2).run(|| {
            let mut listener = Some(TcpListener::bind("127.0.0.1:0").unwrap());
            let addr = listener.as_ref().unwrap().local_addr().unwrap();
            // Waits, so that it is watched from here on.
            let connects = go(move || TcpStream::connect(addr).unwrap());
            listener.as_ref().unwrap().accept().unwrap();
            connects.join().unwrap();
            let status = in_a_fork(|| {
                drop(listener.take());
                let another = TcpListener::bind("127.0.0.1:0").unwrap();
                let refused = another.accept().unwrap_err();
                assert!(refused.to_string().contains("this process is a fork"));
            });
            assert_eq!(status, 0, "the child");
            let connects = go(move || TcpStream::connect(addr).unwrap());
            listener.unwrap().accept().unwrap();
            connects.join().unwrap();
        });
    })
    .passed();
}

/// A thread of the parent that waits was counted in the child, which has none: one that was about to act was taken for it.
#[test]
fn threads_that_wait_in_the_parent_do_not_make_a_deadlock_of_the_child() {
    child(&[], || {
        let (tell, told) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            tell.send(common::thread_id()).unwrap();
            let _ = runnext::chan::never::<()>().recv();
        });
        common::until_asleep(told.recv().unwrap(), libc::SYS_futex);
        let status = in_a_fork(|| {
            let (tx, rx) = runnext::chan::bounded::<u8>(0);
            std::thread::spawn(move || {
                // Time for what must not happen.
                std::thread::sleep(Duration::from_millis(400));
                tx.send(7).unwrap();
            });
            assert_eq!(runtime(1).run(move || rx.recv()), Ok(7));
        });
        assert_eq!(status, 0, "the child");
    })
    .passed();
}

/// It waited for a dump by threads that are in the parent, and the second one ended it.
#[test]
fn the_first_sigquit_ends_a_fork() {
    child(&[], || {
        runtime(1).run(|| {
            let status = in_a_fork(|| {
                // SAFETY: to ourselves.
                unsafe { libc::raise(libc::SIGQUIT) };
            });
            assert!(libc::WIFSIGNALED(status), "{status:x}");
            assert_eq!(libc::WTERMSIG(status), libc::SIGQUIT);
        });
    })
    .passed();
}

/// The thread that rings alarms and looks for the events of futures that no runtime polls was not there in the child: they waited for ever.
#[test]
fn futures_without_a_runtime_wait_in_a_fork_too() {
    fn waits() {
        block_on(sleep(Duration::from_millis(1)));
        let (here, there) = UnixStream::pair().unwrap();
        let mut cx = Context::from_waker(Waker::noop());
        assert!(here.poll_read(&mut cx, &mut [0]).is_pending());
        let writes = std::thread::spawn(move || (&there).write_all(b"x"));
        let read = block_on(poll_fn(|cx| here.poll_read(cx, &mut [0])));
        assert_eq!(read.unwrap(), 1);
        writes.join().unwrap().unwrap();
    }
    child(&[], || {
        waits();
        let mut later = pin!(sleep(Duration::from_secs(3600)));
        let mut cx = Context::from_waker(Waker::noop());
        assert!(later.as_mut().poll(&mut cx).is_pending());
        assert_eq!(in_a_fork(waits), 0, "the child");
        waits();
    })
    .passed();
}

/// Nobody was left who could have woken it.
#[test]
fn a_goroutine_that_waits_in_a_fork_ends_the_child_with_a_message() {
    child(&[], || {
        runtime(2).run(|| {
            let status = in_a_fork(|| {
                let _ = runnext::chan::never::<()>().recv();
            });
            assert!(libc::WIFSIGNALED(status), "{status:x}");
            assert_eq!(libc::WTERMSIG(status), libc::SIGABRT);
            assert_eq!(go(|| 42).join().unwrap(), 42);
        });
    })
    .passed()
    .said(&["fatal error: this process is a fork", "exec or _exit"]);
}

/// It ended preemption without a word.
#[test]
fn a_handler_in_the_place_of_ours_is_reported() {
    child(&[], || {
        let _dog = watchdog("a handler was replaced");
        let (said, stderr) = std::io::pipe().expect("a pipe");
        // SAFETY: two open descriptors.
        assert_eq!(unsafe { libc::dup2(stderr.as_raw_fd(), 2) }, 2);
        runtime(1).run(|| {
            handle(libc::SIGURG, count, libc::SA_RESTART);
            let report = go(|| {
                let lines = BufReader::new(said).lines().map_while(Result::ok);
                runnext::blocking(|| lines.take(1).collect::<String>())
            });
            until(|| report.is_finished()); // there is work all the time
            let report = report.join().unwrap();
            assert!(report.contains("another handler of signal 23"), "{report}");
            assert!(report.contains("preemptsignal"), "{report}");
        });
    })
    .passed();
}

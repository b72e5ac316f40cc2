//! Bugs of the parts that keep Ps from stalling, each with the least that showed it.

mod common;
mod stall;

use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{
    built, child, cpu_time, impatient, runtime, switches_of, thread_id, until, until_asleep,
};
use runnext::{Priority, Runtime, TaskGroup, chan, go, set_procs, time, yield_now};
use stall::{Hogs, hog_for, watchdog};

/// `set_procs` held a lock in user state that a handler on the same thread waits for.
#[test]
fn resizing_is_not_interrupted_by_its_own_handler() {
    let _dog = watchdog("resizing under the handler");
    impatient(1).run(|| {
        let hogs = Hogs::start(2);
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            for _ in 0..1000 {
                set_procs(1);
            }
        }
        hogs.stop();
    });
}

/// A goroutine that came together with a P which is one too many was in no queue, and stayed behind.
#[test]
fn nobody_is_left_behind_on_a_p_that_goes() {
    let _dog = watchdog("left behind");
    impatient(2).run(|| {
        let hogs = Hogs::start(4);
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            let ran = Arc::new(AtomicUsize::new(0));
            let jobs: Vec<_> = (0..8)
                .map(|_| {
                    let ran = Arc::clone(&ran);
                    go(move || ran.fetch_add(1, Relaxed))
                })
                .collect();
            set_procs(1);
            hog_for(Duration::from_millis(1));
            set_procs(3);
            for job in jobs {
                job.join().unwrap();
            }
            assert_eq!(ran.load(Relaxed), 8);
        }
        hogs.stop();
    });
}

/// What was queued on a P that is one too many could be reached by nobody while its thread was blocked.
#[test]
fn work_behind_a_blocked_thread_on_a_p_that_goes_is_found() {
    let _dog = watchdog("behind a blocked thread");
    let rt = runtime(2);
    for _ in 0..5 {
        rt.run(|| {
            set_procs(2);
            let (release, held) = mpsc::channel::<()>();
            let full = Arc::new(AtomicBool::new(false));
            let filled = Arc::clone(&full);
            let blocked = go(move || {
                let jobs: Vec<_> = (0..20).map(|_| go(|| ())).collect();
                filled.store(true, Release);
                let _ = held.recv(); // blocks the thread, its P full of work
                for job in jobs {
                    job.join().unwrap();
                }
            });
            until(|| full.load(Acquire));
            set_procs(1);
            // All but the two of us, however the Ps went.
            while runnext::num_goroutines() > 2 {
                yield_now();
            }
            drop(release);
            blocked.join().unwrap();
        });
    }
}

/// A robbed thread took a lock before it said that it waits, and its own timer's handler waited for that lock; or the handler was
/// first to get a P, and the call took that for a mistake of the user's.
#[test]
fn threads_that_wake_beside_hogs_get_in_line_once() {
    let _dog = watchdog("robbed and ticking");
    for procs in [1, 2] {
        impatient(procs).run(|| {
            let hogs = Hogs::start(2);
            let end = Instant::now() + Duration::from_secs(2);
            let sleepers: Vec<_> = (0..8)
                .map(|_| {
                    go(move || {
                        while Instant::now() < end {
                            thread::sleep(Duration::from_micros(500)); // robbed here
                            hog_for(Duration::from_millis(5)); // ticks here, without a P
                            yield_now();
                        }
                    })
                })
                .collect();
            for s in sleepers {
                s.join().unwrap();
            }
            hogs.stop();
        });
    }
}

/// Threads that take turns on a P reach the same numbers, and the monitor took them for one.
#[test]
fn the_monitor_tells_threads_apart() {
    let _dog = watchdog("threads that look alike");
    runtime(1).run(|| {
        let hogs = Hogs::start(6);
        let end = Instant::now() + Duration::from_secs(1);
        while Instant::now() < end {
            yield_now();
        }
        // It is alive: it notices a thread that sleeps with the only P, and that nobody else can wake.
        let (wake, woken) = mpsc::channel::<()>();
        let asleep = Arc::new(AtomicBool::new(false));
        let sleeper = {
            let asleep = Arc::clone(&asleep);
            go(move || {
                asleep.store(true, Release);
                woken.recv().unwrap_err()
            })
        };
        until(|| asleep.load(Acquire));
        drop(wake);
        sleeper.join().unwrap();
        hogs.stop();
    });
}

/// Goroutines preempted inside the allocator when their runtime stops must let go of its lock.
#[test]
fn stopping_leaves_no_lock_of_the_allocator_behind() {
    let _dog = watchdog("stopping inside the allocator");
    for round in 0..10 {
        let rt = impatient(1 + round % 2);
        let stop = Arc::new(AtomicBool::new(false));
        for size in 1..8usize {
            let stop = Arc::clone(&stop);
            rt.go(move || {
                while !stop.load(Relaxed) {
                    std::hint::black_box(vec![0u8; size << 12]);
                }
            });
        }
        rt.run(|| (0..20).for_each(|_| yield_now()));
        drop(rt);
        let blocks: Vec<_> = (0..1000usize).map(|i| vec![1u8; i * 7]).collect();
        assert_eq!(blocks.iter().map(Vec::len).sum::<usize>(), 7 * 999 * 500);
        stop.store(true, Relaxed);
    }
}

/// Of two hogs in a group, alone on a P, the one that was stopped went before the other again: that one never ran.
#[test]
fn two_hogs_in_a_group_take_turns() {
    let _dog = watchdog("two in a group");
    for quota in [None, Some(0.9)] {
        let group = TaskGroup::new("two");
        group.set_quota(quota);
        impatient(1).run(|| {
            let hogs = group.enter(|| Hogs::start(2));
            until(|| hogs.started() == 2);
            let once: Vec<_> = hogs.rounds.iter().map(|r| r.load(Relaxed)).collect();
            until(|| {
                hogs.rounds
                    .iter()
                    .zip(&once)
                    .all(|(r, once)| r.load(Relaxed) > *once)
            });
            hogs.stop();
        });
    }
}

/// What the hogs of `groups` use while the calling goroutine sleeps for a millisecond: the median. In CPU time, of which a busy machine
/// gives the hogs no more.
fn burnt_in_a_sleep(groups: &[TaskGroup]) -> Duration {
    let burnt = || groups.iter().map(|g| g.stats().cpu_time).sum::<Duration>();
    let mut cost: Vec<Duration> = (0..150)
        .map(|_| {
            let before = burnt();
            runnext::time::sleep(Duration::from_millis(1));
            burnt() - before
        })
        .collect();
    cost.sort();
    cost[cost.len() / 2]
}

/// A handler that gave the P to another hog told nobody of the timers, and who slept in a group that goes first waited while the hogs used
/// up their slices. The monitor's own looks find timers too, so it takes the loss of both to fail this.
#[test]
fn timers_are_known_when_a_turn_ends() {
    let _dog = watchdog("late grouped timers");
    let slice = Duration::from_millis(100);
    let low = |name, slice| {
        let builder = TaskGroup::builder(name).priority(Priority::Low);
        builder.slice(slice).build()
    };
    // The turns of the first end while somebody sleeps: what it hands over to does not stop by itself.
    let groups = [low("brief", Duration::from_micros(100)), low("long", slice)];
    let high = TaskGroup::builder("high").priority(Priority::High).build();
    let rt = built(Runtime::builder().procs(1).time_slice(slice));
    let median = rt.run(|| {
        let hogs = groups.each_ref().map(|g| g.enter(|| Hogs::start(2)));
        until(|| hogs.iter().all(|h| h.started() == 2));
        let median = high.enter(|| burnt_in_a_sleep(&groups));
        hogs.into_iter().for_each(Hogs::stop);
        median
    });
    assert!(median < slice / 4, "{median:?} of {slice:?}");
}

/// Who slept in the same group as hogs waited for their slices: within a group the order was that of arrival.
#[test]
fn light_ones_go_before_hogs_of_their_group() {
    let _dog = watchdog("light among hogs");
    let slice = Duration::from_millis(50);
    let group = [TaskGroup::builder("all").slice(slice).build()];
    let rt = built(Runtime::builder().procs(1).time_slice(slice));
    let median = rt.run(|| {
        let hogs = group[0].enter(|| Hogs::start(3));
        until(|| hogs.started() == 3);
        let median = group[0].enter(|| burnt_in_a_sleep(&group));
        hogs.stop();
        median
    });
    assert!(median < slice / 4, "{median:?} of {slice:?}");
}

/// One that had computed for long was taken for a hog, and, if it only yielded from then on, for ever: it had one turn to sixty of others
/// that yield.
#[test]
fn who_yields_is_not_taken_for_a_hog_for_ever() {
    let _dog = watchdog("yielding alike");
    const TURNS: usize = 100_000;
    impatient(1).run(|| {
        let done = Arc::new(AtomicBool::new(false));
        let turns: Arc<[AtomicUsize; 3]> = Arc::default();
        for i in 0..turns.len() {
            let (turns, done) = (Arc::clone(&turns), Arc::clone(&done));
            go(move || {
                if i == 0 {
                    hog_for(Duration::from_millis(50));
                }
                while !done.load(Relaxed) {
                    turns[i].fetch_add(1, Relaxed);
                    yield_now();
                }
            });
        }
        let read = || turns.iter().map(|turns| turns.load(Relaxed));
        until(|| read().all(|turns| turns > 0));
        let before: Vec<usize> = read().collect();
        let since = || read().zip(&before).map(|(now, before)| now - before);
        until(|| since().sum::<usize>() > TURNS);
        let (least, most) = (since().min(), since().max());
        done.store(true, Relaxed);
        assert!(
            2 * least.unwrap() > most.unwrap(),
            "{turns:?}, {before:?} before"
        );
    });
}

/// Sends the signal that preempts, as if by `sigqueue`: not one of the runtime's own.
fn send_foreign(tid: i32) {
    // SAFETY: plain integers, for which zero is valid.
    let mut info: libc::siginfo_t = unsafe { std::mem::zeroed() };
    info.si_code = libc::SI_QUEUE;
    let call = libc::SYS_rt_tgsigqueueinfo;
    // SAFETY: reads `info`; the signal is ignored where nobody handles it.
    unsafe { libc::syscall(call, libc::getpid(), tid, libc::SIGURG, &raw const info) };
}

/// Of two pending signals with one number the kernel keeps one. A request to give way that was merged with another signal left its
/// thread marked as signalled, and none was sent to it ever again: light goroutines waited for whole slices.
#[test]
fn a_request_merged_with_another_signal_is_not_the_last() {
    child(&[], || {
        // Nobody gives way but on request.
        let slice = Duration::from_secs(10);
        let rt = built(Runtime::builder().procs(1).time_slice(slice));
        let over = Arc::new(AtomicBool::new(false));
        let noise = {
            let over = Arc::clone(&over);
            std::thread::spawn(move || {
                while !over.load(Relaxed) {
                    for task in std::fs::read_dir("/proc/self/task").unwrap() {
                        let tid: i32 = task.unwrap().file_name().to_str().unwrap().parse().unwrap();
                        send_foreign(tid);
                    }
                    std::thread::sleep(Duration::from_micros(100));
                }
            })
        };
        let hog = {
            let over = Arc::clone(&over);
            rt.go(move || while !over.load(Relaxed) {})
        };
        let ticker = rt.go(|| {
            for _ in 0..500 {
                runnext::time::sleep(Duration::from_millis(1));
            }
        });
        ticker.join().unwrap();
        over.store(true, Relaxed);
        hog.join().unwrap();
        noise.join().unwrap();
    })
    .passed();
}

/// A thread that lost its P and came back with it, and then blocked again, was not noticed: nobody looked after timers any more.
#[test]
fn timers_go_on_beside_one_that_blocks_and_only_looks_in() {
    let rt = runtime(1);
    let (mut here, there) = UnixStream::pair().expect("a pair");
    let (ticks, stop) = (
        Arc::new(AtomicUsize::new(0)),
        Arc::new(AtomicBool::new(false)),
    );
    let ticker = rt.go({
        let (ticks, stop) = (Arc::clone(&ticks), Arc::clone(&stop));
        move || {
            while !stop.load(SeqCst) {
                runnext::time::sleep(Duration::from_millis(50));
                ticks.fetch_add(1, SeqCst);
            }
        }
    });
    let (tx, rx) = runnext::chan::bounded(1000);
    let (tell, told) = mpsc::channel();
    let blocks = rt.go(move || {
        tell.send(thread_id()).expect("the test waits");
        while (&there).read_exact(&mut [0]).is_ok() {
            tx.try_send(()).expect("room"); // a call of the runtime that wakes nobody
        }
    });
    let blocked = told.recv().expect("it starts");
    let until_ticks = |more: usize| {
        let before = ticks.load(SeqCst);
        while ticks.load(SeqCst) < before + more {
            thread::sleep(Duration::from_millis(1));
        }
    };
    for i in 1..=10 {
        until_ticks(2); // it has lost its P
        thread::sleep(Duration::from_millis(30)); // and between two ticks all is quiet
        here.write_all(b"!").expect("room");
        while rx.len() < i {
            thread::yield_now();
        }
        until_asleep(blocked, libc::SYS_recvfrom);
        until_ticks(2);
    }
    stop.store(true, SeqCst);
    drop(here);
    ticker.join().expect("ends");
    blocks.join().expect("ends");
}

/// Each thread kept a file of `/proc` open: who blocked in many goroutines had no descriptor left for a socket.
#[test]
fn goroutines_that_block_need_no_descriptors() {
    child(&[], || {
        const MANY: usize = 60;
        let rt = runtime(2);
        rt.run(|| {
            let open = || std::fs::read_dir("/proc/self/fd").unwrap().count();
            let before = open();
            let inside = Arc::new(AtomicUsize::new(0));
            let (gates, blocked): (Vec<_>, Vec<_>) = (0..MANY)
                .map(|_| {
                    let (gate, closed) = std::sync::mpsc::channel::<()>();
                    let inside = Arc::clone(&inside);
                    let blocks = move || {
                        inside.fetch_add(1, SeqCst);
                        closed.recv().unwrap_err();
                    };
                    (gate, go(|| runnext::blocking(blocks)))
                })
                .unzip();
            until(|| inside.load(SeqCst) == MANY);
            let during = open();
            drop(gates);
            blocked.into_iter().for_each(|g| g.join().unwrap());
            assert!(during < before + MANY / 2 + 10, "{before}, then {during}");
        });
    })
    .passed();
}

/// Where the system refuses CPU timers nobody ended the slices of hogs, unless somebody light waited.
#[test]
fn hogs_take_turns_where_there_are_no_timers() {
    child(&[], || {
        let none = libc::rlimit {
            rlim_cur: 0,
            rlim_max: 0,
        };
        // SAFETY: a valid argument.
        let refused = unsafe { libc::setrlimit(libc::RLIMIT_SIGPENDING, &raw const none) };
        assert_eq!(refused, 0);
        let _dog = watchdog("hogs without timers");
        runtime(1).run(|| {
            const HOGS: usize = 3;
            let baton = Arc::new(AtomicUsize::new(0));
            let hogs = [0, 1, 2].map(|own| {
                let baton = Arc::clone(&baton);
                go(move || {
                    for round in 0..10 {
                        while baton.load(SeqCst) != round * HOGS + own {
                            std::hint::spin_loop();
                        }
                        baton.fetch_add(1, SeqCst);
                    }
                })
            });
            hogs.into_iter().for_each(|hog| hog.join().expect("ends"));
        });
    })
    .passed();
}

/// Slices shorter than the kernel's tick were charged for one of those that end in it: a quarter of what was used.
#[test]
fn all_slices_of_a_tick_are_charged() {
    let _dog = watchdog("slices of a tick");
    impatient(1).run(|| {
        let (used, charged) = go(|| {
            hog_for(Duration::from_millis(400));
            // In this order: a tick between the two would be charged and not seen as used.
            let charged = runnext::current().expect("a goroutine").cpu_time();
            (cpu_time(libc::CLOCK_THREAD_CPUTIME_ID), charged)
        })
        .join()
        .expect("ends");
        assert!(charged > used / 2, "{charged:?} of {used:?}");
        assert!(charged <= used, "{charged:?} of {used:?}");
    });
}

/// Nobody asked for it: the first of these ran for ever, and not even a sleeper came after it.
#[test]
fn checkpoints_give_way_without_preemption() {
    let _dog = watchdog("checkpoints without preemption");
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        let loops = Hogs::start_with(3, runnext::checkpoint);
        time::sleep(Duration::from_millis(1));
        while loops.started() < 3 {
            runnext::checkpoint(); // as they do
        }
        loops.stop();
    });
}

/// Once there had been a group nobody asked again: not those without a group, nor those of a group that was alone.
#[test]
fn checkpoints_give_way_without_preemption_after_groups_were_used() {
    let _dog = watchdog("checkpoints beside groups");
    let rt = built(Runtime::builder().procs(1).preemption(false));
    let take_turns = || {
        let loops = Hogs::start_with(2, runnext::checkpoint);
        while loops.started() < 2 {
            runnext::checkpoint();
        }
        loops.stop();
    };
    rt.run(|| {
        let group = TaskGroup::new("one");
        group.go(|| ()).join().unwrap();
        take_turns();
        group.go(take_turns).join().unwrap();
    });
}

/// Only there: who switches preemption off relies on the order of what runs, however long a turn takes.
#[test]
fn calls_do_not_give_way_without_preemption() {
    let _dog = watchdog("calls without preemption");
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        let ran = Arc::new(AtomicBool::new(false));
        let other = {
            let ran = Arc::clone(&ran);
            go(move || ran.store(true, Relaxed))
        };
        let (tx, rx) = chan::bounded(1);
        let me = runnext::current().unwrap();
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(100) {
            tx.send(me.id()).unwrap();
            rx.recv().unwrap();
        }
        assert!(!ran.load(Relaxed), "a call gave way");
        while !ran.load(Relaxed) {
            runnext::checkpoint();
        }
        other.join().unwrap();
    });
}

/// Where nothing can be read from `/proc`, a goroutine in an unmarked system call kept its P for ever, and with it the one it waited for.
#[test]
fn threads_are_seen_to_block_without_proc() {
    child(&[], || {
        let _dog = watchdog("blocked without /proc");
        runtime(1).run(|| {
            let (mut reader, mut writer) = std::io::pipe().expect("a pipe");
            let none = libc::rlimit {
                rlim_cur: 0,
                rlim_max: 0,
            };
            // SAFETY: a valid argument. From now on no file can be opened.
            let refused = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const none) };
            assert_eq!(refused, 0);
            let mut byte = [0];
            runnext::scope(|s| {
                s.go(|| reader.read_exact(&mut byte).expect("a byte"));
                runnext::yield_now(); // it reads, on the only P
                writer.write_all(&[7]).expect("written");
            });
            assert_eq!(byte, [7]);
        });
    })
    .passed();
}

/// Beside a timer each new goroutine woke the monitor, which then meant to leave timers alone for longer than who dispatched the next one knew: it took a
/// quarter of a CPU.
#[test]
fn new_goroutines_do_not_keep_the_monitor_awake() {
    child(&[], || start_many_beside(1)).passed();
}

/// The same with more timers than Ps get round to: the monitor had seen that they were due, and slept for longer than who started new goroutines would have it.
#[test]
fn nor_do_they_beside_timers_that_are_due_already() {
    child(&[], || start_many_beside(2_000)).passed();
}

/// Counts how often the monitor looks.
fn start_many_beside(sleepers: usize) {
    const LENGTH: Duration = Duration::from_micros(10);
    let rt = runtime(2);
    let over = Arc::new(AtomicBool::new(false));
    let until_over = |turn: fn()| {
        let over = Arc::clone(&over);
        move || {
            while !over.load(Relaxed) {
                turn();
            }
        }
    };
    let sleep = || rt.go(until_over(|| time::sleep(10 * LENGTH)));
    let sleepers: Vec<_> = (0..sleepers).map(|_| sleep()).collect();
    let starters = [(); 4].map(|()| {
        rt.go(until_over(|| {
            let all: Vec<_> = (0..200).map(|_| go(|| hog_for(LENGTH))).collect();
            for one in all {
                one.join().unwrap();
            }
        }))
    });
    let looks = || switches_of(|name| name == "runnext-monitor");
    let (before, since) = (looks(), Instant::now());
    thread::sleep(Duration::from_millis(500));
    let (looks, lasted) = (looks() - before, since.elapsed());
    over.store(true, Relaxed);
    starters.into_iter().for_each(|one| one.join().unwrap());
    sleepers.into_iter().for_each(|one| one.join().unwrap());
    let each = lasted / looks.max(1) as u32;
    assert!(each > Duration::from_micros(200), "{looks} in {lasted:?}");
}

//! The scheduler's numbers against the ground truth of known workloads.

mod common;

use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::Duration;

use common::{built, runtime, until};
use runnext::stats::{self, Metric, SchedStats};
use runnext::sync::{Mutex, RwLock};
use runnext::{Runtime, TaskGroup, blocking, chan, dump, go, scope, time, yield_now};

/// Small, and the same on every machine.
fn dice(seed: &mut u64) -> u64 {
    *seed ^= *seed << 13;
    *seed ^= *seed >> 7;
    *seed ^= *seed << 17;
    *seed
}

/// One P, nothing preempted: every dispatch is known.
fn quiet() -> Runtime {
    built(Runtime::builder().procs(1).preemption(false))
}

#[test]
fn creations_and_executions_are_exact() {
    let rt = quiet();
    let mut seed = 0x5eed_cafe;
    let yields: Vec<u64> = (0..200).map(|_| dice(&mut seed) % 7).collect();
    let total: u64 = yields.iter().sum();
    let (before, after) = rt.run(move || {
        let before = stats::read();
        let all: Vec<_> = yields
            .into_iter()
            .map(|n| go(move || (0..n).for_each(|_| yield_now())))
            .collect();
        let count = all.len() as u64;
        all.into_iter().for_each(|j| j.join().unwrap());
        let after = stats::read();
        assert_eq!(after.total_goroutine - before.total_goroutine, count);
        assert_eq!((before.num_goroutine, after.num_goroutine), (1, 1));
        (before, after)
    });
    // Each begins once and goes on once after each yield; so does the main goroutine after each wait.
    let executed = after.total_goroutine_exec - before.total_goroutine_exec;
    assert!(executed >= 200 + total, "{executed}");
    assert!(executed <= 200 + total + 200, "{executed}");
    assert_eq!(after.total_goroutine_sched, after.total_goroutine_exec);
    assert_eq!(after.num_goroutine_sched, 0);
    assert_eq!(after.num_goroutine_exec, 1);
    assert_eq!((after.max_procs, after.num_procs), (1, 1));
    assert_eq!(after.total_stolen, 0);
}

#[test]
fn what_is_queued_counts_as_scheduled() {
    quiet().run(|| {
        let before = stats::read();
        let all: Vec<_> = (0..300).map(|_| go(|| ())).collect();
        let now = stats::read();
        // Nothing but this goroutine has run: they are in runnext, the local queue, and the global one.
        assert_eq!(now.num_goroutine_sched, 300);
        assert_eq!(now.num_goroutine, 301);
        assert_eq!(now.total_goroutine_exec, before.total_goroutine_exec);
        assert_eq!(
            now.total_goroutine_sched,
            before.total_goroutine_sched + 300
        );
        all.into_iter().for_each(|j| j.join().unwrap());
    });
}

#[test]
fn wake_ups_are_executions() {
    quiet().run(|| {
        let (there, here) = (chan::bounded::<u32>(0), chan::bounded::<u32>(0));
        let before = stats::read();
        let other = go({
            let (rx, tx) = (there.1, here.0);
            move || rx.iter().for_each(|n| tx.send(n).unwrap())
        });
        for n in 0..500 {
            there.0.send(n).unwrap();
            assert_eq!(here.1.recv(), Ok(n));
        }
        let after = stats::read();
        let executed = after.total_goroutine_exec - before.total_goroutine_exec;
        assert!((1000..=2010).contains(&executed), "{executed}");
        assert!(after.total_runnext_hits - before.total_runnext_hits >= 900);
        drop(there.0);
        other.join().unwrap();
    });
}

#[test]
fn blocking_sections_are_counted_and_seen_open() {
    let rt = runtime(2);
    rt.run(|| {
        let before = stats::read();
        assert_eq!(before.num_sys_calls, 0);
        let (release, hold) = chan::bounded::<()>(0);
        let all: Vec<_> = (0..5)
            .map(|_| {
                let hold = hold.clone();
                go(move || {
                    blocking(|| hold.recv()).unwrap_err();
                })
            })
            .collect();
        until(|| stats::read().num_sys_calls == 5);
        drop(release);
        all.into_iter().for_each(|j| j.join().unwrap());
        for _ in 0..10 {
            blocking(|| blocking(|| ())); // nested: one
        }
        let after = stats::read();
        assert_eq!(after.total_sys_calls - before.total_sys_calls, 15);
        assert_eq!(after.num_sys_calls, 0);
    });
}

#[test]
fn a_thread_that_blocks_without_saying_so_is_seen() {
    let rt = built(Runtime::builder().procs(1));
    rt.run(|| {
        let before = stats::read();
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let stuck = go(move || rx.recv()); // std's: blocks the thread
        let mut most = 0;
        until(|| {
            let now = stats::read();
            most = most.max(now.num_ffi_calls);
            now.total_ffi_calls > before.total_ffi_calls
        });
        assert!(most <= 1);
        until(|| stats::read().num_ffi_calls == 1);
        tx.send(()).unwrap();
        stuck.join().unwrap().unwrap();
        until(|| stats::read().num_ffi_calls == 0);
        let after = stats::read();
        assert!(after.total_handoffs > before.total_handoffs);
        assert!(after.total_thread_starts > before.total_thread_starts);
    });
}

#[test]
fn a_hog_is_preempted_and_it_shows() {
    let rt = built(
        Runtime::builder()
            .procs(1)
            .time_slice(Duration::from_millis(5)),
    );
    rt.run(|| {
        let before = stats::read();
        let stop = Arc::new(AtomicBool::new(false));
        let turns = Arc::new(AtomicU64::new(0));
        let hogs: Vec<_> = (0..2)
            .map(|_| {
                let (stop, turns) = (Arc::clone(&stop), Arc::clone(&turns));
                go(move || {
                    while !stop.load(Relaxed) {
                        turns.fetch_add(1, Relaxed);
                        std::hint::spin_loop();
                    }
                })
            })
            .collect();
        let of =
            |s: &SchedStats| s.preemptions_slice + s.preemptions_wakeup + s.preemptions_cooperative;
        until(|| of(&stats::read()) >= of(&before) + 10);
        stop.store(true, Relaxed);
        hogs.into_iter().for_each(|j| j.join().unwrap());
        assert!(turns.load(Relaxed) > 0);
        let after = stats::read();
        assert!(after.preempt_latency.count() <= of(&after));
    });
}

#[test]
fn stolen_goroutines_are_counted() {
    let rt = built(Runtime::builder().procs(2));
    rt.run(|| {
        // Goroutines that last, all queued on one P: the other can only get them by stealing, or from the global queue.
        until(|| {
            let all: Vec<_> = (0..50)
                .map(|_| go(|| (0..20_000).for_each(|_| std::hint::spin_loop())))
                .collect();
            all.into_iter().for_each(|j| j.join().unwrap());
            stats::read().total_steals > 0
        });
        let now = stats::read();
        assert!(now.total_stolen >= now.total_steals);
        assert!(now.total_stolen <= now.total_goroutine_exec);
    });
}

#[test]
fn samples_are_taken_at_the_rate_and_the_newest_is_where_it_should_be() {
    let rt = quiet();
    rt.run(|| {
        stats::set_profile_rate(1000);
        assert_eq!(stats::read().sample_hz, 1000);
        let start = stats::read().num_samples;
        let others: Vec<_> = (0..4)
            .map(|_| go(|| until(|| stats::read().num_samples > 300)))
            .collect();
        others.into_iter().for_each(|j| j.join().unwrap());
        let now = stats::read();
        assert!(now.num_samples > start);
        let newest = now.goroutine_sched_ns[((now.num_samples + 255) % 256) as usize];
        let last = now.recent_delays().last().unwrap();
        assert_eq!(Duration::from_nanos(newest), last);
        assert_eq!(now.recent_delays().count(), 256);
        assert!(now.goroutine_sched_ns.iter().all(|&ns| ns > 0));
        // All that is in the ring is in the histogram too.
        assert!(now.sched_latency.count() >= now.num_samples);
        assert!(now.run_time.count() > 0);
    });
}

#[test]
fn a_rate_of_zero_takes_no_samples() {
    quiet().run(|| {
        stats::set_profile_rate(0);
        let others: Vec<_> = (0..4).map(|_| go(yield_now)).collect();
        others.into_iter().for_each(|j| j.join().unwrap());
        let before = stats::read();
        scope(|s| {
            for _ in 0..4 {
                s.go(|| (0..2000).for_each(|_| yield_now()));
            }
        });
        let after = stats::read();
        assert_eq!(after.num_samples, before.num_samples);
        assert!(after.sched_latency.count() <= before.sched_latency.count() + 1);
        assert!(after.total_goroutine_exec >= before.total_goroutine_exec + 8000);
    });
}

#[test]
fn every_name_gives_its_number() {
    quiet().run(|| {
        let s = stats::read();
        let number = |name: &str| s.get_metric(name).and_then(|m| m.as_u64());
        for (name, value) in [
            ("TotalGoroutineExec", s.total_goroutine_exec),
            ("NumGoroutineExec", s.num_goroutine_exec as u64),
            ("TotalGoroutineSched", s.total_goroutine_sched),
            ("NumGoroutineSched", s.num_goroutine_sched as u64),
            ("TotalGoroutine", s.total_goroutine),
            ("NumGoroutine", s.num_goroutine as u64),
            ("TotalCGoCalls", s.total_ffi_calls),
            ("NumCGoCalls", s.num_ffi_calls as u64),
            ("TotalFfiCalls", s.total_ffi_calls),
            ("TotalSysCalls", s.total_sys_calls),
            ("NumSysCalls", s.num_sys_calls as u64),
            ("MaxProcs", s.max_procs as u64),
            ("NumProcs", s.num_procs as u64),
            ("NumSamples", s.num_samples),
            ("SampleHz", s.sample_hz.into()),
            ("totalThreadStarts", s.total_thread_starts),
            ("numThreads", s.num_threads as u64),
            ("/sched/gomaxprocs:threads", s.max_procs as u64),
            ("/sched/goroutines:goroutines", s.num_goroutine as u64),
            ("/sched/goroutines-created:goroutines", s.total_goroutine),
            (
                "/sched/goroutines/running:goroutines",
                s.num_goroutine_exec as u64,
            ),
            (
                "/sched/goroutines/runnable:goroutines",
                s.num_goroutine_sched as u64,
            ),
        ] {
            assert_eq!(number(name), Some(value), "{name}");
        }
        for name in ["GoroutineSchedNs", "/sched/latencies:seconds"] {
            assert!(
                matches!(s.get_metric(name), Some(Metric::Histogram(_))),
                "{name}"
            );
        }
        assert_eq!(s.get_metric("numthreads"), None);
        let names: Vec<_> = s.metrics().map(|(name, _)| name).collect();
        let distinct: HashSet<_> = names.iter().collect();
        assert_eq!(names.len(), distinct.len());
        assert!(names.iter().all(|name| s.get_metric(name).is_some()));
    });
}

/// How many are running, runnable, outside and waiting; they must be all there are.
fn gauges() -> [u64; 4] {
    let stats = stats::read();
    let of = |state: &str| {
        let name = format!("/sched/goroutines/{state}:goroutines");
        stats.get_metric(&name).unwrap().as_u64().unwrap()
    };
    let four = ["running", "runnable", "not-in-go", "waiting"].map(of);
    // More only while one of them changes from one state to another.
    assert!(four.iter().sum::<u64>() >= stats.num_goroutine as u64);
    four
}

/// Go's TestReadMetricsSched: each gauge is what is known to be so, and they add up.
#[test]
fn goroutines_are_in_one_state_each() {
    let rt = runtime(3);
    rt.run(|| {
        let created = stats::read().total_goroutine;
        let stop = AtomicBool::new(false);
        let spin = || {
            while !stop.load(Relaxed) {
                std::hint::spin_loop();
            }
        };
        let (end, wait) = chan::bounded::<()>(0);
        let (wake, asleep): (Vec<_>, Vec<_>) =
            (0..15).map(|_| std::sync::mpsc::channel::<()>()).unzip();
        let group = TaskGroup::new("spinners");
        scope(|s| {
            for (i, asleep) in asleep.into_iter().enumerate() {
                s.go(move || match i {
                    0..10 => drop(blocking(|| asleep.recv())),
                    _ => drop(asleep.recv()),
                });
            }
            for _ in 0..100 {
                s.go(|| wait.recv().unwrap_err());
            }
            until(|| {
                time::sleep(Duration::from_millis(5));
                gauges() == [1, 0, 15, 100]
            });
            for _ in 0..6 {
                s.go(spin);
            }
            group.enter(|| (0..4).for_each(|_| drop(s.go(spin))));
            // Ten and this one, on three processors.
            until(|| gauges() == [3, 8, 15, 100]);
            assert_eq!(stats::read().num_goroutine, 126);
            assert_eq!(stats::read().total_goroutine - created, 125);
            stop.store(true, Relaxed);
            drop((wake, end));
        });
        until(|| gauges() == [1, 0, 0, 0]);
    });
}

/// Nobody needs the processor, so it stays with who is in the section; that one does not run all the same.
#[test]
fn who_keeps_a_processor_in_a_section_does_not_run() {
    runtime(2).run(|| {
        let (wake, asleep) = std::sync::mpsc::channel::<()>();
        let section = go(move || blocking(|| asleep.recv()));
        until(|| stats::read().num_sys_calls == 1);
        until(|| gauges() == [1, 0, 1, 0]);
        // Nor does who asks.
        assert_eq!(blocking(gauges)[2], 2);
        until(|| blocking(gauges) == [0, 0, 2, 0]);
        drop(wake);
        section.join().unwrap().unwrap_err();
    });
}

#[test]
fn a_handle_reads_from_outside() {
    let rt = runtime(2);
    rt.run(|| scope(|s| (0..10).for_each(|_| drop(s.go(yield_now)))));
    let s = rt.stats();
    assert_eq!(s.total_goroutine, 11);
    assert!(s.num_goroutine <= 11);
    let refused = std::panic::catch_unwind(stats::read).unwrap_err();
    assert!(common::message(&*refused).contains("outside a runtime"));
}

/// Most processors are idle, and nothing else wakes the monitor.
#[test]
fn samples_keep_their_rate_while_little_happens() {
    let rt = runtime(8);
    rt.run(|| {
        stats::set_profile_rate(1000);
        let before = stats::read().num_samples;
        for _ in 0..40 {
            go(|| ()).join().unwrap();
            time::sleep(Duration::from_millis(15)); // fifteen times as long as it takes until the next one is due
        }
        let samples = stats::read().num_samples - before;
        stats::set_profile_rate(100);
        assert!(samples >= 20, "{samples} in forty times");
    });
}

/// Whether or not somebody could use their processors.
#[test]
fn sleepers_in_foreign_code_are_counted_beside_idle_processors() {
    let rt = runtime(8);
    rt.run(|| {
        let before = stats::read().total_ffi_calls;
        let stop = Arc::new(AtomicBool::new(false));
        let sleepers: Vec<_> = (0..3)
            .map(|_| {
                let stop = Arc::clone(&stop);
                go(move || {
                    while !stop.load(Relaxed) {
                        std::thread::sleep(Duration::from_millis(300));
                    }
                })
            })
            .collect();
        until(|| stats::read().num_ffi_calls == 3);
        stop.store(true, Relaxed);
        for sleeper in sleepers {
            sleeper.join().unwrap();
        }
        assert!(stats::read().total_ffi_calls >= before + 3);
        assert_eq!(stats::read().num_ffi_calls, 0);
    });
}

#[test]
fn waits_for_locks_add_up() {
    let hold = Duration::from_millis(20);
    runtime(2).run(|| {
        let waited = || {
            let stats = stats::read();
            let metric = stats.get_metric("/sync/mutex/wait/total:seconds");
            assert_eq!(
                metric,
                Some(Metric::F64(stats.total_lock_wait.as_secs_f64()))
            );
            stats.total_lock_wait
        };
        let (mutex, lock) = (Mutex::new(()), RwLock::new(()));
        drop((mutex.lock(), lock.read()));
        drop(lock.write());
        assert_eq!(waited(), Duration::ZERO, "nobody had to wait");
        // Two wait for the mutex, and with the lock a reader and a writer.
        let guards = (mutex.lock(), lock.write());
        scope(|s| {
            let begin = std::time::Instant::now();
            s.go(|| drop(mutex.lock()));
            s.go(|| drop(mutex.lock()));
            s.go(|| drop(lock.read()));
            s.go(|| drop(lock.write()));
            until(|| dump::text().matches(" [sync.").count() == 4);
            let since = std::time::Instant::now();
            time::sleep(hold);
            let least = 4 * since.elapsed();
            assert_eq!(waited(), Duration::ZERO, "each is counted when it is over");
            drop(guards);
            until(|| stats::read().num_goroutine == 1);
            let (waited, most) = (waited(), 4 * begin.elapsed());
            // The clocks are not the same; one is calibrated to within a few parts in a thousand.
            assert!(
                waited > least * 99 / 100 && waited < most * 101 / 100,
                "{least:?} {waited:?} {most:?}"
            );
        });
    });
}

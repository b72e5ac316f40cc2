//! Jobs that panic, sleep for an hour or block for ever never use up the workers. (The "man or boy" test of worker pools: any
//! design with a fixed number of workers fails it.)

mod common;
mod stall;

use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, mpsc};
use std::thread;
use std::time::{Duration, Instant};

use common::{child, runtime};
use runnext::go;
use stall::{threads, watchdog};

const JOBS: usize = 500;

/// The next job must run, whatever the others do.
fn next_job_starts() {
    for _ in 0..3 {
        assert_eq!(go(|| 6 * 7).join().unwrap(), 42);
    }
}

#[test]
fn jobs_that_panic() {
    let _dog = watchdog("panics");
    // In a child: 500 reports of panics are not for the reader of a test's output.
    child(&[], || {
        let rt = runtime(2);
        rt.run(|| {
            let jobs: Vec<_> = (0..JOBS).map(|i| go(move || panic!("job {i}"))).collect();
            next_job_starts();
            for (i, job) in jobs.into_iter().enumerate() {
                let payload: Box<dyn std::any::Any + Send> =
                    job.join().map(|_: ()| ()).unwrap_err();
                assert_eq!(common::message(&*payload), format!("job {i}"));
            }
            next_job_starts();
        });
    })
    .passed();
}

/// In a child: the sleepers outlive the test.
#[test]
fn jobs_that_sleep_an_hour() {
    let _dog = watchdog("sleepers");
    child(&[], || {
        let rt = runtime(2);
        let asleep = Arc::new(AtomicUsize::new(0));
        rt.run(|| {
            for i in 0..JOBS {
                let asleep = Arc::clone(&asleep);
                go(move || {
                    asleep.fetch_add(1, Relaxed);
                    thread::sleep(Duration::from_secs(3600));
                });
                if i % 100 == 0 {
                    next_job_starts();
                }
            }
            while asleep.load(Relaxed) < JOBS {
                runnext::yield_now();
            }
            next_job_starts();
        });
    })
    .passed();
}

#[test]
fn jobs_that_wait_for_ever_on_a_std_channel_until_it_is_closed() {
    let _dog = watchdog("std channel");
    child(&[], || {
        let rt = runtime(2);
        let (tx, rx) = mpsc::channel::<()>();
        // One receiver: one job waits in it, the others for the lock around it.
        let rx = Arc::new(Mutex::new(rx));
        let normal = rt.run(|| {
            next_job_starts();
            threads()
        });
        rt.run(move || {
            let waiting = Arc::new(AtomicUsize::new(0));
            let jobs: Vec<_> = (0..JOBS)
                .map(|_| {
                    let (rx, waiting) = (Arc::clone(&rx), Arc::clone(&waiting));
                    go(move || {
                        waiting.fetch_add(1, Relaxed);
                        assert!(rx.lock().unwrap().recv().is_err());
                    })
                })
                .collect();
            while waiting.load(Relaxed) < JOBS {
                runnext::yield_now();
            }
            next_job_starts();
            // The next job ends the others.
            go(move || drop(tx)).join().unwrap();
            for job in jobs {
                job.join().unwrap();
            }
            next_job_starts();
        });
        // The threads they needed go again.
        let deadline = Instant::now() + Duration::from_secs(30);
        while threads() > normal + 4 {
            assert!(
                Instant::now() < deadline,
                "{} threads are left of {normal}:\n{}",
                threads(),
                stall::dump()
            );
            thread::sleep(Duration::from_millis(20));
        }
        drop(rt);
    })
    .passed();
}

#[test]
fn threads_go_when_one_after_another_wakes() {
    let _dog = watchdog("threads go");
    child(&[], || {
        let rt = runtime(2);
        let normal = rt.run(|| {
            next_job_starts();
            threads()
        });
        rt.run(|| {
            let sleepers: Vec<_> = (0..60)
                .map(|i| go(move || thread::sleep(Duration::from_millis(50 + 5 * i))))
                .collect();
            for s in sleepers {
                s.join().unwrap();
            }
        });
        let deadline = Instant::now() + Duration::from_secs(30);
        while threads() > normal + 4 {
            assert!(Instant::now() < deadline, "{} of {normal}", threads());
            thread::sleep(Duration::from_millis(20));
        }
    })
    .passed();
}

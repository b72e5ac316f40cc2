//! Futures under load: rings from everywhere, races of the end, preemption, chaos. Sums must come out.

mod common;

use std::future::{Future, poll_fn};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{child, runtime};
use runnext::{block_on, chan, go, spawn};

/// A counter that futures wait on: done when it has reached what they wait for.
#[derive(Clone, Default)]
struct Tally(Arc<(AtomicUsize, Mutex<Vec<Waker>>)>);

impl Tally {
    fn reach(&self, goal: usize) -> impl Future<Output = ()> + Send + use<> {
        let tally = self.clone();
        poll_fn(move |cx| {
            // The waker first: who adds after that look rings it.
            tally.0.1.lock().unwrap().push(cx.waker().clone());
            if tally.0.0.load(SeqCst) >= goal {
                Poll::Ready(())
            } else {
                Poll::Pending
            }
        })
    }

    fn add(&self) {
        self.0.0.fetch_add(1, SeqCst);
        let wakers = std::mem::take(&mut *self.0.1.lock().unwrap());
        for waker in wakers {
            waker.wake();
        }
    }
}

/// Waiters of both kinds, rung by goroutines, futures and plain threads.
fn ring_from_everywhere(rounds: usize) {
    let rt = runtime(2);
    let tally = Tally::default();
    let own: Vec<_> = (0..2)
        .map(|_| {
            let tally = tally.clone();
            std::thread::spawn(move || (0..rounds).for_each(|_| tally.add()))
        })
        .collect();
    rt.run(|| {
        let mut waiters = Vec::new();
        for goal in 1..=40 {
            let reached = tally.reach(goal * rounds / 10);
            waiters.push(if goal % 2 == 0 {
                spawn(reached)
            } else {
                go(move || block_on(reached))
            });
        }
        let with_stack = tally.clone();
        let rings = go(move || (0..rounds).for_each(|_| with_stack.add()));
        let without = tally.clone();
        let more = spawn(async move {
            for i in 0..rounds {
                without.add();
                without.reach(i).await;
            }
        });
        for waiter in waiters {
            waiter.join().unwrap();
        }
        rings.join().unwrap();
        more.join().unwrap();
    });
    for thread in own {
        thread.join().unwrap();
    }
    assert_eq!(tally.0.0.load(SeqCst), 4 * rounds);
}

#[test]
fn no_ring_is_lost() {
    ring_from_everywhere(500);
}

#[test]
fn nor_in_chaos() {
    child(&[("RUNNEXT_DEBUG", "chaos=1")], || {
        ring_from_everywhere(300)
    })
    .passed();
}

/// Hand-offs between futures, each of which is woken by the one before.
#[runnext::test]
fn a_ring_of_futures_keeps_turning() {
    const N: usize = 20;
    let tally = Tally::default();
    let ring: Vec<_> = (0..N)
        .map(|i| {
            let tally = tally.clone();
            spawn(async move {
                for round in 0..50 {
                    tally.reach(round * N + i).await;
                    tally.add();
                }
            })
        })
        .collect();
    for one in ring {
        one.join().unwrap();
    }
    assert_eq!(tally.0.0.load(SeqCst), 50 * N);
}

/// The end of a goroutine against whoever awaits it, changes its mind, or lets go.
#[runnext::test]
fn ends_race_with_who_awaits_them() {
    let ended = Arc::new(AtomicUsize::new(0));
    let rounds = 2000;
    for i in 0..rounds {
        let count = Arc::clone(&ended);
        let mut task = if i % 2 == 0 {
            spawn(async move {
                count.fetch_add(1, SeqCst);
                [7u64; 8]
            })
        } else {
            go(move || {
                count.fetch_add(1, SeqCst);
                [7u64; 8]
            })
        };
        match i % 5 {
            0 => drop(task),
            1 => {
                // With one waker, then with another, then not at all.
                let polled = Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop()));
                drop((polled, task));
            }
            2 => {
                let polled = Pin::new(&mut task).poll(&mut Context::from_waker(Waker::noop()));
                if polled.is_pending() {
                    assert_eq!(block_on(task).unwrap()[7], 7);
                }
            }
            3 => assert_eq!(spawn(task).join().unwrap().unwrap()[7], 7),
            _ => assert_eq!(task.join().unwrap()[7], 7),
        }
    }
    common::until(|| ended.load(SeqCst) == rounds);
}

/// Polls that compute, block, allocate and are preempted, beside others that must not notice.
#[test]
fn polls_of_all_kinds_side_by_side() {
    let rt = runtime(2);
    let total = Arc::new(AtomicUsize::new(0));
    rt.run(|| {
        let (tx, rx) = chan::bounded::<usize>(1);
        let mut tasks = Vec::new();
        for i in 0..40usize {
            let (total, tx, rx) = (Arc::clone(&total), tx.clone(), rx.clone());
            tasks.push(spawn(async move {
                match i % 4 {
                    0 => {
                        // Longer than a slice.
                        let begin = std::time::Instant::now();
                        while begin.elapsed() < Duration::from_millis(12) {
                            std::hint::black_box(vec![0u8; 100]);
                        }
                    }
                    1 => tx.send(i).unwrap(),
                    2 => assert_eq!(rx.recv().unwrap() % 4, 1),
                    _ => runnext::future::sleep(Duration::from_millis(1)).await,
                }
                total.fetch_add(1, SeqCst);
            }));
        }
        for task in tasks {
            task.join().unwrap();
        }
    });
    assert_eq!(total.load(SeqCst), 40);
}

/// Runtimes that end while their futures are rung from outside.
#[test]
fn shutdown_races_with_rings() {
    for _ in 0..30 {
        let tally = Tally::default();
        let rt = runtime(2);
        for goal in 0..20 {
            let (other, reached) = (tally.clone(), tally.reach(goal));
            rt.spawn(async move {
                reached.await;
                loop {
                    other.reach(usize::MAX).await;
                }
            });
        }
        let rings = std::thread::spawn({
            let tally = tally.clone();
            move || (0..200).for_each(|_| tally.add())
        });
        let counts = rt.shutdown(Duration::from_micros(50));
        assert_eq!(counts.abandoned + counts.finished, 20);
        rings.join().unwrap();
    }
}

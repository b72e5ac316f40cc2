//! The order in which one P serves the waiters of a channel: Go's, at GOMAXPROCS=1.
//!
//! One P and no preemption, so the order is a fact and not a likelihood.

mod common;

use common::Log;
use runnext::chan;
use runnext::{go, scope, yield_now};

/// Runs everything that can run.
fn settle() {
    (0..4).for_each(|_| yield_now());
}

#[runnext::test(procs = 1, preemption = false)]
fn receivers_are_served_first_come_first_served() {
    for cap in [0, 3] {
        let (tx, rx) = chan::bounded(cap);
        let waiting: Vec<_> = (0..5)
            .map(|_| {
                let rx = rx.clone();
                let h = go(move || rx.recv().unwrap());
                yield_now();
                h
            })
            .collect();
        (0..5).for_each(|i| tx.send(i).unwrap());
        let got: Vec<_> = waiting.into_iter().map(|h| h.join().unwrap()).collect();
        assert_eq!(got, [0, 1, 2, 3, 4]);
    }
}

#[runnext::test(procs = 1, preemption = false)]
fn senders_are_served_first_come_first_served() {
    for cap in [0usize, 3] {
        let (tx, rx) = chan::bounded(cap);
        (0..cap).for_each(|i| tx.send(i).unwrap());
        let waiting: Vec<_> = (cap..cap + 5)
            .map(|i| {
                let tx = tx.clone();
                let h = go(move || tx.send(i).unwrap());
                yield_now();
                h
            })
            .collect();
        // One that comes later does not overtake, though the buffer has room for a moment.
        assert!((0..cap + 5).all(|i| {
            assert!(cap == 0 || i >= 5 || tx.try_send(99).is_err());
            rx.recv() == Ok(i)
        }));
        waiting.into_iter().for_each(|h| h.join().unwrap());
    }
}

#[runnext::test(procs = 1, preemption = false)]
fn a_sender_goes_on_then_its_receiver_then_the_others() {
    const SENDER: usize = 0;
    const RECEIVER: usize = 1;
    const A: usize = 2;
    const B: usize = 3;
    let log = Log::default();
    let (tx, rx) = chan::bounded(0);
    scope(|s| {
        let log = &log;
        s.go(move || {
            rx.recv().unwrap();
            log.add(RECEIVER);
        });
        yield_now();
        s.go(|| log.add(A));
        s.go(|| log.add(B));
        tx.send(()).unwrap();
        log.add(SENDER);
        settle();
    });
    assert_eq!(log.take(), [SENDER, RECEIVER, A, B]);
}

#[runnext::test(procs = 1, preemption = false)]
fn a_close_wakes_the_first_waiter_first_and_the_others_backwards() {
    let log = Log::default();
    let (tx, rx) = chan::bounded::<()>(0);
    scope(|s| {
        for i in 0..5 {
            let (log, rx) = (&log, rx.clone());
            s.go(move || {
                rx.recv().unwrap_err();
                log.add(i);
            });
            yield_now();
        }
        tx.close();
        settle();
    });
    assert_eq!(log.take(), [0, 4, 3, 2, 1]);
}

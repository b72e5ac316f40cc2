//! Bugs of `select!` that were found, one test each.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::rc::Rc;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use runnext::chan::{self, Select, SendError};
use runnext::select;
use runnext::sync::Mutex;

/// What was temporary in a value or in a time-out lived as long as the wait: a lock was kept by who was parked.
#[runnext::test(procs = 1, preemption = false)]
fn a_value_kept_its_temporaries_during_the_wait() {
    let (tx, rx) = chan::bounded(0);
    let state = Arc::new(Mutex::new((7, Duration::MAX)));
    let own = state.clone();
    let sender = runnext::go(move || {
        select! {
            send(tx, own.lock().0) -> res => res.unwrap(),
        }
        select! {
            send(tx, 8) -> res => res.unwrap(),
            default(own.lock().1) => unreachable!("that is never"),
        }
    });
    for expected in [7, 8] {
        common::until_waits(&sender, "select");
        assert!(state.try_lock().is_some(), "locked by who is parked");
        assert_eq!(rx.recv(), Ok(expected));
    }
    sender.join().unwrap();
}

/// The type of the channel still says what a value that is made in place has to be.
#[test]
fn a_value_is_made_for_its_channel() {
    let (tx, rx) = chan::bounded::<Box<dyn Fn(&str) -> usize + Send>>(1);
    select! { send(tx, Box::new(|text| text.len())) -> res => assert!(res.is_ok()) }
    assert_eq!(rx.recv().unwrap()("four"), 4);
}

struct Noisy(Arc<AtomicBool>);

impl Drop for Noisy {
    fn drop(&mut self) {
        self.0.store(true, SeqCst);
    }
}

/// `recv(rx) -> _` dropped what it had received after the body, and `send(tx, value) -> _` what it had not sent.
#[test]
fn a_result_nobody_names_outlived_the_body() {
    let gone = Arc::new(AtomicBool::new(false));
    let (tx, rx) = chan::bounded(1);
    tx.send(Noisy(gone.clone())).unwrap();
    select! {
        recv(rx) -> _ => assert!(gone.swap(false, SeqCst), "the message is there"),
    }
    drop(rx);
    select! {
        send(tx, Noisy(gone.clone())) -> _ => assert!(gone.swap(false, SeqCst), "the value is there"),
    }
    // One with a name stays.
    select! {
        send(tx, Noisy(gone.clone())) -> res => {
            assert!(matches!(&res, Err(SendError(_))));
            assert!(!gone.load(SeqCst));
        }
    }
    assert!(gone.load(SeqCst));
}

/// Each case took four levels of macros, of the 128 that a compiler allows.
#[test]
fn thirty_two_cases_were_too_many_to_compile() {
    let (txs, rxs): (Vec<_>, Vec<_>) = (0..31).map(|_| chan::bounded::<usize>(1)).unzip();
    let (tx, rx) = chan::bounded::<usize>(0);
    for (which, own) in txs.iter().enumerate() {
        own.send(which * which).unwrap();
        let got = select! {
            recv(rxs[0]) -> msg => (0, msg.unwrap()),
            recv(rxs[1]) -> msg => (1, msg.unwrap()),
            recv(rxs[2]) -> msg => (2, msg.unwrap()),
            recv(rxs[3]) -> msg => (3, msg.unwrap()),
            recv(rxs[4]) -> msg => (4, msg.unwrap()),
            recv(rxs[5]) -> msg => (5, msg.unwrap()),
            recv(rxs[6]) -> msg => (6, msg.unwrap()),
            recv(rxs[7]) -> msg => (7, msg.unwrap()),
            recv(rxs[8]) -> msg => (8, msg.unwrap()),
            recv(rxs[9]) -> msg => (9, msg.unwrap()),
            recv(rxs[10]) -> msg => (10, msg.unwrap()),
            recv(rxs[11]) -> msg => (11, msg.unwrap()),
            recv(rxs[12]) -> msg => (12, msg.unwrap()),
            recv(rxs[13]) -> msg => (13, msg.unwrap()),
            recv(rxs[14]) -> msg => (14, msg.unwrap()),
            recv(rxs[15]) -> msg => (15, msg.unwrap()),
            recv(rxs[16]) -> msg => (16, msg.unwrap()),
            recv(rxs[17]) -> msg => (17, msg.unwrap()),
            recv(rxs[18]) -> msg => (18, msg.unwrap()),
            recv(rxs[19]) -> msg => (19, msg.unwrap()),
            recv(rxs[20]) -> msg => (20, msg.unwrap()),
            recv(rxs[21]) -> msg => (21, msg.unwrap()),
            recv(rxs[22]) -> msg => (22, msg.unwrap()),
            recv(rxs[23]) -> msg => (23, msg.unwrap()),
            recv(rxs[24]) -> msg => (24, msg.unwrap()),
            recv(rxs[25]) -> msg => (25, msg.unwrap()),
            recv(rxs[26]) -> msg => (26, msg.unwrap()),
            recv(rxs[27]) -> msg => (27, msg.unwrap()),
            recv(rxs[28]) -> msg => (28, msg.unwrap()),
            recv(rxs[29]) -> msg => (29, msg.unwrap()),
            recv(rxs[30]) -> msg => (30, msg.unwrap()),
            send(tx, 31) -> res => (31, res.map(|()| 31).unwrap()),
            default => (32, 32),
        };
        assert_eq!(got, (which, which * which));
    }
    assert!(rx.is_empty());
}

/// Of several cases of one channel the one that was written first was done each time, if the select had to wait.
#[runnext::test(procs = 1, preemption = false)]
fn a_select_that_waited_always_did_the_first_of_its_duplicates() {
    const PICKS: usize = 400;
    let (tx, rx) = chan::bounded(0);
    let sender = {
        let tx = tx.clone();
        runnext::go(move || {
            for _ in 0..PICKS {
                select! {
                    send(tx, 0) -> res => res.unwrap(),
                    send(tx, 1) -> res => res.unwrap(),
                    send(tx, 2) -> res => res.unwrap(),
                }
            }
        })
    };
    let mut picks = [0; 3];
    for _ in 0..PICKS {
        common::until_waits(&sender, "select");
        picks[rx.recv().unwrap()] += 1;
    }
    sender.join().unwrap();
    // 133 are expected of each; fewer than 80 in one run of many millions.
    assert!(picks.iter().all(|&n| n >= 80), "{picks:?}");

    let receiver = runnext::go(move || {
        let mut picks = [0; 3];
        let mut select = Select::new();
        (0..3).for_each(|index| assert_eq!(select.recv(&rx), index));
        for _ in 0..PICKS {
            let op = select.select();
            picks[op.index()] += 1;
            op.recv(&rx).unwrap();
        }
        picks
    });
    for _ in 0..PICKS {
        common::until_waits(&receiver, "select");
        tx.send(0).unwrap();
    }
    let picks = receiver.join().unwrap();
    assert!(picks.iter().all(|&n| n >= 80), "{picks:?}");
}

/// crossbeam's `Select` may be made in one place and used in others. Ours had to stay where it was made.
#[runnext::test]
fn a_dynamic_select_could_not_be_sent() {
    let (tx, rx) = chan::bounded(0);
    let (results, sums) = chan::bounded(4);
    let mut receives = Select::new();
    receives.recv(&rx);
    runnext::scope(|s| {
        for _ in 0..3 {
            let mut select = receives.clone();
            let (rx, results) = (&rx, results.clone());
            s.go(move || {
                let got = |_| select.select().recv(rx).ok();
                results.send((0..).map_while(got).sum::<u32>()).unwrap();
            });
        }
        std::thread::scope(|threads| {
            let (shared, rx, results) = (&receives, &rx, results.clone());
            threads.spawn(move || {
                let mut select = shared.clone();
                let got = |_| select.select().recv(rx).ok();
                results.send((0..).map_while(got).sum()).unwrap();
            });
            (1..=1000).for_each(|n| tx.send(n).unwrap());
            tx.close();
        });
    });
    assert_eq!(sums.iter().take(4).sum::<u32>(), 500_500);
}

/// What it receives there and may not be there is not dropped there.
#[test]
fn a_value_that_may_not_be_sent_is_not_dropped_by_a_thread_it_was_not_sent_to() {
    let (tx, rx) = chan::bounded(1);
    let rc = Rc::new(());
    let drops_one = |mut select: Select<'_>| {
        let op = select.select();
        assert!(catch_unwind(AssertUnwindSafe(|| drop(op))).is_err());
    };
    let mut select = Select::new();
    select.recv(&rx);
    tx.send(rc.clone()).unwrap();
    drops_one(select.clone());
    assert_eq!(Rc::strong_count(&rc), 1);
    tx.send(rc.clone()).unwrap();
    std::thread::scope(|s| _ = s.spawn(move || drops_one(select)));
    assert_eq!(Rc::strong_count(&rc), 2, "lost, but not touched");
}

/// A program that imports all it needs from crossbeam-channel did not compile with `runnext::chan` in its place.
#[test]
fn select_was_not_among_the_names_of_channels() {
    use runnext::chan::{Receiver, never, select, unbounded};
    let (s, r) = unbounded();
    let quiet: Receiver<u8> = never();
    s.send(7).unwrap();
    let got = select! {
        recv(r) -> msg => msg,
        recv(quiet) -> _ => unreachable!(),
    };
    assert_eq!(got, Ok(7));
    chan::select! { recv(r) -> _ => unreachable!(), default => {} }
}

//! Bugs of channels and selects, one test for each, named after it.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;
use std::time::Duration;

use common::{child, message, until_waits};
use runnext::chan::{
    self, Receiver, Select, SelectedOperation, Sender, TryRecvError, TrySendError,
};
use runnext::time::{Ticker, Timer};
use runnext::{JoinHandle, go, select, yield_now};

/// A place of the channel, promised to a send.
fn promise<T>(tx: &Sender<T>) -> SelectedOperation<'_> {
    let mut select = Select::new();
    select.send(tx);
    select.try_select().expect("there is room")
}

/// Drops it as a panic would, but quietly.
fn give_up(op: SelectedOperation<'_>) {
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        let _op = op;
        resume_unwind(Box::new(()));
    }));
    assert!(dropped.is_err());
}

/// So many senders of 10, 11, …, in this order, which wait when this returns.
fn senders(tx: &Sender<u32>, n: u32) -> Vec<JoinHandle<()>> {
    let one = |value| {
        let tx = tx.clone();
        let handle = go(move || tx.send(value).unwrap());
        until_waits(&handle, "chan send");
        handle
    };
    (10..10 + n).map(one).collect()
}

/// So many receivers, which wait when this returns.
fn receivers(rx: &Receiver<u32>, n: usize) -> Vec<JoinHandle<u32>> {
    let one = |_| {
        let rx = rx.clone();
        let handle = go(move || rx.recv().unwrap());
        until_waits(&handle, "chan receive");
        handle
    };
    (0..n).map(one).collect()
}

/// What they got, in the order in which they came. On one P whoever was woken has run after a few turns.
fn got<T>(handles: Vec<JoinHandle<T>>) -> Vec<T> {
    (0..8).for_each(|_| yield_now());
    let stuck = handles.iter().filter(|h| !h.is_finished()).count();
    assert_eq!(stuck, 0, "nobody wakes them");
    handles.into_iter().map(|h| h.join().unwrap()).collect()
}

/// A promise that was kept let one sender in, whose value went to a receiver: the room it left again was nobody's, though
/// there were senders and receivers left that waited.
#[runnext::test(procs = 1, preemption = false)]
fn a_promise_kept_left_senders_and_receivers_waiting() {
    let (tx, rx) = chan::bounded(1);
    let op = promise(&tx);
    let (sent, received) = (senders(&tx, 4), receivers(&rx, 4));
    op.send(&tx, 1).unwrap();
    assert_eq!(got(received), [1, 10, 11, 12]);
    assert_eq!(got(sent).len(), 4);
    assert_eq!((rx.try_recv(), rx.len()), (Ok(13), 0));
}

/// As above, for a promise that was broken.
#[runnext::test(procs = 1, preemption = false)]
fn a_promise_given_up_left_senders_and_receivers_waiting() {
    let (tx, rx) = chan::bounded(1);
    let op = promise(&tx);
    let (sent, received) = (senders(&tx, 3), receivers(&rx, 3));
    give_up(op);
    assert_eq!(got(received), [10, 11, 12]);
    assert_eq!(got(sent).len(), 3);
    assert!(rx.is_empty() && !tx.is_full());
}

/// With all places promised a send to a receiver that waits went past the senders that waited before it.
#[runnext::test(procs = 1, preemption = false)]
fn a_send_overtook_those_who_wait_behind_a_promise() {
    let (tx, rx) = chan::bounded(1);
    let op = promise(&tx);
    let (sent, received) = (senders(&tx, 1), receivers(&rx, 2));
    assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
    op.send(&tx, 1).unwrap();
    assert_eq!(got(received), [1, 10]);
    got(sent);
}

/// A `Select` that sends took a waiting receiver for a reason to try, and all places being promised for one to look again: for ever, if
/// the promise was kept after that only.
#[runnext::test(procs = 1, preemption = false)]
fn a_try_select_went_round_while_a_receiver_waited_for_a_promise() {
    let (tx, rx) = chan::bounded(1);
    let op = promise(&tx);
    let received = receivers(&rx, 1);
    let mut second = Select::new();
    second.send(&tx);
    assert!(second.try_select().is_err());
    assert!(second.select_timeout(Duration::from_millis(1)).is_err());
    op.send(&tx, 1).unwrap();
    assert_eq!(got(received), [1]);
    second.select().send(&tx, 2).unwrap();
    assert_eq!(rx.recv(), Ok(2));
}

/// As above, with the receiver being a case of the same select: it never came to rest.
#[runnext::test(procs = 1, preemption = false)]
fn a_select_took_its_own_receive_for_a_peer() {
    for keep in [true, false] {
        let (tx, rx) = chan::bounded(1);
        let op = promise(&tx);
        let (tx2, rx2) = (tx.clone(), rx.clone());
        let both = go(move || {
            select! {
                recv(rx2) -> msg => msg.unwrap(),
                send(tx2, 2) -> sent => { sent.unwrap(); 0 }
            }
        });
        until_waits(&both, "select");
        match keep {
            true => op.send(&tx, 1).unwrap(),
            false => give_up(op),
        }
        assert_eq!(got(vec![both]), [u32::from(keep)]);
        assert_eq!(rx.try_recv().ok(), (!keep).then_some(2));
    }
}

/// `try_recv`, `try_send` and `default` looked at one end and then at the other, and took two halves of different moments for one in which
/// the channel was empty, or full. Here each of two workers holds one of two tokens at most: the channel is never empty for
/// one that holds none, nor full for one that holds one.
#[test]
fn an_attempt_failed_at_a_channel_that_was_never_empty() {
    const ROUNDS: u32 = 100_000;
    type Take = fn(&Receiver<u32>) -> Option<u32>;
    type Give = fn(&Sender<u32>, u32) -> bool;
    let tries: (Take, Give) = (|rx| rx.try_recv().ok(), |tx, v| tx.try_send(v).is_ok());
    let selects: (Take, Give) = (
        |rx| select! { recv(rx) -> msg => msg.ok(), default => None },
        |tx, v| select! { send(tx, v) -> sent => sent.is_ok(), default => false },
    );
    let dynamic: (Take, Give) = (
        |rx| {
            let mut select = Select::new();
            select.recv(rx);
            select.try_select().ok().and_then(|op| op.recv(rx).ok())
        },
        |tx, v| {
            let mut select = Select::new();
            select.send(tx);
            select.try_select().is_ok_and(|op| op.send(tx, v).is_ok())
        },
    );
    for (take, give) in [tries, selects, dynamic] {
        for (tx, rx) in [chan::bounded(2), chan::unbounded()] {
            (1..=2).for_each(|token| tx.send(token).unwrap());
            thread::scope(|s| {
                for _ in 0..2 {
                    s.spawn(|| {
                        for _ in 0..ROUNDS {
                            let token = take(&rx).expect("the other one holds one at most");
                            assert!(give(&tx, token), "there is room for both");
                            assert!(!rx.is_empty(), "as above");
                        }
                    });
                }
            });
        }
    }
}

/// A timer's channel that was closed gave another value after a reset.
#[test]
fn a_closed_timer_went_off_after_a_reset() {
    let timer = Timer::new(Duration::MAX);
    assert!(timer.c().close());
    assert!(!timer.reset(Duration::ZERO));
    assert_eq!(timer.c().try_recv(), Err(TryRecvError::Disconnected));
    assert!(!timer.stop());
    let ticker = Ticker::new(Duration::from_nanos(1));
    assert!(ticker.c().close());
    ticker.reset(Duration::from_nanos(1));
    assert!(ticker.c().recv().is_err());
}

/// `is_full` counted values only, and said that there was room where no send would have found any.
#[runnext::test(procs = 1, preemption = false)]
fn a_channel_whose_places_are_promised_is_full() {
    let (tx, rx) = chan::bounded(1);
    let op = promise(&tx);
    assert!(tx.is_full() && rx.is_full() && rx.is_empty());
    assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
    give_up(op);
    assert!(!tx.is_full() && !rx.is_full());
}

/// Drops of two values that both panic, when the last receiver went, ended the process. So did one if its goroutine was panicking.
#[test]
fn values_whose_drops_panic_ended_the_process() {
    struct Bad(&'static AtomicUsize);
    impl Drop for Bad {
        fn drop(&mut self) {
            resume_unwind(Box::new(self.0.fetch_add(1, SeqCst)));
        }
    }
    static DROPPED: AtomicUsize = AtomicUsize::new(0);
    for (tx, rx) in [chan::bounded(3), chan::unbounded()] {
        (0..3).for_each(|_| tx.send(Bad(&DROPPED)).unwrap_or_else(|_| unreachable!()));
        let panic = catch_unwind(AssertUnwindSafe(|| drop(rx))).unwrap_err();
        assert_eq!(panic.downcast_ref(), Some(&0_usize), "not the first one");
        assert_eq!(DROPPED.swap(0, SeqCst), 3);
        assert!(tx.is_closed());
    }
    let (tx, rx) = chan::bounded(2);
    (0..2).for_each(|_| tx.send(Bad(&DROPPED)).unwrap_or_else(|_| unreachable!()));
    let panic = catch_unwind(AssertUnwindSafe(|| {
        let _rx = rx;
        resume_unwind(Box::new("its own"));
    }))
    .unwrap_err();
    assert_eq!(panic.downcast_ref(), Some(&"its own"));
    assert_eq!(DROPPED.load(SeqCst), 2);
}

/// What a chosen operation had received, or was to send, was dropped by the panic about its misuse: a second one there ended the process.
#[test]
fn values_that_panic_in_their_drop_survive_a_misused_select() {
    struct Bomb;
    impl Drop for Bomb {
        fn drop(&mut self) {
            panic!("bomb");
        }
    }
    child(&[], || {
        let ((tx, rx), (other, others)) = (chan::bounded(1), chan::bounded(1));
        let panics = |says: &str, misuse: &dyn Fn(SelectedOperation<'_>)| {
            assert!(tx.send(Bomb).is_ok());
            let mut select = Select::new();
            select.recv(&rx);
            let op = select.select();
            let payload = catch_unwind(AssertUnwindSafe(|| misuse(op))).unwrap_err();
            assert!(message(&*payload).contains(says), "{}", message(&*payload));
        };
        panics("not completed", &|op| drop(op));
        panics("not a receive from this channel", &|op| {
            let _ = op.recv(&others);
        });
        panics("not a send to this channel", &|op| {
            let _ = op.send(&other, Bomb);
        });
        panics("already", &|op| {
            let _op = op;
            panic!("already");
        });
    })
    .passed();
}

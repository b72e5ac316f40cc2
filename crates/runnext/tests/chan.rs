//! Channels as their users see them: blocking, closing, order, errors.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::thread;

use runnext::chan::{self, RecvError, SendError, TryRecvError, TrySendError};

/// Go's TestChan: for every capacity, block when empty or full, keep order, drain after the close.
#[runnext::test(procs = 2)]
fn every_capacity_blocks_keeps_order_and_drains() {
    for cap in 0..12usize {
        let (tx, rx) = chan::bounded::<usize>(cap);
        assert_eq!((tx.len(), tx.capacity()), (0, Some(cap)));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        for i in 0..cap {
            assert!(!tx.is_full() && tx.len() == i);
            tx.try_send(i).unwrap();
        }
        assert!(tx.is_full() && rx.is_full());
        assert_eq!(tx.try_send(99), Err(TrySendError::Full(99)));

        let sender = {
            let tx = tx.clone();
            runnext::go(move || (cap..cap + 50).for_each(|i| tx.send(i).unwrap()))
        };
        for i in 0..cap + 50 {
            assert_eq!(rx.recv(), Ok(i));
        }
        sender.join().unwrap();
        assert!(rx.is_empty());

        (0..cap).for_each(|i| tx.send(i).unwrap());
        drop(tx);
        assert!(rx.is_closed());
        assert!(rx.iter().eq(0..cap));
        assert_eq!(rx.recv(), Err(RecvError));
        assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected));
    }
}

#[runnext::test(procs = 1)]
fn a_blocked_receiver_waits_for_the_send() {
    let (tx, rx) = chan::bounded(0);
    static SENT: AtomicUsize = AtomicUsize::new(0);
    let h = runnext::go(move || {
        assert_eq!(rx.recv(), Ok(5));
        SENT.load(SeqCst)
    });
    runnext::yield_now();
    SENT.store(1, SeqCst);
    tx.send(5).unwrap();
    assert_eq!(h.join().unwrap(), 1);
}

#[runnext::test(procs = 1)]
fn close_ends_every_wait_and_gives_values_back() {
    for cap in [0, 1] {
        let (tx, rx) = chan::bounded(cap);
        (0..cap).for_each(|_| tx.send(0).unwrap());
        let senders: Vec<_> = (1..=3)
            .map(|i| {
                let tx = tx.clone();
                runnext::go(move || tx.send(i))
            })
            .collect();
        runnext::yield_now();
        assert!(rx.close());
        assert!(!rx.close() && !tx.close());
        for (i, h) in senders.into_iter().enumerate() {
            assert_eq!(h.join().unwrap(), Err(SendError(i as i32 + 1)));
        }
        assert_eq!(rx.iter().count(), cap);

        let (tx, rx) = chan::bounded::<u8>(cap);
        let receivers: Vec<_> = (0..3)
            .map(|_| {
                let rx = rx.clone();
                runnext::go(move || rx.recv())
            })
            .collect();
        runnext::yield_now();
        assert!(tx.close());
        for h in receivers {
            assert_eq!(h.join().unwrap(), Err(RecvError));
        }
    }
}

#[test]
fn works_between_plain_threads() {
    for cap in [0, 1, 7] {
        let (tx, rx) = chan::bounded(cap);
        let h = thread::spawn(move || rx.iter().sum::<u64>());
        (0..1000).for_each(|i| tx.send(i).unwrap());
        drop(tx);
        assert_eq!(h.join().unwrap(), 499_500);
    }
}

/// A value that counts those alive.
struct Counted(Arc<AtomicUsize>);

impl Counted {
    fn new(alive: &Arc<AtomicUsize>) -> Counted {
        alive.fetch_add(1, SeqCst);
        Counted(alive.clone())
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_sub(1, SeqCst);
    }
}

#[runnext::test(procs = 1)]
fn values_are_dropped_once() {
    let alive = Arc::new(AtomicUsize::new(0));
    for make in [|| chan::bounded(100), || chan::unbounded::<Counted>()] {
        // Left in the channel.
        let (tx, rx) = make();
        (0..70).for_each(|_| assert!(tx.send(Counted::new(&alive)).is_ok()));
        drop(rx.recv().unwrap());
        assert_eq!(alive.load(SeqCst), 69);
        drop(rx);
        assert_eq!(alive.load(SeqCst), 0, "the last receiver drops them");
        assert!(tx.send(Counted::new(&alive)).is_err());
        assert_eq!(alive.load(SeqCst), 0);
        // The sender goes first.
        let (tx, rx) = make();
        (0..70).for_each(|_| assert!(tx.send(Counted::new(&alive)).is_ok()));
        drop(tx);
        assert_eq!(alive.load(SeqCst), 70);
        drop(rx);
        assert_eq!(alive.load(SeqCst), 0);
    }
    // Handed over, and given back.
    let (tx, rx) = chan::bounded(0);
    let (count, sender) = (alive.clone(), tx.clone());
    let h = runnext::go(move || sender.send(Counted::new(&count)).is_ok());
    drop(rx.recv().unwrap());
    assert!(h.join().unwrap());
    let count = alive.clone();
    let h = runnext::go(move || tx.send(Counted::new(&count)).is_ok());
    runnext::yield_now();
    drop(rx);
    assert!(!h.join().unwrap());
    assert_eq!(alive.load(SeqCst), 0);
}

#[runnext::test]
fn a_panicking_end_closes() {
    let (tx, rx) = chan::bounded::<u8>(0);
    let h = runnext::go(move || {
        let _tx = tx;
        panic!("on purpose");
    });
    assert_eq!(rx.recv(), Err(RecvError));
    assert!(h.join().is_err());
    let (tx, rx) = chan::bounded::<u8>(0);
    let h = runnext::go(move || {
        let _rx = rx;
        panic!("on purpose");
    });
    assert_eq!(tx.send(3), Err(SendError(3)));
    assert!(h.join().is_err());
}

#[runnext::test]
fn unbounded_never_blocks_and_keeps_order() {
    let (tx, rx) = chan::unbounded();
    assert_eq!(tx.capacity(), None);
    (0..10_000).for_each(|i| tx.send(i).unwrap());
    assert_eq!((tx.len(), tx.is_full()), (10_000, false));
    for round in 0..100 {
        for i in 0..100 {
            assert_eq!(rx.recv(), Ok(round * 100 + i));
        }
        // Blocks are used again: what comes in between keeps its place.
        tx.send(10_000 + round).unwrap();
    }
    assert!(rx.try_iter().eq(10_000..10_100));
}

#[runnext::test]
fn ends_know_their_channel() {
    let (tx, rx) = chan::bounded::<()>(1);
    let (tx2, rx2) = chan::bounded::<()>(1);
    assert!(tx.same_channel(&tx.clone()) && rx.same_channel(&rx.clone()));
    assert!(!tx.same_channel(&tx2) && !rx.same_channel(&rx2));
    assert_eq!(
        format!("{tx:?}"),
        "Sender { len: 0, capacity: Some(1), closed: false }"
    );
}

#[test]
fn iterators_show_themselves_whatever_the_values() {
    struct Opaque;
    let (tx, rx) = chan::bounded(1);
    tx.send(Opaque).unwrap();
    let channel = "(Receiver { len: 1, capacity: Some(1), closed: false })";
    assert_eq!(format!("{:?}", rx.iter()), format!("Iter{channel}"));
    assert_eq!(format!("{:?}", rx.try_iter()), format!("TryIter{channel}"));
    assert_eq!(
        format!("{:?}", rx.into_iter()),
        format!("IntoIter{channel}")
    );
}

#[test]
fn a_place_among_too_many_to_count_is_free() {
    let (tx, rx) = chan::bounded(usize::MAX);
    tx.try_send(()).unwrap();
    assert_eq!(rx.try_recv(), Ok(()));
}

#[runnext::test]
fn values_of_no_size_and_of_great_size() {
    let (tx, rx) = chan::bounded(usize::MAX);
    tx.send(()).unwrap();
    assert_eq!((rx.len(), rx.recv()), (1, Ok(())));
    let (tx, rx) = chan::bounded(0);
    let h = runnext::go(move || tx.send([7u64; 512]).unwrap());
    assert_eq!(rx.recv().unwrap(), [7; 512]);
    h.join().unwrap();
}

//! `select!` and `Select` as their users see them.

mod common;

use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use runnext::chan::{self, RecvError, Select, SendError, TryRecvError, TrySelectError};
use runnext::select;
use runnext::time::Instant;

const MS: Duration = Duration::from_millis(1);

#[runnext::test]
fn is_an_expression_with_every_form() {
    let (tx, rx) = chan::bounded(1);
    let (tx0, rx0) = chan::bounded::<String>(0);
    let form = |which: u8| -> &'static str {
        match which {
            0 => {
                select! { recv(rx) -> msg => { assert_eq!(msg, Ok(1)); "received" } default => "default" }
            }
            1 => select! {
                send(tx, 1) -> res => { res.unwrap(); "sent" }
                recv(rx0) -> _ => "never",
            },
            2 => select! {
                recv(&rx0) -> msg => match msg { Ok(_) => "text", Err(RecvError) => "closed" },
                default(MS) => "timeout",
            },
            _ => select! { default => "nothing" },
        }
    };
    assert_eq!(form(0), "default");
    assert_eq!(form(1), "sent");
    assert_eq!(form(0), "received");
    assert_eq!(form(2), "timeout");
    assert_eq!(form(3), "nothing");
    drop(tx0);
    assert_eq!(form(2), "closed");
}

#[runnext::test]
fn ends_may_be_values_references_and_expressions() {
    struct Has {
        rx: chan::Receiver<u8>,
        txs: Vec<chan::Sender<u8>>,
    }
    let (tx, rx) = chan::bounded(4);
    let has = Has { rx, txs: vec![tx] };
    let by_ref = &has.txs[0];
    select! { send(by_ref, 1) -> r => r.unwrap() }
    select! { send(has.txs[0].clone(), 2) -> r => r.unwrap() }
    select! { send(&&has.txs[0], 3,) -> r => r.unwrap(), }
    let shared = Arc::new(has.rx.clone());
    let got = [
        select! { recv(has.rx) -> m => m.unwrap() },
        select! { recv(&has.rx) -> m => m.unwrap() },
        select! { recv(shared) -> m => m.unwrap() },
    ];
    assert_eq!(got, [1, 2, 3]);
}

/// When a body runs the select is over: what it borrowed and what it did not send are gone.
#[runnext::test]
fn bodies_may_use_up_the_ends_and_leave() {
    let (tx, rx) = chan::bounded(1);
    let kept = Arc::new(());
    tx.send(kept.clone()).unwrap();
    let (tx2, rx2) = chan::bounded::<Arc<()>>(0);
    let unsent = kept.clone();
    select! {
        recv(rx) -> msg => {
            assert_eq!(Arc::strong_count(&kept), 2); // kept and msg
            drop((rx, tx, tx2, msg));
        }
        send(tx2, unsent) -> _ => unreachable!(),
    }
    assert!(rx2.recv().is_err());
    fn question(rx: &chan::Receiver<u8>) -> Result<u8, RecvError> {
        loop {
            select! {
                recv(rx) -> msg => match msg? { 0 => continue, n => break Ok(n) },
            }
        }
    }
    let (tx, rx) = chan::bounded(3);
    [0, 0, 9].into_iter().for_each(|n| tx.send(n).unwrap());
    drop(tx);
    assert_eq!(question(&rx), Ok(9));
    assert_eq!(question(&rx), Err(RecvError));
}

#[runnext::test]
fn blocks_until_one_is_ready_and_moves_one_value() {
    for cap in [0, 1] {
        let (tx1, rx1) = chan::bounded::<u32>(cap);
        let (tx2, rx2) = chan::bounded::<u32>(cap);
        let h = runnext::go(move || {
            let mut got = Vec::new();
            for _ in 0..200 {
                select! {
                    recv(rx1) -> m => got.push(m.unwrap()),
                    recv(rx2) -> m => got.push(m.unwrap()),
                }
            }
            got
        });
        for i in 0..100 {
            tx1.send(i).unwrap();
            tx2.send(1000 + i).unwrap();
        }
        let got = h.join().unwrap();
        // Each channel's values, once and in order.
        assert!(got.iter().filter(|&&v| v < 1000).copied().eq(0..100));
        assert!(got.iter().filter(|&&v| v >= 1000).copied().eq(1000..1100));
    }
}

/// Go's TestSelfSelect.
#[runnext::test(procs = 2)]
fn never_pairs_with_itself() {
    for cap in [0, 1, 3] {
        let (tx, rx) = chan::bounded::<usize>(cap);
        let workers: Vec<_> = (0..2usize)
            .map(|me| {
                let (tx, rx) = (tx.clone(), rx.clone());
                runnext::go(move || {
                    for i in 0..2000 {
                        select! {
                            send(tx, me) -> r => r.unwrap(),
                            recv(rx) -> m => assert!(cap > 0 || m.unwrap() != me),
                        }
                        if i % 64 == 0 {
                            runnext::yield_now();
                        }
                    }
                })
            })
            .collect();
        // One may be left over with nobody to meet: help it out.
        for worker in workers {
            while !worker.is_finished() {
                let _ = rx.try_recv();
                let _ = tx.try_send(9);
                runnext::yield_now();
            }
            worker.join().unwrap();
        }
    }
}

/// Go's TestSelectFairness: two that are always ready, 10,000 picks, within ten standard deviations.
#[runnext::test]
fn chooses_fairly() {
    let (tx, rx) = chan::unbounded();
    let (tx2, rx2) = chan::unbounded();
    let (_tx3, quiet) = chan::bounded::<()>(0);
    (0..10_000).for_each(|_| {
        tx.send(()).unwrap();
        tx2.send(()).unwrap();
    });
    let mut picks = [0i32; 2];
    for _ in 0..10_000 {
        select! {
            recv(rx) -> _ => picks[0] += 1,
            recv(quiet) -> _ => unreachable!(),
            recv(rx2) -> _ => picks[1] += 1,
        }
    }
    assert!((picks[0] - 5000).abs() < 500, "{picks:?}");
}

/// Go's TestNonblockSelectRace: c1 ready, then c2 ready, then c1 drained: some channel is ready at every moment.
#[runnext::test(procs = 2)]
fn default_sees_one_moment() {
    for closes in [false, true] {
        for _ in 0..2_000 {
            let (tx1, rx1) = chan::bounded(1);
            let (tx2, rx2) = chan::bounded(1);
            tx1.send(()).unwrap();
            let drain = rx1.clone();
            let h = runnext::go(move || {
                if closes {
                    tx2.close();
                } else {
                    tx2.send(()).unwrap();
                }
                drain.try_recv()
            });
            let taken = select! {
                recv(rx1) -> _ => true,
                recv(rx2) -> _ => false,
                default => panic!("one of them was ready all the time"),
            };
            assert_eq!(h.join().unwrap() == Err(TryRecvError::Empty), taken);
        }
    }
}

/// Go's TestNonblockRecvRace: a receive that does not wait, beside the close of a channel that is not empty.
#[runnext::test(procs = 2)]
fn closing_does_not_hide_a_value() {
    for _ in 0..2_000 {
        let (tx, rx) = chan::bounded(1);
        tx.send(1).unwrap();
        let h = runnext::go(move || tx.close());
        assert_eq!(
            select! { recv(rx) -> m => m, default => panic!("not ready") },
            Ok(1)
        );
        h.join().unwrap();
    }
}

/// Go's TestSelectDuplicateChannel: the same channel twice; the loser leaves and nobody behind it is forgotten.
#[runnext::test(procs = 1)]
fn the_same_channel_twice() {
    let (tx, rx) = chan::bounded::<u8>(0);
    let (tx2, rx2) = chan::bounded::<u8>(0);
    let (first, behind) = (rx.clone(), rx.clone());
    let first = runnext::go(move || {
        select! {
            recv(first) -> m => m.unwrap(),
            recv(rx2) -> m => m.unwrap(),
            recv(first) -> m => m.unwrap(),
        }
    });
    runnext::yield_now();
    let behind = runnext::go(move || behind.recv().unwrap());
    runnext::yield_now();
    tx2.send(1).unwrap();
    assert_eq!(first.join().unwrap(), 1);
    tx.send(2).unwrap();
    assert_eq!(behind.join().unwrap(), 2);
}

/// Go's test/chan/select3: closed and never.
#[runnext::test]
fn closed_and_never() {
    let (tx, rx) = chan::bounded::<u8>(0);
    let never = chan::never::<u8>();
    assert!(select! { recv(rx) -> _ => false, recv(never) -> _ => false, default => true });
    tx.close();
    for _ in 0..20 {
        let which = select! {
            recv(rx) -> m => { assert_eq!(m, Err(RecvError)); 0 }
            send(tx, 7) -> r => { assert_eq!(r, Err(SendError(7))); 1 }
            recv(never) -> _ => 2,
            default => 3,
        };
        assert!(which < 2);
    }
    assert_eq!(never.recv_timeout(MS), Err(chan::RecvTimeoutError::Timeout));
}

#[runnext::test(procs = 1)]
fn a_select_without_cases_waits_for_ever() {
    let h = runnext::go(|| select! {});
    common::until_waits(&h, "select (no cases)");
    assert!(!h.is_finished());
}

#[test]
fn works_on_plain_threads() {
    let (tx, rx) = chan::bounded::<u64>(0);
    let (tx2, rx2) = chan::unbounded::<u64>();
    let h = thread::spawn(move || {
        let mut sum = 0;
        let (mut a, mut b) = (true, true);
        while a || b {
            select! {
                recv(rx) -> m => match m { Ok(v) if a => sum += v, _ => a = false },
                recv(rx2) -> m => match m { Ok(v) if b => sum += v, _ => b = false },
            }
        }
        sum
    });
    for i in 0..500 {
        select! { send(tx, i) -> r => r.unwrap() }
        tx2.send(i).unwrap();
    }
    drop((tx, tx2));
    assert_eq!(h.join().unwrap(), 2 * (499 * 500 / 2));
}

#[runnext::test(procs = 1)]
fn time_outs() {
    let (tx, rx) = chan::bounded::<u8>(0);
    let start = Instant::now();
    assert!(select! { recv(rx) -> _ => false, default(3 * MS) => true });
    assert!(start.elapsed() >= 3 * MS);
    // Nothing is left in the queue: a send finds nobody.
    assert!(tx.try_send(1).is_err());
    let h =
        runnext::go(move || select! { recv(rx) -> m => m.ok(), default(Duration::MAX) => None });
    runnext::yield_now();
    tx.send(5).unwrap();
    assert_eq!(h.join().unwrap(), Some(5));
}

#[runnext::test]
fn dynamic_receives() {
    let (tx, rx) = chan::bounded(1);
    let (_tx2, rx2) = chan::bounded::<String>(0);
    let mut select = Select::new();
    let (a, b) = (select.recv(&rx), select.recv(&rx2));
    assert_eq!((a, b), (0, 1));
    assert_eq!(select.try_select().unwrap_err(), TrySelectError);
    assert!(select.select_timeout(MS).is_err());
    assert!(select.select_deadline(Instant::now() + MS).is_err());
    for i in 0..3 {
        tx.send(vec![i]).unwrap();
        let op = select.select();
        assert_eq!(op.index(), a);
        assert_eq!(op.recv(&rx), Ok(vec![i]));
    }
    select.remove(a);
    tx.send(vec![]).unwrap();
    assert!(select.try_select().is_err());
    drop(tx);
    assert_eq!(rx.recv(), Ok(vec![]));
}

/// A chosen send completes without blocking, whoever comes in between.
#[runnext::test(procs = 1)]
fn dynamic_sends_keep_their_place() {
    let (tx, rx) = chan::bounded(1);
    let mut select = Select::new();
    select.send(&tx);
    let op = select.select();
    assert_eq!(tx.try_send(0), Err(chan::TrySendError::Full(0)));
    let behind = tx.clone();
    let behind = runnext::go(move || behind.send(2));
    runnext::yield_now();
    assert_eq!(op.send(&tx, 1), Ok(()));
    assert_eq!((rx.recv(), rx.recv()), (Ok(1), Ok(2)));
    behind.join().unwrap().unwrap();
    // A receiver waits, a place is promised, another sender waits behind it.
    let op = select.select();
    let receivers: Vec<_> = (0..2)
        .map(|_| {
            let rx = rx.clone();
            runnext::go(move || rx.recv().unwrap())
        })
        .collect();
    runnext::yield_now();
    let behind = tx.clone();
    let behind = runnext::go(move || behind.send(4));
    runnext::yield_now();
    assert_eq!(op.send(&tx, 3), Ok(()));
    let mut got: Vec<_> = receivers.into_iter().map(|h| h.join().unwrap()).collect();
    got.sort();
    assert_eq!(got, [3, 4]);
    behind.join().unwrap().unwrap();
    // Closed between the choice and the send.
    let op = select.select();
    rx.close();
    assert_eq!(op.send(&tx, 5), Err(SendError(5)));
    assert_eq!(select.select().send(&tx, 6), Err(SendError(6)));
}

#[runnext::test(procs = 1)]
fn dynamic_rendezvous_from_either_side() {
    let (tx, rx) = chan::bounded::<u32>(0);
    // The receiver waits first.
    let waits = rx.clone();
    let h = runnext::go(move || waits.recv());
    runnext::yield_now();
    let mut select = Select::new();
    select.send(&tx);
    let op = select.try_select().unwrap();
    assert_eq!(op.send(&tx, 1), Ok(()));
    assert_eq!(h.join().unwrap(), Ok(1));
    // The select waits first; the receiver only polls.
    let sender = tx.clone();
    let h = runnext::go(move || {
        let mut select = Select::new();
        select.send(&sender);
        let op = select.select();
        runnext::yield_now();
        op.send(&sender, 2)
    });
    runnext::yield_now();
    assert_eq!(rx.try_recv(), Ok(2));
    h.join().unwrap().unwrap();
    // Two of them face each other.
    let h = runnext::go(move || {
        let mut select = Select::new();
        select.recv(&rx);
        select.select().recv(&rx)
    });
    let mut select = Select::new();
    select.send(&tx);
    select.select().send(&tx, 3).unwrap();
    assert_eq!(h.join().unwrap(), Ok(3));
}

#[runnext::test(procs = 1)]
fn an_operation_not_completed_panics_and_harms_nobody() {
    let log = Arc::new(Mutex::new(Vec::new()));
    for cap in [0, 1] {
        let (tx, rx) = chan::bounded::<u32>(cap);
        let (seen, receiver) = (log.clone(), rx.clone());
        let h = runnext::go(move || seen.lock().unwrap().push(receiver.recv().unwrap()));
        runnext::yield_now();
        let broken = tx.clone();
        let text = runnext::go(move || {
            let mut select = Select::new();
            select.send(&broken);
            drop(select.select());
        })
        .join()
        .unwrap_err();
        assert!(
            text.downcast_ref::<String>()
                .unwrap()
                .contains("not completed")
        );
        tx.send(cap as u32).unwrap();
        h.join().unwrap();
        assert!(
            cap == 0 || tx.try_send(9).is_ok(),
            "its place is free again"
        );
    }
    assert_eq!(*log.lock().unwrap(), [0, 1]);
}

#[test]
#[should_panic(expected = "not a send to this channel")]
fn completing_with_another_channel_panics() {
    let (tx, _rx) = chan::bounded::<u32>(1);
    let (tx2, _rx2) = chan::bounded::<u32>(1);
    let mut select = Select::new();
    select.send(&tx);
    let _ = select.select().send(&tx2, 1);
}

#[test]
#[should_panic(expected = "without operations")]
fn an_empty_dynamic_select_panics() {
    let _ = Select::new().select();
}

#[runnext::test]
fn ends_may_be_branches_and_blocks_that_give_references() {
    let (tx, rx) = chan::bounded::<i32>(1);
    let (busy, _rx) = chan::bounded::<i32>(0);
    let nothing = chan::never();
    let absent: Option<chan::Receiver<i32>> = None;
    let mut looked = 0;
    for on in [false, true] {
        let sent = select! {
            recv(if on { &nothing } else { &rx }) -> _ => unreachable!("empty"),
            recv(match absent { Some(ref rx) => rx, None => &nothing }) -> _ => unreachable!("never"),
            recv(absent.as_ref().unwrap_or(&nothing)) -> _ => unreachable!("never"),
            recv({ looked += 1; &nothing }) -> _ => unreachable!("never"),
            send(if on { &tx } else { &busy }, 1) -> res => { res.unwrap(); true }
            default => false,
        };
        assert_eq!(sent, on);
    }
    assert_eq!(looked, 2);
    let shared = Arc::new(rx.clone());
    for _ in 0..64 {
        select! {
            recv(match looked { 2 => &rx, _ => &nothing }) -> msg => assert_eq!(msg, Ok(1)),
            recv(&&rx) -> msg => assert_eq!(msg, Ok(1)),
            recv(shared) -> msg => assert_eq!(msg, Ok(1)),
            recv({ rx.clone() }) -> msg => assert_eq!(msg, Ok(1)),
        }
        tx.send(1).unwrap();
    }
}

#[test]
fn a_clone_of_a_select_has_the_same_operations() {
    let (tx, rx) = chan::bounded(2);
    let (tx2, rx2) = chan::bounded::<String>(1);
    let mut first = Select::new();
    let removed = first.recv(&rx);
    let (a, b) = (first.recv(&rx), first.send(&tx2));
    first.remove(removed);
    (1..=2).for_each(|n| tx.send(n).unwrap());
    tx2.send("full".into()).unwrap();
    assert_eq!(first.select().recv(&rx), Ok(1));
    let mut second = first.clone();
    let op = second.select();
    assert_eq!((op.index(), op.recv(&rx)), (a, Ok(2)));
    assert_eq!(rx2.recv().unwrap(), "full");
    let op = second.select();
    assert_eq!(op.index(), b);
    drop(first);
    op.send(&tx2, "from the clone".into()).unwrap();
    assert_eq!(rx2.recv().unwrap(), "from the clone");
}

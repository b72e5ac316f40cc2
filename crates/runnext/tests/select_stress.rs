//! `select!` under load: exactly one operation each time, queues that stay sound and short.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::*};
use std::thread;
use std::time::Duration;

use runnext::chan::{self, Receiver, Select, Sender};
use runnext::{Runtime, go, select};

fn on_procs(procs: usize, f: impl Fn() + Send + Sync) {
    // SAFETY: no borrow of a thread-local is kept over a runtime call here.
    let runtime = unsafe { Runtime::builder().procs(procs).build().unwrap() };
    runtime.run(f);
}

/// Go's TestSelectStress: direct operations and selects on four channels, each switched off when it has done its share.
fn four_channels(cap: usize) {
    const N: u32 = 2_000;
    let ends: Vec<(Sender<u32>, Receiver<u32>)> = (0..4).map(|_| chan::bounded(cap)).collect();
    let mut workers = Vec::new();
    for (tx, rx) in &ends {
        let (tx, rx) = (tx.clone(), rx.clone());
        workers.push(go(move || (0..N).for_each(|i| tx.send(i).unwrap())));
        workers.push(go(move || {
            (0..N).for_each(|_| {
                rx.recv().unwrap();
            });
        }));
    }
    let (mut txs, mut rxs): (Vec<_>, Vec<_>) =
        ends.into_iter().map(|(tx, rx)| (Some(tx), rx)).unzip();
    workers.push(go(move || {
        // A sender that cannot be chosen any more: its channel has no room and nobody receives.
        let (off, _keep) = chan::bounded::<u32>(0);
        let mut left = [N; 4];
        while left.iter().any(|&n| n > 0) {
            let [a, b, c, d] = [0, 1, 2, 3].map(|i| txs[i].as_ref().unwrap_or(&off));
            let i = select! {
                send(a, 1) -> r => { r.unwrap(); 0 }
                send(b, 1) -> r => { r.unwrap(); 1 }
                send(c, 1) -> r => { r.unwrap(); 2 }
                send(d, 1) -> r => { r.unwrap(); 3 }
            };
            left[i] -= 1;
            if left[i] == 0 {
                txs[i] = None;
            }
        }
    }));
    workers.push(go(move || {
        let mut left = [N; 4];
        while left.iter().any(|&n| n > 0) {
            let i = select! {
                recv(rxs[0]) -> m => { m.unwrap(); 0 }
                recv(rxs[1]) -> m => { m.unwrap(); 1 }
                recv(rxs[2]) -> m => { m.unwrap(); 2 }
                recv(rxs[3]) -> m => { m.unwrap(); 3 }
            };
            left[i] -= 1;
            if left[i] == 0 {
                rxs[i] = chan::never();
            }
        }
    }));
    workers.into_iter().for_each(|h| h.join().unwrap());
}

#[test]
fn selects_beside_direct_operations() {
    for procs in [1, 2, 8] {
        on_procs(procs, || [0, 1, 3].into_iter().for_each(four_channels));
    }
}

/// Go's test/chan/doubleselect: one sender selects over four channels; no value comes out twice.
#[test]
fn no_value_is_delivered_twice() {
    for (procs, cap) in [(1, 0), (2, 0), (2, 2), (8, 0)] {
        on_procs(procs, || {
            const N: u64 = 10_000;
            let ends: Vec<(Sender<u64>, Receiver<u64>)> =
                (0..4).map(|_| chan::bounded(cap)).collect();
            let (all, results) = chan::bounded(64);
            for (_, rx) in &ends {
                let (rx, all) = (rx.clone(), all.clone());
                go(move || rx.iter().for_each(|v| all.send(v).unwrap()));
            }
            drop(all);
            let txs: Vec<_> = ends.into_iter().map(|(tx, _)| tx).collect();
            go(move || {
                for v in 0..N {
                    select! {
                        send(txs[0], v) -> r => r.unwrap(),
                        send(txs[1], v) -> r => r.unwrap(),
                        send(txs[2], v) -> r => r.unwrap(),
                        send(txs[3], v) -> r => r.unwrap(),
                    }
                }
            });
            let mut seen: Vec<_> = results.iter().collect();
            seen.sort();
            assert!(seen.into_iter().eq(0..N));
        });
    }
}

/// Selects on both sides, the static and the dynamic form, goroutines and threads: they meet only in selects.
#[test]
fn selects_meet_selects() {
    for procs in [1, 2, 8] {
        on_procs(procs, || {
            for cap in [0, 1] {
                const N: u64 = 1_500;
                let (tx1, rx1) = chan::bounded::<u64>(cap);
                let (tx2, rx2) = chan::bounded::<u64>(cap);
                let got = Arc::new(AtomicU64::new(0));
                let sum = Arc::new(AtomicU64::new(0));
                let mut workers = Vec::new();
                let mut threads = Vec::new();
                for me in 0..4u64 {
                    let (tx1, tx2) = (tx1.clone(), tx2.clone());
                    let send = move || {
                        for v in me * N..(me + 1) * N {
                            if v % 3 == 0 {
                                let mut select = Select::new();
                                select.send(&tx1);
                                select.send(&tx2);
                                let op = select.select();
                                match op.index() {
                                    0 => op.send(&tx1, v).unwrap(),
                                    _ => op.send(&tx2, v).unwrap(),
                                }
                            } else {
                                select! {
                                    send(tx1, v) -> r => r.unwrap(),
                                    send(tx2, v) -> r => r.unwrap(),
                                }
                            }
                        }
                    };
                    let (rx1, rx2) = (rx1.clone(), rx2.clone());
                    let (got, sum) = (got.clone(), sum.clone());
                    let recv = move || {
                        for turn in 0..N {
                            let v = if turn % 3 == 0 {
                                let mut select = Select::new();
                                select.recv(&rx1);
                                select.recv(&rx2);
                                let op = select.select();
                                match op.index() {
                                    0 => op.recv(&rx1).unwrap(),
                                    _ => op.recv(&rx2).unwrap(),
                                }
                            } else {
                                select! {
                                    recv(rx1) -> m => m.unwrap(),
                                    recv(rx2) -> m => m.unwrap(),
                                }
                            };
                            got.fetch_add(1, Relaxed);
                            sum.fetch_add(v, Relaxed);
                        }
                    };
                    if me == 0 {
                        threads.push(thread::spawn(send));
                        threads.push(thread::spawn(recv));
                    } else {
                        workers.push(go(send));
                        workers.push(go(recv));
                    }
                }
                workers.into_iter().for_each(|h| h.join().unwrap());
                threads.into_iter().for_each(|h| h.join().unwrap());
                assert_eq!(got.load(SeqCst), 4 * N);
                assert_eq!(sum.load(SeqCst), (0..4 * N).sum());
            }
        });
    }
}

/// Go's test/chan/select2 and chanlinear: selects that give up leave nothing behind on a quiet channel, and leaving is not a walk: with a
/// linear one this would take 10^8 steps for each round.
#[runnext::test(procs = 2)]
fn a_crowd_on_a_quiet_channel() {
    let (quiet_tx, quiet) = chan::bounded::<u8>(0);
    for _ in 0..3 {
        let (tx, rx) = chan::bounded::<u8>(0);
        let crowd: Vec<_> = (0..10_000)
            .map(|_| {
                let (quiet, rx) = (quiet.clone(), rx.clone());
                go(move || {
                    select! {
                        recv(quiet) -> _ => false,
                        recv(rx) -> m => m.is_err(),
                    }
                })
            })
            .collect();
        runnext::yield_now();
        tx.close();
        assert!(crowd.into_iter().all(|h| h.join().unwrap()));
    }
    for _ in 0..50_000 {
        select! { recv(quiet) -> _ => unreachable!(), default => {} }
    }
    assert!(quiet_tx.try_send(1).is_err(), "nobody waits there");
}

/// Go's test/chan/select2 and issue 9110: selects that queue on quiet channels and give up leave nothing, there or in the timers.
#[test]
fn selects_that_time_out_need_no_memory() {
    fn resident() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
        pages * 4096
    }
    common::child(&[], || {
        on_procs(2, || {
            let (tx, quiet) = chan::bounded::<u64>(0);
            let round = || {
                let (n, quiet, tx) = (2_000, &quiet, &tx);
                runnext::scope(|s| {
                    for _ in 0..16 {
                        s.go(move || {
                            for _ in 0..n {
                                select! {
                                    recv(quiet) -> _ => unreachable!(),
                                    recv(chan::never::<u8>()) -> _ => unreachable!(),
                                    default(Duration::from_micros(10)) => {}
                                }
                            }
                        });
                    }
                });
                assert!(tx.try_send(1).is_err(), "nobody waits there");
            };
            round();
            let before = resident();
            (0..3).for_each(|_| round());
            // 96,000 of them: 10 bytes for each would show.
            let grown = resident().saturating_sub(before);
            assert!(grown < 900_000, "{grown} bytes more");
        });
    })
    .passed();
}

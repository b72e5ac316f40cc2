//! Channels under load: nothing lost, nothing doubled, at any number of Ps, with plain threads among the goroutines.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::*};
use std::thread;
use std::time::Duration;

use runnext::chan::{self, Receiver, RecvTimeoutError, Sender};
use runnext::{Runtime, go, select};

fn on_procs(procs: usize, f: impl Fn() + Send + Sync) {
    // SAFETY: no borrow of a thread-local is kept over a runtime call here.
    let runtime = unsafe { Runtime::builder().procs(procs).build().unwrap() };
    runtime.run(f);
}

/// A channel of each kind.
fn kinds<T>() -> Vec<(Sender<T>, Receiver<T>)> {
    let mut kinds: Vec<_> = [0, 1, 2, 100].map(chan::bounded).into();
    kinds.push(chan::unbounded());
    kinds
}

/// What went in and what came out: number and sum of squares.
#[derive(Default)]
struct Sums(AtomicU64, AtomicU64);

impl Sums {
    fn add(&self, value: u64) {
        self.0.fetch_add(1, Relaxed);
        self.1.fetch_add(value.wrapping_mul(value), Relaxed);
    }

    fn get(&self) -> (u64, u64) {
        (self.0.load(SeqCst), self.1.load(SeqCst))
    }
}

/// Sends `n` values in every way there is.
fn produce(tx: Sender<u64>, from: u64, n: u64, sums: &Sums) {
    for i in from..from + n {
        sums.add(i);
        let mut value = i;
        loop {
            value = match i % 4 {
                0 | 1 => {
                    tx.send(value).unwrap();
                    break;
                }
                2 => match tx.send_timeout(value, Duration::from_micros(50)) {
                    Ok(()) => break,
                    Err(error) => error.into_inner(),
                },
                _ => {
                    select! { send(tx, value) -> res => res.unwrap() }
                    break;
                }
            };
        }
    }
}

/// Receives until the close in every way there is.
fn consume(rx: Receiver<u64>, sums: &Sums) {
    for turn in 0.. {
        let got = match turn % 4 {
            0 => rx.recv().map_err(|_| RecvTimeoutError::Disconnected),
            1 => rx.recv_timeout(Duration::from_micros(50)),
            2 => select! {
                recv(rx) -> msg => msg.map_err(|_| RecvTimeoutError::Disconnected),
                default(Duration::from_micros(50)) => Err(RecvTimeoutError::Timeout),
            },
            _ => rx.try_recv().map_err(|error| match error.is_empty() {
                true => RecvTimeoutError::Timeout,
                false => RecvTimeoutError::Disconnected,
            }),
        };
        match got {
            Ok(value) => sums.add(value),
            Err(RecvTimeoutError::Timeout) => {}
            Err(RecvTimeoutError::Disconnected) => return,
        }
    }
}

fn mixed(tx: Sender<u64>, rx: Receiver<u64>, n: u64) {
    let (sent, got) = (Arc::new(Sums::default()), Arc::new(Sums::default()));
    let mut threads = Vec::new();
    let mut goroutines = Vec::new();
    for worker in 0..6 {
        let (tx, sent) = (tx.clone(), sent.clone());
        let send = move || produce(tx, worker * n, n, &sent);
        let (rx, got) = (rx.clone(), got.clone());
        let recv = move || consume(rx, &got);
        if worker == 0 {
            threads.push(thread::spawn(send));
            threads.push(thread::spawn(recv));
        } else {
            goroutines.push(go(send));
            goroutines.push(go(recv));
        }
    }
    drop((tx, rx));
    goroutines.into_iter().for_each(|h| h.join().unwrap());
    threads.into_iter().for_each(|h| h.join().unwrap());
    assert_eq!(sent.get(), got.get());
    assert_eq!(sent.get().0, 6 * n);
}

#[test]
fn everything_arrives_once() {
    for procs in [1, 2, 8] {
        on_procs(procs, || {
            for (tx, rx) in kinds() {
                mixed(tx, rx, 1_000);
            }
        });
    }
}

/// Go's TestMultiConsumer: many consumers, an exact sum.
#[runnext::test(procs = 2)]
fn many_consumers() {
    const N: u64 = 40_000;
    let (tx, rx) = chan::bounded(10);
    let (back, results) = chan::bounded(10);
    let consumers: Vec<_> = (0..23)
        .map(|_| {
            let (rx, back) = (rx.clone(), back.clone());
            go(move || rx.iter().for_each(|v: u64| back.send(v * 7).unwrap()))
        })
        .collect();
    let feeder = go(move || (1..=N).for_each(|v| tx.send(v).unwrap()));
    drop(back);
    assert_eq!(results.iter().sum::<u64>(), 7 * N * (N + 1) / 2);
    feeder.join().unwrap();
    consumers.into_iter().for_each(|h| h.join().unwrap());
}

/// Ends go away while others wait; each value is dropped once, wherever it was.
#[test]
fn values_are_dropped_once_whoever_leaves() {
    struct Counted(Arc<AtomicUsize>);
    impl Drop for Counted {
        fn drop(&mut self) {
            self.0.fetch_sub(1, SeqCst);
        }
    }
    let alive = Arc::new(AtomicUsize::new(0));
    for procs in [1, 2] {
        let alive = alive.clone();
        on_procs(procs, move || {
            for round in 0..200 {
                for (tx, rx) in kinds::<Counted>() {
                    let senders: Vec<_> = (0..3)
                        .map(|_| {
                            let (tx, alive) = (tx.clone(), alive.clone());
                            go(move || {
                                for _ in 0..10 {
                                    alive.fetch_add(1, SeqCst);
                                    if tx.send(Counted(alive.clone())).is_err() {
                                        return;
                                    }
                                }
                            })
                        })
                        .collect();
                    let receivers: Vec<_> = (0..2)
                        .map(|_| {
                            let rx = rx.clone();
                            go(move || rx.iter().take(round % 9).count())
                        })
                        .collect();
                    if round % 3 == 0 {
                        tx.close();
                    }
                    drop((tx, rx));
                    senders.into_iter().for_each(|h| h.join().unwrap());
                    receivers.into_iter().for_each(|h| {
                        h.join().unwrap();
                    });
                    assert_eq!(alive.load(SeqCst), 0);
                }
            }
        });
    }
}

/// 10,000 goroutines, each handing on to the next.
#[runnext::test(procs = 2)]
fn daisy_chain() {
    let (first, mut rx) = chan::bounded::<u32>(0);
    for _ in 0..10_000 {
        let (tx, next) = chan::bounded(0);
        go(move || tx.send(rx.recv().unwrap() + 1).unwrap());
        rx = next;
    }
    first.send(0).unwrap();
    assert_eq!(rx.recv(), Ok(10_000));
}

/// Go's test/chan/sieve1: the prime sieve.
#[runnext::test(procs = 2)]
fn sieve() {
    let (tx, mut rx) = chan::bounded(0);
    go(move || (2u32..).try_for_each(|n| tx.send(n)));
    let mut primes = Vec::new();
    for _ in 0..100 {
        let prime = rx.recv().unwrap();
        primes.push(prime);
        let (tx, next) = chan::bounded(0);
        go(move || {
            rx.iter()
                .filter(|n| n % prime != 0)
                .try_for_each(|n| tx.send(n))
        });
        rx = next;
    }
    assert_eq!((primes[0], primes[25], primes[99]), (2, 101, 541));
}

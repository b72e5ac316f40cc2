//! Channels and time: waits that end at a deadline, and the channels of timers.

mod common;

use std::thread;
use std::time::Duration;

use common::{until, until_waits};
use runnext::chan::{self, RecvTimeoutError, SendTimeoutError, TryRecvError};
use runnext::time::{Instant, sleep};
use runnext::{dump, go, select};

const MS: Duration = Duration::from_millis(1);

fn time_outs() {
    for cap in [0usize, 1] {
        let (tx, rx) = chan::bounded(cap);
        let start = Instant::now();
        assert_eq!(rx.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
        assert!(start.elapsed() >= 2 * MS);
        assert_eq!(
            rx.recv_deadline(start + MS), // in the past
            Err(RecvTimeoutError::Timeout)
        );
        (0..cap).for_each(|i| tx.send(i).unwrap());
        assert_eq!(
            tx.send_timeout(7, 2 * MS),
            Err(SendTimeoutError::Timeout(7))
        );
        assert_eq!(
            tx.send_deadline(8, Instant::now() + MS),
            Err(SendTimeoutError::Timeout(8))
        );
        // Nobody is left in the queues.
        assert_eq!(rx.try_iter().count(), cap);
        assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
        drop(rx);
        assert_eq!(
            tx.send_timeout(9, Duration::MAX),
            Err(SendTimeoutError::Disconnected(9))
        );
    }
}

#[runnext::test]
fn time_outs_of_a_goroutine() {
    time_outs();
}

#[test]
fn time_outs_of_a_thread() {
    time_outs();
}

#[runnext::test(procs = 2)]
fn a_value_in_time_is_received() {
    let (tx, rx) = chan::bounded(0);
    let h = go(move || {
        (0..100)
            .map(|_| rx.recv_timeout(Duration::from_secs(60)).unwrap())
            .sum::<i32>()
    });
    (0..100).for_each(|i| tx.send_timeout(i, Duration::from_secs(60)).unwrap());
    assert_eq!(h.join().unwrap(), 4950);
    let (tx, rx) = chan::bounded::<()>(0);
    let h = go(move || rx.recv_timeout(Duration::MAX));
    until_waits(&h, "chan receive");
    drop(tx);
    assert_eq!(h.join().unwrap(), Err(RecvTimeoutError::Disconnected));
}

/// Go's TestChan and TestAfterTimes of package time: it shows no length, and what it gives is the moment that was set.
fn after() {
    let rx = chan::after(Duration::from_secs(60));
    assert_eq!(
        (rx.len(), rx.capacity(), rx.try_recv()),
        (0, Some(0), Err(TryRecvError::Empty))
    );
    assert_eq!(rx.recv_timeout(MS / 10), Err(RecvTimeoutError::Timeout));
    let start = Instant::now();
    let rx = chan::after(2 * MS);
    let at = rx.recv().unwrap();
    assert!(at >= start + 2 * MS && at <= Instant::now());
    // Once.
    assert_eq!(rx.recv_timeout(2 * MS), Err(RecvTimeoutError::Timeout));
    let rx = chan::after(MS);
    thread::sleep(10 * MS);
    assert_eq!(rx.len(), 0);
    let late = Instant::now();
    assert!(rx.recv().unwrap() + 5 * MS < late);
    assert!(chan::after(Duration::ZERO).recv().is_ok());
    assert!(chan::after(Duration::MAX).try_recv().is_err());
}

#[runnext::test]
fn after_on_a_goroutine() {
    after();
}

#[test]
fn after_on_a_thread() {
    after();
}

#[runnext::test]
fn ticks_keep_their_grid_and_skip_what_was_missed() {
    let rx = chan::tick(5 * MS);
    let first = rx.recv().unwrap();
    let received = Instant::now();
    sleep(23 * MS);
    let second = rx.recv().unwrap();
    assert!(second <= received + 5 * MS, "due long ago");
    let third = rx.recv().unwrap();
    assert!(third > received + 23 * MS, "missed ones are skipped");
    for later in [second, third] {
        assert_eq!((later - first).as_nanos() % (5 * MS).as_nanos(), 0);
    }
    for _ in 0..3 {
        assert!(chan::tick(Duration::ZERO).recv().is_ok());
    }
}

#[runnext::test(procs = 2)]
fn a_timer_among_other_cases() {
    let (tx, rx) = chan::bounded::<u32>(0);
    let feeder = go(move || {
        for i in 0..20 {
            sleep(MS / 2);
            if tx.send(i).is_err() {
                return;
            }
        }
    });
    let (mut values, mut ticks) = (0, 0);
    let tick = chan::tick(MS);
    let stop = chan::after(Duration::from_secs(60));
    loop {
        select! {
            recv(rx) -> m => match m { Ok(_) => values += 1, Err(_) => break },
            recv(tick) -> _ => ticks += 1,
            recv(stop) -> _ => panic!("the feeder is stuck"),
        }
    }
    feeder.join().unwrap();
    assert_eq!(values, 20);
    assert!(ticks >= 1);
}

/// One tick goes to one of those who wait for it.
#[runnext::test(procs = 2)]
fn one_timer_for_many() {
    let rx = chan::after(3 * MS);
    let waiting: Vec<_> = (0..20)
        .map(|_| {
            let rx = rx.clone();
            go(move || rx.recv().is_ok())
        })
        .collect();
    let ended = || waiting.iter().filter(|h| h.is_finished()).count();
    let left = || dump::text().matches("[chan receive").count();
    until(|| ended() > 0 && ended() + left() == 20);
    assert_eq!(ended(), 1);
    rx.close();
    let got = waiting.into_iter().map(|h| h.join().unwrap());
    assert_eq!(got.filter(|&ok| ok).count(), 1);
}

/// Go's TestTimerGC: timers nobody waits for keep nothing.
#[runnext::test]
fn forgotten_timers_cost_nothing() {
    for _ in 0..10_000 {
        drop(chan::after(Duration::from_secs(3600)));
    }
    let (_tx, rx) = chan::bounded::<()>(0);
    for _ in 0..200 {
        select! {
            recv(rx) -> _ => unreachable!(),
            recv(chan::after(Duration::from_secs(3600))) -> _ => unreachable!(),
            default(MS / 50) => {}
        }
    }
}

#[runnext::test(procs = 1)]
fn a_timer_can_be_closed() {
    let rx = chan::after(Duration::MAX);
    let closer = rx.clone();
    let h = go(move || rx.recv());
    runnext::yield_now();
    assert!(closer.close() && !closer.close());
    assert!(h.join().unwrap().is_err());
}

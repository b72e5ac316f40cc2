//! Time-outs and deadlines of sockets: never early, reaching calls that wait, gone when cleared.

mod common;

use std::io::{ErrorKind, Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{runtime, thread_id, until_asleep, until_polled_by};
use runnext::net::{TcpListener, TcpStream, UdpSocket, UnixStream};
use runnext::time::{Instant, sleep};
use runnext::{JoinHandle, go, stats};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

/// A goroutine that reads, and is about to wait, or waits.
fn reader(stream: &Arc<TcpStream>) -> JoinHandle<std::io::Result<usize>> {
    let stream = Arc::clone(stream);
    go(move || (&*stream).read(&mut [0; 8]))
}

fn is_timeout(result: std::io::Result<usize>) -> bool {
    result.is_err_and(|e| e.kind() == ErrorKind::TimedOut)
}

/// From 1 ns to 1 s, as time-out and as deadline, on a goroutine and on a plain thread.
fn none_is_early() {
    let (mut here, _there) = pair();
    for exponent in 0..=9 {
        let d = Duration::from_nanos(10_u64.pow(exponent));
        here.set_read_timeout(Some(d)).unwrap();
        let start = Instant::now();
        assert!(is_timeout(here.read(&mut [0; 8])));
        assert!(start.elapsed() >= d, "a time-out of {d:?} was early");
        here.set_read_timeout(None).unwrap();
        let deadline = Instant::now() + d;
        here.set_read_deadline(Some(deadline)).unwrap();
        assert!(is_timeout(here.read(&mut [0; 8])));
        assert!(Instant::now() >= deadline, "a deadline in {d:?} was early");
        here.set_read_deadline(None).unwrap();
    }
}

#[test]
fn none_is_early_on_one_p() {
    runtime(1).run(none_is_early);
}

#[test]
fn none_is_early_on_four_ps() {
    runtime(4).run(none_is_early);
}

#[test]
fn none_is_early_on_a_plain_thread() {
    none_is_early();
}

/// Go's TestReadTimeoutUnblocksRead.
#[runnext::test]
fn a_past_deadline_ends_calls_that_wait() {
    let (here, _there) = pair();
    let here = Arc::new(here);
    for _ in 0..50 {
        let readers: Vec<_> = (0..3).map(|_| reader(&here)).collect();
        until_polled_by(3);
        here.set_read_deadline(Some(Instant::now() - Duration::from_secs(1)))
            .unwrap();
        for reader in readers {
            assert!(is_timeout(reader.join().unwrap()));
        }
        here.set_read_deadline(None).unwrap();
    }
}

/// The same, for a plain thread that waits in the kernel, with nothing but this thread around.
#[test]
fn a_past_deadline_reaches_a_plain_thread() {
    let (here, _there) = pair();
    let here = Arc::new(here);
    let other = Arc::clone(&here);
    let (id, ids) = std::sync::mpsc::channel();
    let reader = std::thread::spawn(move || {
        id.send(thread_id()).unwrap();
        (&*other).read(&mut [0; 8])
    });
    until_asleep(ids.recv().unwrap(), libc::SYS_ppoll);
    here.set_read_deadline(Some(Instant::now())).unwrap();
    assert!(is_timeout(reader.join().unwrap()));
}

#[runnext::test]
fn a_past_deadline_wins_over_data() {
    let (mut here, mut there) = pair();
    here.write_all(b"data").unwrap();
    there.set_read_deadline(Some(Instant::now())).unwrap();
    assert!(is_timeout(there.read(&mut [0; 8])));
    there.set_read_deadline(None).unwrap();
    assert_eq!(there.read(&mut [0; 8]).unwrap(), 4, "revived");
    there.set_write_deadline(Some(Instant::now())).unwrap();
    assert!(is_timeout(there.write(b"x")));
    there.set_write_deadline(None).unwrap();
    there.write_all(b"x").unwrap();
}

/// Go's TestReadTimeoutMustNotReturn: a deadline that was cleared ends nothing. One P has one heap of timers: it would be first.
#[runnext::test(procs = 1)]
fn a_cleared_deadline_ends_nothing() {
    let (here, mut there) = pair();
    let here = Arc::new(here);
    here.set_deadline(Some(Instant::now())).unwrap();
    here.set_deadline(Some(Instant::now() + Duration::from_millis(2)))
        .unwrap();
    here.set_deadline(None).unwrap();
    let reader = reader(&here);
    until_polled_by(1);
    sleep(Duration::from_millis(4));
    assert!(!reader.is_finished());
    assert_eq!(stats::read().num_netpoll_waiters, 1);
    there.write_all(b"xyz").unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 3);
}

#[runnext::test]
fn a_later_deadline_replaces_an_earlier_one() {
    let (here, _there) = pair();
    let here = Arc::new(here);
    here.set_read_deadline(Some(Instant::now() + Duration::from_secs(3600)))
        .unwrap();
    loop {
        let reader = reader(&here);
        until_polled_by(1);
        let earlier = Instant::now() + Duration::from_millis(5);
        let later = earlier + Duration::from_millis(5);
        here.set_read_deadline(Some(earlier)).unwrap();
        here.set_read_deadline(Some(later)).unwrap();
        let in_time = Instant::now() < earlier;
        assert!(is_timeout(reader.join().unwrap()));
        assert!(!in_time || Instant::now() >= later);
        if in_time {
            break;
        }
        here.set_read_deadline(None).unwrap(); // it was over before it was replaced: again
    }
}

#[runnext::test]
fn writes_time_out_too() {
    let (mut here, _there) = pair();
    here.set_write_timeout(Some(Duration::from_millis(3)))
        .unwrap();
    let e = loop {
        if let Err(e) = here.write(&[0; 65536]) {
            break e;
        }
    };
    assert_eq!(e.kind(), ErrorKind::TimedOut);
}

#[runnext::test]
fn accept_and_datagrams_time_out() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener
        .set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    listener.set_read_timeout(None).unwrap();
    listener.set_read_deadline(Some(Instant::now())).unwrap();
    assert_eq!(listener.accept().unwrap_err().kind(), ErrorKind::TimedOut);
    listener.set_read_deadline(None).unwrap();
    let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    listener.accept().unwrap();
    drop(client);
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    assert!(is_timeout(udp.recv(&mut [0; 8])));
    let (mut unix, _other) = UnixStream::pair().unwrap();
    unix.set_read_timeout(Some(Duration::from_millis(2)))
        .unwrap();
    assert!(is_timeout(unix.read(&mut [0; 8])));
}

#[runnext::test]
fn settings_are_remembered_and_zero_is_refused() {
    let (here, _there) = pair();
    assert_eq!(here.read_timeout().unwrap(), None);
    for d in [1, 1_000_000, u64::MAX].map(Duration::from_nanos) {
        here.set_read_timeout(Some(d)).unwrap();
        here.set_write_timeout(Some(d)).unwrap();
        if d.as_nanos() < u128::from(u64::MAX) {
            assert_eq!(here.read_timeout().unwrap(), Some(d));
            assert_eq!(here.write_timeout().unwrap(), Some(d));
        }
    }
    here.set_read_timeout(Some(Duration::MAX)).unwrap();
    let refused = here.set_read_timeout(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
    let refused = here.set_write_timeout(Some(Duration::ZERO)).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::InvalidInput);
}

/// Go's TestReadWriteDeadlineRace: deadlines that change all the time beside reads and writes.
#[runnext::test(procs = 2)]
fn deadlines_that_change_all_the_time() {
    let (here, there) = pair();
    let (here, there) = (Arc::new(here), Arc::new(there));
    let stop = Arc::new(AtomicBool::new(false));
    let setter = {
        let (here, stop) = (Arc::clone(&here), Arc::clone(&stop));
        go(move || {
            while !stop.load(Relaxed) {
                here.set_deadline(Some(Instant::now() + Duration::from_micros(2)))
                    .unwrap();
                sleep(Duration::from_micros(2));
            }
            here.set_deadline(None).unwrap();
        })
    };
    let ended = Arc::new(AtomicUsize::new(0));
    let reader = {
        let (here, ended) = (Arc::clone(&here), Arc::clone(&ended));
        go(move || {
            for _ in 0..300 {
                let _ = (&*here).read(&mut [0; 64]);
                ended.fetch_add(1, Relaxed);
            }
        })
    };
    let writer = {
        let here = Arc::clone(&here);
        go(move || (0..300).for_each(|_| drop((&*here).write(&[0; 64]))))
    };
    let peer = {
        let there = Arc::clone(&there);
        go(move || while (&*there).read(&mut [0; 256]).is_ok_and(|n| n > 0) {})
    };
    reader.join().unwrap();
    writer.join().unwrap();
    stop.store(true, Relaxed);
    setter.join().unwrap();
    assert_eq!(ended.load(Relaxed), 300);
    here.shutdown(std::net::Shutdown::Both).unwrap();
    peer.join().unwrap();
}

/// Go's TestConcurrentSetDeadline.
#[runnext::test(procs = 2)]
fn many_set_deadlines_of_many() {
    let all: Arc<Vec<_>> = Arc::new((0..10).map(|_| pair()).collect());
    let setters: Vec<_> = (0..8)
        .map(|i| {
            let all = Arc::clone(&all);
            go(move || {
                for round in 0..100 {
                    for (here, _) in all.iter() {
                        let d = Duration::from_nanos(round * 1000 + i);
                        here.set_read_deadline(Some(Instant::now() + d)).unwrap();
                    }
                }
            })
        })
        .collect();
    setters.into_iter().for_each(|g| g.join().unwrap());
    for (here, _) in all.iter() {
        assert!(is_timeout((&*here).read(&mut [0; 8])));
        here.set_read_deadline(None).unwrap();
    }
}

//! Who looks for events, whatever else the runtime is doing; sockets between runtimes, threads and futures.

mod common;

use std::future::poll_fn;
use std::hint::spin_loop;
use std::io::{ErrorKind, Read, Write};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{assert_rests, child, holdings, holdings_after, runtime, until, until_polled_by};
use runnext::net::{TcpListener, TcpStream, UnixStream};
use runnext::{chan, go};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn echo(mut stream: impl Read + Write) {
    let mut buf = [0; 64];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        stream.write_all(&buf[..n]).unwrap();
    }
}

fn ask(stream: &mut (impl Read + Write), rounds: usize) {
    for round in 0..rounds {
        stream.write_all(&[round as u8]).unwrap();
        let mut reply = [0];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, [round as u8]);
    }
}

/// Tight loops have all Ps, and a thread outside asks: the monitor must notice, and make way.
#[test]
fn beside_hogs() {
    for procs in [1, 2] {
        let rt = runtime(procs);
        let (here, there) = rt.run(pair);
        let stop = Arc::new(AtomicBool::new(false));
        let running = Arc::new(AtomicUsize::new(0));
        rt.go(move || echo(there));
        for _ in 0..procs {
            let (stop, running) = (Arc::clone(&stop), Arc::clone(&running));
            rt.go(move || {
                running.fetch_add(1, SeqCst);
                while !stop.load(Relaxed) {
                    spin_loop();
                }
            });
        }
        until(|| running.load(SeqCst) == procs);
        std::thread::spawn(move || ask(&mut { here }, 20))
            .join()
            .unwrap();
        stop.store(true, Relaxed);
    }
}

/// Queues that are never empty: pairs that hand over to each other for ever.
#[test]
fn beside_pairs() {
    let rt = runtime(1);
    let stop = Arc::new(AtomicBool::new(false));
    let turns = Arc::new(AtomicUsize::new(0));
    for _ in 0..2 {
        let (a, b) = chan::bounded::<()>(0);
        let (stop, turns) = (Arc::clone(&stop), Arc::clone(&turns));
        rt.go(move || while a.send(()).is_ok() {});
        rt.go(move || {
            while !stop.load(Relaxed) {
                b.recv().unwrap();
                turns.fetch_add(1, Relaxed);
            }
        });
    }
    let (here, there) = rt.run(pair);
    rt.go(move || echo(there));
    until(|| turns.load(Relaxed) > 100);
    std::thread::spawn(move || ask(&mut { here }, 50))
        .join()
        .unwrap();
    let before = turns.load(Relaxed);
    until(|| turns.load(Relaxed) > before + 100);
    stop.store(true, Relaxed);
}

/// The thread of the only P sleeps in the kernel, unmarked.
#[test]
fn beside_a_thread_that_sleeps() {
    let rt = runtime(1);
    let (here, there) = rt.run(pair);
    rt.go(move || echo(there));
    let sleeping = Arc::new(AtomicBool::new(false));
    let begun = Arc::clone(&sleeping);
    let (wake, woken) = std::sync::mpsc::channel::<()>();
    let sleeper = rt.go(move || {
        begun.store(true, SeqCst);
        woken.recv().unwrap_err()
    });
    until(|| sleeping.load(SeqCst));
    let asker = std::thread::spawn(move || ask(&mut { here }, 20));
    asker.join().unwrap();
    drop(wake);
    sleeper.join().unwrap();
}

#[runnext::test]
fn locked_to_a_thread_and_while_unwinding() {
    let (mut here, there) = UnixStream::pair().unwrap();
    go(move || {
        let _locked = runnext::lock_os_thread();
        echo(there);
    });
    ask(&mut here, 20);
    struct AsksWhenDropped(UnixStream);
    impl Drop for AsksWhenDropped {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            ask(&mut self.0, 5);
        }
    }
    let unwinding = go(move || {
        let _asks = AsksWhenDropped(here);
        panic!("on purpose");
    });
    assert!(unwinding.join().is_err());
}

#[test]
fn moved_between_runtimes() {
    let first = runtime(1);
    let (mut here, mut there) = first.run(|| {
        let (mut here, mut there) = pair();
        let reader = go(move || {
            there.read_exact(&mut [0; 2]).unwrap();
            there
        });
        until_polled_by(1);
        here.write_all(b"12").unwrap();
        (here, reader.join().unwrap())
    });
    // Another runtime beside it, then none of the first, then none at all.
    let second = runtime(2);
    let (here_back, there_back) = second.run(move || {
        let reader = go(move || {
            there.read_exact(&mut [0; 2]).unwrap();
            there
        });
        until_polled_by(1);
        here.write_all(b"34").unwrap();
        (here, reader.join().unwrap())
    });
    (here, there) = (here_back, there_back);
    drop(first);
    let (here, mut there) = second.run(move || {
        let reader = go(move || {
            there.read_exact(&mut [0; 2]).unwrap();
            there
        });
        until_polled_by(1);
        here.write_all(b"56").unwrap();
        (here, reader.join().unwrap())
    });
    drop(second);
    let writer = std::thread::spawn(move || (&here).write_all(b"7").unwrap());
    there.read_exact(&mut [0]).unwrap();
    writer.join().unwrap();
    assert_eq!(there.read(&mut [0]).unwrap(), 0);
}

/// Readers of two runtimes and a plain thread on one socket: each byte reaches one of them.
#[test]
fn shared_by_two_runtimes_and_a_thread() {
    let (one, two) = (runtime(1), runtime(2));
    let (here, there) = pair();
    let (there, got) = (Arc::new(there), Arc::new(AtomicUsize::new(0)));
    let read = {
        let (there, got) = (Arc::clone(&there), Arc::clone(&got));
        move || {
            while let Ok(n @ 1..) = (&*there).read(&mut [0; 3]) {
                got.fetch_add(n, SeqCst);
            }
        }
    };
    let goroutines = [
        one.go(read.clone()),
        two.go(read.clone()),
        two.go(read.clone()),
    ];
    let thread = std::thread::spawn(read);
    for _ in 0..500 {
        (&here).write_all(b"xy").unwrap();
        std::thread::yield_now();
    }
    drop(here);
    goroutines.into_iter().for_each(|g| g.join().unwrap());
    thread.join().unwrap();
    assert_eq!(got.load(SeqCst), 1000);
}

/// Goroutines that wait for sockets when their runtime goes are abandoned; their sockets' peers, and the rest, go on.
#[test]
fn shut_down_while_goroutines_wait() {
    let (here, there) = pair();
    let there = Arc::new(there);
    let rt = runtime(2);
    for _ in 0..3 {
        let there = Arc::clone(&there);
        rt.go(move || (&*there).read(&mut [0; 8]));
    }
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    rt.go(move || listener.accept());
    until(|| rt.stats().num_netpoll_waiters == 4);
    let end = rt.shutdown(Duration::from_millis(10));
    assert_eq!((end.finished, end.abandoned), (0, 4));
    (&here).write_all(b"x").unwrap();
    assert_eq!((&*there).read(&mut [0; 8]).unwrap(), 1);
}

/// A process that only waits for sockets uses no CPU.
#[test]
fn waiting_costs_nothing() {
    child(&[], || {
        runtime(2).run(|| {
            let (here, _there) = pair();
            let here = Arc::new(here);
            for _ in 0..4 {
                let here = Arc::clone(&here);
                go(move || (&*here).read(&mut [0; 8]));
            }
            until_polled_by(4);
            assert_rests(runnext::time::sleep);
        });
    })
    .passed();
}

/// Go's TestNetpollWaiters: who waits is counted, and nobody is left in the count.
#[runnext::test(procs = 2)]
fn waiters_are_counted() {
    let (here, there) = pair();
    let there = Arc::new(there);
    let readers: Vec<_> = (0..5)
        .map(|_| {
            let there = Arc::clone(&there);
            go(move || (&*there).read(&mut [0; 8]))
        })
        .collect();
    until_polled_by(5);
    there
        .set_read_deadline(Some(runnext::time::Instant::now()))
        .unwrap();
    for reader in readers {
        assert!(reader.join().unwrap().is_err());
    }
    assert_eq!(runnext::stats::read().num_netpoll_waiters, 0);
    drop(here);
}

/// Go's TestNetpollBreak: a thread that waits in the poller for long is reached by work from outside.
#[test]
fn work_from_outside_ends_a_poll() {
    let rt = runtime(1);
    let (here, there) = pair();
    there
        .set_read_timeout(Some(Duration::from_secs(600)))
        .unwrap();
    let reader = rt.go(move || (&there).read(&mut [0; 8]).unwrap());
    until(|| rt.stats().num_netpoll_waiters == 1);
    for _ in 0..200 {
        rt.go(|| {}).join().unwrap();
    }
    assert!(!reader.is_finished());
    (&here).write_all(b"x").unwrap();
    assert_eq!(reader.join().unwrap(), 1);
}

/// Connections that come and go leave nothing behind, and none is lost.
#[test]
fn a_storm_leaves_nothing() {
    child(&[], || {
        let start = holdings();
        runtime(2).run(|| {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            let server = go(move || {
                for stream in listener.incoming().take(2000) {
                    let stream = stream.unwrap();
                    go(move || echo(stream));
                }
            });
            let clients: Vec<_> = (0..50)
                .map(|_| {
                    go(move || {
                        for _ in 0..40 {
                            ask(&mut TcpStream::connect(addr).unwrap(), 2);
                        }
                    })
                })
                .collect();
            clients.into_iter().for_each(|c| c.join().unwrap());
            server.join().unwrap();
            until(|| runnext::num_goroutines() == 1);
        });
        let end = holdings_after(&start);
        assert_eq!((start.threads, start.fds), (end.threads, end.fds));
    })
    .passed();
}

/// A waker that says so.
struct Flag {
    set: AtomicBool,
    thread: std::thread::Thread,
}

impl Wake for Flag {
    fn wake(self: Arc<Self>) {
        self.set.store(true, SeqCst);
        self.thread.unpark();
    }
}

/// A future polled by an executor that is not ours, on a plain thread without a runtime.
#[test]
fn futures_of_others() {
    let (here, mut there) = pair();
    let flag = Arc::new(Flag {
        set: AtomicBool::new(false),
        thread: std::thread::current(),
    });
    let waker = Waker::from(Arc::clone(&flag));
    let mut cx = Context::from_waker(&waker);
    let mut buf = [0; 8];
    let mut read = pin!(poll_fn(|cx| here.poll_read(cx, &mut buf)));
    for round in 0..20 {
        assert!(read.as_mut().poll(&mut cx).is_pending());
        assert!(!flag.set.load(SeqCst), "round {round}: woken for nothing");
        there.write_all(b"abc").unwrap();
        while !flag.set.swap(false, SeqCst) {
            std::thread::park();
        }
        match read.as_mut().poll(&mut cx) {
            Poll::Ready(Ok(3)) => {}
            other => panic!("{other:?}"),
        }
    }
    let full = loop {
        match here.poll_write(&mut cx, &[0; 65536]) {
            Poll::Ready(Ok(_)) => {}
            other => break other,
        }
    };
    assert!(full.is_pending());
    flag.set.store(false, SeqCst);
    std::thread::spawn(move || there.read_to_end(&mut Vec::new()));
    while !flag.set.load(SeqCst) {
        std::thread::park();
    }
}

/// Futures and goroutines, and deadlines, on one socket.
#[runnext::test(procs = 2)]
fn futures_of_ours() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = runnext::spawn(async move {
        let (stream, _) = poll_fn(|cx| listener.poll_accept(cx)).await.unwrap();
        let mut buf = [0; 64];
        loop {
            match poll_fn(|cx| stream.poll_read(cx, &mut buf)).await.unwrap() {
                0 => return stream,
                n => {
                    poll_fn(|cx| stream.poll_write(cx, &buf[..n]))
                        .await
                        .unwrap();
                }
            }
        }
    });
    let mut here = TcpStream::connect(addr).unwrap();
    ask(&mut here, 100);
    here.shutdown(std::net::Shutdown::Write).unwrap();
    let there = server.join().unwrap();
    there
        .set_read_deadline(Some(runnext::time::Instant::now()))
        .unwrap();
    let late = runnext::block_on(poll_fn(|cx| there.poll_read(cx, &mut [0; 8])));
    assert_eq!(late.unwrap_err().kind(), ErrorKind::TimedOut);
}

/// Go's TestSpuriousWakeupsNeverHangSemasleep: signals of others cut every sleep in the kernel short, and end no wait of a goroutine.
#[test]
fn signals_wake_nobody_early() {
    extern "C" fn nothing(_: i32) {}
    child(&[], || {
        // SAFETY: an action of zeroes but for the handler: no flags, so no call is restarted. It touches nothing.
        unsafe {
            let mut action: libc::sigaction = std::mem::zeroed();
            action.sa_sigaction = nothing as extern "C" fn(i32) as usize;
            assert_eq!(
                libc::sigaction(libc::SIGUSR1, &action, std::ptr::null_mut()),
                0
            );
        }
        const SPAN: Duration = Duration::from_millis(50);
        let stop = AtomicBool::new(false);
        let rounds = AtomicUsize::new(0);
        std::thread::scope(|threads| {
            threads.spawn(|| {
                while !stop.load(Relaxed) {
                    rounds.fetch_add(1, Relaxed);
                    signal_all_others();
                }
            });
            for procs in [1, 2] {
                runtime(procs).run(|| {
                    let begun = rounds.load(Relaxed);
                    until(|| rounds.load(Relaxed) > begun + 10);
                    (0..5).for_each(|_| wait_in_all_ways(SPAN));
                });
            }
            stop.store(true, Relaxed);
        });
    })
    .passed();
}

/// None of these waits ends before its time.
fn wait_in_all_ways(span: Duration) {
    let ((silent, _kept), (mut here, mut there)) = (pair(), pair());
    let (_tx, rx) = chan::bounded::<()>(0);
    let in_time = |wait: &dyn Fn()| {
        let start = std::time::Instant::now();
        wait();
        assert!(start.elapsed() >= span, "early");
    };
    runnext::scope(|s| {
        s.go(|| in_time(&|| runnext::time::sleep(span)));
        s.go(|| in_time(&|| assert!(rx.recv_timeout(span).unwrap_err().is_timeout())));
        s.go(|| {
            silent.set_read_timeout(Some(span)).unwrap();
            in_time(&|| {
                let late = (&silent).read(&mut [0]).unwrap_err();
                assert_eq!(late.kind(), ErrorKind::TimedOut);
            });
        });
        s.go(move || {
            runnext::time::sleep(span);
            there.write_all(b"x").unwrap();
        });
        let mut got = [0];
        here.read_exact(&mut got).unwrap();
        assert_eq!(&got, b"x");
    });
}

fn signal_all_others() {
    let me = common::thread_id();
    for entry in std::fs::read_dir("/proc/self/task").unwrap().flatten() {
        let name = entry.file_name();
        let tid: i32 = name.to_str().and_then(|n| n.parse().ok()).unwrap();
        if tid != me {
            // SAFETY: no memory is involved; a thread that has gone is an error, which is as good.
            unsafe { libc::syscall(libc::SYS_tgkill, libc::getpid(), tid, libc::SIGUSR1) };
        }
    }
}

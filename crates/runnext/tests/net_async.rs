//! Several futures that wait for one socket.

mod common;

use std::future::poll_fn;
use std::io::{Read, Write};
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::task::{Context, Waker};
use std::time::Duration;

use common::{Count, until, until_waits};
use runnext::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use runnext::{JoinHandle, block_on, go, spawn};

type Outcome = std::io::Result<usize>;

/// Tasks that read one byte each from the socket; all of them wait.
fn readers(of: &Arc<UnixStream>, n: usize) -> Vec<JoinHandle<Outcome>> {
    let read = || {
        let of = Arc::clone(of);
        spawn(async move { poll_fn(|cx| of.poll_read(cx, &mut [0])).await })
    };
    let tasks: Vec<_> = std::iter::repeat_with(read).take(n).collect();
    tasks.iter().for_each(|task| until_waits(task, "await"));
    tasks
}

/// Whatever ends a wait ends that of all.
#[runnext::test(procs = 2)]
fn all_tasks_are_woken() {
    for n in [2, 5, 50] {
        let (here, mut there) = UnixStream::pair().unwrap();
        let here = Arc::new(here);
        for round in 0..20 {
            let tasks = readers(&here, n);
            there.write_all(&vec![round; n]).unwrap();
            for task in tasks {
                assert_eq!(task.join().unwrap().unwrap(), 1);
            }
        }
        let tasks = readers(&here, n);
        let beside = {
            let here = Arc::clone(&here);
            go(move || (&*here).read(&mut [0]))
        };
        until_waits(&beside, "IO wait");
        here.set_read_deadline(Some(runnext::time::Instant::now()))
            .unwrap();
        for task in tasks.into_iter().chain([beside]) {
            let late = task.join().unwrap().unwrap_err();
            assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
        }
        here.set_read_deadline(None).unwrap();
        let tasks = readers(&here, n);
        here.shutdown(Shutdown::Both).unwrap();
        for task in tasks {
            assert_eq!(task.join().unwrap().unwrap(), 0);
        }
    }
}

/// One byte for many: the others wait on.
#[runnext::test(procs = 2)]
fn who_got_nothing_waits_on() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let mut tasks = readers(&Arc::new(here), 5);
    while !tasks.is_empty() {
        there.write_all(b"x").unwrap();
        let left = tasks.len() - 1;
        until(|| {
            tasks.retain(|task| !task.is_finished());
            tasks.len() == left
        });
        tasks.iter().for_each(|task| until_waits(task, "await"));
    }
}

#[runnext::test(procs = 2)]
fn all_who_write_or_accept_are_woken() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    here.set_nonblocking(true).unwrap();
    while (&*here).write(&[0; 1 << 16]).is_ok() {}
    let write = || {
        let here = Arc::clone(&here);
        spawn(async move { poll_fn(|cx| here.poll_write(cx, &[0])).await.unwrap() })
    };
    let tasks: Vec<_> = std::iter::repeat_with(write).take(3).collect();
    tasks.iter().for_each(|task| until_waits(task, "await"));
    drop(here);
    let drain = go(move || there.read_to_end(&mut Vec::new()).unwrap());
    for task in tasks {
        assert_eq!(task.join().unwrap(), 1);
    }
    drain.join().unwrap();

    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let accept = || {
        let listener = Arc::clone(&listener);
        spawn(async move { poll_fn(|cx| listener.poll_accept(cx)).await.unwrap() })
    };
    let tasks: Vec<_> = std::iter::repeat_with(accept).take(3).collect();
    tasks.iter().for_each(|task| until_waits(task, "await"));
    let connect = || TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let clients: Vec<_> = std::iter::repeat_with(connect).take(3).collect();
    for task in tasks {
        task.join().unwrap();
    }
    drop(clients);
}

fn ask(socket: &UnixStream, who: &Arc<Count>) -> bool {
    let waker = Waker::from(Arc::clone(who));
    let mut cx = Context::from_waker(&waker);
    socket.poll_read(&mut cx, &mut [0]).is_pending()
}

/// Wakers of others, with and without a runtime. One that asks again is woken once.
fn wakers_of_others() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let counts: Vec<Arc<Count>> = (0..10).map(|_| Arc::default()).collect();
    for round in 1..=3 {
        for _ in 0..3 {
            assert!(counts.iter().all(|count| ask(&here, count)));
        }
        there.write_all(b"x").unwrap();
        until(|| counts.iter().all(|count| count.0.load(SeqCst) == round));
        assert_eq!((&here).read(&mut [0]).unwrap(), 1);
        until(|| counts.iter().all(|count| Arc::strong_count(count) == 1));
    }
    assert!(counts.iter().all(|count| ask(&here, count)));
    drop(here);
    assert!(counts.iter().all(|count| Arc::strong_count(count) == 1));
    assert!(counts.iter().all(|count| count.0.load(SeqCst) == 3));
}

#[test]
fn all_wakers_of_others_are_woken() {
    wakers_of_others();
    common::runtime(1).run(wakers_of_others);
}

/// A socket handed from task to task, each of which stays alive: it wakes the one that has it.
#[runnext::test]
fn from_task_to_task() {
    let (mut here, mut there) = UnixStream::pair().unwrap();
    let reads = Arc::new(AtomicUsize::new(0));
    let mut kept = Vec::new();
    for turn in 0..20 {
        let (back, taken) = runnext::chan::bounded(1);
        let (end, ends) = runnext::chan::bounded::<()>(1);
        let count = Arc::clone(&reads);
        let task = spawn(async move {
            for _ in 0..3 {
                poll_fn(|cx| here.poll_read(cx, &mut [0])).await.unwrap();
                count.fetch_add(1, SeqCst);
            }
            back.send(here).unwrap();
            let _ = ends.recv();
        });
        for read in 0..3 {
            until_waits(&task, "await");
            there.write_all(b"x").unwrap();
            until(|| reads.load(SeqCst) == 3 * turn + read + 1);
        }
        here = taken.recv().unwrap();
        kept.push((task, end));
    }
    for (task, end) in kept {
        drop(end);
        task.join().unwrap();
    }
}

/// Nobody tells when a future is dropped that has asked. On a socket where nothing happens their wakers do not pile up: they are
/// woken after a while, and who still waits asks again.
#[test]
fn wakers_do_not_pile_up_on_a_quiet_socket() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let waiting = Arc::new(Count::default());
    let mut gone: Vec<Arc<Count>> = Vec::new();
    for _ in 0..3 {
        assert!(ask(&here, &waiting));
        for _ in 0..20 {
            gone.push(Arc::default());
            assert!(ask(&here, gone.last().unwrap()));
        }
        std::thread::sleep(Duration::from_millis(1001));
    }
    let kept = gone.iter().filter(|count| Arc::strong_count(count) > 1);
    assert!(kept.count() < 45, "of {}", gone.len());
    let before = waiting.0.load(SeqCst);
    assert!(ask(&here, &waiting));
    there.write_all(b"x").unwrap();
    until(|| waiting.0.load(SeqCst) == before + 1);
    assert_eq!(
        block_on(poll_fn(|cx| here.poll_read(cx, &mut [0]))).unwrap(),
        1
    );
}

/// A deadline that is set while a future is between its look at the deadline and its sleep.
#[runnext::test(procs = 2)]
fn a_deadline_set_meanwhile_is_not_missed() {
    let (here, _there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    for round in 0..20_000 {
        let begun = Arc::new(AtomicUsize::new(0));
        let (reading, begins) = (Arc::clone(&here), Arc::clone(&begun));
        let task = spawn(async move {
            begins.store(1, SeqCst);
            poll_fn(|cx| reading.poll_read(cx, &mut [0])).await
        });
        while begun.load(SeqCst) == 0 {
            std::hint::spin_loop();
        }
        for _ in 0..round % 100 {
            std::hint::spin_loop();
        }
        here.set_read_deadline(Some(runnext::time::Instant::now()))
            .unwrap();
        let late = task.join().unwrap().unwrap_err();
        assert_eq!(late.kind(), std::io::ErrorKind::TimedOut);
        here.set_read_deadline(None).unwrap();
    }
}

/// Datagrams, from a plain thread and from goroutines, with somebody to wait for at both ends.
#[test]
fn datagrams_of_futures() {
    let udp = || UdpSocket::bind("127.0.0.1:0").unwrap();
    let exchange = async move |a: UdpSocket, b: UdpSocket| {
        let (to, from) = (b.local_addr().unwrap(), a.local_addr().unwrap());
        let (a, b) = (Arc::new(a), Arc::new(b));
        let mut buf = [0; 8];
        let mut empty =
            poll_fn(|cx| std::task::Poll::Ready(b.poll_recv(cx, &mut [0]).is_pending()));
        assert!((&mut empty).await);
        let sent = poll_fn(|cx| a.poll_send_to(cx, b"one", to)).await;
        assert_eq!(sent.unwrap(), 3);
        let got = poll_fn(|cx| b.poll_recv_from(cx, &mut buf)).await;
        assert_eq!((got.unwrap(), &buf[..3]), ((3, from), &b"one"[..]));
        a.connect(to).unwrap();
        // The receiver waits, and is woken by the one who sends.
        let sender = std::thread::spawn(move || {
            std::thread::sleep(Duration::from_millis(2));
            block_on(poll_fn(|cx| a.poll_send(cx, b"four")))
        });
        let got = poll_fn(|cx| b.poll_recv(cx, &mut buf)).await;
        assert_eq!((got.unwrap(), &buf[..4]), (4, &b"four"[..]));
        assert_eq!(sender.join().unwrap().unwrap(), 4);
    };
    block_on(exchange(udp(), udp()));
    common::runtime(2).run(|| block_on(exchange(udp(), udp())));
}

#[runnext::test(procs = 2)]
fn unix_datagrams_of_futures() {
    let (here, there) = UnixDatagram::pair().unwrap();
    let (here, there) = (Arc::new(here), Arc::new(there));
    // More than the queue has room for: both ends wait now and then.
    let sender = spawn({
        let here = Arc::clone(&here);
        async move {
            for i in 0..1000u16 {
                let sent = poll_fn(|cx| here.poll_send(cx, &i.to_ne_bytes())).await;
                assert_eq!(sent.unwrap(), 2);
            }
        }
    });
    until_waits(&sender, "await");
    block_on(async {
        let mut buf = [0; 2];
        for i in 0..1000u16 {
            let got = poll_fn(|cx| there.poll_recv_from(cx, &mut buf)).await;
            assert!(got.unwrap().1.is_unnamed());
            assert_eq!(u16::from_ne_bytes(buf), i);
        }
    });
    sender.join().unwrap();
    // The end is told to who waits.
    let reader = spawn({
        let there = Arc::clone(&there);
        async move { poll_fn(|cx| there.poll_recv(cx, &mut [0])).await }
    });
    until_waits(&reader, "await");
    there.shutdown(Shutdown::Read).unwrap();
    assert_eq!(reader.join().unwrap().unwrap(), 0);
}

/// Made, refused, and given up, on a plain thread and in a runtime.
#[test]
fn connecting_in_a_future() {
    let talk = async || {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let mut stream = TcpStream::connect_async(addr).await.unwrap();
        let (mut other, from) = listener.accept().unwrap();
        assert_eq!(from, stream.local_addr().unwrap());
        stream.write_all(b"x").unwrap();
        other.read_exact(&mut [0]).unwrap();
        drop(TcpStream::connect_async(addr)); // never polled: nobody connects
        drop((listener, other));
        // Port 1 is nobody's.
        let refused = TcpStream::connect_async(([127, 77, 0, 4], 1).into()).await;
        assert_eq!(
            refused.unwrap_err().kind(),
            std::io::ErrorKind::ConnectionRefused
        );
    };
    block_on(talk());
    common::runtime(2).run(|| block_on(talk()));
}

/// The kernel keeps those for whom the queue of the listener has no place waiting, and asks again for them after a second.
#[runnext::test(procs = 2)]
fn futures_wait_for_their_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    // SAFETY: an open socket; room for one connection from here on.
    assert_eq!(unsafe { libc::listen(listener.as_raw_fd(), 0) }, 0);
    let addr = listener.local_addr().unwrap();
    let connect = |_| spawn(async move { TcpStream::connect_async(addr).await });
    let clients: Vec<_> = (0..4).map(connect).collect();
    until(|| clients.iter().any(JoinHandle::is_finished));
    assert!(!clients.iter().all(JoinHandle::is_finished));
    let accepted = go(move || Vec::from([(); 4].map(|()| listener.accept().unwrap())).len());
    for client in clients {
        assert_eq!(client.join().unwrap().unwrap().peer_addr().unwrap(), addr);
    }
    assert_eq!(accepted.join().unwrap(), 4);
}

//! TCP: streams and listeners as the standard library has them, from goroutines and plain threads.

mod common;

use std::io::{self, ErrorKind, IoSlice, IoSliceMut, Read, Write};
use std::net::Shutdown;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{runtime, until, until_polled_by};
use runnext::net::{TcpListener, TcpStream};
use runnext::{chan, go};

/// Two ends of a connection.
fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buf = [0; 256];
    loop {
        match stream.read(&mut buf)? {
            0 => return Ok(()),
            n => stream.write_all(&buf[..n])?,
        }
    }
}

fn echo_server(n: usize) -> (std::net::SocketAddr, runnext::JoinHandle<()>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = go(move || {
        let all: Vec<_> = (0..n)
            .map(|_| {
                let (stream, _) = listener.accept().unwrap();
                go(move || echo(stream).unwrap())
            })
            .collect();
        all.into_iter().for_each(|g| g.join().unwrap());
    });
    (addr, server)
}

fn client(addr: std::net::SocketAddr, id: usize, rounds: usize) {
    let mut stream = TcpStream::connect(addr).unwrap();
    for round in 0..rounds {
        let text = format!("client {id}, round {round}");
        stream.write_all(text.as_bytes()).unwrap();
        let mut reply = vec![0; text.len()];
        stream.read_exact(&mut reply).unwrap();
        assert_eq!(reply, text.as_bytes());
    }
}

#[test]
fn echo_on_one_and_more_ps() {
    for procs in [1, 2, 4] {
        runtime(procs).run(|| {
            let (addr, server) = echo_server(20);
            let clients: Vec<_> = (0..20)
                .map(|id| go(move || client(addr, id, 100)))
                .collect();
            clients.into_iter().for_each(|g| g.join().unwrap());
            server.join().unwrap();
        });
    }
}

#[test]
fn echo_with_clients_on_plain_threads() {
    runtime(2).run(|| {
        let (addr, server) = echo_server(8);
        let clients: Vec<_> = (0..8)
            .map(|id| std::thread::spawn(move || client(addr, id, 100)))
            .collect();
        server.join().unwrap();
        clients.into_iter().for_each(|t| t.join().unwrap());
    });
}

#[test]
fn plain_threads_without_a_runtime() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || echo(listener.accept().unwrap().0).unwrap());
    client(addr, 1, 50);
    server.join().unwrap();
}

#[runnext::test]
fn end_of_stream_and_reset() {
    let (here, mut there) = pair();
    (&here).write_all(b"bye").unwrap();
    drop(here);
    let mut all = String::new();
    there.read_to_string(&mut all).unwrap();
    assert_eq!(all, "bye");
    assert_eq!(there.read(&mut [0; 8]).unwrap(), 0, "the end stays the end");
    // The peer is gone: at some point writing says so.
    let broken = loop {
        if let Err(e) = there.write(&[0; 1024]) {
            break e.kind();
        }
    };
    assert!(matches!(
        broken,
        ErrorKind::BrokenPipe | ErrorKind::ConnectionReset
    ));
}

/// The data and the end arrive together: less than asked for, and no further event.
#[runnext::test]
fn data_and_end_in_one_event() {
    for _ in 0..200 {
        let (mut here, mut there) = pair();
        let reader = go(move || {
            let mut buf = [0; 64];
            let mut all = Vec::new();
            loop {
                match there.read(&mut buf).unwrap() {
                    0 => return all,
                    n => all.extend_from_slice(&buf[..n]),
                }
            }
        });
        runnext::yield_now();
        here.write_all(b"last words").unwrap();
        drop(here);
        assert_eq!(reader.join().unwrap(), b"last words");
    }
}

#[runnext::test]
fn half_closed() {
    let (mut here, mut there) = pair();
    let answer = go(move || {
        let mut question = Vec::new();
        there.read_to_end(&mut question).unwrap();
        there.write_all(&question).unwrap();
    });
    here.write_all(b"question").unwrap();
    here.shutdown(Shutdown::Write).unwrap();
    let mut text = String::new();
    here.read_to_string(&mut text).unwrap();
    assert_eq!(text, "question");
    answer.join().unwrap();
}

#[runnext::test]
fn shutdown_unblocks_readers_and_writers() {
    let (here, _there) = pair();
    let here = Arc::new(here);
    let readers: Vec<_> = (0..4)
        .map(|_| {
            let here = Arc::clone(&here);
            go(move || (&*here).read(&mut [0; 8]).unwrap())
        })
        .collect();
    let writer = {
        let here = Arc::clone(&here);
        go(move || {
            loop {
                if let Err(e) = (&*here).write(&[0; 65536]) {
                    return e.kind();
                }
            }
        })
    };
    until_polled_by(5);
    here.shutdown(Shutdown::Both).unwrap();
    for reader in readers {
        assert_eq!(reader.join().unwrap(), 0);
    }
    assert_eq!(writer.join().unwrap(), ErrorKind::BrokenPipe);
}

#[runnext::test]
fn vectored() {
    let (mut here, mut there) = pair();
    let n = here
        .write_vectored(&[IoSlice::new(b"ab"), IoSlice::new(b"cde")])
        .unwrap();
    assert_eq!(n, 5);
    let (mut x, mut y) = ([0; 3], [0; 8]);
    let n = there
        .read_vectored(&mut [IoSliceMut::new(&mut x), IoSliceMut::new(&mut y)])
        .unwrap();
    assert_eq!((n, &x, &y[..2]), (5, b"abc", &b"de"[..]));
    assert_eq!(
        there.read(&mut []).unwrap(),
        0,
        "nothing asked, nothing waited for"
    );
}

#[runnext::test]
fn peek_takes_nothing() {
    let (mut here, mut there) = pair();
    let peeker = go(move || {
        let mut buf = [0; 8];
        assert_eq!(there.peek(&mut buf).unwrap(), 2);
        assert_eq!(there.peek(&mut buf).unwrap(), 2);
        assert_eq!(there.read(&mut buf).unwrap(), 2);
        assert_eq!(there.peek(&mut buf).unwrap(), 0);
    });
    runnext::yield_now();
    here.write_all(b"xy").unwrap();
    drop(here);
    peeker.join().unwrap();
}

#[runnext::test]
fn nonblocking_by_choice() {
    let (mut here, mut there) = pair();
    there.set_nonblocking(true).unwrap();
    assert_eq!(
        there.read(&mut [0; 8]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    here.write_all(b"x").unwrap();
    until(|| there.peek(&mut [0; 8]).is_ok());
    assert_eq!(there.read(&mut [0; 8]).unwrap(), 1);
    assert_eq!(
        there.read(&mut [0; 8]).unwrap_err().kind(),
        ErrorKind::WouldBlock
    );
    there.set_nonblocking(false).unwrap();
    let reader = go(move || there.read(&mut [0; 8]).unwrap());
    here.write_all(b"y").unwrap();
    assert_eq!(reader.join().unwrap(), 1);
}

#[runnext::test]
fn refused() {
    // Not one that was free a moment ago: another process may have it by now.
    let addr = "127.0.0.1:1".parse().unwrap();
    let e = TcpStream::connect::<std::net::SocketAddr>(addr).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
    let e = TcpStream::connect_timeout(&addr, Duration::from_secs(5)).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::ConnectionRefused);
    let e = TcpStream::connect_timeout(&addr, Duration::ZERO).unwrap_err();
    assert_eq!(e.kind(), ErrorKind::InvalidInput);
    assert!(TcpStream::connect("no.such.host.invalid:80").is_err());
    let none: &[std::net::SocketAddr] = &[];
    assert_eq!(
        TcpStream::connect(none).unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

#[runnext::test]
fn options() {
    let (here, there) = pair();
    assert_eq!(here.peer_addr().unwrap(), there.local_addr().unwrap());
    assert_eq!(here.local_addr().unwrap(), there.peer_addr().unwrap());
    here.set_nodelay(true).unwrap();
    assert!(here.nodelay().unwrap());
    for on in [false, true] {
        here.set_quickack(on).unwrap();
        assert_eq!(here.quickack().unwrap(), on);
    }
    here.set_ttl(42).unwrap();
    assert_eq!(here.ttl().unwrap(), 42);
    assert!(here.take_error().unwrap().is_none());
    assert!(format!("{here:?}").contains("127.0.0.1"));
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    listener.set_ttl(7).unwrap();
    assert_eq!(listener.ttl().unwrap(), 7);
    assert!(format!("{listener:?}").contains("127.0.0.1"));
}

#[runnext::test(procs = 2)]
fn many_goroutines_accept_from_one_listener() {
    let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
    let addr = listener.local_addr().unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let acceptors: Vec<_> = (0..8)
        .map(|_| {
            let (listener, served) = (Arc::clone(&listener), Arc::clone(&served));
            go(move || {
                for _ in 0..10 {
                    let (mut stream, _) = listener.accept().unwrap();
                    served.fetch_add(1, SeqCst);
                    stream.write_all(b"!").unwrap();
                }
            })
        })
        .collect();
    for _ in 0..80 {
        let mut stream = TcpStream::connect(addr).unwrap();
        stream.read_exact(&mut [0]).unwrap();
    }
    acceptors.into_iter().for_each(|g| g.join().unwrap());
    assert_eq!(served.load(SeqCst), 80);
}

/// What one reads the others do not; all of it arrives.
#[runnext::test(procs = 2)]
fn several_readers_and_writers() {
    let (here, there) = pair();
    let (here, there) = (Arc::new(here), Arc::new(there));
    let (sums, results) = chan::unbounded();
    for _ in 0..4 {
        let (there, sums) = (Arc::clone(&there), sums.clone());
        go(move || {
            let (mut buf, mut sum) = ([0; 512], 0u64);
            loop {
                match (&*there).read(&mut buf).unwrap() {
                    0 => break,
                    n => sum += buf[..n].iter().map(|&b| u64::from(b)).sum::<u64>(),
                }
            }
            sums.send(sum).unwrap();
        });
    }
    drop(sums);
    let writers: Vec<_> = (1..=4u8)
        .map(|id| {
            let here = Arc::clone(&here);
            go(move || (0..200).for_each(|_| (&*here).write_all(&[id; 1000]).unwrap()))
        })
        .collect();
    writers.into_iter().for_each(|g| g.join().unwrap());
    here.shutdown(Shutdown::Write).unwrap();
    assert_eq!(results.iter().sum::<u64>(), 200 * 1000 * (1 + 2 + 3 + 4));
}

#[runnext::test]
fn clones_are_the_same_socket() {
    let (here, mut there) = pair();
    let mut clone = here.try_clone().unwrap();
    here.set_read_timeout(Some(Duration::from_millis(3)))
        .unwrap();
    assert_eq!(
        clone.read_timeout().unwrap(),
        Some(Duration::from_millis(3))
    );
    assert_eq!(
        clone.read(&mut [0; 8]).unwrap_err().kind(),
        ErrorKind::TimedOut
    );
    drop(here);
    clone.write_all(b"still open").unwrap();
    drop(clone);
    let mut text = String::new();
    there.read_to_string(&mut text).unwrap();
    assert_eq!(text, "still open");
}

#[test]
fn the_iterator_of_connections() {
    runtime(2).run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        let clients: Vec<_> = (0..3)
            .map(|_| go(move || drop(TcpStream::connect(addr).unwrap())))
            .collect();
        assert_eq!(listener.incoming().take(2).filter(Result::is_ok).count(), 2);
        assert_eq!(
            listener
                .into_incoming()
                .take(1)
                .filter(Result::is_ok)
                .count(),
            1
        );
        clients.into_iter().for_each(|g| g.join().unwrap());
    });
}

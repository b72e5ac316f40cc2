//! Bad input: descriptors that are none, peers that misbehave, a process out of descriptors. The standard library's errors, no
//! leak, no busy loop, and nobody else is held up.

mod common;

use std::collections::VecDeque;
use std::io::{ErrorKind, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd, IntoRawFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{child, holdings, holdings_after, runtime, until};
use runnext::net::{TcpListener, TcpStream, UdpSocket, UnixListener, UnixStream};
use runnext::time::Instant;
use runnext::{go, yield_now};

fn pair() -> (TcpStream, TcpStream) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    (here, listener.accept().unwrap().0)
}

#[runnext::test]
fn descriptors_of_other_things() {
    let file: OwnedFd = std::fs::File::open("/proc/self/status").unwrap().into();
    let mut not_a_socket = TcpStream::from(file);
    let error = not_a_socket.read(&mut [0; 8]).unwrap_err();
    assert_eq!(error.raw_os_error(), Some(libc::ENOTSOCK));
    assert!(not_a_socket.write(b"x").is_err());
    assert!(not_a_socket.peer_addr().is_err());
    assert!(!format!("{not_a_socket:?}").is_empty());
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    let listener = TcpListener::from(OwnedFd::from(udp));
    assert!(listener.accept().is_err());
    let (unix, _other) = UnixStream::pair().unwrap();
    let listener = TcpListener::from(OwnedFd::from(unix));
    assert_eq!(
        listener.accept().unwrap_err().kind(),
        ErrorKind::InvalidInput
    );
}

/// The program closes the descriptor behind our back, and the number is given to another socket.
#[test]
fn a_descriptor_closed_by_others() {
    child(&[], || {
        runtime(1).run(|| {
            let (here, there) = pair();
            // Registered, once somebody has waited.
            here.set_read_timeout(Some(Duration::from_millis(1)))
                .unwrap();
            assert!((&here).read(&mut [0; 8]).is_err());
            let number = here.as_raw_fd();
            // SAFETY: what must not be done, in a process of its own.
            assert_eq!(unsafe { libc::close(number) }, 0);
            let error = (&here).read(&mut [0; 8]).unwrap_err();
            assert_eq!(error.raw_os_error(), Some(libc::EBADF));
            drop(there);
            // Given up, not closed: the number may be another's by now.
            std::mem::forget(here);
            let (mut a, mut b) = pair();
            let reader = go(move || b.read(&mut [0; 8]).unwrap());
            yield_now();
            a.write_all(b"xyz").unwrap();
            assert_eq!(reader.join().unwrap(), 3);
        });
    })
    .passed();
}

/// A number is reused while a duplicate of the old socket lives: events of the old one reach nobody.
#[runnext::test(procs = 2)]
fn numbers_are_reused() {
    for _ in 0..50 {
        let (mut here, there) = pair();
        let duplicate = there.as_raw_fd();
        let kept = std::os::fd::AsFd::as_fd(&there)
            .try_clone_to_owned()
            .unwrap();
        there
            .set_read_timeout(Some(Duration::from_nanos(1)))
            .unwrap();
        assert!((&there).read(&mut [0; 8]).is_err(), "registered");
        drop(there);
        let again = TcpStream::from(kept.try_clone().unwrap());
        if again.as_raw_fd() != duplicate {
            continue; // another test was faster
        }
        let reader = go(move || (&again).read(&mut [0; 8]).unwrap());
        yield_now();
        here.write_all(b"ab").unwrap();
        assert_eq!(reader.join().unwrap(), 2);
    }
}

#[runnext::test]
fn a_peer_that_resets() {
    let (here, mut there) = pair();
    let reader = go(move || {
        let error = there.read(&mut [0; 8]).unwrap_err();
        (error.kind(), there)
    });
    yield_now();
    let linger = libc::linger {
        l_onoff: 1,
        l_linger: 0,
    };
    // SAFETY: an open socket, and an option of that size.
    let set = unsafe {
        libc::setsockopt(
            here.as_raw_fd(),
            libc::SOL_SOCKET,
            libc::SO_LINGER,
            (&raw const linger).cast(),
            size_of::<libc::linger>() as u32,
        )
    };
    assert_eq!(set, 0);
    drop(here);
    let (kind, mut there) = reader.join().unwrap();
    assert_eq!(kind, ErrorKind::ConnectionReset);
    assert_eq!(there.read(&mut [0; 8]).unwrap(), 0, "told once");
    assert_eq!(there.write(b"x").unwrap_err().kind(), ErrorKind::BrokenPipe);
}

/// Half a frame, then silence: a time-out; half a frame, then the end: an unexpected one. Others are served meanwhile.
#[runnext::test(procs = 1)]
fn half_a_frame() {
    let (mut slow, mut there) = pair();
    slow.write_all(b"half").unwrap();
    there
        .set_read_timeout(Some(Duration::from_millis(20)))
        .unwrap();
    let frame = go(move || {
        let error = there.read_exact(&mut [0; 8]).unwrap_err();
        (error.kind(), there)
    });
    let (mut a, mut b) = pair();
    let other = go(move || b.read(&mut [0; 8]).unwrap());
    a.write_all(b"x").unwrap();
    assert_eq!(other.join().unwrap(), 1);
    let (kind, mut there) = frame.join().unwrap();
    assert_eq!(kind, ErrorKind::TimedOut);
    slow.write_all(b"half").unwrap();
    drop(slow);
    assert_eq!(
        there.read_exact(&mut [0; 8]).unwrap_err().kind(),
        ErrorKind::UnexpectedEof
    );
}

#[runnext::test]
fn names_that_lead_nowhere() {
    for bad in ["no port", "127.0.0.1:99999", "", "no.such.host.invalid:1"] {
        assert!(TcpStream::connect(bad).is_err(), "{bad}");
        assert!(TcpListener::bind(bad).is_err(), "{bad}");
        assert!(UdpSocket::bind(bad).is_err(), "{bad}");
    }
    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    assert!(udp.send_to(b"x", "no.such.host.invalid:1").is_err());
    let none: &[std::net::SocketAddr] = &[];
    let error = udp.send_to(b"x", none).unwrap_err();
    let std = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let stds = std.send_to(b"x", none).unwrap_err();
    assert_eq!(error.kind(), stds.kind());
    assert_eq!(error.to_string(), stds.to_string());
    assert_eq!(
        TcpListener::bind("1.2.3.4:0").unwrap_err().kind(),
        ErrorKind::AddrNotAvailable
    );
    assert!(UnixListener::bind("/no/such/directory/socket").is_err());
}

/// Fills up the process's table of descriptors.
fn use_up() -> Vec<OwnedFd> {
    let mut all = Vec::new();
    while let Ok(file) = std::fs::File::open("/dev/null") {
        all.push(file.into());
    }
    all
}

fn allow_descriptors(n: u64) {
    let limit = libc::rlimit {
        rlim_cur: n,
        rlim_max: n,
    };
    // SAFETY: a valid limit.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &limit) }, 0);
}

/// Out of descriptors: `accept` pauses instead of spinning or failing, others go on, and it recovers.
#[test]
fn accept_out_of_descriptors() {
    const TRIES: usize = 8;
    child(&[], || {
        allow_descriptors(100);
        runtime(2).run(|| {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
            let addr = listener.local_addr().unwrap();
            let (mut a, mut b) = UnixStream::pair().unwrap();
            go(move || while b.read(&mut [0]).is_ok_and(|n| n == 1) && b.write(&[1]).is_ok() {});
            a.write_all(&[1]).unwrap();
            a.read_exact(&mut [0]).unwrap();
            let mut clients: VecDeque<_> = (0..TRIES)
                .map(|_| TcpStream::connect(addr).unwrap())
                .collect();
            let mut all = Vec::new();
            // The runtime closes files of its own now and then: who accepts just then gets that descriptor, and the next one is watched.
            let acceptor = loop {
                all.extend(use_up());
                let accepting = Arc::clone(&listener);
                let acceptor = go(move || accepting.accept().map(|(stream, _)| stream));
                for _ in 0..100 {
                    a.write_all(&[1]).unwrap();
                    a.read_exact(&mut [0]).unwrap();
                }
                runnext::time::sleep(Duration::from_millis(30));
                if !acceptor.is_finished() {
                    break acceptor;
                }
                drop((acceptor.join().unwrap().unwrap(), clients.pop_front()));
                assert!(clients.len() > 1, "it waits for better times");
            };
            let client = clients.pop_front().unwrap();
            all.truncate(10);
            let server = acceptor.join().unwrap().unwrap();
            (&server).write_all(b"x").unwrap();
            (&client).read_exact(&mut [0]).unwrap();
            drop((client, server));
            // Those that were not needed.
            while let Some(_client) = clients.pop_front() {
                listener.accept().unwrap();
            }
            // A shortage that does not pass is an error, and the connection is still there afterwards. Threads that end
            // give descriptors back: then it may take another try to come to that, with another client.
            let mut clients = vec![TcpStream::connect(addr).unwrap()];
            let mut more = Vec::new();
            let mut refused = || loop {
                more.extend(use_up());
                if let Err(error) = listener.accept() {
                    return error.raw_os_error();
                }
                more.clear();
                clients.push(TcpStream::connect(addr).unwrap());
            };
            assert_eq!(refused(), Some(libc::EMFILE));
            listener.set_nonblocking(true).unwrap();
            assert_eq!(refused(), Some(libc::EMFILE));
            drop((more, all));
            listener.accept().unwrap();
            drop(clients);
        });
    })
    .passed();
}

/// The same for futures: a task that accepts asks again after pauses, and not in between.
#[cfg(feature = "async")]
#[test]
fn futures_that_accept_out_of_descriptors_pause() {
    use std::future::poll_fn;
    child(&[], || {
        allow_descriptors(100);
        runtime(2).run(|| {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
            let addr = listener.local_addr().unwrap();
            let clients = std::cell::RefCell::new(VecDeque::new());
            let connect = || TcpStream::connect(addr).map(|c| clients.borrow_mut().push_back(c));
            (0..3).for_each(|_| connect().unwrap());
            let polls = Arc::new(AtomicUsize::new(0));
            let accept = || {
                let (listener, polls) = (Arc::clone(&listener), Arc::clone(&polls));
                poll_fn(move |cx| {
                    polls.fetch_add(1, SeqCst);
                    listener.poll_accept(cx)
                })
            };
            let mut all = Vec::new();
            // As above: who gets a descriptor that the runtime has closed just then is not counted, and another client takes its place.
            let tasks = loop {
                all.extend(use_up());
                polls.store(0, SeqCst);
                let tasks = [runnext::spawn(accept()), runnext::spawn(accept())];
                until(|| polls.load(SeqCst) >= 8 || tasks.iter().any(|task| task.is_finished()));
                if tasks.iter().all(|task| !task.is_finished()) {
                    break tasks;
                }
                all.truncate(10);
                for task in tasks {
                    task.join().unwrap().expect("it waits for better times");
                    connect().unwrap();
                }
            };
            all.truncate(10);
            // Who accepts ends the pause of the others.
            runnext::block_on(accept()).unwrap();
            for task in tasks {
                task.join().unwrap().unwrap();
            }
            (0..2).for_each(|_| connect().unwrap());
            // A shortage that does not pass is an error, after about ten pauses.
            let refused = loop {
                all.extend(use_up());
                polls.store(0, SeqCst);
                if let Err(error) = runnext::block_on(accept()) {
                    break error.raw_os_error();
                }
                all.truncate(10);
                connect().unwrap();
            };
            assert_eq!(refused, Some(libc::EMFILE));
            let polls_for_it = polls.load(SeqCst);
            assert!((2..100).contains(&polls_for_it), "{polls_for_it} polls");
            drop(all);
            runnext::block_on(accept()).unwrap();
        });
    })
    .passed();
}

/// What `accept` says once it is refused for want of descriptors. Threads that end give some back: then it may take another try.
fn refused(listener: &TcpListener) -> ErrorKind {
    let mut all = Vec::new();
    loop {
        all.extend(use_up());
        if let Err(error) = listener.accept() {
            return error.kind();
        }
    }
}

/// The pauses that `accept` makes when it is out of descriptors took no notice of time-outs and deadlines. They make up about a
/// second, and the last alone half of that.
#[test]
fn accept_out_of_descriptors_ends_in_time() {
    child(&[], || {
        allow_descriptors(100);
        let ms = Duration::from_millis;
        let begun = || {
            let listener = Arc::new(TcpListener::bind("127.0.0.1:0").unwrap());
            let addr = listener.local_addr().unwrap();
            let clients: Vec<_> = (0..8).map(|_| TcpStream::connect(addr).unwrap()).collect();
            (listener, clients)
        };
        let by_timeout = || {
            let (listener, _clients) = begun();
            listener.set_read_timeout(Some(ms(50))).unwrap();
            assert_eq!(refused(&listener), ErrorKind::TimedOut);
            assert_eq!(refused(&listener), ErrorKind::TimedOut);
        };
        by_timeout();
        let rt = runtime(1);
        rt.run(by_timeout);
        rt.run(|| {
            let (listener, _clients) = begun();
            let (tell, told) = runnext::chan::unbounded();
            let start = Instant::now();
            listener.set_read_deadline(Some(start + ms(600))).unwrap();
            let (accepting, late) = (Arc::clone(&listener), tell.clone());
            go(move || late.send(("deadline", refused(&accepting))));
            go(move || {
                runnext::time::sleep_until(start + ms(700));
                tell.send(("sleep", ErrorKind::Other))
            });
            assert_eq!(told.recv().unwrap(), ("deadline", ErrorKind::TimedOut));
        });
        rt.run(|| {
            let (listener, _clients) = begun();
            let (tell, told) = runnext::chan::unbounded();
            let accepting = Arc::clone(&listener);
            let late = tell.clone();
            go(move || late.send(("deadline", refused(&accepting))));
            runnext::time::sleep(ms(600));
            listener.set_read_deadline(Some(Instant::now())).unwrap();
            go(move || {
                runnext::time::sleep(ms(100));
                tell.send(("sleep", ErrorKind::Other))
            });
            assert_eq!(told.recv().unwrap(), ("deadline", ErrorKind::TimedOut));
        });
        // On a plain thread, which has not got an eventfd to be reached by.
        let (listener, _clients) = begun();
        let accepting = Arc::clone(&listener);
        let thread = std::thread::spawn(move || refused(&accepting));
        std::thread::sleep(ms(100));
        listener.set_read_deadline(Some(Instant::now())).unwrap();
        assert_eq!(thread.join().unwrap(), ErrorKind::TimedOut);
    })
    .passed();
}

/// Without a descriptor left, sockets cannot be made, and those that exist work: on goroutines and on plain threads.
#[test]
fn sockets_out_of_descriptors() {
    child(&[], || {
        allow_descriptors(100);
        runtime(2).run(|| {
            let (mut here, mut there) = pair();
            let (plain, other) = pair();
            let all = use_up();
            assert_eq!(
                UdpSocket::bind("127.0.0.1:0").unwrap_err().raw_os_error(),
                Some(libc::EMFILE)
            );
            assert!(UnixStream::pair().is_err());
            let reader = go(move || there.read(&mut [0; 8]).unwrap());
            yield_now();
            here.write_all(b"x").unwrap();
            assert_eq!(reader.join().unwrap(), 1);
            let thread = std::thread::spawn(move || (&plain).read(&mut [0; 8]).unwrap());
            runnext::time::sleep(Duration::from_millis(20));
            (&other).write_all(b"yz").unwrap();
            assert_eq!(thread.join().unwrap(), 2);
            let more = use_up();
            let clone = here.try_clone().unwrap();
            assert!(clone.into_std().is_err(), "no descriptor for the duplicate");
            drop((all, more));
        });
    })
    .passed();
}

/// Failed attempts leave nothing behind.
#[test]
fn errors_leak_nothing() {
    child(&[], || {
        let start = holdings();
        runtime(2).run(|| {
            // Not one that was free a moment ago: another of these may have it by now.
            let nobody = "127.0.0.1:1";
            let failed = Arc::new(AtomicUsize::new(0));
            let all: Vec<_> = (0..100)
                .map(|_| {
                    let failed = Arc::clone(&failed);
                    go(move || {
                        assert!(TcpStream::connect(nobody).is_err());
                        let (here, there) = pair();
                        drop(there);
                        assert_eq!((&here).read(&mut [0; 8]).unwrap(), 0);
                        let raw = here.into_raw_fd();
                        // SAFETY: given up just now.
                        drop(unsafe { TcpStream::from_raw_fd(raw) });
                        failed.fetch_add(1, SeqCst);
                    })
                })
                .collect();
            all.into_iter().for_each(|g| g.join().unwrap());
            assert_eq!(failed.load(SeqCst), 100);
            until(|| runnext::num_goroutines() == 1);
        });
        let end = holdings_after(&start);
        assert_eq!((start.threads, start.fds), (end.threads, end.fds));
    })
    .passed();
}

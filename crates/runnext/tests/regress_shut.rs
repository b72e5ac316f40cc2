//! Bugs of sockets that somebody shuts down behind our back, each with the least that showed it.

mod common;

use std::future::poll_fn;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::Shutdown;
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::SocketAddr;
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use common::{child, cpu_time, runtime, thread_id, until_asleep, until_waits};
use runnext::net::{UdpSocket, UnixListener, UnixStream};
use runnext::{block_on, go, spawn};

/// Shuts it down for reading through a descriptor that runnext knows nothing of. One that is not connected is shut down and refused at once.
fn shut(socket: &impl AsRawFd) {
    // SAFETY: integers only.
    unsafe {
        let twin = libc::dup(socket.as_raw_fd());
        libc::shutdown(twin, libc::SHUT_RD);
        libc::close(twin);
    }
}

fn udp() -> Arc<UdpSocket> {
    Arc::new(UdpSocket::bind("127.0.0.1:0").unwrap())
}

/// A goroutine or a future waited for ever, a plain thread went round and round.
#[test]
fn a_udp_socket_shut_down_through_another_descriptor_has_nothing_to_come() {
    // Before: as std's calls, which block. The end comes from nowhere.
    let rt = runtime(1);
    let socket = udp();
    shut(&*socket);
    let buf = &mut [0; 8];
    for is_goroutine in [false, true] {
        let mut check = || {
            assert_eq!(socket.recv(buf).unwrap(), 0);
            assert_eq!(socket.peek(buf).unwrap(), 0);
            let nowhere = [
                socket.recv_from(buf).unwrap_err(),
                socket.peek_from(buf).unwrap_err(),
            ];
            assert!(nowhere.iter().all(|e| e.kind() == ErrorKind::InvalidInput));
        };
        if is_goroutine {
            rt.run(check);
        } else {
            check();
        }
    }
    // While a goroutine and a future wait.
    rt.run(|| {
        let socket = udp();
        let (ours, its) = (Arc::clone(&socket), Arc::clone(&socket));
        let waits = go(move || ours.recv(&mut [0; 8]));
        until_waits(&waits, "IO wait");
        let future = spawn(async move { poll_fn(|cx| its.poll_recv(cx, &mut [0; 8])).await });
        until_waits(&future, "await");
        shut(&*socket);
        assert_eq!(waits.join().unwrap().unwrap(), 0);
        assert_eq!(future.join().unwrap().unwrap(), 0);
    });
    // While a plain thread does.
    let (socket, (tell, told)) = (udp(), mpsc::channel());
    let ours = Arc::clone(&socket);
    let waits = std::thread::spawn(move || {
        tell.send(thread_id()).unwrap();
        ours.recv(&mut [0; 8])
    });
    until_asleep(told.recv().unwrap(), libc::SYS_ppoll);
    shut(&*socket);
    assert_eq!(waits.join().unwrap().unwrap(), 0);
}

/// `accept` waited for ever: the kernel tells it to calls that block only.
#[test]
fn a_unix_listener_that_was_shut_down_accepts_nobody() {
    let listen = |n: u32| {
        let name = format!("runnext-shut-{}-{n}", std::process::id());
        let addr = SocketAddr::from_abstract_name(name).unwrap();
        Arc::new(UnixListener::bind_addr(&addr).unwrap())
    };
    let is_over = |e: std::io::Error| assert_eq!(e.raw_os_error(), Some(libc::EINVAL));
    let rt = runtime(1);
    let listener = listen(0);
    shut(&*listener);
    is_over(listener.accept().unwrap_err());
    is_over(rt.run(|| listener.accept()).unwrap_err());
    is_over(block_on(poll_fn(|cx| listener.poll_accept(cx))).unwrap_err());
    rt.run(|| {
        let listener = listen(1);
        let (ours, its) = (Arc::clone(&listener), Arc::clone(&listener));
        let waits = go(move || ours.accept());
        until_waits(&waits, "IO wait");
        let future = spawn(async move { poll_fn(|cx| its.poll_accept(cx)).await });
        until_waits(&future, "await");
        shut(&*listener);
        is_over(waits.join().unwrap().unwrap_err());
        is_over(future.join().unwrap().unwrap_err());
    });
    let (listener, (tell, told)) = (listen(2), mpsc::channel());
    let ours = Arc::clone(&listener);
    let waits = std::thread::spawn(move || {
        tell.send(thread_id()).unwrap();
        ours.accept()
    });
    until_asleep(told.recv().unwrap(), libc::SYS_ppoll);
    shut(&*listener);
    is_over(waits.join().unwrap().unwrap_err());
}

/// Whatever it is that `ppoll` takes for ready while the call would block: a plain thread does not go round and round. Here it is the end of
/// datagrams, in what is not made for them.
#[test]
fn a_plain_thread_rests_though_ppoll_says_ready() {
    let (here, _there) = std::os::unix::net::UnixDatagram::pair().unwrap();
    here.shutdown(Shutdown::Read).unwrap();
    let mut stream = UnixStream::from(OwnedFd::from(here));
    stream
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let used = || cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let before = used();
    let late = stream.read(&mut [0]).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let used = used() - before;
    assert!(used < Duration::from_millis(100), "{used:?} of 500 ms");
}

/// Plain writes did not raise SIGPIPE, vectored ones did.
#[test]
fn writing_slices_to_a_peer_that_has_gone_is_an_error_and_no_signal() {
    child(&[], || {
        // SAFETY: no handler is involved.
        unsafe { libc::signal(libc::SIGPIPE, libc::SIG_DFL) };
        let (here, there) = UnixStream::pair().unwrap();
        drop(there);
        for parts in [&[b"one"][..], &[b"one", b"two"]] {
            let slices: Vec<_> = parts.iter().map(|part| IoSlice::new(*part)).collect();
            let gone = (&here).write_vectored(&slices).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
            let gone = block_on(poll_fn(|cx| here.poll_write_vectored(cx, &slices))).unwrap_err();
            assert_eq!(gone.kind(), ErrorKind::BrokenPipe);
        }
    })
    .passed();
}

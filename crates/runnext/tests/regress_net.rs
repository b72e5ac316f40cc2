//! Bugs of sockets, of what waits for them, and of the figures, each with the least that showed it.

mod common;

use std::future::{Future, poll_fn};
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::os::fd::{AsRawFd, OwnedFd};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{Count, built, cpu_time, runtime, thread_id, until, until_asleep, until_waits};
use runnext::net::{Shutdown, TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixStream};
use runnext::time::Instant;
use runnext::{Runtime, TaskGroup, block_on, future, go, num_goroutines, spawn};

/// Whether there is nothing to read; then it is told.
fn ask(count: &Arc<Count>, socket: &UnixStream) -> bool {
    let waker = Waker::from(Arc::clone(count));
    let mut cx = Context::from_waker(&waker);
    socket.poll_read(&mut cx, &mut [0]).is_pending()
}

fn cooperative() -> Runtime {
    built(Runtime::builder().procs(1).preemption(false))
}

/// The goroutine that wakes the wakers of others was queued when its runtime stopped: nobody was woken, and no event ever after woke
/// such a waker of the same socket, or of the next one that got its slot.
#[test]
fn wakers_of_others_are_woken_though_their_runtime_stops() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let count = Arc::<Count>::default();
    let rt = cooperative();
    rt.run(|| assert!(ask(&count, &here)));
    let (busy, done) = (
        Arc::new(AtomicBool::new(false)),
        Arc::new(AtomicBool::new(false)),
    );
    let hog = {
        let (busy, done) = (Arc::clone(&busy), Arc::clone(&done));
        move || {
            busy.store(true, SeqCst);
            while !done.load(SeqCst) {
                std::hint::spin_loop();
            }
        }
    };
    rt.go(hog);
    until(|| busy.load(SeqCst));
    there.write_all(b"x").unwrap();
    until(|| rt.stats().num_goroutine_sched == 1); // fetched by the monitor, and nobody runs it
    rt.shutdown(Duration::ZERO);
    assert_eq!(count.0.load(SeqCst), 1);
    done.store(true, SeqCst);

    assert_eq!((&here).read(&mut [0]).unwrap(), 1);
    assert!(ask(&count, &here)); // of the reactor, from here on
    there.write_all(b"y").unwrap();
    until(|| count.0.load(SeqCst) == 2);
}

/// The kernel told of the end before the socket knew of it: who looked in between found neither, and waited for ever.
#[test]
fn shutting_a_unix_datagram_socket_down_wakes_who_is_about_to_wait() {
    let rt = built(Runtime::builder().procs(2));
    for _ in 0..2_000 {
        let (here, _there) = UnixDatagram::pair().unwrap();
        let reader = here.try_clone().unwrap();
        let waiting = rt.go(move || reader.recv(&mut [0; 16]));
        until(|| rt.stats().num_netpoll_waiters == 1);
        here.shutdown(Shutdown::Read).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
    }
}

/// A socket that a future had once waited for counted as waited for until it was closed, and the runtime never found itself in a deadlock.
#[test]
fn a_socket_is_waited_for_only_while_somebody_waits() {
    cooperative().run(|| {
        let (here, mut there) = UnixStream::pair().unwrap();
        let here = Arc::new(here);
        let waiters = || runnext::stats::read().num_netpoll_waiters;
        for _ in 0..3 {
            let reader = {
                let here = Arc::clone(&here);
                spawn(async move { poll_fn(|cx| here.poll_read(cx, &mut [0])).await })
            };
            until_waits(&reader, "await");
            assert_eq!(waiters(), 1);
            there.write_all(b"x").unwrap();
            assert_eq!(reader.join().unwrap().unwrap(), 1);
            assert_eq!(waiters(), 0);
        }
        // The waker of somebody else, at both ends: two sockets.
        let count = Arc::<Count>::default();
        assert!(ask(&count, &here) && ask(&count, &there));
        assert_eq!(waiters(), 2);
        there.write_all(b"x").unwrap();
        until(|| count.0.load(SeqCst) == 1);
        assert_eq!(waiters(), 1);
        drop((here, there));
        assert_eq!(waiters(), 0);
    });
}

/// Each counted itself out when it ran: two changes to one cache line for each request, on which all processors look at each dispatch. Now whoever
/// fetches the events does, for all that it wakes; who is woken by something else is counted out once, too.
#[test]
fn all_whom_a_look_wakes_are_counted_out_at_once() {
    let waiters = || runnext::stats::read().num_netpoll_waiters;
    let both = || {
        let pairs = [UnixStream::pair().unwrap(), UnixStream::pair().unwrap()];
        let reads = pairs.map(|(here, there)| {
            let read = go(move || (&here).read(&mut [0]).map(|_| waiters()));
            until_waits(&read, "IO wait");
            (read, there)
        });
        assert_eq!(waiters(), 2);
        for (_, there) in &reads {
            (&*there).write_all(b"x").unwrap();
        }
        let left = reads.map(|(read, _there)| read.join().unwrap().unwrap());
        left == [0, 0]
    };
    cooperative().run(|| {
        until(both); // the monitor may have been told before
        let (here, _there) = UnixStream::pair().unwrap();
        here.set_read_timeout(Some(Duration::from_millis(1)))
            .unwrap();
        assert!((&here).read(&mut [0]).is_err());
        assert_eq!(waiters(), 0);
        here.set_read_timeout(None).unwrap();
        let here = Arc::new(here);
        let reader = Arc::clone(&here);
        let read = go(move || (&*reader).read(&mut [0]).map_err(|e| e.kind()));
        until_waits(&read, "IO wait");
        here.set_read_deadline(Some(Instant::now())).unwrap();
        assert_eq!(read.join().unwrap(), Err(ErrorKind::TimedOut));
        assert_eq!(waiters(), 0);
    });
}

/// Who left a queue while the numbers were read was missing in the sum.
#[test]
fn the_total_of_queued_goroutines_does_not_fall() {
    let rt = runtime(2);
    let done = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..64)
        .map(|_| {
            let done = Arc::clone(&done);
            rt.go(move || {
                while !done.load(Relaxed) {
                    runnext::yield_now();
                }
            })
        })
        .collect();
    let mut last = 0;
    for _ in 0..20_000 {
        let now = rt.stats().total_goroutine_sched;
        assert!(now >= last, "{last}, then {now}");
        last = now;
    }
    done.store(true, Relaxed);
    busy.into_iter().for_each(|one| one.join().unwrap());
}

/// While another one was being added there were none.
#[test]
fn all_groups_are_listed_while_others_come_and_go() {
    let rt = runtime(2);
    let done = Arc::new(AtomicBool::new(false));
    let comes_and_goes = {
        let done = Arc::clone(&done);
        rt.go(move || {
            while !done.load(Relaxed) {
                TaskGroup::new("short").go(|| ()).join().unwrap();
            }
        })
    };
    rt.run(|| {
        let stays = TaskGroup::new("stays");
        stays.go(|| ()).join().unwrap();
        for _ in 0..20_000 {
            assert!(TaskGroup::all().contains(&stays));
        }
    });
    done.store(true, Relaxed);
    comes_and_goes.join().unwrap();
}

/// Its own timers that were due counted as stolen.
#[test]
fn one_processor_steals_nothing() {
    cooperative().run(|| {
        for _ in 0..3000 {
            runnext::time::sleep(Duration::from_micros(30));
        }
        let stats = runnext::stats::read();
        assert_eq!((stats.total_steals, stats.total_stolen), (0, 0));
    });
}

/// What a search found in groups did not count.
#[test]
fn goroutines_stolen_from_groups_count() {
    let rt = built(Runtime::builder().procs(2).preemption(false));
    rt.run(|| {
        let group = TaskGroup::new("stolen");
        let stolen = || runnext::stats::read().total_stolen;
        let first = group.go(move || {
            // All on this processor, whose only other goroutine is this one.
            let (ran, before) = (Arc::new(AtomicUsize::new(0)), stolen());
            for _ in 0..100 {
                let ran = Arc::clone(&ran);
                go(move || ran.fetch_add(1, SeqCst));
            }
            while ran.load(SeqCst) < 100 {
                std::hint::spin_loop(); // for the other processor
            }
            stolen() - before
        });
        assert!(first.join().unwrap() >= 100);
    });
}

/// A short write leaves a mark that there is no room; who had nothing to write waited for some.
#[test]
fn writing_nothing_does_not_wait() {
    cooperative().run(|| {
        let (mut here, _there) = UnixStream::pair().unwrap();
        let reader = here.try_clone().unwrap();
        let waiting = go(move || (&reader).read(&mut [0])); // from here on the runtime is told of events
        until_waits(&waiting, "IO wait");
        here.set_nonblocking(true).unwrap();
        while here.write(&[0; 1 << 16]).is_ok_and(|n| n == 1 << 16) {}
        here.set_nonblocking(false).unwrap();
        assert_eq!(here.write(&[]).unwrap(), 0);
        assert_eq!(here.write_vectored(&[IoSlice::new(&[])]).unwrap(), 0);
        here.shutdown(Shutdown::Both).unwrap();
        waiting.join().unwrap().unwrap();
    });
}

/// Only `from_std` and `into_std` took them along.
#[test]
fn timeouts_go_with_the_descriptor() {
    let (here, _there) = std::os::unix::net::UnixStream::pair().unwrap();
    let second = Some(Duration::from_secs(1));
    here.set_read_timeout(second).unwrap();
    let ours = UnixStream::from(OwnedFd::from(here));
    assert_eq!(ours.read_timeout().unwrap(), second);
    ours.set_write_timeout(second).unwrap();
    let theirs = std::os::unix::net::UnixStream::from(OwnedFd::from(ours));
    assert_eq!(theirs.read_timeout().unwrap(), second);
    assert_eq!(theirs.write_timeout().unwrap(), second);
}

/// It read back as none at all.
#[test]
fn the_longest_timeout_is_one() {
    let (here, mut there) = UnixStream::pair().unwrap();
    for longest in [Duration::MAX, Duration::from_nanos(u64::MAX - 2)] {
        here.set_read_timeout(Some(longest)).unwrap();
        assert_eq!(here.read_timeout().unwrap(), Some(longest));
        there.write_all(b"x").unwrap();
        runtime(1).run(|| assert_eq!((&here).read(&mut [0]).unwrap(), 1));
    }
    let std = here.into_std().unwrap();
    assert!(
        std.read_timeout()
            .unwrap()
            .is_none_or(|d| d >= Duration::from_secs(1 << 32))
    );
}

/// A new deadline made the next call ask the kernel for what the last one had found to be gone.
#[test]
fn a_new_deadline_does_not_make_the_next_read_ask_in_vain() {
    cooperative().run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut here, _) = listener.accept().unwrap();
        let waits_at_once = || {
            let writer = {
                let mut there = there.try_clone().unwrap();
                go(move || there.write_all(b"x"))
            };
            assert_eq!(here.read(&mut [0; 2]).unwrap(), 1); // it has waited, and there is no more
            writer.join().unwrap().unwrap();
            here.set_read_deadline(Some(Instant::now() + Duration::from_secs(3600)))
                .unwrap();
            (&there).write_all(b"y").unwrap();
            // Who asks the kernel finds it; who relies on the last call waits to be told, and others run.
            let other = go(|| ());
            assert_eq!(here.read(&mut [0; 2]).unwrap(), 1);
            let first = other.is_finished();
            other.join().unwrap();
            first
        };
        until(waits_at_once); // the monitor may have been told before
    });
}

/// A goroutine of another runtime waited for the same socket, and the future counted as waiting there from then on: when that runtime went, nobody
/// looked for its events any more.
#[test]
fn a_future_waits_on_when_another_runtime_that_used_its_socket_ends() {
    let (here, mut there) = UnixStream::pair().unwrap();
    let here = Arc::new(here);
    let (stays, goes) = (runtime(1), runtime(1));
    let read = {
        let here = Arc::clone(&here);
        stays.spawn(async move { poll_fn(|cx| here.poll_read(cx, &mut [0])).await })
    };
    until(|| stays.stats().num_netpoll_waiters == 1);
    goes.go(move || (&*here).read(&mut [0]));
    until(|| goes.stats().num_netpoll_waiters == 2);
    assert_eq!(goes.shutdown(Duration::ZERO).abandoned, 1);
    until(|| stays.stats().num_netpoll_waiters == 1);
    there.write_all(b"x").unwrap();
    assert_eq!(read.join().unwrap().unwrap(), 1);
}

/// A plain thread waited in `ppoll` for a socket that can be written to all the time: it is the receiver that is full. It span.
#[test]
fn a_plain_thread_sleeps_while_the_receiver_of_a_datagram_is_full() {
    let path = std::env::temp_dir().join(format!("runnext-full-{}", std::process::id()));
    let receiver = UnixDatagram::bind(&path).unwrap();
    let sender = UnixDatagram::unbound().unwrap();
    sender.set_nonblocking(true).unwrap();
    while sender.send_to(b"x", &path).is_ok() {}
    sender.set_nonblocking(false).unwrap();
    let (tell, told) = std::sync::mpsc::channel();
    let to = path.clone();
    let sends = std::thread::spawn(move || {
        tell.send(thread_id()).unwrap();
        sender.send_to(b"y", &to)
    });
    until_asleep(told.recv().unwrap(), libc::SYS_futex);
    let mut got = [0];
    while got != *b"y" {
        receiver.recv(&mut got).unwrap();
    }
    assert_eq!(sends.join().unwrap().unwrap(), 1);
    std::fs::remove_file(path).unwrap();
}

/// The call before had emptied the socket, so this one did not ask the kernel but waited for an event, and its time was over before anybody
/// had fetched that.
#[test]
fn what_is_there_is_read_however_short_the_timeout() {
    cooperative().run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let mut there = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        let (mut here, _) = listener.accept().unwrap();
        for _ in 0..100 {
            here.set_read_timeout(None).unwrap();
            let writer = {
                let mut there = there.try_clone().unwrap();
                go(move || there.write_all(b"x"))
            };
            assert_eq!(here.read(&mut [0; 2]).unwrap(), 1); // it has waited, and there is no more
            writer.join().unwrap().unwrap();
            here.set_read_timeout(Some(Duration::from_nanos(1)))
                .unwrap();
            there.write_all(b"y").unwrap();
            assert_eq!(here.read(&mut [0; 2]).unwrap(), 1);
        }
        let late = here.read(&mut [0]).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
        // A deadline that has passed is another matter.
        here.set_read_deadline(Some(Instant::now())).unwrap();
        there.write_all(b"z").unwrap();
        let late = here.read(&mut [0]).unwrap_err();
        assert_eq!(late.kind(), ErrorKind::TimedOut);
    });
}

/// A deadline ended a future's wait only if somebody set it then: one that just came was noticed at the next poll, and there was none.
#[test]
fn a_deadline_that_comes_ends_the_wait_of_a_future() {
    fn waits(socket: &UnixStream) -> ErrorKind {
        let soon = Instant::now() + Duration::from_millis(5);
        socket.set_read_deadline(Some(soon)).unwrap();
        let read = block_on(poll_fn(|cx| socket.poll_read(cx, &mut [0])));
        assert!(Instant::now() >= soon);
        read.unwrap_err().kind()
    }
    let (here, mut there) = UnixStream::pair().unwrap();
    assert_eq!(waits(&here), ErrorKind::TimedOut); // without a runtime
    runtime(2).run(move || {
        assert_eq!(waits(&here), ErrorKind::TimedOut);
        // The next one is another's, and an hour away.
        here.set_read_deadline(Some(Instant::now() + Duration::from_secs(3600)))
            .unwrap();
        let here = Arc::new(here);
        let read = |bytes: usize| {
            let here = Arc::clone(&here);
            spawn(async move { poll_fn(|cx| here.poll_read(cx, &mut vec![0; bytes])).await })
        };
        let tasks = [read(1), read(1)];
        for task in &tasks {
            until_waits(task, "await");
        }
        there.write_all(b"xy").unwrap();
        for task in tasks {
            assert_eq!(task.join().unwrap().unwrap(), 1);
        }
        // It comes sooner than those who wait were told.
        let tasks = [read(1), read(1)];
        for task in &tasks {
            until_waits(task, "await");
        }
        here.set_read_deadline(Some(Instant::now() + Duration::from_millis(5)))
            .unwrap();
        for task in tasks {
            let late = task.join().unwrap().unwrap_err();
            assert_eq!(late.kind(), ErrorKind::TimedOut);
        }
    });
}

/// Shut down through a duplicate that runnext knows nothing of: a goroutine waited for ever, a plain thread went round and round.
#[test]
fn a_datagram_socket_shut_down_through_another_descriptor_has_nothing_to_come() {
    let pair = || {
        let (here, there) = std::os::unix::net::UnixDatagram::pair().unwrap();
        let twin = here.try_clone().unwrap();
        (UnixDatagram::from_std(here).unwrap(), twin, there)
    };
    // Before, and while it waits.
    let rt = runtime(1);
    let (socket, twin, _there) = pair();
    twin.shutdown(Shutdown::Both).unwrap();
    assert_eq!(socket.recv(&mut [0; 8]).unwrap(), 0);
    assert_eq!(rt.run(|| socket.recv_from(&mut [0; 8])).unwrap().0, 0);
    let (socket, twin, _there) = pair();
    rt.run(move || {
        let waits = go(move || socket.recv(&mut [0; 8]));
        until_waits(&waits, "IO wait");
        twin.shutdown(Shutdown::Read).unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), 0);
    });
    let (socket, twin, _there) = pair();
    let (tell, told) = std::sync::mpsc::channel();
    let waits = std::thread::spawn(move || {
        tell.send(thread_id()).unwrap();
        socket.recv(&mut [0; 8])
    });
    until_asleep(told.recv().unwrap(), libc::SYS_ppoll);
    twin.shutdown(Shutdown::Read).unwrap();
    assert_eq!(waits.join().unwrap().unwrap(), 0);
}

/// What is in a socket's error queue makes `ppoll` return at once, and a plain thread went round and round until somebody fetched it.
#[test]
fn an_error_queue_kept_a_plain_thread_busy() {
    // At an address of its own, where nobody else takes the port.
    let nobody = UdpSocket::bind("127.77.0.3:0").unwrap();
    let there = nobody.local_addr().unwrap();
    let socket = UdpSocket::bind("127.0.0.1:0").unwrap();
    socket.connect(there).unwrap();
    let on: libc::c_int = 1;
    // SAFETY: a live integer and its length.
    let set = unsafe {
        libc::setsockopt(
            socket.as_raw_fd(),
            libc::IPPROTO_IP,
            libc::IP_RECVERR,
            (&raw const on).cast(),
            size_of::<libc::c_int>() as libc::socklen_t,
        )
    };
    assert_eq!(set, 0);
    drop(nobody);
    socket.send(b"refused").unwrap();
    // The error itself is told at once; a copy of it stays in the queue.
    let refused = socket.recv(&mut [0]).unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);

    let used = || cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    socket
        .set_read_timeout(Some(Duration::from_millis(500)))
        .unwrap();
    let before = used();
    let late = socket.recv(&mut [0]).unwrap_err();
    assert_eq!(late.kind(), ErrorKind::TimedOut);
    let used = used() - before;
    assert!(used < Duration::from_millis(100), "{used:?} of 500 ms");
    // Whoever sends is heard all the same, and deadlines reach the wait.
    let there = UdpSocket::bind(there).unwrap();
    std::thread::scope(|s| {
        let waits = s.spawn(|| socket.recv(&mut [0; 8]));
        there
            .send_to(b"hello", socket.local_addr().unwrap())
            .unwrap();
        assert_eq!(waits.join().unwrap().unwrap(), 5);
        socket.set_read_timeout(None).unwrap();
        let waits = s.spawn(|| socket.recv(&mut [0; 8]));
        std::thread::sleep(Duration::from_millis(5));
        socket.set_read_deadline(Some(Instant::now())).unwrap();
        assert!(waits.join().unwrap().is_err());
    });
}

/// A short read of TCP means that there is no more for now. Of datagrams, in a `TcpStream` made of a descriptor, it does not: the
/// second of two was not read until a third came.
#[test]
fn a_stream_of_datagrams_was_thought_empty_after_the_first() {
    let here = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    let there = std::net::UdpSocket::bind("127.0.0.1:0").unwrap();
    here.connect(there.local_addr().unwrap()).unwrap();
    there.connect(here.local_addr().unwrap()).unwrap();
    let stream = TcpStream::from(OwnedFd::from(here));
    cooperative().run(|| {
        let mut buf = [0; 16];
        let mut cx = Context::from_waker(Waker::noop());
        assert!(stream.poll_read(&mut cx, &mut buf).is_pending()); // watched from here on
        there.send(b"first").unwrap();
        there.send(b"second").unwrap();
        let first = block_on(poll_fn(|cx| stream.poll_read(cx, &mut buf)));
        assert_eq!(first.unwrap(), 5);
        match stream.poll_read(&mut cx, &mut buf) {
            Poll::Ready(second) => assert_eq!(second.unwrap(), 6),
            Poll::Pending => panic!("it waits for what is there"),
        }
    });
}

/// A waker that counts the goroutines there are when it is used.
#[derive(Default)]
struct Census(AtomicUsize);

impl Wake for Census {
    fn wake(self: Arc<Self>) {
        self.0.store(num_goroutines(), SeqCst);
    }
}

/// The runtime wakes wakers of others in a goroutine of its own, and that was one too many for who had been woken by it: 2 were left when all
/// but the caller had been joined.
#[test]
fn who_wakes_wakers_of_others_is_not_counted() {
    runtime(1).run(|| {
        let (socket, other) = UnixStream::pair().unwrap();
        let census = Arc::<Census>::default();
        let waker = Waker::from(Arc::clone(&census));
        let mut cx = Context::from_waker(&waker);
        assert!(socket.poll_read(&mut cx, &mut [0]).is_pending());
        (&other).write_all(b"x").unwrap();
        until(|| census.0.load(SeqCst) != 0);
        assert_eq!(census.0.swap(0, SeqCst), 1, "an event");

        let mut sleep = pin!(future::sleep(Duration::from_millis(1)));
        assert!(sleep.as_mut().poll(&mut cx).is_pending());
        until(|| census.0.load(SeqCst) != 0);
        assert_eq!(census.0.load(SeqCst), 1, "a timer");
        assert_eq!(num_goroutines(), 1);
    });
}

//! Bugs of sockets and of what waits for them, each with the least that showed it.

mod common;

use std::io::Write;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::task::{Context, Wake, Waker};
use std::time::Duration;

use common::{built, until};
use runnext::Runtime;
use runnext::net::{Shutdown, UnixDatagram, UnixStream};

/// A waker that counts, and is not the runtime's own.
#[derive(Default)]
struct Count(AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

impl Count {
    fn ask(self: &Arc<Self>, socket: &UnixStream) -> bool {
        let waker = Waker::from(Arc::clone(self));
        let mut cx = Context::from_waker(&waker);
        socket.poll_read(&mut cx, &mut [0]).is_pending()
    }
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
    rt.run(|| assert!(count.ask(&here)));
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

    assert_eq!(std::io::Read::read(&mut &here, &mut [0]).unwrap(), 1);
    assert!(count.ask(&here)); // of the reactor, from here on
    there.write_all(b"y").unwrap();
    until(|| count.0.load(SeqCst) == 2);
}

/// The kernel told of the end before the socket knew of it: who looked in between found neither, and waited for ever.
#[test]
fn shutting_a_unix_datagram_socket_down_wakes_who_is_about_to_wait() {
    let rt = built(Runtime::builder().procs(2));
    for _ in 0..20_000 {
        let (here, _there) = UnixDatagram::pair().unwrap();
        let reader = here.try_clone().unwrap();
        let waiting = rt.go(move || reader.recv(&mut [0; 16]));
        until(|| rt.stats().num_netpoll_waiters == 1);
        here.shutdown(Shutdown::Read).unwrap();
        assert_eq!(waiting.join().unwrap().unwrap(), 0);
    }
}

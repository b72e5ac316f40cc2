//! Places for connections: so many at once, and who has to give one up when all are taken.
//!
//! A connection is *busy* while its request is being answered, and *idle* otherwise: its client has yet to send a whole head, or to take
//! what it was sent. Bytes that a client takes begin its idle time anew, for [`TAKING`]; those it sends do not. Else one byte now and
//! then would keep a place for ever.
//!
//! An answer that was not taken within [`SENDING`] is not sent on, whether others wait or not: it is in memory until then.
//!
//! While all places are taken and somebody waits for one, whoever has been idle for longest is closed once that is [`PATIENCE`]. So
//! silent clients cost the others a moment, however many they are, and nobody is closed before it had time to ask. Busy ones
//! are left alone.
//!
//! When the server is stopped all are told: what is idle is closed, and what is busy is after its answer.

use std::fmt;
use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use hyper::rt::{Read, ReadBufCursor, Write};
use runnext::chan::{Receiver, Sender, bounded};
use runnext::future::{Sleep, sleep_until};
use runnext::hyper::Io;
use runnext::net::TcpStream;
use runnext::sync::Mutex;
use runnext::time::Instant;

/// How long a connection may be idle while others wait for its place.
const PATIENCE: Duration = Duration::from_millis(100);
/// How long a client that takes an answer is not idle.
const TAKING: Duration = Duration::from_secs(10);
/// How long it may take.
const SENDING: Duration = Duration::from_secs(60);

/// All places.
pub(crate) struct Places {
    /// A token for each place that is free.
    free: Receiver<()>,
    give_back: Sender<()>,
    taken: Mutex<Vec<Arc<Place>>>,
}

impl Places {
    pub(crate) fn new(number: usize) -> Places {
        let (give_back, free) = bounded(number);
        for _ in 0..number {
            give_back.send(()).expect("the receiver is below");
        }
        Places {
            free,
            give_back,
            taken: Mutex::new(Vec::new()),
        }
    }

    /// Waits for a place, and closes idle connections to get one; none when `ended` says so first.
    pub(crate) fn take(self: &Arc<Self>, ended: impl Fn() -> bool) -> Option<Taken> {
        let mut wait = Duration::ZERO;
        while self.free.recv_timeout(wait).is_err() {
            if ended() {
                return None;
            }
            wait = self.close_the_idlest();
        }
        let place = Arc::new(Place::new(TAKING, SENDING));
        self.taken.lock().push(Arc::clone(&place));
        Some(Taken {
            places: Arc::clone(self),
            place,
        })
    }

    /// Closes who has been idle for longest, if for long enough; how long to wait before the next look.
    fn close_the_idlest(&self) -> Duration {
        let taken = self.taken.lock();
        let idle = |place: &Arc<Place>| Some((place.idle_since()?, Arc::clone(place)));
        let idlest = taken.iter().filter_map(idle).min_by_key(|(at, _)| *at);
        drop(taken);
        let Some((since, place)) = idlest else {
            return PATIENCE;
        };
        let left = PATIENCE.saturating_sub(since.elapsed());
        if left.is_zero() {
            place.close();
            return PATIENCE;
        }
        left
    }
}

impl Places {
    /// Every connection ends as soon as nothing is being answered on it.
    pub(crate) fn end(&self) {
        let taken = self.taken.lock().clone();
        taken.iter().for_each(|place| place.end());
    }
}

impl fmt::Debug for Places {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Places")
            .field("taken", &self.taken.lock().len())
            .finish_non_exhaustive()
    }
}

/// A place that is taken; free again when this is dropped.
pub(crate) struct Taken {
    places: Arc<Places>,
    pub(crate) place: Arc<Place>,
}

impl Drop for Taken {
    fn drop(&mut self) {
        let mut taken = self.places.taken.lock();
        taken.retain(|place| !Arc::ptr_eq(place, &self.place));
        drop(taken);
        // There is room for all tokens, and the receiver is beside it.
        let _ = self.places.give_back.try_send(());
    }
}

/// What is known of the connection at a place.
pub(crate) struct Place {
    stage: Mutex<Stage>,
    taking: Duration,
    sending: Duration,
}

struct Stage {
    /// None while it is busy.
    idle_since: Option<Instant>,
    /// When the last answer was made. None while it is busy, and before the first.
    answered: Option<Instant>,
    /// Somebody else needs the place.
    closed: bool,
    /// The server was stopped.
    ending: bool,
    /// Of the goroutine that serves it.
    waker: Option<Waker>,
}

impl Place {
    fn new(taking: Duration, sending: Duration) -> Place {
        let stage = Stage {
            idle_since: Some(Instant::now()),
            answered: None,
            closed: false,
            ending: false,
            waker: None,
        };
        Place {
            stage: Mutex::new(stage),
            taking,
            sending,
        }
    }

    fn idle_since(&self) -> Option<Instant> {
        let stage = self.stage.lock();
        stage.idle_since.filter(|_| !stage.closed)
    }

    /// The client has taken something.
    fn note_taken(&self) {
        let mut stage = self.stage.lock();
        if stage.answered.is_some_and(|at| at.elapsed() < self.taking) {
            stage.idle_since = Some(Instant::now());
        }
    }

    /// When the client must have taken its answer.
    fn taken_by(&self) -> Option<Instant> {
        self.stage.lock().answered.map(|at| at + self.sending)
    }

    fn close(&self) {
        let mut stage = self.stage.lock();
        // It may have become busy meanwhile.
        stage.closed = stage.idle_since.is_some();
        let waker = stage.waker.take().filter(|_| stage.closed);
        drop(stage);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    fn end(&self) {
        let mut stage = self.stage.lock();
        stage.ending = true;
        let waker = stage.waker.take();
        drop(stage);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Whether the server was stopped. The waker of [`poll_closed`](Self::poll_closed) is woken then, so ask after that call.
    pub(crate) fn is_ending(&self) -> bool {
        self.stage.lock().ending
    }

    /// Ready when the connection is to be closed at once.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut stage = self.stage.lock();
        if stage.closed {
            return Poll::Ready(());
        }
        stage.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Busy until what this gives is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        let mut stage = self.stage.lock();
        (stage.idle_since, stage.answered) = (None, None);
        Busy(Arc::clone(self))
    }
}

/// A request that is being answered.
pub(crate) struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        let mut stage = self.0.stage.lock();
        let now = Some(Instant::now());
        (stage.idle_since, stage.answered) = (now, now);
    }
}

/// A socket that tells its place when the client takes something, and fails when it has not taken its answer in time.
pub(crate) struct Wire {
    io: Io<TcpStream>,
    place: Arc<Place>,
    /// Rings when that is.
    alarm: Option<Sleep>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, place: Arc<Place>) -> Wire {
        let io = Io::new(stream);
        let alarm = None;
        Wire { io, place, alarm }
    }

    fn noted(
        &mut self,
        cx: &mut Context<'_>,
        sent: Poll<io::Result<usize>>,
    ) -> Poll<io::Result<usize>> {
        match sent {
            Poll::Ready(Ok(_)) => self.place.note_taken(),
            Poll::Ready(Err(_)) => {}
            Poll::Pending if self.poll_late(cx).is_ready() => {
                return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
            }
            Poll::Pending => {}
        }
        sent
    }

    /// Ready when the client has had its time.
    fn poll_late(&mut self, cx: &mut Context<'_>) -> Poll<()> {
        let Some(by) = self.place.taken_by() else {
            return Poll::Pending;
        };
        let alarm = self.alarm.get_or_insert_with(|| sleep_until(by));
        if alarm.deadline() != by {
            alarm.reset(by); // another answer
        }
        Pin::new(alarm).poll(cx)
    }
}

impl Read for Wire {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_read(cx, buf)
    }
}

impl Write for Wire {
    fn poll_write(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write(cx, buf);
        self.noted(cx, sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.noted(cx, sent)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(cx)
    }
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;
    use std::io::Read as _;

    use runnext::net::TcpListener;
    use runnext::{block_on, go};

    use super::*;

    fn pair() -> (TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        (client, listener.accept().unwrap().0)
    }

    /// Sends until it fails.
    fn send_on(wire: &mut Wire) -> io::Error {
        block_on(poll_fn(|cx| {
            loop {
                match Pin::new(&mut *wire).poll_write(cx, &[0; 1 << 16]) {
                    Poll::Ready(Ok(_)) => {}
                    Poll::Ready(Err(e)) => return Poll::Ready(e),
                    Poll::Pending => return Poll::Pending,
                }
            }
        }))
    }

    #[runnext::test(procs = 1)]
    fn who_does_not_take_an_answer_is_given_up() {
        let (_client, server) = pair();
        let place = Arc::new(Place::new(TAKING, Duration::from_millis(20)));
        let mut wire = Wire::new(server, Arc::clone(&place));
        for _ in 0..2 {
            drop(place.busy());
            assert_eq!(send_on(&mut wire).kind(), io::ErrorKind::TimedOut);
        }
    }

    /// A little now and then used to be enough, for the place and for the answer.
    #[runnext::test(procs = 2)]
    fn who_takes_little_is_given_up_too() {
        let (mut client, server) = pair();
        go(move || while client.read(&mut [0; 1 << 12]).is_ok_and(|n| n > 0) {});
        let place = Arc::new(Place::new(Duration::ZERO, Duration::from_millis(20)));
        drop(place.busy());
        let since = place.idle_since();
        let mut wire = Wire::new(server, Arc::clone(&place));
        assert_eq!(send_on(&mut wire).kind(), io::ErrorKind::TimedOut);
        assert_eq!(place.idle_since(), since);
    }
}

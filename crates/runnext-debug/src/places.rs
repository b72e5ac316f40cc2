//! Places for connections: so many at once, and who has to give one up when all are taken.
//!
//! A connection is *busy* while its request is being answered, and *idle* otherwise: its client has yet to send a whole head, or to take
//! what it was sent. Bytes that a client takes begin its idle time anew; those it sends do not, or one byte now and then would
//! keep a place for ever.
//!
//! While all places are taken and somebody waits for one, whoever has been idle for longest is closed once that is [`PATIENCE`]. So
//! silent clients cost the others a moment, however many they are, and nobody is closed before it had time to ask. Busy ones
//! are left alone.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use hyper::rt::{Read, ReadBufCursor, Write};
use runnext::chan::{Receiver, Sender, bounded};
use runnext::hyper::Io;
use runnext::net::TcpStream;
use runnext::sync::Mutex;

/// How long a connection may be idle while others wait for its place.
const PATIENCE: Duration = Duration::from_millis(100);

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
        let place = Arc::new(Place::new());
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
pub(crate) struct Place(Mutex<Stage>);

struct Stage {
    /// None while it is busy.
    idle_since: Option<Instant>,
    /// Somebody else needs the place.
    closed: bool,
    /// Of the goroutine that serves it.
    waker: Option<Waker>,
}

impl Place {
    fn new() -> Place {
        Place(Mutex::new(Stage {
            idle_since: Some(Instant::now()),
            closed: false,
            waker: None,
        }))
    }

    fn idle_since(&self) -> Option<Instant> {
        let stage = self.0.lock();
        stage.idle_since.filter(|_| !stage.closed)
    }

    fn close(&self) {
        let mut stage = self.0.lock();
        // It may have become busy meanwhile.
        stage.closed = stage.idle_since.is_some();
        let waker = stage.waker.take().filter(|_| stage.closed);
        drop(stage);
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// Ready when the connection is to be closed.
    pub(crate) fn poll_closed(&self, cx: &mut Context<'_>) -> Poll<()> {
        let mut stage = self.0.lock();
        if stage.closed {
            return Poll::Ready(());
        }
        stage.waker = Some(cx.waker().clone());
        Poll::Pending
    }

    /// Busy until what this gives is dropped.
    pub(crate) fn busy(self: &Arc<Self>) -> Busy {
        self.0.lock().idle_since = None;
        Busy(Arc::clone(self))
    }
}

/// A request that is being answered.
pub(crate) struct Busy(Arc<Place>);

impl Drop for Busy {
    fn drop(&mut self) {
        self.0.0.lock().idle_since = Some(Instant::now());
    }
}

/// A socket that tells its place when the client takes something.
pub(crate) struct Wire {
    io: Io<TcpStream>,
    place: Arc<Place>,
}

impl Wire {
    pub(crate) fn new(stream: TcpStream, place: Arc<Place>) -> Wire {
        let io = Io::new(stream);
        Wire { io, place }
    }

    fn noted(&self, sent: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if matches!(sent, Poll::Ready(Ok(_))) {
            let mut stage = self.place.0.lock();
            stage.idle_since = stage.idle_since.map(|_| Instant::now());
        }
        sent
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
        self.noted(sent)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let sent = Pin::new(&mut self.io).poll_write_vectored(cx, bufs);
        self.noted(sent)
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

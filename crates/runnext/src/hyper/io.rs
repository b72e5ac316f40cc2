//! `Io`: a socket as hyper wants it.

use std::fmt;
use std::io::{self, IoSlice};
use std::net::Shutdown;
use std::pin::Pin;
use std::task::{Context, Poll};

use ::hyper::rt::{Read, ReadBufCursor, Write};

use crate::net::{TcpStream, UnixStream};
use stream::Stream;

/// Lends a socket of [`net`](crate::net) to hyper.
///
/// Both directions are independent: a body may be sent while another is received.
///
/// # Example
/// ```no_run
/// use runnext::hyper::Io;
/// use runnext::net::TcpStream;
///
/// let io = Io::new(TcpStream::connect("127.0.0.1:80")?);
/// let stream: TcpStream = io.into_inner();
/// # Ok::<(), std::io::Error>(())
/// ```
pub struct Io<S>(S);

impl<S> Io<S> {
    /// Wraps a socket.
    pub fn new(stream: S) -> Io<S> {
        Io(stream)
    }

    /// The socket.
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// The socket, back.
    pub fn into_inner(self) -> S {
        self.0
    }
}

impl<S: fmt::Debug> fmt::Debug for Io<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Io").field(&self.0).finish()
    }
}

mod stream {
    //! What `Io` asks of a socket. Private, so that the bound can change.

    use std::io::{self, IoSlice};
    use std::mem::MaybeUninit;
    use std::net::Shutdown;
    use std::task::{Context, Poll};

    /// # Safety
    /// `receive` has initialised as many bytes as it says.
    pub unsafe trait Stream: Unpin {
        fn receive(
            &self,
            cx: &mut Context<'_>,
            buf: &mut [MaybeUninit<u8>],
        ) -> Poll<io::Result<usize>>;
        fn send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>>;
        fn send_all(&self, cx: &mut Context<'_>, bufs: &[IoSlice<'_>]) -> Poll<io::Result<usize>>;
        fn end(&self, how: Shutdown) -> io::Result<()>;
    }
}

macro_rules! stream {
    ($name:ident) => {
        // SAFETY: the kernel says how much it has written.
        unsafe impl Stream for $name {
            #[inline]
            fn receive(
                &self,
                cx: &mut Context<'_>,
                buf: &mut [std::mem::MaybeUninit<u8>],
            ) -> Poll<io::Result<usize>> {
                self.poll_read_uninit(cx, buf)
            }

            #[inline]
            fn send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
                self.poll_write(cx, buf)
            }

            #[inline]
            fn send_all(
                &self,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                self.poll_write_vectored(cx, bufs)
            }

            fn end(&self, how: Shutdown) -> io::Result<()> {
                self.shutdown(how)
            }
        }
    };
}

stream!(TcpStream);
stream!(UnixStream);

impl<S: Stream> Read for Io<S> {
    #[inline]
    fn poll_read(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        mut buf: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        // SAFETY: nothing is uninitialised that was not: the socket only writes to it.
        let unfilled = unsafe { buf.as_mut() };
        if unfilled.is_empty() {
            return Poll::Ready(Ok(()));
        }
        match self.0.receive(cx, unfilled) {
            Poll::Ready(Ok(n)) => {
                // SAFETY: the contract of `Stream`.
                unsafe { buf.advance(n) };
                Poll::Ready(Ok(()))
            }
            Poll::Ready(Err(e)) => Poll::Ready(Err(e)),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<S: Stream> Write for Io<S> {
    #[inline]
    fn poll_write(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.0.send(cx, buf)
    }

    #[inline]
    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.0.send_all(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        true
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        match self.0.end(Shutdown::Write) {
            // The peer was faster: what was to be said is said.
            Err(e) if e.kind() == io::ErrorKind::NotConnected => Poll::Ready(Ok(())),
            ended => Poll::Ready(ended),
        }
    }
}

//! `Io`: a socket as hyper wants it.

use std::fmt;
use std::io::{self, IoSlice};
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
/// ```
/// use hyper::{Error, Request, Response, body::Incoming, client, server, service::service_fn};
/// use runnext::{block_on, hyper::Io, net::UnixStream, spawn};
///
/// async fn tea(request: Request<Incoming>) -> Result<Response<String>, Error> {
///     Ok(Response::new(format!("no {}, only tea", request.uri().path())))
/// }
///
/// #[runnext::main]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (near, far) = UnixStream::pair()?;
///     spawn(server::conn::http1::Builder::new().serve_connection(Io::new(far), service_fn(tea)));
///     let response = block_on(async {
///         let (mut client, connection) = client::conn::http1::handshake(Io::new(near)).await?;
///         spawn(connection);
///         client.send_request(Request::get("/coffee").body(String::new()).unwrap()).await
///     })?;
///     assert_eq!(response.headers()["content-length"], "20");
///     Ok(())
/// }
/// ```
pub struct Io<S>(S);

impl<S> Io<S> {
    /// Wraps a socket.
    ///
    /// # Example
    /// ```
    /// use std::future::poll_fn;
    /// use std::io::Read;
    /// use std::pin::Pin;
    /// use hyper::rt::Write;
    /// use runnext::{block_on, hyper::Io, net::UnixStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (near, mut far) = UnixStream::pair()?;
    ///     let mut io = Io::new(near);
    ///     // As hyper uses it.
    ///     let sent = block_on(poll_fn(|cx| Pin::new(&mut io).poll_write(cx, b"ping")))?;
    ///     let mut received = [0; 4];
    ///     far.read_exact(&mut received[..sent])?;
    ///     assert_eq!(&received, b"ping");
    ///     Ok(())
    /// }
    /// ```
    pub fn new(stream: S) -> Io<S> {
        Io(stream)
    }

    /// The socket.
    ///
    /// # Example
    /// ```
    /// use runnext::hyper::Io;
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let io = Io::new(TcpStream::connect(listener.local_addr()?)?);
    ///     io.inner().set_nodelay(true)?; // settings are the socket's
    ///     assert!(io.inner().nodelay()?);
    ///     Ok(())
    /// }
    /// ```
    pub fn inner(&self) -> &S {
        &self.0
    }

    /// The socket, back.
    ///
    /// # Example
    /// ```
    /// use std::io::{Read, Write};
    /// use runnext::{hyper::Io, net::UnixStream};
    ///
    /// fn main() -> std::io::Result<()> {
    ///     let (near, mut far) = UnixStream::pair()?;
    ///     let io = Io::new(near);
    ///     // HTTP is over, another protocol begins.
    ///     let mut socket = io.into_inner();
    ///     socket.write_all(b"plain bytes")?;
    ///     drop(socket);
    ///     let mut rest = String::new();
    ///     far.read_to_string(&mut rest)?;
    ///     assert_eq!(rest, "plain bytes");
    ///     Ok(())
    /// }
    /// ```
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
        fn end(&self) -> io::Result<()>;
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

            fn end(&self) -> io::Result<()> {
                self.end_of_writing()
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
        Poll::Ready(self.0.end())
    }
}

//! Datagrams for futures.

use std::io;
use std::net::SocketAddr;
use std::task::{Context, Poll};

use super::UdpSocket;
use crate::net::socket::Direction;

impl UdpSocket {
    /// As [`recv`](Self::recv), for futures: `Pending` if there is none, and then the waker is woken when there may be. Several tasks
    /// may wait; all of them are woken.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv). Time-outs do not apply, deadlines do.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     a.connect(b.local_addr()?)?;
    ///     let reader = runnext::spawn(async move {
    ///         let mut buf = [0; 8];
    ///         let n = poll_fn(|cx| b.poll_recv(cx, &mut buf)).await?;
    ///         Ok::<_, std::io::Error>(buf[..n].to_vec())
    ///     });
    ///     a.send(b"hello")?;
    ///     assert_eq!(reader.join().unwrap()?, b"hello");
    ///     Ok(())
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub fn poll_recv(&self, cx: &mut Context<'_>, buf: &mut [u8]) -> Poll<io::Result<usize>> {
        self.0
            .poll_io(cx, Direction::Read, || self.recv_or_end(buf))
    }

    /// As [`recv_from`](Self::recv_from), for futures; see [`poll_recv`](Self::poll_recv).
    ///
    /// # Errors
    /// As for [`recv_from`](Self::recv_from).
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     a.send_to(b"hello", b.local_addr()?)?;
    ///     let mut buf = [0; 8];
    ///     let received = runnext::block_on(poll_fn(|cx| b.poll_recv_from(cx, &mut buf)))?;
    ///     assert_eq!(received, (5, a.local_addr()?));
    ///     Ok(())
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub fn poll_recv_from(
        &self,
        cx: &mut Context<'_>,
        buf: &mut [u8],
    ) -> Poll<io::Result<(usize, SocketAddr)>> {
        self.0
            .poll_io(cx, Direction::Read, || self.recv_from_or_end(buf))
    }

    /// As [`send`](Self::send), for futures: `Pending` if there is no room, and then the waker is woken when there may be.
    ///
    /// # Errors
    /// As for [`send`](Self::send). Time-outs do not apply, deadlines do.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     a.connect(b.local_addr()?)?;
    ///     assert_eq!(runnext::block_on(poll_fn(|cx| a.poll_send(cx, b"hello")))?, 5);
    ///     assert_eq!(b.recv(&mut [0; 8])?, 5);
    ///     Ok(())
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let std = self.std();
        self.0.poll_io(cx, Direction::Write, || std.send(buf))
    }

    /// As [`send_to`](Self::send_to), for futures; see [`poll_send`](Self::poll_send). To an address, since looking a name up blocks.
    ///
    /// # Errors
    /// As for [`send_to`](Self::send_to).
    ///
    /// # Example
    /// ```
    /// use runnext::net::UdpSocket;
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (a, b) = (UdpSocket::bind("127.0.0.1:0")?, UdpSocket::bind("127.0.0.1:0")?);
    ///     let to = b.local_addr()?;
    ///     runnext::block_on(poll_fn(|cx| a.poll_send_to(cx, b"hello", to)))?;
    ///     assert_eq!(b.recv_from(&mut [0; 8])?, (5, a.local_addr()?));
    ///     Ok(())
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub fn poll_send_to(
        &self,
        cx: &mut Context<'_>,
        buf: &[u8],
        addr: SocketAddr,
    ) -> Poll<io::Result<usize>> {
        let std = self.std();
        self.0
            .poll_io(cx, Direction::Write, || std.send_to(buf, addr))
    }
}

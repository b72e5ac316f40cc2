//! Unix datagrams for futures. There is no `poll_send_to`: the kernel tells a sender of room in a queue only if it is connected to it.

use std::io;
use std::os::unix::net::SocketAddr;
use std::task::{Context, Poll};

use super::UnixDatagram;
use crate::net::socket::Direction;

impl UnixDatagram {
    /// As [`recv`](Self::recv), for futures: `Pending` if there is none, and then the waker is woken when there may be. Several tasks
    /// may wait; all of them are woken.
    ///
    /// # Errors
    /// As for [`recv`](Self::recv). Time-outs do not apply, deadlines do.
    ///
    /// # Example
    /// ```
    /// use runnext::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, there) = UnixDatagram::pair()?;
    ///     let reader = runnext::spawn(async move { poll_fn(|cx| there.poll_recv(cx, &mut [0; 8])).await });
    ///     here.send(b"hello")?;
    ///     assert_eq!(reader.join().unwrap()?, 5);
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
    /// use runnext::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, there) = UnixDatagram::pair()?;
    ///     here.send(b"hello")?;
    ///     let (n, from) = runnext::block_on(poll_fn(|cx| there.poll_recv_from(cx, &mut [0; 8])))?;
    ///     assert!(n == 5 && from.is_unnamed());
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
    /// use runnext::net::UnixDatagram;
    /// use std::future::poll_fn;
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let (here, there) = UnixDatagram::pair()?;
    ///     assert_eq!(runnext::block_on(poll_fn(|cx| here.poll_send(cx, b"hello")))?, 5);
    ///     assert_eq!(there.recv(&mut [0; 8])?, 5);
    ///     Ok(())
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub fn poll_send(&self, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        let std = self.std();
        self.0.poll_io(cx, Direction::Write, || std.send(buf))
    }
}

//! Connecting for futures.

use std::future::poll_fn;
use std::io;
use std::net::SocketAddr;

use runnext_sys::net as sys;

use super::TcpStream;
use crate::net::socket::{Descriptor, Direction};

impl TcpStream {
    /// As [`connect`](Self::connect), for futures: nothing begins before the first poll, and dropping the future gives the attempt up. To an
    /// address, since looking a name up blocks.
    ///
    /// # Errors
    /// As the system has it.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// # #[cfg(feature = "async")]
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let addr = listener.local_addr()?;
    ///     let client = runnext::spawn(async move { TcpStream::connect_async(addr).await?.local_addr() });
    ///     let (_stream, from) = listener.accept()?;
    ///     assert_eq!(client.join().unwrap()?, from);
    ///     Ok(())
    /// }
    /// # #[cfg(not(feature = "async"))]
    /// # fn main() {}
    /// ```
    pub async fn connect_async(addr: SocketAddr) -> io::Result<TcpStream> {
        let (fd, connected) = sys::connect(&addr)?;
        let stream = TcpStream(Descriptor::new(fd));
        if !connected {
            let made = |cx: &mut std::task::Context<'_>| {
                stream
                    .0
                    .poll_io(cx, Direction::Write, || stream.is_connected())
            };
            poll_fn(made).await?;
        }
        Ok(stream)
    }
}

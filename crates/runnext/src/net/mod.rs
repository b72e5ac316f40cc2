//! Sockets with the names and behaviour of [`std::net`] and [`std::os::unix::net`], that block the
//! goroutine and not its thread (except to resolve names).
//!
//! Any crate that reads and writes through [`Read`](std::io::Read) and [`Write`](std::io::Write) works on them unchanged. Each
//! call is tried at once; only a call that would block makes its goroutine wait. On a plain thread it is the thread that waits, with or
//! without a runtime. A socket belongs to no runtime: it may be created anywhere, moved anywhere, and used by several goroutines and
//! threads at a time, in both directions.
//!
//! What differs from the standard library:
//! - A call that takes longer than its time-out fails with [`TimedOut`](std::io::ErrorKind::TimedOut).
//! - There are deadlines as Go has them: `set_read_deadline` and `set_write_deadline` reach calls already blocked; one that
//!   has passed fails all calls at once, and `None` revives the socket.
//! - `try_clone` gives another handle to the same descriptor, so it cannot run out of them; time-outs and deadlines are shared.
//! - Names are resolved inside [`blocking`](crate::blocking), which blocks the thread.
//! - `accept` waits a little, with growing pauses, when the process has no descriptor left; only if that does not help for a second
//!   does it fail.
//! - Writing nothing to a stream succeeds, also after it was shut down: there is nothing to wait for.
//!
//! # Example
//! ```
//! use runnext::net::{TcpListener, TcpStream};
//! use std::io::{Read, Write};
//!
//! #[runnext::main]
//! fn main() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     runnext::go(move || {
//!         for stream in listener.incoming() {
//!             let mut stream = stream.unwrap();
//!             runnext::go(move || std::io::copy(&mut stream.try_clone().unwrap(), &mut stream));
//!         }
//!     });
//!     let mut stream = TcpStream::connect(addr)?;
//!     stream.write_all(b"echo")?;
//!     let mut reply = [0; 4];
//!     stream.read_exact(&mut reply)?;
//!     assert_eq!(&reply, b"echo");
//!     Ok(())
//! }
//! ```

mod backoff;
mod datagram;
mod example;
mod socket;
mod stream;
mod tcp;
mod udp;
mod unix;

pub use datagram::UnixDatagram;
use example::example;
pub use std::net::{
    AddrParseError, IpAddr, Ipv4Addr, Ipv6Addr, Shutdown, SocketAddr, SocketAddrV4, SocketAddrV6,
    ToSocketAddrs,
};
pub use tcp::{Incoming, IntoIncoming, TcpListener, TcpStream};
pub use udp::UdpSocket;
pub use unix::{UnixIncoming, UnixListener, UnixStream};

//! When what was received is acknowledged, which only Linux lets one say.

use std::io;
use std::os::fd::AsFd;

use runnext_sys::net as sys;

use super::TcpStream;

impl TcpStream {
    /// Whether what is received is acknowledged at once, for the moment: Linux changes it by itself. As std's
    /// `os::linux::net::TcpStreamExt` has it.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     stream.set_quickack(false)?;
    ///     assert!(!stream.quickack()?);
    ///     Ok(())
    /// }
    /// ```
    pub fn quickack(&self) -> io::Result<bool> {
        sys::quickack(self.as_fd())
    }

    /// Has what is received be acknowledged at once, or together with the next answer. Linux may change that with the next
    /// segments, so those who want it set it after each read.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::net::{TcpListener, TcpStream};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let listener = TcpListener::bind("127.0.0.1:0")?;
    ///     let stream = TcpStream::connect(listener.local_addr()?)?;
    ///     stream.set_quickack(true)?; // the other side waits for it before it sends more
    ///     assert!(stream.quickack()?);
    ///     Ok(())
    /// }
    /// ```
    pub fn set_quickack(&self, quickack: bool) -> io::Result<()> {
        sys::set_quickack(self.as_fd(), quickack)
    }
}

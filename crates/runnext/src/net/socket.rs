//! What all sockets have in common.
//!
//! A socket is a [`Descriptor`]. The standard library's own methods do the calls, on a view of the descriptor that does not own
//! it; this module adds waiting, time-outs and deadlines.
//!
//! # The mode
//! Whether calls block is a property of what the kernel calls an open file description, which all duplicates of a descriptor share. A handle
//! of ours needs it non-blocking. So a socket is made blocking again only when its last handle is given up; given up earlier
//! it stays as it is. Rejected: calls that do not wait whatever the mode (`MSG_DONTWAIT`), since `accept` has none.

use std::io;
use std::mem::ManuallyDrop;
use std::net::{SocketAddr, ToSocketAddrs};
use std::ops::Deref;
use std::os::fd::{AsFd, AsRawFd, FromRawFd, OwnedFd};
use std::time::Duration;

use runnext_sys::net::set_nonblocking;

use crate::instant::Instant;
use crate::sched::blocking::blocking;
pub(crate) use crate::sched::netpoll::{Descriptor, Direction, FIRST_PAUSE_NS, LAST_PAUSE_NS};

/// The descriptor as the standard library's type, borrowed.
#[inline]
pub(super) fn view<T: FromRawFd>(d: &Descriptor) -> impl Deref<Target = T> {
    // SAFETY: open while `d` is, and never closed by the view.
    ManuallyDrop::new(unsafe { T::from_raw_fd(d.fd().as_raw_fd()) })
}

/// Takes over a descriptor of any kind.
pub(super) fn adopt(fd: OwnedFd) -> io::Result<Descriptor> {
    set_nonblocking(fd.as_fd(), true)?;
    Ok(Descriptor::new(fd))
}

/// As [`adopt`], where nobody can be told of an error: the first call on it will.
pub(super) fn adopt_anyway(fd: OwnedFd) -> Descriptor {
    let _ = set_nonblocking(fd.as_fd(), true);
    Descriptor::new(fd)
}

/// Gives a descriptor back, for code that waits, or does not, as it was set to. While it has other handles it does not wait, for
/// theirs must not.
pub(super) fn release(d: Descriptor) -> io::Result<OwnedFd> {
    let nonblocking = d.is_nonblocking();
    let (fd, last) = d.into_fd()?;
    if last {
        set_nonblocking(fd.as_fd(), nonblocking)?;
    }
    Ok(fd)
}

/// As [`release`], where nobody can be told of an error.
pub(super) fn release_anyway(d: Descriptor) -> OwnedFd {
    match release(d) {
        Ok(fd) => fd,
        Err(e) => panic!("a socket that has clones cannot be given up as a descriptor: {e}"),
    }
}

/// The addresses of a name, at least one.
pub(super) fn resolve<A: ToSocketAddrs>(addr: A) -> io::Result<Vec<SocketAddr>> {
    resolve_or(addr, "could not resolve to any addresses")
}

/// As [`resolve`], with a message of one's own for no address at all. Off the P: it may ask a server.
pub(super) fn resolve_or<A: ToSocketAddrs>(
    addr: A,
    none: &'static str,
) -> io::Result<Vec<SocketAddr>> {
    let found: Vec<_> = blocking(|| addr.to_socket_addrs().map(Iterator::collect))?;
    if found.is_empty() {
        return Err(io::Error::new(io::ErrorKind::InvalidInput, none));
    }
    Ok(found)
}

/// Tries `f` on each address of a name, until one succeeds; else the last error.
pub(super) fn for_each_address<A: ToSocketAddrs, T>(
    addr: A,
    mut f: impl FnMut(&SocketAddr) -> io::Result<T>,
) -> io::Result<T> {
    let mut last = None;
    for addr in resolve(addr)? {
        match f(&addr) {
            Ok(done) => return Ok(done),
            Err(e) => last = Some(e),
        }
    }
    Err(last.unwrap_or_else(|| unreachable!("`resolve` gives at least one")))
}

pub(super) fn set_timeout(d: &Descriptor, way: Direction, t: Option<Duration>) -> io::Result<()> {
    if t == Some(Duration::ZERO) {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            "cannot set a 0 duration timeout: pass None for no time-out, or set a deadline that has passed",
        ));
    }
    d.set_timeout(way, t);
    Ok(())
}

pub(super) fn set_deadline(d: &Descriptor, way: Direction, when: Option<Instant>) {
    d.set_deadline(way, when.map_or(u64::MAX, Instant::as_ns));
}

/// The methods and conversions that every socket has. `$std` is the standard library's type, `$what` what it is called in prose.
macro_rules! socket {
    ($name:ident, $std:ty, $what:literal) => {
        impl $name {
            /// The standard library's methods, for calls that do not wait.
            #[inline]
            fn std(&self) -> impl std::ops::Deref<Target = $std> {
                crate::net::socket::view::<$std>(&self.0)
            }

            /// Takes over one of the standard library's, with its time-outs.
            ///
            /// It is made non-blocking, which duplicates of it made before will notice. Calls on the socket returned wait, whatever
            /// `set_nonblocking` was before. Do not make it blocking again through such a duplicate: then calls here block the
            /// thread, and deadlines do not end them.
            ///
            /// # Errors
            /// The system's, if the mode cannot be changed.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            #[doc = crate::net::example!(io read $name)]
            /// use std::time::Duration;
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(adopt $name)]
            #[doc = concat!("    let error = ", crate::net::example!(read $name), ".unwrap_err();")]
            ///     assert_eq!(error.kind(), ErrorKind::TimedOut); // the goroutine waited, and not its thread
            ///     Ok(())
            /// }
            /// ```
            pub fn from_std(socket: $std) -> std::io::Result<$name> {
                let socket = $name(crate::net::socket::adopt(socket.into())?);
                socket.take_over();
                Ok(socket)
            }

            /// Gives it to the standard library: from now on calls block the thread, unless `set_nonblocking(true)` was called.
            ///
            /// If it has clones, the descriptor is duplicated, and the returned socket stays non-blocking: the system keeps one mode for
            /// all duplicates, and the clones must not block their threads. Once the clones are gone, `set_nonblocking(false)` of the
            /// standard library makes it blocking. The last clone to be converted is blocking at once, and so are all duplicates then.
            ///
            /// # Errors
            /// If it has clones it is duplicated, for which the process may have no descriptor left.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            #[doc = crate::net::example!(io read $name)]
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     socket.set_nonblocking(true)?;
            #[doc = concat!("    let socket: ", crate::net::example!(std $name), " = socket.into_std()?;")]
            #[doc = concat!("    let error = ", crate::net::example!(read $name), ".unwrap_err();")]
            ///     assert_eq!(error.kind(), ErrorKind::WouldBlock); // as it was set
            ///     Ok(())
            /// }
            /// ```
            pub fn into_std(self) -> std::io::Result<$std> {
                let timeouts = self.timeouts();
                let socket = <$std>::from(crate::net::socket::release(self.0)?);
                Self::pass_on_timeouts(&socket, timeouts)?;
                Ok(socket)
            }

            /// Another handle to the same socket: what one does, the other sees, time-outs and deadlines included. It does not use
            /// up a descriptor. See [`into_std`](Self::into_std) for what becomes of clones that are given up.
            ///
            /// # Errors
            /// None; the type is that of the standard library.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use std::os::fd::AsRawFd;
            /// use std::time::Duration;
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     let twin = socket.try_clone()?;
            ///     assert_eq!(twin.as_raw_fd(), socket.as_raw_fd());
            ///     twin.set_read_timeout(Some(Duration::from_secs(3)))?;
            ///     assert_eq!(socket.read_timeout()?, Some(Duration::from_secs(3)));
            ///     Ok(())
            /// }
            /// ```
            pub fn try_clone(&self) -> std::io::Result<$name> {
                Ok($name(self.0.clone()))
            }

            #[doc = concat!("Takes the pending error of the ", $what, ", if there is one.")]
            ///
            /// # Errors
            /// The system's.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     assert!(socket.take_error()?.is_none()); // nothing has gone wrong
            ///     Ok(())
            /// }
            /// ```
            pub fn take_error(&self) -> std::io::Result<Option<std::io::Error>> {
                self.std().take_error()
            }

            /// Whether calls that would block fail with [`WouldBlock`](std::io::ErrorKind::WouldBlock) instead of waiting.
            ///
            /// # Errors
            /// None; the type is that of the standard library.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            #[doc = crate::net::example!(io read $name)]
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     socket.set_nonblocking(true)?;
            #[doc = concat!("    let error = ", crate::net::example!(read $name), ".unwrap_err();")]
            ///     assert_eq!(error.kind(), ErrorKind::WouldBlock);
            ///     Ok(())
            /// }
            /// ```
            pub fn set_nonblocking(&self, nonblocking: bool) -> std::io::Result<()> {
                self.0.set_nonblocking(nonblocking);
                Ok(())
            }
        }

        /// As `from_std`.
        impl TryFrom<$std> for $name {
            type Error = std::io::Error;

            fn try_from(socket: $std) -> std::io::Result<$name> {
                $name::from_std(socket)
            }
        }

        /// As `into_std`.
        impl TryFrom<$name> for $std {
            type Error = std::io::Error;

            fn try_from(socket: $name) -> std::io::Result<$std> {
                socket.into_std()
            }
        }

        impl std::os::fd::AsFd for $name {
            fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
                self.0.fd()
            }
        }

        impl std::os::fd::AsRawFd for $name {
            fn as_raw_fd(&self) -> std::os::fd::RawFd {
                std::os::fd::AsRawFd::as_raw_fd(&self.0.fd())
            }
        }

        impl From<std::os::fd::OwnedFd> for $name {
            fn from(fd: std::os::fd::OwnedFd) -> $name {
                let socket = $name(crate::net::socket::adopt_anyway(fd));
                socket.take_over();
                socket
            }
        }

        /// Blocking again, unless `set_nonblocking(true)` was called, or it has clones, as for `into_std`. If it has clones it is
        /// duplicated, and that panics when no descriptor is left; `into_std` returns an error instead.
        impl From<$name> for std::os::fd::OwnedFd {
            fn from(socket: $name) -> std::os::fd::OwnedFd {
                let timeouts = socket.timeouts();
                let socket = <$std>::from(crate::net::socket::release_anyway(socket.0));
                let _ = $name::pass_on_timeouts(&socket, timeouts); // nobody can be told
                socket.into()
            }
        }

        impl std::os::fd::FromRawFd for $name {
            unsafe fn from_raw_fd(fd: std::os::fd::RawFd) -> $name {
                // SAFETY: the caller's promise.
                unsafe { <std::os::fd::OwnedFd as std::os::fd::FromRawFd>::from_raw_fd(fd) }.into()
            }
        }

        /// As for `OwnedFd`: non-blocking still if it has clones, of which it is a duplicate then.
        impl std::os::fd::IntoRawFd for $name {
            fn into_raw_fd(self) -> std::os::fd::RawFd {
                std::os::fd::IntoRawFd::into_raw_fd(std::os::fd::OwnedFd::from(self))
            }
        }
    };
}
pub(super) use socket;

/// Time-outs and deadlines, in one direction or both.
macro_rules! limits {
    ($name:ident, read) => {
        impl $name {
            /// How long one call waits for something to read or accept. `None`: for ever.
            ///
            /// # Errors
            /// `InvalidInput` for zero.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            #[doc = crate::net::example!(io read $name)]
            /// use std::time::Duration;
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     socket.set_read_timeout(Some(Duration::from_millis(2)))?;
            #[doc = concat!("    let error = ", crate::net::example!(read $name), ".unwrap_err(); // nothing comes")]
            ///     assert_eq!(error.kind(), ErrorKind::TimedOut);
            ///     Ok(())
            /// }
            /// ```
            pub fn set_read_timeout(&self, t: Option<std::time::Duration>) -> std::io::Result<()> {
                use crate::net::socket::{Direction, set_timeout};
                set_timeout(&self.0, Direction::Read, t)
            }

            /// What [`set_read_timeout`](Self::set_read_timeout) was last told.
            ///
            /// # Errors
            /// None; the type is that of the standard library.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use std::time::Duration;
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     assert_eq!(socket.read_timeout()?, None);
            ///     socket.set_read_timeout(Some(Duration::from_secs(5)))?;
            ///     assert_eq!(socket.read_timeout()?, Some(Duration::from_secs(5)));
            ///     Ok(())
            /// }
            /// ```
            pub fn read_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.timeout(crate::net::socket::Direction::Read))
            }

            /// When every call that reads or accepts fails with [`TimedOut`](std::io::ErrorKind::TimedOut), those that wait
            /// already included. A moment that has passed ends them at once, and lets none begin; `None` revives the
            /// socket.
            ///
            /// # Errors
            /// None; it has the type of its relatives.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use runnext::time::Instant;
            #[doc = crate::net::example!(io read $name)]
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     let stop = socket.try_clone()?;
            #[doc = concat!("    let waiting = runnext::go(move || ", crate::net::example!(read $name), ".map(drop));")]
            ///     stop.set_read_deadline(Some(Instant::now()))?; // ends what waits
            ///     assert_eq!(waiting.join().unwrap().unwrap_err().kind(), ErrorKind::TimedOut);
            ///     stop.set_read_deadline(None) // it may be used again
            /// }
            /// ```
            pub fn set_read_deadline(
                &self,
                when: Option<crate::time::Instant>,
            ) -> std::io::Result<()> {
                use crate::net::socket::{Direction, set_deadline};
                set_deadline(&self.0, Direction::Read, when);
                Ok(())
            }
        }
    };
    ($name:ident, both) => {
        limits!($name, read);

        impl $name {
            /// How long one call waits for room to write. `None`: for ever.
            ///
            /// # Errors
            /// `InvalidInput` for zero.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use std::io::ErrorKind;
            /// use std::time::Duration;
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            #[doc = crate::net::example!(fill $name)]
            ///     Ok(())
            /// }
            /// ```
            pub fn set_write_timeout(&self, t: Option<std::time::Duration>) -> std::io::Result<()> {
                use crate::net::socket::{Direction, set_timeout};
                set_timeout(&self.0, Direction::Write, t)
            }

            /// What [`set_write_timeout`](Self::set_write_timeout) was last told.
            ///
            /// # Errors
            /// None; the type is that of the standard library.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use std::time::Duration;
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     socket.set_write_timeout(Some(Duration::from_secs(7)))?;
            ///     assert_eq!(socket.write_timeout()?, Some(Duration::from_secs(7)));
            ///     assert_eq!(socket.read_timeout()?, None); // the other direction has its own
            ///     Ok(())
            /// }
            /// ```
            pub fn write_timeout(&self) -> std::io::Result<Option<std::time::Duration>> {
                Ok(self.0.timeout(crate::net::socket::Direction::Write))
            }

            /// When every call that writes fails with [`TimedOut`](std::io::ErrorKind::TimedOut), those that wait already
            /// included. A moment that has passed ends them at once, and lets none begin; `None` revives the socket.
            ///
            /// # Errors
            /// None; it has the type of its relatives.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use runnext::time::Instant;
            #[doc = crate::net::example!(io write $name)]
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     socket.set_write_deadline(Some(Instant::now()))?;
            #[doc = concat!("    assert_eq!(", crate::net::example!(write $name), ".unwrap_err().kind(), ErrorKind::TimedOut);")]
            ///     socket.set_write_deadline(None)?;
            #[doc = concat!("    assert_eq!(", crate::net::example!(write $name), "?, 5);")]
            ///     Ok(())
            /// }
            /// ```
            pub fn set_write_deadline(
                &self,
                when: Option<crate::time::Instant>,
            ) -> std::io::Result<()> {
                use crate::net::socket::{Direction, set_deadline};
                set_deadline(&self.0, Direction::Write, when);
                Ok(())
            }

            /// Both deadlines at once.
            ///
            /// # Errors
            /// None; it has the type of its relatives.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use runnext::time::Instant;
            #[doc = crate::net::example!(io $name)]
            /// use std::time::Duration;
            ///
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(make $name)]
            ///     socket.set_deadline(Some(Instant::now() + Duration::from_millis(2)))?;
            #[doc = concat!("    let nothing_came = ", crate::net::example!(read $name), ".unwrap_err();")]
            #[doc = concat!("    let too_late = ", crate::net::example!(write $name), ".unwrap_err();")]
            ///     assert_eq!([nothing_came.kind(), too_late.kind()], [ErrorKind::TimedOut; 2]);
            ///     Ok(())
            /// }
            /// ```
            pub fn set_deadline(&self, when: Option<crate::time::Instant>) -> std::io::Result<()> {
                self.set_read_deadline(when)?;
                self.set_write_deadline(when)
            }

            /// Learns what there is to know of a descriptor that others have made: its time-outs, and whether a stream's short reads
            /// mean what those of TCP do. Any socket may be in it.
            fn take_over(&self) {
                use crate::net::socket::Direction;
                if !runnext_sys::net::is_tcp(self.0.fd()) {
                    self.0.doubt_short_reads();
                }
                let (read, write) = (self.std().read_timeout(), self.std().write_timeout());
                self.0.set_timeout(Direction::Read, read.ok().flatten());
                self.0.set_timeout(Direction::Write, write.ok().flatten());
            }

            fn timeouts(&self) -> [Option<std::time::Duration>; 2] {
                use crate::net::socket::Direction;
                [Direction::Read, Direction::Write].map(|way| self.0.timeout(way))
            }
        }
    };
}
pub(super) use limits;

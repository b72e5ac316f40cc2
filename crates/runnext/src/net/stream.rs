//! What streams have in common, beyond what all sockets have.

/// [`Read`](std::io::Read) and [`Write`](std::io::Write) on a stream and on a reference to one, and the same for futures.
macro_rules! stream {
    ($name:ident, $short_read_means_empty:literal) => {
        impl $name {
            /// What a read of `len` bytes asks for, as `Descriptor::transfer` understands it: 0 if getting less does not mean that there is no more.
            #[inline]
            fn want(len: usize) -> usize {
                if $short_read_means_empty { len } else { 0 }
            }

            /// As [`read`](std::io::Read::read), for futures: `Pending` if there is nothing, and then the waker is woken when there
            /// may be something. Several tasks may wait; all of them are woken.
            ///
            /// # Errors
            /// As for reading. Time-outs do not apply, deadlines do.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use std::future::poll_fn;
            /// use std::io::Write;
            ///
            /// # #[cfg(feature = "async")]
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(pair $name)]
            ///     let reader = runnext::spawn(async move {
            ///         let mut buf = [0; 8];
            ///         let n = poll_fn(|cx| socket.poll_read(cx, &mut buf)).await?;
            ///         Ok::<_, std::io::Error>(buf[..n].to_vec())
            ///     });
            ///     (&other).write_all(b"hello")?;
            ///     assert_eq!(reader.join().unwrap()?, b"hello");
            ///     Ok(())
            /// }
            /// # #[cfg(not(feature = "async"))]
            /// # fn main() {}
            /// ```
            pub fn poll_read(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                use crate::net::socket::Direction;
                if buf.is_empty() {
                    return std::task::Poll::Ready(Ok(0));
                }
                let want = Self::want(buf.len());
                let mut read = || runnext_sys::net::recv(self.0.fd(), buf);
                self.0.poll_transfer(cx, Direction::Read, want, &mut read)
            }

            /// As [`poll_read`](Self::poll_read), to memory that need not be initialised: the first bytes are afterwards.
            #[cfg(feature = "hyper")]
            pub(crate) fn poll_read_uninit(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &mut [std::mem::MaybeUninit<u8>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                use crate::net::socket::Direction;
                let want = Self::want(buf.len());
                let mut read = || runnext_sys::net::recv_uninit(self.0.fd(), buf);
                self.0.poll_transfer(cx, Direction::Read, want, &mut read)
            }

            /// Shuts the direction of writing down, for futures that say so at their end. Not an error if the peer was faster and has
            /// reset the connection: what was to be said is said.
            #[cfg(feature = "async")]
            pub(crate) fn end_of_writing(&self) -> std::io::Result<()> {
                match self.shutdown(std::net::Shutdown::Write) {
                    Err(e) if e.kind() == std::io::ErrorKind::NotConnected => Ok(()),
                    ended => ended,
                }
            }

            /// As [`write`](std::io::Write::write), for futures: `Pending` if there is no room, and then the waker is woken when
            /// there may be. Several tasks may wait; all of them are woken.
            ///
            /// # Errors
            /// As for writing. Time-outs do not apply, deadlines do.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use std::future::poll_fn;
            /// use std::io::Read;
            ///
            /// # #[cfg(feature = "async")]
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(pair $name)]
            ///     let n = runnext::block_on(poll_fn(|cx| socket.poll_write(cx, b"hello")))?;
            ///     let mut buf = [0; 5];
            ///     (&other).read_exact(&mut buf[..n])?;
            ///     assert_eq!(&buf, b"hello");
            ///     Ok(())
            /// }
            /// # #[cfg(not(feature = "async"))]
            /// # fn main() {}
            /// ```
            pub fn poll_write(
                &self,
                cx: &mut std::task::Context<'_>,
                buf: &[u8],
            ) -> std::task::Poll<std::io::Result<usize>> {
                use crate::net::socket::Direction;
                if buf.is_empty() {
                    return std::task::Poll::Ready(Ok(0));
                }
                let mut write = || runnext_sys::net::send(self.0.fd(), buf);
                self.0
                    .poll_transfer(cx, Direction::Write, buf.len(), &mut write)
            }

            /// As [`write_vectored`](std::io::Write::write_vectored), for futures; see [`poll_write`](Self::poll_write).
            ///
            /// # Errors
            /// As for writing.
            ///
            /// # Example
            /// ```
            #[doc = crate::net::example!(import $name)]
            /// use std::future::poll_fn;
            /// use std::io::{IoSlice, Read};
            ///
            /// # #[cfg(feature = "async")]
            /// #[runnext::main]
            /// fn main() -> std::io::Result<()> {
            #[doc = crate::net::example!(pair $name)]
            ///     let parts = [IoSlice::new(b"head, "), IoSlice::new(b"body")];
            ///     runnext::block_on(poll_fn(|cx| socket.poll_write_vectored(cx, &parts)))?;
            ///     let mut all = [0; 10];
            ///     (&other).read_exact(&mut all)?;
            ///     assert_eq!(&all, b"head, body");
            ///     Ok(())
            /// }
            /// # #[cfg(not(feature = "async"))]
            /// # fn main() {}
            /// ```
            pub fn poll_write_vectored(
                &self,
                cx: &mut std::task::Context<'_>,
                bufs: &[std::io::IoSlice<'_>],
            ) -> std::task::Poll<std::io::Result<usize>> {
                use crate::net::socket::Direction;
                if bufs.iter().all(|buf| buf.is_empty()) {
                    return std::task::Poll::Ready(Ok(0));
                }
                let mut write = || runnext_sys::net::send_vectored(self.0.fd(), bufs);
                self.0.poll_transfer(cx, Direction::Write, 0, &mut write)
            }
        }

        impl std::io::Read for &$name {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                use crate::net::socket::Direction;
                if buf.is_empty() {
                    return Ok(0);
                }
                let (fd, want) = (self.0.fd(), $name::want(buf.len()));
                let read = || runnext_sys::net::recv(fd, buf);
                self.0.transfer(Direction::Read, want, read)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                use crate::net::socket::Direction;
                let len: usize = bufs.iter().map(|buf| buf.len()).sum();
                if len == 0 {
                    return Ok(0);
                }
                // The kernel takes 1024 slices at a time, so less than all need not mean that there is no more.
                let std = self.std();
                self.0
                    .transfer(Direction::Read, 0, || (&*std).read_vectored(bufs))
            }
        }

        impl std::io::Write for &$name {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                use crate::net::socket::Direction;
                if buf.is_empty() {
                    return Ok(0);
                }
                let write = || runnext_sys::net::send(self.0.fd(), buf);
                self.0.transfer(Direction::Write, buf.len(), write)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                use crate::net::socket::Direction;
                if bufs.iter().all(|buf| buf.is_empty()) {
                    return Ok(0);
                }
                let write = || runnext_sys::net::send_vectored(self.0.fd(), bufs);
                self.0.transfer(Direction::Write, 0, write)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }

        impl std::io::Read for $name {
            #[inline]
            fn read(&mut self, buf: &mut [u8]) -> std::io::Result<usize> {
                std::io::Read::read(&mut &*self, buf)
            }

            fn read_vectored(
                &mut self,
                bufs: &mut [std::io::IoSliceMut<'_>],
            ) -> std::io::Result<usize> {
                std::io::Read::read_vectored(&mut &*self, bufs)
            }
        }

        impl std::io::Write for $name {
            #[inline]
            fn write(&mut self, buf: &[u8]) -> std::io::Result<usize> {
                std::io::Write::write(&mut &*self, buf)
            }

            fn write_vectored(&mut self, bufs: &[std::io::IoSlice<'_>]) -> std::io::Result<usize> {
                std::io::Write::write_vectored(&mut &*self, bufs)
            }

            fn flush(&mut self) -> std::io::Result<()> {
                Ok(())
            }
        }
    };
}
pub(super) use stream;

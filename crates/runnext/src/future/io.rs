//! futures-io's traits for sockets: what async libraries that are bound to no runtime ask for.
//!
//! Both directions of a socket may be used at once, by one task or by two. Of several tasks that wait in one direction all are woken,
//! and each tries again.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::task::{Context, Poll};

use futures_io::{AsyncRead, AsyncWrite};

use crate::net::{TcpStream, UnixStream};

macro_rules! async_io {
    ($name:ident) => {
        /// Time-outs do not apply to futures; deadlines do.
        impl AsyncRead for &$name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                $name::poll_read(*self, cx, buf)
            }
        }

        /// Closing shuts the direction down, as a FIN does, and succeeds if the peer has reset the connection before; the socket itself is closed when its last handle is dropped.
        impl AsyncWrite for &$name {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                $name::poll_write(*self, cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                $name::poll_write_vectored(*self, cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.end_of_writing())
            }
        }

        impl AsyncRead for $name {
            fn poll_read(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &mut [u8],
            ) -> Poll<io::Result<usize>> {
                $name::poll_read(&self, cx, buf)
            }
        }

        /// As for a reference.
        impl AsyncWrite for $name {
            fn poll_write(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                buf: &[u8],
            ) -> Poll<io::Result<usize>> {
                $name::poll_write(&self, cx, buf)
            }

            fn poll_write_vectored(
                self: Pin<&mut Self>,
                cx: &mut Context<'_>,
                bufs: &[IoSlice<'_>],
            ) -> Poll<io::Result<usize>> {
                $name::poll_write_vectored(&self, cx, bufs)
            }

            fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(Ok(()))
            }

            fn poll_close(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
                Poll::Ready(self.end_of_writing())
            }
        }
    };
}

async_io!(TcpStream);
async_io!(UnixStream);

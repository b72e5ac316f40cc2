//! ureq over our sockets.

use std::io::{ErrorKind, Read, Write};

use runnext::net::TcpStream;
use ureq::Error;
use ureq::unversioned::transport::{
    Buffers, ConnectionDetails, Connector, LazyBuffers, NextTimeout, Transport,
};

/// Connects through [`runnext::net`], so that a request parks its goroutine instead of blocking a thread. For
/// `Agent::with_parts`; connectors chained after it add TLS.
#[derive(Debug, Default)]
pub struct Sockets;

impl<In: Transport> Connector<In> for Sockets {
    type Out = Socket;

    fn connect(
        &self,
        details: &ConnectionDetails<'_>,
        _: Option<In>,
    ) -> Result<Option<Socket>, Error> {
        let mut last = Error::HostNotFound;
        for addr in &details.addrs {
            let connected = match details.timeout.not_zero() {
                Some(within) => TcpStream::connect_timeout(addr, *within),
                None => TcpStream::connect(addr),
            };
            match connected {
                Ok(stream) => {
                    let config = &details.config;
                    let (input, output) = (config.input_buffer_size(), config.output_buffer_size());
                    let buffers = LazyBuffers::new(input, output);
                    return Ok(Some(Socket { stream, buffers }));
                }
                Err(e) => last = timed(e, details.timeout),
            }
        }
        Err(last)
    }
}

/// A connection.
pub struct Socket {
    stream: TcpStream,
    buffers: LazyBuffers,
}

impl std::fmt::Debug for Socket {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Socket").field(&self.stream).finish()
    }
}

fn timed(e: std::io::Error, timeout: NextTimeout) -> Error {
    match e.kind() {
        ErrorKind::TimedOut => Error::Timeout(timeout.reason),
        _ => Error::Io(e),
    }
}

impl Transport for Socket {
    fn buffers(&mut self) -> &mut dyn Buffers {
        &mut self.buffers
    }

    fn transmit_output(&mut self, amount: usize, timeout: NextTimeout) -> Result<(), Error> {
        let timeout = timeout.for_write();
        self.stream
            .set_write_timeout(timeout.not_zero().map(|left| *left))?;
        let output = &self.buffers.output()[..amount];
        self.stream.write_all(output).map_err(|e| timed(e, timeout))
    }

    fn await_input(&mut self, timeout: NextTimeout) -> Result<bool, Error> {
        let timeout = timeout.for_read();
        self.stream
            .set_read_timeout(timeout.not_zero().map(|left| *left))?;
        let input = self.buffers.input_append_buf();
        let n = self.stream.read(input).map_err(|e| timed(e, timeout))?;
        self.buffers.input_appended(n);
        Ok(n > 0)
    }

    fn is_open(&mut self) -> bool {
        // An idle connection that has something to say, or to end, is of no use.
        let _ = self.stream.set_nonblocking(true);
        let quiet =
            matches!(self.stream.peek(&mut [0]), Err(e) if e.kind() == ErrorKind::WouldBlock);
        let _ = self.stream.set_nonblocking(false);
        quiet
    }
}

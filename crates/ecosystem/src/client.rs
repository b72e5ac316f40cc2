//! ureq over our sockets.

use std::io::{ErrorKind, Read, Write};
use std::time::{Duration, Instant};

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
        let end = details.timeout.not_zero().map(|all| Instant::now() + *all);
        for (i, addr) in details.addrs.iter().enumerate() {
            let connected = match end {
                Some(end) => {
                    let left = end.saturating_duration_since(Instant::now());
                    if left.is_zero() {
                        return Err(Error::Timeout(details.timeout.reason));
                    }
                    TcpStream::connect_timeout(addr, share(left, details.addrs.len() - i))
                }
                None => TcpStream::connect(addr),
            };
            match connected {
                Ok(stream) => {
                    stream.set_nodelay(details.config.no_delay())?;
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

/// What one of so many addresses gets of the time that is left for all: half of it, and the last one the rest. So an address where nobody answers
/// leaves time for the others.
fn share(left: Duration, addresses: usize) -> Duration {
    match addresses {
        1 => left,
        _ => (left / 2).max(Duration::from_nanos(1)), // 0 is refused
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

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::*};

    use runnext::net::TcpListener;
    use ureq::unversioned::resolver::DefaultResolver;

    use super::*;

    /// Each address had all of the time: with several that do not answer a request took several times as long as it may.
    #[test]
    fn addresses_share_the_time() {
        let second = Duration::from_secs(1);
        assert_eq!(share(second, 1), second);
        let mut left = second;
        for addresses in (1..=16).rev() {
            let one = share(left, addresses);
            assert!(!one.is_zero());
            left -= one;
        }
        assert!(left.is_zero());
        assert_eq!(share(Duration::from_nanos(1), 2), Duration::from_nanos(1));
    }

    /// Says of each connection whether what is written is sent at once: 2, and 1 if not.
    #[derive(Debug)]
    struct Observed(Arc<AtomicU32>);

    impl<In: Transport> Connector<In> for Observed {
        type Out = Socket;

        fn connect(
            &self,
            details: &ConnectionDetails<'_>,
            chained: Option<In>,
        ) -> Result<Option<Socket>, Error> {
            let made = Sockets.connect(details, chained)?;
            let at_once = made.as_ref().map(|made| made.stream.nodelay().unwrap());
            self.0
                .store(at_once.map_or(0, |on| 1 + u32::from(on)), SeqCst);
            Ok(made)
        }
    }

    /// It was never set, and small requests waited for the answer to what had gone before them.
    #[runnext::test]
    fn what_is_written_is_sent_at_once_if_that_is_wanted() {
        for wanted in [true, false] {
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let addr = listener.local_addr().unwrap();
            runnext::go(move || {
                let (mut stream, _) = listener.accept().unwrap();
                let _ = stream.read(&mut [0; 1024]);
                let _ = stream.write_all(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n");
            });
            let seen = Arc::<AtomicU32>::default();
            let config = ureq::Agent::config_builder().no_delay(wanted).build();
            let observed = Observed(Arc::clone(&seen));
            let agent = ureq::Agent::with_parts(config, observed, DefaultResolver::default());
            agent.get(format!("http://{addr}/")).call().unwrap();
            assert_eq!(seen.load(SeqCst), 1 + u32::from(wanted));
        }
    }
}

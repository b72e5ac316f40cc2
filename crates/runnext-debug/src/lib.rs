//! A debug endpoint for [runnext] programs, served by goroutines of the program itself.
//!
//! | path                        | what                                                                                  |
//! |-----------------------------|----------------------------------------------------------------------------------------|
//! | `/`                         | what there is                                                                           |
//! | `/metrics`                  | OpenMetrics, for Prometheus: the scheduler's counters, gauges and histograms; task groups |
//! | `/debug/vars`               | the same and more as JSON, in the manner of Go's expvar                                 |
//! | `/debug/goroutines`         | all goroutines, as Go shows them; `?format=json`; `?limit=n` (100,000 unless said)       |
//! | `/debug/trace?seconds=n`    | what happens in the next `n` seconds (up to 60), for Perfetto and `chrome://tracing`     |
//!
//! ```
//! use std::io::{Read, Write};
//!
//! #[runnext::main]
//! fn main() -> std::io::Result<()> {
//!     let debug = runnext_debug::serve("127.0.0.1:0")?; // or a port you can remember, as 6060
//!     println!("http://{}/metrics", debug.local_addr());
//!
//!     // What a browser would do:
//!     let mut client = runnext::net::TcpStream::connect(debug.local_addr())?;
//!     client.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//!     let mut page = String::new();
//!     client.read_to_string(&mut page)?;
//!     assert!(page.contains("/debug/trace"));
//!
//!     debug.stop();
//!     Ok(())
//! }
//! ```
//!
//! # Access
//! The answers reveal how the program is built and what it does, so [`serve`] accepts loopback addresses only; use [`Options::allow_remote`]
//! only if you control who can reach the port. Only GET is answered, and no request changes the program, except that a trace costs some time
//! while it is taken.
//!
//! # Bounds
//! At most 32 connections at once; requests of 16 KiB; ten seconds for their headers. When there are more, connections that for a tenth of
//! a second have neither waited for an answer nor read one are closed in favour of others, the idlest first, and so are connections that have
//! been reading one for ten seconds; the rest wait. An answer is made in memory before it is sent, and a client has a minute to take it. One dump and one
//! trace at a time, until the client has read it: a second is refused with 503. A trace has a million events, of all processors together; it
//! ends when its client disconnects.

#![forbid(unsafe_code)]

mod goroutines;
mod json;
mod metrics;
mod places;
mod router;
mod totals;
mod vars;

use std::convert::Infallible;
use std::future::poll_fn;
use std::io;
use std::net::{SocketAddr, ToSocketAddrs};
use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::Poll;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::Full;
use hyper::body::Incoming;
use hyper::header::{ALLOW, CACHE_CONTROL, CONTENT_TYPE, HeaderValue};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use runnext::context::Context;
use runnext::hyper::Timer;
use runnext::net::{TcpListener, TcpStream};
use runnext::time::Instant;
use runnext::{JoinHandle, block_on, blocking, go};

use places::{Place, Places, Taken, Wire};
use router::{Asked, Reply, State};

/// Connections served at once.
const CONNECTIONS: usize = 32;
/// The largest head of a request.
const HEAD_BYTES: usize = 16 << 10;
/// How long a client may take to send it.
const HEAD_TIME: Duration = Duration::from_secs(10);

/// How a [`Server`] is run.
///
/// # Example
/// ```
/// use runnext_debug::Options;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let options = Options::default(); // this machine's own addresses only
///     let (one, two) = (options.serve("127.0.0.1:0")?, options.serve("localhost:0")?);
///     assert!(two.local_addr().ip().is_loopback());
///     assert_ne!(one.local_addr(), two.local_addr());
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
#[must_use]
pub struct Options {
    remote: bool,
}

impl Options {
    /// Allows addresses that other machines can reach. Default: no.
    ///
    /// # Example
    /// ```
    /// use std::io::ErrorKind;
    /// use runnext_debug::Options;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let refused = Options::default().serve("0.0.0.0:0").unwrap_err();
    ///     assert_eq!(refused.kind(), ErrorKind::PermissionDenied);
    ///     // In a container, whose ports are open only where somebody opened them.
    ///     let debug = Options::default().allow_remote(true).serve("0.0.0.0:0")?;
    ///     assert!(debug.local_addr().ip().is_unspecified());
    ///     debug.stop();
    ///     Ok(())
    /// }
    /// ```
    pub fn allow_remote(mut self, yes: bool) -> Self {
        self.remote = yes;
        self
    }

    /// As [`serve`](fn@serve).
    ///
    /// # Errors
    /// As [`serve`](fn@serve).
    ///
    /// # Panics
    /// As [`serve`](fn@serve).
    ///
    /// # Example
    /// ```
    /// use runnext_debug::Options;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let debug = Options::default().serve(("127.0.0.1", 0))?;
    ///     // The port is its own.
    ///     assert!(Options::default().serve(debug.local_addr()).is_err());
    ///     debug.stop();
    ///     Ok(())
    /// }
    /// ```
    #[track_caller]
    pub fn serve(self, addr: impl ToSocketAddrs) -> io::Result<Server> {
        assert!(
            runnext::current().is_some(),
            "runnext_debug::serve called outside a runtime, so there is nobody to serve: call it from a goroutine (under \
             #[runnext::main], #[runnext::test] or Runtime::run)"
        );
        let addrs: Vec<SocketAddr> = blocking(|| addr.to_socket_addrs())?.collect();
        let refused = addrs.iter().find(|a| !self.remote && !a.ip().is_loopback());
        if let Some(addr) = refused {
            return Err(io::Error::new(
                io::ErrorKind::PermissionDenied,
                format!(
                    "{addr} can be reached from outside: a debug endpoint shows how the program works. Bind it to \
                     127.0.0.1 or [::1], or allow it with Options::default().allow_remote(true)"
                ),
            ));
        }
        let listener = TcpListener::bind(&addrs[..])?;
        let addr = listener.local_addr()?;
        let ends = Arc::new(AtomicBool::new(false));
        let places = Arc::new(Places::new(CONNECTIONS));
        let accepting = {
            let listener = listener.try_clone()?;
            let (ends, places) = (Arc::clone(&ends), Arc::clone(&places));
            go(move || accept(&listener, &ends, &places))
        };
        Ok(Server {
            addr,
            listener,
            ends,
            places,
            accepting,
        })
    }
}

/// Serves the debug endpoint at a loopback address, in goroutines of the current runtime. Port 0 is any free one
/// ([`Server::local_addr`] says which).
///
/// # Errors
/// `PermissionDenied` for an address that other machines can reach (see [`Options::allow_remote`]); the system's if the address
/// cannot be had.
///
/// # Panics
/// Outside a runtime, before anything is bound.
///
/// # Example
/// ```
/// use std::io::{Read, Write};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let debug = runnext_debug::serve("127.0.0.1:0")?;
///     let mut stream = runnext::net::TcpStream::connect(debug.local_addr())?;
///     stream.write_all(b"GET /metrics HTTP/1.0\r\n\r\n")?;
///     let mut reply = String::new();
///     stream.read_to_string(&mut reply)?;
///     assert!(reply.contains("runnext_goroutines"));
///     debug.stop();
///     Ok(())
/// }
/// ```
#[track_caller]
pub fn serve(addr: impl ToSocketAddrs) -> io::Result<Server> {
    Options::default().serve(addr)
}

/// A debug endpoint that is being served. Dropping it leaves it running.
///
/// # Example
/// ```
/// use std::io::{Read, Write};
/// use runnext::net::TcpStream;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let debug: runnext_debug::Server = runnext_debug::serve("127.0.0.1:0")?;
///     let mut client = TcpStream::connect(debug.local_addr())?;
///     client.write_all(b"GET /debug/goroutines HTTP/1.0\r\n\r\n")?;
///     let mut dump = String::new();
///     client.read_to_string(&mut dump)?;
///     assert!(dump.starts_with("HTTP/1.0 200") && dump.contains("spawned at"));
///     debug.stop();
///     Ok(())
/// }
/// ```
#[derive(Debug)]
pub struct Server {
    addr: SocketAddr,
    listener: TcpListener,
    ends: Arc<AtomicBool>,
    places: Arc<Places>,
    accepting: JoinHandle<()>,
}

impl Server {
    /// Where it is served.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let debug = runnext_debug::serve("127.0.0.1:0")?;
    ///     assert_ne!(debug.local_addr().port(), 0); // one that was free
    ///     println!("http://{}/", debug.local_addr());
    ///     debug.stop();
    ///     Ok(())
    /// }
    /// ```
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Accepts no more connections; the port is free when this returns. Of those that are open the idle ones are closed; where an answer is being
    /// made or sent it is served to its end, and nothing after it.
    ///
    /// # Blocks
    /// The goroutine, briefly.
    ///
    /// # Example
    /// ```
    /// use std::io::{Read, Write};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let debug = runnext_debug::serve("127.0.0.1:0")?;
    ///     let mut client = runnext::net::TcpStream::connect(debug.local_addr())?;
    ///     client.write_all(b"GET /debug/vars HTTP/1.0\r\n\r\n")?;
    ///     client.read_exact(&mut [0])?; // its turn has come
    ///     debug.stop();
    ///     let mut rest = String::new();
    ///     client.read_to_string(&mut rest)?;
    ///     assert!(rest.trim_end().ends_with('}')); // the whole of it
    ///     Ok(())
    /// }
    /// ```
    pub fn stop(self) {
        self.ends.store(true, SeqCst);
        // Ends the wait for a connection; it does not fail.
        let _ = self.listener.set_read_deadline(Some(Instant::now()));
        let _ = self.accepting.join();
        // Nobody takes another place after that.
        self.places.end();
    }
}

fn accept(listener: &TcpListener, ends: &AtomicBool, places: &Arc<Places>) {
    let state = Arc::new(State::default());
    for stream in listener.incoming() {
        if ends.load(SeqCst) {
            return;
        }
        let Ok(stream) = stream else {
            // Out of descriptors, most likely: not for ever.
            runnext::time::sleep(Duration::from_millis(50));
            continue;
        };
        let Some(taken) = places.take(|| ends.load(SeqCst)) else {
            return;
        };
        let state = Arc::clone(&state);
        go(move || connection(stream, &state, &taken));
    }
}

/// Serves a connection until its client goes, others need its place or the server is stopped.
fn connection(stream: TcpStream, state: &Arc<State>, taken: &Taken) {
    let place = &taken.place;
    let service = service_fn(|request| answer(Arc::clone(state), Arc::clone(place), request));
    let mut connection = pin!(
        http1::Builder::new()
            .timer(Timer::new())
            .header_read_timeout(HEAD_TIME)
            .max_buf_size(HEAD_BYTES)
            .serve_connection(Wire::new(stream, Arc::clone(place)), service)
    );
    let mut told = false;
    // A client that went away is none of our business.
    block_on(poll_fn(|cx| {
        if place.poll_closed(cx).is_ready() {
            return Poll::Ready(());
        }
        if !told && place.is_ending() {
            told = true;
            connection.as_mut().graceful_shutdown();
        }
        connection.as_mut().poll(cx).map(drop)
    }));
}

async fn answer(
    state: Arc<State>,
    place: Arc<Place>,
    request: Request<Incoming>,
) -> Result<Response<Full<Bytes>>, Infallible> {
    let _busy = place.busy();
    if *request.method() != Method::GET {
        let mut response = respond(Reply::refused(
            StatusCode::METHOD_NOT_ALLOWED,
            "only GET is answered here",
        ));
        let allowed = HeaderValue::from_static("GET");
        response.headers_mut().insert(ALLOW, allowed);
        return Ok(response);
    }
    let asked = Asked {
        path: request.uri().path().to_owned(),
        query: request.uri().query().unwrap_or("").to_owned(),
    };
    let waited_for = Context::background().with_cancel();
    let client = waited_for.clone();
    // hyper drops this future when the client goes.
    let _gone = Gone(waited_for);
    // In a goroutine: it may sleep, and gathering takes a while.
    let reply = go(move || state.answer(&asked, &client)).await;
    Ok(respond(reply.unwrap_or_else(|_| {
        Reply::refused(
            StatusCode::INTERNAL_SERVER_ERROR,
            "it panicked; stderr has the reason",
        )
    })))
}

/// Says, when it is dropped, that nobody waits for the answer.
struct Gone(Context);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.cancel();
    }
}

fn respond(reply: Reply) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(reply.body));
    *response.status_mut() = reply.status;
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(reply.kind));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

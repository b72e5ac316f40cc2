//! `Executor` and `Timer`.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use ::hyper::rt::{self, Sleep};

use crate::future::{self, spawn};
use crate::group::TaskGroup;

/// Runs what hyper wants to run beside a connection, as goroutines without a stack.
///
/// # Panics
/// When hyper uses it outside a runtime.
///
/// # Example
/// ```
/// use hyper::{Error, Request, Response, body::Incoming, client, server, service::service_fn};
/// use runnext::{block_on, net::UnixStream, spawn};
/// use runnext::hyper::{Executor, Io};
///
/// async fn echo(request: Request<Incoming>) -> Result<Response<Incoming>, Error> {
///     Ok(Response::new(request.into_body()))
/// }
///
/// #[runnext::main]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (near, far) = UnixStream::pair()?;
///     // HTTP/2 answers many requests at once on one connection: each is a goroutine.
///     spawn(server::conn::http2::Builder::new(Executor).serve_connection(Io::new(far), service_fn(echo)));
///     let response = block_on(async {
///         let (mut client, connection) = client::conn::http2::handshake(Executor, Io::new(near)).await?;
///         spawn(connection);
///         let request = Request::get("http://localhost/").body(String::new()).unwrap();
///         client.send_request(request).await
///     })?;
///     assert_eq!(response.status(), 200);
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl Executor {
    /// The same as `default`.
    ///
    /// # Example
    /// ```
    /// use hyper::rt::Executor as _;
    /// use runnext::{chan, hyper::Executor};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (answer, received) = chan::bounded(1);
    ///     Executor::new().execute(async move { answer.send(6 * 7) });
    ///     assert_eq!(received.recv(), Ok(42));
    /// }
    /// ```
    pub fn new() -> Executor {
        Executor
    }
}

impl<F> rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, fut: F) {
        drop(spawn(fut));
    }
}

/// Runs what hyper wants to run beside a connection in that group, wherever the connection is: each request of an HTTP/2 server, say.
///
/// # Panics
/// When hyper uses it outside a runtime, or another runtime uses the group.
///
/// # Example
/// ```
/// use hyper::{Error, Request, Response, body::Incoming, client, server, service::service_fn};
/// use runnext::{TaskGroup, block_on, net::UnixStream, spawn};
/// use runnext::hyper::{Executor, Io};
///
/// async fn who(_: Request<Incoming>) -> Result<Response<String>, Error> {
///     Ok(Response::new(TaskGroup::current().unwrap().name().to_owned()))
/// }
///
/// #[runnext::main]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     let (near, far) = UnixStream::pair()?;
///     let tenant = TaskGroup::builder("tenant").quota(0.5).build();
///     spawn(server::conn::http2::Builder::new(tenant).serve_connection(Io::new(far), service_fn(who)));
///     let response = block_on(async {
///         let (mut client, connection) = client::conn::http2::handshake(Executor, Io::new(near)).await?;
///         spawn(connection);
///         client.send_request(Request::get("http://localhost/").body(String::new()).unwrap()).await
///     })?;
///     assert_eq!(response.headers()["content-length"], "6"); // "tenant"
///     Ok(())
/// }
/// ```
impl<F> rt::Executor<F> for TaskGroup
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, fut: F) {
        drop(self.spawn(fut));
    }
}

/// The runtime's clock, for hyper's time-outs.
///
/// # Example
/// ```
/// use std::time::Duration;
/// use hyper::{Error, Request, Response, body::Incoming, server::conn::http1, service::service_fn};
/// use runnext::hyper::{Io, Timer};
/// use runnext::net::UnixStream;
///
/// async fn empty(_: Request<Incoming>) -> Result<Response<String>, Error> {
///     Ok(Response::default())
/// }
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let (_silent, far) = UnixStream::pair()?; // a client that asks nothing
///     let connection = http1::Builder::new()
///         .timer(Timer)
///         .header_read_timeout(Duration::from_millis(5))
///         .serve_connection(Io::new(far), service_fn(empty));
///     let ended = runnext::block_on(connection).unwrap_err();
///     assert!(ended.is_timeout());
///     Ok(())
/// }
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl Timer {
    /// The same as `default`.
    ///
    /// # Example
    /// ```
    /// use std::time::{Duration, Instant};
    /// use hyper::rt::Timer as _;
    /// use runnext::hyper::Timer;
    ///
    /// let start = Instant::now();
    /// runnext::block_on(Timer::new().sleep(Duration::from_millis(1)));
    /// assert!(start.elapsed() >= Duration::from_millis(1));
    /// ```
    pub fn new() -> Timer {
        Timer
    }
}

impl Sleep for future::Sleep {}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(future::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(future::sleep_until(deadline.into()))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<future::Sleep>() {
            Some(ours) => ours.get_mut().reset(new_deadline.into()),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

//! [hyper](https://docs.rs/hyper) 1 on goroutines: sockets, an executor and a timer for its `rt` traits.
//!
//! hyper's connections are futures. One may be given to [`block_on`](crate::block_on) in a goroutine of its own, or, for less memory, to
//! [`spawn`](crate::spawn). Handlers are async functions; a call that blocks in one blocks a thread (see [`future`](crate::future)), so make it in
//! a goroutine and await its handle.
//!
//! ```
//! # use std::convert::Infallible;
//! use hyper::{Request, Response, body::Incoming, server::conn::http1, service::service_fn};
//! use runnext::hyper::{Io, Timer};
//! use runnext::net::{TcpListener, TcpStream};
//!
//! async fn hello(_: Request<Incoming>) -> Result<Response<String>, Infallible> {
//!     Ok(Response::new("hello".to_owned()))
//! }
//!
//! fn serve(listener: TcpListener) {
//!     for stream in listener.incoming().flatten() {
//!         let connection = http1::Builder::new().timer(Timer::new()).serve_connection(Io::new(stream), service_fn(hello));
//!         runnext::spawn(connection);
//!     }
//! }
//!
//! #[runnext::main]
//! fn main() -> std::io::Result<()> {
//!     let listener = TcpListener::bind("127.0.0.1:0")?;
//!     let addr = listener.local_addr()?;
//!     runnext::go(move || serve(listener));
//!
//!     let mut stream = TcpStream::connect(addr)?;
//!     use std::io::{Read, Write};
//!     stream.write_all(b"GET / HTTP/1.0\r\n\r\n")?;
//!     let mut reply = String::new();
//!     stream.read_to_string(&mut reply)?;
//!     assert!(reply.ends_with("hello"));
//!     Ok(())
//! }
//! ```

mod io;
mod rt;

pub use io::Io;
pub use rt::{Executor, Timer};

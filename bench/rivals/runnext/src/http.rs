//! HTTP hello: hyper on runnext. Connections are goroutines without a stack, or with one (`kind=stack`).

use std::convert::Infallible;

use harness::{Args, http_load};
use http_body_util::Full;
use hyper::body::Bytes;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, body::Incoming};
use runnext::hyper::Io;
use runnext::net::{TcpListener, TcpStream};
use runnext::{Runtime, block_on, go, spawn};

async fn hello(_: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    Ok(Response::new(Full::new(Bytes::from_static(
        b"Hello, world!",
    ))))
}

async fn serve(stream: TcpStream) {
    let connection = http1::Builder::new()
        .pipeline_flush(true)
        .serve_connection(Io::new(stream), service_fn(hello));
    let _ = connection.await; // the client may go at any time
}

pub fn http(args: &Args, rt: &Runtime) -> ! {
    let stacks = args.text("kind", "future") == "stack";
    let addr = rt.run(move || {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let addr = listener.local_addr().expect("bound");
        go(move || {
            for stream in listener.incoming() {
                let stream = stream.expect("a connection");
                stream.set_nodelay(true).expect("a socket");
                if stacks {
                    go(move || block_on(serve(stream)));
                } else {
                    spawn(serve(stream));
                }
            }
        });
        addr
    });
    http_load(args, addr)
}

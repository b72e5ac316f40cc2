//! hyper 1 on runnext: both versions of HTTP, server and client, upgrades, bodies both ways at once, a graceful end.

use std::convert::Infallible;
use std::future::{Future, poll_fn};
use std::io::{self, Read, Write};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt;
use http_body_util::{BodyExt, Empty, Full, StreamBody, combinators::BoxBody};
use hyper::body::{Body, Frame, Incoming};
use hyper::client::conn;
use hyper::server::conn::{http1, http2};
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode, header};
use runnext::hyper::{Executor, Io, Timer};
use runnext::net::{SocketAddr, TcpListener, TcpStream};
use runnext::{block_on, chan, go, spawn};

type Boxed = BoxBody<Bytes, hyper::Error>;

fn full(text: impl Into<Bytes>) -> Boxed {
    Full::new(text.into()).map_err(|e| match e {}).boxed()
}

/// `/`: greets · `/echo`: the body, as it comes · `/slow`: later · `/stack`: from a goroutine that blocks · `/upgrade`: an echo
/// without HTTP.
async fn answer(request: Request<Incoming>) -> Result<Response<Boxed>, hyper::Error> {
    match (request.method(), request.uri().path()) {
        (&Method::GET, "/") => Ok(Response::new(full("hello"))),
        (&Method::POST, "/echo") => Ok(Response::new(request.into_body().boxed())),
        (&Method::GET, "/slow") => {
            runnext::future::sleep(Duration::from_millis(20)).await;
            Ok(Response::new(full("slow")))
        }
        (&Method::GET, "/stack") => {
            let blocking = go(|| {
                runnext::time::sleep(Duration::from_millis(1));
                "stack"
            });
            Ok(Response::new(full(blocking.await.unwrap())))
        }
        (&Method::GET, "/upgrade") => {
            spawn(echo_upgraded(request));
            let mut response = Response::new(full(""));
            *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
            let headers = response.headers_mut();
            headers.insert(header::UPGRADE, "echo".parse().unwrap());
            headers.insert(header::CONNECTION, "upgrade".parse().unwrap());
            Ok(response)
        }
        _ => {
            let mut response = Response::new(full(""));
            *response.status_mut() = StatusCode::NOT_FOUND;
            Ok(response)
        }
    }
}

async fn echo_upgraded(request: Request<Incoming>) {
    let upgraded = hyper::upgrade::on(request).await.unwrap();
    let parts = upgraded.downcast::<Io<TcpStream>>().unwrap();
    let mut stream = parts.io.into_inner();
    // No more HTTP, so a goroutine that reads and writes as goroutines do.
    go(move || {
        stream.write_all(&parts.read_buf).unwrap();
        io::copy(&mut stream.try_clone().unwrap(), &mut stream).unwrap();
    });
}

#[derive(Clone, Copy, PartialEq)]
enum Version {
    One,
    Two,
}

/// A server; its accept loop is a goroutine with a stack, connections have none.
fn serve(version: Version) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    go(move || {
        for stream in listener.incoming() {
            let io = Io::new(stream.unwrap());
            // Errors are the client's business here: some tests go away in the middle.
            match version {
                Version::One => {
                    let connection = http1::Builder::new()
                        .timer(Timer::new())
                        .serve_connection(io, service_fn(answer))
                        .with_upgrades();
                    drop(spawn(connection));
                }
                Version::Two => {
                    let connection = http2::Builder::new(Executor::new())
                        .timer(Timer::new())
                        .serve_connection(io, service_fn(answer));
                    drop(spawn(connection));
                }
            }
        }
    });
    addr
}

/// A client's connection. Its requests go through the closure.
enum Client<B> {
    One(conn::http1::SendRequest<B>),
    Two(conn::http2::SendRequest<B>),
}

impl<B> Client<B>
where
    B: Body<Data = Bytes> + Send + Unpin + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    async fn connect(version: Version, addr: SocketAddr) -> Client<B> {
        let io = Io::new(TcpStream::connect(addr).unwrap());
        match version {
            Version::One => {
                let (send, connection) = conn::http1::handshake(io).await.unwrap();
                spawn(connection.with_upgrades());
                Client::One(send)
            }
            Version::Two => {
                let (send, connection) = conn::http2::handshake(Executor::new(), io).await.unwrap();
                spawn(connection);
                Client::Two(send)
            }
        }
    }

    async fn send(&mut self, request: Request<B>) -> Response<Incoming> {
        match self {
            Client::One(send) => {
                send.ready().await.unwrap();
                send.send_request(request).await.unwrap()
            }
            Client::Two(send) => {
                send.ready().await.unwrap();
                send.send_request(request).await.unwrap()
            }
        }
    }
}

fn get(path: &str) -> Request<Empty<Bytes>> {
    Request::get(format!("http://host{path}"))
        .header(header::HOST, "host")
        .body(Empty::new())
        .unwrap()
}

async fn text(response: Response<Incoming>) -> String {
    let body = response.into_body().collect().await.unwrap().to_bytes();
    String::from_utf8(body.to_vec()).unwrap()
}

fn both(test: fn(Version)) {
    test(Version::One);
    test(Version::Two);
}

#[runnext::test]
fn requests_follow_each_other_on_one_connection() {
    both(|version| {
        let addr = serve(version);
        block_on(async {
            let mut client = Client::connect(version, addr).await;
            for _ in 0..20 {
                assert_eq!(text(client.send(get("/")).await).await, "hello");
            }
            assert_eq!(text(client.send(get("/slow")).await).await, "slow");
            assert_eq!(text(client.send(get("/stack")).await).await, "stack");
            assert_eq!(client.send(get("/none")).await.status(), 404);
        });
    });
}

#[runnext::test]
fn many_connections_at_once() {
    both(|version| {
        let addr = serve(version);
        let clients: Vec<_> = (0..50)
            .map(|i| {
                let client = async move {
                    let mut client = Client::connect(version, addr).await;
                    for _ in 0..5 {
                        assert_eq!(text(client.send(get("/")).await).await, "hello");
                    }
                };
                // Half of them on stacks.
                if i % 2 == 0 {
                    go(move || block_on(client))
                } else {
                    spawn(client)
                }
            })
            .collect();
        for client in clients {
            client.join().unwrap();
        }
    });
}

#[runnext::test]
fn bodies_flow_both_ways_at_once() {
    both(|version| {
        let addr = serve(version);
        block_on(async {
            let (frames, received) = chan::bounded::<Bytes>(1);
            let frames_in = futures_util::stream::unfold(received, |received| async {
                // A channel of ours in async code: a goroutine waits for it.
                let (received, next) = go(move || {
                    let next = received.recv();
                    (received, next)
                })
                .await
                .unwrap();
                next.ok()
                    .map(|bytes| (Ok::<_, Infallible>(Frame::data(bytes)), received))
            });
            let body = StreamBody::new(frames_in.boxed());
            let mut client = Client::connect(version, addr).await;
            let request = Request::post("http://host/echo")
                .header(header::HOST, "host")
                .body(body)
                .unwrap();
            // The first part has to be there before the server can answer.
            frames.send(Bytes::from_static(b"part 0")).unwrap();
            let mut echo = client.send(request).await.into_body();
            for i in 0..10 {
                let want = format!("part {i}");
                let mut got = Vec::new();
                while got.len() < want.len() {
                    let frame = echo.frame().await.expect("the body goes on").unwrap();
                    got.extend_from_slice(&frame.into_data().unwrap());
                }
                assert_eq!(got, want.as_bytes());
                // Only now the next: it cannot have been buffered anywhere.
                let frames = frames.clone();
                go(move || frames.send(format!("part {}", i + 1).into()).unwrap())
                    .await
                    .unwrap();
            }
            drop(frames);
            let rest = echo.collect().await.unwrap().to_bytes();
            assert_eq!(&rest[..], b"part 10");
        });
    });
}

#[runnext::test]
fn large_bodies_arrive_whole() {
    both(|version| {
        let addr = serve(version);
        let sent: Bytes = (0..3_000_000u32).map(|i| (i / 7) as u8).collect();
        block_on(async {
            let mut client = Client::connect(version, addr).await;
            let request = Request::post("http://host/echo")
                .header(header::HOST, "host")
                .body(Full::new(sent.clone()))
                .unwrap();
            let echo = client.send(request).await;
            assert_eq!(echo.into_body().collect().await.unwrap().to_bytes(), sent);
        });
    });
}

#[runnext::test]
fn an_upgraded_connection_is_a_plain_socket_again() {
    let addr = serve(Version::One);
    let upgraded = block_on(async {
        let mut client = Client::connect(Version::One, addr).await;
        let mut request = get("/upgrade");
        let headers = request.headers_mut();
        headers.insert(header::UPGRADE, "echo".parse().unwrap());
        headers.insert(header::CONNECTION, "upgrade".parse().unwrap());
        let response = client.send(request).await;
        assert_eq!(response.status(), StatusCode::SWITCHING_PROTOCOLS);
        hyper::upgrade::on(response).await.unwrap()
    });
    let parts = upgraded.downcast::<Io<TcpStream>>().unwrap();
    let mut stream = parts.io.into_inner();
    assert!(parts.read_buf.is_empty());
    for word in ["no", "more", "HTTP"] {
        stream.write_all(word.as_bytes()).unwrap();
        let mut echo = vec![0; word.len()];
        stream.read_exact(&mut echo).unwrap();
        assert_eq!(echo, word.as_bytes());
    }
}

#[runnext::test]
fn a_graceful_shutdown_finishes_what_has_begun() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let (begun, has_begun) = chan::bounded::<()>(1);
    let (stop, stopped) = chan::bounded::<()>(1);
    let server = go(move || {
        let (stream, _) = listener.accept().unwrap();
        let service = service_fn(move |_| {
            let begun = begun.clone();
            async move {
                begun.send(()).unwrap();
                runnext::future::sleep(Duration::from_millis(20)).await;
                Ok::<_, Infallible>(Response::new(full("last")))
            }
        });
        let connection = http1::Builder::new().serve_connection(Io::new(stream), service);
        let mut connection = pin!(connection);
        let mut stop = go(move || stopped.recv().unwrap());
        let mut told = false;
        block_on(poll_fn(move |cx| {
            if !told && Pin::new(&mut stop).poll(cx).is_ready() {
                told = true;
                connection.as_mut().graceful_shutdown();
            }
            connection.as_mut().poll(cx)
        }))
    });
    block_on(async {
        let mut client = Client::connect(Version::One, addr).await;
        let request = spawn(async move { client.send(get("/")).await });
        // Begun; then the server is told to stop.
        go(move || has_begun.recv().unwrap()).await.unwrap();
        stop.send(()).unwrap();
        let response = request.await.unwrap();
        assert_eq!(response.headers()[header::CONNECTION], "close");
        assert_eq!(text(response).await, "last");
    });
    server.join().unwrap().unwrap();
}

#[runnext::test]
fn the_timer_ends_a_client_that_says_nothing() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let patience = Duration::from_millis(30);
    let server = go(move || {
        let (stream, _) = listener.accept().unwrap();
        let connection = http1::Builder::new()
            .timer(Timer::new())
            .header_read_timeout(patience)
            .serve_connection(Io::new(stream), service_fn(answer));
        block_on(connection)
    });
    let start = Instant::now();
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"GET / HT").unwrap();
    let error = server.join().unwrap().unwrap_err();
    assert!(error.is_timeout(), "{error:?}");
    assert!(start.elapsed() >= patience);
}

#[runnext::test]
fn bad_clients_harm_nobody_else() {
    both(|version| {
        let addr = serve(version);
        for bytes in [
            &b""[..],
            b"GET / HT",
            b"\0\xff nonsense\r\n\r\n",
            b"POST /echo HTTP/1.1\r\nContent-Length: 9\r\n\r\nhalf",
        ] {
            let mut stream = TcpStream::connect(addr).unwrap();
            stream.write_all(bytes).unwrap();
            drop(stream);
        }
        block_on(async {
            let mut client = Client::connect(version, addr).await;
            assert_eq!(text(client.send(get("/")).await).await, "hello");
        });
    });
}

#[runnext::test]
fn a_dropped_client_ends_its_connection() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let served = Arc::new(AtomicUsize::new(0));
    let count = Arc::clone(&served);
    let server = go(move || {
        let (stream, _) = listener.accept().unwrap();
        let service = service_fn(move |_: Request<Incoming>| {
            count.fetch_add(1, Relaxed);
            async { Ok::<_, Infallible>(Response::new(full("hello"))) }
        });
        block_on(http1::Builder::new().serve_connection(Io::new(stream), service))
    });
    block_on(async {
        let mut client = Client::connect(Version::One, addr).await;
        assert_eq!(text(client.send(get("/")).await).await, "hello");
    });
    server.join().unwrap().unwrap();
    assert_eq!(served.load(Relaxed), 1);
}

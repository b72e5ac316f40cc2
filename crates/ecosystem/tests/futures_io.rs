//! futures-io's traits: the sockets in code that knows no runtime, and hyper over Unix sockets.

use std::convert::Infallible;
use std::io::ErrorKind;

use futures_util::io::{AsyncReadExt, AsyncWriteExt, copy};
use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, client, server::conn::http1};
use runnext::hyper::Io;
use runnext::net::{TcpListener, TcpStream, UnixStream};
use runnext::{block_on, spawn};

/// Says back what it hears, to the end.
async fn echo<S>(stream: S)
where
    S: futures_util::AsyncRead + futures_util::AsyncWrite + Send + Unpin,
{
    let (from, mut to) = stream.split();
    copy(from, &mut to).await.unwrap();
    to.close().await.unwrap();
}

/// Sends and receives at the same time, more than fits in between.
async fn talk<S>(stream: S)
where
    S: futures_util::AsyncRead + futures_util::AsyncWrite + Send + Unpin,
{
    let sent: Vec<u8> = (0..500_000u32).map(|i| (i / 3) as u8).collect();
    let (mut from, mut to) = stream.split();
    let mut heard = Vec::new();
    let send = async {
        to.write_all(&sent).await.unwrap();
        to.close().await.unwrap(); // a FIN: the other side sees the end
    };
    let receive = async { from.read_to_end(&mut heard).await.unwrap() };
    futures_util::future::join(send, receive).await;
    assert!(heard == sent);
}

#[runnext::test]
fn tcp_both_ways_at_once() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let talks: Vec<_> = (0..5)
        .map(|_| spawn(talk(TcpStream::connect(addr).unwrap())))
        .collect();
    for _ in 0..5 {
        spawn(echo(listener.accept().unwrap().0));
    }
    for talk in talks {
        talk.join().unwrap();
    }
}

#[runnext::test]
fn unix_sockets_and_references() {
    let (here, there) = UnixStream::pair().unwrap();
    let served = spawn(echo(there));
    block_on(talk(&here));
    served.join().unwrap();
    drop(here);
    // The other end is gone.
    let (here, there) = UnixStream::pair().unwrap();
    drop(there);
    let error = block_on((&here).write_all(b"x")).unwrap_err();
    assert_eq!(error.kind(), ErrorKind::BrokenPipe);
    assert_eq!(block_on((&here).read(&mut [0; 1])).unwrap(), 0);
}

#[test]
fn on_a_plain_thread_too() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    let server = std::thread::spawn(move || block_on(echo(listener.accept().unwrap().0)));
    block_on(talk(TcpStream::connect(addr).unwrap()));
    server.join().unwrap();
}

#[runnext::test]
fn hyper_over_unix_sockets() {
    let (here, there) = UnixStream::pair().unwrap();
    let service = service_fn(async |request: Request<Incoming>| {
        Ok::<_, Infallible>(Response::new(request.uri().path().to_owned()))
    });
    let server = spawn(http1::Builder::new().serve_connection(Io::new(there), service));
    block_on(async {
        let (mut send, connection) = client::conn::http1::handshake(Io::new(here)).await.unwrap();
        spawn(connection);
        let request = Request::get("/unix").body(Empty::<Bytes>::new()).unwrap();
        let response = send.send_request(request).await.unwrap();
        let body = response.into_body().collect().await.unwrap().to_bytes();
        assert_eq!(&body[..], b"/unix");
    });
    server.join().unwrap().unwrap();
}

/// Closing failed if the peer had reset the connection, though nothing was lost that was to be sent.
#[runnext::test]
fn closing_what_the_peer_has_reset_succeeds() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let mut here = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
    let (there, _) = listener.accept().unwrap();
    block_on(async {
        here.write_all(b"never read").await.unwrap();
        drop(there); // with something unread: a reset
        let reset = here.read(&mut [0; 1]).await.unwrap_err();
        assert_eq!(reset.kind(), ErrorKind::ConnectionReset);
        AsyncWriteExt::close(&mut &here).await.unwrap();
        here.close().await.unwrap();
    });
}

//! An HTTP/1 server through hyper: `cargo run -p ecosystem --example hyper_server [address]`. Without an address it asks itself
//! once, and ends.

use std::convert::Infallible;
use std::time::Duration;

use http_body_util::{BodyExt, Empty};
use hyper::body::{Bytes, Incoming};
use hyper::{Request, Response, client, server::conn::http1, service::service_fn};
use runnext::hyper::{Io, Timer};
use runnext::net::{TcpListener, TcpStream};
use runnext::{block_on, go, spawn};

async fn answer(request: Request<Incoming>) -> Result<Response<String>, Infallible> {
    // Code that blocks gets a stack; here it is only awaited.
    let greeting = go(move || {
        runnext::time::sleep(Duration::from_millis(1));
        format!("you asked for {}\n", request.uri().path())
    });
    Ok(Response::new(greeting.await.expect("no panic")))
}

fn serve(listener: TcpListener) {
    for stream in listener.incoming().flatten() {
        let connection = http1::Builder::new()
            .timer(Timer::new())
            .serve_connection(Io::new(stream), service_fn(answer));
        // A goroutine without a stack. Errors are the client's.
        spawn(connection);
    }
}

async fn ask(addr: std::net::SocketAddr) -> Result<String, Box<dyn std::error::Error>> {
    let io = Io::new(TcpStream::connect(addr)?);
    let (mut client, connection) = client::conn::http1::handshake(io).await?;
    spawn(connection);
    let request = Request::get("/tea").header("host", "here");
    let response = client
        .send_request(request.body(Empty::<Bytes>::new())?)
        .await?;
    let body = response.into_body().collect().await?.to_bytes();
    Ok(String::from_utf8(body.to_vec())?)
}

#[runnext::main]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let wanted = std::env::args().nth(1);
    let listener = TcpListener::bind(wanted.as_deref().unwrap_or("127.0.0.1:0"))?;
    let addr = listener.local_addr()?;
    if wanted.is_some() {
        println!("listening on http://{addr}");
        serve(listener);
        return Ok(());
    }
    go(move || serve(listener));
    print!("{}", block_on(ask(addr))?);
    Ok(())
}

//! rustls over our sockets, server and client: `cargo run -p ecosystem --example tls`.

use std::io::{self, Read, Write};

use ecosystem::certificates;
use runnext::go;
use runnext::net::{TcpListener, TcpStream};
use rustls::{ClientConnection, ServerConnection, StreamOwned};

fn serve(listener: TcpListener) -> io::Result<()> {
    let config = certificates::server();
    for stream in listener.incoming() {
        let session = ServerConnection::new(config.clone()).map_err(io::Error::other)?;
        let mut tls = StreamOwned::new(session, stream?);
        go(move || -> io::Result<()> {
            let mut name = [0; 16];
            let n = tls.read(&mut name)?;
            write!(tls, "hello, {}", String::from_utf8_lossy(&name[..n]))?;
            tls.conn.send_close_notify();
            tls.flush()
        });
    }
    Ok(())
}

#[runnext::main]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    go(move || serve(listener));
    let clients = ["Ada", "Grace", "Barbara"].map(|name| {
        go(move || -> io::Result<String> {
            let server = "localhost".try_into().map_err(io::Error::other)?;
            let session = ClientConnection::new(certificates::client(), server);
            let session = session.map_err(io::Error::other)?;
            let mut tls = StreamOwned::new(session, TcpStream::connect(addr)?);
            tls.write_all(name.as_bytes())?;
            let mut reply = String::new();
            tls.read_to_string(&mut reply)?;
            Ok(reply)
        })
    });
    for client in clients {
        println!("{}", client.join().expect("no panic")?);
    }
    Ok(())
}

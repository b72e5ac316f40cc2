//! tungstenite over our sockets, server and clients: `cargo run -p ecosystem --example websocket`.

use runnext::go;
use runnext::net::{TcpListener, TcpStream};
use tungstenite::{Message, WebSocket};

/// Says back what it hears, louder, until the client leaves.
fn shout(stream: TcpStream) -> tungstenite::Result<()> {
    let mut socket: WebSocket<TcpStream> = match tungstenite::accept(stream) {
        Ok(socket) => socket,
        Err(_) => return Ok(()), // it did not speak our language
    };
    while let Ok(message) = socket.read() {
        if let Message::Text(text) = message {
            socket.send(Message::text(text.to_uppercase()))?;
        }
    }
    Ok(())
}

#[runnext::main]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    go(move || {
        for stream in listener.into_incoming().flatten() {
            go(move || shout(stream));
        }
    });
    let clients: Vec<_> = (1..=3)
        .map(|i| {
            go(move || {
                let stream = TcpStream::connect(addr).expect("it listens");
                let (mut socket, _) =
                    tungstenite::client(format!("ws://{addr}/"), stream).expect("a WebSocket");
                socket
                    .send(Message::text(format!("client {i}")))
                    .expect("it is there");
                let reply = socket.read().expect("it answers");
                socket.close(None).expect("it is there");
                reply.to_string()
            })
        })
        .collect();
    for client in clients {
        println!("{}", client.join().expect("no panic"));
    }
    Ok(())
}

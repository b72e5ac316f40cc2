//! An echo server: a goroutine for each connection, plain reads and writes. Serves one client of its own, then ends.
//!
//! ```sh
//! cargo run --release -p runnext --example echo                     # tries itself
//! cargo run --release -p runnext --example echo -- 127.0.0.1:7007   # serves until it is stopped
//! ```

use std::io::{self, BufRead, BufReader, Read, Write};

use runnext::net::{TcpListener, TcpStream};
use runnext::{go, scope};

fn serve(listener: TcpListener) {
    for stream in listener.incoming() {
        match stream {
            Ok(stream) => drop(go(move || echo(stream))),
            Err(error) => eprintln!("accept: {error}"),
        }
    }
}

fn echo(mut stream: TcpStream) -> io::Result<()> {
    let mut buffer = [0; 4096];
    loop {
        match stream.read(&mut buffer)? {
            0 => return Ok(()),
            n => stream.write_all(&buffer[..n])?,
        }
    }
}

#[runnext::main]
fn main() -> io::Result<()> {
    let addr = std::env::args().nth(1);
    let listener = TcpListener::bind(addr.as_deref().unwrap_or("127.0.0.1:0"))?;
    let local = listener.local_addr()?;
    println!("listening on {local}");
    if addr.is_some() {
        serve(listener);
        return Ok(());
    }
    go(move || serve(listener));
    let clients = 100;
    scope(|s| {
        for client in 0..clients {
            s.go(move || {
                let mut stream = TcpStream::connect(local).unwrap();
                writeln!(stream, "hello from {client}").unwrap();
                let mut line = String::new();
                BufReader::new(stream).read_line(&mut line).unwrap();
                assert_eq!(line, format!("hello from {client}\n"));
            });
        }
    });
    println!("{clients} clients got their own words back");
    Ok(())
}

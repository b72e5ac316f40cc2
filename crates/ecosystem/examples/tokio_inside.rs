//! A future that needs tokio, in a goroutine: `cargo run -p ecosystem --example tokio_inside`.
//!
//! tokio's timers and sockets are driven by a thread of tokio's; the future itself runs here. Its handle is entered around each
//! poll (`OnTokio`), never over a park: it is a thread-local.

use std::io::{Read, Write};
use std::time::Duration;

use ecosystem::on_tokio::OnTokio;
use runnext::net::TcpListener;
use runnext::{block_on, go, spawn};
use tokio::io::{AsyncReadExt, AsyncWriteExt};

async fn talk(addr: std::net::SocketAddr) -> std::io::Result<String> {
    tokio::time::sleep(Duration::from_millis(1)).await;
    let mut stream = tokio::net::TcpStream::connect(addr).await?;
    stream.write_all(b"from tokio").await?;
    let mut reply = String::new();
    stream.read_to_string(&mut reply).await?;
    Ok(reply)
}

#[runnext::main]
fn main() -> std::io::Result<()> {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let addr = listener.local_addr()?;
    go(move || -> std::io::Result<()> {
        for stream in listener.incoming() {
            let mut stream = stream?;
            let mut heard = [0; 10];
            stream.read_exact(&mut heard)?;
            write!(
                stream,
                "a goroutine heard {:?}",
                String::from_utf8_lossy(&heard)
            )?;
        }
        Ok(())
    });
    // On a goroutine with a stack, and as one without.
    println!(
        "{}",
        block_on(OnTokio::new(tokio.handle().clone(), talk(addr)))?
    );
    let stackless = spawn(OnTokio::new(tokio.handle().clone(), talk(addr)));
    println!("{}", stackless.join().expect("no panic")?);
    // What tokio runs itself needs nothing: its handles are futures like others.
    println!("{}", block_on(tokio.spawn(talk(addr)))??);
    Ok(())
}

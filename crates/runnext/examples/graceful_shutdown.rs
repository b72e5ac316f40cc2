//! A graceful end: no new connections, those under way finish, whoever takes too long is given up and counted.
//!
//! ```sh
//! cargo run --release -p runnext --example graceful_shutdown
//! ```

use std::io::{self, Read, Write};
use std::sync::Arc;
use std::time::Duration;

use runnext::context::Context;
use runnext::net::{SocketAddr, TcpListener, TcpStream};
use runnext::{Runtime, go, time};

/// Starts a goroutine for each connection until the context ends.
fn serve(ctx: &Context, listener: TcpListener) {
    let listener = Arc::new(listener);
    let (accepting, done) = (Arc::clone(&listener), ctx.done());
    go(move || {
        let _ = done.recv(); // until it is closed
        accepting.set_read_deadline(Some(time::Instant::now())) // so that `accept` returns
    });
    loop {
        match listener.accept() {
            Ok((stream, _)) => drop(go(move || answer(stream))),
            Err(_) if ctx.err().is_some() => return,
            Err(error) => eprintln!("accept: {error}"),
        }
    }
}

/// Says that it has begun, and is done after as many tenths of a second as the client asks for.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut tenths = [0];
    stream.read_exact(&mut tenths)?;
    stream.write_all(b"begun, ")?;
    time::sleep(Duration::from_millis(100) * tenths[0].into());
    stream.write_all(b"done")
}

fn ask(addr: SocketAddr, tenths: u8) -> io::Result<TcpStream> {
    let mut stream = TcpStream::connect(addr)?;
    stream.write_all(&[tenths])?;
    stream.read_exact(&mut [0; 7]).map(|()| stream)
}

fn main() -> io::Result<()> {
    // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    let runtime = unsafe { Runtime::builder().build() }?;
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let (addr, ctx) = (listener.local_addr()?, Context::background().with_cancel());
    let inside = ctx.clone();
    runtime.go(move || serve(&inside, listener));
    let (soon, _late) = (ask(addr, 3)?, ask(addr, 255)?);
    ctx.cancel(); // as a handler of SIGTERM would
    println!("{:?}", runtime.shutdown(Duration::from_secs(1)));
    println!("one was {} meanwhile", io::read_to_string(soon)?);
    Ok(())
}

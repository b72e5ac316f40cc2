//! A graceful end: no new connections, those under way finish, whoever takes too long is given up and counted.
//!
//! ```sh
//! cargo run --release -p runnext --example graceful_shutdown
//! ```

use std::io::{self, Read, Write};
use std::time::Duration;

use runnext::context::Context;
use runnext::net::{SocketAddr, TcpListener, TcpStream};
use runnext::{Runtime, chan, go, select, time};

/// Starts a goroutine for each connection until the context ends.
fn serve(ctx: &Context, listener: TcpListener) {
    let (accepted, connections) = chan::bounded(0);
    go(move || (listener.incoming().flatten()).all(|stream| accepted.send(stream).is_ok()));
    let done = ctx.done();
    loop {
        select! {
            recv(connections) -> stream => match stream {
                Ok(stream) => drop(go(move || answer(stream))),
                Err(_) => return,
            },
            recv(done) -> _ => return,
        }
    }
}

/// Answers after as many tenths of a second as the client asks for.
fn answer(mut stream: TcpStream) -> io::Result<()> {
    let mut tenths = [0];
    stream.read_exact(&mut tenths)?;
    time::sleep(Duration::from_millis(100) * tenths[0].into());
    stream.write_all(b"done")
}

fn ask(addr: SocketAddr, tenths: u8) -> io::Result<String> {
    let mut stream = TcpStream::connect(addr)?;
    stream.write_all(&[tenths])?;
    io::read_to_string(stream)
}

fn main() -> io::Result<()> {
    // SAFETY: nothing here keeps a thread-local borrowed over a call that can park.
    let runtime = unsafe { Runtime::builder().build() }?;
    let listener = runtime.run(|| TcpListener::bind("127.0.0.1:0"))?;
    let (addr, ctx) = (listener.local_addr()?, Context::background().with_cancel());
    let inside = ctx.clone();
    runtime.go(move || serve(&inside, listener));
    let soon = runtime.go(move || ask(addr, 3));
    let _never = runtime.go(move || ask(addr, 255));
    std::thread::sleep(Duration::from_millis(100));
    ctx.cancel(); // as a handler of SIGTERM would
    println!("{:?}", runtime.shutdown(Duration::from_millis(500)));
    println!("answered during the shutdown: {:?}", soon.join().unwrap());
    Ok(())
}

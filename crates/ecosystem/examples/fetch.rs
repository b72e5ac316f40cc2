//! ureq, a blocking client, over our sockets: a hundred requests at once. `cargo run -p ecosystem --example fetch`.

use std::io::{BufRead, BufReader, Write};
use std::time::{Duration, Instant};

use ecosystem::client::Sockets;
use runnext::net::TcpListener;
use runnext::{go, time};
use ureq::unversioned::resolver::DefaultResolver;

const PAUSE: Duration = Duration::from_millis(50);

/// A slow web server, by hand.
fn serve(listener: TcpListener) {
    for stream in listener.into_incoming().flatten() {
        go(move || {
            let mut lines = BufReader::new(&stream).lines();
            while lines
                .next()
                .is_some_and(|line| line.is_ok_and(|l| !l.is_empty()))
            {}
            time::sleep(PAUSE);
            let reply = "HTTP/1.1 200 OK\r\nContent-Length: 5\r\nConnection: close\r\n\r\nhello";
            (&stream).write_all(reply.as_bytes())
        });
    }
}

#[runnext::main]
fn main() -> Result<(), Box<dyn std::error::Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let url = format!("http://{}/", listener.local_addr()?);
    go(move || serve(listener));
    let agent = ureq::Agent::with_parts(Default::default(), Sockets, DefaultResolver::default());
    let start = Instant::now();
    let requests: Vec<_> = (0..100)
        .map(|_| {
            let (agent, url) = (agent.clone(), url.clone());
            go(move || agent.get(url).call()?.body_mut().read_to_string())
        })
        .collect();
    for request in requests {
        assert_eq!(request.join().expect("no panic")?, "hello");
    }
    let took = start.elapsed();
    println!("100 requests of {PAUSE:?} each took {took:?}");
    Ok(())
}

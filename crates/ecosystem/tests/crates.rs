//! Crates that know nothing of goroutines, over our sockets and in our goroutines.

use std::collections::BTreeMap;
use std::io::{BufRead, BufReader, ErrorKind, Read, Write};
use std::sync::Arc;
use std::time::{Duration, Instant};

use ecosystem::certificates;
use ecosystem::client::Sockets;
use ecosystem::on_tokio::OnTokio;
use futures_util::{SinkExt, StreamExt};
use runnext::net::{SocketAddr, TcpListener, TcpStream};
use runnext::{block_on, go, spawn, sync, time};
use rustls::{ClientConnection, ServerConnection, StreamOwned};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio_util::codec::{Framed, LengthDelimitedCodec};
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tokio_util::time::DelayQueue;
use tungstenite::Message;

/// Serves each connection in a goroutine of its own.
fn serve(handle: impl Fn(TcpStream) + Clone + Send + 'static) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = listener.local_addr().unwrap();
    go(move || {
        for stream in listener.incoming() {
            let (stream, handle) = (stream.unwrap(), handle.clone());
            go(move || handle(stream));
        }
    });
    addr
}

/// Runs `client` in so many goroutines at once, and waits for all.
fn many(n: usize, client: impl Fn(usize) + Clone + Send + 'static) {
    let all: Vec<_> = (0..n)
        .map(|i| {
            let client = client.clone();
            go(move || client(i))
        })
        .collect();
    for one in all {
        one.join().unwrap();
    }
}

// ---- rustls ----

fn echo_over_tls() -> SocketAddr {
    let config = certificates::server();
    serve(move |stream| {
        let session = ServerConnection::new(Arc::clone(&config)).unwrap();
        let mut tls = StreamOwned::new(session, stream);
        let mut buf = [0; 4096];
        loop {
            match tls.read(&mut buf) {
                Ok(0) => break,
                Ok(n) => tls.write_all(&buf[..n]).unwrap(),
                Err(_) => return, // it speaks no TLS, or left in the middle: its own business
            }
        }
        tls.conn.send_close_notify();
        let _ = tls.flush();
    })
}

fn tls(addr: SocketAddr) -> StreamOwned<ClientConnection, TcpStream> {
    let name = "localhost".try_into().unwrap();
    let session = ClientConnection::new(certificates::client(), name).unwrap();
    StreamOwned::new(session, TcpStream::connect(addr).unwrap())
}

#[runnext::test]
fn rustls_server_and_client() {
    let addr = echo_over_tls();
    many(20, move |i| {
        let mut tls = tls(addr);
        for round in 0..5 {
            let said = format!("{i} says {round}");
            tls.write_all(said.as_bytes()).unwrap();
            let mut heard = vec![0; said.len()];
            tls.read_exact(&mut heard).unwrap();
            assert_eq!(heard, said.as_bytes());
        }
        tls.conn.send_close_notify();
        tls.flush().unwrap();
        assert_eq!(tls.read(&mut [0; 1]).unwrap(), 0, "it says goodbye, too");
    });
}

#[runnext::test]
fn rustls_both_directions_and_bad_peers() {
    let addr = echo_over_tls();
    // Nonsense, and nothing at all.
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"GET / HTTP/1.0\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    let _ = stream.read_to_end(&mut answer);
    assert_eq!(answer.first(), Some(&21), "an alert, then the end");
    drop(TcpStream::connect(addr).unwrap());
    // More than fits in the buffers between the two: one goroutine writes, the other reads.
    let tls = Arc::new(sync::Mutex::new(tls(addr)));
    let sent: Vec<u8> = (0..200_000u32).map(|i| i as u8).collect();
    let mut heard = Vec::new();
    for chunk in sent.chunks(8000) {
        let mut tls = tls.lock();
        tls.write_all(chunk).unwrap();
        let mut back = vec![0; chunk.len()];
        tls.read_exact(&mut back).unwrap();
        heard.extend(back);
    }
    assert!(heard == sent);
    // A certificate for somebody else.
    let name = "example.org".try_into().unwrap();
    let session = ClientConnection::new(certificates::client(), name).unwrap();
    let mut wrong = StreamOwned::new(session, TcpStream::connect(addr).unwrap());
    assert_eq!(
        wrong.write_all(b"x").unwrap_err().kind(),
        ErrorKind::InvalidData
    );
}

// ---- tungstenite ----

#[runnext::test]
fn tungstenite_server_and_client() {
    let addr = serve(|stream| {
        let Ok(mut socket) = tungstenite::accept(stream) else {
            return;
        };
        loop {
            match socket.read() {
                Ok(message @ (Message::Text(_) | Message::Binary(_))) => {
                    socket.send(message).unwrap()
                }
                Ok(_) => {}
                Err(_) => return,
            }
        }
    });
    many(20, move |i| {
        let stream = TcpStream::connect(addr).unwrap();
        let (mut socket, response) = tungstenite::client("ws://localhost/", stream).unwrap();
        assert_eq!(response.status(), 101);
        for round in 0..5 {
            let said = Message::text(format!("{i} says {round}"));
            socket.send(said.clone()).unwrap();
            assert_eq!(socket.read().unwrap(), said);
        }
        socket.send(Message::Ping(b"there?"[..].into())).unwrap();
        assert_eq!(socket.read().unwrap(), Message::Pong(b"there?"[..].into()));
        let big = Message::binary(vec![7; 300_000]);
        socket.send(big.clone()).unwrap();
        assert_eq!(socket.read().unwrap(), big);
        socket.close(None).unwrap();
        while socket.read().is_ok() {}
    });
    // Half a handshake, and a frame that never ends.
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(b"GET / HTTP/1.1\r\nUpgr").unwrap();
    drop(stream);
    let (mut socket, _) =
        tungstenite::client("ws://localhost/", TcpStream::connect(addr).unwrap()).unwrap();
    socket.get_mut().write_all(&[0x82, 0xfe]).unwrap();
    drop(socket);
}

// ---- ureq ----

/// HTTP by hand: enough for a client. `/slow` takes its time.
fn web() -> SocketAddr {
    serve(|stream| {
        let mut lines = BufReader::new(&stream).lines();
        while let Some(Ok(first)) = lines.next() {
            while lines
                .next()
                .is_some_and(|line| line.is_ok_and(|l| !l.is_empty()))
            {}
            let path = first.split(' ').nth(1).unwrap_or("/").to_owned();
            if path == "/slow" {
                time::sleep(Duration::from_secs(5));
            }
            let reply = format!(
                "HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{path}",
                path.len()
            );
            if (&stream).write_all(reply.as_bytes()).is_err() {
                return;
            }
        }
    })
}

fn agent(timeout: Option<Duration>) -> ureq::Agent {
    let config = ureq::Agent::config_builder()
        .timeout_global(timeout)
        .build();
    let resolver = ureq::unversioned::resolver::DefaultResolver::default();
    ureq::Agent::with_parts(config, Sockets, resolver)
}

#[runnext::test]
fn ureq_over_our_sockets() {
    let addr = web();
    let ours = agent(None);
    many(20, move |i| {
        for round in 0..5 {
            let mut response = ours
                .get(format!("http://{addr}/{i}/{round}"))
                .call()
                .unwrap();
            assert_eq!(
                response.body_mut().read_to_string().unwrap(),
                format!("/{i}/{round}")
            );
        }
    });
    let patience = Duration::from_millis(50);
    let start = Instant::now();
    let error = agent(Some(patience))
        .get(format!("http://{addr}/slow"))
        .call()
        .unwrap_err();
    assert!(matches!(error, ureq::Error::Timeout(_)), "{error:?}");
    assert!(start.elapsed() >= patience);
    let closed = TcpListener::bind("127.0.0.1:0")
        .unwrap()
        .local_addr()
        .unwrap();
    assert!(agent(None).get(format!("http://{closed}/")).call().is_err());
}

/// Its own sockets block threads, which the runtime replaces: on one P, server and clients get along.
#[runnext::test(procs = 1)]
fn ureq_as_it_is() {
    let addr = web();
    many(4, move |i| {
        let mut response = ureq::get(format!("http://{addr}/{i}")).call().unwrap();
        assert_eq!(
            response.body_mut().read_to_string().unwrap(),
            format!("/{i}")
        );
    });
}

// ---- tokio ----

/// A runtime of tokio's, and a server of ours that says what it hears.
fn tokio_and_echo() -> (tokio::runtime::Runtime, SocketAddr) {
    let tokio = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(1)
        .enable_all()
        .build()
        .unwrap();
    let addr = serve(|mut stream| {
        let _ = std::io::copy(&mut stream.try_clone().unwrap(), &mut stream);
    });
    (tokio, addr)
}

#[runnext::test]
fn futures_of_tokio_run_in_goroutines() {
    let (tokio, addr) = tokio_and_echo();
    let handle = tokio.handle().clone();
    let talk = move |i: usize| async move {
        let nap = Duration::from_millis(2);
        let start = Instant::now();
        tokio::time::sleep(nap).await;
        assert!(start.elapsed() >= nap);
        let mut stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        for round in 0..5 {
            let said = format!("{i} says {round}");
            stream.write_all(said.as_bytes()).await.unwrap();
            let mut heard = vec![0; said.len()];
            stream.read_exact(&mut heard).await.unwrap();
            assert_eq!(heard, said.as_bytes());
            runnext::future::sleep(Duration::from_micros(100)).await; // ours among theirs
        }
        assert!(runnext::current().is_some(), "it runs in a goroutine");
    };
    let all: Vec<_> = (0..20)
        .map(|i| {
            let task = OnTokio::new(handle.clone(), talk(i));
            if i % 2 == 0 {
                spawn(task)
            } else {
                go(move || block_on(task))
            }
        })
        .collect();
    for one in all {
        one.join().unwrap();
    }
    // And the other way: what tokio runs, awaited here; what we run, awaited there.
    assert_eq!(block_on(handle.spawn(async { 42 })).unwrap(), 42);
    let ours = go(|| 43);
    assert_eq!(block_on(handle.spawn(ours)).unwrap().unwrap(), 43);
    assert_eq!(runnext::hazard::reported(), 0);
    drop(tokio);
}

/// What a future holds was dropped outside of tokio's context, where much of tokio panics.
#[runnext::test]
fn what_a_future_of_tokio_holds_is_dropped_in_its_context() {
    struct Held(std::sync::mpsc::Sender<bool>);
    impl Drop for Held {
        fn drop(&mut self) {
            let _ = self.0.send(tokio::runtime::Handle::try_current().is_ok());
        }
    }
    let (tokio, _) = tokio_and_echo();
    let (tell, told) = std::sync::mpsc::channel();
    let held = Held(tell);
    let future = OnTokio::new(tokio.handle().clone(), async move { drop(held) });
    drop(future); // it was never polled
    assert!(told.recv().unwrap());
}

/// A crate that knows tokio only: its codecs over tokio's sockets, its queue over tokio's timers, its tokens with tokio's tasks.
#[runnext::test]
fn a_crate_built_on_tokio_runs_in_goroutines() {
    let (tokio, addr) = tokio_and_echo();
    let handle = tokio.handle().clone();
    let (token, tracker) = (CancellationToken::new(), TaskTracker::new());
    let talk = move |i: u64, stop: CancellationToken| async move {
        let stream = tokio::net::TcpStream::connect(addr).await.unwrap();
        let mut frames = Framed::new(stream, LengthDelimitedCodec::new());
        let mut later = DelayQueue::new();
        for round in 0..3 {
            later.insert(format!("{i} says {round}"), Duration::from_millis(round));
        }
        let mut heard = Vec::new();
        while let Some(due) = later.next().await {
            let said: bytes::Bytes = due.into_inner().into();
            frames.send(said).await.unwrap();
            heard.push(frames.next().await.unwrap().unwrap());
        }
        assert!(stop.run_until_cancelled(frames.next()).await.is_none());
        assert!(runnext::current().is_some(), "it runs in a goroutine");
        heard
    };
    let all: Vec<_> = (0..10)
        .map(|i| {
            let task = tracker.track_future(talk(i, token.clone()));
            let task = OnTokio::new(handle.clone(), task);
            match i % 2 {
                0 => spawn(task),
                _ => go(move || block_on(task)),
            }
        })
        .collect();
    tracker.close();
    // Once all have said what they had to, they wait for what never comes.
    let canceler = OnTokio::new(handle, async move {
        tokio::time::sleep(Duration::from_millis(20)).await;
        token.cancel();
        tracker.wait().await;
    });
    spawn(canceler).join().unwrap();
    for (i, one) in all.into_iter().enumerate() {
        let said = [0, 1, 2].map(|round| format!("{i} says {round}"));
        assert_eq!(one.join().unwrap(), said);
    }
    assert_eq!(runnext::hazard::reported(), 0);
}

// ---- rusqlite ----

#[runnext::test]
fn rusqlite_in_goroutines() {
    let dir = std::env::temp_dir().join(format!("runnext-sqlite-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let path = dir.join("test.db");
    let open = {
        let path = path.clone();
        move || {
            let db = rusqlite::Connection::open(&path).unwrap();
            db.busy_timeout(Duration::from_secs(30)).unwrap();
            db
        }
    };
    open()
        .execute_batch("PRAGMA journal_mode=WAL; CREATE TABLE said (who INTEGER, what TEXT);")
        .unwrap();
    many(8, {
        let open = open.clone();
        move |i| {
            let db = open();
            // SQLite calls back into Rust, in the middle of C frames, and that may park.
            db.create_scalar_function(
                "shout",
                1,
                rusqlite::functions::FunctionFlags::SQLITE_UTF8,
                |ctx| {
                    time::sleep(Duration::from_micros(50));
                    Ok(ctx.get::<String>(0)?.to_uppercase())
                },
            )
            .unwrap();
            for round in 0..5 {
                let sql = "INSERT INTO said VALUES (?1, shout(?2))";
                runnext::blocking(|| db.execute(sql, (i, format!("word {round}")))).unwrap();
            }
        }
    });
    let db = open();
    let mut query = db
        .prepare("SELECT who, count(*), min(what) FROM said GROUP BY who")
        .unwrap();
    let rows = query
        .query_map([], |row| Ok((row.get(0)?, (row.get(1)?, row.get(2)?))))
        .unwrap();
    let counts: BTreeMap<usize, (usize, String)> = rows.map(Result::unwrap).collect();
    assert_eq!(counts.len(), 8);
    assert!(
        counts
            .values()
            .all(|(n, first)| *n == 5 && first == "WORD 0"),
        "{counts:?}"
    );
    drop(query);
    drop(db);
    std::fs::remove_dir_all(dir).unwrap();
}

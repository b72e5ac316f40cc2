//! Echo, idle connections, storms.

use std::thread;
use std::time::Duration;

use harness::{Args, Report, now_ns};

use crate::conn::{Conn, Ready};
use crate::server::Server;

/// Requests per second, latency, and the server's CPU time for each.
pub fn echo(args: &Args) {
    let server = Server::find(args);
    let size = args.get("size", 64);
    let warm = (args.get("warm", 1.0_f64) * 1e9) as u64;
    let span = (args.get("seconds", 4.0_f64) * 1e9) as u64;
    let (message, mut buf) = (vec![7; size], vec![0; size]);
    let mut ready = Ready::new();
    let mut conns = Conn::open_all(server.addr, args.get("conns", 64));
    for (id, conn) in conns.iter_mut().enumerate() {
        ready.add(conn, id);
        conn.sent_at = now_ns();
        conn.send(&message);
    }
    let begin = now_ns() + warm;
    let mut latency: Vec<f64> = Vec::with_capacity(4_000_000);
    let mut cpu = None;
    loop {
        let now = now_ns();
        if now >= begin && cpu.is_none() {
            cpu = Some(server.cpu());
        }
        if now >= begin + span {
            break;
        }
        for id in ready.wait(1_000_000_000) {
            let conn = &mut conns[id];
            if conn.receive(&mut buf, size) {
                let now = now_ns();
                if cpu.is_some() {
                    latency.push((now - conn.sent_at) as f64 / 1e3);
                }
                conn.sent_at = now;
                conn.send(&message);
            }
        }
    }
    let (requests, seconds) = (latency.len() as f64, span as f64 / 1e9);
    let cpu = server.cpu() - cpu.unwrap_or(0.0);
    Report::new("echo")
        .put("per_s", requests / seconds)
        .percentiles("us_", &mut latency)
        .put("server_cpu_us", cpu * 1e6 / requests)
        .print_and_exit()
}

/// What a connection costs the server that waits.
pub fn connections(args: &Args) {
    let server = Server::find(args);
    let n = args.get("n", 10_000);
    let mut buf = [0];
    // What the first connections bring into memory is not per connection.
    let mut conns = Conn::open_all(server.addr, 100);
    exchange(&mut conns, &mut buf);
    let before = server.memory();
    let first = conns.len();
    for _ in 0..n / 100 {
        conns.extend(Conn::open_all(server.addr, 100));
        let last = conns.len() - 100;
        exchange(&mut conns[last..], &mut buf);
    }
    thread::sleep(Duration::from_millis(500));
    let grown = server.memory().saturating_sub(before);
    let each = grown as f64 / (conns.len() - first) as f64;
    Report::new("connections")
        .put("bytes_per_connection", each)
        .print_and_exit()
}

fn exchange(conns: &mut [Conn], buf: &mut [u8]) {
    for conn in conns.iter_mut() {
        conn.stream.set_nonblocking(false).expect("blocking");
        conn.send(&[1]);
    }
    for conn in conns {
        assert!(conn.receive(buf, 1), "one byte comes back");
    }
}

/// Connections that come and go: how fast, how many descriptors stay.
pub fn storm(args: &Args) {
    let server = Server::find(args);
    let (n, width) = (args.get("n", 2_000), args.get("width", 100));
    let mut buf = [0; 16];
    exchange(&mut [Conn::open(server.addr)], &mut buf[..1]);
    thread::sleep(Duration::from_millis(200));
    let fds = server.sockets();
    let (start, mut done, mut served) = (now_ns(), 0, 0);
    while done < n {
        let now = width.min(n - done);
        let mut wave: Vec<Conn> = (0..now).map(|_| Conn::open(server.addr)).collect();
        exchange(&mut wave, &mut buf[..1]);
        served += wave.len();
        done += now;
    }
    let seconds = (now_ns() - start) as f64 / 1e9;
    let mut left = usize::MAX;
    for _ in 0..100 {
        thread::sleep(Duration::from_millis(20));
        left = server.sockets().saturating_sub(fds);
        if left == 0 {
            break;
        }
    }
    Report::new("storm")
        .put("per_s", n as f64 / seconds)
        .put("lost", (n - served) as f64)
        .put("leaked_fds", left as f64)
        .print_and_exit()
}

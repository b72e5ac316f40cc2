//! The mixed load over TCP: light requests arrive at fixed random times, whether or not the ones before are answered; heavy
//! clients send the next when the last is answered, after a pause.
//!
//! A request is one byte: `l` costs the server 50 µs of CPU, `h` 30 ms; the answer is the same byte. Latency counts from the
//! *scheduled* arrival; what is unanswered at the end counts with the time it had waited.

use harness::{Args, Report, Rng, now_ns, real_time};

use crate::conn::{Conn, Ready};
use crate::server::Server;

pub fn tail(args: &Args) {
    let server = Server::find(args);
    let (lanes, clients) = (args.get("lanes", 256_usize), args.get("clients", 8_usize));
    let think = args.get("think_us", 1_000_u64) * 1_000;
    let mut ready = Ready::new();
    let mut conns = Conn::open_all(server.addr, lanes + clients);
    real_time(); // a late client is not a slow server; refused without privilege
    let begin = now_ns() + 500_000_000;
    let end = begin + (args.get("seconds", 10.0_f64) * 1e9) as u64;
    for (id, conn) in conns.iter().enumerate() {
        ready.add(conn, id);
    }
    let arrivals = arrivals(args, begin, end);
    let mut next = 0;
    let mut resume: Vec<u64> = vec![now_ns(); clients];
    let mut busy: Vec<Option<u64>> = vec![None; lanes];
    let mut heavy = vec![0_u64; clients];
    let (mut latency, mut overflow) = (Vec::with_capacity(arrivals.len()), 0);
    let mut buf = [0];
    loop {
        let now = now_ns();
        if now >= end {
            break;
        }
        while next < arrivals.len() && arrivals[next] <= now {
            let lane = next % lanes;
            if busy[lane].is_some() {
                overflow += 1;
            } else {
                busy[lane] = Some(arrivals[next]);
                conns[lane].send(b"l");
            }
            next += 1;
        }
        for client in 0..clients {
            if resume[client] <= now {
                resume[client] = u64::MAX;
                conns[lanes + client].send(b"h");
            }
        }
        let soonest = resume.iter().chain(arrivals.get(next)).min();
        let wait = soonest.map_or(end, |&at| at.min(end)).saturating_sub(now);
        for id in ready.wait(wait) {
            if !conns[id].receive(&mut buf, 1) {
                continue;
            }
            let now = now_ns();
            if id >= lanes {
                heavy[id - lanes] += u64::from(now >= begin);
                resume[id - lanes] = now + think;
            } else if let Some(arrival) = busy[id].take() {
                latency.push((now - arrival) as f64 / 1e6);
            }
        }
    }
    let late = busy.iter().flatten().map(|&at| (end - at) as f64 / 1e6);
    latency.extend(late);
    let seconds = (end - begin) as f64 / 1e9;
    let (min, max) = (heavy.iter().min().copied(), heavy.iter().max().copied());
    Report::new("tailtcp")
        .percentiles("light_ms_", &mut latency)
        .put("overflow", f64::from(overflow))
        .put("heavy_per_s", heavy.iter().sum::<u64>() as f64 / seconds)
        .put(
            "fair",
            min.unwrap_or(0) as f64 / max.unwrap_or(1).max(1) as f64,
        )
        .print_and_exit()
}

fn arrivals(args: &Args, begin: u64, end: u64) -> Vec<u64> {
    let rate: f64 = args.get("rate", 200.0);
    let mut dice = Rng::new(args.get("seed", 1));
    let mut at = begin as f64;
    std::iter::from_fn(|| {
        at += -dice.unit().ln() / rate * 1e9;
        (at < end as f64).then_some(at as u64)
    })
    .collect()
}

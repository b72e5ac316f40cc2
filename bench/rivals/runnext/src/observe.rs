//! What being watched costs: the flight recorder beside nothing, a dump, the export of a trace, a scrape.

use std::future::pending;
use std::hint::black_box;
use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use harness::{Args, Report};
use runnext::trace::{self, Options};
use runnext::{Runtime, TaskGroup, chan, dump, go, scope, yield_now};

pub fn run(args: &Args, rt: &Runtime) {
    match args.scenario.as_str() {
        "recorder" => recorder(args, rt),
        "dump" => dump_all(args, rt),
        "export" => export(args, rt),
        _ => scrape(args, rt),
    }
}

/// One round of a workload that switches, spawns or talks; how long it took.
fn round(what: &str, n: usize) -> Duration {
    let begin = Instant::now();
    match what {
        "spawn" => (0..n).for_each(|i| drop(go(move || i).join())),
        "pingpong" => {
            let ((there, rx), (tx, here)) = (chan::bounded(0), chan::bounded(0));
            let other = go(move || rx.iter().for_each(|n: usize| tx.send(n).unwrap()));
            for i in 0..n {
                there.send(i).unwrap();
                here.recv().unwrap();
            }
            drop(there);
            other.join().unwrap();
        }
        _ => scope(|s| {
            for _ in 0..2 {
                s.go(|| (0..n).for_each(|_| yield_now()));
            }
        }),
    }
    begin.elapsed()
}

/// With the flight recorder and without, in turn; the best of each.
fn recorder(args: &Args, rt: &Runtime) {
    let what = args.text("what", "yield").to_owned();
    let (n, rounds) = (args.get("n", 500_000_usize), args.get("rounds", 9_usize));
    let events = args.get("events", 1_usize << 14);
    let (off, on) = rt.run(move || {
        round(&what, n);
        let mut best = [Duration::MAX; 2];
        for i in 0..2 * rounds {
            if i % 2 == 1 {
                trace::start_flight_recorder(Options::default().events_per_proc(events))
                    .expect("none runs");
            }
            best[i % 2] = best[i % 2].min(round(&what, n));
            if i % 2 == 1 {
                drop(trace::stop());
            }
        }
        (best[0], best[1])
    });
    Report::new("recorder")
        .put("off_ns", off.as_nanos() as f64 / n as f64)
        .put("on_ns", on.as_nanos() as f64 / n as f64)
        .put(
            "overhead_percent",
            (on.as_secs_f64() / off.as_secs_f64() - 1.0) * 100.0,
        )
        .print();
}

/// A dump of many parked goroutines beside one that looks how long it is kept waiting.
fn dump_all(args: &Args, rt: &Runtime) {
    let n = args.get("n", 100_000_usize);
    let (took, gap, bytes) = rt.run(move || {
        let (_tx, rx) = chan::bounded::<()>(0);
        for _ in 0..n {
            let rx = rx.clone();
            drop(go(move || rx.recv()));
        }
        let (stop, gap) = (
            Arc::new(AtomicBool::new(false)),
            Arc::new(AtomicU64::new(0)),
        );
        let watcher = go({
            let (stop, gap) = (Arc::clone(&stop), Arc::clone(&gap));
            move || {
                let mut last = Instant::now();
                while !stop.load(Relaxed) {
                    runnext::time::sleep(Duration::from_micros(100));
                    gap.fetch_max(last.elapsed().as_micros() as u64, Relaxed);
                    last = Instant::now();
                }
            }
        });
        // Until all have begun, and wait.
        while runnext::stats::read().num_goroutine_sched > 0 {
            runnext::time::sleep(Duration::from_millis(10));
        }
        gap.store(0, Relaxed);
        let begin = Instant::now();
        let text = dump::text();
        let took = begin.elapsed();
        let longest = gap.load(Relaxed);
        stop.store(true, Relaxed);
        watcher.join().expect("no panic");
        assert!(text.matches("[chan receive]").count() >= n * 99 / 100);
        (took, longest, text.len())
    });
    Report::new("dump")
        .put("seconds", took.as_secs_f64())
        .put("longest_gap_ms", gap as f64 / 1000.0)
        .put("megabytes", bytes as f64 / 1e6)
        .print();
    std::process::exit(0); // not the time to end them all
}

/// A trace of so many events, written as JSON.
fn export(args: &Args, rt: &Runtime) {
    let n = args.get("n", 1_000_000_usize);
    let (events, took, bytes) = rt.run(move || {
        trace::start(Options::default().events_per_proc(2 * n)).expect("none runs");
        scope(|s| {
            for _ in 0..10 {
                s.go(|| (0..n / 20).for_each(|_| yield_now()));
            }
        });
        let trace = trace::stop().expect("it was started");
        let begin = Instant::now();
        let json = trace.to_chrome();
        (trace.events(), begin.elapsed(), json.len())
    });
    Report::new("export")
        .put("events", events as f64)
        .put("seconds", took.as_secs_f64())
        .put("megabytes", bytes as f64 / 1e6)
        .print();
}

/// `/metrics` beside many goroutines and groups.
fn scrape(args: &Args, rt: &Runtime) {
    let (n, groups) = (
        args.get("n", 1_000_000_usize),
        args.get("groups", 1000_usize),
    );
    let (best, median, bytes) = rt.run(move || {
        for _ in 0..n {
            drop(runnext::spawn(pending::<()>()));
        }
        let groups: Vec<_> = (0..groups)
            .map(|i| TaskGroup::new(&format!("tenant {i}")))
            .collect();
        for group in &groups {
            group.go(|| black_box(())).join().expect("no panic");
        }
        let server = runnext_debug::serve("127.0.0.1:0").expect("a port");
        let mut bytes = 0;
        let mut took: Vec<_> = (0..11)
            .map(|_| {
                let begin = Instant::now();
                let mut stream =
                    runnext::net::TcpStream::connect(server.local_addr()).expect("it listens");
                stream
                    .write_all(b"GET /metrics HTTP/1.0\r\n\r\n")
                    .expect("it reads");
                let mut text = String::new();
                stream.read_to_string(&mut text).expect("it answers");
                bytes = text.len();
                begin.elapsed()
            })
            .collect();
        took.sort();
        (took[0], took[took.len() / 2], bytes)
    });
    Report::new("scrape")
        .put("best_ms", best.as_secs_f64() * 1e3)
        .put("median_ms", median.as_secs_f64() * 1e3)
        .put("kilobytes", bytes as f64 / 1e3)
        .print();
    std::process::exit(0);
}

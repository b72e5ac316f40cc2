//! Sockets: the servers of the network scenarios, and deadlines.

use std::io::{ErrorKind, Read};
use std::sync::Arc;
use std::time::{Duration, Instant};

use harness::{Args, Costs, Report, drive, echo, unsupported};
use runnext::Runtime;
use runnext::net::{TcpListener, TcpStream};

pub fn run(args: &Args, rt: &Runtime) {
    match args.scenario.as_str() {
        "echo" | "connections" | "storm" => serve(rt, echo),
        "tailtcp" => {
            let costs = Costs::plan(args);
            serve(rt, move |stream| costs.answer(stream));
        }
        "deadlines" => deadlines(args, rt),
        other => unsupported(other),
    }
}

fn serve(rt: &Runtime, connection: impl Fn(TcpStream) + Send + Sync + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let addr = listener.local_addr().expect("its address");
    rt.go(move || {
        let connection = Arc::new(connection);
        for stream in listener.incoming() {
            let (stream, connection) = (stream.expect("accept"), Arc::clone(&connection));
            stream.set_nodelay(true).expect("nodelay");
            runnext::go(move || connection(stream));
        }
    });
    drive(addr)
}

/// How late reads with deadlines end that nothing arrives for.
fn deadlines(args: &Args, rt: &Runtime) {
    let rounds = args.get("rounds", 200);
    let mut late: Vec<f64> = Vec::new();
    let mut early = 0.0;
    rt.run(|| {
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
        let mut here =
            TcpStream::connect(listener.local_addr().expect("its address")).expect("connect");
        let _there = listener.accept().expect("accept");
        for round in 0..rounds {
            let d = Duration::from_nanos(10_u64.pow(round % 10));
            here.set_read_timeout(Some(d)).expect("more than zero");
            let start = Instant::now();
            let e = here.read(&mut [0; 8]).expect_err("nothing arrives");
            let took = start.elapsed();
            assert_eq!(e.kind(), ErrorKind::TimedOut);
            if took < d {
                early += 1.0;
            }
            late.push(took.saturating_sub(d).as_nanos() as f64 / 1e3);
        }
    });
    Report::new("deadlines")
        .put("early", early)
        .percentiles("late_us_", &mut late)
        .print();
}

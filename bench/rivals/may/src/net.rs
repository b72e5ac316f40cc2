//! Sockets: the servers of the network scenarios.

use std::io::{Read, Write};
use std::sync::Arc;

use harness::{Args, Costs, drive};
use may::net::{TcpListener, TcpStream};

pub fn run(args: &Args) {
    if args.scenario == "tailtcp" {
        let costs = Costs::plan(args);
        serve(move |stream| answer(stream, costs));
    } else {
        serve(echo);
    }
}

fn serve(connection: impl Fn(TcpStream) + Send + Sync + 'static) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("bind");
    let addr = listener.local_addr().expect("its address");
    may::go!(move || {
        let connection = Arc::new(connection);
        for stream in listener.incoming() {
            let (stream, connection) = (stream.expect("accept"), Arc::clone(&connection));
            stream.set_nodelay(true).expect("nodelay");
            may::go!(move || connection(stream));
        }
    });
    drive(addr)
}

fn echo(mut stream: TcpStream) {
    let mut buf = [0; 256];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

fn answer(mut stream: TcpStream, costs: Costs) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).is_ok() {
        costs.serve(byte[0]);
        if stream.write_all(&byte).is_err() {
            return;
        }
    }
}

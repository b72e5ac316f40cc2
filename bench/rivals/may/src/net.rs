//! Sockets: the servers of the network scenarios.

use std::sync::Arc;

use harness::{Args, Costs, drive, echo};
use may::net::{TcpListener, TcpStream};

pub fn run(args: &Args) {
    if args.scenario == "tailtcp" {
        let costs = Costs::plan(args);
        serve(move |stream| costs.answer(stream));
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

//! Sockets: the servers of the network scenarios.

use std::future::Future;

use harness::{Args, Costs, drive};
use smol::io::{AsyncReadExt, AsyncWriteExt};
use smol::net::{TcpListener, TcpStream};

use crate::EXECUTOR;

pub fn run(args: &Args) {
    if args.scenario == "tailtcp" {
        let costs = Costs::plan(args);
        serve(move |stream| answer(stream, costs));
    } else {
        serve(echo);
    }
}

fn serve<F: Future<Output = ()> + Send + 'static>(
    connection: impl Fn(TcpStream) -> F + Send + 'static,
) {
    let listener = smol::block_on(TcpListener::bind("127.0.0.1:0")).expect("bind");
    let addr = listener.local_addr().expect("its address");
    EXECUTOR
        .spawn(async move {
            loop {
                let (stream, _) = listener.accept().await.expect("accept");
                stream.set_nodelay(true).expect("nodelay");
                EXECUTOR.spawn(connection(stream)).detach();
            }
        })
        .detach();
    drive(addr)
}

async fn echo(mut stream: TcpStream) {
    let mut buf = [0; 256];
    while let Ok(n @ 1..) = stream.read(&mut buf).await {
        if stream.write_all(&buf[..n]).await.is_err() {
            return;
        }
    }
}

async fn answer(mut stream: TcpStream, costs: Costs) {
    let mut byte = [0];
    while stream.read_exact(&mut byte).await.is_ok() {
        costs.serve(byte[0]);
        if stream.write_all(&byte).await.is_err() {
            return;
        }
    }
}

//! Sockets: the servers of the network scenarios.

use std::future::Future;

use harness::{Args, Costs, drive};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

pub fn run(args: &Args, rt: &Runtime) {
    if args.scenario == "tailtcp" {
        let costs = Costs::plan(args);
        serve(rt, move |stream| answer(stream, costs));
    } else {
        serve(rt, echo);
    }
}

fn serve<F: Future<Output = ()> + Send + 'static>(
    rt: &Runtime,
    connection: impl Fn(TcpStream) -> F + Send + 'static,
) {
    let listener = rt.block_on(TcpListener::bind("127.0.0.1:0")).expect("bind");
    let addr = listener.local_addr().expect("its address");
    rt.spawn(async move {
        loop {
            let (stream, _) = listener.accept().await.expect("accept");
            stream.set_nodelay(true).expect("nodelay");
            tokio::spawn(connection(stream));
        }
    });
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

//! Starts the load generator against a server of this process, and does a server's work.

use std::io::{Read, Write};
use std::net::SocketAddr;
use std::path::PathBuf;
use std::process::Command;

use crate::{Args, work};

/// Runs `bench-load` with the arguments of this process against `addr`; it prints the report. Then this process ends.
pub fn drive(addr: SocketAddr) -> ! {
    let status = Command::new(program())
        .args(std::env::args().skip(1))
        .arg(format!("addr={addr}"))
        .status()
        .expect("bench-load starts; build it with: cargo build --release -p harness");
    std::process::exit(status.code().unwrap_or(1))
}

fn program() -> PathBuf {
    std::env::var_os("BENCH_LOAD").map_or_else(
        || {
            let own = std::env::current_exe().expect("this program has a path");
            own.with_file_name("bench-load")
        },
        PathBuf::from,
    )
}

/// Sends everything back. For blocking sockets, as [`Costs::answer`].
pub fn echo(mut stream: impl Read + Write) {
    let mut buf = [0; 256];
    while let Ok(n @ 1..) = stream.read(&mut buf) {
        if stream.write_all(&buf[..n]).is_err() {
            return;
        }
    }
}

/// What requests of `tailtcp` cost.
#[derive(Clone, Copy, Debug)]
pub struct Costs {
    light: u64,
    heavy: u64,
}

impl Costs {
    /// From `light_us`, `heavy_ms`, `step_ns`.
    pub fn plan(args: &Args) -> Costs {
        let step_ns: f64 = args.get("step_ns", 1.9);
        let steps = |ns: f64| (ns / step_ns) as u64;
        Costs {
            light: steps(args.get("light_us", 50.0_f64) * 1e3),
            heavy: steps(args.get("heavy_ms", 30.0_f64) * 1e6),
        }
    }

    /// Serves a connection: each request is one byte, and so is its answer.
    pub fn answer(&self, mut stream: impl Read + Write) {
        let mut byte = [0];
        while stream.read_exact(&mut byte).is_ok() {
            self.serve(byte[0]);
            if stream.write_all(&byte).is_err() {
                return;
            }
        }
    }

    /// Serves a request of one byte, `l` or `h`.
    pub fn serve(&self, request: u8) {
        work(if request == b'h' {
            self.heavy
        } else {
            self.light
        });
    }
}

//! The server: hyper on goroutines, in a process of its own, and how the parent starts and stops it.
//!
//! The child prints its address on one line and serves until its standard input ends, so it never outlives its parent. A line that
//! begins with `error:` instead says why it cannot.

use std::convert::Infallible;
use std::io::{self, BufRead, BufReader, Read};
use std::net::{Ipv4Addr, SocketAddr};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response};
use runnext::hyper::{Io, Timer};
use runnext::net::{TcpListener, TcpStream};
use runnext::{Priority, Runtime, TaskGroup, go};

use super::work::{HEAVY_US, LIGHT_US, burn};
use super::{load, machine};
use crate::out::say;
use crate::{FAILED, HELD};

#[derive(clap::Args, Clone)]
pub struct ServerOptions {
    #[arg(long)]
    pub procs: usize,
    #[arg(long)]
    pub port: u16,
    #[arg(long)]
    pub preemption: bool,
    #[arg(long)]
    pub groups: bool,
    #[arg(long)]
    pub steps_per_us: f64,
}

/// What every connection shares.
struct Site {
    light: u64,
    heavy: u64,
    /// Where heavy work goes, in the act that has groups.
    bulk: Option<TaskGroup>,
}

/// Serves until standard input ends; the exit status.
pub fn serve(options: &ServerOptions) -> u8 {
    if let Err(why) = load::make_room(options.procs) {
        return refuse(why);
    }
    let builder = Runtime::builder()
        .procs(options.procs)
        .preemption(options.preemption);
    // SAFETY: neither this program nor hyper keeps a thread-local borrowed over a call that can park: hyper's only thread-local is the
    // cached date, used inside one function that does not wait.
    let runtime = match unsafe { builder.build() } {
        Ok(runtime) => runtime,
        Err(error) => return refuse(format!("the runtime does not start: {error}")),
    };
    let served = runtime.run(|| {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, options.port))
            .map_err(|error| busy_port(options.port, &error))?;
        let addr = listener.local_addr().map_err(|error| error.to_string())?;
        say!("{addr}");
        start(listener, options);
        Ok::<(), String>(())
    });
    if let Err(why) = served {
        return refuse(why);
    }
    // Ends with the parent, however that ends.
    let _ = io::stdin().read_to_end(&mut Vec::new());
    runtime.shutdown(Duration::ZERO);
    HELD
}

fn refuse(why: String) -> u8 {
    say!("error: {why}");
    FAILED
}

fn busy_port(port: u16, error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::AddrInUse => {
            format!(
                "port {port} is in use. Choose another with --port, or leave it out and any free one is taken"
            )
        }
        io::ErrorKind::PermissionDenied => {
            format!(
                "port {port} needs privileges. Choose one above 1023 with --port, or leave it out"
            )
        }
        _ => format!("cannot listen on port {port}: {error}"),
    }
}

fn start(listener: TcpListener, options: &ServerOptions) {
    let steps = |us: u64| (us as f64 * options.steps_per_us) as u64;
    let site = Arc::new(Site {
        light: steps(LIGHT_US),
        heavy: steps(HEAVY_US),
        bulk: (options.groups).then(|| TaskGroup::builder("bulk").priority(Priority::Low).build()),
    });
    let accept = move || {
        for stream in listener.incoming().flatten() {
            let site = Arc::clone(&site);
            go(move || connection(stream, site));
        }
    };
    if options.groups {
        // Whoever accepts, and every connection after it, since goroutines inherit their group.
        let interactive = TaskGroup::builder("interactive")
            .priority(Priority::High)
            .build();
        interactive.go(accept);
    } else {
        go(accept);
    }
}

/// One connection, on a stack of its own.
fn connection(stream: TcpStream, site: Arc<Site>) {
    // Fails for a connection that is gone already, which the next read tells.
    let _ = stream.set_nodelay(true);
    let service = service_fn(|request| answer(request, &site));
    let connection = http1::Builder::new()
        .timer(Timer::new())
        .serve_connection(Io::new(stream), service);
    // Clients come and go; what they think of it is theirs.
    let _ = runnext::block_on(connection);
}

async fn answer(request: Request<Incoming>, site: &Site) -> Result<Response<String>, Infallible> {
    let sum = match request.uri().path() {
        "/light" => burn(site.light),
        _ => {
            let steps = site.heavy;
            let work = move || burn(steps);
            let handle = match &site.bulk {
                Some(bulk) => bulk.go(work),
                None => go(work),
            };
            handle.await.unwrap_or(0)
        }
    };
    Ok(Response::new(format!("{sum:016x}\n")))
}

/// The server's process. Dropping it ends it.
pub struct Child {
    process: std::process::Child,
    addr: SocketAddr,
}

impl Child {
    /// Starts it and waits until it listens.
    pub fn start(options: &ServerOptions) -> Result<Child, String> {
        let program =
            std::env::current_exe().map_err(|e| format!("cannot find this program: {e}"))?;
        let mut command = Command::new(program);
        command
            .arg("demo-server")
            .args(["--procs", &options.procs.to_string()])
            .args(["--port", &options.port.to_string()])
            .args(["--steps-per-us", &options.steps_per_us.to_string()]);
        for (flag, on) in [
            ("--preemption", options.preemption),
            ("--groups", options.groups),
        ] {
            if on {
                command.arg(flag);
            }
        }
        let mut process = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .map_err(|e| format!("cannot start the server's process: {e}"))?;
        let mut line = String::new();
        let pipe = process.stdout.take().expect("asked for above");
        let read = BufReader::new(pipe).read_line(&mut line);
        let addr = match (read, line.trim()) {
            (Ok(_), text) if text.starts_with("error: ") => Err(text["error: ".len()..].to_owned()),
            (Ok(_), text) => text
                .parse()
                .map_err(|_| "the server ended before it listened".to_owned()),
            (Err(error), _) => Err(format!("the server does not speak: {error}")),
        };
        match addr {
            Ok(addr) => Ok(Child { process, addr }),
            Err(why) => {
                end(&mut process);
                Err(why)
            }
        }
    }

    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    pub fn id(&self) -> u32 {
        self.process.id()
    }

    /// CPU time used so far.
    pub fn cpu_time(&self) -> Duration {
        machine::cpu_time(self.process.id())
    }

    /// How it ended, if it did though nobody asked it to.
    pub fn last_words(&mut self) -> String {
        match self.process.try_wait() {
            Ok(Some(status)) => format!(" (it ended with {status})"),
            _ => String::new(),
        }
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        end(&mut self.process);
    }
}

fn end(process: &mut std::process::Child) {
    // Ends by itself when its input does; killed, so that a stuck server cannot keep the demo waiting.
    drop(process.stdin.take());
    let _ = process.kill();
    let _ = process.wait();
}

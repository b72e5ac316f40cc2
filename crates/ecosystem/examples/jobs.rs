//! A job server: a pool of workers factors numbers that come in over HTTP. The program runs it, sends it work, shows what came
//! out, and stops it. The port of `jobs.go` beside it, line by line where the languages allow.
//!
//! ```sh
//! cargo run --release -p ecosystem --example jobs
//! ```

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::time::Duration;

use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use runnext::chan::{self, Receiver, Sender};
use runnext::context::{Context, ContextError};
use runnext::hyper::{Io, Timer};
use runnext::net::TcpListener;
use runnext::sync::{Mutex, WaitGroup};
use runnext::time::Ticker;
use runnext::{block_on, go, select};

#[derive(Default)]
struct Job {
    id: usize,
    number: u64,
    factors: Vec<u64>,
    error: Option<ContextError>,
    done: bool,
}

impl Job {
    fn json(&self) -> String {
        let Job {
            id,
            number,
            factors,
            done,
            ..
        } = self;
        let error = self.error.map_or(String::new(), |error| error.to_string());
        format!(
            "{{\"ID\":{id},\"Number\":{number},\"Factors\":{factors:?},\"Error\":{error:?},\"Done\":{done}}}\n"
        )
    }
}

struct Server {
    jobs: Mutex<BTreeMap<usize, Job>>,
    queue: Sender<usize>,
    workers: WaitGroup,
    limit: Duration,
}

impl Server {
    fn new(ctx: &Context, workers: usize, limit: Duration) -> Arc<Server> {
        let (queue, submitted) = chan::bounded(64);
        let server = Arc::new(Server {
            jobs: Mutex::default(),
            queue,
            workers: WaitGroup::new(),
            limit,
        });
        for _ in 0..workers {
            let (s, ctx, submitted) = (Arc::clone(&server), ctx.clone(), submitted.clone());
            server.workers.go(move || s.work(&ctx, &submitted));
        }
        server
    }

    fn work(&self, ctx: &Context, submitted: &Receiver<usize>) {
        let done = ctx.done();
        loop {
            select! {
                recv(submitted) -> id => {
                    let Ok(id) = id else { return };
                    let number = self.jobs.lock()[&id].number;
                    let outcome = factor(&ctx.with_timeout(self.limit), number);
                    let mut jobs = self.jobs.lock();
                    let job = jobs.get_mut(&id).expect("jobs are never removed");
                    (job.factors, job.error) = outcome;
                    job.done = true;
                },
                recv(done) -> _ => return,
            }
        }
    }

    fn submit(&self, number: u64) -> Result<usize, &'static str> {
        let mut jobs = self.jobs.lock();
        let id = jobs.len() + 1;
        // A worker that takes it at once waits for the lock.
        self.queue.try_send(id).map_err(|_| "too many jobs")?;
        jobs.insert(
            id,
            Job {
                id,
                number,
                ..Job::default()
            },
        );
        Ok(id)
    }

    fn serve(&self, path: &str, query: &str) -> Result<String, (StatusCode, &'static str)> {
        let number = query
            .split_once('=')
            .and_then(|(_, value)| value.parse::<u64>().ok());
        match path {
            "/submit" => {
                let n = number.ok_or((StatusCode::BAD_REQUEST, "n is not a number"))?;
                let id = self
                    .submit(n)
                    .map_err(|why| (StatusCode::SERVICE_UNAVAILABLE, why))?;
                Ok(id.to_string())
            }
            "/job" => {
                let jobs = self.jobs.lock();
                let job = number.and_then(|id| jobs.get(&(id as usize)));
                job.map(Job::json)
                    .ok_or((StatusCode::NOT_FOUND, "no such job"))
            }
            _ => Err((StatusCode::NOT_FOUND, "no such page")),
        }
    }
}

fn factor(ctx: &Context, mut n: u64) -> (Vec<u64>, Option<ContextError>) {
    let mut factors = Vec::new();
    for d in 2u64.. {
        if d.saturating_mul(d) > n {
            break;
        }
        if d % 100_000 == 0 && ctx.err().is_some() {
            return (factors, ctx.err());
        }
        while n.is_multiple_of(d) {
            factors.push(d);
            n /= d;
        }
    }
    factors.extend((n > 1).then_some(n));
    (factors, None)
}

/// Go's `http.Serve`: a goroutine for each connection.
fn http_serve(listener: TcpListener, server: Arc<Server>) {
    for stream in listener.incoming().flatten() {
        let server = Arc::clone(&server);
        go(move || {
            let answer = async |request: Request<Incoming>| {
                let uri = request.uri();
                let (status, body) = match server.serve(uri.path(), uri.query().unwrap_or("")) {
                    Ok(body) => (StatusCode::OK, body),
                    Err((status, why)) => (status, format!("{why}\n")),
                };
                let mut response = Response::new(body);
                *response.status_mut() = status;
                Ok::<_, Infallible>(response)
            };
            let http = http1::Builder::new()
                .timer(Timer::new())
                .serve_connection(Io::new(stream), service_fn(answer));
            block_on(http)
        });
    }
}

fn get(url: &str) -> String {
    let mut response = ureq::get(url).call().expect("the server answers");
    response.body_mut().read_to_string().expect("text")
}

#[runnext::main]
fn main() {
    let ctx = Context::background().with_cancel();
    let server = Server::new(&ctx, 4, Duration::from_millis(300));
    let listener = TcpListener::bind("127.0.0.1:0").expect("a free port");
    let base = format!("http://{}", listener.local_addr().expect("it has one"));
    let site = Arc::clone(&server);
    go(move || http_serve(listener, site));

    let numbers: [u64; 5] = [
        12,
        97,
        600_851_475_143,
        1_000_000_007 * 998_244_353,
        18_446_744_073_709_551_557,
    ];
    for n in numbers {
        println!("{n} is job {}", get(&format!("{base}/submit?n={n}")));
    }
    let (ticker, deadline) = (
        Ticker::new(Duration::from_millis(50)),
        chan::after(Duration::from_secs(5)),
    );
    let mut open = numbers.len();
    while open > 0 {
        select! {
            recv(ticker.c()) -> _ => open = server.jobs.lock().values().filter(|job| !job.done).count(),
            recv(deadline) -> _ => panic!("still not done"),
        }
    }
    for id in 1..=numbers.len() {
        print!("{}", get(&format!("{base}/job?id={id}")));
    }
    ctx.cancel();
    server.workers.wait();
}

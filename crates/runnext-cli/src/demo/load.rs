//! The load generator: one thread, many connections, requests when they are due.
//!
//! # Why this shape
//! *Open loop*: light requests arrive at times drawn beforehand (Poisson), whatever the server does. One that finds no idle
//! connection waits here, and its latency counts from when it was due. A client that waits for an answer before it asks again would
//! leave out exactly the requests that a stall made late. Heavy requests come from a fixed number of clients, each of which thinks for a
//! moment after an answer: they are there to keep the server busy, and their rate is the throughput.
//!
//! One thread, because it must not take from the server what it measures: it sleeps in the poller until something is due or answered. It asks for
//! real-time priority, or else for short turns from the kernel, and reports how late its own sending was.
//!
//! # Context
//! A plain thread: no goroutine runs in this process. Tests: at the end of this file, against a small threaded server.
//!
//! Tunables: [`RATE`] and the clients per processor are from the project's mixed-load experiment.

use std::collections::VecDeque;
use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use hdrhistogram::Histogram;
use runnext_sys::limit;
use runnext_sys::poll::{Events, Poller};
use runnext_sys::thread;

use super::reply;

/// Light requests a second.
pub const RATE: f64 = 200.0;
/// Connections for them.
const LIGHT: usize = 256;
/// Heavy clients for each processor of the server.
const HEAVY_PER_PROC: usize = 4;
/// Descriptors beside the connections: the standard ones, pipes, pollers, those of the runtime. More than there are.
const OTHER_DESCRIPTORS: usize = 100;
/// Between an answer to a heavy client and its next request.
const THINK: Duration = Duration::from_millis(1);
/// How long answers are awaited after the end.
const PATIENCE: Duration = Duration::from_secs(3);
/// The longest wait that is told apart from longer ones.
const LONGEST_US: u64 = 3_600_000_000;
/// Turns asked of the kernel where real-time priority is refused.
const SLICE_NS: u64 = 100_000;

/// What is to be sent, for how long.
#[derive(Clone)]
pub struct Load {
    pub heavy_clients: usize,
    pub warm_up: Duration,
    pub seconds: Duration,
}

impl Load {
    pub fn new(procs: usize, seconds: Duration, warm_up: Duration) -> Load {
        Load {
            heavy_clients: procs * HEAVY_PER_PROC,
            warm_up,
            seconds,
        }
    }

    /// When the last request is due.
    pub fn end(&self) -> Duration {
        self.warm_up + self.seconds
    }
}

/// Sees to it that this process, the server's or this one, may have a descriptor for each connection, as far as it can.
///
/// # Errors
/// It may not: how many are missing, and what to do.
pub fn make_room(procs: usize) -> Result<(), String> {
    let needed = (LIGHT + procs * HEAVY_PER_PROC + OTHER_DESCRIPTORS) as u64;
    match limit::raise_descriptors() {
        Ok(allowed) if allowed < needed => Err(format!(
            "the demo needs {needed} descriptors (open files) for {procs} processors, and may have {allowed}: raise the limit with \
             `ulimit -n {needed}`, or LimitNOFILE= of a service"
        )),
        // Where nobody says how many there may be, the first that is refused tells.
        _ => Ok(()),
    }
}

/// How far it is, for whoever watches.
#[derive(Default)]
pub struct Live {
    begin: OnceLock<Instant>,
    pub light: AtomicU64,
    pub heavy: AtomicU64,
    pub slowest_us: AtomicU64,
}

impl Live {
    /// Since the first request was due.
    pub fn elapsed(&self) -> Duration {
        self.begin.get().map_or(Duration::ZERO, Instant::elapsed)
    }
}

/// What was measured. Times are in microseconds inside.
pub struct Measured {
    pub light: Histogram<u64>,
    /// Light requests that had no answer when patience ended; the histogram has them with what they had waited.
    pub unanswered: u64,
    pub heavy: u64,
    pub seconds: f64,
    /// How late requests were sent, where a connection was idle: the instrument's own error.
    pub late: Histogram<u64>,
}

impl Measured {
    /// Of the light requests, in milliseconds.
    pub fn quantile(&self, q: f64) -> f64 {
        self.light.value_at_quantile(q) as f64 / 1e3
    }

    /// In milliseconds.
    pub fn max(&self) -> f64 {
        self.light.max() as f64 / 1e3
    }

    pub fn heavy_per_second(&self) -> f64 {
        self.heavy as f64 / self.seconds
    }
}

/// Sends the load and measures.
///
/// # Errors
/// The server cannot be reached, goes away, or answers with an error.
pub fn run(load: &Load, server: SocketAddr, live: &Live) -> io::Result<Measured> {
    let mut generator = Generator::connect(load, server, live)?;
    if !thread::request_realtime() {
        thread::request_slice(SLICE_NS);
    }
    thread::set_timer_slack(1);
    generator.run()?;
    Ok(generator.finish())
}

/// A connection and what it waits for.
struct Connection {
    stream: TcpStream,
    /// When the request under way was due; none when idle.
    due: Option<Instant>,
    received: Vec<u8>,
}

struct Generator<'a> {
    load: &'a Load,
    live: &'a Live,
    poller: Poller,
    /// Light ones first, then the heavy clients'.
    connections: Vec<Connection>,
    idle: VecDeque<usize>,
    /// Due, but no connection was idle.
    waiting: VecDeque<Instant>,
    /// Heavy clients that think, and until when, in that order.
    thinking: VecDeque<(Instant, usize)>,
    begin: Instant,
    next: Instant,
    dice: Dice,
    measured: Measured,
}

impl<'a> Generator<'a> {
    fn connect(load: &'a Load, server: SocketAddr, live: &'a Live) -> io::Result<Self> {
        let poller = Poller::new()?;
        let mut connections = Vec::new();
        for i in 0..LIGHT + load.heavy_clients {
            let stream = TcpStream::connect(server)?;
            stream.set_nodelay(true)?;
            stream.set_nonblocking(true)?;
            poller.add(stream.as_raw_fd(), i as u64)?;
            connections.push(Connection {
                stream,
                due: None,
                received: Vec::with_capacity(1024),
            });
        }
        let histogram =
            || Histogram::new_with_bounds(1, LONGEST_US, 3).expect("the bounds are constant");
        let begin = Instant::now();
        Ok(Generator {
            load,
            live,
            poller,
            connections,
            idle: (0..LIGHT).collect(),
            waiting: VecDeque::new(),
            thinking: (LIGHT..LIGHT + load.heavy_clients)
                .map(|i| (begin, i))
                .collect(),
            begin,
            next: begin,
            dice: Dice(1),
            measured: Measured {
                light: histogram(),
                unanswered: 0,
                heavy: 0,
                seconds: load.seconds.as_secs_f64(),
                late: histogram(),
            },
        })
    }

    fn run(&mut self) -> io::Result<()> {
        self.begin = Instant::now();
        self.next = self.begin;
        self.live.begin.get_or_init(|| self.begin);
        let end = self.begin + self.load.end();
        let mut events = Events::new();
        loop {
            let now = Instant::now();
            self.send_light(now, end)?;
            self.send_heavy(now, end)?;
            let done = self.waiting.is_empty() && self.idle.len() == LIGHT;
            if now >= end && (done || now >= end + PATIENCE) {
                return Ok(());
            }
            let wake = self.wake_at(now, end);
            let timeout = wake.saturating_duration_since(Instant::now());
            self.poller
                .poll(&mut events, Some(timeout.as_nanos() as u64))?;
            for event in events.iter().filter(|event| event.readable) {
                self.receive(event.token as usize)?;
            }
        }
    }

    /// When there is something to do even if no answer comes.
    fn wake_at(&self, now: Instant, end: Instant) -> Instant {
        if now >= end {
            return end + PATIENCE;
        }
        let thought = self.thinking.front().map_or(end, |(until, _)| *until);
        self.next.min(thought).min(end)
    }

    fn send_light(&mut self, now: Instant, end: Instant) -> io::Result<()> {
        while self.next <= now && self.next < end {
            let due = self.next;
            self.next += Duration::from_secs_f64(self.dice.exponential() / RATE);
            match self.idle.pop_front() {
                Some(i) => {
                    self.measured.late.saturating_record(micros(due.elapsed()));
                    self.send(i, due)?;
                }
                None => self.waiting.push_back(due),
            }
        }
        Ok(())
    }

    fn send_heavy(&mut self, now: Instant, end: Instant) -> io::Result<()> {
        while let Some(&(until, i)) = self.thinking.front() {
            if until > now || now >= end {
                break;
            }
            self.thinking.pop_front();
            self.send(i, now)?;
        }
        Ok(())
    }

    fn send(&mut self, i: usize, due: Instant) -> io::Result<()> {
        let connection = &mut self.connections[i];
        let request: &[u8] = if i < LIGHT {
            b"GET /light HTTP/1.1\r\nhost: demo\r\n\r\n"
        } else {
            b"GET /heavy HTTP/1.1\r\nhost: demo\r\n\r\n"
        };
        connection.due = Some(due);
        // The connection is idle, so its buffer is empty and takes a request at once.
        (&connection.stream).write_all(request)
    }

    fn receive(&mut self, i: usize) -> io::Result<()> {
        let mut buffer = [0; 1024];
        loop {
            let connection = &mut self.connections[i];
            match (&connection.stream).read(&mut buffer) {
                Ok(0) => {
                    return Err(io::Error::new(
                        ErrorKind::UnexpectedEof,
                        "it closed a connection",
                    ));
                }
                Ok(n) => connection.received.extend_from_slice(&buffer[..n]),
                Err(e) if e.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(e) if e.kind() == ErrorKind::Interrupted => continue,
                Err(e) => return Err(e),
            }
            if let Some(length) = reply::complete(&connection.received).map_err(io::Error::other)? {
                connection.received.drain(..length);
                self.answered(i)?;
            }
        }
    }

    fn answered(&mut self, i: usize) -> io::Result<()> {
        let now = Instant::now();
        let Some(due) = self.connections[i].due.take() else {
            return Err(io::Error::other("it answered what nobody asked"));
        };
        if i >= LIGHT {
            if self.in_window(now) {
                self.measured.heavy += 1;
            }
            self.live.heavy.fetch_add(1, Relaxed);
            self.thinking.push_back((now + THINK, i));
            return Ok(());
        }
        self.record(due, now);
        self.live.light.fetch_add(1, Relaxed);
        match self.waiting.pop_front() {
            Some(due) => self.send(i, due),
            None => {
                self.idle.push_back(i);
                Ok(())
            }
        }
    }

    fn in_window(&self, at: Instant) -> bool {
        let since = at.saturating_duration_since(self.begin);
        since >= self.load.warm_up && since < self.load.end()
    }

    /// Requests that were due in the window count, however late they were answered.
    fn record(&mut self, due: Instant, now: Instant) {
        if self.in_window(due) {
            let us = micros(now - due);
            self.measured.light.saturating_record(us);
            self.live.slowest_us.fetch_max(us, Relaxed);
        }
    }

    /// Counts what has no answer with what it has waited.
    fn finish(mut self) -> Measured {
        let now = Instant::now();
        let under_way = self.connections[..LIGHT].iter().filter_map(|c| c.due);
        let left: Vec<Instant> = under_way.chain(self.waiting.iter().copied()).collect();
        for due in left {
            self.measured.unanswered += u64::from(self.in_window(due));
            self.record(due, now);
        }
        self.measured
    }
}

fn micros(d: Duration) -> u64 {
    d.as_micros() as u64
}

/// Where chance comes from: the same arrivals in every act.
struct Dice(u64);

impl Dice {
    /// Of mean 1.
    fn exponential(&mut self) -> f64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        let uniform = ((z ^ (z >> 31)) >> 11) as f64 / (1u64 << 53) as f64;
        -(1.0 - uniform).ln()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::TcpListener;

    /// Answers on one thread per connection; `light` waits that long before each.
    fn server(light: Duration) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let addr = listener.local_addr().unwrap();
        std::thread::spawn(move || {
            for mut stream in listener.incoming().flatten() {
                std::thread::spawn(move || {
                    let mut request = [0; 256];
                    while stream.read(&mut request).is_ok_and(|n| n > 0) {
                        if request.starts_with(b"GET /light") {
                            std::thread::sleep(light);
                        }
                        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok");
                    }
                });
            }
        });
        addr
    }

    fn measure(light: Duration) -> Measured {
        let load = Load::new(1, Duration::from_millis(500), Duration::from_millis(100));
        run(&load, server(light), &Live::default()).unwrap()
    }

    #[test]
    fn every_request_that_was_due_is_counted_with_its_wait() {
        let quick = measure(Duration::ZERO);
        assert_eq!(quick.unanswered, 0);
        assert!(quick.heavy > 0);
        let slow = measure(Duration::from_millis(50));
        // The same arrivals, though the server is slower.
        assert_eq!(quick.light.len(), slow.light.len());
        assert!(slow.light.min() >= 50_000);
    }

    #[test]
    fn a_server_that_stalls_hides_nothing() {
        let stalled = measure(Duration::from_secs(10));
        assert_eq!(stalled.unanswered, stalled.light.len());
        assert!(stalled.light.min() >= PATIENCE.as_micros() as u64 * 99 / 100);
    }

    #[test]
    fn arrivals_have_the_mean_they_should() {
        let mut dice = Dice(7);
        let mean = (0..100_000).map(|_| dice.exponential()).sum::<f64>() / 1e5;
        assert!((0.98..1.02).contains(&mean), "{mean}");
    }
}

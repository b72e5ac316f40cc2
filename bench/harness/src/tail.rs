//! The mixed load: light requests that arrive by themselves beside heavy clients that never rest.
//!
//! Light requests arrive at fixed random times (open loop, Poisson, one seed for all runtimes) and cost 50 µs of CPU. Their
//! latency counts from the *scheduled* arrival, and one that was not answered when the window closed counts with the
//! time it had waited by then. Heavy clients are a closed loop of 30 ms of CPU each.
//! Results sit in preallocated atomics, so that recording neither locks nor allocates inside the runtime.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Args, Report, Rng, now_ns, work};

/// The plan of one run and its results.
#[derive(Debug)]
pub struct Tail {
    /// When light request `i` arrives, in nanoseconds of [`now_ns`].
    arrivals: Box<[u64]>,
    done: Box<[AtomicU64]>,
    heavy: Box<[AtomicU64]>,
    light_steps: u64,
    heavy_steps: u64,
    begin: u64,
    end: u64,
    /// Pause of a heavy client between two requests; zero is a yield.
    pub think: Duration,
    /// How many tasks share the light requests (task k takes k, k + lanes, …).
    pub lanes: usize,
}

impl Tail {
    /// Plans a run from `rate` (per second), `light_us`, `heavy_ms`, `clients`, `think_us`, `seconds`, `step_ns`.
    pub fn plan(args: &Args) -> Tail {
        let step_ns: f64 = args.get("step_ns", 1.9);
        let steps = |ns: f64| (ns / step_ns) as u64;
        let rate: f64 = args.get("rate", 200.0);
        // Half a second to start everything before the first arrival, and to let the heavy clients settle.
        let begin = now_ns() + 500_000_000;
        let end = begin + (args.get("seconds", 20.0_f64) * 1e9) as u64;
        let mut dice = Rng::new(args.get("seed", 1));
        let mut at = begin as f64;
        let arrivals: Box<[u64]> = std::iter::from_fn(|| {
            at += -dice.unit().ln() / rate * 1e9;
            (at < end as f64).then_some(at as u64)
        })
        .collect();
        Tail {
            done: arrivals.iter().map(|_| AtomicU64::new(0)).collect(),
            heavy: (0..args.get("clients", 8))
                .map(|_| AtomicU64::new(0))
                .collect(),
            arrivals,
            light_steps: steps(args.get("light_us", 50.0_f64) * 1e3),
            heavy_steps: steps(args.get("heavy_ms", 30.0_f64) * 1e6),
            begin,
            end,
            think: Duration::from_micros(args.get("think_us", 1_000)),
            lanes: args.get("lanes", 256),
        }
    }

    /// Number of heavy clients.
    pub fn clients(&self) -> usize {
        self.heavy.len()
    }

    /// The light requests of one lane.
    pub fn lane(&self, lane: usize) -> impl Iterator<Item = usize> + use<> {
        (lane..self.arrivals.len()).step_by(self.lanes)
    }

    /// Number of light requests.
    pub fn requests(&self) -> usize {
        self.arrivals.len()
    }

    /// How long until light request `i` arrives.
    pub fn until(&self, i: usize) -> Duration {
        Duration::from_nanos(self.arrivals[i].saturating_sub(now_ns()))
    }

    /// Serves light request `i`.
    pub fn light(&self, i: usize) {
        work(self.light_steps);
        self.done[i].store(now_ns(), Ordering::Relaxed);
    }

    /// Serves one heavy request of `client`; false when the window has closed.
    pub fn heavy(&self, client: usize) -> bool {
        work(self.heavy_steps);
        let now = now_ns();
        if now >= self.begin && now < self.end {
            self.heavy[client].fetch_add(1, Ordering::Relaxed);
        }
        now < self.end
    }

    /// Blocks the calling OS thread until the window has closed.
    pub fn wait(&self) {
        std::thread::sleep(Duration::from_nanos(self.end.saturating_sub(now_ns())));
    }

    /// The figures of the closed window.
    pub fn report(&self, scenario: &str) -> Report {
        let end = now_ns();
        let mut unanswered = 0;
        let mut latency: Vec<f64> = (self.arrivals.iter().zip(&self.done))
            .map(|(&arrival, done)| match done.load(Ordering::Relaxed) {
                0 => {
                    unanswered += 1;
                    (end - arrival) as f64 / 1e6
                }
                done => (done - arrival) as f64 / 1e6,
            })
            .collect();
        let counts: Vec<u64> = self
            .heavy
            .iter()
            .map(|n| n.load(Ordering::Relaxed))
            .collect();
        let seconds = (self.end - self.begin) as f64 / 1e9;
        let (min, max) = (
            counts.iter().min().copied().unwrap_or(0),
            counts.iter().max().copied().unwrap_or(0),
        );
        Report::new(scenario)
            .percentiles("light_ms_", &mut latency)
            .put("unanswered", f64::from(unanswered))
            .put("heavy_per_s", counts.iter().sum::<u64>() as f64 / seconds)
            .put("client_min", min as f64)
            .put("client_max", max as f64)
            .put(
                "fair",
                if max == 0 {
                    0.0
                } else {
                    min as f64 / max as f64
                },
            )
    }
}

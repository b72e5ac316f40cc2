//! Task groups: who gets how much, and how soon. The experiments of part 5.

mod fair;
mod latency;
mod limits;
mod stubborn;
mod tax;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use harness::{Args, stir};
use runnext::{JoinHandle, Runtime, TaskGroup};

/// Any scenario of this file.
pub fn run(args: &Args, rt: &Runtime) {
    match args.scenario.as_str() {
        "group-tax" => tax::run(args, rt),
        "group-weights" => fair::weights(args, rt),
        "group-cheats" => fair::cheats(args, rt),
        "group-sleepers" => fair::sleepers(args, rt),
        "group-floor" => fair::floor(args, rt),
        "group-quota" => limits::quota(args, rt),
        "group-bursty" => limits::bursty(args, rt),
        "group-server" => limits::server(args, rt),
        "group-governor" => limits::governor(args),
        "group-wake" => latency::wake(args, rt),
        "group-elastic" => latency::elastic(args),
        "group-locks" => latency::locks(args, rt),
        "group-stubborn" => stubborn::loops(args, rt),
        "group-pool" => stubborn::pool(args, rt),
        "group-mixed" => latency::mixed(args, rt),
        other => harness::unsupported(other),
    }
}

/// Goroutines that compute until they are told to stop.
pub struct Hogs {
    stop: Arc<AtomicBool>,
    all: Vec<JoinHandle<u64>>,
}

impl Hogs {
    pub fn new() -> Hogs {
        Hogs {
            stop: Arc::new(AtomicBool::new(false)),
            all: Vec::new(),
        }
    }

    /// `n` in a group, with a checkpoint every `steps` steps; 0: none at all.
    pub fn add(&mut self, group: &TaskGroup, n: usize, steps: u64) {
        for _ in 0..n {
            let stop = self.stop.clone();
            self.all.push(group.go(move || {
                let mut x = 1;
                while !stop.load(Relaxed) {
                    if steps == 0 {
                        x = stir(x, 10_000);
                    } else {
                        x = stir(x, steps);
                        runnext::checkpoint();
                    }
                }
                x
            }));
        }
    }

    pub fn stop(self) {
        self.stop.store(true, Relaxed);
        for hog in self.all {
            hog.join().expect("no panic");
        }
    }
}

/// About 20 µs of steps, between two checkpoints.
pub const CHECK: u64 = 10_000;

/// What groups used between two moments, in seconds.
pub struct Meter<'a> {
    groups: &'a [TaskGroup],
    before: Vec<Duration>,
    begun: Instant,
}

impl Meter<'_> {
    pub fn start(groups: &[TaskGroup]) -> Meter<'_> {
        Meter {
            groups,
            before: groups.iter().map(|g| g.stats().cpu_time).collect(),
            begun: Instant::now(),
        }
    }

    pub fn used(&self) -> Vec<f64> {
        let now = self.groups.iter().map(|g| g.stats().cpu_time);
        now.zip(&self.before)
            .map(|(now, before)| now.saturating_sub(*before).as_secs_f64())
            .collect()
    }

    pub fn wall(&self) -> f64 {
        self.begun.elapsed().as_secs_f64()
    }
}

/// Watches from a plain thread: a goroutine would wait for its own turn.
pub fn on_a_thread<T: Send>(watch: impl FnOnce() -> T + Send) -> T {
    runnext::blocking(|| std::thread::scope(|s| s.spawn(watch).join().expect("no panic")))
}

pub fn seconds(args: &Args, default: f64) -> Duration {
    Duration::from_secs_f64(args.get("seconds", default))
}

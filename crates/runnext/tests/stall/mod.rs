//! What the tests of part "nothing stalls a P" share: a watchdog, hogs, and one test at a time.
#![allow(dead_code)] // each test binary uses a part of it

use std::fmt::Write as _;
use std::io::Write as _;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::{Duration, Instant};

/// How long a test may go without ending. Less in a child, so that its parent lives to show what it says.
const PATIENCE: Duration = Duration::from_secs(120);
const CHILDS_PATIENCE: Duration = Duration::from_secs(80);

/// Aborts the process, with what each thread was doing, if it is not dropped in time. Tests of one binary take turns, so
/// that their hogs do not count against each other.
pub struct Watchdog {
    done: Arc<AtomicBool>,
    guard: Option<thread::JoinHandle<()>>,
    _turn: MutexGuard<'static, ()>,
}

#[track_caller]
pub fn watchdog(name: &'static str) -> Watchdog {
    static TURN: Mutex<()> = Mutex::new(());
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let done = Arc::new(AtomicBool::new(false));
    let seen = Arc::clone(&done);
    let patience = match std::env::var_os("RUNNEXT_TEST_CHILD") {
        Some(_) => CHILDS_PATIENCE,
        None => PATIENCE,
    };
    let guard = thread::spawn(move || watch(name, patience, &seen));
    Watchdog {
        done,
        guard: Some(guard),
        _turn: turn,
    }
}

fn watch(name: &str, patience: Duration, done: &AtomicBool) {
    let started = Instant::now();
    while !done.load(Acquire) {
        thread::park_timeout(Duration::from_millis(200));
        if started.elapsed() > patience {
            // Not eprintln: a thread that hangs may have the lock of stderr.
            // SAFETY: the descriptor of stderr, lent and not closed.
            let mut stderr = std::mem::ManuallyDrop::new(unsafe {
                <std::fs::File as std::os::fd::FromRawFd>::from_raw_fd(2)
            });
            let _ = stderr
                .write_all(format!("\n{name} hangs after {patience:?}:\n{}", dump()).as_bytes());
            if std::env::var_os("RUNNEXT_TEST_KEEP").is_some() {
                thread::sleep(Duration::from_secs(3600)); // for a debugger
            }
            std::process::abort();
        }
    }
}

impl Drop for Watchdog {
    fn drop(&mut self) {
        self.done.store(true, Release);
        if let Some(guard) = self.guard.take() {
            guard.thread().unpark();
            let _ = guard.join();
        }
    }
}

/// Name, state, system call and CPU time of every thread.
pub fn dump() -> String {
    let mut text = String::new();
    let Ok(tasks) = std::fs::read_dir("/proc/self/task") else {
        return text;
    };
    for task in tasks.flatten() {
        let read = |name: &str| std::fs::read_to_string(task.path().join(name)).unwrap_or_default();
        let stat = read("stat");
        let rest = stat.rsplit_once(") ").map_or("", |(_, rest)| rest);
        let ticks = rest.split(' ').nth(11).unwrap_or("?");
        let _ = writeln!(
            text,
            "{} {:18} {} ticks {ticks:6} syscall {}",
            task.file_name().display(),
            read("comm").trim(),
            rest.chars().next().unwrap_or('?'),
            read("syscall").trim(),
        );
    }
    text
}

/// Computes until told to stop, without a call that the runtime could see.
pub fn hog(stop: &AtomicBool) -> u64 {
    let mut x = 0x9e37_79b9u64;
    while !stop.load(Relaxed) {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// As [`hog`], for so long.
pub fn hog_for(time: Duration) -> u64 {
    let end = Instant::now() + time;
    let mut x = 0x9e37_79b9u64;
    while Instant::now() < end {
        for _ in 0..1000 {
            x ^= x << 13;
            x ^= x >> 7;
            x ^= x << 17;
        }
        std::hint::black_box(x);
    }
    x
}

/// Hogs that count their rounds until told to stop.
pub struct Hogs {
    pub stop: Arc<AtomicBool>,
    pub rounds: Vec<Arc<AtomicU64>>,
    handles: Vec<runnext::JoinHandle<()>>,
}

impl Hogs {
    /// Starts them; from a goroutine.
    pub fn start(n: usize) -> Hogs {
        Hogs::start_with(n, || ())
    }

    /// As [`start`](Self::start); they call `f` in each round.
    pub fn start_with(n: usize, f: fn()) -> Hogs {
        let stop = Arc::new(AtomicBool::new(false));
        let rounds: Vec<_> = (0..n).map(|_| Arc::new(AtomicU64::new(0))).collect();
        let handles = rounds
            .iter()
            .map(|rounds| {
                let (stop, rounds) = (Arc::clone(&stop), Arc::clone(rounds));
                runnext::go(move || {
                    while !stop.load(Relaxed) {
                        rounds.store(rounds.load(Relaxed) + 1, Relaxed);
                        f();
                    }
                })
            })
            .collect();
        Hogs {
            stop,
            rounds,
            handles,
        }
    }

    /// How many have run at all.
    pub fn started(&self) -> usize {
        self.rounds.iter().filter(|r| r.load(Relaxed) > 0).count()
    }

    /// Stops and joins them.
    pub fn stop(self) {
        self.stop.store(true, Relaxed);
        for handle in self.handles {
            handle.join().expect("a hog does not panic");
        }
    }
}

/// Threads of this process.
pub fn threads() -> usize {
    std::fs::read_dir("/proc/self/task").expect("/proc").count()
}

/// A line of `/proc/self/status`, or another process's.
pub fn status_line(text: &str, name: &str) -> u64 {
    let line = text
        .lines()
        .find_map(|l| l.strip_prefix(name)?.strip_prefix(':'))
        .unwrap_or_else(|| panic!("no {name} in {text}"));
    u64::from_str_radix(line.trim(), 16).expect("a mask in hex")
}

/// Small, fast, seeded dice.
#[derive(Clone)]
pub struct Dice(pub u64);

impl Dice {
    pub fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }

    pub fn below(&mut self, n: u64) -> u64 {
        (self.next() >> 33) % n
    }
}

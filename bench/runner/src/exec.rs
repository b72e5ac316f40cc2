//! Runs one program once, and says how quiet the machine was meanwhile.
//!
//! *Others* are the cores that neither the program nor the runner used: busy and stolen time of the whole machine from
//! `/proc/stat`, minus the CPU time of our children and ourselves. Memory that the kernel frees after a program's end counts as others'
//! use, so the big `memory` cases look noisier than they are.

use std::io::Read;
use std::mem::MaybeUninit;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use serde_json::Value;

/// Above this many cores used by others, a run is noisy.
pub const QUIET: f64 = 0.20;
const LIMIT: Duration = Duration::from_secs(120);

/// One run of one program.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The JSON line, or why there is none.
    pub result: Result<Value, String>,
    /// Cores used by others meanwhile.
    pub others: f64,
    /// Wall time in seconds.
    pub seconds: f64,
}

impl Outcome {
    /// Whether another try is a waste: what a runtime does not offer, or does not end with, will be no other the second time.
    pub fn is_hopeless(&self) -> bool {
        match &self.result {
            Ok(line) => line["unsupported"] == true,
            Err(_) => self.seconds >= LIMIT.as_secs_f64(),
        }
    }
}

/// Runs `program` and waits for it; kills it after two minutes.
pub fn run(program: &Path, args: &[String]) -> Outcome {
    let meter = Meter::start();
    let result = attempt(program, args);
    let (others, seconds) = meter.stop();
    Outcome {
        result,
        others,
        seconds,
    }
}

fn attempt(program: &Path, args: &[String]) -> Result<Value, String> {
    let mut child = Command::new(program)
        .env("BENCH_LOAD", crate::programs::load_generator())
        .args(args)
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .map_err(|e| format!("cannot start: {e}"))?;
    let (out, err) = (child.stdout.take(), child.stderr.take());
    let out = std::thread::spawn(move || read_all(out));
    let err = std::thread::spawn(move || read_all(err));
    let ended = wait(&mut child)?;
    let (out, err) = (
        out.join().unwrap_or_default(),
        err.join().unwrap_or_default(),
    );
    let Some(status) = ended else {
        return Err(format!("no end after {} s", LIMIT.as_secs()));
    };
    if !status.success() {
        let why = err
            .lines()
            .find(|line| !line.trim().is_empty())
            .unwrap_or("no message");
        return Err(format!("{status}: {why}"));
    }
    let line = out.lines().last().ok_or("printed nothing")?;
    serde_json::from_str(line).map_err(|e| format!("printed no JSON: {e}"))
}

fn read_all(pipe: Option<impl Read>) -> String {
    let mut bytes = Vec::new();
    if let Some(mut pipe) = pipe {
        // What was read before an error is still worth showing.
        let _ = pipe.read_to_end(&mut bytes);
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

/// The exit status, or `None` when the limit passed and the child was killed.
fn wait(child: &mut Child) -> Result<Option<std::process::ExitStatus>, String> {
    let begin = Instant::now();
    loop {
        if let Some(status) = child.try_wait().map_err(|e| format!("cannot wait: {e}"))? {
            return Ok(Some(status));
        }
        if begin.elapsed() > LIMIT {
            child.kill().map_err(|e| format!("cannot kill: {e}"))?;
            child.wait().map_err(|e| format!("cannot wait: {e}"))?;
            return Ok(None);
        }
        std::thread::sleep(Duration::from_millis(5));
    }
}

/// Waits until others leave the machine alone, at most until `patience` is used up; takes from it what was waited.
pub fn wait_for_quiet(patience: &mut Duration) {
    let begin = Instant::now();
    let most = Duration::from_secs(6).min(*patience);
    while begin.elapsed() < most {
        let meter = Meter::start();
        std::thread::sleep(Duration::from_millis(200).min(most));
        if meter.stop().0 <= QUIET {
            break;
        }
    }
    *patience = patience.saturating_sub(begin.elapsed());
}

struct Meter {
    begin: Instant,
    machine: f64,
    own: f64,
}

impl Meter {
    fn start() -> Meter {
        Meter {
            begin: Instant::now(),
            machine: machine_busy(),
            own: own_cpu(),
        }
    }

    fn stop(self) -> (f64, f64) {
        let seconds = self.begin.elapsed().as_secs_f64();
        let others = (machine_busy() - self.machine) - (own_cpu() - self.own);
        (others.max(0.0) / seconds.max(1e-3), seconds)
    }
}

/// Busy and stolen seconds of all cores since boot.
fn machine_busy() -> f64 {
    let Ok(stat) = std::fs::read_to_string("/proc/stat") else {
        return 0.0;
    };
    let ticks: Vec<f64> = stat
        .lines()
        .next()
        .unwrap_or("")
        .split_whitespace()
        .skip(1)
        .flat_map(str::parse)
        .collect();
    // user nice system idle iowait irq softirq steal
    let busy: f64 = [0, 1, 2, 5, 6, 7]
        .iter()
        .filter_map(|&i| ticks.get(i))
        .sum();
    busy / 100.0
}

/// CPU seconds of this process and of its children that ended.
fn own_cpu() -> f64 {
    let of = |who| {
        let mut usage = MaybeUninit::<libc::rusage>::zeroed();
        // SAFETY: `usage` is a valid place for the result.
        unsafe { libc::getrusage(who, usage.as_mut_ptr()) };
        // SAFETY: all-zero bytes are a valid rusage, and the call above has filled it in.
        let usage = unsafe { usage.assume_init() };
        let seconds = |t: libc::timeval| t.tv_sec as f64 + t.tv_usec as f64 / 1e6;
        seconds(usage.ru_utime) + seconds(usage.ru_stime)
    };
    of(libc::RUSAGE_SELF) + of(libc::RUSAGE_CHILDREN)
}

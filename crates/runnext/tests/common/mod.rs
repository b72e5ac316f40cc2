//! What the integration tests share: runtimes, logs, values and wakers that count, child processes.
//!
//! What changes the whole process, counts what it holds, or ends it, runs in a *child*: the test binary starts itself again
//! for that one test, with a variable that says so.
#![allow(dead_code)] // each test binary uses a part of it

use std::io::Read;
use std::os::unix::process::ExitStatusExt;
use std::panic::{self, AssertUnwindSafe};
use std::process::{Command, ExitStatus, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::Wake;
use std::time::{Duration, Instant};

use runnext::{Builder, JoinHandle, Runtime};

/// A runtime for tests that need to hold it.
pub fn runtime(procs: usize) -> Runtime {
    built(Runtime::builder().procs(procs))
}

pub fn built(builder: Builder) -> Runtime {
    // SAFETY: no test keeps a thread-local borrowed over a call that can park.
    unsafe { builder.build() }.expect("a runtime starts")
}

/// As [`runtime`], with slices of a millisecond.
pub fn impatient(procs: usize) -> Runtime {
    let slice = Duration::from_millis(1);
    built(Runtime::builder().procs(procs).time_slice(slice))
}

/// What happened, in the order in which it did.
#[derive(Default)]
pub struct Log(Mutex<Vec<usize>>);

impl Log {
    pub fn add(&self, entry: usize) {
        self.0.lock().unwrap().push(entry);
    }

    pub fn take(&self) -> Vec<usize> {
        std::mem::take(&mut self.0.lock().unwrap())
    }
}

/// A waker that counts how often it was called, and is not the runtime's own.
#[derive(Default)]
pub struct Count(pub AtomicUsize);

impl Wake for Count {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// A value that counts how often it was dropped.
#[derive(Debug)]
pub struct Counted(Arc<AtomicUsize>);

impl Counted {
    pub fn new(drops: &Arc<AtomicUsize>) -> Counted {
        Counted(Arc::clone(drops))
    }
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.0.fetch_add(1, SeqCst);
    }
}

/// Lets others run until `done`. A test that never gets there is killed from outside.
pub fn until(mut done: impl FnMut() -> bool) {
    while !done() {
        runnext::yield_now();
        std::thread::yield_now();
    }
}

/// Whether this dump shows the goroutine waiting for `what`.
pub fn shows<T>(dump: &str, waiter: &JoinHandle<T>, what: &str) -> bool {
    dump.contains(&format!("goroutine {} [{what}", waiter.goroutine().id()))
}

/// Lets others run until the goroutine, of this runtime, waits for `what`.
pub fn until_waits<T>(waiter: &JoinHandle<T>, what: &str) {
    until(|| shows(&runnext::dump::text(), waiter, what));
}

/// Lets others run until so many goroutines of this runtime wait for sockets.
pub fn until_polled_by(n: usize) {
    until(|| runnext::stats::read().num_netpoll_waiters == n);
}

/// The kernel's number of the calling thread.
pub fn thread_id() -> i32 {
    // SAFETY: no preconditions.
    unsafe { libc::gettid() }
}

/// Waits until the thread sleeps in this system call.
pub fn until_asleep(thread: i32, call: libc::c_long) {
    let (path, call) = (
        format!("/proc/self/task/{thread}/syscall"),
        call.to_string(),
    );
    until(|| {
        std::fs::read_to_string(&path).is_ok_and(|text| text.split(' ').next() == Some(&call))
    });
}

/// CPU time, of the process or of the calling thread, says the kernel.
pub fn cpu_time(clock: libc::clockid_t) -> Duration {
    let mut time = std::mem::MaybeUninit::<libc::timespec>::zeroed();
    // SAFETY: a place for the answer; zeroes are valid too.
    let time = unsafe {
        libc::clock_gettime(clock, time.as_mut_ptr());
        time.assume_init()
    };
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}

/// The process must come to rest: `pause`, of a second, takes hardly any CPU.
#[track_caller]
pub fn assert_rests(pause: impl Fn(Duration)) {
    let used = || cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID).as_micros() as usize;
    assert_settles(used, 20_000, pause);
}

/// How often the threads of this process gave up a CPU of their own accord.
pub fn switches() -> usize {
    switches_of(|_| true)
}

/// As [`switches`], those with such a name.
pub fn switches_of(is_one: impl Fn(&str) -> bool) -> usize {
    let tasks = std::fs::read_dir("/proc/self/task").expect("threads");
    let status = |task: std::io::Result<std::fs::DirEntry>| {
        std::fs::read_to_string(task.ok()?.path().join("status")).ok()
    };
    let count = |status: String| {
        let name = status.lines().find_map(|l| l.strip_prefix("Name:\t"));
        name.filter(|name| is_one(name))?;
        let line = status
            .lines()
            .find_map(|l| l.strip_prefix("voluntary_ctxt_switches:"))?;
        line.trim().parse::<usize>().ok()
    };
    tasks.filter_map(status).filter_map(count).sum()
}

/// `count` must come to change by less than `most` in a `pause` of a second. What went before may take a while to end, so not the first time.
#[track_caller]
pub fn assert_settles(count: impl Fn() -> usize, most: usize, pause: impl Fn(Duration)) {
    let mut grew = Vec::new();
    while grew.last().is_none_or(|g| *g >= most) {
        assert!(grew.len() < 3, "in each second of rest: {grew:?}");
        let before = count();
        pause(Duration::from_secs(1));
        grew.push(count().abs_diff(before)); // less, if a thread has gone, with all it had counted
    }
}

/// The message of a panic.
pub fn message(payload: &(dyn std::any::Any + Send)) -> &str {
    payload
        .downcast_ref::<String>()
        .map(String::as_str)
        .or_else(|| payload.downcast_ref::<&str>().copied())
        .unwrap_or("(no text)")
}

const VARIABLE: &str = "RUNNEXT_TEST_CHILD";
/// How a child exits that ran to its end. Not zero: the harness gives that if it found no such test.
const PASSED: i32 = 77;
/// A child that takes longer hangs.
const PATIENCE: Duration = Duration::from_secs(180);

/// How a child ended.
#[derive(Debug)]
pub struct Ended {
    pub status: ExitStatus,
    pub stdout: String,
    pub stderr: String,
}

impl Ended {
    /// It must have run to its end.
    #[track_caller]
    pub fn passed(self) -> Ended {
        assert_eq!(self.status.code(), Some(PASSED), "{self:#?}");
        self
    }

    /// A signal must have killed it.
    #[track_caller]
    pub fn died_by(self, signo: i32) -> Ended {
        assert_eq!(self.status.signal(), Some(signo), "{self:#?}");
        self
    }

    /// Stderr must have said all of this.
    #[track_caller]
    pub fn said(self, parts: &[&str]) -> Ended {
        for part in parts {
            assert!(self.stderr.contains(part), "not said: {part:?}\n{self:#?}");
        }
        self
    }
}

/// Runs `body`, the closure of a test, in a child process with these variables. In the child this does not return.
#[track_caller]
pub fn child<F: FnOnce()>(variables: &[(&str, &str)], body: F) -> Ended {
    child_of(test_name::<F>(), variables, body)
}

/// As [`child`], for closures of helpers: `name` is the path of the test.
#[track_caller]
pub fn child_of(name: &str, variables: &[(&str, &str)], body: impl FnOnce()) -> Ended {
    if std::env::var(VARIABLE).is_ok_and(|v| v == name) {
        let status = match panic::catch_unwind(AssertUnwindSafe(body)) {
            Ok(()) => PASSED,
            Err(_) => 1,
        };
        // Not a return: the harness would wait for threads, and say that the test passed.
        std::process::exit(status);
    }
    let mut child = Command::new(std::env::current_exe().expect("the test binary has a path"))
        .args(["--exact", name, "--nocapture", "--test-threads=1"])
        .env(VARIABLE, name)
        .env_remove("RUNNEXT_DEBUG")
        .envs(variables.iter().copied())
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("the test binary starts again");
    let stdout = read_all(child.stdout.take());
    let stderr = read_all(child.stderr.take());
    let started = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("it is our child") {
            break status;
        }
        if started.elapsed() > PATIENCE {
            let _ = child.kill();
            let _ = child.wait();
            panic!("the child of {name} hangs:\n{}", stderr.join().unwrap());
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    Ended {
        status,
        stdout: stdout.join().unwrap(),
        stderr: stderr.join().unwrap(),
    }
}

fn read_all(pipe: Option<impl Read + Send + 'static>) -> std::thread::JoinHandle<String> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        let _ = pipe.expect("piped").read_to_end(&mut bytes);
        String::from_utf8_lossy(&bytes).into_owned()
    })
}

/// The test's path, as the harness wants it, from the name of its closure's type.
fn test_name<F>() -> &'static str {
    let name = std::any::type_name::<F>();
    let name = name.split_once("::").expect("crate::test").1;
    name.split("::{{closure}}").next().expect("never empty")
}

/// What the process holds: threads, file descriptors, mappings.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holdings {
    pub threads: usize,
    pub fds: usize,
    pub maps: usize,
}

pub fn holdings() -> Holdings {
    let entries = |dir: &str| std::fs::read_dir(dir).expect(dir).count();
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    Holdings {
        threads: entries("/proc/self/task"),
        fds: entries("/proc/self/fd"),
        maps: maps.lines().count(),
    }
}

/// As [`holdings`], when those who ended since `before` are gone: a thread that was joined may still be listed, because the kernel tells its
/// end a little earlier.
pub fn holdings_after(before: &Holdings) -> Holdings {
    let patience = Instant::now() + Duration::from_secs(10);
    let mut after = holdings();
    while after.threads > before.threads && Instant::now() < patience {
        std::thread::yield_now();
        after = holdings();
    }
    after
}

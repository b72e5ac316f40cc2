//! What this machine offers to the runtime, what falls back, and what that costs.
//!
//! Every finding is a line: what was looked at, what is there, and, where it falls short, what that costs and what to do about it. Nothing
//! here changes anything.

use std::fmt;
use std::fs;
use std::time::Duration;

use runnext_sys::map::{self, Guard};
use runnext_sys::poll::{Events, Poller};
use runnext_sys::{cpu, fence, thread};
use serde_json::json;

use crate::out::say;
use crate::{HELD, NOT_HELD};

/// Goroutines a program may well want at once, and what limits are compared with.
const MANY: u64 = 100_000;
/// Threads the runtime may start by default.
const THREADS: u64 = 10_000;
/// A poll of this length that took less than [`COARSE`] shows that timeouts are not rounded up to milliseconds.
const FINE: Duration = Duration::from_micros(50);
const COARSE: Duration = Duration::from_micros(900);

#[derive(clap::Args, Clone)]
pub struct Options {
    /// Print one JSON object instead of lines
    #[arg(long)]
    json: bool,
}

/// How bad it is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Level {
    /// As it should be.
    Good,
    /// Works, by a slower or narrower way.
    FallsBack,
    /// Will stop some programs.
    Limits,
}

/// One thing looked at.
#[derive(Debug)]
pub struct Finding {
    what: &'static str,
    level: Level,
    found: String,
    /// What it costs and what to do; empty where all is well.
    cost: &'static str,
}

impl Finding {
    fn new(
        what: &'static str,
        good: bool,
        otherwise: Level,
        found: impl Into<String>,
        cost: &'static str,
    ) -> Finding {
        Finding {
            what,
            level: if good { Level::Good } else { otherwise },
            found: found.into(),
            cost: if good { "" } else { cost },
        }
    }

    /// Whether it makes goroutines wake up later than they could.
    pub fn slows_wakeups(&self) -> bool {
        self.level != Level::Good && [SLICES, MONITOR, TIMEOUTS, QUOTA].contains(&self.what)
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.what, self.found)?;
        if !self.cost.is_empty() {
            write!(f, ". {}", self.cost)?;
        }
        Ok(())
    }
}

const SLICES: &str = "short turns for the monitor";
const MONITOR: &str = "a monitor before all others";
const TIMEOUTS: &str = "timeouts finer than a millisecond";
const QUOTA: &str = "cgroup CPU quota";

/// Looks, prints; the exit status is 0 if nothing limits.
pub fn run(options: &Options) -> u8 {
    let findings = findings();
    if options.json {
        let list: Vec<_> = findings
            .iter()
            .map(|f| json!({ "what": f.what, "level": level_name(f.level), "found": f.found, "cost": f.cost }))
            .collect();
        say!("{:#}", json!({ "findings": list }));
    } else {
        print(&findings);
    }
    if findings
        .iter()
        .any(|finding| finding.level == Level::Limits)
    {
        NOT_HELD
    } else {
        HELD
    }
}

fn level_name(level: Level) -> &'static str {
    match level {
        Level::Good => "ok",
        Level::FallsBack => "falls back",
        Level::Limits => "limits",
    }
}

fn print(findings: &[Finding]) {
    for finding in findings {
        say!(
            "{:<11}{:<36}{}",
            level_name(finding.level),
            finding.what,
            finding.found
        );
        if !finding.cost.is_empty() {
            say!("{:<11}{}", "", finding.cost);
        }
    }
    let lacking = findings
        .iter()
        .filter(|finding| finding.level != Level::Good)
        .count();
    match lacking {
        0 => say!("\nNothing falls back here."),
        n => say!(
            "\n{n} of {} could be better; programs run nevertheless.",
            findings.len()
        ),
    }
}

/// Everything looked at.
pub fn findings() -> Vec<Finding> {
    let mut list = vec![kernel(), processors(), quota()];
    list.extend([guards(), fences(), timeouts(), slices(), monitor()]);
    list.extend(limits());
    list
}

fn kernel() -> Finding {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let release = release.trim();
    Finding::new(
        "kernel",
        version(release) >= (6, 13),
        Level::FallsBack,
        format!("Linux {release}"),
        "6.13 or newer has all that is used; the lines below say what this one lacks.",
    )
}

/// Major and minor of a release such as "6.18.5-generic".
fn version(release: &str) -> (u32, u32) {
    let mut numbers = release
        .split(|c: char| !c.is_ascii_digit())
        .map_while(|number| number.parse().ok());
    (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0))
}

fn processors() -> Finding {
    let cores = cpu::available();
    Finding::new(
        "processors",
        cores >= 2,
        Level::FallsBack,
        format!(
            "{cores} by affinity; a runtime here starts with {}",
            cpu::default_procs()
        ),
        "One core runs one goroutine at a time, and preemption waits for the kernel to give the monitor its turn.",
    )
}

fn quota() -> Finding {
    let quota = cpu::cgroup_quota();
    let enough = quota.is_none_or(|cores| cores >= cpu::default_procs() as f64);
    let found = quota.map_or("none".to_owned(), |cores| format!("{cores:.2} cores"));
    Finding::new(
        QUOTA,
        enough,
        Level::FallsBack,
        found,
        "Fewer cores than processors: the kernel stops the whole process when it is used up, up to 100 ms at a time. \
         Give whole cores, or put heavy work in a governed group with `cpu_limit` below the quota.",
    )
}

fn guards() -> Finding {
    let install = map::guard_support() == Guard::Install;
    Finding::new(
        "guard pages without mappings",
        install,
        Level::FallsBack,
        if install {
            "MADV_GUARD_INSTALL"
        } else {
            "mprotect instead of MADV_GUARD_INSTALL (Linux 6.13)"
        },
        "A new stack takes 3 µs instead of 1 and two of the process's mappings: vm.max_map_count bounds how many goroutines \
         can have a stack.",
    )
}

fn fences() -> Finding {
    let refused = fence::register().and_then(|()| fence::heavy()).err();
    Finding::new(
        "cheap runtime calls",
        refused.is_none(),
        Level::FallsBack,
        match refused {
            None => String::from("membarrier"),
            Some(e) => format!("no membarrier: {e} (Linux 4.14, and not filtered)"),
        },
        "Every runtime call has a full memory fence: a yield takes half as long again.",
    )
}

fn timeouts() -> Finding {
    let fine = shortest_poll().is_some_and(|took| took < COARSE);
    Finding::new(
        TIMEOUTS,
        fine,
        Level::FallsBack,
        if fine {
            "epoll_pwait2"
        } else {
            "not seen (epoll_pwait2 needs Linux 5.11)"
        },
        "Timers and time-outs are late by up to a millisecond when the processors are idle.",
    )
}

/// The shortest of some polls that should take [`FINE`]: the others were disturbed.
fn shortest_poll() -> Option<Duration> {
    let poller = Poller::new().ok()?;
    let mut events = Events::new();
    let mut once = || {
        let begin = std::time::Instant::now();
        poller
            .poll(&mut events, Some(FINE.as_nanos() as u64))
            .ok()?;
        Some(begin.elapsed())
    };
    (0..20).filter_map(|_| once()).min()
}

fn slices() -> Finding {
    // On a thread of its own: a wish stays with whoever made it.
    let accepted = std::thread::spawn(|| thread::request_slice(100_000))
        .join()
        .unwrap_or(false);
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let honoured = accepted && version(&release) >= (6, 12);
    Finding::new(
        SLICES,
        honoured,
        Level::FallsBack,
        match (accepted, honoured) {
            (_, true) => "sched_setattr with a slice",
            (true, false) => "accepted but ignored (Linux 6.12)",
            (false, _) => "refused: the process is not under the normal policy",
        },
        "When all cores are busy with other processes, preemption and hand-off may be milliseconds late.",
    )
}

fn monitor() -> Finding {
    // On a thread of its own, as above.
    let (realtime, nice) = std::thread::spawn(|| {
        let realtime = thread::request_realtime();
        (realtime, realtime || thread::request_preference())
    })
    .join()
    .unwrap_or((false, false));
    Finding::new(
        MONITOR,
        realtime,
        Level::FallsBack,
        match (realtime, nice) {
            (true, _) => "SCHED_FIFO",
            (false, true) => "nice -20, not SCHED_FIFO",
            (false, false) => "neither SCHED_FIFO nor nice -20 without privilege",
        },
        "Beside threads that compute the monitor, and so preemption, may be up to 4 ms late. Raise `ulimit -r`, or give CAP_SYS_NICE.",
    )
}

fn limits() -> Vec<Finding> {
    let table = fs::read_to_string("/proc/self/limits").unwrap_or_default();
    let soft = |name: &str| limit(&table, name).unwrap_or(u64::MAX);
    let sysctl = |name: &str| number(&format!("/proc/sys/{name}"));
    let files = soft("Max open files");
    let processes = soft("Max processes");
    let pids = [
        sysctl("kernel/threads-max"),
        sysctl("kernel/pid_max"),
        cgroup_pids(),
    ]
    .into_iter()
    .flatten()
    .chain([processes])
    .min()
    .unwrap_or(u64::MAX);
    let signals = soft("Max pending signals");
    let maps = map::max_map_count() as u64;
    let install = map::guard_support() == Guard::Install;
    vec![
        Finding::new(
            "open files",
            files >= 10_000,
            Level::Limits,
            count(files),
            "A connection takes one. Raise it with `ulimit -n`, or LimitNOFILE= in a service's unit.",
        ),
        Finding::new(
            "threads",
            pids >= 1000,
            Level::Limits,
            format!(
                "{}; the runtime may ask for {THREADS} (Builder::max_threads)",
                count(pids)
            ),
            "Goroutines that block in the kernel or are preempted take one each. Raise `ulimit -u`, or the cgroup's pids.max.",
        ),
        Finding::new(
            "pending signals",
            signals >= 1000,
            Level::Limits,
            count(signals),
            "Each thread's timer takes one; threads without a timer are preempted later, by the monitor. Raise `ulimit -i`.",
        ),
        Finding::new(
            "mappings",
            install || maps >= 2 * MANY,
            Level::Limits,
            format!("{} (vm.max_map_count)", count(maps)),
            "Without MADV_GUARD_INSTALL a stack takes two: raise it with `sysctl vm.max_map_count=1048576` for more goroutines.",
        ),
        overcommit(),
    ]
}

fn overcommit() -> Finding {
    let strict = number("/proc/sys/vm/overcommit_memory") == Some(2);
    Finding::new(
        "reserved address space",
        !strict,
        Level::Limits,
        if strict {
            "counted as memory (vm.overcommit_memory=2)"
        } else {
            "free of charge"
        },
        "Stacks are reserved whole and used in part. Make them smaller with RUNNEXT_STACK_SIZE=65536, or set it to 0 or 1.",
    )
}

/// The soft limit in a line of `/proc/self/limits`; the greatest number for "unlimited".
fn limit(table: &str, name: &str) -> Option<u64> {
    let line = table.lines().find_map(|line| line.strip_prefix(name))?;
    match line.split_whitespace().next()? {
        "unlimited" => Some(u64::MAX),
        text => text.parse().ok(),
    }
}

/// The least limit of processes that a cgroup v2 above us sets, if any.
fn cgroup_pids() -> Option<u64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let path = groups.lines().find_map(|line| line.strip_prefix("0::"))?;
    std::path::Path::new(path)
        .ancestors()
        .filter_map(|group| number(&format!("/sys/fs/cgroup{}/pids.max", group.display())))
        .min()
}

fn number(path: &str) -> Option<u64> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

fn count(n: u64) -> String {
    if n >= u64::MAX / 2 {
        "unlimited".to_owned()
    } else {
        n.to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn releases_are_read() {
        assert_eq!(version("6.18.5-generic"), (6, 18));
        assert_eq!(version("5.4"), (5, 4));
        assert_eq!(version("x"), (0, 0));
    }

    #[test]
    fn limits_are_read() {
        let table = "Limit   Soft Limit  Hard Limit  Units\nMax open files   1024   524288   files\n\
                     Max processes    unlimited  unlimited processes\n";
        assert_eq!(limit(table, "Max open files"), Some(1024));
        assert_eq!(limit(table, "Max processes"), Some(u64::MAX));
        assert_eq!(limit(table, "Max pending signals"), None);
    }

    #[test]
    fn every_shortcoming_has_a_cost() {
        for finding in findings() {
            assert_eq!(
                finding.level == Level::Good,
                finding.cost.is_empty(),
                "{finding}"
            );
        }
    }
}

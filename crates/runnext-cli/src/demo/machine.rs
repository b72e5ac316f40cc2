//! CPU time from `/proc`: of a process, and of everybody else.

use std::fs;
use std::time::{Duration, Instant};

/// Length of a clock tick in `/proc`: a constant of the kernel's interface on every architecture we run on.
const TICK: Duration = Duration::from_millis(10);

/// CPU time a process has used so far; zero if it is gone.
pub fn cpu_time(pid: u32) -> Duration {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    TICK * process_ticks(&stat).unwrap_or(0)
}

/// User and system time, fields 14 and 15; the name in front of them may contain anything, so count from its end.
fn process_ticks(stat: &str) -> Option<u32> {
    let fields: Vec<&str> = stat[stat.rfind(')')? + 1..].split_whitespace().collect();
    let tick = |i: usize| fields.get(i)?.parse::<u32>().ok();
    Some(tick(11)? + tick(12)?)
}

/// What the whole machine has used since it started.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct MachineTime {
    /// By all programs, and what the host took.
    busy: Duration,
    /// What the host of a virtual machine took while there was something to run.
    stolen: Duration,
}

impl MachineTime {
    fn now() -> MachineTime {
        let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
        MachineTime::of(&stat).unwrap_or_default()
    }

    /// Of "cpu user nice system idle iowait irq softirq steal guest …", all but idle, iowait and the guests, which user includes.
    fn of(stat: &str) -> Option<MachineTime> {
        let line = stat.lines().find(|line| line.starts_with("cpu "))?;
        let ticks: Vec<u64> = (line.split_whitespace().skip(1))
            .filter_map(|field| field.parse().ok())
            .collect();
        let all: u64 = ticks.iter().take(8).sum();
        let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
        // Wraps after a year of CPU time; only differences count.
        Some(MachineTime {
            busy: TICK * (all - idle) as u32,
            stolen: TICK * ticks.get(7).copied().unwrap_or(0) as u32,
        })
    }
}

/// What a measurement shared the machine with, in cores.
pub struct Shared {
    /// Used by neither the server nor us, what was stolen included.
    pub others: f64,
    /// Taken by the host of a virtual machine.
    pub stolen: f64,
}

/// Measures what others use, from `start` to `stop`.
pub struct Others {
    server: u32,
    begin: Instant,
    machine: MachineTime,
    ours: Duration,
}

impl Others {
    /// Others are all but this process and the server.
    pub fn start(server: u32) -> Others {
        Others {
            server,
            begin: Instant::now(),
            machine: MachineTime::now(),
            ours: cpu_time(std::process::id()) + cpu_time(server),
        }
    }

    /// What they used.
    pub fn stop(self) -> Shared {
        let ours = (cpu_time(std::process::id()) + cpu_time(self.server)).saturating_sub(self.ours);
        let (before, now) = (self.machine, MachineTime::now());
        let others = now.busy.saturating_sub(before.busy).saturating_sub(ours);
        let cores = |used: Duration| used.as_secs_f64() / self.begin.elapsed().as_secs_f64();
        Shared {
            others: cores(others),
            stolen: cores(now.stolen.saturating_sub(before.stolen)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_brackets_and_blanks_does_not_shift_the_fields() {
        let stat = "12 (a) b (c) S 1 2 3 4 5 6 7 8 9 10 250 50 0 0 20";
        assert_eq!(process_ticks(stat), Some(300));
    }

    #[test]
    fn idle_time_is_not_busy() {
        let time = MachineTime::of("cpu  1 2 3 100 50 4 5 6 9 9\ncpu0 1");
        let (busy, stolen) = (TICK * 21, TICK * 6);
        assert_eq!(time, Some(MachineTime { busy, stolen }));
        assert_eq!(MachineTime::of(""), None);
    }
}

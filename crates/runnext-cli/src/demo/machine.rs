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

/// Busy and stolen time of the whole machine since it started.
fn machine_time() -> Duration {
    let stat = fs::read_to_string("/proc/stat").unwrap_or_default();
    TICK * machine_ticks(&stat).unwrap_or(0)
}

/// Of "cpu user nice system idle iowait irq softirq steal guest …", all but idle, iowait and the guests, which user includes.
fn machine_ticks(stat: &str) -> Option<u32> {
    let line = stat.lines().find(|line| line.starts_with("cpu "))?;
    let ticks: Vec<u64> = (line.split_whitespace().skip(1))
        .filter_map(|field| field.parse().ok())
        .collect();
    let all: u64 = ticks.iter().take(8).sum();
    let idle = ticks.get(3)? + ticks.get(4).unwrap_or(&0);
    // Wraps after a year of CPU time; only differences count.
    Some((all - idle) as u32)
}

/// Measures how many cores others use, from `start` to `stop`.
pub struct Others {
    server: u32,
    begin: Instant,
    machine: Duration,
    ours: Duration,
}

impl Others {
    /// Others are all but this process and the server.
    pub fn start(server: u32) -> Others {
        Others {
            server,
            begin: Instant::now(),
            machine: machine_time(),
            ours: cpu_time(std::process::id()) + cpu_time(server),
        }
    }

    /// In cores.
    pub fn stop(self) -> f64 {
        let ours = (cpu_time(std::process::id()) + cpu_time(self.server)).saturating_sub(self.ours);
        let machine = machine_time().saturating_sub(self.machine);
        machine.saturating_sub(ours).as_secs_f64() / self.begin.elapsed().as_secs_f64()
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
        assert_eq!(
            machine_ticks("cpu  1 2 3 100 50 4 5 6 9 9\ncpu0 1"),
            Some(21)
        );
        assert_eq!(machine_ticks(""), None);
    }
}

//! The log of a task that wants to run every millisecond.
//!
//! A tick that is late by n periods also made the n ticks after it impossible. Each of those counts with the lateness
//! it would have had (no coordinated omission), and so does the tick that had not come when the window closed: a task that never
//! ran is not invisible, it is as late as can be.

use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::time::Duration;

use crate::{Report, now_ns};

/// Ticks of one task, written by the task and read by the plain main thread.
#[derive(Debug)]
pub struct Ticks {
    start: u64,
    period: u64,
    window: u64,
    len: AtomicUsize,
    at: Box<[AtomicU64]>,
}

impl Ticks {
    /// A log that starts now and closes after `window`.
    pub fn start(period: Duration, window: Duration) -> Ticks {
        let (period, window) = (period.as_nanos() as u64, window.as_nanos() as u64);
        let at = (0..window / period + 2)
            .map(|_| AtomicU64::new(0))
            .collect();
        Ticks {
            start: now_ns(),
            period,
            window,
            len: AtomicUsize::new(0),
            at,
        }
    }

    /// The task ran: notes the time. False when the window has closed. One task at a time.
    pub fn tick(&self) -> bool {
        let n = self.len.load(Ordering::Relaxed);
        let now = now_ns();
        if now >= self.start + self.window || n == self.at.len() {
            return false;
        }
        self.at[n].store(now, Ordering::Relaxed);
        self.len.store(n + 1, Ordering::Release);
        true
    }

    /// Blocks the calling OS thread until the window has closed.
    pub fn wait(&self) {
        let left = (self.start + self.window).saturating_sub(now_ns());
        std::thread::sleep(Duration::from_nanos(left));
    }

    /// Lateness of every tick, real or made impossible, in milliseconds, and whether the task was stuck: no tick in
    /// more than half of the window.
    fn lateness(&self) -> (Vec<f64>, bool) {
        let n = self.len.load(Ordering::Acquire);
        let end = self.start + self.window;
        let times = self.at[..n]
            .iter()
            .map(|t| t.load(Ordering::Relaxed))
            .chain([end]);
        let (mut late, mut last, mut widest) = (Vec::new(), self.start, 0);
        for (i, time) in times.enumerate() {
            widest = widest.max(time - last);
            let mut lateness = time.saturating_sub(last + self.period);
            let closing = i == n;
            if !closing || lateness > 0 {
                late.push(lateness as f64 / 1e6);
            }
            while lateness > self.period {
                lateness -= self.period;
                late.push(lateness as f64 / 1e6);
            }
            last = time;
        }
        (late, widest * 2 > self.window)
    }

    /// The figures of the closed window.
    pub fn report(&self, scenario: &str) -> Report {
        let (mut late, stuck) = self.lateness();
        Report::new(scenario)
            .percentiles("late_ms_", &mut late)
            .put("ticks", self.len.load(Ordering::Acquire) as f64)
            .flag("stuck", stuck)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(ms: &[u64], window: u64) -> (Vec<f64>, bool) {
        let ticks = Ticks {
            start: 0,
            period: 1_000_000,
            window: window * 1_000_000,
            len: AtomicUsize::new(ms.len()),
            at: ms.iter().map(|t| AtomicU64::new(t * 1_000_000)).collect(),
        };
        ticks.lateness()
    }

    #[test]
    fn a_late_tick_counts_for_those_it_prevented() {
        assert_eq!(log(&[1, 2, 5], 6), (vec![0.0, 0.0, 2.0, 1.0], false));
    }

    #[test]
    fn no_tick_at_all_is_stuck_and_late() {
        assert_eq!(log(&[], 4), (vec![3.0, 2.0, 1.0], true));
    }

    #[test]
    fn a_tick_pending_at_the_end_counts_once_overdue() {
        assert_eq!(log(&[1, 2], 5), (vec![0.0, 0.0, 2.0, 1.0], true));
    }
}

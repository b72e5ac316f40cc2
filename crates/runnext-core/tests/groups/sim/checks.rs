//! What must hold in every run, and what a run amounted to.

use std::collections::VecDeque;

use runnext_core::group::lanes::PATIENCE;
use runnext_core::group::{GroupConfig, GroupId, Priority, ROOT};

use super::{MS, P, Sim};

impl Sim {
    /// A queue waits for a residency of its group on its P for no longer than its weight explains, and [`PATIENCE`] (I4).
    pub(super) fn check_wait(&mut self, p: usize, group: GroupId) {
        let config = &self.configs[group.index()];
        let exempt = config.quota.is_some() || config.governed || config.priority == Priority::Low;
        let Some(since) = self.ps[p].since[group.index()].take() else {
            return;
        };
        if exempt || config.parent.is_some() || group == ROOT {
            return;
        }
        // Weights may have changed meanwhile.
        let all = self.ledger.clocks().of(config.priority).weight();
        self.peak_weight = self.peak_weight.max(all);
        let round = 2 * config.slice * self.peak_weight / u64::from(config.weight);
        // Others may be overdue too, and run first, one slice each.
        let slices = self.configs.iter().map(|c| c.slice + self.gap).sum::<u64>();
        let promised = PATIENCE + round + slices;
        let waited = self.now - since;
        self.late = self.late.max(waited as i64 - promised as i64);
    }

    /// No P is idle while something may run (I1).
    pub(super) fn check_idle(&mut self) {
        if self.idle_violation.is_some() || !self.ps.iter().any(|p| p.idle) {
            return;
        }
        // A second P for a group in credit is a courtesy, not a promise.
        let wide = |id: GroupId| {
            let quota = self.configs[id.index()].quota;
            let running = self.ledger.usage(id).running as u32;
            quota.is_some_and(|quota| running >= quota.rate.parallelism())
        };
        let mut found = None;
        for (q, p) in self.ps.iter().enumerate() {
            if !p.root.is_empty() {
                found = Some(format!("root work on {q} at {}", self.now));
            }
            if let Some((id, _)) = p.lanes.offer(&self.ledger, None, self.now, VecDeque::len)
                && !wide(id)
                && !self.configs[id.index()].parent.is_some_and(wide)
            {
                found = Some(format!("{id:?} on {q} at {}", self.now));
            }
        }
        self.idle_violation = found;
    }

    /// CPU time used by all Ps.
    pub fn busy(&self) -> u64 {
        let open = |p: &P| p.task.map_or(0, |(_, since)| self.now - since);
        self.ps.iter().map(|p| p.busy + open(p)).sum()
    }

    /// Service of a group, running residencies included.
    pub fn served(&self, id: GroupId) -> u64 {
        let running = self.ps.iter().filter(|p| p.group == id);
        let open: u64 = running
            .filter_map(|p| p.task.map(|(_, since)| self.now - since))
            .sum();
        self.service[id.index()] + open
    }

    /// The wake-up latencies of a group, sorted.
    pub fn wake_waits(&self, id: GroupId) -> Vec<u64> {
        let mut all: Vec<u64> = self
            .tasks
            .iter()
            .filter(|t| t.group == id)
            .flat_map(|t| t.wake_waits.iter().copied())
            .collect();
        all.sort_unstable();
        all
    }

    /// What must hold in every run: work conservation, bounded waits, and lags that add up to nothing.
    pub fn assert_sound(&self) {
        assert_eq!(self.idle_violation, None, "a P idles; seed {}", self.seed);
        assert!(
            self.late <= 0,
            "a queue waited {} ns too long; seed {}",
            self.late,
            self.seed
        );
        for class in [Priority::Normal, Priority::Low] {
            let same = |c: &GroupConfig| (c.priority == Priority::Low) == (class == Priority::Low);
            let of_class = self.configs.iter().enumerate().filter(|(_, c)| same(c));
            let lags = of_class.map(|(i, _)| self.ledger.usage(GroupId::from_index(i)).lag_ns);
            let sum: i64 = lags.sum();
            assert!(
                sum.abs() < MS as i64 / 10,
                "lags add up to {sum}; seed {}",
                self.seed
            );
        }
    }

    /// The service of each group over the next `ns`.
    pub fn measure(&mut self, groups: &[GroupId], ns: u64) -> Vec<u64> {
        let before: Vec<u64> = groups.iter().map(|&id| self.served(id)).collect();
        self.run_for(ns);
        let after = groups.iter().map(|&id| self.served(id));
        after.zip(before).map(|(a, b)| a - b).collect()
    }
}

/// Jain's index of fairness: 1 if all are equal, 1/n if one has everything.
pub fn jain(values: &[f64]) -> f64 {
    let sum: f64 = values.iter().sum();
    let squares: f64 = values.iter().map(|v| v * v).sum();
    sum * sum / (values.len() as f64 * squares)
}

pub fn quantile(sorted: &[u64], q: f64) -> u64 {
    match sorted.len() {
        0 => 0,
        n => sorted[((n as f64 * q) as usize).min(n - 1)],
    }
}

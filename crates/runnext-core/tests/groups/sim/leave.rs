//! Groups that come and go, and one that stays and is watched for what that costs it.

use runnext_core::group::{GroupConfig, GroupId, Priority};

use super::{Sim, Task, every};

#[derive(Clone, Copy)]
pub struct Chain {
    job: u64,
    until: u64,
    made: bool,
}

impl Sim {
    /// From now on it counts what this group is due by its weight. It never runs out of work, and nothing stops it.
    pub fn watch(&mut self, id: GroupId) {
        self.witness = Some((id, self.served(id)));
    }

    /// What that comes to.
    pub fn witness_due(&self) -> u64 {
        self.witness.map_or(0, |(_, due)| due)
    }

    pub(super) fn advance(&mut self, to: u64) {
        let all = self.ledger.clocks().of(Priority::Normal).weight();
        if let Some((id, due)) = &mut self.witness {
            let weight = u64::from(self.configs[id.index()].weight);
            *due += (to - self.now) * self.ps.len() as u64 * weight / all.max(weight);
        }
        self.now = to;
    }

    /// A job in a group of its own that starts another such job, and so on.
    pub fn chain(&mut self, job: u64, until: u64) {
        let group = self.weighted(100);
        let task = self.spawn(group, every(job, 0));
        let made = false;
        self.tasks[task].chain = Some(Chain { job, until, made });
    }

    /// What is queued of a group is dropped, what runs goes no further, and then the group goes.
    pub fn retire(&mut self, id: GroupId) {
        for task in self.tasks.iter_mut().filter(|task| task.group == id) {
            task.gone = true;
        }
        for p in &mut self.ps {
            let n = p.lanes.queued(id);
            p.lanes.queue(id).clear();
            p.lanes.popped(&self.ledger, id, n, self.now);
        }
        self.leaving.push(id);
        self.bury();
    }

    pub(super) fn bury(&mut self) {
        let leaving = std::mem::take(&mut self.leaving);
        for id in leaving {
            let used = self.ledger.usage(id).cpu_ns;
            if self.ledger.remove(id).is_err() {
                self.leaving.push(id);
                continue;
            }
            self.governor.forget(id);
            let at = id.index();
            self.buried.0 += std::mem::take(&mut self.service[at]);
            self.buried.1 += used;
            self.configs[at] = GroupConfig::default();
            self.ps.iter_mut().for_each(|p| p.since[at] = None);
        }
    }

    /// The job of a chain runs: the next one is made, if that was not done.
    pub(super) fn go_on_with_chain(&mut self, task: Task) {
        if let Some(chain) = &mut self.tasks[task].chain
            && !std::mem::replace(&mut chain.made, true)
            && self.now < chain.until
        {
            let Chain { job, until, .. } = *chain;
            self.chain(job, until);
        }
    }
}

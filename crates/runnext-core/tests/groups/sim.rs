//! A discrete-event simulator of Ps that live by `runnext_core::group`: one thread, a virtual clock, a seed.
//!
//! It does what the runtime does with the policy's answers, and nothing else: queue, pick, run until the residency ends, steal where told,
//! wake idle Ps, preempt. Running code is stopped late, by up to `gap`, as code between two checkpoints is. After every
//! event it checks that no P is idle while something may run.

use std::cmp::Reverse;
use std::collections::{BinaryHeap, VecDeque};

use runnext_core::group::{
    Feedback, Governor, GroupConfig, GroupId, Key, Lanes, Ledger, Pick, Priority, Quota, ROOT,
    Storage, Verdict, preempt_after,
};
use runnext_core::rng::Dice;

mod checks;
mod leave;

pub use checks::{jain, quantile};
use leave::Chain;

pub const US: u64 = 1_000;
pub const MS: u64 = 1_000_000;
pub const SEC: u64 = 1_000 * MS;

pub type Task = usize;

/// What a task does: given the dice, how long it runs and then how long it sleeps. `u64::MAX` runs for ever.
pub type Program = Box<dyn FnMut(&mut Dice) -> (u64, u64)>;

pub fn hog() -> Program {
    Box::new(|_| (u64::MAX, 0))
}

pub fn every(run: u64, sleep: u64) -> Program {
    Box::new(move |_| (run, sleep))
}

struct T {
    group: GroupId,
    program: Program,
    left: u64,
    sleep: u64,
    ready_at: u64,
    last_p: usize,
    /// How long each wake-up waited.
    wake_waits: Vec<u64>,
    woken: bool,
    /// Its group goes, and it with it.
    gone: bool,
    /// It is the only one of its group, ends when its time is up, and makes the next such group when it first runs, until then.
    chain: Option<Chain>,
}

struct P {
    lanes: Lanes<VecDeque<Task>>,
    root: VecDeque<Task>,
    /// What runs, since when, and until when the residency lasts.
    task: Option<(Task, u64)>,
    group: GroupId,
    until: u64,
    started: u64,
    key: Key,
    idle: bool,
    /// Events of an older segment mean nothing.
    epoch: u64,
    asked: bool,
    busy: u64,
    /// Since when each group's queue waits for a residency here.
    since: Vec<Option<u64>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    Segment { p: usize, epoch: u64 },
    Wake(Task),
    Timer,
    Govern,
    Look,
}

pub struct Sim {
    pub seed: u64,
    pub now: u64,
    pub ledger: Ledger,
    pub governor: Governor,
    pub feedback: Option<Feedback>,
    /// How late running code is stopped at most.
    pub gap: u64,
    pub preemptions: u64,
    /// By how much any queue waited beyond what is promised, in ns.
    pub late: i64,
    peak_weight: u64,
    configs: Vec<GroupConfig>,
    service: Vec<u64>,
    /// Groups that are to be removed as soon as nothing of them runs, and what those used and paid for that are.
    leaving: Vec<GroupId>,
    pub buried: (u64, u64),
    /// A group that always wants more, and what its weight was good for so far.
    witness: Option<(GroupId, u64)>,
    idle_violation: Option<String>,
    ps: Vec<P>,
    tasks: Vec<T>,
    events: BinaryHeap<Reverse<(u64, u64, Event)>>,
    seq: u64,
    dice: Dice,
    govern_at: Option<u64>,
    timer_at: Option<u64>,
}

impl Sim {
    pub fn new(procs: usize, seed: u64) -> Sim {
        let ledger = Ledger::new(procs, 0);
        let ps = (0..procs)
            .map(|p| P {
                lanes: Lanes::new(p, Storage::new(1)),
                root: VecDeque::new(),
                task: None,
                group: ROOT,
                until: 0,
                started: 0,
                key: Key::IDLE,
                idle: true,
                epoch: 0,
                asked: false,
                busy: 0,
                since: vec![None],
            })
            .collect();
        Sim {
            seed,
            now: 0,
            ledger,
            governor: Governor::unlimited(),
            feedback: None,
            gap: 20 * US,
            preemptions: 0,
            late: i64::MIN,
            peak_weight: 0,
            configs: vec![GroupConfig::default()],
            service: vec![0],
            leaving: Vec::new(),
            buried: (0, 0),
            witness: None,
            idle_violation: None,
            ps,
            tasks: Vec::new(),
            events: BinaryHeap::new(),
            seq: 0,
            dice: Dice::new(seed),
            govern_at: None,
            timer_at: None,
        }
    }

    pub fn group(&mut self, config: GroupConfig) -> GroupId {
        let id = self.ledger.add(&config, self.now).expect("a good config");
        let places = self.ledger.places();
        for p in &mut self.ps {
            drop(p.lanes.grow(Storage::new(places)));
            p.since.resize(places, None);
        }
        self.governor.reserve(places);
        self.service.resize(places, 0);
        self.configs.resize(places, config);
        self.configs[id.index()] = config;
        if self.ledger.group(id).is_governed() && self.governor.begin(id, self.now) == Verdict::Wait
        {
            self.ledger.hold(id, self.now);
            self.govern();
        }
        id
    }

    pub fn weighted(&mut self, weight: u32) -> GroupId {
        self.group(GroupConfig {
            weight,
            ..GroupConfig::default()
        })
    }

    /// Adds a task that becomes runnable now, on a P of the dice's choice.
    pub fn spawn(&mut self, group: GroupId, program: Program) -> Task {
        self.spawn_at(group, program, 0)
    }

    pub fn spawn_at(&mut self, group: GroupId, mut program: Program, delay: u64) -> Task {
        let (left, sleep) = program(&mut self.dice);
        let last_p = self.dice.below(self.ps.len() as u32) as usize;
        let id = self.tasks.len();
        self.tasks.push(T {
            group,
            program,
            left,
            sleep,
            ready_at: 0,
            last_p,
            wake_waits: Vec::new(),
            woken: false,
            gone: false,
            chain: None,
        });
        self.at(self.now + delay, Event::Wake(id));
        id
    }

    pub fn hogs(&mut self, group: GroupId, n: usize) {
        for _ in 0..n {
            self.spawn(group, hog());
        }
    }

    pub fn hogs_in(&mut self, groups: &[GroupId], n: usize) {
        for &id in groups {
            self.hogs(id, n);
        }
    }

    /// Begins the loop of the latency feedback.
    pub fn adapt(&mut self, target_ns: u64) {
        let target = std::time::Duration::from_nanos(target_ns);
        self.feedback = Some(Feedback::new(target, self.now));
        self.at(self.now + 10 * MS, Event::Look);
    }

    fn at(&mut self, time: u64, event: Event) {
        self.seq += 1;
        self.events.push(Reverse((time, self.seq, event)));
    }

    /// Wakes idle Ps then, or earlier if that is asked for already.
    fn timer(&mut self, at: u64) {
        if self
            .timer_at
            .is_none_or(|armed| armed <= self.now || armed > at)
        {
            self.timer_at = Some(at);
            self.at(at, Event::Timer);
        }
    }

    pub fn run_for(&mut self, ns: u64) {
        let end = self.now + ns;
        while let Some(&Reverse((time, _, event))) = self.events.peek() {
            if time > end {
                break;
            }
            self.events.pop();
            assert!(time >= self.now, "time runs back; seed {}", self.seed);
            self.advance(time);
            match event {
                Event::Segment { p, epoch } if self.ps[p].epoch == epoch => self.segment_over(p),
                Event::Segment { .. } => {}
                Event::Wake(task) if self.tasks[task].gone => {}
                Event::Wake(task) => self.wake(task),
                Event::Timer => {
                    // Those that go back to sleep arm it again.
                    self.timer_at = None;
                    self.wake_idle();
                }
                Event::Govern => self.govern(),
                Event::Look => self.look(),
            }
            self.bury();
            self.check_idle();
        }
        self.advance(end);
    }

    // ---- the events ----

    fn wake(&mut self, task: Task) {
        let group = self.tasks[task].group;
        self.tasks[task].ready_at = self.now;
        self.tasks[task].woken = true;
        if let Some(p) = (0..self.ps.len()).find(|&p| self.ps[p].idle) {
            self.push(p, task);
            self.dispatch(p);
            if !self.ps[p].idle {
                return;
            }
            self.wake_idle();
            return;
        }
        // Push first: the group may only now begin to compete.
        let home = self.tasks[task].last_p;
        self.push(home, task);
        if group == ROOT {
            return;
        }
        let wake = self.ledger.wake(group);
        let least = |p: usize| match self.ps[p].asked || self.ps[p].group == group {
            true => None,
            false => preempt_after(wake, self.ps[p].key),
        };
        let victims = (0..self.ps.len()).filter(|&p| least(p).is_some());
        let worst = victims.reduce(|a, b| match self.ps[b].key.is_worse(self.ps[a].key) {
            true => b,
            false => a,
        });
        let Some(p) = worst else {
            return;
        };
        let at = self.ps[p].started + least(p).expect("a victim");
        if p != home {
            let back = self.ps[home].lanes.queue(group).pop_back();
            assert_eq!(back, Some(task), "just pushed");
            self.ps[home].lanes.popped(&self.ledger, group, 1, self.now);
            self.push(p, task);
        }
        self.preempt(p, at.max(self.now));
    }

    fn preempt(&mut self, p: usize, at: u64) {
        self.preemptions += 1;
        self.ps[p].asked = true;
        self.ps[p].until = self.ps[p].until.min(at);
        self.schedule_segment(p);
    }

    pub fn set_weight(&mut self, id: GroupId, weight: u32) {
        self.ledger.set_weight(id, weight, self.now);
        // What is promised about waiting is checked against the least weight it had.
        let config = &mut self.configs[id.index()];
        config.weight = config.weight.min(weight);
    }

    pub fn set_priority(&mut self, id: GroupId, priority: Priority) {
        self.ledger.set_priority(id, priority, self.now);
        self.configs[id.index()].priority = priority;
        // Waits that began in another class are not comparable.
        for p in &mut self.ps {
            p.since[id.index()] = None;
        }
        self.wake_idle();
    }

    pub fn config(&self, id: GroupId) -> &GroupConfig {
        &self.configs[id.index()]
    }

    /// Changes a quota, and wakes those that can use it.
    pub fn set_quota(&mut self, id: GroupId, quota: Option<Quota>) {
        self.ledger.set_quota(id, quota, self.now);
        self.configs[id.index()].quota = quota;
        for p in &mut self.ps {
            p.since[id.index()] = None; // for as long as it had one nothing was promised
        }
        self.wake_idle();
    }

    /// Changes the limit on governed groups.
    pub fn set_limit(&mut self, ppm: Option<u32>) {
        self.governor.limit(ppm, self.ps.len(), self.now);
        self.govern();
    }

    fn push(&mut self, p: usize, task: Task) {
        let group = self.tasks[task].group;
        self.tasks[task].last_p = p;
        let here = &mut self.ps[p];
        if group == ROOT {
            here.root.push_back(task);
        } else {
            if here.lanes.queued(group) == 0 {
                here.since[group.index()] = Some(self.now);
            }
            here.lanes.queue(group).push_back(task);
            here.lanes.pushed(&self.ledger, group, 1, self.now);
        }
    }

    fn pop(&mut self, p: usize, group: GroupId) -> Option<Task> {
        let here = &mut self.ps[p];
        if group == ROOT {
            return here.root.pop_front();
        }
        let task = here.lanes.queue(group).pop_front()?;
        here.lanes.popped(&self.ledger, group, 1, self.now);
        Some(task)
    }

    /// What runs on `p` stops: it slept, was preempted, or its residency is over.
    fn segment_over(&mut self, p: usize) {
        let (task, since) = self.ps[p].task.take().expect("a running task");
        let ran = self.now - since;
        self.ps[p].busy += ran;
        let group = self.ps[p].group;
        self.service[group.index()] += ran;
        if self.tasks[task].gone {
            return self.continue_or_end(p);
        }
        let t = &mut self.tasks[task];
        t.left = t.left.saturating_sub(ran);
        if t.left == 0 && t.chain.is_some() {
            self.retire(group);
        } else if t.left == 0 {
            let sleep = t.sleep;
            let (left, next_sleep) = (t.program)(&mut self.dice);
            (t.left, t.sleep) = (left, next_sleep);
            if sleep == 0 {
                t.ready_at = self.now;
                self.push(p, task);
            } else {
                let at = self.now + sleep;
                self.at(at, Event::Wake(task));
            }
        } else {
            t.ready_at = self.now;
            self.push(p, task);
        }
        self.continue_or_end(p);
    }

    fn continue_or_end(&mut self, p: usize) {
        let group = self.ps[p].group;
        if self.now < self.ps[p].until
            && let Some(task) = self.pop(p, group)
        {
            self.run(p, task);
            self.wake_one(p, false);
            return;
        }
        let lanes = &mut self.ps[p].lanes;
        let used = lanes.current().map_or(0, |(_, since)| self.now - since);
        let ended = lanes.end(&self.ledger, self.now, used);
        if let Some(ended) = ended {
            self.ps[p].since[group.index()] = Some(self.now);
            if ended.governed {
                let verdict = self.governor.charge(ended.group, ended.used, self.now);
                if verdict == Verdict::Wait {
                    self.ledger.hold(ended.group, self.now);
                }
                self.govern();
            }
            if ended.freed {
                self.wake_idle();
            }
        }
        self.dispatch(p);
    }

    fn govern(&mut self) {
        let ready = |id| self.ledger.group(id).is_present();
        while let Some(id) = self.governor.release_of(self.now, ready) {
            self.ledger.release(id, self.now);
        }
        if let Some(when) = self.governor.when(self.now)
            && self.govern_at.is_none_or(|at| at <= self.now || at > when)
        {
            self.govern_at = Some(when);
            self.at(when, Event::Govern);
        }
        self.wake_idle();
    }

    fn look(&mut self) {
        let low = |id| {
            self.ledger.group(id).is_governed()
                || self.configs[id.index()].priority == Priority::Low
        };
        let mut ids = self.ps.iter().flat_map(|p| p.lanes.groups());
        let waits = ids.any(|&id| low(id));
        let feedback = self.feedback.as_mut().expect("adaptive");
        if feedback.look(waits, self.now).is_some() {
            let (ppm, procs) = (feedback.in_force(), self.ps.len());
            self.ledger.set_low_limit(ppm, self.now);
            self.governor.limit(ppm, procs, self.now);
            self.govern(); // and idle Ps look, for Low groups too
        }
        self.ledger.resync();
        self.at(self.now + 10 * MS, Event::Look);
    }

    fn wake_idle(&mut self) {
        for p in 0..self.ps.len() {
            if self.ps[p].idle {
                self.dispatch(p);
            }
        }
    }

    // ---- the worker ----

    fn dispatch(&mut self, p: usize) {
        let searching = self.ps[p].idle;
        self.ps[p].asked = false;
        self.ps[p].idle = false;
        self.ps[p].epoch += 1;
        let mut steal = true;
        loop {
            let root = !self.ps[p].root.is_empty();
            let pick = self.ps[p].lanes.pick(&self.ledger, self.now, root, steal);
            if let Some(at) = self.ps[p].lanes.take_timer() {
                self.timer(at);
            }
            match pick {
                Pick::Run { group, until, key } => {
                    let here = &mut self.ps[p];
                    here.group = group;
                    here.until = until;
                    here.key = key;
                    here.started = self.now;
                    self.check_wait(p, group);
                    let task = self.pop(p, group).expect("something queued");
                    self.run(p, task);
                    break;
                }
                Pick::Steal(group) => {
                    steal = false;
                    self.steal(p, Some(group));
                }
                // What was stolen may turn out to have no quota left: search until there is nothing.
                Pick::Wait(_) if self.steal(p, None) => steal = false,
                Pick::Wait(until) => {
                    self.ps[p].idle = true;
                    self.ps[p].key = Key::IDLE;
                    if let Some(at) = until {
                        self.timer(at);
                    }
                    break;
                }
            }
        }
        self.wake_one(p, searching);
    }

    /// Whoever has more than it runs starts a searcher, and so does a searcher that found something.
    fn wake_one(&mut self, p: usize, searching: bool) {
        let more = !self.ps[p].root.is_empty() || !self.ps[p].lanes.groups().is_empty();
        if !self.ps[p].idle
            && (more || searching)
            && let Some(next) = (0..self.ps.len()).find(|&q| self.ps[q].idle)
        {
            self.dispatch(next);
        }
    }

    fn steal(&mut self, p: usize, want: Option<GroupId>) -> bool {
        let n = self.ps.len();
        let start = self.dice.below(n as u32) as usize;
        for i in 0..n {
            let q = (start + i) % n;
            if q == p {
                continue;
            }
            let lanes = &self.ps[q].lanes;
            if let Some((group, half)) = lanes.offer(&self.ledger, want, self.now, VecDeque::len) {
                let loot: Vec<Task> = self.ps[q].lanes.queue(group).drain(..half).collect();
                self.ps[q].lanes.popped(&self.ledger, group, half, self.now);
                for task in loot {
                    self.push(p, task);
                }
                return true;
            }
            if want.is_none() && !self.ps[q].root.is_empty() {
                let half = self.ps[q].root.len().div_ceil(2);
                let loot: Vec<Task> = self.ps[q].root.drain(..half).collect();
                self.ps[p].root.extend(loot);
                return true;
            }
        }
        false
    }

    fn run(&mut self, p: usize, task: Task) {
        let waited = self.now - self.tasks[task].ready_at;
        let t = &mut self.tasks[task];
        if t.woken {
            t.woken = false;
            t.wake_waits.push(waited);
            if let Some(feedback) = &mut self.feedback
                && self.ps[p].key.is_fair()
            {
                feedback.sample(waited);
            }
        }
        self.ps[p].task = Some((task, self.now));
        self.schedule_segment(p);
        self.go_on_with_chain(task);
    }

    /// When what runs on `p` will stop by itself or be stopped.
    fn schedule_segment(&mut self, p: usize) {
        let (task, since) = self.ps[p].task.expect("a running task");
        let late = match self.gap {
            0 => 0,
            gap => u64::from(self.dice.below(gap as u32)),
        };
        let stop = self.ps[p].until.max(self.now) + late;
        let end = since.saturating_add(self.tasks[task].left);
        self.ps[p].epoch += 1;
        let epoch = self.ps[p].epoch;
        self.at(stop.min(end).max(self.now), Event::Segment { p, epoch });
    }
}

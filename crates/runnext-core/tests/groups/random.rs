//! Random traces with everything at once: whatever happens, what is promised of every run must hold.
//!
//! `GROUPS_SEED=n` runs one trace, `GROUPS_TRACES=n` so many.

use runnext_core::group::shared::{TICK, quota_capacity};
use runnext_core::group::{Governor, GroupConfig, GroupId, Priority, Quota, ROOT};
use runnext_core::rng::Dice;

use crate::sim::*;

fn pick<T: Copy>(dice: &mut Dice, from: &[T]) -> T {
    from[dice.below(from.len() as u32) as usize]
}

fn config(dice: &mut Dice, groups: &[GroupId], sim: &Sim) -> GroupConfig {
    let cores = pick(dice, &[0.05, 0.3, 1.0, 2.5]);
    let parent = groups.iter().copied().find(|&id| {
        let parent = sim.config(id);
        parent.parent.is_none() && parent.quota.is_some()
    });
    GroupConfig {
        weight: pick(dice, &[10, 100, 100, 100, 500, 2000]),
        priority: pick(
            dice,
            &[
                Priority::Normal,
                Priority::Normal,
                Priority::High,
                Priority::Low,
            ],
        ),
        slice: pick(dice, &[MS / 5, MS, 2 * MS, 2 * MS, 10 * MS]),
        quota: (dice.below(4) == 0)
            .then(|| Quota::new(cores, u64::from(dice.below(30)) * MS).expect("good")),
        governed: dice.below(5) == 0,
        parent: parent.filter(|_| dice.below(4) == 0),
    }
}

fn program(dice: &mut Dice) -> Program {
    match dice.below(4) {
        0 => hog(),
        1 => every(
            u64::from(dice.below(3_000_000)) + 1,
            u64::from(dice.below(3_000_000)) + 1,
        ),
        2 => every(
            u64::from(dice.below(50_000)) + 1,
            u64::from(dice.below(1_000_000)) + 1,
        ),
        _ => Box::new(|dice| {
            let (run, sleep) = (1 << (10 + dice.below(13)), 1 << dice.below(23));
            (u64::from(dice.below(run)) + 1, u64::from(dice.below(sleep)))
        }),
    }
}

/// The use of a group with a quota that never changed, less what its rate allowed so far.
struct Envelope {
    id: GroupId,
    quota: Quota,
    since: u64,
    least: i64,
}

impl Envelope {
    fn check(&mut self, sim: &Sim, procs: usize) {
        let allowed = self.quota.rate.during(sim.now - self.since);
        let over = sim.served(self.id) as i64 - allowed as i64;
        self.least = self.least.min(over);
        let users = procs.min(self.quota.rate.parallelism() as usize + 1) as u64;
        let most = quota_capacity(self.quota, procs as u32) + users * (MS + sim.gap);
        assert!(
            over - self.least <= most as i64,
            "{:?} used {} beyond its rate, of {most}; seed {}",
            self.id,
            over - self.least,
            sim.seed
        );
    }
}

fn trace(seed: u64) {
    let mut dice = Dice::new(seed);
    let procs = pick(&mut dice, &[1usize, 1, 2, 2, 3, 4, 8, 16]);
    let mut sim = Sim::new(procs, seed);
    sim.gap = pick(&mut dice, &[0, 20 * US, 500 * US, 5 * MS]);
    if dice.below(3) == 0 {
        sim.governor = Governor::new(200_000 + dice.below(800_000), procs, 0);
    }
    if dice.below(4) == 0 {
        sim.adapt(MS);
    }
    let mut groups = Vec::new();
    let mut envelopes: Vec<Envelope> = Vec::new();
    let witness = sim.weighted(100);
    sim.hogs(witness, 2 * procs);
    sim.run_for(MS);
    sim.watch(witness);
    for step in 0..60 {
        if groups.len() < 3 || (groups.len() < 15 && dice.below(8) == 0) {
            let config = config(&mut dice, &groups, &sim);
            let id = sim.group(config);
            groups.push(id);
            if let Some(quota) = config.quota {
                envelopes.push(Envelope {
                    id,
                    quota,
                    since: sim.now,
                    least: 0,
                });
            }
        }
        let id = match dice.below(10) {
            0 => ROOT,
            _ => pick(&mut dice, &groups),
        };
        if step < 40 {
            for _ in 0..dice.below(4) {
                let program = program(&mut dice);
                sim.spawn_at(id, program, u64::from(dice.below(1_000_000)));
            }
        }
        if id != ROOT && dice.below(6) == 0 {
            sim.set_weight(id, pick(&mut dice, &[1, 50, 100, 400, 10_000]));
        }
        if id != ROOT && dice.below(10) == 0 {
            sim.set_priority(
                id,
                pick(
                    &mut dice,
                    &[Priority::High, Priority::Normal, Priority::Low],
                ),
            );
        }
        if id != ROOT && dice.below(10) == 0 {
            let quota = Quota::new(pick(&mut dice, &[0.1, 0.5, 2.0]), 0).expect("good");
            sim.set_quota(id, (dice.below(3) != 0).then_some(quota));
            envelopes.retain(|envelope| envelope.id != id);
        }
        if dice.below(20) == 0 {
            let ppm = 50_000 + dice.below(950_000);
            sim.set_limit((dice.below(3) != 0).then_some(ppm));
        }
        if dice.below(20) == 0 {
            let job = pick(&mut dice, &[300 * US, 1900 * US, 5 * MS]);
            sim.chain(job, sim.now + SEC);
        }
        let is_parent = groups.iter().any(|&of| sim.config(of).parent == Some(id));
        if id != ROOT && !is_parent && dice.below(6) == 0 {
            sim.retire(id);
            groups.retain(|&other| other != id);
            envelopes.retain(|envelope| envelope.id != id);
        }
        let parts = 1 + dice.below(8);
        for _ in 0..parts {
            sim.run_for(u64::from(dice.below(4_000_000)) + 1);
            for envelope in &mut envelopes {
                envelope.check(&sim, procs);
            }
        }
    }
    sim.assert_sound();
    assert_sums(&sim, procs, witness);
}

/// Every ns belongs to one group and is charged to it, and `witness` had what it was due.
fn assert_sums(sim: &Sim, procs: usize, witness: GroupId) {
    let seed = sim.seed;
    let places = (0..sim.ledger.places()).map(GroupId::from_index);
    let used: u64 = places.clone().map(|id| sim.served(id)).sum();
    let (buried, paid) = sim.buried;
    let used = used + buried;
    assert_eq!(
        used,
        sim.busy(),
        "every ns belongs to one group; seed {seed}"
    );
    let alive = places.filter(|&id| sim.ledger.group(id).is_alive());
    let charged: u64 = alive.map(|id| sim.ledger.usage(id).cpu_ns).sum();
    let charged = charged + paid;
    let open = procs as u64 * (10 * MS + sim.gap + TICK);
    assert!(charged <= used && used - charged <= open, "seed {seed}");
    // Low groups get their floor whatever the weights are.
    let (served, due) = (sim.served(witness), sim.witness_due() / 100 * 94);
    assert!(
        served + open >= due,
        "who always wants more had {served} of {due}; seed {seed}"
    );
}

#[test]
fn promises_hold_in_random_traces() {
    let env = |name| std::env::var(name).ok().and_then(|v| v.parse().ok());
    if let Some(seed) = env("GROUPS_SEED") {
        return trace(seed);
    }
    for seed in 0..env("GROUPS_TRACES").unwrap_or(80) {
        trace(seed);
    }
}

//! Quotas: the mean is met, no window is overdrawn, no pause is long, parents bind.

use runnext_core::group::shared::{TICK, quota_capacity};
use runnext_core::group::{GroupConfig, GroupId, Lanes, Ledger, Pick, Quota, Storage};

use crate::sim::*;

fn limited(sim: &mut Sim, cores: f64, burst: u64) -> GroupId {
    sim.group(GroupConfig {
        quota: Some(Quota::new(cores, burst).expect("a good quota")),
        ..GroupConfig::default()
    })
}

/// Service sampled every `step`.
fn sample(sim: &mut Sim, id: GroupId, steps: usize, step: u64) -> Vec<u64> {
    (0..steps)
        .map(|_| {
            sim.run_for(step);
            sim.served(id)
        })
        .collect()
}

/// The most used in any window beyond `rate` times its length.
fn excess(samples: &[u64], rate: f64, step: u64) -> f64 {
    let over = samples.iter().enumerate();
    let over = over.map(|(i, &used)| used as f64 - rate * (i as u64 * step) as f64);
    let (mut least, mut most) = (f64::INFINITY, 0.0f64);
    for x in over {
        least = least.min(x);
        most = most.max(x - least);
    }
    most
}

#[test]
fn the_mean_is_met_and_every_window_kept() {
    for procs in [1usize, 2, 8] {
        for cores in [0.25, 0.5, 1.5] {
            for burst in [0, 20 * MS] {
                for rivals in [0, 1] {
                    let mut sim = Sim::new(procs, 61);
                    let id = limited(&mut sim, cores, burst);
                    sim.hogs(id, 8);
                    if rivals != 0 {
                        let rival = sim.weighted(100);
                        sim.hogs(rival, 2 * procs);
                    }
                    // What it can get at all, by its weight.
                    let fair = procs as f64 / (1.0 + rivals as f64);
                    if cores > fair * 0.95 {
                        continue;
                    }
                    sim.run_for(500 * MS);
                    let steps = 1500;
                    let from = sim.served(id);
                    let samples = sample(&mut sim, id, steps, MS);
                    let mean = (sim.served(id) - from) as f64 / (steps as u64 * MS) as f64;
                    let name = format!("{cores} of {procs}, burst {burst}, {rivals} rivals");
                    assert!((mean / cores - 1.0).abs() < 0.01, "{name}: {mean}");
                    let over = excess(&samples, cores, MS);
                    let quota = Quota::new(cores, burst).expect("good");
                    let users = (cores.ceil() as u64 + 1).min(procs as u64);
                    let most = quota_capacity(quota, procs as u32) + users * (MS + sim.gap);
                    assert!(most <= burst + procs as u64 * 3 * TICK / 2);
                    assert!(over <= most as f64, "{name}: {over} beyond, of {most}");
                    sim.assert_sound();
                }
            }
        }
    }
}

#[test]
fn pauses_are_short() {
    for cores in [0.25, 0.5] {
        let mut sim = Sim::new(2, 67);
        let id = limited(&mut sim, cores, 0);
        sim.hogs(id, 4);
        sim.run_for(500 * MS);
        let step = 50 * US;
        let samples = sample(&mut sim, id, 20_000, step);
        let (mut pause, mut longest) = (0, 0);
        for pair in samples.windows(2) {
            pause = if pair[0] == pair[1] { pause + step } else { 0 };
            longest = longest.max(pause);
        }
        let allowed = (MS as f64 / cores) as u64 + MS;
        assert!(longest <= allowed, "{cores} cores: paused {longest}");
    }
}

#[test]
fn it_runs_on_no_more_ps_than_its_quota_is_good_for() {
    let mut sim = Sim::new(8, 71);
    let id = limited(&mut sim, 0.5, 0);
    sim.hogs(id, 16);
    for _ in 0..5_000 {
        sim.run_for(50 * US);
        assert!(sim.ledger.usage(id).running <= 2);
    }
}

#[test]
fn overruns_are_paid_back() {
    // Code that checkpoints every 5 ms only, with a quota of which that is ten milliseconds' worth.
    let mut sim = Sim::new(2, 73);
    sim.gap = 5 * MS;
    let id = limited(&mut sim, 0.5, 0);
    sim.hogs(id, 4);
    sim.run_for(SEC);
    let used = sim.measure(&[id], 10 * SEC)[0] as f64 / (10 * SEC) as f64;
    assert!((used / 0.5 - 1.0).abs() < 0.02, "{used}");
}

#[test]
fn a_burst_is_there_after_a_pause_and_once() {
    let mut sim = Sim::new(1, 79);
    let id = limited(&mut sim, 0.1, 50 * MS);
    sim.run_for(SEC);
    sim.hogs(id, 1);
    let first = sim.measure(&[id], 60 * MS)[0];
    assert!((50 * MS..=60 * MS).contains(&first), "{first}");
    let then = sim.measure(&[id], SEC)[0] as f64 / SEC as f64;
    assert!((then / 0.1 - 1.0).abs() < 0.05, "{then}");
}

#[test]
fn the_parents_quota_binds_its_children_together() {
    let mut sim = Sim::new(4, 83);
    let parent = limited(&mut sim, 0.6, 0);
    let child = |sim: &mut Sim, quota: Option<f64>| {
        let id = sim.group(GroupConfig {
            parent: Some(parent),
            quota: quota.map(|cores| Quota::new(cores, 0).expect("good")),
            ..GroupConfig::default()
        });
        sim.hogs(id, 4);
        id
    };
    let children = [
        child(&mut sim, None),
        child(&mut sim, None),
        child(&mut sim, Some(0.1)),
    ];
    sim.run_for(SEC);
    let used = sim.measure(&children, 5 * SEC);
    let used: Vec<f64> = used
        .iter()
        .map(|&ns| ns as f64 / (5 * SEC) as f64)
        .collect();
    let sum: f64 = used.iter().sum();
    assert!((sum / 0.6 - 1.0).abs() < 0.02, "{used:?}");
    assert!(used[2] <= 0.102, "{used:?}");
    // The parent alone has no say in who of them gets it; nobody gets nothing.
    assert!(used.iter().all(|&part| part > 0.05), "{used:?}");
    sim.assert_sound();
}

#[test]
fn a_quota_can_be_changed_and_removed() {
    let mut sim = Sim::new(2, 89);
    let id = limited(&mut sim, 0.1, 0);
    sim.hogs(id, 4);
    sim.run_for(SEC);
    sim.set_quota(id, Some(Quota::new(1.0, 0).expect("good")));
    let used = sim.measure(&[id], SEC)[0] as f64 / SEC as f64;
    assert!((used - 1.0).abs() < 0.03, "{used}");
    sim.set_quota(id, None);
    let used = sim.measure(&[id], SEC)[0] as f64 / SEC as f64;
    assert!(used > 1.98, "{used}");
    sim.assert_sound();
}

/// A parent of this quota and two children of it, with what `procs` Ps have queued of them: nothing.
fn family(procs: usize, cores: f64) -> (Ledger, GroupId, [GroupId; 2], Vec<Lanes<()>>) {
    let ledger = Ledger::new(procs, 0);
    let quota = Some(Quota::new(cores, 0).expect("a good quota"));
    let add = |quota, parent| {
        let config = GroupConfig {
            quota,
            parent,
            ..GroupConfig::default()
        };
        ledger.add(&config, 0).expect("room")
    };
    let parent = add(quota, None);
    let children = [add(None, Some(parent)), add(None, Some(parent))];
    let lanes = (0..procs).map(|p| Lanes::new(p, Storage::new(ledger.places())));
    let lanes = lanes.collect();
    (ledger, parent, children, lanes)
}

/// Runs what is queued, a millisecond at a time, until nothing may: at that time, and until then.
fn exhaust(lanes: &mut Lanes<()>, ledger: &Ledger) -> (u64, u64) {
    let mut now = 0;
    loop {
        match lanes.pick(ledger, now, false, false) {
            Pick::Wait(until) => return (now, until.expect("it may go on")),
            _ => {
                now += MS;
                lanes.end(ledger, now, MS);
            }
        }
    }
}

/// Children were stopped until their parent's old quota let them go on.
#[test]
fn a_parents_new_quota_lets_its_children_go_on() {
    let (ledger, parent, [child, _], mut lanes) = family(1, 0.01);
    lanes[0].pushed(&ledger, child, 1, 0);
    let (now, _) = exhaust(&mut lanes[0], &ledger);
    assert!(ledger.usage(child).throttled);
    ledger.set_quota(parent, None, now);
    assert!(!ledger.usage(child).throttled);
    let pick = lanes[0].pick(&ledger, now, false, false);
    assert!(
        matches!(pick, Pick::Run { group, .. } if group == child),
        "{pick:?}"
    );
}

/// If a group had nothing queued just when its time was looked for, nobody woke up for what it had queued later.
#[test]
fn a_pause_is_remembered_with_nothing_queued() {
    let (ledger, _, [child, _], mut lanes) = family(1, 0.1);
    lanes[0].pushed(&ledger, child, 1, 0);
    let (now, until) = exhaust(&mut lanes[0], &ledger);
    lanes[0].popped(&ledger, child, 1, now);
    assert_eq!(ledger.next_resume(now), Some(until));
    lanes[0].pushed(&ledger, child, 1, now);
    assert_eq!(ledger.next_resume(until), None, "then it is over");
}

/// A P that could run a sibling was not told, nor one that could run a child of the group that had its turn.
#[test]
fn kin_may_run_when_their_quota_is_no_longer_at_its_width() {
    for of_parent in [false, true] {
        let (ledger, parent, [child, second], mut lanes) = family(2, 0.5);
        let first = if of_parent { parent } else { child };
        let mut now = 0;
        // Below half of what its bucket holds it is good for one P.
        lanes[0].pushed(&ledger, first, 1, now);
        lanes[1].pushed(&ledger, second, 1, now);
        let wide = loop {
            let pick = lanes[0].pick(&ledger, now, false, false);
            assert!(matches!(pick, Pick::Run { .. }), "{pick:?}");
            if !ledger.may_start(second, now) {
                break lanes[0].end(&ledger, now, 0).expect("it ran");
            }
            now += MS / 4;
            lanes[0].end(&ledger, now, MS / 4);
        };
        assert!(wide.freed, "{wide:?}");
        assert!(ledger.may_start(second, now));
    }
}

//! Weights share CPU time, on any number of Ps, and nobody is owed or owes much.

use runnext_core::group::shared::TICK;
use runnext_core::group::{GroupConfig, GroupId, ROOT};

use crate::sim::*;

const WEIGHTS: [u32; 4] = [100, 200, 400, 800];

/// Four groups with weights 1:2:4:8 and fewer goroutines the more weight they have, but enough to use it.
fn four(procs: usize, seed: u64) -> (Sim, [GroupId; 4]) {
    let mut sim = Sim::new(procs, seed);
    let groups = WEIGHTS.map(|weight| sim.weighted(weight));
    for (&id, n) in groups.iter().zip([1000, 64, 8, 0]) {
        sim.hogs(id, n.max(procs));
    }
    (sim, groups)
}

fn parts(served: &[u64]) -> Vec<f64> {
    let all: u64 = served.iter().sum();
    served.iter().map(|&ns| ns as f64 / all as f64).collect()
}

#[test]
fn shares_follow_weights() {
    for (procs, tenths) in [(1, 50), (2, 50), (3, 50), (8, 20), (32, 10), (128, 5)] {
        let (mut sim, groups) = four(procs, 7);
        sim.run_for(50 * MS);
        let served = sim.measure(&groups, tenths * SEC / 10);
        let relative: Vec<f64> = parts(&served)
            .iter()
            .zip(WEIGHTS)
            .map(|(part, weight)| part * 1500.0 / f64::from(weight))
            .collect();
        for r in &relative {
            assert!((r - 1.0).abs() < 0.01, "{procs} Ps: {relative:?}");
        }
        assert!(jain(&relative) > 0.999);
        assert_eq!(sim.busy(), procs as u64 * sim.now, "all Ps always busy");
        sim.assert_sound();
    }
}

#[test]
fn shares_hold_in_every_tenth_of_a_second() {
    for procs in [1, 2, 8] {
        let (mut sim, groups) = four(procs, 11);
        sim.run_for(50 * MS);
        for _ in 0..30 {
            let parts = parts(&sim.measure(&groups, 100 * MS));
            for (part, weight) in parts.iter().zip(WEIGHTS) {
                let ideal = f64::from(weight) / 1500.0;
                assert!((part - ideal).abs() < 0.05, "{procs} Ps: {parts:?}");
            }
        }
    }
}

#[test]
fn lag_stays_within_its_bound() {
    for procs in [1, 2, 5, 16] {
        for gap in [20 * US, 2 * MS] {
            let (mut sim, groups) = four(procs, 13);
            sim.gap = gap;
            sim.run_for(20 * MS);
            let bound = procs as u64 * (2 * MS + gap + TICK);
            let start: Vec<u64> = groups.iter().map(|&id| sim.served(id)).collect();
            for ms in 1..1000 {
                sim.run_for(MS);
                for ((&id, weight), start) in groups.iter().zip(WEIGHTS).zip(&start) {
                    let ideal = ms * MS * procs as u64 * u64::from(weight) / 1500;
                    let lag = ideal as i64 - (sim.served(id) - start) as i64;
                    // Where it stood at the start counts once, where it stands now once more.
                    assert!(
                        lag.unsigned_abs() <= 2 * bound,
                        "{procs} Ps, gap {gap}: group {id:?} is {lag} off after {ms} ms; seed {}",
                        sim.seed
                    );
                    let known = sim.ledger.usage(id).lag_ns.unsigned_abs();
                    assert!(known <= bound, "{procs} Ps, gap {gap}: {known} > {bound}");
                }
            }
            sim.assert_sound();
        }
    }
}

#[test]
fn a_change_of_weight_is_felt_within_50_ms() {
    for procs in [1, 2, 8] {
        let mut sim = Sim::new(procs, 3);
        let groups = [sim.weighted(100), sim.weighted(100)];
        sim.hogs_in(&groups, 2 * procs);
        sim.run_for(500 * MS);
        sim.ledger.set_weight(groups[0], 900, sim.now);
        let first = parts(&sim.measure(&groups, 50 * MS));
        assert!(first[0] > 0.8, "{procs} Ps: {first:?}");
        let then = parts(&sim.measure(&groups, 500 * MS));
        assert!((then[0] - 0.9).abs() < 0.02, "{procs} Ps: {then:?}");
        sim.ledger.set_weight(groups[0], 100, sim.now);
        let back = parts(&sim.measure(&groups, 50 * MS));
        assert!((back[0] - 0.5).abs() < 0.1, "{procs} Ps: {back:?}");
        sim.assert_sound();
    }
}

#[test]
fn slice_buys_latency_not_share() {
    let mut sim = Sim::new(2, 5);
    let slices = [MS / 5, 2 * MS, 20 * MS];
    let groups = slices.map(|slice| {
        sim.group(GroupConfig {
            slice,
            ..GroupConfig::default()
        })
    });
    sim.hogs_in(&groups, 4);
    sim.run_for(100 * MS);
    let parts = parts(&sim.measure(&groups, 5 * SEC));
    for part in &parts {
        assert!((part * 3.0 - 1.0).abs() < 0.02, "{parts:?}");
    }
    sim.assert_sound();
}

#[test]
fn a_group_that_cannot_use_its_weight_banks_nothing() {
    // One goroutine fills one core of four, whatever its weight; the other two share the rest.
    let mut sim = Sim::new(4, 17);
    let groups = [800, 100, 100].map(|weight| sim.weighted(weight));
    sim.hogs(groups[0], 1);
    sim.hogs(groups[1], 16);
    sim.hogs(groups[2], 16);
    sim.run_for(100 * MS);
    let parts_before = parts(&sim.measure(&groups, 3 * SEC));
    assert!((parts_before[0] - 0.25).abs() < 0.01, "{parts_before:?}");
    assert!(
        (parts_before[1] / parts_before[2] - 1.0).abs() < 0.02,
        "{parts_before:?}"
    );
    // Three seconds of "credit" must not keep the others off the machine now.
    sim.hogs(groups[0], 15);
    for _ in 0..10 {
        let parts = parts(&sim.measure(&groups, 50 * MS));
        assert!((parts[0] - 0.8).abs() < 0.12, "{parts:?}");
    }
    sim.assert_sound();
}

#[test]
fn who_used_idle_cores_is_not_punished() {
    let mut sim = Sim::new(4, 19);
    let (early, late) = (sim.weighted(100), sim.weighted(100));
    sim.hogs(early, 8);
    sim.run_for(2 * SEC);
    sim.hogs(late, 8);
    for _ in 0..5 {
        let parts = parts(&sim.measure(&[early, late], 50 * MS));
        assert!((parts[0] - 0.5).abs() < 0.1, "{parts:?}");
    }
    sim.assert_sound();
}

#[test]
fn the_ungrouped_are_one_group_of_weight_100() {
    for procs in [1, 4] {
        let mut sim = Sim::new(procs, 23);
        let group = sim.weighted(100);
        sim.hogs(ROOT, 40);
        sim.hogs(group, 8);
        sim.run_for(100 * MS);
        let parts = parts(&sim.measure(&[ROOT, group], 3 * SEC));
        assert!((parts[0] - 0.5).abs() < 0.02, "{procs} Ps: {parts:?}");
        sim.assert_sound();
    }
}

#[test]
fn a_thousand_groups() {
    let mut sim = Sim::new(4, 29);
    let groups: Vec<GroupId> = (0..1000)
        .map(|_| {
            sim.group(GroupConfig {
                slice: MS / 2,
                ..GroupConfig::default()
            })
        })
        .collect();
    for &id in &groups {
        sim.hogs(id, 3);
    }
    sim.run_for(SEC / 2);
    let served = sim.measure(&groups, 3 * SEC);
    let served: Vec<f64> = served.iter().map(|&ns| ns as f64).collect();
    assert!(served.iter().all(|&ns| ns > 0.0));
    assert!(jain(&served) > 0.98, "{}", jain(&served));
    sim.assert_sound();
}

#[test]
fn extreme_weights_neither_starve_nor_overflow() {
    let mut sim = Sim::new(2, 31);
    let groups = [1, 10_000].map(|weight| sim.weighted(weight));
    sim.hogs_in(&groups, 4);
    sim.run_for(SEC);
    let served = sim.measure(&groups, 100 * SEC);
    let part = served[0] as f64 / served[1] as f64;
    assert!((part * 10_000.0 - 1.0).abs() < 0.2, "{served:?}");
    sim.assert_sound();
}

/// Each job had a group, and made the next one before it ended: the group of the hogs had 4 % of the P.
#[test]
fn a_chain_of_groups_starves_nobody() {
    for gap in [0, 20 * US] {
        for job in [300 * US, 1900 * US, 5 * MS] {
            let mut sim = Sim::new(1, 37);
            sim.gap = gap;
            let hog = sim.weighted(100);
            sim.hogs(hog, 2);
            sim.chain(job, SEC);
            let part = sim.measure(&[hog], SEC)[0] as f64 / SEC as f64;
            // Of a job that is longer than a slice two groups wait at once.
            let least = if job > 2 * MS { 0.3 } else { 0.47 };
            assert!(
                (least..0.9).contains(&part),
                "jobs of {job}, gap {gap}: {part}"
            );
            sim.assert_sound();
        }
    }
}

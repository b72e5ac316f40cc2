//! The governor: 20 ms slices, earliest start first, a bucket of cores times a fraction.

use runnext_core::group::governor::{CAPACITY, SLICE};
use runnext_core::group::{Governor, GroupConfig, GroupId, Priority, Verdict};

use crate::sim::*;

fn ids(n: usize) -> (Sim, Vec<GroupId>) {
    let mut sim = Sim::new(1, 1);
    let ids = (0..n).map(|_| sim.weighted(100)).collect();
    (sim, ids)
}

/// The three groups in the governor's header: 20 ms of CPU time used in 100, 20 and 5 ms.
#[test]
fn who_took_longest_for_its_slice_goes_on_first() {
    let (_sim, ids) = ids(3);
    let mut governor = Governor::new(800_000, 10, 0);
    governor.reserve(4);
    // Empty the bucket: 8 cores' worth flow in again at 8 ms per ms.
    for _ in 0..20 {
        governor.charge(ids[2], 0, 1000 * MS);
    }
    let end = 1000 * MS;
    let start = |took: u64| end - took;
    // A first look at each, when its slice begins.
    for (id, took) in [(ids[0], 100 * MS), (ids[1], 20 * MS), (ids[2], 5 * MS)] {
        assert_eq!(
            governor.charge(id, 1, start(took) + 1),
            Verdict::GoOn(SLICE - 1)
        );
    }
    for &id in ids.iter().rev() {
        assert_eq!(governor.charge(id, SLICE, end), Verdict::Wait);
    }
    let mut order = Vec::new();
    let mut now = end;
    while governor.waiting() > 0 {
        now = now.max(governor.when(now).expect("somebody waits"));
        order.extend(governor.release(now));
    }
    assert_eq!(order, ids);
}

#[test]
fn a_group_goes_on_when_20_ms_are_there_and_not_before() {
    let (_sim, ids) = ids(8);
    let mut governor = Governor::new(800_000, 10, 0);
    governor.reserve(9);
    assert_eq!(governor.level(0), CAPACITY as i64);
    for &id in &ids {
        assert_eq!(governor.charge(id, SLICE, 0), Verdict::Wait);
    }
    // 160 ms used of 100: in debt by 60 ms. 8 ms flow in per ms.
    assert_eq!(governor.level(0), -60 * MS as i64);
    assert_eq!(governor.release(0), None);
    let when = governor.when(0).expect("they wait");
    assert!(when.abs_diff(10 * MS) <= 2, "{when}");
    assert_eq!(governor.release(when - 10), None);
    assert_eq!(
        governor.release(when),
        Some(ids[0]),
        "equal starts: first come"
    );
    assert_eq!(
        governor.release(when),
        None,
        "each pays its slice in advance"
    );
    // Another 20 ms take 2.5 ms.
    let next = governor.when(when).expect("they wait");
    assert!((next - when).abs_diff(2_500_000) <= 2, "{}", next - when);
}

#[test]
fn real_use_is_charged() {
    let (_sim, ids) = ids(2);
    let mut governor = Governor::new(500_000, 2, 0);
    governor.reserve(3);
    assert_eq!(governor.charge(ids[0], 35 * MS, 0), Verdict::Wait);
    assert_eq!(governor.level(0), 65 * MS as i64, "35 ms, not one slice");
    assert_eq!(governor.release(0), Some(ids[0]));
    assert_eq!(governor.level(0), 45 * MS as i64, "a slice in advance");
    assert_eq!(governor.charge(ids[0], 5 * MS, 0), Verdict::GoOn(15 * MS));
    assert_eq!(governor.level(0), 45 * MS as i64, "paid already");
    governor.forget(ids[0]);
    assert_eq!(governor.level(0), 60 * MS as i64, "15 ms come back");
}

/// Groups that slept took 20 ms each out of the bucket, in front of those that had something to run.
#[test]
fn who_has_nothing_to_run_takes_nothing() {
    let (_sim, ids) = ids(3);
    let mut governor = Governor::new(500_000, 2, 0);
    governor.reserve(4);
    for (at, &id) in ids.iter().enumerate() {
        governor.charge(id, 2 * SLICE, 10 * at as u64 * MS + 2 * SLICE);
    }
    let now = 100 * MS;
    let ready = |id| id == ids[2];
    assert_eq!(governor.level(now), 2 * SLICE as i64);
    let before = governor.level(now);
    assert_eq!(governor.release_of(now, ready), Some(ids[2]), "the last");
    assert_eq!(before - governor.level(now), SLICE as i64);
    // Another 20 ms are there, and nobody needs them.
    let now = now + SLICE;
    let before = governor.level(now);
    assert_eq!(governor.release_of(now, ready), Some(ids[0]));
    assert_eq!(governor.release_of(now, ready), Some(ids[1]));
    assert_eq!(governor.release_of(now, ready), None);
    assert_eq!(governor.level(now), before, "nothing in advance");
    governor.charge(ids[0], 5 * MS, now);
    assert_eq!(
        before - governor.level(now),
        5 * MS as i64,
        "but as it is used"
    );
}

#[test]
fn the_debt_of_a_crowd_is_bounded() {
    let (_sim, ids) = ids(500);
    let mut governor = Governor::new(800_000, 2, 0);
    governor.reserve(501);
    for &id in &ids {
        governor.charge(id, SLICE, 0);
    }
    assert!((governor.level(0) + CAPACITY as i64).abs() <= 1);
    let when = governor.when(0).expect("they wait");
    assert!(when <= (CAPACITY + SLICE) * 10 / 16 + 100);
}

#[test]
fn without_a_limit_nobody_waits_and_lifting_it_frees_all() {
    let (_sim, ids) = ids(3);
    let mut governor = Governor::unlimited();
    governor.reserve(4);
    assert_ne!(governor.charge(ids[0], 10 * SLICE, 0), Verdict::Wait);
    governor.limit(Some(50_000), 1, 0);
    for &id in &ids {
        assert_eq!(governor.charge(id, 5 * SLICE, 0), Verdict::Wait);
    }
    assert_eq!(governor.release(0), None);
    governor.limit(None, 1, 0);
    let freed: Vec<_> = std::iter::from_fn(|| governor.release(0)).collect();
    assert_eq!(freed.len(), 3);
    assert_eq!(governor.when(0), None);
}

/// Governed groups use 80 % of the machine together, however many there are, and the rest stays free for the others.
#[test]
fn governed_groups_use_their_fraction_of_the_cores() {
    for procs in [1usize, 2, 10] {
        for groups in [2, 10] {
            let mut sim = Sim::new(procs, 137);
            sim.governor = Governor::new(800_000, procs, 0);
            let ids: Vec<GroupId> = (0..groups)
                .map(|_| {
                    let id = sim.group(GroupConfig {
                        governed: true,
                        ..GroupConfig::default()
                    });
                    sim.hogs(id, procs);
                    id
                })
                .collect();
            let light = sim.weighted(100);
            sim.spawn(light, every(50 * US, 950 * US));
            sim.run_for(SEC);
            let used = sim.measure(&ids, 5 * SEC);
            let all: u64 = used.iter().sum();
            let part = all as f64 / (5 * SEC * procs as u64) as f64;
            assert!(
                (part / 0.8 - 1.0).abs() < 0.02,
                "{procs} Ps, {groups} groups: {part}"
            );
            let used: Vec<f64> = used.iter().map(|&ns| ns as f64).collect();
            assert!(jain(&used) > 0.99, "{procs} Ps: {used:?}");
            let waits = sim.wake_waits(light);
            assert!(
                quantile(&waits, 0.99) <= 3 * MS / 2,
                "{procs} Ps: {}",
                quantile(&waits, 0.99)
            );
            sim.assert_sound();
        }
    }
}

/// Of two governed groups the one that asks for less waits less: it began its slice earlier.
#[test]
fn a_modest_group_is_hardly_held_up() {
    let mut sim = Sim::new(2, 139);
    sim.governor = Governor::new(600_000, 2, 0);
    let governed = GroupConfig {
        governed: true,
        priority: Priority::Normal,
        ..GroupConfig::default()
    };
    let modest = sim.group(governed);
    sim.spawn(modest, every(MS, 9 * MS));
    for _ in 0..4 {
        let greedy = sim.group(governed);
        sim.hogs(greedy, 4);
    }
    sim.run_for(SEC);
    let used = sim.measure(&[modest], 10 * SEC)[0] as f64 / (10 * SEC) as f64;
    assert!(used > 0.075, "{used}");
    sim.assert_sound();
}

/// The part of one core that governed jobs of `job` ns use under half of it, each in a group of its own, made as soon as the one before it ends or waits.
fn part_of_short_jobs(job: u64) -> f64 {
    const TURN: u64 = 2 * MS;
    let mut governor = Governor::new(500_000, 1, 0);
    let (mut now, mut used) = (0, 0);
    let mut left: Vec<(GroupId, u64)> = Vec::new(); // of those that wait
    let mut next = 1;
    let mut ready: Vec<(GroupId, u64)> = Vec::new();
    while now < 10 * SEC {
        while let Some(id) = governor.release(now) {
            let at = left.iter().position(|w| w.0 == id).expect("it waits");
            ready.push(left.swap_remove(at));
        }
        let Some((id, rest)) = ready.pop() else {
            if left.len() < 1000 {
                let id = GroupId::from_index(next);
                next += 1;
                governor.reserve(next);
                match governor.begin(id, now) {
                    Verdict::Wait => left.push((id, job)),
                    Verdict::GoOn(_) => ready.push((id, job)),
                }
            } else {
                now = governor.when(now).expect("they wait").max(now + 1);
            }
            continue;
        };
        let ran = rest.min(TURN);
        (now, used) = (now + ran, used + ran);
        let verdict = governor.charge(id, ran, now);
        match verdict {
            _ if ran == rest => governor.forget(id),
            Verdict::Wait => left.push((id, rest - ran)),
            Verdict::GoOn(_) => ready.push((id, rest - ran)),
        }
    }
    used as f64 / now as f64
}

/// Nobody waited before its first 20 ms were over: work in ever new groups had no limit.
#[test]
fn groups_that_end_before_their_slice_keep_to_the_limit() {
    for job in [MS, 2 * MS, 15 * MS, 19 * MS, 50 * MS] {
        let part = part_of_short_jobs(job);
        assert!((0.45..0.52).contains(&part), "jobs of {job}: {part}");
    }
}

/// A child of a governed group was free.
#[test]
fn the_limit_binds_children_too() {
    let mut sim = Sim::new(2, 149);
    sim.governor = Governor::new(500_000, 2, 0);
    let governed = GroupConfig {
        governed: true,
        ..GroupConfig::default()
    };
    let parent = sim.group(governed);
    let free = GroupConfig {
        parent: Some(parent),
        ..GroupConfig::default()
    };
    let children = [sim.group(free), sim.group(free)];
    sim.hogs_in(&children, 2);
    sim.run_for(SEC);
    let used: u64 = sim.measure(&children, 5 * SEC).iter().sum();
    let part = used as f64 / (10 * SEC) as f64;
    assert!((part / 0.5 - 1.0).abs() < 0.02, "{part}");
    sim.assert_sound();
}

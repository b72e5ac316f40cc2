//! High, Normal and Low, and the loop that limits Low for the sake of the others.

use runnext_core::group::{GroupConfig, GroupId, Priority};

use crate::sim::*;

fn classed(sim: &mut Sim, priority: Priority) -> GroupId {
    sim.group(GroupConfig {
        priority,
        ..GroupConfig::default()
    })
}

#[test]
fn low_never_gets_less_than_its_floor() {
    for procs in [1usize, 2, 8] {
        for slice in [2 * MS, 50 * MS] {
            let mut sim = Sim::new(procs, 101);
            let high = sim.group(GroupConfig {
                priority: Priority::High,
                slice,
                weight: 10_000,
                ..GroupConfig::default()
            });
            let normal = sim.group(GroupConfig {
                slice,
                ..GroupConfig::default()
            });
            let low = classed(&mut sim, Priority::Low);
            for id in [high, normal, low] {
                sim.hogs(id, 4 * procs);
            }
            sim.run_for(SEC);
            let used = sim.measure(&[low], 5 * SEC)[0];
            let part = used as f64 / (5 * SEC * procs as u64) as f64;
            assert!(
                (0.05..0.06).contains(&part),
                "{procs} Ps, slice {slice}: {part}"
            );
            sim.assert_sound();
        }
    }
}

#[test]
fn low_gets_what_the_others_leave() {
    for procs in [1usize, 2, 4] {
        let mut sim = Sim::new(procs, 103);
        let normal = classed(&mut sim, Priority::Normal);
        let low = classed(&mut sim, Priority::Low);
        for _ in 0..procs {
            sim.spawn(normal, every(600 * US, 400 * US));
        }
        sim.hogs(low, 4 * procs);
        sim.run_for(SEC);
        let before = sim.busy();
        let used = sim.measure(&[normal, low], 5 * SEC);
        let all = 5 * SEC * procs as u64;
        let left = all - used[0];
        assert!(used[1] as f64 > 0.99 * left as f64, "{procs} Ps: {used:?}");
        assert!(sim.busy() - before > all - procs as u64 * 10 * MS);
        // And the others hardly feel it.
        let wanted = 0.6 * all as f64;
        assert!(used[0] as f64 > 0.93 * wanted, "{procs} Ps: {used:?}");
        sim.assert_sound();
    }
}

#[test]
fn high_wakes_within_a_millisecond_beside_low_hogs() {
    for procs in [1, 2, 8] {
        let mut sim = Sim::new(procs, 107);
        let high = classed(&mut sim, Priority::High);
        let low = classed(&mut sim, Priority::Low);
        sim.hogs(low, 8 * procs);
        for _ in 0..3 {
            sim.spawn(high, every(50 * US, 950 * US));
        }
        sim.run_for(3 * SEC);
        let waits = sim.wake_waits(high);
        let (p99, p999) = (quantile(&waits, 0.99), quantile(&waits, 0.999));
        assert!(p99 <= MS / 2 && p999 <= MS, "{procs} Ps: {p99} {p999}");
        sim.assert_sound();
    }
}

#[test]
fn high_is_first_but_takes_no_more_than_its_share() {
    let mut sim = Sim::new(2, 109);
    let (high, normal) = (
        classed(&mut sim, Priority::High),
        classed(&mut sim, Priority::Normal),
    );
    sim.hogs(high, 4);
    sim.hogs(normal, 4);
    sim.run_for(100 * MS);
    let used = sim.measure(&[high, normal], 5 * SEC);
    let ratio = used[0] as f64 / used[1] as f64;
    assert!((ratio - 4.0).abs() < 0.1, "{ratio}");
    sim.assert_sound();
}

#[test]
fn low_groups_share_what_they_get_by_weight() {
    let mut sim = Sim::new(2, 113);
    let normal = classed(&mut sim, Priority::Normal);
    let lows = [100, 300].map(|weight| {
        sim.group(GroupConfig {
            weight,
            priority: Priority::Low,
            ..GroupConfig::default()
        })
    });
    sim.hogs(normal, 1);
    sim.hogs_in(&lows, 4);
    sim.run_for(100 * MS);
    let used = sim.measure(&lows, 5 * SEC);
    let ratio = used[1] as f64 / used[0] as f64;
    assert!((ratio - 3.0).abs() < 0.1, "{used:?}");
    sim.assert_sound();
}

#[test]
fn a_change_of_priority_is_felt_at_once() {
    let mut sim = Sim::new(2, 127);
    let groups = [Priority::Normal; 2].map(|p| classed(&mut sim, p));
    sim.hogs_in(&groups, 4);
    sim.run_for(SEC);
    let steps = [
        (Priority::Low, 0.05),
        (Priority::High, 0.8),
        (Priority::Normal, 0.5),
    ];
    for (priority, part) in steps {
        sim.ledger.set_priority(groups[0], priority, sim.now);
        sim.run_for(50 * MS);
        let used = sim.measure(&groups, SEC);
        let got = used[0] as f64 / (2 * SEC) as f64;
        assert!((got - part).abs() < 0.02, "{priority:?}: {got}");
    }
}

/// The foreground takes 60 %, then 90 %, of the machine; its wake-ups must not wait for Low.
#[test]
fn feedback_yields_and_recovers() {
    let mut sim = Sim::new(2, 131);
    // Code that rarely checkpoints: only a limit helps.
    sim.gap = 4 * MS;
    let fore = classed(&mut sim, Priority::Normal);
    let back = classed(&mut sim, Priority::Low);
    sim.hogs(back, 8);
    sim.adapt(MS);
    sim.run_for(200 * MS);
    let alone = sim.measure(&[back], 200 * MS)[0];
    assert!(
        alone > 390 * MS,
        "nobody complains, so nothing is held back: {alone}"
    );
    for _ in 0..8 {
        sim.spawn(fore, every(100 * US, 900 * US));
    }
    sim.run_for(300 * MS);
    let limit = sim.feedback.as_ref().expect("on").limit();
    assert!(limit < 500_000, "{limit}");
    let used = sim.measure(&[back], 2 * SEC)[0] as f64 / (4 * SEC) as f64;
    assert!(used >= 0.045, "the floor holds: {used}");
}

//! Sleepers keep what is theirs, and nobody gains by pretending to be one.

use runnext_core::group::GroupConfig;

use crate::sim::*;

/// The part of the CPU that a group of these programs gets beside `rivals` groups of hogs, all of equal weight, over its fair part.
fn gain(procs: usize, rivals: usize, programs: Vec<Program>) -> f64 {
    let mut sim = Sim::new(procs, 41);
    let cheat = sim.weighted(100);
    for program in programs {
        sim.spawn(cheat, program);
    }
    for _ in 0..rivals {
        let id = sim.weighted(100);
        sim.hogs(id, procs);
    }
    sim.run_for(200 * MS);
    let served = sim.measure(&[cheat], 2 * SEC)[0];
    sim.assert_sound();
    let fair = 2 * SEC * procs as u64 / (rivals as u64 + 1);
    served as f64 / fair as f64
}

#[test]
fn cheats_gain_nothing() {
    const SLICE: u64 = 2 * MS;
    type Cheat = (&'static str, fn() -> Program);
    let cheats: [Cheat; 6] = [
        ("sleep just before the slice ends", || {
            every(SLICE - 20 * US, 10 * US)
        }),
        ("sleep just after it", || every(SLICE + 20 * US, 10 * US)),
        ("sleep a debt off", || every(SLICE, 10 * MS)),
        ("wake ten thousand times a second", || {
            every(90 * US, 10 * US)
        }),
        ("yield all the time", || every(5 * US, 0)),
        ("at random", || {
            Box::new(|dice| {
                let run = u64::from(dice.below(3 * MS as u32)) + 1;
                (run, u64::from(dice.below(MS as u32)))
            })
        }),
    ];
    for (name, cheat) in cheats {
        for (procs, rivals) in [(1, 1), (1, 9), (2, 3), (4, 20)] {
            let gain = gain(procs, rivals, (0..procs).map(|_| cheat()).collect());
            assert!(
                gain < 1.03,
                "{name}: {gain} with {procs} Ps, {rivals} rivals"
            );
        }
    }
}

#[test]
fn a_crowd_gains_nothing() {
    for (procs, rivals) in [(1, 1), (2, 3)] {
        let crowd = |_| -> Program {
            Box::new(|dice| {
                (
                    u64::from(dice.below(100_000)) + 1,
                    u64::from(dice.below(100_000)) + 1,
                )
            })
        };
        let gain = gain(procs, rivals, (0..500).map(crowd).collect());
        assert!((0.97..1.03).contains(&gain), "{gain} with {procs} Ps");
    }
}

#[test]
fn an_honest_sleeper_gets_what_it_asks_for() {
    // Half of one core, or of its share: the less.
    for (procs, demand, run, sleep) in [(1, 0.45, 450 * US, 550 * US), (2, 0.2, 200 * US, 800 * US)]
    {
        let mut sim = Sim::new(procs, 43);
        let sleeper = sim.group(GroupConfig {
            slice: MS / 2,
            ..GroupConfig::default()
        });
        let hog = sim.weighted(100);
        sim.hogs(hog, 2 * procs);
        sim.run_for(100 * MS);
        // Open loop: a period of 1 ms, whenever the last one was done.
        sim.spawn(sleeper, every(run, sleep));
        let served = sim.measure(&[sleeper], 5 * SEC)[0] as f64 / (5 * SEC) as f64;
        let waits = sim.wake_waits(sleeper);
        let (p50, p99) = (quantile(&waits, 0.5), quantile(&waits, 0.99));
        // Closed loop: what it waits it does not ask for.
        assert!(p99 <= MS, "{procs} Ps: p50 {p50} p99 {p99}");
        let period = (run + sleep + p99) as f64;
        assert!(
            served >= run as f64 / period * 0.97,
            "{procs} Ps: {served} of {demand}"
        );
        sim.assert_sound();
    }
}

#[test]
fn light_wakeups_are_served_within_half_a_millisecond() {
    for procs in [1, 2, 8] {
        let mut sim = Sim::new(procs, 47);
        let light = sim.group(GroupConfig {
            slice: MS / 5,
            ..GroupConfig::default()
        });
        let heavy = sim.weighted(100);
        sim.hogs(heavy, 8 * procs);
        for _ in 0..procs {
            sim.spawn(light, every(50 * US, 950 * US));
        }
        sim.run_for(2 * SEC);
        let waits = sim.wake_waits(light);
        assert!(waits.len() > 1600 * procs);
        let p99 = quantile(&waits, 0.99);
        assert!(p99 <= MS / 2, "{procs} Ps: p99 {p99}");
        sim.assert_sound();
    }
}

#[test]
fn wakeups_in_a_storm_leave_everybody_a_minimum_run() {
    let mut sim = Sim::new(1, 53);
    sim.gap = 0;
    let light = sim.group(GroupConfig {
        slice: MS / 10,
        weight: 1000,
        ..GroupConfig::default()
    });
    let heavy = sim.weighted(100);
    sim.hogs(heavy, 2);
    for _ in 0..10 {
        sim.spawn(light, every(US, 99 * US));
    }
    sim.run_for(2 * SEC);
    // Each preemption was preceded by a run of at least 100 us.
    assert!(
        sim.preemptions > 100 && sim.preemptions <= 2 * SEC / (100 * US),
        "{}",
        sim.preemptions
    );
    sim.assert_sound();
}

//! The small rules, each as a table; what they add up to is in `tests/groups`.

use core::time::Duration;

use super::bucket::{BORROW, Bucket, MIN_BORROW};
use super::config::{self, MS, fraction_ppm};
use super::feedback::{ALL, LEAST};
use super::ledger::FLOOR_GRANT;
use super::preempt::MIN_RUN;
use super::shared::{MELT, TICK};
use super::vtime::{self, Clock, FORGET, MAX_CHARGE};
use super::*;
use crate::rng::Dice;

mod limits;
mod turns;
mod young;

const NOW: u64 = 1_000 * MS;

fn config(weight: u32) -> GroupConfig {
    GroupConfig {
        weight,
        ..GroupConfig::default()
    }
}

fn lanes(ledger: &Ledger, p: usize) -> Lanes<()> {
    Lanes::new(p, Storage::new(ledger.places()))
}

#[test]
fn senseless_numbers_are_clamped_or_refused() {
    for bad in [f64::NAN, f64::INFINITY, f64::NEG_INFINITY, 0.0, -0.0, -1.0] {
        assert!(
            matches!(Quota::new(bad, 0), Err(Refused::Quota(_))),
            "{bad}"
        );
        assert!(
            matches!(fraction_ppm(bad), Err(Refused::Fraction(_))),
            "{bad}"
        );
    }
    for bad in [1.0 + f64::EPSILON, 2.0, 7.0, 80.0] {
        assert_eq!(fraction_ppm(bad), Err(Refused::Fraction(bad)));
    }
    let tiny = Quota::new(f64::MIN_POSITIVE, u64::MAX).expect("clamped");
    assert_eq!(tiny.rate, Rate::cores(config::MIN_QUOTA).expect("good"));
    assert_eq!(tiny.burst, config::MAX_BURST);
    assert_eq!(
        Quota::new(1e300, 0).expect("clamped").rate.parallelism(),
        1024
    );
    for (asked, ppm) in [
        (1e-9, 50_000),
        (0.05, 50_000),
        (0.8, 800_000),
        (1.0, 1_000_000),
    ] {
        assert_eq!(fraction_ppm(asked), Ok(ppm));
    }
    for (asked, weight) in [(0, 1), (1, 1), (10_000, 10_000), (u32::MAX, 10_000)] {
        assert_eq!(config::weight(asked), weight);
    }
    for (asked, slice) in [
        (0, MS / 10),
        (MS, MS),
        (3_600_000 * MS, 100 * MS),
        (u64::MAX, 100 * MS),
    ] {
        assert_eq!(config::slice(asked), slice);
    }
    for target in [Duration::ZERO, Duration::MAX] {
        assert!((MS / 10..=1000 * MS).contains(&Feedback::new(target, NOW).target()));
    }
    assert_eq!(Rate::part(0, 0).parallelism(), 1, "never zero");
}

#[test]
fn parents_are_alive_and_have_no_parent() {
    let ledger = Ledger::new(1, NOW);
    let child_of = |parent| GroupConfig {
        parent: Some(parent),
        ..GroupConfig::default()
    };
    let parent = ledger.add(&config(1), NOW).expect("good");
    let child = ledger.add(&child_of(parent), NOW).expect("good");
    assert_eq!(ledger.add(&child_of(child), NOW), Err(Refused::TooDeep));
    assert_eq!(
        ledger.add(&child_of(GroupId(9)), NOW),
        Err(Refused::ParentGone)
    );
    assert_eq!(ledger.remove(parent), Err(Refused::Busy), "it has a child");
    assert_eq!(ledger.remove(child), Ok(()));
    assert_eq!(ledger.remove(parent), Ok(()));
    assert_eq!(ledger.add(&child_of(parent), NOW), Err(Refused::ParentGone));
    assert_eq!(ledger.remove(ROOT), Err(Refused::Busy));
    for refused in [Refused::TooDeep, Refused::Busy, Refused::Quota(f64::NAN)] {
        assert!(!refused.to_string().is_empty());
    }
}

#[test]
fn places_are_used_again_and_start_afresh() {
    let ledger = Ledger::new(1, NOW);
    let ids: Vec<GroupId> = (0..1000)
        .map(|_| ledger.add(&config(7), NOW).expect("room"))
        .collect();
    assert_eq!(ledger.places(), 1001);
    let mut lanes = lanes(&ledger, 0);
    let id = ids[0];
    lanes.pushed(&ledger, id, 1, NOW);
    assert_eq!(ledger.remove(id), Err(Refused::Busy), "it is queued");
    assert!(matches!(
        lanes.pick(&ledger, NOW, false, false),
        Pick::Run { .. }
    ));
    lanes.popped(&ledger, id, 1, NOW);
    lanes.end(&ledger, NOW + MS, MS);
    assert_eq!(ledger.usage(id).cpu_ns, MS);
    let (last, others) = ids.split_last().expect("a thousand");
    for &id in others {
        assert_eq!(ledger.remove(id), Ok(()));
        assert_eq!(ledger.remove(id), Err(Refused::Busy), "twice");
    }
    assert!(!ledger.any_active());
    let again = ledger.add(&config(9), NOW).expect("room");
    assert_eq!((again, ledger.places()), (ids[0], 1001));
    assert_eq!(ledger.remove(*last), Ok(()));
    assert_eq!(ledger.places(), 2, "what loops over all looks at no more");
    let more = [(); 3].map(|()| ledger.add(&config(9), NOW).expect("room"));
    assert_eq!((more, ledger.places()), ([2, 3, 4].map(GroupId), 5));
    assert_eq!(ledger.usage(again), Usage::default());
}

#[test]
fn vtime_and_service_are_inverse_and_never_overflow() {
    for weight in [1, 3, 100, 10_000, 40_000] {
        for ns in [0, 1, 999, MS, 3_600_000 * MS, MAX_CHARGE, u64::MAX] {
            let step = vtime::vtime(ns, weight);
            let back = vtime::service(5, 5u64.wrapping_add(step), weight);
            assert!(
                (back - ns.min(MAX_CHARGE) as i64).abs() <= 1,
                "{ns} at {weight}"
            );
            // Across the wrap.
            let from = u64::MAX - 1;
            assert_eq!(vtime::service(from, from.wrapping_add(step), weight), back);
        }
    }
    assert!(vtime::before(u64::MAX, 3) && !vtime::before(3, u64::MAX));
    assert_eq!(
        vtime::vtime(1, 0),
        1 << 16,
        "a weight of zero counts as one"
    );
}

#[test]
fn the_clock_is_the_mean_of_all_that_compete() {
    let mut dice = Dice::new(3);
    let clock = Clock::new();
    let mut all: Vec<(u32, u64)> = Vec::new();
    let mut peak = 0;
    for step in 0..10_000 {
        match dice.below(4) {
            0 if all.len() < 50 => {
                let w = dice.below(10_000) + 1;
                let v = clock
                    .now()
                    .wrapping_add(u64::from(dice.below(1 << 30)))
                    .wrapping_sub(1 << 29);
                clock.join(w, v);
                all.push((w, v));
            }
            1 if !all.is_empty() => {
                let (w, v) = all.swap_remove(dice.below(all.len() as u32) as usize);
                clock.leave(w, v);
            }
            _ if !all.is_empty() => {
                let at = dice.below(all.len() as u32) as usize;
                let dv = vtime::vtime(u64::from(dice.below(4_000_000)), all[at].0);
                all[at].1 = all[at].1.wrapping_add(dv);
                clock.moved(all[at].0, dv as i64);
            }
            _ => {}
        }
        let base = clock.now();
        let sum: i128 = all
            .iter()
            .map(|&(w, v)| i128::from(w) * i128::from(v.wrapping_sub(base) as i64))
            .sum();
        let weights: i128 = all.iter().map(|&(w, _)| i128::from(w)).sum();
        assert_eq!(weights, i128::from(clock.weight()));
        // Each step rounds V by half a unit at most, which is half of W in service; to nearest, so it does not add up.
        peak = peak.max(weights);
        assert!(sum.abs() <= peak * 100, "{sum} of {peak} after {step}");
    }
}

#[test]
fn a_bucket_fills_lends_and_knows_when() {
    let half = Rate::cores(0.5).expect("good");
    let bucket = Bucket::new(half, 4 * MS, 10 * MS, NOW);
    assert_eq!(bucket.level(NOW), 4 * MS as i64, "full");
    assert_eq!(
        bucket.level(NOW + 1000 * MS),
        4 * MS as i64,
        "no more than full"
    );
    assert_eq!(bucket.borrow(NOW, 10 * MS, 1), Ok(BORROW));
    assert_eq!(
        bucket.borrow(NOW, 10 * MS, 4),
        Ok(3 * MS / 8),
        "leaves some for the others"
    );
    assert_eq!(
        bucket.borrow(NOW, 10_000, 1),
        Ok(10_000),
        "no more than wanted"
    );
    bucket.give(BORROW + 3 * MS / 8 + 10_000);
    assert_eq!(bucket.level(NOW), 4 * MS as i64);
    // Into debt: 4 ms there, 9 taken.
    bucket.take(NOW, 9 * MS);
    assert_eq!(bucket.level(NOW), -5 * MS as i64);
    let when = bucket.borrow(NOW, MS, 1).expect_err("in debt");
    assert!(
        when.abs_diff(NOW + 12 * MS) <= 2,
        "5 ms of debt and 1 ms to lend, at half a core"
    );
    assert!(bucket.borrow(when, MS, 1).is_ok(), "exactly then");
    assert!(bucket.level(when - 4) < BORROW as i64);
    // A debt is bounded.
    bucket.take(NOW, 1000 * MS);
    assert!((bucket.level(NOW) + 10 * MS as i64).abs() <= 1);
    assert!(bucket.when(NOW, u64::MAX) <= NOW + 2 * (10 + 4) * MS + 10);
}

#[test]
fn a_bucket_keeps_its_level_when_its_rate_changes() {
    let bucket = Bucket::new(Rate::cores(2.0).expect("good"), 4 * MS, 10 * MS, NOW);
    bucket.take(NOW, 3 * MS);
    bucket.limit(Rate::cores(0.1).expect("good"), 4 * MS, 10 * MS, NOW);
    assert!(bucket.level(NOW).abs_diff(MS as i64) <= 1);
    bucket.take(NOW, 3 * MS);
    bucket.limit(Rate::cores(8.0).expect("good"), 4 * MS, 10 * MS, NOW);
    assert!(bucket.level(NOW).abs_diff(-2 * MS as i64) <= 1);
    bucket.unlimit();
    assert_eq!(bucket.borrow(NOW, 77 * MS, 1), Ok(77 * MS));
    assert_eq!(bucket.when(NOW, MS), NOW);
    assert_eq!(bucket.parallelism(NOW), u32::MAX);
}

#[test]
fn a_bucket_never_lends_more_than_flows_in() {
    let mut dice = Dice::new(5);
    for cores in [0.01, 0.25, 1.0, 3.3, 1024.0] {
        let rate = Rate::cores(cores).expect("good");
        let capacity = 3 * MS;
        let bucket = Bucket::new(rate, capacity, 0, NOW);
        let (mut now, mut lent) = (NOW, 0);
        for _ in 0..20_000 {
            now += u64::from(dice.below(2 * MS as u32));
            match bucket.borrow(now, BORROW, 1 + dice.below(8)) {
                Ok(ns) => lent += ns,
                Err(when) => assert!(when > now && bucket.level(now) < MIN_BORROW as i64),
            }
            let most = (now - NOW) as f64 * cores * 1.000_001 + capacity as f64 + 1.0;
            assert!(lent as f64 <= most, "{cores} cores: {lent} of {most}");
        }
    }
}

#[test]
fn leftovers_go_to_whoever_may_run() {
    let key = |priority| Key::new(priority, false, 100 << 20);
    let had_its_share = Wake {
        key: key(Priority::Normal),
        active: true,
        eligible: false,
        margin: 0,
    };
    assert_eq!(
        preempt_after(had_its_share, key(Priority::Low)),
        Some(0),
        "it runs before what is left over"
    );
    let throttled = Wake {
        active: false,
        ..had_its_share
    };
    assert_eq!(preempt_after(throttled, key(Priority::Low)), None);
}

#[test]
fn who_takes_whose_p() {
    use Priority::{High, Low, Normal};
    let key = |priority, floor, deadline: u64| Key::new(priority, floor, deadline << 20);
    let wake = |priority, eligible| Wake {
        key: key(priority, false, 100),
        active: true,
        eligible,
        margin: 5 << 20,
    };
    let table = [
        ("an idle P, always", wake(Low, false), Key::IDLE, Some(0)),
        (
            "leftovers: at once",
            wake(Normal, true),
            key(Low, false, 0),
            Some(0),
        ),
        (
            "the floor runs for a grant",
            wake(High, true),
            key(Low, true, 0),
            Some(FLOOR_GRANT),
        ),
        (
            "not from the floor if it had its share",
            wake(High, false),
            key(Low, true, 0),
            None,
        ),
        (
            "High from Normal",
            wake(High, true),
            key(Normal, false, 0),
            Some(MIN_RUN),
        ),
        (
            "Normal from High",
            wake(Normal, true),
            key(High, false, 999),
            None,
        ),
        (
            "Low from Normal",
            wake(Low, true),
            key(Normal, false, 999),
            None,
        ),
        (
            "an earlier deadline",
            wake(Normal, true),
            key(Normal, false, 106),
            Some(MIN_RUN),
        ),
        (
            "by less than the margin",
            wake(Normal, true),
            key(Normal, false, 105),
            None,
        ),
        (
            "a later deadline",
            wake(Normal, true),
            key(Normal, false, 90),
            None,
        ),
        (
            "Low among themselves",
            wake(Low, true),
            key(Low, false, 106),
            Some(MIN_RUN),
        ),
        (
            "High among themselves",
            wake(High, true),
            key(High, false, 101),
            None,
        ),
    ];
    for (name, woken, running, after) in table {
        assert_eq!(preempt_after(woken, running), after, "{name}");
        assert_eq!(Key::from_bits(running.to_bits()), running);
    }
}

#[test]
fn the_least_entitled_p_can_be_found_from_keys() {
    use Priority::{High, Low, Normal};
    let key = |priority, floor, deadline: u64| Key::new(priority, floor, deadline << 20);
    let order = [
        key(High, false, 1),
        key(High, false, 2),
        key(Normal, false, 0),
        key(Low, true, 0),
        key(Low, false, 0),
        Key::IDLE,
    ];
    for pair in order.windows(2) {
        assert!(
            pair[1].is_worse(pair[0]) && !pair[0].is_worse(pair[1]),
            "{pair:?}"
        );
    }
}

/// Two groups on one P, one of them asleep for `slept`; what it is owed when it wakes.
fn lag_after_sleep(ran: u64, rival_ran: u64, slept: u64) -> i64 {
    let ledger = Ledger::new(1, NOW);
    let ids = [100, 100].map(|w| ledger.add(&config(w), NOW).expect("good"));
    let mut lanes = lanes(&ledger, 0);
    let mut now = NOW;
    for id in ids {
        lanes.pushed(&ledger, id, 1, now);
    }
    let run = |id: GroupId, ns: u64, now: &mut u64| {
        let group = ledger.group(id);
        let paid = group.pay(ledger.clocks(), MS);
        group.begin_run(*now);
        group.end_run(*now);
        group.settle(ledger.clocks(), paid, ns, *now, (1, 2 * MS));
        *now += ns;
    };
    run(ids[0], ran, &mut now);
    run(ids[1], rival_ran, &mut now);
    lanes.popped(&ledger, ids[0], 1, now);
    lanes.pushed(&ledger, ids[0], 1, now + slept);
    // Beside one of equal weight half of what it is placed behind V moves V.
    2 * ledger.usage(ids[0]).lag_ns
}

#[test]
fn sleep_earns_nothing_and_saves_nothing() {
    // Owed 1 ms: kept, then melting away.
    for (slept, left) in [(0, MS), (MELT / 2, MS / 2), (MELT, 0), (FORGET, 0)] {
        let lag = lag_after_sleep(MS, 3 * MS, slept);
        assert!(lag.abs_diff(left as i64) < 1000, "after {slept}: {lag}");
    }
    // Owed far more than a slice: one slice is kept.
    assert!(lag_after_sleep(0, 9 * MS, 0).abs_diff(2 * MS as i64) < 1000);
    // In debt: the debt stays as long as the clock stands, until long ago.
    for (slept, left) in [(0, -2), (MELT, -2), (100 * MELT, -2), (FORGET, 0)] {
        let lag = lag_after_sleep(3 * MS, MS, slept);
        assert!(
            (lag - left * 2 * MS as i64).abs() <= 2 * MS as i64 * (left != 0) as i64 + 1000,
            "after {slept}: {lag}"
        );
        assert_eq!(lag < -1000, left != 0, "after {slept}: {lag}");
    }
}

/// Its vtime was compared with the clock of its new class, which had nothing to do with it: who was moved asleep came back with a debt of
/// seconds, or without the one it had.
#[test]
fn a_debt_stays_what_it_is_when_class_or_weight_change_asleep() {
    type Change = fn(&Ledger, GroupId);
    // What is owed beside one of weight 100, which the clock takes half of, or a fifth.
    let cases: [(Change, i64); 4] = [
        (|_, _| (), -5),
        (|ledger, id| ledger.set_weight(id, 400, NOW), -2),
        (|ledger, id| ledger.set_priority(id, Priority::Low, NOW), -5),
        (
            |ledger, id| {
                ledger.set_priority(id, Priority::Low, NOW);
                ledger.set_priority(id, Priority::Normal, NOW);
            },
            -5,
        ),
    ];
    for low_ran in [0, 20_000 * MS] {
        for (at, (change, left)) in cases.into_iter().enumerate() {
            let ledger = Ledger::new(1, NOW);
            let [one, _, low] = [Priority::Normal, Priority::Normal, Priority::Low].map(|p| {
                let id = ledger.add(&config(100), NOW).expect("good");
                ledger.set_priority(id, p, NOW);
                ledger.appear(id, 0, NOW);
                id
            });
            ledger.charge(low, low_ran, NOW); // so far apart are the clocks
            ledger.charge(one, 10 * MS, NOW);
            ledger.vanish(one, 0, NOW);
            change(&ledger, one);
            ledger.appear(one, 0, NOW);
            let lag = ledger.usage(one).lag_ns;
            assert!(lag.abs_diff(left * MS as i64) < 1000, "{at}: {lag}");
        }
    }
}

#[test]
fn what_was_used_is_charged_in_turns_or_outside() {
    let ledger = Ledger::new(1, NOW);
    let quota = Quota::new(0.1, 0).expect("good");
    let limited = GroupConfig {
        quota: Some(quota),
        ..config(100)
    };
    let parent = ledger.add(&limited, NOW).expect("good");
    let child = GroupConfig {
        parent: Some(parent),
        ..config(100)
    };
    let id = ledger.add(&child, NOW).expect("good");
    let mut lanes = lanes(&ledger, 0);
    lanes.pushed(&ledger, id, 1, NOW);
    lanes.pick(&ledger, NOW, false, false);
    let ended = lanes.end(&ledger, NOW + 5 * MS, 2 * MS).expect("it ran");
    assert_eq!((ended.used, ledger.usage(id).cpu_ns), (2 * MS, 2 * MS));
    assert_eq!(
        lanes.end(&ledger, NOW, MS),
        None,
        "no residency, nothing to end"
    );
    let (v, level) = (
        ledger.group(id).v(),
        ledger.group(parent).bucket.level(NOW + 5 * MS),
    );
    ledger.charge(id, MS, NOW + 5 * MS);
    assert_eq!(ledger.usage(id).cpu_ns, 3 * MS);
    assert_eq!(
        ledger.group(id).v().wrapping_sub(v),
        vtime::vtime(MS, 100),
        "it is further ahead"
    );
    let left = ledger.group(parent).bucket.level(NOW + 5 * MS);
    assert!(left.abs_diff(level - MS as i64) < 100, "{level}, {left}");
}

#[test]
fn a_pause_for_two_reasons_is_one() {
    let ledger = Ledger::new(1, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let (group, clocks) = (ledger.group(id), ledger.clocks());
    ledger.appear(id, 0, NOW);
    let pauses = || {
        (
            ledger.usage(id).throttled_count,
            ledger.usage(id).throttled_ns,
        )
    };
    group.throttle(clocks, NOW + 3 * MS, NOW);
    group.hold(clocks, true, NOW + MS);
    group.throttle(clocks, NOW + 4 * MS, NOW + 2 * MS);
    assert_eq!(ledger.paused_ns(id, NOW + 2 * MS), 2 * MS);
    assert_eq!(pauses(), (1, 0));
    group.resume(clocks, NOW + 4 * MS);
    assert_eq!(ledger.paused_ns(id, NOW + 5 * MS), 5 * MS, "still held");
    group.hold(clocks, false, NOW + 6 * MS);
    group.hold(clocks, false, NOW + 7 * MS);
    assert_eq!(ledger.paused_ns(id, NOW + 8 * MS), 0);
    assert_eq!(pauses(), (1, 6 * MS));
}

#[test]
fn feedback_halves_fast_and_rises_slowly() {
    let mut feedback = Feedback::new(Duration::from_millis(1), NOW);
    let mut now = NOW;
    let mut window = |feedback: &mut Feedback, late: u64, seen: u64, waits: bool| {
        feedback.samples(seen, late);
        now += 10 * MS;
        assert_eq!(feedback.look(waits, now - 1), None, "not yet");
        feedback.look(waits, now)
    };
    assert_eq!(
        window(&mut feedback, 0, 0, true),
        None,
        "nothing to complain about"
    );
    assert_eq!(
        window(&mut feedback, 1, 100, true),
        None,
        "one in a hundred is allowed"
    );
    assert_eq!(window(&mut feedback, 5, 100, true), Some(ALL / 2));
    assert_eq!(
        window(&mut feedback, 0, 100, true),
        None,
        "the same samples count once"
    );
    for _ in 0..10 {
        window(&mut feedback, 9, 100, true);
    }
    assert_eq!(feedback.limit(), LEAST, "never below the floor");
    for _ in 0..20 {
        window(&mut feedback, 0, 100, false);
    }
    assert_eq!(feedback.limit(), LEAST, "nobody wants more");
    let changes: Vec<_> = (0..10)
        .filter_map(|_| window(&mut feedback, 0, 100, true))
        .collect();
    assert_eq!(
        changes,
        [LEAST + 50_000, LEAST + 100_000],
        "every fifth window"
    );
    feedback.stalled(2 * MS);
    assert_eq!(
        window(&mut feedback, 0, 0, true),
        Some((LEAST + 100_000) / 2)
    );
    assert!(
        feedback.look(true, now - 500 * MS).is_none(),
        "time that runs back is ignored"
    );
}

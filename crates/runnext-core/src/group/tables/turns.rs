//! What a P's [`Lanes`] decide and offer.

use super::*;

/// One that runs already is charged as if it had been picked, and its group is gone when it is.
#[test]
fn a_residency_may_be_resumed() {
    let ledger = Ledger::new(1, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let mut lanes = lanes(&ledger, 0);
    let pick = lanes.resume(&ledger, id, NOW);
    assert!(matches!(pick, Some(Pick::Run { group, until, .. }) if group == id && until > NOW));
    assert_eq!((lanes.queued(id), lanes.current()), (0, Some((id, NOW))));
    assert!(ledger.any_active());
    let ended = lanes.end(&ledger, NOW + MS, MS).expect("it ran");
    assert_eq!((ended.used, ledger.usage(id).cpu_ns), (MS, MS));
    assert!(!ledger.any_active());
    ledger.hold(id, NOW);
    assert_eq!(lanes.resume(&ledger, id, NOW), None, "it may not run");
}

/// From when the first of it waits until a P runs it, and from when the last P that runs it stops.
#[test]
fn a_group_is_stalled_while_it_waits_and_nobody_runs_it() {
    let ledger = Ledger::new(2, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let (mut here, mut there) = (lanes(&ledger, 0), lanes(&ledger, 1));
    let at = |ms: u64| NOW + ms * MS;
    let stalled = |ms| (ledger.usage(id).stalled_ns + ledger.stalled_ns(id, at(ms))) / MS;
    let run = |lanes: &mut Lanes<()>, ms| {
        let pick = lanes.pick(&ledger, at(ms), false, false);
        assert!(matches!(pick, Pick::Run { group, .. } if group == id));
        lanes.popped(&ledger, id, 1, at(ms));
    };
    here.pushed(&ledger, id, 1, at(1));
    assert_eq!((stalled(1), stalled(3)), (0, 2));
    run(&mut here, 3);
    there.pushed(&ledger, id, 1, at(4));
    assert_eq!(stalled(6), 2, "one waits, but another runs");
    here.end(&ledger, at(6), 0);
    assert_eq!(stalled(8), 4);
    run(&mut there, 8);
    here.pushed(&ledger, id, 1, at(8));
    run(&mut here, 8);
    there.end(&ledger, at(9), 0);
    assert_eq!(stalled(10), 4, "nothing waits, and one still runs");
    here.end(&ledger, at(11), 0);
    assert_eq!(stalled(20), 4, "nothing is left to run");
    // Nor is its pause forgotten: it waits, for whatever reason.
    here.pushed(&ledger, id, 1, at(20));
    ledger.hold(id, at(20));
    assert_eq!(stalled(22), 6);
}

#[test]
fn a_plain_p_stays_plain_until_a_group_is_active() {
    let ledger = Ledger::new(2, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let (mut here, mut there) = (lanes(&ledger, 0), lanes(&ledger, 1));
    assert!(here.refresh(&ledger, NOW));
    there.pushed(&ledger, id, 3, NOW);
    assert!(!there.refresh(&ledger, NOW));
    assert!(
        !here.refresh(&ledger, NOW),
        "the root lane is charged everywhere now"
    );
    assert!(matches!(
        here.pick(&ledger, NOW, true, false),
        Pick::Run { group: ROOT, .. }
    ));
    there.popped(&ledger, id, 3, NOW);
    here.end(&ledger, NOW, 0);
    assert!(here.refresh(&ledger, NOW) && there.refresh(&ledger, NOW));
    assert_eq!(
        ledger.clocks().of(Priority::Normal).weight(),
        0,
        "nobody competes"
    );
}

/// The group whose turn it was counted as something to take though all it had was running, so a thief beside a throttled one came again and again.
#[test]
fn what_is_counted_but_in_no_queue_is_not_offered() {
    let ledger = Ledger::new(2, NOW);
    let [runs, waits] = [0; 2].map(|_| ledger.add(&config(100), NOW).expect("good"));
    let mut lanes: Lanes<Vec<u32>> = Lanes::new(0, Storage::new(ledger.places()));
    lanes.pushed(&ledger, runs, 2, NOW);
    let pick = lanes.pick(&ledger, NOW, false, false);
    assert!(matches!(pick, Pick::Run { group, .. } if group == runs));
    lanes.queue(waits).push(1);
    lanes.pushed(&ledger, waits, 1, NOW);
    ledger.hold(waits, NOW);
    let offer = |lanes: &Lanes<Vec<u32>>, want| lanes.offer(&ledger, want, NOW, Vec::len);
    assert_eq!(offer(&lanes, None), None);
    assert_eq!(offer(&lanes, Some(runs)), None);
    lanes.queue(runs).push(2);
    assert_eq!(offer(&lanes, None), Some((runs, 1)));
    ledger.release(waits, NOW);
    lanes.queue(runs).clear();
    assert_eq!(offer(&lanes, None), Some((waits, 1)));
}

/// A P that was put aside after a residency of the root lane kept its weight in the clock.
#[test]
fn the_root_lane_leaves_with_its_p() {
    let ledger = Ledger::new(2, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let (mut here, mut there) = (lanes(&ledger, 0), lanes(&ledger, 1));
    here.pushed(&ledger, id, 1, NOW);
    let pick = there.pick(&ledger, NOW, true, false);
    assert!(matches!(pick, Pick::Run { group: ROOT, .. }));
    there.end(&ledger, NOW, 0);
    let weight = || ledger.clocks().of(Priority::Normal).weight();
    assert_eq!(weight(), 200);
    there.root_gone(&ledger, NOW);
    assert_eq!(weight(), 100);
}

/// It stayed what it was a part of before.
#[test]
fn the_limit_on_low_groups_follows_the_number_of_ps() {
    let resumes = |made: usize, now_procs: usize| {
        let ledger = Ledger::new(made, NOW);
        ledger.set_low_limit(Some(100_000), NOW);
        ledger.set_procs(now_procs, NOW);
        let id = ledger.add(&config(100), NOW).expect("good");
        ledger.set_priority(id, Priority::Low, NOW);
        let mut lanes = lanes(&ledger, 0);
        lanes.pushed(&ledger, id, 1, NOW);
        ledger.charge(id, 20 * MS, NOW);
        match lanes.pick(&ledger, NOW, false, false) {
            Pick::Wait(Some(until)) => until - NOW,
            other => panic!("{other:?}"),
        }
    };
    assert_eq!(resumes(8, 1), resumes(1, 1));
    assert!(resumes(1, 8) * 4 < resumes(1, 1));
}

#[test]
fn growing_keeps_what_is_queued() {
    let ledger = Ledger::new(1, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let mut lanes: Lanes<Vec<u32>> = Lanes::new(0, Storage::new(ledger.places()));
    lanes.queue(id).extend([1, 2]);
    lanes.pushed(&ledger, id, 2, NOW);
    drop(lanes.grow(Storage::new(500)));
    assert_eq!(
        (lanes.room(), lanes.queued(id), lanes.groups()),
        (500, 2, &[id][..])
    );
    drop(lanes.grow(Storage::new(10)));
    assert_eq!((lanes.room(), lanes.queue(id).len()), (500, 2));
}

#[test]
fn patience_is_a_promise_about_one_p() {
    // The group gets its share, and more, on another P; here a group of a hundred times the weight keeps it waiting.
    let ledger = Ledger::new(2, NOW);
    let ids = [10, 1000].map(|w| ledger.add(&config(w), NOW).expect("good"));
    let mut here = lanes(&ledger, 0);
    here.pushed(&ledger, ids[0], 1, NOW);
    here.pushed(&ledger, ids[1], 1, NOW);
    let elsewhere = ledger.group(ids[0]);
    let mut now = NOW;
    let waited = loop {
        let paid = elsewhere.pay(ledger.clocks(), 2 * MS);
        elsewhere.settle(ledger.clocks(), paid, 2 * MS, now, (2, 2 * MS));
        match here.pick(&ledger, now, false, false) {
            Pick::Run { group, .. } if group == ids[0] => break now - NOW,
            Pick::Run { .. } => {}
            other => panic!("{other:?}"),
        }
        now += 2 * MS;
        here.end(&ledger, now, 2 * MS);
    };
    let round = 2 * 2 * MS * 1010 / 10;
    assert!(waited <= lanes::PATIENCE + round + 4 * MS, "{waited}");
    assert!(TICK < waited, "it did wait");
}

/// A residency that goes on for long was told of what came, and never of what ran: the count grew without end.
#[test]
fn a_count_is_put_right_while_a_residency_goes_on() {
    let ledger = Ledger::new(1, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let mut lanes = lanes(&ledger, 0);
    lanes.recount(&ledger, 7); // nobody runs
    lanes.pushed(&ledger, id, 2, NOW);
    let pick = lanes.pick(&ledger, NOW, false, false);
    assert!(matches!(pick, Pick::Run { .. }), "{pick:?}");
    for _ in 0..100 {
        lanes.pushed(&ledger, id, 129, NOW);
        lanes.recount(&ledger, 129);
        assert_eq!(lanes.queued(id), 129);
        assert!(ledger.usage(id).queued <= 2 * 129);
    }
    lanes.recount(&ledger, 0);
    assert_eq!((lanes.queued(id), ledger.usage(id).queued), (0, 0));
    assert!(lanes.groups().is_empty() && ledger.group(id).is_present());
    lanes.recount(&ledger, 1);
    assert_eq!(lanes.groups(), [id]);
    lanes.popped(&ledger, id, 1, NOW);
    lanes.end(&ledger, NOW + MS, MS);
    assert!(!ledger.group(id).is_present() && !ledger.any_active());
}

/// What was paid in advance was given back at the new weight, not at that at which it was paid: who became eighty times as heavy in its turn was owed
/// 160 ms more, and who became as much lighter that much less.
#[test]
fn a_change_of_weight_in_a_turn_changes_no_lag() {
    for (before, after) in [(100, 8000), (8000, 100), (300, 300)] {
        for turns in [1, 3] {
            let ledger = Ledger::new(4, NOW);
            let [id, other] = [before, 500].map(|w| ledger.add(&config(w), NOW).expect("room"));
            [id, other].iter().for_each(|&id| ledger.appear(id, 0, NOW));
            let (group, clocks) = (ledger.group(id), ledger.clocks());
            let limits = (4, 2 * MS);
            let paid: Vec<_> = (0..turns).map(|_| group.pay(clocks, 2 * MS)).collect();
            ledger.set_weight(id, after, NOW);
            for paid in paid {
                group.settle(clocks, paid, 0, NOW, limits);
            }
            for id in [id, other] {
                let lag = ledger.usage(id).lag_ns;
                assert!(lag.abs() < 1000, "{before} to {after}: {lag}");
            }
        }
    }
}

/// Lags were bounded by the longest slice of all groups there had ever been.
#[test]
fn a_group_that_has_gone_bounds_no_lag() {
    let lag_after = |slices: &[u64], gone: bool| {
        let ledger = Ledger::new(1, NOW);
        let [id, other] = [(); 2].map(|()| ledger.add(&config(100), NOW).expect("room"));
        for &slice in slices {
            let config = GroupConfig {
                slice,
                ..config(100)
            };
            let long = ledger.add(&config, NOW).expect("room");
            if gone {
                ledger.remove(long).expect("nobody runs it");
            }
        }
        [id, other].iter().for_each(|&id| ledger.appear(id, 0, NOW));
        ledger.charge(id, 1000 * MS, NOW);
        ledger.usage(id).lag_ns
    };
    let bound = lag_after(&[], true);
    assert!(bound.abs_diff(-((2 * MS + TICK) as i64)) < 1000, "{bound}");
    let with_long = lag_after(&[100 * MS], false);
    assert!(
        with_long.abs_diff(-((100 * MS + TICK) as i64)) < 1000,
        "{with_long}"
    );
    let slices = [100 * MS, 30 * MS, MS / 10, 100 * MS];
    assert!(lag_after(&slices, true).abs_diff(bound) < MS / 10);
}

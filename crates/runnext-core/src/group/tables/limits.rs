//! Limits that move, and what becomes of those who are stopped by them.

use super::*;

/// A rise took five looks in a row at which somebody waited: groups with as many goroutines as there are Ps have nothing queued while they run.
#[test]
fn a_limit_rises_though_some_looks_find_nobody_waiting() {
    let mut feedback = Feedback::new(Duration::from_millis(1), NOW);
    feedback.samples(1, 1);
    feedback.look(false, NOW + 10 * MS);
    assert_eq!(feedback.limit(), ALL / 2);
    let looks = 2..;
    for (look, waits) in looks.zip([true, true, true, true, false].repeat(10)) {
        feedback.look(waits, NOW + look * 10 * MS);
    }
    assert_eq!(feedback.limit(), ALL);
}

/// A Low group with one goroutine on a P, and that P.
fn low_alone(ppm: u32) -> (Ledger, GroupId, Lanes<()>) {
    let ledger = Ledger::new(1, NOW);
    let low = ledger.add(&config(100), NOW).expect("good");
    ledger.set_priority(low, Priority::Low, NOW);
    ledger.set_low_limit(Some(ppm), NOW);
    let mut lanes = lanes(&ledger, 0);
    lanes.pushed(&ledger, low, 1, NOW);
    (ledger, low, lanes)
}

/// Runs what is picked from `now` on, a millisecond at a time, until nothing may: when that is, and when something may again.
fn exhaust(ledger: &Ledger, lanes: &mut Lanes<()>, mut now: u64) -> (u64, u64) {
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

/// Low groups stayed stopped until the old limit let them go on, on a machine with nothing else to do.
#[test]
fn a_new_limit_or_priority_lets_low_groups_go_on() {
    type Change = fn(&Ledger, GroupId, u64);
    let changes: [(Change, bool); 4] = [
        (|ledger, _, now| ledger.set_low_limit(None, now), true),
        (|ledger, _, now| ledger.set_low_limit(Some(ALL), now), true),
        (
            |ledger, _, now| ledger.set_low_limit(Some(LEAST), now),
            false,
        ),
        (
            |ledger, id, now| ledger.set_priority(id, Priority::Normal, now),
            true,
        ),
    ];
    for (at, (change, goes_on)) in changes.into_iter().enumerate() {
        let (ledger, low, mut lanes) = low_alone(2 * LEAST);
        let (now, until) = exhaust(&ledger, &mut lanes, NOW);
        assert!(until > now + 5 * MS, "{at}");
        change(&ledger, low, now);
        assert_eq!(ledger.usage(low).throttled, !goes_on, "{at}");
    }
}

/// What Low groups got as their floor was charged to a limit that was less than it: when the others had gone they waited for 200 ms.
#[test]
fn the_floor_makes_no_debt() {
    let (ledger, low, mut lanes) = low_alone(LEAST);
    let fair = ledger.add(&config(100), NOW).expect("good");
    let storage = lanes.grow(Storage::new(ledger.places()));
    drop(storage);
    lanes.pushed(&ledger, fair, 1, NOW);
    let mut now = NOW;
    while now < NOW + 60_000 * MS {
        let Pick::Run { until, .. } = lanes.pick(&ledger, now, false, false) else {
            panic!("the fair one may run");
        };
        lanes.end(&ledger, until, until - now);
        now = until;
    }
    let part = ledger.usage(low).cpu_ns as f64 / (now - NOW) as f64;
    assert!((0.05..0.06).contains(&part), "{part}");
    lanes.popped(&ledger, fair, 1, now);
    let (now, until) = exhaust(&ledger, &mut lanes, now);
    assert!(until < now + 50 * MS, "{} ms", (until - now) / MS);
}

/// It counted as throttled for as long as it had nothing to run: nobody looked whether it might go on.
#[test]
fn a_group_with_nothing_to_run_is_not_paused() {
    let ledger = Ledger::new(1, NOW);
    let id = ledger.add(&config(100), NOW).expect("good");
    let (group, clocks) = (ledger.group(id), ledger.clocks());
    let pauses = |now| {
        let usage = ledger.usage(id);
        let ns = usage.throttled_ns + ledger.paused_ns(id, now);
        (usage.throttled, ns / MS, usage.throttled_count)
    };
    ledger.appear(id, 0, NOW);
    group.throttle(clocks, NOW + 3 * MS, NOW);
    assert_eq!(pauses(NOW + MS), (true, 1, 1));
    ledger.vanish(id, 0, NOW + MS);
    assert_eq!(pauses(NOW + 100 * MS), (false, 1, 1));
    ledger.appear(id, 0, NOW + 100 * MS);
    assert_eq!(pauses(NOW + 101 * MS), (true, 2, 1), "the same, still");
    group.resume(clocks, NOW + 102 * MS);
    assert_eq!(pauses(NOW + 103 * MS), (false, 3, 1));
}

/// A P that goes idle asks at each pick; it looked at every group there had ever been.
#[test]
fn groups_that_wait_for_a_time_are_counted() {
    let ledger = Ledger::new(1, NOW);
    let [one, other] = [(); 2].map(|()| ledger.add(&config(100), NOW).expect("good"));
    let (clocks, until) = (ledger.clocks(), NOW + 3 * MS);
    assert!(!clocks.any_throttled());
    for id in [one, other, other] {
        ledger.group(id).throttle(clocks, until, NOW);
    }
    assert_eq!(ledger.next_resume(NOW), Some(until));
    ledger.group(one).resume(clocks, until);
    assert!(clocks.any_throttled());
    ledger.remove(other).expect("nobody runs it");
    assert!(!clocks.any_throttled(), "it is gone with its pause");
    assert_eq!(ledger.next_resume(NOW), None);
}

/// A group was stopped for longer than the patience of its queue: when it might run again it did so before all others, High ones too.
#[test]
fn who_was_stopped_has_not_waited() {
    type Stop = fn(&Ledger, GroupId, u64);
    let stops: [(Stop, Stop); 2] = [
        (
            |ledger, id, _| ledger.hold(id, NOW),
            |ledger, id, now| ledger.release(id, now),
        ),
        (
            |ledger, id, until| ledger.group(id).throttle(ledger.clocks(), until, NOW),
            |_, _, _| (),
        ),
    ];
    for (at, (stop, go_on)) in stops.into_iter().enumerate() {
        let ledger = Ledger::new(1, NOW);
        let [high, stopped] = [(); 2].map(|()| ledger.add(&config(100), NOW).expect("room"));
        ledger.set_priority(high, Priority::High, NOW);
        let mut lanes = lanes(&ledger, 0);
        let mut now = NOW + 1000 * MS;
        lanes.pushed(&ledger, stopped, 1, NOW);
        stop(&ledger, stopped, now);
        lanes.pushed(&ledger, high, 1, now);
        go_on(&ledger, stopped, now);
        let mut turns = 0;
        loop {
            let pick = lanes.pick(&ledger, now, false, false);
            match pick {
                Pick::Run { group, until, .. } if group == high => now = until,
                Pick::Run { .. } => break,
                other => panic!("{at}: {other:?}"),
            }
            lanes.end(&ledger, now, 2 * MS);
            turns += 1;
        }
        assert!((1..10).contains(&turns), "{at}: {turns}");
    }
}

/// Once there had been a limit all Low groups had one, though it was all of the machine: no idle P helped with what they had queued.
#[test]
fn a_limit_that_is_all_is_none() {
    let (ledger, low, _) = low_alone(ALL);
    let mut feedback = Feedback::new(Duration::from_millis(1), NOW);
    let mut seen = Vec::new();
    for look in 1..=60 {
        feedback.samples(1, u64::from(look == 1));
        if feedback.look(true, NOW + look * 10 * MS).is_some() {
            ledger.set_low_limit(feedback.in_force(), NOW + look * 10 * MS);
            seen.push(ledger.is_limited(low));
        }
    }
    let (last, others) = seen.split_last().expect("it changed");
    assert!(others.iter().all(|&limited| limited) && others.len() > 5);
    assert!(!last && feedback.limit() == ALL);
}

//! Groups that come and go beside one that stays.

use super::*;

/// The part of one P that a group of endless work gets beside a chain of groups: each has one job of `job` ns, and its job makes the next group
/// when `lead` ns of it are left.
fn part_beside_a_chain(job: u64, lead: u64) -> f64 {
    let ledger = Ledger::new(1, NOW);
    let hog = ledger.add(&config(100), NOW).expect("room");
    let mut lanes = lanes(&ledger, 0);
    let mut left: Vec<(GroupId, u64)> = Vec::new();
    let mut now = NOW;
    let start = |lanes: &mut Lanes<()>, left: &mut Vec<(GroupId, u64)>, at| {
        let id = ledger.add(&config(100), at).expect("room");
        drop(lanes.grow(Storage::new(ledger.places())));
        lanes.pushed(&ledger, id, 1, at);
        left.push((id, job));
    };
    start(&mut lanes, &mut left, now);
    drop(lanes.grow(Storage::new(ledger.places())));
    lanes.pushed(&ledger, hog, 1, now);
    while now < NOW + 2_000 * MS {
        let Pick::Run { group, until, .. } = lanes.pick(&ledger, now, false, false) else {
            panic!("both have work");
        };
        lanes.popped(&ledger, group, 1, now);
        let at = left.iter().position(|&(id, _)| id == group);
        let most = at.map_or(u64::MAX, |at| left[at].1);
        let ran = most.min(until - now);
        if most > lead && most - ran <= lead || most == job && lead >= job {
            start(
                &mut lanes,
                &mut left,
                now + most.saturating_sub(lead).min(ran),
            );
        }
        now += ran;
        if ran < most {
            lanes.pushed(&ledger, group, 1, now);
        }
        lanes.end(&ledger, now, ran);
        match at {
            Some(at) if ran == most => {
                left.remove(at);
                ledger.remove(group).expect("it has ended");
            }
            Some(at) => left[at].1 -= ran,
            None => {}
        }
    }
    ledger.usage(hog).cpu_ns as f64 / (now - NOW) as f64
}

/// A group joined without what its maker had just used, and with the maker's end went what it owed: one that stayed had 4 % beside jobs of 1.9 ms.
#[test]
fn groups_that_make_each_other_starve_nobody() {
    let tenth = MS / 10;
    for job in [1, 5, 10, 15, 19, 20, 25, 35, 39, 55, 100, 155, 300].map(|n| n * tenth) {
        // While the next one waits for all of a longer job there are three who compete.
        let leads = if job <= 2 * MS {
            [0, job / 2, job]
        } else {
            [0, tenth, tenth]
        };
        for lead in leads {
            let part = part_beside_a_chain(job, lead);
            assert!(
                (0.48..0.8).contains(&part),
                "jobs of {job}, {lead} left: {part}"
            );
        }
    }
}

/// Runs one turn of whoever is picked: its id. It has more to do.
fn turn(ledger: &Ledger, lanes: &mut Lanes<()>, now: &mut u64) -> GroupId {
    let Pick::Run { group, until, .. } = lanes.pick(ledger, *now, false, false) else {
        panic!("there is work");
    };
    let ran = until - *now;
    *now = until;
    lanes.end(ledger, until, ran);
    group
}

/// Nobody waits for others because of its age: not one that comes alone, nor many at once.
#[test]
fn newcomers_have_their_first_turn_in_the_first_round() {
    for n in [1, 2, 10] {
        let ledger = Ledger::new(1, NOW);
        let old: Vec<_> = (0..3)
            .map(|_| ledger.add(&config(100), NOW).expect("room"))
            .collect();
        let mut lanes = lanes(&ledger, 0);
        let mut now = NOW;
        old.iter().for_each(|&id| lanes.pushed(&ledger, id, 1, now));
        for _ in 0..60 {
            turn(&ledger, &mut lanes, &mut now);
        }
        let new: Vec<_> = (0..n)
            .map(|_| ledger.add(&config(100), now).expect("room"))
            .collect();
        drop(lanes.grow(Storage::new(ledger.places())));
        new.iter().for_each(|&id| lanes.pushed(&ledger, id, 1, now));
        let round: Vec<_> = (0..n + 3)
            .map(|_| turn(&ledger, &mut lanes, &mut now))
            .collect();
        assert!(
            new.iter().all(|id| round.contains(id)),
            "{n}: {new:?} in {round:?}"
        );
    }
}

//! The shared record of groups under real threads: each plays one P with its own lanes; in the end nothing is left over.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::thread;

use runnext_core::group::{
    GroupConfig, GroupId, Lanes, Ledger, Pick, Priority, Quota, ROOT, Storage,
};
use runnext_core::rng::Dice;

const PS: usize = 4;
const STEPS: usize = if cfg!(miri) { 200 } else { 50_000 };

/// One P: queues, picks, runs and steals nothing, at random; its clock is its own, and only goes forward.
fn play(ledger: &Ledger, p: usize, groups: &[GroupId], clock: &AtomicU64) {
    let mut dice = Dice::new(p as u64);
    let mut lanes: Lanes<()> = Lanes::new(p, Storage::new(ledger.places()));
    let tick = |dice: &mut Dice| clock.fetch_add(u64::from(dice.below(100_000)), Relaxed);
    for _ in 0..STEPS {
        let id = groups[dice.below(groups.len() as u32) as usize];
        let now = tick(&mut dice);
        match dice.below(8) {
            0 => ledger.set_weight(id, dice.below(10_000), now),
            1 => {
                let all = [Priority::High, Priority::Normal, Priority::Low];
                ledger.set_priority(id, all[dice.below(3) as usize], now);
            }
            2 => {
                let quota = Quota::new(0.5, 0).expect("good");
                ledger.set_quota(id, (dice.below(2) == 0).then_some(quota), now);
            }
            3 => ledger.resync(),
            4 => ledger.hold(id, now),
            5 => ledger.release(id, now),
            _ => lanes.pushed(ledger, id, 1 + dice.below(3) as usize, now),
        }
        let pick = lanes.pick(ledger, now, dice.below(4) == 0, dice.below(2) == 0);
        if let Pick::Run { group, .. } = pick {
            if group != ROOT {
                lanes.popped(ledger, group, 1, now);
            }
            let end = tick(&mut dice);
            lanes.end(ledger, end, end.saturating_sub(now));
        }
    }
    let now = tick(&mut dice);
    while let Some(&id) = lanes.groups().first() {
        let n = lanes.queued(id);
        lanes.popped(ledger, id, n, now);
    }
    // The root lane is empty too.
    assert!(!matches!(
        lanes.pick(ledger, now, false, false),
        Pick::Run { .. }
    ));
}

#[test]
fn nothing_is_left_over() {
    let ledger = Ledger::new(PS, 0);
    let clock = AtomicU64::new(1);
    let groups: Vec<GroupId> = (0..6)
        .map(|_| ledger.add(&GroupConfig::default(), 0).expect("room"))
        .collect();
    thread::scope(|scope| {
        for p in 0..PS {
            let (ledger, groups, clock) = (&ledger, &groups, &clock);
            scope.spawn(move || play(ledger, p, groups, clock));
        }
    });
    assert!(!ledger.any_active());
    for class in [Priority::Normal, Priority::Low] {
        assert_eq!(ledger.clocks().of(class).weight(), 0, "{class:?}");
    }
    for &id in &groups {
        let usage = ledger.usage(id);
        assert_eq!((usage.queued, usage.running), (0, 0));
        assert_eq!(ledger.group(id).holders().count(), 0);
        assert_eq!(ledger.remove(id), Ok(()));
    }
}

/// The end of the places falls when the last of them go, and never stays below one that is in use, whoever takes it meanwhile.
#[test]
fn places_in_use_are_not_beyond_their_end() {
    let ledger = Ledger::new(1, 0);
    let add = || {
        let id = ledger.add(&GroupConfig::default(), 0);
        id.expect("there is room")
    };
    let remove = |id| ledger.remove(id).expect("nobody runs it");
    for _ in 0..STEPS / 50 {
        let kept = thread::scope(|scope| {
            let play = || {
                let ids = [add(), add(), add()];
                ids.into_iter().for_each(remove);
                add()
            };
            let all = [(); PS].map(|()| scope.spawn(play));
            all.map(|one| one.join().expect("no panic"))
        });
        let last = kept.iter().max().expect("some");
        assert!(last.index() < ledger.places(), "{last:?}");
        kept.into_iter().for_each(remove);
        assert_eq!(ledger.places(), 1);
    }
}

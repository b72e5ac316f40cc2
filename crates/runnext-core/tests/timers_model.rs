//! The timer heap against a sorted map that is always up to date: same answers, whatever is armed and cancelled.
#![cfg(not(loom))]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use runnext_core::timers::{Entry, NEVER, TimerHeap};

#[derive(Debug, Default)]
struct Timer {
    dead: Cell<bool>,
}

impl Entry for Timer {
    fn is_dead(&self) -> bool {
        self.dead.get()
    }
}

/// What is done to a heap. Timers are meant by their place among the live ones, modulo their number.
#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Cancel(usize),
    Purge,
    PopDue(u64),
    PopAll(u64),
    NextDeadline,
}

/// Few different times, so that they collide, and the extremes.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..40u64, 1 => Just(NEVER), 1 => Just(NEVER - 1)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => time().prop_map(Step::Insert),
        3 => any::<usize>().prop_map(Step::Cancel),
        1 => Just(Step::Purge),
        3 => time().prop_map(Step::PopDue),
        1 => time().prop_map(Step::PopAll),
        2 => Just(Step::NextDeadline),
    ]
}

#[derive(Default)]
struct World {
    heap: TimerHeap<Rc<Timer>>,
    /// The live timers, by deadline and then insertion.
    model: BTreeMap<(u64, usize), Rc<Timer>>,
    inserted: usize,
    /// What times are multiples of.
    unit: u64,
}

impl World {
    fn time(&self, when: u64) -> u64 {
        when.saturating_mul(self.unit)
    }

    fn earliest(&self) -> Option<u64> {
        let first = self.model.keys().next().map(|key| key.0);
        first.filter(|&when| when != NEVER)
    }

    fn cancel(&mut self, which: usize) {
        let live = self.model.len().max(1);
        let key = self.model.keys().nth(which % live).copied();
        if let Some(timer) = key.and_then(|key| self.model.remove(&key)) {
            timer.dead.set(true);
        }
    }

    fn pop_due(&mut self, now: u64) -> bool {
        let due = self.earliest().filter(|&when| when <= now);
        let want = due.and_then(|_| self.model.pop_first());
        let mut popped = std::iter::from_fn(|| self.heap.pop_due(now));
        let got = popped.find(|(_, timer)| !timer.is_dead());
        match (&want, &got) {
            (None, None) => {}
            (Some((key, timer)), Some((when, item))) => {
                assert_eq!(key.0, *when);
                assert!(
                    Rc::ptr_eq(timer, item),
                    "not the first inserted of those due at {when}"
                );
            }
            _ => panic!("at {now} the model has {want:?}, the heap {got:?}"),
        }
        got.is_some()
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Insert(when) => {
                let when = self.time(when);
                let timer = Rc::new(Timer::default());
                let first = self.heap.insert(when, timer.clone());
                self.model.insert((when, self.inserted), timer);
                self.inserted += 1;
                let leads = self
                    .model
                    .keys()
                    .next()
                    .is_some_and(|key| key.1 + 1 == self.inserted);
                assert!(leads || !first, "there is an earlier one than {when}");
            }
            Step::Cancel(which) => self.cancel(which),
            Step::Purge => {
                self.heap.purge();
                assert_eq!(self.heap.len(), self.model.len());
            }
            Step::PopDue(now) => {
                self.pop_due(self.time(now));
            }
            Step::PopAll(now) => while self.pop_due(self.time(now)) {},
            Step::NextDeadline => assert_eq!(self.heap.next_deadline(), self.earliest()),
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_sorted_map(steps in prop::collection::vec(step(), 0..200)) {
        let mut world = World { unit: 1, ..World::default() };
        for step in &steps {
            world.step(step);
            let held = world.heap.len();
            assert!(held >= world.model.len(), "{held} held, {} alive", world.model.len());
        }
        world.step(&Step::PopAll(NEVER));
        assert!(world.model.keys().all(|key| key.0 == NEVER));
    }

    /// With so many that some are put aside: some milliseconds apart, seconds, or all at nearly the same time.
    #[test]
    fn agrees_with_many(
        steps in prop::collection::vec(step(), 0..300),
        at_first in prop::collection::vec(time(), 200..400),
        unit in prop_oneof![Just(1_u64), Just(50_000), Just(3_000_000), Just(70_000_000)],
    ) {
        let mut world = World { unit, ..World::default() };
        at_first.into_iter().for_each(|when| world.step(&Step::Insert(when)));
        for step in &steps {
            world.step(step);
            let held = world.heap.len();
            assert!(held >= world.model.len(), "{held} held, {} alive", world.model.len());
            assert_eq!(world.heap.iter().filter(|timer| !timer.dead.get()).count(), world.model.len());
            assert_eq!(world.heap.is_empty(), held == 0);
        }
        world.step(&Step::PopAll(NEVER));
        assert!(world.model.keys().all(|key| key.0 == NEVER));
    }
}

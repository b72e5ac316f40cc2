//! The timer heap against a sorted map that is always up to date: same answers, whatever is armed, cancelled
//! and moved.
#![cfg(not(loom))]

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use proptest::prelude::*;
use runnext_core::timers::{Entry, NEVER, TimerHeap};

#[derive(Debug)]
struct Timer {
    when: Cell<u64>,
    dead: Cell<bool>,
}

impl Entry for Timer {
    fn is_dead(&self) -> bool {
        self.dead.get()
    }

    fn when(&self, _key: u64) -> u64 {
        self.when.get()
    }
}

/// What is done to a heap. Timers are meant by their place among the live ones, modulo their number.
#[derive(Clone, Debug)]
enum Step {
    Insert(u64),
    Cancel(usize),
    CancelSilently(usize),
    Move(usize, u64),
    PopDue(u64),
    PopAll(u64),
    Peek,
    NextDeadline,
}

/// Few different times, so that they collide, and the extremes.
fn time() -> impl Strategy<Value = u64> {
    prop_oneof![20 => 0..40u64, 1 => Just(NEVER), 1 => Just(NEVER - 1)]
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => time().prop_map(Step::Insert),
        2 => any::<usize>().prop_map(Step::Cancel),
        1 => any::<usize>().prop_map(Step::CancelSilently),
        4 => (any::<usize>(), time()).prop_map(|(which, when)| Step::Move(which, when)),
        3 => time().prop_map(Step::PopDue),
        1 => time().prop_map(Step::PopAll),
        1 => Just(Step::Peek),
        2 => Just(Step::NextDeadline),
    ]
}

#[derive(Default)]
struct World {
    heap: TimerHeap<Rc<Timer>>,
    /// The live timers, by deadline and then insertion.
    model: BTreeMap<(u64, usize), Rc<Timer>>,
    inserted: usize,
}

impl World {
    fn pick(&self, which: usize) -> Option<(u64, usize)> {
        let live = self.model.len();
        (live > 0).then(|| *self.model.keys().nth(which % live).unwrap())
    }

    fn earliest(&self) -> Option<u64> {
        self.model
            .keys()
            .map(|key| key.0)
            .next()
            .filter(|&when| when != NEVER)
    }

    fn cancel(&mut self, which: usize) -> bool {
        let key = self.pick(which);
        let timer = key.and_then(|key| self.model.remove(&key));
        timer.inspect(|timer| timer.dead.set(true)).is_some()
    }

    fn reschedule(&mut self, which: usize, when: u64) {
        let Some(key) = self.pick(which) else { return };
        let timer = self.model.remove(&key).unwrap();
        timer.when.set(when);
        if when < key.0 {
            self.heap.note_earlier(when);
        }
        self.model.insert((when, key.1), timer);
    }

    fn pop_due(&mut self, now: u64) -> bool {
        let due = self.earliest().filter(|&when| when <= now);
        let want = due.and_then(|_| self.model.pop_first());
        let got = self.heap.pop_due(now);
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
                let timer = Rc::new(Timer {
                    when: Cell::new(when),
                    dead: Cell::new(false),
                });
                self.heap.insert(when, timer.clone());
                self.model.insert((when, self.inserted), timer);
                self.inserted += 1;
            }
            Step::Cancel(which) => {
                if self.cancel(which) {
                    self.heap.note_dead();
                }
            }
            Step::CancelSilently(which) => {
                self.cancel(which);
            }
            Step::Move(which, when) => self.reschedule(which, when),
            Step::PopDue(now) => {
                self.pop_due(now);
            }
            Step::PopAll(now) => while self.pop_due(now) {},
            Step::Peek => {
                let want = self
                    .model
                    .first_key_value()
                    .filter(|(key, _)| key.0 != NEVER);
                let got = self.heap.peek();
                assert_eq!(got.map(|(when, _)| when), want.map(|(key, _)| key.0));
                assert!(
                    got.zip(want)
                        .is_none_or(|((_, item), (_, timer))| Rc::ptr_eq(item, timer))
                );
            }
            Step::NextDeadline => {
                // May be too early, never too late.
                let got = self.heap.next_deadline().unwrap_or(NEVER);
                assert!(got <= self.earliest().unwrap_or(NEVER));
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 300, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn agrees_with_a_sorted_map(steps in prop::collection::vec(step(), 0..200)) {
        let mut world = World::default();
        for step in &steps {
            world.step(step);
            let held = world.heap.len();
            assert!(held >= world.model.len(), "{held} held, {} alive", world.model.len());
        }
        world.step(&Step::PopAll(NEVER));
        assert!(world.model.keys().all(|key| key.0 == NEVER));
    }
}

//! A bounded channel with a crowd against a model: who is served by each step, with what, and who goes on waiting.
//!
//! One P and no preemption, so that all who can go on have done so before the next step. Values are the numbers of their senders.

use std::collections::{BTreeMap, VecDeque};
use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Mutex};

use proptest::prelude::*;
use runnext::chan::{self, Receiver, Select, SelectedOperation, Sender};
use runnext::{JoinHandle, go, select, yield_now};

/// What happens next. A party is a goroutine that does one thing, and may have to wait for it.
#[derive(Clone, Debug)]
enum Step {
    Send,
    Recv,
    /// A party that receives or sends, whichever comes first.
    Either,
    /// A party that chooses a send, and keeps it open.
    Promise,
    /// One of those sends its value.
    Keep(prop::sample::Index),
    /// One of those breaks its promise.
    GiveUp(prop::sample::Index),
    TrySend,
    TryRecv,
    TryPromise,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::Send),
        4 => Just(Step::Recv),
        2 => Just(Step::Either),
        3 => Just(Step::Promise),
        2 => any::<prop::sample::Index>().prop_map(Step::Keep),
        2 => any::<prop::sample::Index>().prop_map(Step::GiveUp),
        1 => Just(Step::TrySend),
        1 => Just(Step::TryRecv),
        1 => Just(Step::TryPromise),
    ];
    prop::collection::vec(step, 0..60)
}

/// How far a party has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fate {
    Sent,
    Got(u32),
    Promised,
    GaveUp,
    Closed,
}

type Fates = BTreeMap<u32, Fate>;

struct Model {
    cap: usize,
    values: VecDeque<u32>,
    promised: Vec<u32>,
    /// With whether it is a promise.
    senders: VecDeque<(u32, bool)>,
    receivers: VecDeque<u32>,
    fates: Fates,
}

impl Model {
    fn has_room(&self) -> bool {
        self.values.len() + self.promised.len() < self.cap
    }

    /// A value goes to who waits longest, or into the buffer.
    fn put(&mut self, value: u32) {
        match self.receivers.pop_front() {
            Some(receiver) => {
                self.senders.retain(|(id, _)| *id != receiver);
                self.fates.insert(receiver, Fate::Got(value));
            }
            None => self.values.push_back(value),
        }
        self.fates.insert(value, Fate::Sent);
    }

    /// Those who wait to send come in while there is room.
    fn admit(&mut self) {
        while self.has_room()
            && let Some((id, promise)) = self.senders.pop_front()
        {
            self.receivers.retain(|receiver| *receiver != id);
            if promise {
                self.promised.push(id);
                self.fates.insert(id, Fate::Promised);
            } else {
                self.put(id);
            }
        }
    }

    fn send(&mut self, id: u32, promise: bool) {
        self.senders.push_back((id, promise));
        self.admit();
    }

    fn recv(&mut self, id: u32) {
        match self.values.pop_front() {
            Some(value) => {
                self.fates.insert(id, Fate::Got(value));
                self.admit();
            }
            None => self.receivers.push_back(id),
        }
    }

    fn either(&mut self, id: u32) {
        self.recv(id);
        if !self.fates.contains_key(&id) {
            self.send(id, false);
        }
    }

    /// The promise of one of those, and its number.
    fn end_promise(&mut self, which: &prop::sample::Index) -> Option<u32> {
        match self.promised.len() {
            0 => None,
            n => Some(self.promised.remove(which.index(n))),
        }
    }
}

/// The real channel and those around it.
struct Crowd {
    tx: Sender<u32>,
    rx: Receiver<u32>,
    fates: Arc<Mutex<Fates>>,
    /// Whether to keep it, for each promise.
    orders: BTreeMap<u32, Sender<bool>>,
    parties: Vec<JoinHandle<()>>,
}

/// Drops it as a panic would, but quietly.
fn give_up(op: SelectedOperation<'_>) {
    let dropped = catch_unwind(AssertUnwindSafe(|| {
        let _op = op;
        resume_unwind(Box::new(()));
    }));
    assert!(dropped.is_err());
}

impl Crowd {
    fn new(cap: usize) -> Crowd {
        let (tx, rx) = chan::bounded(cap);
        Crowd {
            tx,
            rx,
            fates: Arc::default(),
            orders: BTreeMap::new(),
            parties: Vec::new(),
        }
    }

    fn party(
        &mut self,
        id: u32,
        act: impl FnOnce(&Sender<u32>, &Receiver<u32>, &dyn Fn(Fate)) + Send + 'static,
    ) {
        let (tx, rx, fates) = (self.tx.clone(), self.rx.clone(), self.fates.clone());
        self.parties.push(go(move || {
            act(&tx, &rx, &|fate| {
                fates.lock().unwrap().insert(id, fate);
            })
        }));
    }

    fn promise(&mut self, id: u32) {
        let (order, orders) = chan::bounded(1);
        self.orders.insert(id, order);
        self.party(id, move |tx, _, tell| {
            let mut select = Select::new();
            select.send(tx);
            let op = select.select();
            tell(Fate::Promised);
            if orders.recv() == Ok(false) {
                give_up(op);
                return tell(Fate::GaveUp);
            }
            tell(op.send(tx, id).map_or(Fate::Closed, |()| Fate::Sent));
        });
    }

    fn order(&self, id: u32, keep: bool) {
        self.orders[&id].send(keep).unwrap();
    }

    /// Lets all go on who can. Twice would do, if the queue they share were not looked at first now and then.
    fn settle(&self) -> Fates {
        (0..8).for_each(|_| yield_now());
        self.fates.lock().unwrap().clone()
    }

    /// Nobody is left waiting.
    fn end(mut self) {
        self.tx.close();
        self.orders.clear();
        self.parties.drain(..).for_each(|h| h.join().unwrap());
    }
}

/// One step, on both.
fn take(step: &Step, id: u32, crowd: &mut Crowd, model: &mut Model) {
    let received = |got: Result<u32, _>| got.map_or(Fate::Closed, Fate::Got);
    match step {
        Step::Send => {
            crowd.party(id, move |tx, _, tell| {
                tell(tx.send(id).map_or(Fate::Closed, |()| Fate::Sent));
            });
            model.send(id, false);
        }
        Step::Recv => {
            crowd.party(id, move |_, rx, tell| tell(received(rx.recv())));
            model.recv(id);
        }
        // The dice would choose.
        Step::Either if model.has_room() && !model.values.is_empty() => {}
        Step::Either => {
            crowd.party(id, move |tx, rx, tell| {
                tell(select! {
                    recv(rx) -> got => received(got),
                    send(tx, id) -> sent => sent.map_or(Fate::Closed, |()| Fate::Sent),
                });
            });
            model.either(id);
        }
        Step::Promise => {
            crowd.promise(id);
            model.send(id, true);
        }
        Step::Keep(which) => {
            if let Some(id) = model.end_promise(which) {
                crowd.order(id, true);
                model.put(id);
                model.admit();
            }
        }
        Step::GiveUp(which) => {
            if let Some(id) = model.end_promise(which) {
                crowd.order(id, false);
                model.fates.insert(id, Fate::GaveUp);
                model.admit();
            }
        }
        Step::TrySend | Step::TryPromise => {
            let sent = match step {
                Step::TrySend => crowd.tx.try_send(id).is_ok(),
                _ => {
                    let mut select = Select::new();
                    select.send(&crowd.tx);
                    let op = select.try_select();
                    op.is_ok_and(|op| op.send(&crowd.tx, id).is_ok())
                }
            };
            assert_eq!(sent, model.has_room());
            if sent {
                model.put(id);
                crowd.fates.lock().unwrap().insert(id, Fate::Sent);
            }
        }
        Step::TryRecv => {
            let got = crowd.rx.try_recv().ok();
            assert_eq!(got, model.values.front().copied());
            if let Some(value) = got {
                model.recv(id);
                crowd.fates.lock().unwrap().insert(id, Fate::Got(value));
            }
        }
    }
}

fn check(cap: usize, steps: &[Step]) {
    let mut crowd = Crowd::new(cap);
    let mut model = Model {
        cap,
        values: VecDeque::new(),
        promised: Vec::new(),
        senders: VecDeque::new(),
        receivers: VecDeque::new(),
        fates: Fates::new(),
    };
    for (id, step) in (0..).zip(steps) {
        take(step, id, &mut crowd, &mut model);
        assert_eq!(crowd.settle(), model.fates, "after step {id}");
        assert_eq!(crowd.rx.len(), model.values.len());
    }
    crowd.end();
}

#[runnext::test(procs = 1, preemption = false)]
fn everybody_is_served_as_the_model_says() {
    let config = ProptestConfig {
        cases: 300,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(cap in 1usize..4, steps in steps())| {
        check(cap, &steps);
    });
}

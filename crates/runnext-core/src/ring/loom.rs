//! Senders and receivers of a ring of one or two places in every interleaving of three preemptions (`LOOM_MAX_PREEMPTIONS` for more).
//!
//! The slots and the outcomes of waits are loom cells, so a value that is read before it can be seen is reported as a race; one who sleeps for
//! ever (I1) leaves its thread blocked, which loom reports as a deadlock. Values are numbers, and each model says which come out, in which
//! order. The locks are loom's mutexes: `lock_word` has models of its own.
//! Bugs planted in the code are found: "empty", "full" or "closed" looked at before the lock is taken, a Relaxed store or load of `head` or
//! `tail`, no handing over, nobody or only one let in, those who wait forgotten by a close, a value taken before S is, promises that do not count, a ticket not claimed.

use ::loom::sync::{Arc, Condvar, Mutex, MutexGuard};
use ::loom::thread;

use super::*;
use crate::shim::{AtomicU32, Ordering::AcqRel};
use crate::waiting::node;

struct Mutexes;

// SAFETY: that is what a mutex does.
unsafe impl Locks for Mutexes {
    type Lock<V> = Mutex<V>;
    type Guard<'a, V: 'a> = MutexGuard<'a, V>;

    fn new<V>(value: V) -> Mutex<V> {
        Mutex::new(value)
    }

    fn lock<V>(lock: &Mutex<V>) -> MutexGuard<'_, V> {
        lock.lock().unwrap()
    }
}

/// Where one party sleeps.
struct Bed {
    woken: Mutex<bool>,
    more: Condvar,
    /// 0: its ticket is open.
    claimed: AtomicU32,
    /// Written by the party when its wait is over: who takes it for a waiter after that is a race.
    frame: UnsafeCell<()>,
}

/// A bed of the model's [`World`], which outlives all who use it.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Sleeper(*const Bed);

// SAFETY: all of a bed is for use by any thread, but for the frame, of which that is to be found out.
unsafe impl Send for Sleeper {}

impl Sleeper {
    fn bed<'a>(self) -> &'a Bed {
        // SAFETY: beds outlive all who use them.
        unsafe { &*self.0 }
    }

    fn sleep(self) {
        let mut woken = self.bed().woken.lock().unwrap();
        while !*woken {
            woken = self.bed().more.wait(woken).unwrap();
        }
        *woken = false;
    }

    fn wake(self) {
        let mut woken = self.bed().woken.lock().unwrap();
        assert!(!*woken, "woken twice");
        *woken = true;
        self.bed().more.notify_one();
    }
}

// SAFETY: a ticket is claimed by a compare-and-swap, and there is one for each party.
unsafe impl Waiter for Sleeper {
    type Ticket = Sleeper;

    fn is_gone(self) -> bool {
        self.bed().frame.with(|_| false)
    }

    fn claim(ticket: Sleeper) -> bool {
        let word = &ticket.bed().claimed;
        word.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()
    }

    fn is_open(ticket: Sleeper) -> bool {
        ticket.bed().claimed.load(Relaxed) == 0
    }
}

struct World {
    ring: Ring<u32, Sleeper, Mutexes>,
    beds: [Bed; 4],
}

// SAFETY: that the frames of the beds are used by one at a time is what the models check; all else is `Sync`.
unsafe impl Sync for World {}
// SAFETY: as above.
unsafe impl Send for World {}

/// A party: the world, and its bed in it.
struct Party<'a> {
    ring: &'a Ring<u32, Sleeper, Mutexes>,
    sleeper: Sleeper,
}

/// What a party waits with, for as long as its wait may last.
struct Wait {
    node: Node<Sleeper>,
    slot: Box<MaybeUninit<u32>>,
}

impl Wait {
    /// By a receiver that has one.
    fn value(&self) -> u32 {
        // SAFETY: received.
        unsafe { self.slot.assume_init_read() }
    }
}

impl World {
    /// The values 0, 1, … are in the ring.
    fn new(cap: usize, values: u32) -> Arc<World> {
        let world = World {
            ring: Ring::new(cap).unwrap(),
            beds: [(); 4].map(|()| Bed {
                woken: Mutex::new(false),
                more: Condvar::new(),
                claimed: AtomicU32::new(0),
                frame: UnsafeCell::new(()),
            }),
        };
        for value in 0..values {
            assert_eq!(world.party(0).send(value), Ok(()));
        }
        Arc::new(world)
    }

    fn party(&self, number: usize) -> Party<'_> {
        Party {
            ring: &self.ring,
            sleeper: Sleeper(&raw const self.beds[number]),
        }
    }
}

/// Runs `work` as party `number` in a thread of its own.
fn spawn<R: 'static>(
    world: &Arc<World>,
    number: usize,
    work: impl FnOnce(Party<'_>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let world = Arc::clone(world);
    thread::spawn(move || work(world.party(number)))
}

impl Party<'_> {
    fn wait(&self, value: Option<u32>, ticket: Option<Sleeper>) -> Wait {
        let mut slot = Box::new(value.map_or(MaybeUninit::uninit(), MaybeUninit::new));
        let node = node(self.sleeper, ticket, slot.as_mut_ptr().cast());
        Wait { node, slot }
    }

    fn wake(&self, step: Step<Sleeper>) -> Step<Sleeper> {
        if let Step::Done(Some(peer)) = step {
            peer.wake();
            return Step::Done(None);
        }
        step
    }

    /// The wait is over, and its node goes. False: the channel was closed.
    fn end(&self, node: &Node<Sleeper>) -> bool {
        self.sleeper.bed().frame.with_mut(|_| ());
        match node.outcome() {
            Outcome::Done => true,
            Outcome::Closed => false,
            outcome => panic!("woken with {outcome:?}"),
        }
    }

    /// Queues up, or sends at once: then what came of it.
    fn begin_send(&self, wait: &mut Wait, mode: Mode<Sleeper>) -> Option<Result<(), ()>> {
        // SAFETY: a number, and the models keep what waits until its wait is over.
        let step = unsafe { self.ring.send(wait.slot.as_mut_ptr(), &wait.node, mode) };
        match self.wake(step) {
            Step::Done(_) => Some(Ok(())),
            Step::Closed => Some(Err(())),
            Step::Blocked => None,
            step => panic!("{step:?}"),
        }
    }

    fn send(&self, value: u32) -> Result<(), ()> {
        let mut wait = self.wait(Some(value), None);
        self.begin_send(&mut wait, Mode::Queue).unwrap_or_else(|| {
            self.sleeper.sleep();
            self.end(&wait.node).then_some(()).ok_or(())
        })
    }

    /// Queues up, or receives at once: then what came of it.
    fn begin_recv(&self, wait: &mut Wait, mode: Mode<Sleeper>) -> Option<Option<u32>> {
        // SAFETY: the models keep what waits until its wait is over.
        let step = unsafe { self.ring.recv(wait.slot.as_mut_ptr(), &wait.node, mode) };
        match self.wake(step) {
            Step::Done(_) => Some(Some(wait.value())),
            Step::Closed => Some(None),
            Step::Blocked => None,
            step => panic!("{step:?}"),
        }
    }

    /// None: the channel is closed, and empty.
    fn recv(&self) -> Option<u32> {
        let mut wait = self.wait(None, None);
        self.begin_recv(&mut wait, Mode::Queue).unwrap_or_else(|| {
            self.sleeper.sleep();
            self.end(&wait.node).then(|| wait.value())
        })
    }

    fn recv_many(&self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.recv().unwrap()).collect()
    }

    /// Waits for a place, and holds a promise then. False: the channel was closed.
    fn promise(&self) -> bool {
        let node = node(self.sleeper, None, ptr::null_mut());
        // SAFETY: the node stays until its wait is over.
        match unsafe { self.ring.promise(&node, Mode::Queue) } {
            Step::Done(None) => true,
            Step::Closed => false,
            Step::Blocked => {
                self.sleeper.sleep();
                self.end(&node)
            }
            step => panic!("{step:?}"),
        }
    }

    fn keep(&self, value: u32) -> bool {
        // SAFETY: the caller holds a promise; a number.
        let ended = unsafe { self.ring.keep(&raw const value) };
        ended.map(|ended| ended.wake(Sleeper::wake)).is_some()
    }

    fn give_up(&self) {
        self.ring.give_up().wake(Sleeper::wake);
    }

    fn close(&self) {
        for ended in self.ring.close().expect("closed once") {
            ended.wake(Sleeper::wake);
        }
    }
}

fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(run);
}

/// Sorted.
fn all(parts: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut all: Vec<u32> = parts.into_iter().collect();
    all.sort_unstable();
    all
}

/// One to one, so that each waits for the other again and again: all arrive, in order.
fn in_order(cap: usize, values: u32) {
    model(move || {
        let world = World::new(cap, 0);
        let sender = spawn(&world, 1, move |me| {
            (0..values).for_each(|value| me.send(value).unwrap());
        });
        let got = world.party(0).recv_many(values as usize);
        sender.join().unwrap();
        assert_eq!(got, (0..values).collect::<Vec<_>>());
        assert_eq!(world.ring.count(), 0);
    });
}

#[test]
fn one_place_keeps_the_order() {
    in_order(1, 4);
}

#[test]
fn two_places_keep_the_order() {
    in_order(2, 5);
}

/// Two who may wait for room at once.
fn two_senders(cap: usize) {
    model(move || {
        let world = World::new(cap, cap as u32);
        let senders =
            [10, 20].map(|value| spawn(&world, value / 10, move |me| me.send(value as u32)));
        let got = world.party(0).recv_many(cap + 2);
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
        assert!(got.starts_with(&[0, 1][..cap]));
        assert_eq!(all(got[cap..].iter().copied()), [10, 20]);
    });
}

#[test]
fn two_senders_want_one_place() {
    two_senders(1);
}

#[test]
fn two_senders_want_two_places() {
    two_senders(2);
}

/// Two who may wait for a value at once.
fn two_receivers(cap: usize) {
    model(move || {
        let world = World::new(cap, 0);
        let receivers = [1, 2].map(|number| spawn(&world, number, |me| me.recv().unwrap()));
        for value in 0..2 {
            world.party(0).send(value).unwrap();
        }
        let got = receivers.map(|receiver| receiver.join().unwrap());
        assert_eq!(all(got), [0, 1]);
    });
}

#[test]
fn two_receivers_at_one_place() {
    two_receivers(1);
}

#[test]
fn two_receivers_at_two_places() {
    two_receivers(2);
}

/// Two of each, and room for one value.
#[test]
fn two_senders_and_two_receivers() {
    model(|| {
        let world = World::new(1, 0);
        let senders = [1, 2].map(|n| spawn(&world, n, move |me| me.send(n as u32)));
        let receiver = spawn(&world, 3, |me| me.recv().unwrap());
        let got = [world.party(0).recv().unwrap(), receiver.join().unwrap()];
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
        assert_eq!(all(got), [1, 2]);
    });
}

/// Who waits for room is not overtaken by one that comes when there is some.
#[test]
fn a_waiting_sender_is_not_overtaken() {
    model(|| {
        let world = World::new(1, 1);
        let first = world.party(0);
        let mut wait = first.wait(Some(1), None);
        assert_eq!(first.begin_send(&mut wait, Mode::Queue), None);
        let second = spawn(&world, 1, |me| me.send(2));
        let receiver = spawn(&world, 2, |me| me.recv_many(3));
        first.sleeper.sleep();
        assert!(first.end(&wait.node));
        second.join().unwrap().unwrap();
        assert_eq!(receiver.join().unwrap(), [0, 1, 2]);
    });
}

/// Who waits for a value is not overtaken by one that comes when there is some.
#[test]
fn a_waiting_receiver_is_not_overtaken() {
    model(|| {
        let world = World::new(1, 0);
        let first = world.party(0);
        let mut wait = first.wait(None, None);
        assert_eq!(first.begin_recv(&mut wait, Mode::Queue), None);
        let second = spawn(&world, 1, |me| me.recv());
        let sender = spawn(&world, 2, |me| (0..2).try_for_each(|value| me.send(value)));
        first.sleeper.sleep();
        assert!(first.end(&wait.node));
        assert_eq!(wait.value(), 0);
        assert_eq!(second.join().unwrap(), Some(1));
        sender.join().unwrap().unwrap();
    });
}

/// All who wait to send are told, and what is in the ring still comes out.
#[test]
fn a_close_wakes_senders() {
    model(|| {
        let world = World::new(1, 1);
        let senders = [1, 2].map(|number| spawn(&world, number, |me| me.send(7)));
        world.party(0).close();
        let sent = senders.map(|sender| sender.join().unwrap());
        assert_eq!(sent, [Err(()), Err(())]);
        assert_eq!(world.party(0).recv(), Some(0));
        assert_eq!(world.party(0).recv(), None);
    });
}

/// All who wait to receive are told.
#[test]
fn a_close_wakes_receivers() {
    model(|| {
        let world = World::new(2, 1);
        let receivers = [1, 2].map(|number| spawn(&world, number, |me| me.recv()));
        world.party(0).close();
        let got = receivers.map(|receiver| receiver.join().unwrap());
        assert!(got == [Some(0), None] || got == [None, Some(0)]);
    });
}

/// What was sent before the close arrives, and nothing else.
#[test]
fn a_close_beside_a_sender_and_a_receiver() {
    model(|| {
        let world = World::new(1, 1);
        let sender = spawn(&world, 1, |me| me.send(1));
        let receiver = spawn(&world, 2, |me| {
            core::iter::from_fn(|| me.recv()).collect::<Vec<_>>()
        });
        world.party(0).close();
        let sent = sender.join().unwrap();
        let got = receiver.join().unwrap();
        assert_eq!(
            got.as_slice(),
            if sent.is_ok() { &[0, 1][..] } else { &[0] }
        );
    });
}

/// A ring that is full by a promise and empty at once: the sender waits for the promise, the receiver for either, and all are served.
#[test]
fn a_promise_is_kept() {
    model(|| {
        let world = World::new(1, 0);
        assert!(world.party(0).promise());
        let sender = spawn(&world, 1, |me| me.send(2));
        let receiver = spawn(&world, 2, |me| me.recv_many(2));
        assert!(world.party(0).keep(1));
        sender.join().unwrap().unwrap();
        assert_eq!(receiver.join().unwrap(), [1, 2]);
    });
}

/// As above with two senders and nobody to take more: a value that is handed over leaves its room to the next.
#[test]
fn a_promise_kept_lets_senders_in() {
    model(|| {
        let world = World::new(1, 0);
        assert!(world.party(0).promise());
        let receivers = [2, 3].map(|number| spawn(&world, number, |me| me.recv().unwrap()));
        let sender = spawn(&world, 1, |me| me.send(2).and_then(|()| me.send(3)));
        assert!(world.party(0).keep(1));
        sender.join().unwrap().unwrap();
        let got = all(receivers.map(|receiver| receiver.join().unwrap()));
        let left = world.party(0).recv().unwrap();
        assert_eq!(all(got.into_iter().chain([left])), [1, 2, 3]);
    });
}

/// The place of a promise that is given up is for whoever waits, and a sender let in whose value is handed over leaves it to the next.
#[test]
fn a_promise_is_given_up() {
    model(|| {
        let world = World::new(1, 0);
        assert!(world.party(0).promise());
        let senders = [1, 2].map(|n| spawn(&world, n, move |me| me.send(n as u32)));
        let receiver = spawn(&world, 3, |me| me.recv().unwrap());
        world.party(0).give_up();
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
        let got = [receiver.join().unwrap(), world.party(0).recv().unwrap()];
        assert_eq!(all(got), [1, 2]);
    });
}

/// Promises wait for their places as values do.
#[test]
fn promises_queue_for_room() {
    model(|| {
        let world = World::new(1, 1);
        let kept = spawn(&world, 1, |me| me.promise() && me.keep(1));
        let broken = spawn(&world, 2, |me| {
            assert!(me.promise());
            me.give_up();
        });
        assert_eq!(world.party(0).recv_many(2), [0, 1]);
        assert!(kept.join().unwrap());
        broken.join().unwrap();
        assert!(!world.ring.is_full());
    });
}

/// A promise ends with the channel.
#[test]
fn a_close_beside_a_promise() {
    model(|| {
        let world = World::new(1, 0);
        assert!(world.party(0).promise());
        let receiver = spawn(&world, 1, |me| me.recv());
        let sender = spawn(&world, 2, |me| me.send(2));
        let closer = spawn(&world, 3, |me| me.close());
        let kept = world.party(0).keep(1);
        closer.join().unwrap();
        let (got, sent) = (receiver.join().unwrap(), sender.join().unwrap());
        let left = world.party(0).recv();
        let expected = [kept.then_some(1), sent.is_ok().then_some(2)];
        let (mut got, mut expected) = ([got, left], expected);
        got.sort_unstable();
        expected.sort_unstable();
        assert_eq!(got, expected);
    });
}

/// A receiver whose time is up: either it has the value, or the ring.
#[test]
fn a_receiver_leaves() {
    model(|| {
        let world = World::new(1, 0);
        let sender = spawn(&world, 1, |me| me.send(7));
        let me = world.party(0);
        let mut wait = me.wait(None, Some(me.sleeper));
        let got = me.begin_recv(&mut wait, Mode::Queue).unwrap_or_else(|| {
            if Sleeper::claim(me.sleeper) {
                me.ring.leave_recv(&wait.node);
                me.sleeper.bed().frame.with_mut(|_| ());
                return None;
            }
            me.sleeper.sleep();
            assert!(me.end(&wait.node));
            Some(wait.value())
        });
        sender.join().unwrap().unwrap();
        assert_eq!(world.ring.count(), usize::from(got.is_none()));
    });
}

/// A sender whose time is up: either its value is in the ring, or the next one's is.
#[test]
fn a_sender_leaves() {
    model(|| {
        let world = World::new(1, 1);
        let receiver = spawn(&world, 1, |me| me.recv_many(2));
        let next = spawn(&world, 2, |me| me.send(2));
        let me = world.party(0);
        let mut wait = me.wait(Some(1), Some(me.sleeper));
        let sent = me.begin_send(&mut wait, Mode::Queue).unwrap_or_else(|| {
            if Sleeper::claim(me.sleeper) {
                me.ring.leave_send(&wait.node);
                me.sleeper.bed().frame.with_mut(|_| ());
                return Err(());
            }
            me.sleeper.sleep();
            me.end(&wait.node).then_some(()).ok_or(())
        });
        let got = receiver.join().unwrap();
        next.join().unwrap().unwrap();
        let left = (sent.is_ok()).then(|| world.party(0).recv().unwrap());
        let expected: &[u32] = if sent.is_ok() { &[0, 1, 2] } else { &[0, 2] };
        assert_eq!(all(got.into_iter().chain(left)), expected);
    });
}

/// One that waits elsewhere already looks without a lock before it queues up (`QueueMore`), and is found by what comes after.
#[test]
fn a_select_looks_before_it_queues() {
    model(|| {
        let world = World::new(1, 0);
        let sender = spawn(&world, 1, |me| me.send(7));
        let me = world.party(0);
        let mut wait = me.wait(None, Some(me.sleeper));
        let got = me.begin_recv(&mut wait, Mode::QueueMore(me.sleeper));
        let got = got.flatten().unwrap_or_else(|| {
            me.sleeper.sleep();
            assert!(me.end(&wait.node));
            wait.value()
        });
        sender.join().unwrap().unwrap();
        assert_eq!(got, 7);
    });
}

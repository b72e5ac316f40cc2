//! Senders and receivers of a ring of one or two places; how, and what all kinds are asked: `flavor/loom.rs`.
//!
//! The slots are loom cells; I1 is what keeps anybody from sleeping for ever.
//! Bugs planted in the code are found: "empty", "full" or "closed" looked at before the lock is taken, a Relaxed store or load of `head` or
//! `tail`, no handing over, nobody or only one let in, those who wait forgotten by a close, a value taken before S is, promises that do not count, a ticket not claimed.

use super::*;
use crate::flavor::loom::*;

type Chan = Ring<u32, Sleeper, Mutexes>;

fn one() -> Chan {
    Ring::new(1).unwrap()
}

fn two() -> Chan {
    Ring::new(2).unwrap()
}

impl Party<'_, Chan> {
    fn keep(&self, value: u32) -> bool {
        // SAFETY: the caller holds a promise; a number.
        let ended = unsafe { self.chan.keep(&raw const value) };
        ended.map(|ended| ended.wake(Sleeper::wake)).is_some()
    }

    fn give_up(&self) {
        self.chan.give_up().wake(Sleeper::wake);
    }
}

#[test]
fn one_place_keeps_the_order() {
    in_order(one, 4);
}

#[test]
fn two_places_keep_the_order() {
    in_order(two, 5);
}

#[test]
fn two_senders_want_one_place() {
    two_senders(one, 1);
}

#[test]
fn two_senders_want_two_places() {
    two_senders(two, 2);
}

#[test]
fn two_receivers_at_one_place() {
    two_receivers(one);
}

#[test]
fn two_receivers_at_two_places() {
    two_receivers(two);
}

#[test]
fn two_senders_and_two_receivers() {
    two_of_each(one);
}

#[test]
fn nobody_overtakes_a_sender() {
    a_waiting_sender_is_not_overtaken(one, 1);
}

#[test]
fn nobody_overtakes_a_receiver() {
    a_waiting_receiver_is_not_overtaken(one);
}

#[test]
fn a_close_ends_sends() {
    a_close_wakes_senders(one, 1);
}

#[test]
fn a_close_ends_receives() {
    a_close_wakes_receivers(two, 1);
}

#[test]
fn a_close_beside_a_sender_and_a_receiver() {
    a_close_beside_both(one, 1);
}

#[test]
fn a_receive_of_several_cases() {
    a_select_looks_before_it_queues(one);
}

/// A ring that is full by a promise and empty at once: the sender waits for the promise, the receiver for either, and all are served.
#[test]
fn a_promise_is_kept() {
    model(|| {
        let world = World::new(one());
        assert_eq!(world.party(0).promise(), Some(None));
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
        let world = World::new(one());
        assert_eq!(world.party(0).promise(), Some(None));
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
        let world = World::new(one());
        assert_eq!(world.party(0).promise(), Some(None));
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
        let world = World::with(one(), 1);
        let kept = spawn(&world, 1, |me| me.promise().is_some() && me.keep(1));
        let broken = spawn(&world, 2, |me| {
            assert!(me.promise().is_some());
            me.give_up();
        });
        assert_eq!(world.party(0).recv_many(2), [0, 1]);
        assert!(kept.join().unwrap());
        broken.join().unwrap();
        assert!(!world.chan.is_full());
    });
}

/// A promise ends with the channel.
#[test]
fn a_close_beside_a_promise() {
    model(|| {
        let world = World::new(one());
        assert_eq!(world.party(0).promise(), Some(None));
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
        let world = World::new(one());
        let sender = spawn(&world, 1, |me| me.send(7));
        let got = world.party(0).recv_in_time();
        sender.join().unwrap().unwrap();
        assert_eq!(world.chan.count(), usize::from(got.is_none()));
    });
}

/// A sender whose time is up: either its value is in the ring, or the next one's is.
#[test]
fn a_sender_leaves() {
    model(|| {
        let world = World::with(one(), 1);
        let receiver = spawn(&world, 1, |me| me.recv_many(2));
        let next = spawn(&world, 2, |me| me.send(2));
        let sent = world.party(0).send_in_time(1).is_some();
        let got = receiver.join().unwrap();
        next.join().unwrap().unwrap();
        let left = sent.then(|| world.party(0).recv().unwrap());
        let expected: &[u32] = if sent { &[0, 1, 2] } else { &[0, 2] };
        assert_eq!(all(got.into_iter().chain(left)), expected);
    });
}

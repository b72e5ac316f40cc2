//! Parties that meet; how, and what all kinds are asked: `flavor/loom.rs`.
//!
//! Bugs planted in the code are found: a queue that is not shown after a take or a leave, `wait` that is never set, `came` that is not counted, counted
//! before `wait` is set, or stored or loaded Relaxed; a ticket that is not claimed, a waiter's or one's own; a select that queues up once its ticket is
//! claimed; those who wait forgotten by a close, a close that is not looked at under the lock, a peer that is not looked for, a promise taken for a
//! value or without its receiver, a node that does not leave.

use super::*;
use crate::flavor::loom::*;

type Chan = Rendezvous<Sleeper, Mutexes>;

impl Party<'_, Chan> {
    fn keep(&self, promise: Promise, value: u32) {
        let peer = promise.expect("a receiver waits for it");
        // SAFETY: the promise is ours, and its receiver waits for a number.
        unsafe { keep(peer.as_ref(), &raw const value) }.wake();
    }

    fn give_up(&self, promise: Promise) {
        let peer = promise.expect("a receiver waits for it");
        // SAFETY: the promise is ours.
        give_up(unsafe { peer.as_ref() }).wake();
    }

    /// As the runtime does: without a node first.
    fn send_quickly(&self, value: u32) {
        let mut copy = value;
        // SAFETY: a number.
        match unsafe { self.chan.quick_send(&raw mut copy) } {
            Step::Done(peer) => peer.unwrap().wake(),
            _ => self.send(value).unwrap(),
        }
    }

    /// The same.
    fn recv_quickly(&self) -> u32 {
        let mut value = 0;
        // SAFETY: a number's place.
        match unsafe { self.chan.quick_recv(&raw mut value) } {
            Step::Done(peer) => {
                peer.unwrap().wake();
                value
            }
            _ => self.recv().unwrap(),
        }
    }
}

#[test]
fn values_keep_their_order() {
    in_order(Chan::new, 3);
}

#[test]
fn two_senders_want_a_receiver() {
    two_senders(Chan::new, 0);
}

#[test]
fn two_receivers_want_a_sender() {
    two_receivers(Chan::new);
}

#[test]
fn two_senders_and_two_receivers() {
    two_of_each(Chan::new);
}

#[test]
fn nobody_overtakes_a_sender() {
    a_waiting_sender_is_not_overtaken(Chan::new, 0);
}

#[test]
fn nobody_overtakes_a_receiver() {
    a_waiting_receiver_is_not_overtaken(Chan::new);
}

#[test]
fn a_close_ends_sends() {
    a_close_wakes_senders(Chan::new, 0);
}

#[test]
fn a_close_ends_receives() {
    a_close_wakes_receivers(Chan::new, 0);
}

#[test]
fn a_close_beside_a_sender_and_a_receiver() {
    a_close_beside_both(Chan::new, 0);
}

#[test]
fn a_receive_of_several_cases() {
    a_select_looks_before_it_queues(Chan::new);
}

/// Who looks first, and takes no node along.
#[test]
fn who_needs_no_node() {
    model(|| {
        let world = World::new(Chan::new());
        let sender = spawn(&world, 1, |me| {
            (0..2).for_each(|value| me.send_quickly(value))
        });
        let me = world.party(0);
        assert_eq!([me.recv_quickly(), me.recv_quickly()], [0, 1]);
        sender.join().unwrap();
        is_quiet(me.chan);
    });
}

/// Whoever comes first, the receiver is told to wait and gets the value.
#[test]
fn a_promise_is_kept() {
    model(|| {
        let world = World::new(Chan::new());
        let receiver = spawn(&world, 1, |me| me.recv_quickly());
        let me = world.party(0);
        let promise = me.promise().unwrap();
        me.keep(promise, 7);
        assert_eq!(receiver.join().unwrap(), 7);
        is_quiet(me.chan);
    });
}

/// The receiver looks again, and finds somebody else.
#[test]
fn a_promise_is_given_up() {
    model(|| {
        let world = World::new(Chan::new());
        let receiver = spawn(&world, 1, |me| me.recv());
        let breaker = spawn(&world, 2, |me| {
            if let Some(promise) = me.promise() {
                me.give_up(promise);
            }
        });
        let me = world.party(0);
        assert_eq!(me.send(7), Ok(()));
        me.close(); // for one who found nobody to promise it to
        assert_eq!(receiver.join().unwrap(), Some(7));
        breaker.join().unwrap();
    });
}

/// What was promised comes, closed or not; who has promised nothing yet is told.
#[test]
fn a_close_beside_a_promise() {
    model(|| {
        let world = World::new(Chan::new());
        let receiver = spawn(&world, 1, |me| me.recv());
        let promiser = spawn(&world, 2, |me| {
            let promise = me.promise()?;
            me.keep(promise, 7);
            Some(7)
        });
        world.party(0).close();
        assert_eq!(receiver.join().unwrap(), promiser.join().unwrap());
    });
}

/// A promise and a value, in the order in which they come.
#[test]
fn promises_queue_as_values_do() {
    model(|| {
        let world = World::new(Chan::new());
        let sender = spawn(&world, 1, |me| me.send(1).unwrap());
        let promiser = spawn(&world, 2, |me| {
            let promise = me.promise().unwrap();
            me.keep(promise, 2);
        });
        let me = world.party(0);
        assert_eq!(all([me.recv_quickly(), me.recv_quickly()]), [1, 2]);
        sender.join().unwrap();
        promiser.join().unwrap();
        is_quiet(me.chan);
    });
}

/// A receiver whose time is up: either it has the value, or the sender.
#[test]
fn a_receiver_leaves() {
    model(|| {
        let world = World::new(Chan::new());
        let sender = spawn(&world, 1, |me| me.send(7));
        let me = world.party(0);
        let got = me.recv_in_time().or_else(|| me.recv());
        assert_eq!(got, Some(7));
        sender.join().unwrap().unwrap();
        is_quiet(me.chan);
    });
}

/// A sender whose time is up: either its value has arrived, or the next one does.
#[test]
fn a_sender_leaves() {
    model(|| {
        let world = World::new(Chan::new());
        let receiver = spawn(&world, 1, |me| me.recv());
        let me = world.party(0);
        let sent = match me.send_in_time(1) {
            Some(sent) => sent.map(|()| 1),
            None => me.send(2).map(|()| 2),
        };
        assert_eq!(receiver.join().unwrap(), sent.ok());
        is_quiet(me.chan);
    });
}

fn pair() -> [Chan; 2] {
    [Chan::new(), Chan::new()]
}

/// Each of two senders is served by one of two selects, and by one only.
#[test]
fn a_select_takes_one_case() {
    model(|| {
        let world = World::new(pair());
        let senders =
            [1, 2].map(|n| spawn(&world, n, move |me| me.at(&me.chan[n - 1]).send(n as u32)));
        let me = world.party(0);
        let got = [(); 2].map(|()| me.select([(&me.chan[0], None), (&me.chan[1], None)]));
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
        assert!(got.iter().all(|&(at, value)| value == Some(at as u32 + 1)));
        assert_eq!(all(got.map(|(at, _)| at as u32)), [0, 1]);
        me.chan.iter().for_each(is_quiet);
    });
}

/// What one sends the other receives, whoever of them sends. They queue up in different orders, so that each may find the other about to take it.
#[test]
fn two_selects_meet() {
    model(|| {
        let world = World::new(pair());
        let other = spawn(&world, 1, |me| {
            me.select([(&me.chan[1], Some(2)), (&me.chan[0], None)])
        });
        let me = world.party(0);
        let mine = me.select([(&me.chan[0], Some(1)), (&me.chan[1], None)]);
        let met = (mine, other.join().unwrap());
        assert!(met == ((0, Some(1)), (1, Some(1))) || met == ((1, Some(2)), (0, Some(2))));
        me.chan.iter().for_each(is_quiet);
    });
}

/// As above at one channel, where each could be taken for its own peer.
#[test]
fn a_select_does_not_meet_itself() {
    model(|| {
        let world = World::new(Chan::new());
        let both =
            |me: Party<'_, Chan>, value| me.select([(me.chan, Some(value)), (me.chan, None)]);
        let other = spawn(&world, 1, move |me| both(me, 2));
        let (mine, theirs) = (both(world.party(0), 1), other.join().unwrap());
        let met = (mine, theirs);
        assert!(met == ((0, Some(1)), (1, Some(1))) || met == ((1, Some(2)), (0, Some(2))));
    });
}

/// Who waits for two is told once that one is closed, and found by the other no more.
#[test]
fn a_close_is_a_case() {
    model(|| {
        let world = World::new(pair());
        let closer = spawn(&world, 1, |me| me.at(&me.chan[1]).close());
        let sender = spawn(&world, 2, |me| me.at(&me.chan[0]).send(1));
        let me = world.party(0);
        let first = me.select([(&me.chan[0], None), (&me.chan[1], None)]);
        if first == (1, None) {
            assert_eq!(me.at(&me.chan[0]).recv(), Some(1));
        } else {
            assert_eq!(first, (0, Some(1)));
        }
        closer.join().unwrap();
        sender.join().unwrap().unwrap();
    });
}

/// At one of the two a receiver always waits: two looks at both that find none have not the same stamps (I2).
#[test]
fn two_looks_with_the_same_stamps_saw_one_moment() {
    model(|| {
        let world = World::new(pair());
        let queue = |me: &Party<'_, Chan>| {
            let mut wait = Box::new(me.wait(None, None)); // it stays where it is
            assert_eq!(me.begin_recv(&mut wait), None);
            wait
        };
        let leave = |me: &Party<'_, Chan>, wait: Box<Wait>| {
            Flavor::<u32, _>::leave_recv(me.chan, &wait.node);
        };
        let me = world.party(0);
        let (a, b) = (me.at(&me.chan[0]), me.at(&me.chan[1]));
        let at_b = queue(&b);
        let looking = spawn(&world, 1, |me| {
            let look = || {
                me.chan
                    .each_ref()
                    .map(|chan| Flavor::<u32, _>::probe_send(chan))
            };
            let (first, second) = (look(), look());
            let none = first.iter().all(|probe| !probe.ready);
            assert!(!none || first != second);
        });
        let at_a = queue(&a);
        leave(&b, at_b);
        let at_b = queue(&b);
        leave(&a, at_a);
        let at_a = queue(&a);
        leave(&b, at_b);
        looking.join().unwrap();
        leave(&a, at_a);
    });
}

//! Senders and receivers of a chain with blocks of two values; how, and what all kinds are asked: `flavor/loom.rs`.
//!
//! Slots and links are loom cells, so a block that is used by two at once is a race; one that is never freed is a leak, which loom reports too.
//! Bugs planted in the code are found: a Relaxed store or load of `tail`, a spare block or waste put down or taken up Relaxed, a stale link, no
//! link, a block left too early, one that is spare and waste at once, waste freed by two, a block that is not freed (one too many, the spare one,
//! waste), no handing over, "empty" or "closed" not looked at under S, "not empty" not under R, those who wait forgotten by a close, a ticket not claimed, a
//! node that does not leave.

use super::*;
use crate::flavor::loom::*;

type Chan = Chain<u32, Sleeper, Mutexes>;

#[test]
fn values_keep_their_order() {
    in_order(Chan::new, 5);
}

#[test]
fn two_senders_want_one_block() {
    two_senders(Chan::new, 2);
}

#[test]
fn two_receivers_want_a_value() {
    two_receivers(Chan::new);
}

#[test]
fn two_senders_and_two_receivers() {
    two_of_each(Chan::new);
}

#[test]
fn nobody_overtakes_a_receiver() {
    a_waiting_receiver_is_not_overtaken(Chan::new);
}

#[test]
fn a_close_ends_receives() {
    a_close_wakes_receivers(Chan::new, 1);
}

#[test]
fn a_close_beside_a_sender_and_a_receiver() {
    a_close_beside_both(Chan::new, 2);
}

#[test]
fn a_receive_of_several_cases() {
    a_select_looks_before_it_queues(Chan::new);
}

/// A receiver whose time is up: either it has the value, or the chain.
#[test]
fn a_receiver_leaves() {
    model(|| {
        let world = World::new(Chan::new());
        let sender = spawn(&world, 1, |me| me.send(7));
        let got = world.party(0).recv_in_time();
        sender.join().unwrap().unwrap();
        assert_eq!(world.chan.count(), usize::from(got.is_none()));
    });
}

/// The block that was read out is the sender's next, or it has made one: then one too many.
#[test]
fn a_block_is_used_again() {
    model(|| {
        let world = World::with(Chan::new(), 4);
        let sender = spawn(&world, 1, |me| (4..7).for_each(|n| me.send(n).unwrap()));
        assert!(world.party(0).recv_many(7).into_iter().eq(0..7));
        sender.join().unwrap();
    });
}

/// Blocks that nobody needs are freed by a receiver, not always by the one who left them, or with the channel, as the one with the last value.
#[test]
fn blocks_are_freed() {
    model(|| {
        let world = World::with(Chan::new(), 9);
        let other = spawn(&world, 1, |me| {
            [(); 4].map(|()| {
                let mut wait = me.wait(None, None);
                assert_eq!(me.attempt_recv(&mut wait, Mode::Try), Step::Done(None));
                wait.value() // and does not tidy up
            })
        });
        let got = world.party(0).recv_many(4);
        assert_eq!(all(got.into_iter().chain(other.join().unwrap())), all(0..8));
        assert_eq!(world.chan.count(), 1);
    });
}

/// A send that needs a block is one of several cases: it claims its ticket, comes again with a block and sends once; what waits elsewhere is
/// served or not.
#[test]
fn a_send_of_several_cases() {
    model(|| {
        let world = World::new([Chan::new(), Chan::new()]);
        let me = world.party(0);
        let (a, b) = (me.at(&me.chan[0]), me.at(&me.chan[1]));
        (0..2).for_each(|value| b.send(value).unwrap());
        let other = spawn(&world, 1, |me| me.at(&me.chan[0]).send(7));
        match me.select([(a.chan, None), (b.chan, Some(2))]) {
            (0, Some(7)) => assert_eq!(b.chan.count(), 2),
            (1, Some(2)) => {
                assert_eq!(a.recv(), Some(7));
                assert_eq!(b.recv_many(3), [0, 1, 2]);
            }
            chosen => panic!("{chosen:?}"),
        }
        other.join().unwrap().unwrap();
    });
}

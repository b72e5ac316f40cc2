//! What all kinds of channels are asked. `before`: so many values, 0, 1, …, are in the channel already.

use super::*;

/// A kind of channel.
pub(crate) trait Kind: Flavor<u32, Sleeper> + Send + Sync + 'static {}

impl<C: Flavor<u32, Sleeper> + Send + Sync + 'static> Kind for C {}

/// All is done, and so it looks: no value, nobody who waits, and room if there ever is.
pub(crate) fn is_quiet<C: Kind>(chan: &C) {
    assert_eq!(chan.count(), 0);
    assert!(!chan.probe_recv().ready);
    assert_eq!(chan.probe_send().ready, chan.capacity() != Some(0));
}

/// One to one, so that each waits for the other again and again: all arrive, in order.
pub(crate) fn in_order<C: Kind>(make: fn() -> C, values: u32) {
    model(move || {
        let world = World::new(make());
        let sender = spawn(&world, 1, move |me| {
            (0..values).for_each(|value| me.send(value).unwrap());
        });
        let got = world.party(0).recv_many(values as usize);
        sender.join().unwrap();
        assert_eq!(got, (0..values).collect::<Vec<_>>());
        is_quiet(&world.chan);
    });
}

/// Two who may wait for room at once, behind so many values.
pub(crate) fn two_senders<C: Kind>(make: fn() -> C, before: u32) {
    model(move || {
        let world = World::with(make(), before);
        let senders =
            [10, 20].map(|value| spawn(&world, value / 10, move |me| me.send(value as u32)));
        let got = world.party(0).recv_many(before as usize + 2);
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
        let (first, then) = got.split_at(before as usize);
        assert!(first.iter().copied().eq(0..before));
        assert_eq!(all(then.iter().copied()), [10, 20]);
        is_quiet(&world.chan);
    });
}

/// Two who may wait for a value at once.
pub(crate) fn two_receivers<C: Kind>(make: fn() -> C) {
    model(move || {
        let world = World::new(make());
        let receivers = [1, 2].map(|number| spawn(&world, number, |me| me.recv().unwrap()));
        for value in 0..2 {
            world.party(0).send(value).unwrap();
        }
        let got = receivers.map(|receiver| receiver.join().unwrap());
        assert_eq!(all(got), [0, 1]);
        is_quiet(&world.chan);
    });
}

pub(crate) fn two_of_each<C: Kind>(make: fn() -> C) {
    model(move || {
        let world = World::new(make());
        let senders = [1, 2].map(|n| spawn(&world, n, move |me| me.send(n as u32)));
        let receiver = spawn(&world, 3, |me| me.recv().unwrap());
        let got = [world.party(0).recv().unwrap(), receiver.join().unwrap()];
        for sender in senders {
            sender.join().unwrap().unwrap();
        }
        assert_eq!(all(got), [1, 2]);
    });
}

/// Who waits for a peer, or for room behind the values there are, is not overtaken by one that comes later.
pub(crate) fn a_waiting_sender_is_not_overtaken<C: Kind>(make: fn() -> C, before: u32) {
    model(move || {
        let world = World::with(make(), before);
        let first = world.party(0);
        let mut wait = first.wait(Some(before), None);
        assert_eq!(first.begin_send(&mut wait), None);
        let second = spawn(&world, 1, move |me| me.send(before + 1));
        let receiver = spawn(&world, 2, move |me| me.recv_many(before as usize + 2));
        first.sleeper.sleep();
        assert_eq!(first.end(&wait.node), Outcome::Done);
        second.join().unwrap().unwrap();
        assert!(receiver.join().unwrap().into_iter().eq(0..before + 2));
    });
}

/// Who waits for a value is not overtaken by one that comes when there is some.
pub(crate) fn a_waiting_receiver_is_not_overtaken<C: Kind>(make: fn() -> C) {
    model(move || {
        let world = World::new(make());
        let first = world.party(0);
        let mut wait = first.wait(None, None);
        assert_eq!(first.begin_recv(&mut wait), None);
        let second = spawn(&world, 1, |me| me.recv());
        let sender = spawn(&world, 2, |me| (0..2).try_for_each(|value| me.send(value)));
        first.sleeper.sleep();
        assert_eq!(first.end(&wait.node), Outcome::Done);
        assert_eq!(wait.value(), 0);
        assert_eq!(second.join().unwrap(), Some(1));
        sender.join().unwrap().unwrap();
    });
}

/// All who wait to receive are told, and what was there before comes out.
pub(crate) fn a_close_wakes_receivers<C: Kind>(make: fn() -> C, before: u32) {
    model(move || {
        let world = World::with(make(), before);
        let receivers = [1, 2].map(|number| spawn(&world, number, |me| me.recv()));
        world.party(0).close();
        let got = receivers.map(|receiver| receiver.join().unwrap());
        assert_eq!(all(got.into_iter().flatten()), all(0..before));
        assert_eq!(world.party(0).recv(), None);
    });
}

/// All who wait to send are told, and what was there before comes out.
pub(crate) fn a_close_wakes_senders<C: Kind>(make: fn() -> C, before: u32) {
    model(move || {
        let world = World::with(make(), before);
        let senders = [1, 2].map(|number| spawn(&world, number, |me| me.send(7)));
        world.party(0).close();
        let sent = senders.map(|sender| sender.join().unwrap());
        assert_eq!(sent, [Err(()), Err(())]);
        assert!(core::iter::from_fn(|| world.party(0).recv()).eq(0..before));
    });
}

/// What was sent before the close arrives, and nothing else.
pub(crate) fn a_close_beside_both<C: Kind>(make: fn() -> C, before: u32) {
    model(move || {
        let world = World::with(make(), before);
        let sender = spawn(&world, 1, move |me| me.send(before));
        let receiver = spawn(&world, 2, |me| {
            core::iter::from_fn(|| me.recv()).collect::<Vec<_>>()
        });
        world.party(0).close();
        let sent = u32::from(sender.join().unwrap().is_ok());
        assert!(receiver.join().unwrap().into_iter().eq(0..before + sent));
    });
}

/// One that waits elsewhere already looks before it queues up (`QueueMore`), and is found by what comes after.
pub(crate) fn a_select_looks_before_it_queues<C: Kind>(make: fn() -> C) {
    model(move || {
        let world = World::new(make());
        let sender = spawn(&world, 1, |me| me.send(7));
        let me = world.party(0);
        let ticket = me.sleeper.draw();
        let mut wait = me.wait(None, Some(ticket));
        match me.attempt_recv(&mut wait, Mode::QueueMore(ticket)) {
            Step::Done(_) => {}
            Step::Blocked => {
                me.sleeper.sleep();
                assert_eq!(me.end(&wait.node), Outcome::Done);
            }
            step => panic!("{step:?}"),
        }
        sender.join().unwrap().unwrap();
        assert_eq!(wait.value(), 7);
    });
}

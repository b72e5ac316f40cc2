//! `select_biased!` and `Select::new_biased`: of several that are ready, the one that comes first.

mod common;

use std::time::Duration;

use runnext::chan::{self, Select};
use runnext::{go, select_biased};

const PICKS: usize = 1_000;

#[runnext::test]
fn the_first_that_is_ready_is_done() {
    let [a, b, c] = [(); 3].map(|()| chan::unbounded());
    for (tx, _) in [&a, &b, &c] {
        (0..PICKS).for_each(|n| tx.send(n).unwrap());
    }
    let mut got = Vec::new();
    loop {
        select_biased! {
            recv(a.1) -> n => got.push((0, n.unwrap())),
            recv(b.1) -> n => got.push((1, n.unwrap())),
            recv(c.1) -> n => got.push((2, n.unwrap())),
            default => break,
        }
    }
    let expected: Vec<_> = (0..3)
        .flat_map(|lane| (0..PICKS).map(move |n| (lane, n)))
        .collect();
    assert_eq!(got, expected);
}

#[runnext::test]
fn sends_closed_channels_and_times_are_ready_in_their_turn() {
    let (tx, rx) = chan::bounded(1);
    let (closed, gone) = chan::bounded::<u8>(1);
    drop(closed);
    let due = chan::after(Duration::ZERO);
    let mut order = Vec::new();
    for _ in 0..3 {
        select_biased! {
            send(tx, 7) -> sent => order.push(sent.map(|()| "sent").unwrap()), // ready once
            recv(due) -> at => order.push(at.map(|_| "due").unwrap()), // ready once
            recv(gone) -> msg => order.push(msg.map(|_| "").unwrap_or("closed")),
            default(Duration::MAX) => unreachable!(),
        }
    }
    assert_eq!(order, ["sent", "due", "closed"]);
    assert_eq!(rx.recv(), Ok(7));
}

/// Who waits in a queue twice is served where it stands first.
#[runnext::test]
fn a_wait_does_the_first_of_several_cases_of_one_channel() {
    for cap in [0, 1] {
        let (tx, rx) = chan::bounded(cap);
        let waits = go(move || {
            (0..50).all(|_| {
                select_biased! {
                    recv(rx) -> n => n == Ok(7),
                    recv(rx) -> _ => false,
                    recv(rx) -> _ => false,
                }
            })
        });
        for _ in 0..50 {
            common::until_waits(&waits, "select");
            tx.send(7).unwrap();
        }
        assert!(waits.join().unwrap());
    }
}

/// A wait is ended by whoever comes, also by one that the last case waits for.
#[runnext::test]
fn a_wait_ends_with_any_case() {
    let [a, b] = [(); 2].map(|()| chan::bounded(0));
    let (first, second) = (a.1.clone(), b.1.clone());
    let waits = go(move || {
        (0..50)
            .map(|_| {
                select_biased! {
                    recv(first) -> n => n.unwrap(),
                    recv(second) -> n => n.unwrap(),
                }
            })
            .collect::<Vec<_>>()
    });
    for n in 0..50 {
        common::until_waits(&waits, "select");
        [&a, &b][n % 2].0.send(n).unwrap();
    }
    assert_eq!(waits.join().unwrap(), (0..50).collect::<Vec<_>>());
}

#[runnext::test]
fn the_dynamic_form_does_the_first_that_was_added() {
    let lanes: Vec<_> = (0..8).map(|_| chan::unbounded()).collect();
    let mut select = Select::new_biased();
    // The indices stay, and so does the order, whatever is taken out.
    let removed = select.recv(&lanes[0].1);
    for (_, rx) in lanes.iter().rev() {
        select.recv(rx);
    }
    select.remove(removed);
    for (tx, _) in &lanes {
        (0..PICKS).for_each(|n| tx.send(n).unwrap());
    }
    let mut clone = select.clone(); // is biased, too
    for lane in (0..lanes.len()).rev() {
        for n in 0..PICKS {
            let op = [&mut select, &mut clone][n % 2].try_select().unwrap();
            assert_eq!(op.index(), lanes.len() - lane);
            assert_eq!(op.recv(&lanes[lane].1), Ok(n));
        }
    }
    assert!(select.try_select().is_err());
}

/// Two that meet with their cases the other way round both go on.
#[runnext::test(procs = 2)]
fn two_that_are_biased_the_other_way_round_pass_each_other() {
    let [a, b] = [(); 2].map(|()| chan::bounded(0));
    let (a2, b2) = (a.clone(), b.clone());
    let there = go(move || {
        let (mut sent, mut received) = (0, 0);
        while sent + received < PICKS {
            select_biased! {
                send(a2.0, 1) -> r => { r.unwrap(); sent += 1 }
                recv(b2.1) -> r => { r.unwrap(); received += 1 }
            }
        }
        (sent, received)
    });
    let (mut sent, mut received) = (0, 0);
    while sent + received < PICKS {
        select_biased! {
            send(b.0, 1) -> r => { r.unwrap(); sent += 1 }
            recv(a.1) -> r => { r.unwrap(); received += 1 }
        }
    }
    assert_eq!(there.join().unwrap(), (received, sent));
}

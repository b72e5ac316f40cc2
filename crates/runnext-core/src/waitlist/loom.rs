//! I3 under loom: nodes in the frames of waiters, a claim word, servers and a time-out.
//!
//! The claim word is the arbiter of `sched::wait` in the runtime: the party that moves it from open to claimed, and only it,
//! may fill the waiter's slot and must wake it. The model frees each node as soon as the protocol says it may, and loom
//! checks every access to the slot and to the freed frame.

use super::{Node, WaitList};
use crate::shim::{AtomicBool, AtomicU32, Ordering::*, UnsafeCell, thread};
use core::cell::Cell;
use loom::sync::{Arc, Mutex};

struct Entry {
    /// None: nobody but a server ends the wait.
    claim: Option<Arc<AtomicU32>>,
    slot: Arc<UnsafeCell<u32>>,
    served: Cell<bool>,
    woken: Arc<AtomicBool>,
}

struct Chan(Mutex<WaitList<Entry>>);

// SAFETY: nodes are touched under the mutex or by the one server that popped them.
unsafe impl Send for Chan {}
// SAFETY: as above.
unsafe impl Sync for Chan {}

fn entry(claim: Option<Arc<AtomicU32>>) -> Node<Entry> {
    Node::new(Entry {
        claim,
        slot: Arc::new(UnsafeCell::new(0)),
        served: Cell::new(false),
        woken: Arc::new(AtomicBool::new(false)),
    })
}

/// A server: gives `value` to the first waiter whose claim it wins.
fn serve(chan: &Chan, value: u32) -> bool {
    let woken = {
        let mut list = chan.0.lock().unwrap();
        loop {
            let Some(node) = list.pop_front() else {
                return false;
            };
            // SAFETY: popped under the lock: its waiter cannot have freed it (I3).
            let node = unsafe { node.as_ref() };
            let claim = node.claim.as_ref();
            if claim.is_none_or(|word| word.compare_exchange(0, 1, AcqRel, Relaxed).is_ok()) {
                // SAFETY: the claim is ours, so the slot is.
                node.slot.with_mut(|slot| unsafe { *slot = value });
                node.served.set(true);
                break node.woken.clone();
            }
        }
    };
    woken.store(true, Release);
    true
}

fn sleep(woken: &AtomicBool) {
    while !woken.load(Acquire) {
        thread::yield_now();
    }
}

fn queue(chan: &Chan, node: &Node<Entry>) {
    // SAFETY: each waiter below leaves the list, or is served, before its node goes.
    unsafe { chan.0.lock().unwrap().push_back(node) };
}

fn leave(chan: &Chan, node: &Node<Entry>) {
    // SAFETY: a node of this model is only ever in the one list.
    unsafe { chan.0.lock().unwrap().remove(node) };
}

fn taken(node: &Node<Entry>) -> u32 {
    // SAFETY: the waiter was woken, or nobody claimed: no server uses the slot.
    node.slot.with(|slot| unsafe { *slot })
}

#[test]
fn a_plain_waiter_is_served_once() {
    loom::model(|| {
        let chan = Arc::new(Chan(Mutex::new(WaitList::new())));
        let server = {
            let chan = chan.clone();
            thread::spawn(move || serve(&chan, 7))
        };
        let node = entry(None);
        queue(&chan, &node);
        if !server.join().unwrap() {
            assert!(serve(&chan, 7));
        }
        sleep(&node.woken);
        assert!(node.served.get());
        assert_eq!(taken(&node), 7);
    });
}

#[test]
fn a_time_out_and_a_server_do_not_both_win() {
    loom::model(|| {
        let chan = Arc::new(Chan(Mutex::new(WaitList::new())));
        let claim = Arc::new(AtomicU32::new(0));
        let (waiter_claim, waiter_chan) = (claim.clone(), chan.clone());
        let waiter = thread::spawn(move || {
            let node = entry(Some(waiter_claim.clone()));
            queue(&waiter_chan, &node);
            // The deadline has passed at once: the waiter competes for its own wait.
            if waiter_claim.compare_exchange(0, 1, AcqRel, Relaxed).is_ok() {
                leave(&waiter_chan, &node);
                return None;
            }
            sleep(&node.woken);
            assert!(node.served.get());
            Some(taken(&node))
        });
        let served = serve(&chan, 7);
        let got = waiter.join().unwrap();
        assert_eq!(got, served.then_some(7));
    });
}

#[test]
fn a_waiter_in_two_lists_is_served_by_one() {
    loom::model(|| {
        let chans = [(); 2].map(|()| Arc::new(Chan(Mutex::new(WaitList::new()))));
        let claim = Arc::new(AtomicU32::new(0));
        let woken = Arc::new(AtomicBool::new(false));
        let nodes = [(); 2].map(|()| {
            let node = entry(Some(claim.clone()));
            Node::new(Entry {
                woken: woken.clone(),
                ..node.value
            })
        });
        queue(&chans[0], &nodes[0]);
        queue(&chans[1], &nodes[1]);
        let servers = [0, 1].map(|i| {
            let chan = chans[i].clone();
            thread::spawn(move || serve(&chan, 10 + i as u32))
        });
        sleep(&woken);
        // Both leave both lists, served or not, and the frame ends.
        let got: Vec<u32> = (0..2)
            .filter(|&i| nodes[i].served.get())
            .map(|i| taken(&nodes[i]))
            .collect();
        leave(&chans[0], &nodes[0]);
        leave(&chans[1], &nodes[1]);
        drop(nodes);
        let served = servers.map(|s| s.join().unwrap());
        assert_eq!(served.iter().filter(|&&s| s).count(), 1);
        assert_eq!(got, [if served[0] { 10 } else { 11 }]);
    });
}

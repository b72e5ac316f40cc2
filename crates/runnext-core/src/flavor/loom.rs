//! Who waits in the models of the channels; `models` has those that all kinds have in common.
//!
//! Each model is every interleaving of three preemptions (`LOOM_MAX_PREEMPTIONS` for more). The outcomes of waits are loom cells, and so are
//! slots: a value that is read before it can be seen is a race. One who sleeps for ever leaves its thread blocked, which loom reports as a
//! deadlock. Values are numbers, and each model says which come out, in which order. The locks are loom's mutexes: `lock_word` has models of
//! its own. What is found by them is said in the models of each kind.

use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use ::loom::sync::{Arc, Condvar, Mutex};
use ::loom::thread;

use super::Flavor;
use crate::shim::{
    AtomicU32,
    Ordering::{AcqRel, Relaxed, Release},
    UnsafeCell,
};
use crate::waiting::{Mode, Node, Outcome, Step, Waiter, node};

mod models;

pub(crate) use crate::testing::Mutexes;
pub(crate) use models::*;

/// Where one party sleeps.
struct Bed {
    woken: Mutex<bool>,
    more: Condvar,
    /// The ticket that was drawn last, if it is open; one more if it is claimed.
    ticket: AtomicU32,
    /// Written by the party when its wait is over: who takes it for a waiter after that is a race.
    frame: UnsafeCell<()>,
}

/// A bed of the model's [`World`], which outlives all who use it.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Sleeper(*const Bed);

// SAFETY: all of a bed is for use by any thread, but for the frame, of which that is to be found out.
unsafe impl Send for Sleeper {}

/// One of a bed, by its number.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Ticket(Sleeper, u32);

impl Sleeper {
    fn bed<'a>(self) -> &'a Bed {
        // SAFETY: beds outlive all who use them.
        unsafe { &*self.0 }
    }

    pub(crate) fn sleep(self) {
        let mut woken = self.bed().woken.lock().unwrap();
        while !*woken {
            woken = self.bed().more.wait(woken).unwrap();
        }
        *woken = false;
    }

    pub(crate) fn wake(self) {
        let mut woken = self.bed().woken.lock().unwrap();
        assert!(!*woken, "woken twice");
        *woken = true;
        self.bed().more.notify_one();
    }

    /// By the party, between its waits.
    pub(crate) fn draw(self) -> Ticket {
        let word = &self.bed().ticket;
        let number = (word.load(Relaxed) + 2) & !1;
        word.store(number, Release);
        Ticket(self, number)
    }
}

// SAFETY: a ticket is claimed by a compare-and-swap from its number, and no later one has the same.
unsafe impl Waiter for Sleeper {
    type Ticket = Ticket;

    fn is_gone(self) -> bool {
        self.bed().frame.with(|_| false)
    }

    fn claim(Ticket(sleeper, number): Ticket) -> bool {
        let word = &sleeper.bed().ticket;
        word.compare_exchange(number, number + 1, AcqRel, Relaxed)
            .is_ok()
    }

    fn is_open(Ticket(sleeper, number): Ticket) -> bool {
        sleeper.bed().ticket.load(Relaxed) == number
    }
}

/// The channel, or channels, of a model, and where its parties sleep.
pub(crate) struct World<C> {
    pub(crate) chan: C,
    beds: [Bed; 4],
}

// SAFETY: that the frames of the beds are used by one at a time is what the models check.
unsafe impl<C: Sync> Sync for World<C> {}
// SAFETY: as above.
unsafe impl<C: Send> Send for World<C> {}

/// A party: the channel, and its bed.
pub(crate) struct Party<'a, C> {
    pub(crate) chan: &'a C,
    pub(crate) sleeper: Sleeper,
}

/// What a party waits with, for as long as its wait may last.
pub(crate) struct Wait {
    pub(crate) node: Node<Sleeper>,
    slot: Box<MaybeUninit<u32>>,
}

impl Wait {
    /// By a receiver that has one.
    pub(crate) fn value(&self) -> u32 {
        // SAFETY: received.
        unsafe { self.slot.assume_init_read() }
    }
}

/// A promise that is to be kept or given up: to this receiver, if the channel's kind has them wait for it.
pub(crate) type Promise = Option<NonNull<Node<Sleeper>>>;

impl<C> World<C> {
    pub(crate) fn new(chan: C) -> Arc<World<C>> {
        Arc::new(World {
            chan,
            beds: [(); 4].map(|()| Bed {
                woken: Mutex::new(false),
                more: Condvar::new(),
                ticket: AtomicU32::new(0),
                frame: UnsafeCell::new(()),
            }),
        })
    }

    pub(crate) fn party(&self, number: usize) -> Party<'_, C> {
        Party {
            chan: &self.chan,
            sleeper: Sleeper(&raw const self.beds[number]),
        }
    }
}

impl<C: Flavor<u32, Sleeper>> World<C> {
    /// The values 0, 1, … are in the channel.
    pub(crate) fn with(chan: C, values: u32) -> Arc<World<C>> {
        let world = World::new(chan);
        for value in 0..values {
            assert_eq!(world.party(0).send(value), Ok(()));
        }
        world
    }
}

/// Runs `work` as party `number` in a thread of its own.
pub(crate) fn spawn<R: 'static, C: Send + Sync + 'static>(
    world: &Arc<World<C>>,
    number: usize,
    work: impl FnOnce(Party<'_, C>) -> R + 'static,
) -> thread::JoinHandle<R> {
    let world = Arc::clone(world);
    thread::spawn(move || work(world.party(number)))
}

impl<C> Party<'_, C> {
    /// The same at another channel.
    pub(crate) fn at<'a, D>(&self, chan: &'a D) -> Party<'a, D> {
        Party {
            chan,
            sleeper: self.sleeper,
        }
    }

    pub(crate) fn wait(&self, value: Option<u32>, ticket: Option<Ticket>) -> Wait {
        let mut slot = Box::new(value.map_or(MaybeUninit::uninit(), MaybeUninit::new));
        let node = node(self.sleeper, ticket, slot.as_mut_ptr().cast());
        Wait { node, slot }
    }

    /// The wait is over, and its node goes.
    pub(crate) fn end(&self, node: &Node<Sleeper>) -> Outcome {
        self.sleeper.bed().frame.with_mut(|_| ());
        node.outcome()
    }
}

/// One of the operations of a select: a value to be sent, or a receive.
pub(crate) type Case<'a, C> = (&'a C, Option<u32>);

impl<D> Party<'_, D> {
    /// Waits for one of the cases as `select!` does. Which it was, and the value that was moved; None: the channel is closed.
    pub(crate) fn select<C: Flavor<u32, Sleeper>, const N: usize>(
        &self,
        cases: [Case<'_, C>; N],
    ) -> (usize, Option<u32>) {
        loop {
            let ticket = self.sleeper.draw();
            let mut waits = cases.map(|(_, value)| self.wait(value, Some(ticket)));
            let (at, step) = self.queue_all(&cases, &mut waits, ticket);
            let leave = |but: Option<usize>| {
                for (index, (chan, value)) in cases.iter().enumerate() {
                    match value {
                        _ if but == Some(index) => {}
                        Some(_) => chan.leave_send(&waits[index].node),
                        None => chan.leave_recv(&waits[index].node),
                    }
                }
            };
            let outcome = |at: usize| match self.end(&waits[at].node) {
                Outcome::Done => Some((at, Some(waits[at].value()))),
                Outcome::Closed => Some((at, None)),
                Outcome::Again => None,
                Outcome::Pending => panic!("woken for nothing"),
            };
            let chosen = match step {
                Step::Blocked | Step::Lost => {
                    self.sleeper.sleep();
                    let served = |wait: &Wait| wait.node.outcome() != Outcome::Pending;
                    let at = waits.iter().position(served);
                    leave(at);
                    outcome(at.expect("woken for nothing"))
                }
                Step::Promised(_) => {
                    leave(Some(at));
                    self.sleeper.sleep();
                    outcome(at)
                }
                step => {
                    leave(Some(at));
                    self.end(&waits[at].node);
                    match step {
                        Step::Done(_) => Some((at, Some(waits[at].value()))),
                        Step::Closed => Some((at, None)),
                        _ => None,
                    }
                }
            };
            match chosen {
                Some(chosen) => return chosen,
                None => cases[at % N].0.prepare_send(),
            }
        }
    }

    /// Queues up at one after the other, until one has something to say: which, and what.
    fn queue_all<C: Flavor<u32, Sleeper>>(
        &self,
        cases: &[Case<'_, C>],
        waits: &mut [Wait],
        ticket: Ticket,
    ) -> (usize, Step<Sleeper>) {
        for (index, ((chan, value), wait)) in cases.iter().zip(waits).enumerate() {
            let mode = match index {
                0 => Mode::Queue,
                _ => Mode::QueueMore(ticket),
            };
            let step = match value {
                Some(_) => self.at(*chan).attempt_send(wait, mode),
                None => self.at(*chan).attempt_recv(wait, mode),
            };
            if step != Step::Blocked {
                return (index, step);
            }
        }
        (cases.len(), Step::Blocked)
    }
}

impl<C: Flavor<u32, Sleeper>> Party<'_, C> {
    pub(crate) fn attempt_send(&self, wait: &mut Wait, mode: Mode<Sleeper>) -> Step<Sleeper> {
        loop {
            // SAFETY: a number, and the models keep what waits until its wait is over.
            match unsafe { self.chan.send(wait.slot.as_mut_ptr(), &wait.node, mode) } {
                Step::Done(Some(peer)) => {
                    peer.wake();
                    return Step::Done(None);
                }
                Step::Again if !matches!(mode, Mode::QueueMore(_)) => self.chan.prepare_send(),
                step => return step,
            }
        }
    }

    /// Queues up, or sends at once: then what came of it.
    pub(crate) fn begin_send(&self, wait: &mut Wait) -> Option<Result<(), ()>> {
        match self.attempt_send(wait, Mode::Queue) {
            Step::Done(_) => Some(Ok(())),
            Step::Closed => Some(Err(())),
            Step::Blocked => None,
            step => panic!("{step:?}"),
        }
    }

    /// Err: the channel is closed.
    pub(crate) fn send(&self, value: u32) -> Result<(), ()> {
        let mut wait = self.wait(Some(value), None);
        self.begin_send(&mut wait).unwrap_or_else(|| {
            self.sleeper.sleep();
            match self.end(&wait.node) {
                Outcome::Done => Ok(()),
                Outcome::Closed => Err(()),
                outcome => panic!("woken with {outcome:?}"),
            }
        })
    }

    /// As one does who may give up: if it is not served at once its time is over. None: then it has left.
    pub(crate) fn send_in_time(&self, value: u32) -> Option<Result<(), ()>> {
        let ticket = self.sleeper.draw();
        let mut wait = self.wait(Some(value), Some(ticket));
        self.begin_send(&mut wait).or_else(|| {
            if Sleeper::claim(ticket) {
                self.chan.leave_send(&wait.node);
                assert_eq!(self.end(&wait.node), Outcome::Pending);
                return None;
            }
            self.sleeper.sleep();
            Some(match self.end(&wait.node) {
                Outcome::Done => Ok(()),
                outcome => panic!("woken with {outcome:?}"),
            })
        })
    }

    pub(crate) fn attempt_recv(&self, wait: &mut Wait, mode: Mode<Sleeper>) -> Step<Sleeper> {
        // SAFETY: the models keep what waits until its wait is over.
        let step = unsafe { self.chan.recv(wait.slot.as_mut_ptr(), &wait.node, mode) };
        match step {
            Step::Done(Some(peer)) => {
                peer.wake();
                Step::Done(None)
            }
            Step::Promised(peer) => {
                peer.wake();
                step
            }
            step => step,
        }
    }

    /// Queues up, or receives at once: then what came of it.
    pub(crate) fn begin_recv(&self, wait: &mut Wait) -> Option<Option<u32>> {
        let step = self.attempt_recv(wait, Mode::Queue);
        self.chan.tidy();
        match step {
            Step::Done(_) => Some(Some(wait.value())),
            Step::Closed => Some(None),
            Step::Blocked | Step::Promised(_) => None,
            step => panic!("{step:?}"),
        }
    }

    /// None: the channel is closed, and empty.
    pub(crate) fn recv(&self) -> Option<u32> {
        loop {
            let mut wait = self.wait(None, None);
            if let Some(got) = self.begin_recv(&mut wait) {
                return got;
            }
            self.sleeper.sleep();
            match self.end(&wait.node) {
                Outcome::Done => return Some(wait.value()),
                Outcome::Closed => return None,
                Outcome::Again => {}
                Outcome::Pending => panic!("woken for nothing"),
            }
        }
    }

    pub(crate) fn recv_many(&self, n: usize) -> Vec<u32> {
        (0..n).map(|_| self.recv().unwrap()).collect()
    }

    /// As [`send_in_time`](Self::send_in_time).
    pub(crate) fn recv_in_time(&self) -> Option<u32> {
        let ticket = self.sleeper.draw();
        let mut wait = self.wait(None, Some(ticket));
        self.begin_recv(&mut wait).unwrap_or_else(|| {
            if Sleeper::claim(ticket) {
                self.chan.leave_recv(&wait.node);
                assert_eq!(self.end(&wait.node), Outcome::Pending);
                return None;
            }
            self.sleeper.sleep();
            assert_eq!(self.end(&wait.node), Outcome::Done);
            Some(wait.value())
        })
    }

    /// Waits until it can send, and has a promise to keep then. None: the channel was closed.
    pub(crate) fn promise(&self) -> Option<Promise> {
        let node = node(self.sleeper, None, ptr::null_mut());
        // SAFETY: the node stays until its wait is over.
        match unsafe { self.chan.promise(&node, Mode::Queue) } {
            Step::Done(None) => Some(node.peer()),
            Step::Closed => None,
            Step::Blocked => {
                self.sleeper.sleep();
                (self.end(&node) == Outcome::Done).then(|| node.peer())
            }
            step => panic!("{step:?}"),
        }
    }

    pub(crate) fn close(&self) {
        self.chan.close().expect("closed once").wake(Sleeper::wake);
    }
}

pub(crate) fn model(run: impl Fn() + Sync + Send + 'static) {
    let mut builder = ::loom::model::Builder::new();
    builder.preemption_bound.get_or_insert(3);
    builder.check(run);
}

/// Sorted.
pub(crate) fn all(parts: impl IntoIterator<Item = u32>) -> Vec<u32> {
    let mut all: Vec<u32> = parts.into_iter().collect();
    all.sort_unstable();
    all
}

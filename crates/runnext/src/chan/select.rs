//! Waiting for several channel operations at once, and doing exactly one of them.
//!
//! # Why this shape
//! Go locks all channels of a `select` in the order of their addresses, looks, queues up and unlocks. Here no two
//! channels are ever locked together: looking needs no lock at all, and queueing up one by one is enough since the wait has
//! a ticket, which a server must claim. So a `select` with something ready costs one operation, and one with `default` and
//! nothing ready costs some loads. Rejected: sorting and locking (as above); queueing first and looking later, which
//! makes others claim a wait that was never needed.
//!
//! # Protocol
//! 1 *look*: probe all cases without locks. If some are ready choose one of them ([`Order`]: by the dice, or the first) and attempt it alone;
//!   if it was lost to somebody else look again.
//! 2 *default*: probe all once more. Nothing ready and no stamp moved: give up. Otherwise look again.
//! 3 *wait*: draw a ticket and queue up at each channel, in an order that the dice decide, or that of the cases. A case that is ready by now is attempted under its lock,
//!   after claiming the own ticket, so that nobody serves this wait any more; if the attempt fails (the peer was
//!   in the same position, or served meanwhile) leave all queues and look again. Else park.
//! 4 *leave*: the server has taken its node out; take out the others, O(1) each.
//!
//! # Why `default` sees one moment
//! A direction that is not ready becomes ready only by moving its stamp, or by a close, which stays (`Probe`). All stamps of the
//! second pass equal those of the first, so each direction was not ready from its first probe to its second; the end of
//! the first pass lies between the two for all of them. Each retry means that a peer got something done.
//!
//! # Invariants
//! I1  A value moves only after the ticket of each waiting party was claimed by the party that moves it.
//! I2  Before `run` returns, all nodes are out of their queues. Nothing is left on a quiet channel.
//! I3  A select never pairs with itself: when it attempts a case its own ticket is claimed, so its nodes serve nobody.
//!
//! # Tests
//! `tests/select.rs`, `tests/select_stress.rs`; the waits themselves under loom in `runnext-core`.

use std::cell::Cell;
use std::hint;
use std::sync::atomic::{AtomicU64, Ordering::*};

use runnext_core::flavor::Flavor;
use runnext_core::probe::Probe;
use runnext_core::rng::Dice;

use super::wait::{self, Mode, Node, Outcome, Step};
use super::{Chan, Receiver, Sender, each};
use crate::g::WaitReason;
use crate::sched::call::{self, Call};
use crate::sched::timers::NEVER;
use crate::sched::wait::Ticket;

/// How long a select waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Limit {
    Now,
    At(u64),
}

impl Limit {
    pub(crate) const NEVER: Limit = Limit::At(NEVER);
}

/// Which one is done if several are ready.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Order {
    /// Any of them, by the dice.
    #[default]
    Dice,
    /// The one that was written first.
    First,
}

/// One direction of one channel, its type forgotten.
pub(super) struct Ops {
    probe: unsafe fn(*const ()) -> Probe,
    attempt: unsafe fn(*const (), *mut (), &Node, Mode) -> Step,
    leave: unsafe fn(*const (), &Node),
    prepare: unsafe fn(*const ()),
    tidy: unsafe fn(*const ()),
    due: unsafe fn(*const ()) -> u64,
}

/// One case of a select. Public for `select!` only.
pub struct Case {
    chan: *const (),
    ops: &'static Ops,
    slot: *mut (),
    node: Option<Node>,
    stamp: usize,
    ready: bool,
    /// Not of this case: the index of the one that queues up at this place in the order.
    queues_here: usize,
}

/// The case that was done.
#[derive(Clone, Copy, Debug)]
pub(super) struct Chosen {
    pub(super) index: usize,
    /// It failed: the channel is closed.
    pub(super) closed: bool,
    /// It is a promise whose receiver waits.
    pub(super) peer: Option<std::ptr::NonNull<Node>>,
}

/// The operations of channels of `T`.
struct Of<T>(std::marker::PhantomData<T>);

impl<T> Of<T> {
    const RECV: &'static Ops = &Ops {
        probe: |chan| each!(Self::chan(chan), c => Flavor::<T, _>::probe_recv(c)),
        attempt: |chan, slot, node, mode| {
            // SAFETY: a `Case` says that the slot fits, and the protocol above keeps it in place.
            each!(Self::chan(chan), c => unsafe { c.recv(slot.cast::<T>(), node, mode) })
        },
        leave: |chan, node| each!(Self::chan(chan), c => Flavor::<T, _>::leave_recv(c, node)),
        prepare: |_| {},
        tidy: |chan| each!(Self::chan(chan), c => Flavor::<T, _>::tidy(c)),
        due: |chan| each!(Self::chan(chan), c => Flavor::<T, _>::due(c)),
    };

    const SEND: &'static Ops = &Ops {
        probe: |chan| each!(Self::chan(chan), c => Flavor::<T, _>::probe_send(c)),
        attempt: |chan, slot, node, mode| {
            // SAFETY: as above.
            each!(Self::chan(chan), c => unsafe { c.send(slot.cast::<T>(), node, mode) })
        },
        leave: |chan, node| each!(Self::chan(chan), c => Flavor::<T, _>::leave_send(c, node)),
        prepare: |chan| each!(Self::chan(chan), c => Flavor::<T, _>::prepare_send(c)),
        tidy: |_| {},
        due: |_| NEVER,
    };

    /// A send without a value yet.
    const PROMISE: &'static Ops = &Ops {
        attempt: |chan, _, node, mode| {
            // SAFETY: a case without a slot has a promise for a node, which stays.
            each!(Self::chan(chan), c => unsafe { Flavor::<T, _>::promise(c, node, mode) })
        },
        prepare: |_| {},
        ..*Self::SEND
    };

    /// Only called through the tables above, by a `Case` that was made with a channel of `T`.
    #[inline]
    fn chan<'a>(chan: *const ()) -> &'a Chan<T> {
        // SAFETY: see above; the case borrows the end, which keeps the channel.
        unsafe { &*chan.cast::<Chan<T>>() }
    }
}

/// A case that never happens.
const OF_NOTHING: &Ops = &Ops {
    probe: |_| Probe {
        stamp: 0,
        ready: false,
    },
    attempt: |_, _, _, _| Step::Blocked,
    leave: |_, _| {},
    prepare: |_| {},
    tidy: |_| {},
    due: |_| NEVER,
};

impl std::fmt::Debug for Case {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Case").finish_non_exhaustive()
    }
}

impl Case {
    /// # Safety
    /// While the case is used the end is borrowed, and `slot` is a place for a `T` that holds none and that nobody else
    /// touches.
    pub(super) unsafe fn recv<T>(end: &Receiver<T>, slot: *mut T) -> Case {
        match end.chan() {
            Some(chan) => Case::new((&raw const *chan).cast(), Of::<T>::RECV, slot.cast()),
            None => Case::new(std::ptr::null(), OF_NOTHING, slot.cast()),
        }
    }

    /// # Safety
    /// While the case is used the end is borrowed, and `slot` holds a `T` that nobody else touches.
    pub(super) unsafe fn send<T>(end: &Sender<T>, slot: *mut T) -> Case {
        Case::new((&raw const *end.chan()).cast(), Of::<T>::SEND, slot.cast())
    }

    /// # Safety
    /// While the case is used the end is borrowed. If it is chosen and not closed, the promise must be kept or given up.
    pub(super) unsafe fn promise<T>(end: &Sender<T>) -> Case {
        Case::new(
            (&raw const *end.chan()).cast(),
            Of::<T>::PROMISE,
            std::ptr::null_mut(),
        )
    }

    /// The `Chan<T>`; null if there is none.
    pub(super) fn chan(&self) -> *const () {
        self.chan
    }

    fn new(chan: *const (), ops: &'static Ops, slot: *mut ()) -> Case {
        Case {
            chan,
            ops,
            slot,
            node: None,
            stamp: 0,
            ready: false,
            queues_here: 0,
        }
    }

    #[inline]
    fn probe(&self) -> Probe {
        // SAFETY: the maker's promise.
        unsafe { (self.ops.probe)(self.chan) }
    }

    /// Attempts the operation with a new node, which stays in the case.
    #[inline]
    fn attempt(&mut self, call: &Call, ticket: Option<Ticket>, mode: Mode) -> Step {
        let node = self
            .node
            .insert(wait::node(call.waiter(), ticket, self.slot));
        // SAFETY: the maker's promise; the node stays in the case, which is not moved before all are out of their queues (I2).
        unsafe { (self.ops.attempt)(self.chan, self.slot, node, mode) }
    }

    fn outcome(&self) -> Outcome {
        self.node
            .as_ref()
            .map_or(Outcome::Pending, |node| node.outcome())
    }

    fn leave(&self) {
        if let Some(node) = &self.node {
            // SAFETY: the maker's promise.
            unsafe { (self.ops.leave)(self.chan, node) };
        }
    }
}

/// How one turn ended.
enum Turn {
    Chosen(Chosen),
    /// Look again.
    Again,
    /// Look again, and then no more.
    TimedOut,
}

/// Does one of the operations and says which. None if none was ready within the limit.
pub(super) fn run(cases: &mut [Case], limit: Limit, order: Order) -> Option<Chosen> {
    let mut over = limit == Limit::Now;
    loop {
        let ready = look(cases);
        if ready > 0 {
            if let Turn::Chosen(chosen) = attempt_one(cases, ready, limit, order) {
                // SAFETY: the maker's promise. The call is closed.
                unsafe { (cases[chosen.index].ops.tidy)(cases[chosen.index].chan) };
                return Some(chosen);
            }
            continue;
        }
        if over {
            if !still_not(cases) {
                continue;
            }
            call::checkpoint_here();
            return None;
        }
        match wait_for_one(cases, limit, order) {
            Turn::Chosen(chosen) => {
                // SAFETY: as above.
                unsafe { (cases[chosen.index].ops.tidy)(cases[chosen.index].chan) };
                return Some(chosen);
            }
            Turn::TimedOut => over = true,
            Turn::Again => {}
        }
    }
}

/// Probes all; how many are ready.
#[inline]
fn look(cases: &mut [Case]) -> u32 {
    let mut ready = 0;
    for case in cases {
        let probe = case.probe();
        case.stamp = probe.stamp;
        case.ready = probe.ready;
        ready += u32::from(probe.ready);
    }
    ready
}

/// Whether nothing has become ready since the last look: see "Why `default` sees one moment".
#[inline]
fn still_not(cases: &[Case]) -> bool {
    cases.len() < 2
        || cases.iter().all(|case| {
            let probe = case.probe();
            !probe.ready && probe.stamp == case.stamp
        })
}

/// Attempts one of those that looked ready.
fn attempt_one(cases: &mut [Case], ready: u32, limit: Limit, order: Order) -> Turn {
    let mut call = match limit {
        Limit::Now => Call::brief(), // not said to block, but for promises
        Limit::At(_) => Call::begin(),
    };
    let nth = match order {
        Order::Dice if ready > 1 => roll(&call, ready),
        Order::Dice | Order::First => 0,
    };
    let index = cases
        .iter()
        .enumerate()
        .filter(|(_, case)| case.ready)
        .nth(nth as usize)
        .map(|(index, _)| index)
        .expect("fewer than were counted");
    let case = &mut cases[index];
    let mut chosen = Chosen {
        index,
        closed: false,
        peer: None,
    };
    match case.attempt(&call, None, Mode::Try) {
        Step::Done(peer) => {
            if let Some(peer) = peer {
                call.wake(peer);
            }
            chosen.peer = case.node.as_ref().and_then(|node| node.peer());
            Turn::Chosen(chosen)
        }
        Step::Closed => {
            chosen.closed = true;
            Turn::Chosen(chosen)
        }
        Step::Promised(peer) => {
            call.wake(peer);
            call.park(WaitReason::Select);
            match case.outcome() {
                Outcome::Done => Turn::Chosen(chosen),
                _ => Turn::Again,
            }
        }
        Step::Again => {
            drop(call);
            // SAFETY: the maker's promise. The call is closed.
            unsafe { (case.ops.prepare)(case.chan) };
            Turn::Again
        }
        Step::Blocked | Step::Lost => Turn::Again,
    }
}

/// Queues up everywhere and parks.
fn wait_for_one(cases: &mut [Case], limit: Limit, order: Order) -> Turn {
    let Limit::At(deadline) = limit else {
        return Turn::TimedOut;
    };
    let mut call = Call::begin();
    let ticket = call.waiter().draw();
    put_in_order(cases, &call, order);
    let (queued, step) = queue_all(cases, &call, ticket);
    let index = cases.get(queued).map_or(0, |case| case.queues_here);
    let mut chosen = Chosen {
        index,
        closed: false,
        peer: None,
    };
    match step {
        None | Some(Step::Lost) => {
            let reason = match cases.len() {
                0 => WaitReason::SelectNoCases,
                _ => WaitReason::Select,
            };
            // SAFETY: the maker's promise. Asked after queueing up, as `due` wants it.
            let due = cases
                .iter()
                .map(|case| unsafe { (case.ops.due)(case.chan) });
            let earliest = due.fold(deadline, u64::min);
            // If the wait is lost already its server has woken us, or will at once; the deadline does no harm.
            wait::park(&mut call, Some(ticket), earliest, reason);
            return match leave_all(cases) {
                Turn::TimedOut if earliest < deadline => Turn::Again,
                turn => turn,
            };
        }
        Some(Step::Done(peer)) => {
            if let Some(peer) = peer {
                call.wake(peer);
            }
            chosen.peer = cases[index].node.as_ref().and_then(|node| node.peer());
        }
        Some(Step::Closed) => chosen.closed = true,
        Some(Step::Promised(peer)) => {
            call.wake(peer);
            leave_first(cases, queued);
            call.park(WaitReason::Select);
            return match cases[index].outcome() {
                Outcome::Done => Turn::Chosen(chosen),
                _ => Turn::Again,
            };
        }
        Some(Step::Again | Step::Blocked) => {
            leave_first(cases, queued);
            // Two selects that met like this must not meet again in step.
            for _ in 0..roll(&call, 64) {
                hint::spin_loop();
            }
            drop(call);
            // SAFETY: the maker's promise. The call is closed.
            unsafe { (cases[index].ops.prepare)(cases[index].chan) };
            return Turn::Again;
        }
    }
    leave_first(cases, queued);
    Turn::Chosen(chosen)
}

/// The order of queueing up. Of several cases of one channel its queue serves the one that came first.
fn put_in_order(cases: &mut [Case], call: &Call, order: Order) {
    if let Some(first) = cases.first_mut() {
        first.queues_here = 0;
    }
    for place in 1..cases.len() {
        let other = match order {
            Order::Dice => roll(call, place as u32 + 1) as usize,
            Order::First => place,
        };
        cases[place].queues_here = cases[other].queues_here;
        cases[other].queues_here = place;
    }
}

/// Queues up at one channel after the other, until one has something to say. How many are queued, and what that is.
fn queue_all(cases: &mut [Case], call: &Call, ticket: Ticket) -> (usize, Option<Step>) {
    for place in 0..cases.len() {
        let mode = match place {
            0 => Mode::Queue,
            _ => Mode::QueueMore(ticket),
        };
        let index = cases[place].queues_here;
        match cases[index].attempt(call, Some(ticket), mode) {
            Step::Blocked => {}
            // The nodes of the cases behind are of an earlier turn, or none: nothing happened to them in this one.
            step => {
                for behind in place + 1..cases.len() {
                    let index = cases[behind].queues_here;
                    cases[index].node = None;
                }
                return (place, Some(step));
            }
        }
    }
    (cases.len(), None)
}

/// The first `n` that have queued up leave.
fn leave_first(cases: &[Case], n: usize) {
    let first = cases[..n].iter().map(|case| case.queues_here);
    first.for_each(|index| cases[index].leave());
}

/// The wait is over: which node was served? The others leave.
fn leave_all(cases: &[Case]) -> Turn {
    let mut turn = Turn::TimedOut;
    for (index, case) in cases.iter().enumerate() {
        match case.outcome() {
            Outcome::Pending => case.leave(),
            Outcome::Again => turn = Turn::Again,
            outcome => {
                turn = Turn::Chosen(Chosen {
                    index,
                    closed: outcome == Outcome::Closed,
                    peer: case.node.as_ref().and_then(|node| node.peer()),
                });
            }
        }
    }
    turn
}

/// A number below `n`: from the dice of the P, so that a simulated run replays, or the thread's own.
fn roll(call: &Call, n: u32) -> u32 {
    match call.m() {
        // SAFETY: inside a call this thread owns its P; nothing else is called meanwhile.
        Some(m) => unsafe { m.p().own() }.dice.below(n),
        None => roll_on_thread(n),
    }
}

/// Each plain thread has dice of its own, seeded by the order in which threads first roll.
fn roll_on_thread(n: u32) -> u32 {
    static SEEDS: AtomicU64 = AtomicU64::new(0);
    thread_local! {
        static DICE: Cell<Option<u64>> = const { Cell::new(None) };
    }
    DICE.with(|cell| {
        let seed = cell
            .get()
            .unwrap_or_else(|| SEEDS.fetch_add(1, Relaxed) << 32);
        let rolled = Dice::new(seed).below(n);
        cell.set(Some(seed.wrapping_add(1)));
        rolled
    })
}

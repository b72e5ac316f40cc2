//! Descriptors: goroutines, threads and futures that wait until a socket is ready.
//!
//! # Why this shape
//! A call is tried first, in user state and without entering the runtime: most reads and writes find what they want, and cost
//! their system call alone. Only one that would block registers the descriptor, once, and waits in its [`Slot`]. What the last
//! call learned is kept: one that got less than it asked for has emptied the socket, so the next waits at once instead of
//! asking the kernel to say so.
//!
//! # Which poller
//! A socket belongs to no runtime. It is registered with the poller of the runtime whose goroutine first has to wait for it, and
//! again with another's if one of its goroutines has to; any event wakes all who wait. So sockets may be made outside,
//! moved between runtimes and used after theirs has gone. A plain thread registers nothing: it waits in `ppoll(2)`, with an
//! eventfd beside it by which deadlines reach it. Futures polled on plain threads have a poller of their own, with a thread
//! (`reactor`). Rejected: one poller for the process (whose Ms would wait in it, and which runtime's breaker would end the
//! wait?); a registration when the socket is made (short connections never need it).
//!
//! # Deadlines
//! Each wait brings its own, to its P's timers. A descriptor has no timer: who sets a deadline stores it and wakes all who wait in
//! that direction, and they look again. It counts as an event, so who is about to wait does not miss it. Who
//! pauses between two attempts of a call (`Descriptor::pause`) waits in the same list for the same reason.
//!
//! # Protocol
//! caller: 1 deadline passed: fail  2 read the word  3 call, unless drained  4 would block: register  5 lock; deadline changed or
//!         something happened since 2: again  6 queue up, unlock, park  7 from 2; if the time is over, for the last time, drained or not
//! event:  1 count it in the word  2 somebody waits: lock, take the list, unlock, wake
//!
//! # Who wakes the sleeper?
//! The word (`slot`, I1), once the event is fetched. Who fetches it, when everybody is busy or asleep, is in `harvest` and `seat`.
//!
//! # Context
//! Callers are in user context. Tests: `tests/net_tcp.rs`, `tests/net_deadline.rs`, `tests/net_wait.rs`.

mod askers;
mod harvest;
mod hub;
mod reactor;
mod shortage;
mod slot;
mod wakers;

use std::cell::Cell;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::Ordering::*;
use std::time::Duration;

use runnext_core::timers::{NEVER, deadline};
use runnext_core::waitlist::{Node, WaitList};
use runnext_sys::clock;
use runnext_sys::ready::{self, Kick, Polled};

use super::call::{Call, stop_if_abandoned};
use super::timers::park_until;
use super::wait::{Ticket, Waiter, Who};
use crate::g::WaitReason;
use crate::m;

use askers::Taken;
pub(super) use harvest::Harvest;
pub(crate) use hub::Hub;
pub(crate) use reactor::Alarm as ReactorAlarm;
pub(crate) use shortage::{FIRST_NS as FIRST_PAUSE_NS, LAST_NS as LAST_PAUSE_NS};
pub(crate) use slot::Direction;
use slot::{DRAINED, ENDING, Entry, Side, Slot, WAITING};
pub(super) use wakers::leave;

/// How often a call is tried again that nobody may tell us of. A guess.
const PACE_NS: u64 = 1_000_000;
/// How long a plain thread that got no eventfd waits before it looks whether its deadline has changed. A guess.
const UNREACHABLE_NS: u64 = 10_000_000;

/// Time-outs from here on, of centuries, are one: they never come, but they are not none either.
const LONGEST_NS: u64 = NEVER - 1;

/// What came of a wait.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Waited {
    /// What was waited for may be there.
    Again,
    /// It is, said `ppoll`. Another may have been faster; but if it says so again, and the call would block again, that is [`Misled`](Self::Misled).
    Ready,
    /// An error, and nothing else, or a call that blocks on what `ppoll` takes for ready. If the call would block all the same, it is an error of the
    /// socket's error queue, or something that the kernel tells to calls that block only: `ppoll` would return at once for as long as that
    /// lasts, so the next wait goes without, at a pace.
    Misled,
    /// The time is over, and the caller tries a last time: what it waits for may be there, and nobody has fetched the event.
    Late,
}

/// A handle to an open descriptor that never blocks. The last one closes it.
pub(crate) struct Descriptor(&'static Slot);

// What is behind it is never left half-way by a panic: no user code runs inside.
impl UnwindSafe for Descriptor {}
impl RefUnwindSafe for Descriptor {}

/// The hub of the calling goroutine's runtime; none on a plain thread.
fn current_hub() -> Option<&'static Arc<Hub>> {
    let m = m::current().filter(|m| m.g().is_some())?;
    Some(m.shared_static().seat.hub())
}

fn timed_out() -> io::Error {
    io::Error::from(io::ErrorKind::TimedOut)
}

/// Makes everybody look again who waits for `slot` in that direction. In user context.
fn rouse(slot: &Slot, direction: Direction, cleared: u32) {
    let mut roused = WaitList::<Entry>::new();
    let mut futures = Taken::nobody();
    let call = Call::brief();
    // It counts as an event: else who has made its call and is not in the list yet would not notice.
    slot.happened(direction, cleared, 0, |waiters| {
        futures = waiters.askers.take_all();
        while let Some(node) = waiters.queue.pop_front() {
            // SAFETY: linked until just now, so alive; if its ticket is ours it stays so until we wake it.
            let node = unsafe { node.as_ref() };
            if node.ticket.is_none_or(Ticket::claim) {
                // SAFETY: in no list, and its owner waits until it is woken below.
                unsafe { roused.push_back(node) };
            }
        }
    });
    while let Some(node) = roused.pop_front() {
        // SAFETY: not woken yet. It is not looked at afterwards.
        let (waiter, kick) = unsafe { (node.as_ref().waiter, node.as_ref().kick) };
        let entry = Entry {
            waiter,
            ticket: None,
            kick,
            counts: Cell::new(false),
        };
        entry.wake(&call);
    }
    drop(call);
    futures.wake();
}

impl Descriptor {
    /// Takes over a descriptor, which the caller has made non-blocking.
    pub(crate) fn new(fd: OwnedFd) -> Descriptor {
        Descriptor(Slot::take(fd.into_raw_fd()))
    }

    /// The descriptor's number, for calls that do not wait.
    #[inline]
    pub(crate) fn fd(&self) -> BorrowedFd<'_> {
        // SAFETY: open until the last handle goes.
        unsafe { BorrowedFd::borrow_raw(self.0.fd()) }
    }

    /// Gives the descriptor up, if this is its only handle; else a duplicate of it. Also whether no handle is left: while there are
    /// some, the descriptor has to stay non-blocking, since they share that mode with the duplicate.
    ///
    /// # Errors
    /// No descriptor is left for the duplicate.
    pub(crate) fn into_fd(self) -> io::Result<(OwnedFd, bool)> {
        if !self.0.is_unique() {
            let duplicate = self.fd().try_clone_to_owned()?;
            // Others may go at the same time: exactly one of us is the last.
            let last = std::mem::ManuallyDrop::new(self).let_go();
            return Ok((duplicate, last));
        }
        let this = std::mem::ManuallyDrop::new(self);
        // SAFETY: ours alone, and the slot forgets it.
        let fd = unsafe { OwnedFd::from_raw_fd(this.0.fd()) };
        let left = this.0.retire();
        this.0.free();
        drop(left);
        Ok((fd, true))
    }

    /// The end of a handle. True: it was the last, and the descriptor is closed.
    fn let_go(&self) -> bool {
        let last = self.0.drop_ref();
        if last {
            let left = self.0.retire();
            // SAFETY: the last handle; the slot has forgotten it.
            drop(unsafe { OwnedFd::from_raw_fd(self.0.fd()) });
            self.0.free();
            drop(left);
        }
        last
    }

    /// Whether calls that would block fail instead.
    pub(crate) fn set_nonblocking(&self, on: bool) {
        self.0.nonblocking.store(on, Relaxed);
    }

    pub(crate) fn is_nonblocking(&self) -> bool {
        self.0.nonblocking.load(Relaxed)
    }

    /// Notes that nothing will be read any more, for sockets of which the kernel says so only to calls that block.
    pub(crate) fn set_shut(&self) {
        self.0.shut.store(true, Relaxed);
        self.rouse_all();
    }

    pub(crate) fn is_shut(&self) -> bool {
        self.0.shut.load(Relaxed)
    }

    /// Whether nothing comes any more, for sockets of which the kernel says so only to calls that block. It may have been through a descriptor that
    /// we do not know, so the kernel is asked. By a goroutine only after an event that may have meant this: it is told of it when it waits.
    pub(crate) fn is_over(&self) -> bool {
        let word = &self.0.side(Direction::Read).word;
        let told = word.load(Acquire) & ENDING != 0;
        (told || current_hub().is_none()) && ready::is_shut(self.0.fd())
    }

    /// Notes that a read may get less than it asks for though there is more.
    pub(crate) fn doubt_short_reads(&self) {
        let side = self.0.side(Direction::Read);
        side.word.fetch_or(ENDING, Relaxed);
    }

    /// How long one call in that direction waits.
    pub(crate) fn set_timeout(&self, direction: Direction, d: Option<Duration>) {
        let ns = d.map_or(NEVER, |d| deadline(0, d).min(LONGEST_NS));
        self.0.side(direction).timeout.store(ns, Relaxed);
    }

    pub(crate) fn timeout(&self, direction: Direction) -> Option<Duration> {
        match self.0.side(direction).timeout.load(Relaxed) {
            NEVER => None,
            LONGEST_NS => Some(Duration::MAX),
            ns => Some(Duration::from_nanos(ns)),
        }
    }

    /// When all calls in that direction fail, those under way included; NEVER revives it.
    pub(crate) fn set_deadline(&self, direction: Direction, when_ns: u64) {
        let side = self.0.side(direction);
        if side.deadline.swap(when_ns, SeqCst) != when_ns {
            // Whether there is something to read or room to write is the same as before.
            self.rouse(direction, 0);
        }
    }

    /// Makes everybody look again who waits, or has found nothing and is about to wait.
    pub(crate) fn rouse_all(&self) {
        self.rouse(Direction::Read, DRAINED);
        self.rouse(Direction::Write, DRAINED);
    }

    fn rouse(&self, direction: Direction, cleared: u32) {
        rouse(self.0, direction, cleared);
    }

    /// Whether calls in that direction fail now, whatever there is to read.
    #[inline]
    fn is_past(&self, direction: Direction) -> bool {
        Side::is_past(self.0.side(direction).deadline.load(Relaxed))
    }

    /// Whether events reach this descriptor through the caller's runtime.
    fn is_home(&self) -> bool {
        let home = self.0.home.load(Relaxed);
        m::current().is_some_and(|m| ptr::eq(Arc::as_ptr(m.shared().seat.hub()), home))
    }

    /// Does `op`, waiting as long as it would block.
    #[inline]
    pub(crate) fn io<T>(
        &self,
        direction: Direction,
        op: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.io_every(direction, NEVER, &mut None, op)
    }

    /// As [`io`](Self::io), for one of several attempts that make up a call: `limit` is when all of them have to end, set by
    /// the first that waits.
    pub(crate) fn io_within<T>(
        &self,
        direction: Direction,
        limit: &mut Option<u64>,
        op: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.io_every(direction, NEVER, limit, op)
    }

    /// As [`io`](Self::io), for calls that may become possible without an event: they are tried again now and then.
    pub(crate) fn io_paced<T>(
        &self,
        direction: Direction,
        op: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        self.io_every(direction, PACE_NS, &mut None, op)
    }

    #[inline]
    fn io_every<T>(
        &self,
        direction: Direction,
        pace: u64,
        limit: &mut Option<u64>,
        mut op: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        if self.is_past(direction) {
            return Err(timed_out());
        }
        let mut waited = Waited::Again;
        loop {
            let seen = self.0.side(direction).word.load(Acquire);
            match op() {
                Err(e) if e.kind() == io::ErrorKind::WouldBlock && !self.is_nonblocking() => {}
                done => return done,
            }
            waited = self.wait(direction, seen, limit, pace, waited)?;
        }
    }

    /// Does `op`, which moves up to `want` bytes, waiting as long as it would block. Less than that means that there is no more
    /// for now; for calls where it does not, `want` is 0.
    #[inline]
    pub(crate) fn transfer(
        &self,
        direction: Direction,
        want: usize,
        mut op: impl FnMut() -> io::Result<usize>,
    ) -> io::Result<usize> {
        if self.is_past(direction) {
            return Err(timed_out());
        }
        let side = self.0.side(direction);
        let (mut limit, mut waited) = (None, Waited::Again);
        loop {
            let seen = side.word.load(Acquire);
            if waited == Waited::Late
                || seen & DRAINED == 0
                || self.is_nonblocking()
                || !self.is_home()
            {
                match op() {
                    Ok(n) => {
                        if n < want {
                            side.note_drained(seen);
                        }
                        return Ok(n);
                    }
                    Err(e) if e.kind() == io::ErrorKind::WouldBlock && !self.is_nonblocking() => {}
                    failed => return failed,
                }
            }
            waited = self.wait(direction, seen, &mut limit, NEVER, waited)?;
        }
    }

    /// Waits until something has happened since `seen`, or may have, or for `pace`. `limit` is when the call has to end; it is set
    /// at the first wait. `before` is what the wait before came to, after which the call would have blocked again: an error if the time was over.
    #[cold]
    #[inline(never)]
    fn wait(
        &self,
        direction: Direction,
        seen: u32,
        limit: &mut Option<u64>,
        pace: u64,
        before: Waited,
    ) -> io::Result<Waited> {
        let pace = match before {
            Waited::Again | Waited::Ready => pace,
            Waited::Misled => pace.min(PACE_NS),
            Waited::Late => return Err(timed_out()),
        };
        let side = self.0.side(direction);
        let fixed = side.deadline.load(SeqCst);
        let mut until = side.limit(limit).min(fixed);
        if until != NEVER && until <= clock::now_ns() {
            return Ok(Waited::Late);
        }
        let mut paced = false;
        if pace != NEVER {
            let next = clock::now_ns() + pace;
            paced = next < until;
            until = until.min(next);
        }
        let (in_time, polled) = match current_hub() {
            Some(hub) => {
                self.register(hub).inspect_err(|_| stop_if_abandoned())?;
                let woken = self.wait_listed(Some(hub), direction, seen, fixed, until);
                (woken, Polled::NotReady)
            }
            // No `ppoll` either for what no event tells of: the descriptor may be ready all the time.
            None if pace != NEVER => {
                let woken = self.wait_listed(None, direction, seen, fixed, until);
                (woken, Polled::NotReady)
            }
            None => self.wait_in_poll(direction, seen, fixed, until)?,
        };
        if !in_time && !paced || self.is_past(direction) {
            return Ok(Waited::Late);
        }
        Ok(match polled {
            Polled::NotReady => Waited::Again,
            Polled::Ready if before == Waited::Ready => Waited::Misled,
            Polled::Ready => Waited::Ready,
            Polled::Error => Waited::Misled,
        })
    }

    /// Waits for `d`, whatever happens to the descriptor. An error if the call has to end before: `limit` as for
    /// [`io_within`](Self::io_within), and the deadline, also one that is set meanwhile.
    #[cold]
    pub(crate) fn pause(
        &self,
        direction: Direction,
        limit: &mut Option<u64>,
        d: Duration,
    ) -> io::Result<()> {
        let side = self.0.side(direction);
        let limit = side.limit(limit);
        let end = deadline(clock::now_ns(), d);
        loop {
            let seen = side.word.load(Acquire);
            let fixed = side.deadline.load(SeqCst);
            let now = clock::now_ns();
            if limit.min(fixed) <= now {
                return Err(timed_out());
            }
            if end <= now {
                return Ok(());
            }
            // On a plain thread too, which needs no `ppoll` for this: the descriptor may be ready all the time.
            self.wait_listed(None, direction, seen, fixed, end.min(limit).min(fixed));
        }
    }

    /// Registers the descriptor with `hub`, unless it is.
    fn register(&self, hub: &Arc<Hub>) -> io::Result<()> {
        if self.0.is_at(hub) {
            return Ok(());
        }
        self.register_first(hub)
    }

    #[cold]
    fn register_first(&self, hub: &Arc<Hub>) -> io::Result<()> {
        hub.watch(self.0.fd(), self.0.token())?;
        let own = Arc::clone(hub);
        let call = Call::brief();
        let old = {
            let _lists = self.0.lists.lock(); // for `has_futures`, and `wakers::leave`
            if hub.has_ended() {
                Err(own)
            } else {
                let old = self.0.home.swap(Arc::into_raw(own).cast_mut(), AcqRel);
                if self.0.has_futures.load(Relaxed) {
                    hub.begin_wait();
                    // SAFETY: the slot's count on it is ours now.
                    unsafe { (*old).end_wait() };
                }
                Ok(old)
            }
        };
        drop(call);
        // In user context: it may be the last count.
        let Ok(old) = old else {
            return Err(hub::ended());
        };
        if !old.is_null() {
            // SAFETY: the slot's count.
            drop(unsafe { Arc::from_raw(old) });
        }
        Ok(())
    }

    /// Queues `node` up, unless there is a reason to look again first.
    ///
    /// # Safety
    /// The node stays where it is until it has left the list.
    unsafe fn enlist(
        &self,
        direction: Direction,
        seen: u32,
        fixed: u64,
        node: &Node<Entry>,
    ) -> bool {
        let side = self.0.side(direction);
        let mut lists = self.0.lists.lock();
        let waiters = &mut lists[direction as usize];
        let old = side.word.fetch_or(WAITING, AcqRel);
        if Side::differs(seen, old) || side.deadline.load(Relaxed) != fixed {
            return false; // WAITING may stay set for nobody, until the next event
        }
        // SAFETY: the contract.
        unsafe { waiters.queue.push_back(node) };
        true
    }

    fn delist(&self, direction: Direction, node: &Node<Entry>) {
        let mut lists = self.0.lists.lock();
        // SAFETY: it is in this list or in none.
        unsafe { lists[direction as usize].queue.remove(node) };
    }

    /// The wait of a goroutine, for events of `hub`; without one also that of a plain thread, which no event ends then. False: the
    /// deadline has come.
    fn wait_listed(
        &self,
        hub: Option<&Arc<Hub>>,
        direction: Direction,
        seen: u32,
        fixed: u64,
        until: u64,
    ) -> bool {
        let mut call = Call::enter();
        let waiter = call.waiter();
        let ticket = (until != NEVER).then(|| waiter.draw());
        let node = Node::new(Entry {
            waiter,
            ticket,
            kick: None,
            counts: Cell::new(hub.is_some()),
        });
        if let Some(hub) = hub {
            hub.begin_wait();
        }
        // SAFETY: this frame stays until the node was taken out and we were woken, or we take it out ourselves.
        if !unsafe { self.enlist(direction, seen, fixed, &node) } {
            if let Some(hub) = hub {
                hub.end_wait();
            }
            return true;
        }
        let woken = match ticket {
            None => {
                call.park(WaitReason::Io);
                true
            }
            Some(ticket) => park_until(&mut call, ticket, until, WaitReason::Io),
        };
        if !woken {
            self.delist(direction, &node);
        }
        if let Some(hub) = hub.filter(|_| node.counts.get()) {
            hub.end_wait();
        }
        woken
    }

    /// The wait of a plain thread: whether the deadline has not come, and what the kernel says.
    fn wait_in_poll(
        &self,
        direction: Direction,
        seen: u32,
        fixed: u64,
        until: u64,
    ) -> io::Result<(bool, Polled)> {
        // Without one nobody can reach us: then not for long at a time.
        let kick = Kick::new().ok();
        let waiter = Waiter::thread();
        let ticket = waiter.draw();
        let node = Node::new(Entry {
            waiter,
            ticket: Some(ticket),
            kick: kick.as_ref().map(Kick::id),
            counts: Cell::new(false),
        });
        // SAFETY: as in `wait_listed`.
        if !unsafe { self.enlist(direction, seen, fixed, &node) } {
            return Ok((true, Polled::NotReady));
        }
        let left = (until != NEVER).then(|| until.saturating_sub(clock::now_ns()));
        let timeout = match kick {
            Some(_) => left,
            None => Some(left.unwrap_or(NEVER).min(UNREACHABLE_NS)),
        };
        let fd = self.fd().as_raw_fd();
        let polled = ready::wait(fd, direction.interest(), kick.as_ref(), timeout);
        if ticket.claim() {
            self.delist(direction, &node);
        } else {
            match (kick, waiter.who()) {
                (Some(kick), _) => kick.take(),
                (None, Who::Thread(parker)) => parker.park(),
                (None, Who::Goroutine(_)) => unreachable!("a plain thread"),
            }
        }
        let polled = polled?;
        Ok((until == NEVER || clock::now_ns() < until, polled))
    }
}

impl Clone for Descriptor {
    fn clone(&self) -> Descriptor {
        self.0.add_ref();
        Descriptor(self.0)
    }
}

impl Drop for Descriptor {
    fn drop(&mut self) {
        self.let_go();
    }
}

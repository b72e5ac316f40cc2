//! Whose turn it is on a P, and stealing.
//!
//! `Lanes::pick` decides; this file carries it out. By the owner of the P, in RT.

use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::*;

use runnext_core::group::{GroupId, Key, Pick, ROOT};
use runnext_core::list::List;
use runnext_sys::clock;

use super::fifo::Fifo;
use super::local::{GroupLanes, NO_LANE};
use super::{ROOT_LANE, Record};
use crate::g::G;
use crate::lock::LockGuard;
use crate::p::P;
use crate::sched::{Shared, worker};

/// What a P that takes turns does next.
pub(in crate::sched) enum Next {
    Run(NonNull<G>),
    /// No group is at work any more: as without groups.
    Plain,
    /// Nothing here may run.
    Search,
}

/// The next goroutine of a P that takes turns, if there is nothing to weigh or to charge: nearly always. None: ask [`next`].
#[inline(always)] // at every dispatch, as the decision without groups is
pub(in crate::sched) fn follow(shared: &Shared, p: &P) -> Option<NonNull<G>> {
    let here = &p.groups;
    if here.meter.is_due(p) {
        return None; // so it is if the turn is to end
    }
    here.follow(p).map(|g| dispatched(shared, p, g))
}

/// The next goroutine of a P that takes turns.
#[inline(never)]
pub(in crate::sched) fn next(shared: &Shared, p: &P) -> Next {
    let here = &p.groups;
    here.meter.account(p);
    if !here.over.load(Relaxed)
        && let Some(g) = in_turn(shared, p)
    {
        return Next::Run(dispatched(shared, p, g));
    }
    turn(shared, p)
}

/// The next goroutine of the lane whose turn it is.
fn in_turn(shared: &Shared, p: &P) -> Option<NonNull<G>> {
    match p.groups.lane() {
        NO_LANE => None,
        ROOT_LANE => worker::next_of_root(shared, p),
        _ => p.groups.go_on(shared, p),
    }
}

/// `g` is about to run here.
#[inline]
fn dispatched(shared: &Shared, p: &P, g: NonNull<G>) -> NonNull<G> {
    // SAFETY: it was queued, so it is alive.
    let header = unsafe { g.as_ref() };
    p.groups.meter.set_last(header);
    if header.stamp().load(Relaxed) != 0 {
        measure(shared, p, header);
    }
    g
}

/// How long it waited since it was made runnable.
#[cold]
fn measure(shared: &Shared, p: &P, g: &G) {
    let waited = super::wake::since(g.stamp().swap(0, Relaxed));
    if let Some(record) = Record::of_own(g) {
        record.wake_latency.record(waited);
    }
    if p.groups.key().is_fair() {
        shared.note_wait(p.groups.lane(), waited);
    }
}

/// The turn is over, or there is nothing in it: whose is the next?
#[cold]
pub(super) fn turn(shared: &Shared, p: &P) -> Next {
    let here = &p.groups;
    if !here.over.load(Relaxed)
        && here.fetch_more(&shared.groups.ledger)
        && let Some(g) = here.go_on(shared, p)
    {
        return Next::Run(dispatched(shared, p, g));
    }
    let ledger = &shared.groups.ledger;
    let mut now = clock::now_ns();
    let ended = shared.end_turn_at(p, now);
    let mut steal = shared.procs() > 1;
    if here.over.load(Relaxed)
        && steal
        && let Some(id) = ended.filter(|id| *id != ROOT)
    {
        even_out(shared, p, id, now);
    }
    here.over.store(false, Relaxed);
    if here.wanted.swap(false, Relaxed) {
        help_out(shared, p, now);
    }
    let mut seek_root = steal;
    loop {
        let root = shared.root_waits(p);
        let mut lanes = here.lanes();
        if lanes.refresh(ledger, now) {
            here.set_on(false);
            here.meter.stop(p);
            return Next::Plain;
        }
        let seeks = std::mem::take(&mut seek_root) && !root && shared.root_queues_beside(p);
        if seeks && lanes.wants_root(ledger, now) {
            drop(lanes);
            fetch_root(shared, p);
            continue;
        }
        let pick = lanes.pick(ledger, now, root, steal);
        let timer = lanes.take_timer();
        match pick {
            Pick::Run { group, until, key } => {
                begin(shared, p, lanes, (group, until, key), now);
                timer.inspect(|&at| shared.arm_groups(at));
                shared.recall_loans(ended, timer.is_some(), now);
                if let Some(g) = in_turn(shared, p) {
                    shared.announce_listed(p);
                    let g = dispatched(shared, p, g);
                    // SAFETY: it was queued, so it is alive.
                    shared.watch_timers(p, unsafe { g.as_ref() }); // that of a group may be new
                    return Next::Run(g);
                }
                // A thief was faster.
                now = clock::now_ns();
                shared.end_turn_at(p, now);
            }
            Pick::Steal(id) => {
                drop(lanes);
                steal = false;
                steal_of(shared, p, id, now);
            }
            Pick::Wait(until) => {
                drop(lanes);
                for at in [timer, until].into_iter().flatten() {
                    shared.arm_groups(at);
                }
                if shared.recall_loans(ended, timer.is_some(), now) {
                    continue;
                }
                here.meter.rest(p);
                return Next::Search;
            }
        }
    }
}

/// The turn of a group that was picked begins.
fn begin(
    shared: &Shared,
    p: &P,
    mut lanes: LockGuard<'_, GroupLanes>,
    (group, until, key): (GroupId, u64, Key),
    now: u64,
) {
    let here = &p.groups;
    let limited = shared.limits(group);
    here.limited.set(limited);
    let others = lanes.groups().iter().any(|&id| id != group);
    here.begin(p, &mut lanes, group, key, now);
    here.until.store(until, Relaxed);
    drop(lanes);
    if limited || others || group != ROOT && shared.root_waits(p) {
        shared.hurry(until);
    }
}

/// `g`, of `lane`, runs on `p`, picked by nobody: from here on it is its group's turn, and its group pays. False: its group may not run.
pub(super) fn open(shared: &Shared, p: &P, g: &G, lane: u32) -> bool {
    let (here, ledger) = (&p.groups, &shared.groups.ledger);
    shared.end_turn(p);
    let now = clock::now_ns(); // after that turn's end, or both would pay
    here.set_on(true);
    let mut lanes = here.lanes();
    let pick = lanes.resume(ledger, GroupId::from_index(lane as usize), now);
    let timer = lanes.take_timer();
    let opens = match pick {
        Some(Pick::Run { group, until, key }) => {
            begin(shared, p, lanes, (group, until, key), now);
            shared.announce_listed(p);
            dispatched(shared, p, g.ptr());
            true
        }
        _ => {
            drop(lanes);
            false
        }
    };
    timer.inspect(|&at| shared.arm_groups(at));
    opens
}

impl Shared {
    /// Whether the root lane has something for `p`.
    fn root_waits(&self, p: &P) -> bool {
        !p.runq.is_empty() || self.has_global()
    }

    /// Whether somebody of the root lane waits on another P than `p`.
    fn root_queues_beside(&self, p: &P) -> bool {
        let mut others = self.all_ps().take(self.procs());
        others.any(|other| !ptr::eq(other, p) && other.groups.root_queues(other))
    }

    /// What went back to the lists of `p` was announced to nobody.
    fn announce_listed(&self, p: &P) {
        if self.searchers.idle() != 0 && self.offers_grouped(p) {
            self.wake_one();
        }
    }

    /// Ends the turn that is open on a P the caller owns: who had it is charged. Nothing, if none is.
    pub(in crate::sched) fn end_turn(&self, p: &P) {
        if p.groups.is_on() {
            self.end_turn_at(p, clock::now_ns());
            p.groups.meter.rest(p);
        }
    }

    /// No turn is open on `p`, which the caller owns, nor will be soon: the root lane does not compete there (I5).
    pub(in crate::sched) fn leave_root(&self, p: &P) {
        if p.groups.is_on() {
            let mut lanes = p.groups.lanes();
            lanes.root_gone(&self.groups.ledger, clock::now_ns());
        }
    }

    /// Whose turn that was.
    pub(super) fn end_turn_at(&self, p: &P, now: u64) -> Option<GroupId> {
        let here = &p.groups;
        let (ran, apart) = here.meter.end(p);
        if here.lane() == NO_LANE {
            if let Some(g) = here.meter.last().filter(|_| ran != 0) {
                self.charge_outside(g, ran, now);
            }
            return None;
        }
        let (ledger, elastic) = (&self.groups.ledger, self.is_elastic(p));
        let ended = {
            let mut lanes = here.lanes();
            here.settle(p, &mut lanes, ledger, now, ran + apart)?
        };
        if apart != 0 {
            ledger.group(ended.group).count_apart(apart);
        }
        if elastic {
            self.groups.elastic_at.store(now, Relaxed);
        }
        if ended.governed {
            self.charge_governed(ended.group, ended.used, now);
        }
        if ended.freed {
            self.wake_one();
        }
        Some(ended.group)
    }

    /// The group in whose name `g` runs pays for what was in none of its turns.
    pub(super) fn charge_outside(&self, g: &G, ns: u64, now: u64) {
        let (ledger, id) = (&self.groups.ledger, GroupId::from_index(g.lane() as usize));
        ledger.charge(id, ns, now);
        if ledger.group(id).is_governed() {
            self.charge_governed(id, ns, now);
        }
    }

    /// Whether a group's goroutine waits on `p`, and may run.
    pub(in crate::sched) fn waits_in_group(&self, p: &P) -> bool {
        let here = &p.groups;
        here.is_on()
            && (here.over.load(Relaxed)
                || !here.ring.is_empty()
                || here.is_ready(&self.groups.ledger, clock::now_ns()))
    }

    /// Whether a P that has nothing to do would find a group's goroutine on `p`.
    pub(in crate::sched) fn offers_grouped(&self, p: &P) -> bool {
        let here = &p.groups;
        here.is_on()
            && (!here.ring.is_empty() && !self.is_limited(here.lane())
                || here.is_ready(&self.groups.ledger, clock::now_ns()))
    }

    /// Whether a group's goroutine waits for what runs on `p`: while a group with a limit has its turn here nobody else may run what is in
    /// the ring, nor what is in lists if the group runs on as many Ps as it may.
    pub(in crate::sched) fn waits_behind(&self, p: &P) -> bool {
        let (here, lane) = (&p.groups, p.groups.lane());
        if !here.is_on() || lane == NO_LANE {
            return false;
        }
        let id = GroupId::from_index(lane as usize);
        let mut holders = self.groups.ledger.group(id).holders();
        let listed = |at| self.p(at).is_some_and(|p| p.groups.lists(id));
        self.limits(id) && (!here.ring.is_empty() || holders.any(listed))
    }

    /// Whether somebody waits whom no thief would find ([`any_work`](Shared::any_work)), and who is lost if a thread blocks.
    pub(in crate::sched) fn any_waits_behind(&self) -> bool {
        self.groups.is_used() && self.all_ps().any(|p| self.waits_behind(p))
    }

    /// Fetches goroutines of some group to `p`, which has nothing to do. True: something is in its lists now.
    pub(in crate::sched) fn steal_grouped(&self, p: &P) -> bool {
        if !self.groups.ledger.any_active() {
            return false;
        }
        let now = clock::now_ns();
        let Some(order) = self.orders[self.procs()].get() else {
            return false;
        };
        // SAFETY: the caller owns p.
        let roll = unsafe { p.own() }.dice.u32();
        let found = order.start(roll).into_iter().any(|id| {
            let victim = self.p(id).filter(|victim| !ptr::eq(*victim, p));
            victim.is_some_and(|victim| take_from(self, p, victim, None, now))
        });
        // Who queued on one that is too many since may not have seen that.
        found
            || self
                .all_ps()
                .skip(self.procs())
                .any(|old| take_from(self, p, old, None, now))
    }

    /// Everything in the lists of a P. The runtime has stopped.
    pub(in crate::sched) fn unlist_all(&self, p: &P) -> List<G> {
        let mut all = List::new();
        let mut lanes = p.groups.lanes();
        for at in 1..lanes.room() {
            let id = GroupId::from_index(at);
            all.append(lanes.queue(id).take(usize::MAX));
        }
        all
    }

    /// A P is one too many: what waits in its lists moves to others.
    pub(in crate::sched) fn evacuate(&self, p: &P) {
        let ledger = &self.groups.ledger;
        let now = clock::now_ns();
        while p.groups.listed() != 0 {
            let (id, gs) = {
                let mut lanes = p.groups.lanes();
                // What others have is in the ring.
                let mut at = 0..lanes.groups().len();
                let Some(id) = at.find_map(|at| {
                    let id = lanes.groups()[at];
                    (lanes.queue(id).len() != 0).then_some(id)
                }) else {
                    return;
                };
                let all = p.groups.unlist(&mut lanes, ledger, id, usize::MAX, now);
                (id, all)
            };
            let other = self.p(id.index() % self.procs()).unwrap_or(p);
            let lane = id.index() as u32;
            other.groups.list_all(ledger, lane, gs, false, now);
            if ptr::eq(other, p) {
                return; // it is wanted again meanwhile
            }
        }
    }
}

/// Fetches goroutines of a group that is far behind.
fn steal_of(shared: &Shared, p: &P, id: GroupId, now: u64) {
    steal_if(shared, p, id, now, |_| true);
}

/// A group has used up its turn here: if there are many more of it on another P, half of them come over, and go first. Both Ps
/// are busy, so nobody else would fetch them.
fn even_out(shared: &Shared, p: &P, id: GroupId, now: u64) {
    let here = p.groups.waiting(id); // the one that was stopped too
    steal_if(shared, p, id, now, |victim| {
        outnumbers(victim.groups.waiting(id), here)
    });
}

/// Half of what waits of the root lane on another P. By the owner of `p`, where nothing of it waits.
fn fetch_root(shared: &Shared, p: &P) {
    let mut others = shared.all_ps().take(shared.procs());
    others.any(|other| {
        let waits = !ptr::eq(other, p) && other.groups.root_queues(other);
        waits && take_root(shared, p, other)
    });
}

fn take_root(shared: &Shared, p: &P, victim: &P) -> bool {
    // SAFETY: the caller owns p.
    let found = unsafe { victim.runq.steal_into(&p.runq) };
    let found = found.or_else(|| match victim.groups.lane() {
        ROOT_LANE => None, // who is in `next` is about to run
        _ => worker::steal_next_patiently(victim, &victim.runq),
    });
    if let Some(g) = found {
        p.stats.stole(1 + p.runq.len());
        // SAFETY: queued until now, so alive.
        shared.put_next(p, unsafe { g.as_ref() });
    }
    found.is_some()
}

/// What was left over went to a Low group here while others wait, ungrouped ones or in a turn on another P: half of them come over.
fn help_out(shared: &Shared, p: &P, now: u64) {
    if !shared.root_waits(p) && shared.root_queues_beside(p) {
        return fetch_root(shared, p);
    }
    let mut others = shared.all_ps().take(shared.procs());
    others.any(|other| {
        let (there, lane) = (&other.groups, other.groups.lane());
        let group = lane != NO_LANE && lane != ROOT_LANE && there.key().is_fair();
        let id = GroupId::from_index(lane as usize);
        let may = group && !shared.is_limited(lane) && shared.groups.ledger.may_start(id, now);
        may && !ptr::eq(other, p) && take_from(shared, p, other, Some(id), now)
    });
}

/// Whether so many waiting goroutines of a group are too many more than those on another P, the running one included. One is,
/// compared with one: of three on two Ps each then pauses in turn.
pub(super) fn outnumbers(waiting: usize, there: usize) -> bool {
    waiting + 1 >= 2 * there && waiting > 0
}

/// Half of what a group has on the first other P that is `good` for it.
fn steal_if(shared: &Shared, p: &P, id: GroupId, now: u64, good: impl Fn(&P) -> bool) {
    for at in shared.groups.ledger.group(id).holders() {
        if at != p.id
            && let Some(victim) = shared.p(at)
            && good(victim)
            && take_from(shared, p, victim, Some(id), now)
        {
            return;
        }
    }
}

/// Half of what a group has on `victim`: from its list, or from its ring.
fn take_from(shared: &Shared, p: &P, victim: &P, want: Option<GroupId>, now: u64) -> bool {
    let ledger = &shared.groups.ledger;
    let there = &victim.groups;
    if there.listed() != 0 {
        let mut lanes = there.lanes();
        if let Some((id, half)) = lanes.offer(ledger, want, now, Fifo::len) {
            let gs = there.unlist(&mut lanes, ledger, id, half, now);
            drop(lanes);
            if !gs.is_empty() {
                p.stats.stole(gs.len());
                p.groups.list_all(ledger, id.index() as u32, gs, true, now);
                return true;
            }
        }
    }
    let lane = there.lane();
    let group = lane != NO_LANE && lane != ROOT_LANE;
    let id = GroupId::from_index(lane as usize);
    if !group
        || shared.is_limited(lane)
        || there.ring.is_empty()
        || want.is_some_and(|want| want != id)
        || !ledger.may_start(id, now)
    {
        return false;
    }
    let gs = take_from_ring(p, victim);
    let any = !gs.is_empty();
    if any {
        p.stats.stole(gs.len());
    }
    list_each(shared, p, gs, lane, now);
    any
}

/// Half of a ring. The own one is empty: no turn is open.
fn take_from_ring(p: &P, victim: &P) -> List<G> {
    let (ring, own) = (&victim.groups.ring, &p.groups.ring);
    // SAFETY: the caller owns p.
    let taken = unsafe { ring.steal_into(own) };
    let taken = taken.or_else(|| worker::steal_next_patiently(victim, ring));
    // SAFETY: the caller owns p.
    let mut gs = unsafe { own.drain() };
    if let Some(g) = taken {
        // SAFETY: stolen, so in no queue.
        unsafe { gs.push_back(g) };
    }
    gs
}

/// Queues those of `lane` in front, and others where they belong: the turn on the victim may have changed between the look and
/// the grasp.
fn list_each(shared: &Shared, p: &P, mut gs: List<G>, lane: u32, now: u64) {
    let ledger = &shared.groups.ledger;
    let mut first = List::new();
    while let Some(g) = gs.pop_front() {
        // SAFETY: it was queued, so it is alive.
        let header = unsafe { g.as_ref() };
        match header.lane() {
            // SAFETY: as above, and in no list now.
            its if its == lane => unsafe { first.push_back(g) },
            ROOT_LANE => shared.put_tail(p, header),
            other => p.groups.list(ledger, other, g, false, now),
        }
    }
    p.groups.list_all(ledger, lane, first, true, now);
}

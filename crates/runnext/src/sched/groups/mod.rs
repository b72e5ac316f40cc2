//! Task groups, driven: what `runnext_core::group` decides, carried out on Ms and Ps.
//!
//! # Why this shape
//! Go's ring and `runnext` stay as they are for goroutines without a group: the *root lane*. Beside it each P has one more ring and, under a
//! lock, a list for every group ([`Local`]). While a group has its turn on a P (a *residency*), its goroutines are in the second ring,
//! so switching between them costs what it costs without groups: no lock, no clock, nothing shared. What is not in its turn waits in the
//! lists. A P on which no group was ever queued, and to which nobody said that groups are at work elsewhere, knows of all this
//! by one private word ([`Local::on`]).
//! Rejected: a lock around every switch in a group (a third more for a yield); one ring for all groups (it would have to be sorted).
//!
//! # Files
//! `record` a group, as the program sees it · `local` a P's part · `meter` who pays for what its thread runs · `fifo` the order within a group · `turn` whose turn it is; stealing ·
//! `wake` queueing, and which P gives way for it · `watch` the monitor's look at turns · `stop` ends of turns: handler, blocking sections · `govern` the
//! limit on governed groups, and latency feedback · `lend` priority inheritance through locks · `grace` why lock owners are not stopped at once.
//!
//! # Who ends a turn
//! | what                                        | how                                                                  |
//! |----------------------------------------------|----------------------------------------------------------------------|
//! | nothing of the group is left on the P        | the dispatch that finds the ring and the list empty                  |
//! | its time is up, and somebody waits or it has a limit | the monitor: `over`, a note, and a signal for a thread that computes; later, if the thread waited for a CPU. If only Low groups wait, and it is none: when their floor is due, at the next switch, or after a while |
//! | it is Low, in what is left over, and others wait in their turn on another P, or their time has come | the monitor, one P at a time; that P fetches some of them |
//! | one more entitled woke up                    | the waker: `over`, a note to its own thread, or the monitor for others |
//! | a hog runs, and a light one of its group woke up | the same; or the monitor, which sees timers that are due and who waits in the ring |
//! | far more of the group wait on another P      | the monitor, when its time is up: at the next switch, or after a while |
//! | the thread blocks, and the P is taken away   | whoever takes it ([`Shared::end_turn`])                              |
//! If nobody waits and there is no limit, a turn just goes on.
//!
//! # Who wakes a P for a group that may go on?
//! A group stops being runnable in three ways. *Throttled*: the pick that finds out, or the one that finds nothing else, sets [`Groups::arm`]
//! to when it may go on. That time counts as a timer (`timers`, `seat`), so an idle M sleeps no longer, and if no P is idle every P
//! looks when its turn ends. *Held* by the governor: likewise, by the governor's own time. *At its parallelism*: the P whose turn ends says so,
//! and wakes an idle one. All three change the shared word first and then look for idle Ps, with the fence in `wake_one` between; who goes idle
//! does the opposite.
//!
//! # Invariants
//! I1  A ring holds goroutines of one lane: that of the turn. It is emptied before the turn ends, so what a thief takes at once is of one.
//! I2  A lane's count in `Lanes` is never less than the length of its list, and is exact when its turn ends; and when its ring is filled, or gives some away.
//! I3  On a P that runs a goroutine of a group `on` is set, and it is the group's turn or `over`.
//! I4  No turn is open on an idle P.
//! I5  Nor does the root lane compete there: its weight would count against all groups for as long as nobody picks on that P, for ever if it is
//!     one too many. A pick that finds nothing sees to it, and `idle_p`.
//!
//! # Context
//! RT, but where it says user context. Locks: that of whose group a goroutine is (`changing`), then a P's lanes, then nothing; the governor's, a leaf. The registry
//! is a `std` lock, for user context.
//!
//! Tests: `tests/group*.rs`; the policy's own in `runnext-core`.

mod fifo;
mod govern;
mod grace;
mod lend;
mod local;
mod meter;
mod record;
mod stop;
mod turn;
mod wake;
mod watch;

pub(crate) use govern::Limit;
pub(crate) use lend::{give_back, lend_to, lend_to_heir, settle};
pub(crate) use local::Local;
pub(crate) use record::Record;
pub(super) use stop::{blocked, unblocked};
pub(super) use turn::{Next, follow, next};
pub(super) use watch::Watched;

use std::collections::HashMap;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, Weak};

use runnext_core::group::{GroupConfig, GroupId, Ledger, Priority, ROOT, Refused, Storage, Usage};
use runnext_core::runq::RunQueue;
use runnext_sys::clock;

use super::Shared;
use super::call::Call;
use super::shield::{self, Shielded};
use super::timers::NEVER;
use crate::g::G;
use crate::lock::{Lock, LockGuard};
use crate::p::P;

/// Groups whose CPU time is in a trace: those at the first places.
const GROUPS_TRACED: usize = 64;
/// How often at most it is written there, in ns, and how often if it does not change: a trace may have begun since, or have lost its beginning.
const TRACED_EVERY: u64 = 10_000_000;
const TRACED_ANYWAY: u64 = 1_000_000_000;
/// The root lane.
pub(super) const ROOT_LANE: u32 = 0;

/// How entitled somebody is who waits for a lock, the most entitled first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Rank {
    High,
    /// Goroutines without a group and plain threads too.
    Normal,
    Low,
    /// Of a group that is throttled, or held by the governor.
    HeldBack,
}

/// What the Ps of a runtime share about groups.
pub(crate) struct Groups {
    pub(super) ledger: Ledger,
    registry: Mutex<Registry>,
    governor: Lock<govern::Govern>,
    /// Some group was ever used here.
    used: AtomicBool,
    /// When to look next for groups that may go on; NEVER if there is none. Counts as a timer.
    at: AtomicU64,
    /// Wake-ups of High and Normal groups, and those of them that waited beyond the target of the feedback.
    seen: AtomicU64,
    late: AtomicU64,
    /// When a Low group in what is left over, or a governed one, last ended a turn: who waited after that did not wait for them. For the feedback.
    elastic_at: AtomicU64,
    /// When a turn is to end of which the monitor may not know.
    hurry: AtomicU64,
    /// What was last written into a trace.
    traced: Lock<Traced>,
    /// Where the next one from outside is queued.
    outside: AtomicUsize,
    /// Whether waiters lend their lane to lock owners.
    lends: bool,
    /// How many lanes of groups are lent.
    loans: AtomicUsize,
    limit: Limit,
}

/// What a trace was told of each lane: CPU time, in µs, and how many are queued.
struct Traced {
    at: u64,
    /// When all was last told, changed or not.
    anyway: u64,
    last: [(u64, usize); GROUPS_TRACED],
}

impl Traced {
    /// Whether it is time to tell, and all of it.
    fn is_due(&mut self, now: u64) -> Option<bool> {
        if now < self.at + TRACED_EVERY {
            return None;
        }
        self.at = now;
        let all = now >= self.anyway + TRACED_ANYWAY;
        if all {
            self.anyway = now;
        }
        Some(all)
    }
}

/// Which groups there are.
struct Registry {
    /// By place.
    records: Vec<Weak<Record>>,
    /// Places of groups that are gone but for the end of a turn.
    leaving: Vec<GroupId>,
    /// What the Ps have room for, and what they are being given room for: new Ps get that much.
    room: usize,
    wanted: usize,
    /// The runtime has stopped, and lets go of its groups.
    closed: bool,
}

impl Registry {
    fn alive(&self) -> impl Iterator<Item = (u32, Arc<Record>)> {
        let all = self.records.iter().enumerate();
        all.filter_map(|(at, record)| Some((at as u32, record.upgrade()?)))
    }
}

impl Groups {
    pub(super) fn new(procs: usize, limit: Limit, lends: bool) -> Groups {
        let now = clock::now_ns();
        Groups {
            ledger: Ledger::new(procs, now),
            registry: Mutex::new(Registry {
                records: Vec::new(),
                leaving: Vec::new(),
                room: 1,
                wanted: 1,
                closed: false,
            }),
            governor: Lock::new(govern::Govern::new(limit, procs, now)),
            used: AtomicBool::new(false),
            at: AtomicU64::new(NEVER),
            seen: AtomicU64::new(0),
            late: AtomicU64::new(0),
            elastic_at: AtomicU64::new(0),
            hurry: AtomicU64::new(NEVER),
            traced: Lock::new(Traced {
                at: 0,
                anyway: 0,
                last: [(0, 0); GROUPS_TRACED],
            }),
            outside: AtomicUsize::new(0),
            lends,
            loans: AtomicUsize::new(0),
            limit,
        }
    }

    /// Whether any group was ever used.
    #[inline]
    pub(crate) fn is_used(&self) -> bool {
        self.used.load(Relaxed)
    }

    /// The groups that are in use here. In user context.
    pub(crate) fn records(&self) -> Vec<Arc<Record>> {
        let registry = self.registry();
        registry.alive().map(|(_, record)| record).collect()
    }

    /// Their names, by lane. None if somebody is just changing them, as in [`named`](Self::named).
    pub(crate) fn names(&self) -> HashMap<u32, Arc<str>> {
        let alive = self.alive_now().into_iter();
        alive
            .map(|(lane, record)| (lane, record.name().into()))
            .collect()
    }

    /// Their names, by where their records are: a goroutine names its own group so, whatever lane it was lent. None if somebody is just changing
    /// them: a dump waits for nobody.
    pub(crate) fn named(&self) -> HashMap<usize, Arc<str>> {
        let alive = self.alive_now().into_iter();
        alive
            .map(|(_, record)| (Arc::as_ptr(&record).addr(), record.name().into()))
            .collect()
    }

    fn alive_now(&self) -> Vec<(u32, Arc<Record>)> {
        match self.registry.try_lock() {
            Ok(registry) => registry.alive().collect(), // the last count of a group takes the lock: dropped without it
            Err(_) => Vec::new(),
        }
    }

    /// For user context. Whoever has it enters no [`Call`]: if the runtime stops, one may not return, and [`close`](Self::close) would wait
    /// for ever.
    fn registry(&self) -> Shielded<'_, Registry> {
        shield::lock(&self.registry)
    }

    /// How entitled a group's goroutines are at `now`.
    pub(super) fn rank(&self, lane: u32, now: u64) -> Rank {
        let id = GroupId::from_index(lane as usize);
        // Not while it merely runs on as many Ps as it may: it always does, if it is busy.
        if self.ledger.stopped_until(id, now).is_some() {
            return Rank::HeldBack;
        }
        match self.ledger.group(id).priority() {
            Priority::High => Rank::High,
            Priority::Normal => Rank::Normal,
            Priority::Low => Rank::Low,
        }
    }

    /// A place for a new group; none if the Ps lack room for it ([`make_room`](Self::make_room)). [`ROOT`] if the runtime has stopped: nobody would let go
    /// of the group, and nothing of it will run. In user context.
    fn add(
        &self,
        shared: &Shared,
        config: &GroupConfig,
        record: &Arc<Record>,
    ) -> Result<Option<GroupId>, Refused> {
        let mut registry = self.registry();
        if registry.closed {
            return Ok(Some(ROOT));
        }
        registry.leave(self);
        if self.ledger.places() >= registry.room {
            return Ok(None);
        }
        let id = self.ledger.add(config, clock::now_ns())?;
        shared.note_governed(id);
        let places = self.ledger.places();
        if registry.records.len() < places {
            registry.records.resize(places, Weak::new());
        }
        registry.records[id.index()] = Arc::downgrade(record);
        self.used.store(true, SeqCst);
        shared.note_special();
        Ok(Some(id))
    }

    /// A group's last count is gone. In user context.
    fn remove(&self, shared: &Shared, id: GroupId) {
        {
            let _call = Call::brief(); // the governor's lock
            shared.forget_governed(id);
        }
        let mut registry = self.registry();
        if let Some(record) = registry.records.get_mut(id.index()) {
            *record = Weak::new();
        }
        registry.leaving.push(id);
        registry.leave(self);
    }

    /// Every P gets room for one group more, at least. In user context: it allocates. With no lock held.
    fn make_room(&self, shared: &Shared) {
        let room = {
            let mut registry = self.registry();
            let room = (self.ledger.places() + 1).next_power_of_two().max(16);
            registry.wanted = registry.wanted.max(room); // before the look at which Ps there are
            registry.wanted
        };
        self.grow(shared, room);
        let mut registry = self.registry();
        registry.room = registry.room.max(room);
    }

    /// Every P there is has room for so many groups.
    fn grow(&self, shared: &Shared, room: usize) {
        self.grow_governor(room);
        for p in shared.all_ps() {
            let storage = Storage::new(room);
            let call = Call::brief();
            let old = p.groups.grow(storage);
            drop(call);
            drop(old);
        }
    }

    /// New Ps were made. In user context.
    pub(super) fn equip(&self, shared: &Shared) {
        let room = self.registry().wanted;
        self.grow(shared, room);
    }

    /// The runtime has stopped: groups keep what they used there, and may be used elsewhere.
    pub(crate) fn close(&self, shared: &Shared) {
        let records = {
            let mut registry = self.registry();
            registry.closed = true;
            std::mem::take(&mut registry.records)
        };
        for (at, record) in records.into_iter().enumerate() {
            if let Some(record) = record.upgrade() {
                record.unbind(self.usage(shared, GroupId::from_index(at)));
            }
        }
    }

    /// What a group used, up to now.
    fn usage(&self, shared: &Shared, id: GroupId) -> Usage {
        let mut usage = self.ledger.usage(id);
        let now = clock::now_ns();
        usage.throttled_ns += self.ledger.paused_ns(id, now);
        usage.stalled_ns += self.ledger.stalled_ns(id, now);
        for p in shared.all_ps() {
            usage.cpu_ns += p.groups.running_ns(id);
        }
        usage
    }

    /// How many goroutines of a group wait to run. With no lock held, in a call.
    pub(super) fn runnable(&self, shared: &Shared, id: GroupId) -> usize {
        shared.all_ps().map(|p| p.groups.runnable(id)).sum()
    }

    /// Writes what groups used, and what they have queued, into the trace. By the monitor, at every look.
    pub(super) fn note_usage(&self, shared: &Shared) {
        if !self.is_used() {
            return;
        }
        let Some(all) = self.traced.lock().is_due(clock::now_ns()) else {
            return;
        };
        for at in 1..self.ledger.places().min(GROUPS_TRACED) {
            let id = GroupId::from_index(at);
            if !self.ledger.group(id).is_alive() {
                continue;
            }
            let used = self.usage(shared, id).cpu_ns;
            let told = (used / 1000, self.runnable(shared, id));
            let before = std::mem::replace(&mut self.traced.lock().last[at], told);
            if all || before != told {
                shared.observe.note_group(at as u32, used, told.1);
            }
        }
    }

    /// Something changed that may let a group go on: an idle P looks.
    fn look_again(&self, shared: &Shared) {
        if self.is_used() {
            shared.wake_one();
        }
    }

    /// When the monitor must look at the turns, as far as it may not have seen it.
    pub(super) fn hurry(&self) -> u64 {
        self.hurry.load(Relaxed)
    }

    // ---- the time at which a group may go on ----

    /// When to look next; NEVER if there is nothing to look for.
    #[inline]
    pub(super) fn at(&self) -> u64 {
        self.at.load(Relaxed)
    }
}

impl Registry {
    /// Gives up the places of groups that have no turn any more.
    fn leave(&mut self, groups: &Groups) {
        self.leaving.retain(|&id| groups.ledger.remove(id).is_err());
    }
}

impl Shared {
    /// Somebody must look for groups that may go on at `when`, at the latest.
    fn arm_groups(&self, when: u64) {
        let groups = &self.groups;
        let before = groups.at.fetch_min(when, SeqCst);
        if before == NEVER {
            self.seat.heap_filled();
        }
        if when < before {
            self.tell_earlier(when);
        }
    }

    /// If it is time, groups that may go on do. By anybody, in RT or without a P.
    pub(super) fn run_due_groups(&self, now: u64) {
        let at = self.groups.at();
        if at > now
            || self
                .groups
                .at
                .compare_exchange(at, NEVER, SeqCst, Relaxed)
                .is_err()
        {
            return;
        }
        self.seat.heap_emptied();
        // The word had room for the earliest only, and who picks arms for what it throttles itself.
        if let Some(next) = self.groups.ledger.next_resume(now) {
            self.arm_groups(next);
        }
        self.release_governed(now);
        self.wake_one();
    }

    /// The number of Ps changed. Perhaps more than once, by several who come here in any order: so what counts is how many there are now.
    pub(super) fn resize_groups(&self) {
        loop {
            let (procs, now) = (self.procs(), clock::now_ns());
            self.groups.ledger.set_procs(procs, now);
            self.limit_governed(procs, now);
            for p in self.all_ps().skip(procs) {
                self.evacuate(p);
            }
            self.release_governed(now); // what was armed is of the old limit
            if self.procs() == procs {
                return;
            }
        }
    }
}

/// The group of a goroutine that calls, or is kept by a handle. In user context.
pub(crate) fn of(g: &G) -> Option<Arc<Record>> {
    let call = Call::brief();
    let _one = changing(&call);
    // SAFETY: counted by the header, which is kept; it changes under the lock only, or where nobody has a handle.
    unsafe { Record::share(g.group_ptr().load(Acquire)) }
}

/// Who reads another goroutine's group must not meet its change. In a call: who has it is not stopped, and if the runtime is, does not wait for ever
/// with it.
fn changing(_: &Call) -> LockGuard<'static, ()> {
    changing_in_rt()
}

/// As [`changing`], by who dispatches.
fn changing_in_rt() -> LockGuard<'static, ()> {
    static CHANGING: Lock<()> = Lock::new(());
    CHANGING.lock()
}

/// The calling goroutine leaves its group for another, or for none. It still has the turn of the old one: the caller yields. In user context.
pub(crate) fn move_to(shared: &Shared, g: &G, group: Option<Arc<Record>>) {
    give_back(g);
    let (lane, raw) = match &group {
        Some(record) => (record.bind(shared), record.join()),
        None => (ROOT_LANE, ptr::null()),
    };
    let old = {
        let call = Call::brief();
        let _one = changing(&call);
        g.group_ptr().swap(raw.cast_mut(), AcqRel)
    };
    g.set_lane(lane);
    // SAFETY: the header's count, ours since the swap.
    unsafe {
        if let Some(record) = Record::of(old) {
            record.ended();
            Record::release(old);
        }
    }
}

/// What a new goroutine's header is told of its group.
#[derive(Clone, Copy)]
pub(crate) struct Belongs {
    pub(crate) lane: u32,
    pub(crate) group: *const (),
}

impl Belongs {
    pub(crate) const NOWHERE: Belongs = Belongs {
        lane: ROOT_LANE,
        group: ptr::null(),
    };

    /// To this group. In user context.
    pub(crate) fn to(record: &Arc<Record>, shared: &Shared) -> Belongs {
        Belongs {
            lane: record.bind(shared),
            group: record.join(),
        }
    }

    /// To the group of the caller, if it is a goroutine of this runtime.
    #[inline]
    pub(crate) fn inherit(shared: &Shared, parent: Option<&G>) -> Belongs {
        match parent {
            Some(g) if !g.group_ptr().load(Relaxed).is_null() => inherited(shared, g),
            _ => Belongs::NOWHERE,
        }
    }

    /// The goroutine was not made after all. In user context.
    pub(crate) fn revoke(self) {
        // SAFETY: null, or from `join`, and given to nobody.
        unsafe {
            if let Some(record) = Record::of(self.group) {
                record.ended();
                Record::release(self.group);
            }
        }
    }
}

#[cold]
fn inherited(shared: &Shared, parent: &G) -> Belongs {
    // SAFETY: the caller's own group, which it keeps.
    unsafe { Record::join_in(parent.group_ptr().load(Relaxed), shared) }
}

/// The calling goroutine is at its end: nobody counts it any more. In user context.
#[inline]
pub(super) fn ended(g: &G) {
    if !g.group_ptr().load(Relaxed).is_null() || !g.lent_ptr().load(Relaxed).is_null() {
        leave(g);
    }
}

fn leave(g: &G) {
    give_back(g);
    stop::charge_own(g);
    // SAFETY: its own count.
    if let Some(record) = unsafe { Record::of(g.group_ptr().load(Relaxed)) } {
        record.ended();
    }
}

/// CPU time of a goroutine, in ns, up to now if it runs.
pub(crate) fn cpu_ns(shared: &Shared, g: &G) -> u64 {
    let running = shared
        .all_ps()
        .map(|p| p.groups.meter.goroutine_ns(g))
        .max();
    g.charged() + running.unwrap_or(0)
}

impl P {
    /// Whether something is queued here, as far as can be seen without a lock; it may be throttled.
    #[inline]
    pub(crate) fn has_grouped(&self) -> bool {
        self.groups.is_on() && self.groups.has_queued()
    }

    /// How many goroutines are queued here, of groups too, throttled ones as well. For observers: a moment's view.
    pub(crate) fn runnable(&self) -> usize {
        let next = |ring: &RunQueue<G>| usize::from(ring.has_next());
        self.behind_next() + next(&self.runq) + next(&self.groups.ring)
    }

    /// The same without those in `runnext`, which Go's trace lines do not count.
    pub(crate) fn behind_next(&self) -> usize {
        self.runq.len() + self.groups.listed() + self.groups.ring.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Goroutines of a group that runs on as many Ps as it may got no contended lock while others wanted it.
    #[test]
    fn a_group_at_its_parallelism_is_not_held_back() {
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { crate::Runtime::builder().procs(1).build() }.unwrap();
        let group = crate::TaskGroup::builder("busy").quota(0.5).build();
        let found = rt.run(|| group.go(group_looks).join().unwrap());
        assert_eq!(found, (false, Rank::Normal));
    }

    /// Whether another P may start the caller's group once its credit is used up, and how entitled it is.
    fn group_looks() -> (bool, Rank) {
        let _call = Call::brief();
        let m = crate::m::current().unwrap();
        let (groups, lane) = (&m.shared().groups, m.p().groups.lane());
        let id = GroupId::from_index(lane as usize);
        (groups.ledger.may_start(id, 0), groups.rank(lane, 0))
    }

    /// At every look of the monitor, thousands a second, five words of each group went into the trace, of groups that were gone too.
    #[test]
    fn a_trace_is_told_of_groups_now_and_then() {
        let mut traced = Traced {
            at: 0,
            anyway: 0,
            last: [(0, 0); GROUPS_TRACED],
        };
        let looks = (0..2000u64).map(|look| TRACED_ANYWAY + look * 1_000_000);
        let told: Vec<bool> = looks.filter_map(|now| traced.is_due(now)).collect();
        assert_eq!(told.len(), 200);
        assert_eq!(told.iter().filter(|all| **all).count(), 2);
        assert!(told[0], "those that do not change are in it too");
    }
}

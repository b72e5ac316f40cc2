//! All groups of a runtime, and what belongs to none of them: the clocks, the floor of the Low groups, the limit on them.
//!
//! # Why this shape
//! Groups live in chunks that are made when first needed and never move, so an index is enough to name one, and looking one up takes no lock.
//! A place is claimed and given up by exchanging its state word. Rejected: counted references in here (the runtime's handles count
//! already, and keep the place).
//!
//! # The floor
//! Low groups earn 1/19 of all CPU time that is used while they want some, and pay for what they use. Their balance never
//! goes below zero, so what they get in other groups' pauses costs them nothing, and never above [`FLOOR_CAP`] per P. As soon as it
//! covers [`FLOOR_GRANT`], the next P that has a Low group queued runs it first.
//!
//! # Context
//! [`Ledger::new`] and [`Ledger::add`] allocate. Everything else may be called from any thread at any time, allocates nothing and takes no
//! lock. Loops over all groups, not for every switch: `most_behind`, [`resync`](Ledger::resync).

mod limits;

use std::sync::OnceLock;

use super::bucket::{BORROW, Bucket};
use super::config::{self, GroupConfig, MS, Priority, Quota, Rate, Refused};
use super::preempt::{Key, Wake};
use super::shared::{Group, NONE, Paid, TICK};
use super::word::Word;
use super::{Clocks, GroupId, MAX_PROCS, ROOT, Usage, vtime};
use crate::shim::{
    AtomicU32, AtomicU64, CachePadded,
    Ordering::{AcqRel, Acquire, Relaxed},
};

/// Groups in the first chunk; each further one is twice as large.
const FIRST: usize = 64;
const CHUNKS: usize = 14;
/// The longest slice has fewer bits.
const SLICE_BITS: usize = config::SLICES.end().ilog2() as usize + 1;
/// The least that a Low group gets at once from its floor, in ns.
pub const FLOOR_GRANT: u64 = MS / 2;
/// The most that Low groups save up per P, in ns.
pub const FLOOR_CAP: u64 = 10 * MS;
/// One part in this many is what Low groups earn: a little more than [`config::FLOOR`], so that what is rounded off and what is only
/// due, not used, leaves them above it.
const FLOOR_PART: u64 = 19;
/// The least limit on Low groups, in millionths: what they earn, and so use whatever the limit is. With less their bucket would fall ever deeper into
/// debt, which they would have to wait off when the limit rises.
const LEAST_LOW: u32 = 1_000_000 / FLOOR_PART as u32 + 1;

/// All groups. See the [module](self).
#[derive(Debug)]
pub struct Ledger {
    chunks: [OnceLock<Box<[Group]>>; CHUNKS],
    /// Beyond all places in use: what loops over all groups looks at. Falls when the last of them go.
    top: AtomicU32,
    /// About how many of them are free, and where to look for one first. Advice: who is faster may have it.
    free: AtomicU32,
    first_free: AtomicU32,
    procs: AtomicU32,
    /// The longest slice of all groups, in ns, or up to twice as much.
    longest: AtomicU64,
    /// How many groups have a slice of so many bits.
    slices: [AtomicU32; SLICE_BITS],
    /// Groups, other than [`ROOT`], present on some P.
    active: CachePadded<AtomicU32>,
    clocks: Clocks,
    floor: CachePadded<AtomicU64>,
    /// What Low groups may use together, and as which part of all cores; 0: all.
    low: Bucket,
    low_ppm: AtomicU32,
}

/// What a P may use, and what it took from where for that.
#[derive(Clone, Copy, Debug)]
pub(super) struct Grant {
    pub(super) ns: u64,
    /// Taken from the group's and its parent's quota.
    pub(super) borrowed: u64,
    /// Taken from the floor.
    pub(super) floor: u64,
}

impl Ledger {
    /// With no group but [`ROOT`], for `procs` Ps.
    ///
    /// # Panics
    /// If `procs` is 0 or above [`MAX_PROCS`].
    pub fn new(procs: usize, now: u64) -> Ledger {
        let ledger = Ledger {
            chunks: [const { OnceLock::new() }; CHUNKS],
            top: AtomicU32::new(0),
            free: AtomicU32::new(0),
            first_free: AtomicU32::new(0),
            procs: AtomicU32::new(1),
            longest: AtomicU64::new(0),
            slices: std::array::from_fn(|_| AtomicU32::new(0)),
            active: CachePadded::new(AtomicU32::new(0)),
            clocks: Clocks::default(),
            floor: CachePadded::new(AtomicU64::new(0)),
            low: Bucket::unlimited(),
            low_ppm: AtomicU32::new(0),
        };
        ledger.set_procs(procs, now);
        let root = ledger.add(&GroupConfig::default(), now);
        debug_assert_eq!(root, Ok(ROOT));
        ledger
    }

    /// The number of Ps changed, and with it what is a part of all of them. Quotas are in cores, and stay.
    ///
    /// # Panics
    /// If `procs` is 0 or above [`MAX_PROCS`].
    pub fn set_procs(&self, procs: usize, now: u64) {
        assert!(
            (1..=MAX_PROCS).contains(&procs),
            "a runtime has 1 to {MAX_PROCS} processors, not {procs}"
        );
        self.procs.store(procs as u32, Relaxed);
        let ppm = self.low_ppm.load(Relaxed);
        if ppm != 0 {
            self.set_low_limit(Some(ppm), now);
        }
    }

    #[inline]
    pub(super) fn procs(&self) -> u32 {
        self.procs.load(Relaxed)
    }

    /// A group.
    ///
    /// # Panics
    /// If there never was one at that place.
    #[inline]
    pub fn group(&self, id: GroupId) -> &Group {
        let (chunk, at) = place(id.index());
        &self.chunks[chunk].get().expect("a group that was added")[at]
    }

    /// Places that may be in use: storage for so many groups is enough for all there are now. There may have been more.
    pub fn places(&self) -> usize {
        self.top.load(Relaxed) as usize
    }

    /// Whether any group but [`ROOT`] has something to run.
    #[inline]
    pub fn any_active(&self) -> bool {
        self.active.load(Relaxed) != 0
    }

    /// The clocks, for observers.
    pub fn clocks(&self) -> &Clocks {
        &self.clocks
    }

    /// What a group used, and where it stands.
    pub fn usage(&self, id: GroupId) -> Usage {
        self.group(id).usage(&self.clocks)
    }

    /// For how long a group has been throttled or held by now while it has something to run; 0: it is not, or has nothing.
    pub fn paused_ns(&self, id: GroupId, now: u64) -> u64 {
        self.group(id).paused_ns(now)
    }

    /// For how long a group has had something to run by now while no P runs it; 0: one does, or it has nothing.
    pub fn stalled_ns(&self, id: GroupId, now: u64) -> u64 {
        self.group(id).stalled_ns(now)
    }

    // ---- groups come and go ----

    /// A new group. Allocates. The Ps' [`Lanes`](super::Lanes) must have room for it before anything of it is queued.
    pub fn add(&self, config: &GroupConfig, now: u64) -> Result<GroupId, Refused> {
        let parent = match config.parent {
            None => NONE,
            Some(id) => {
                self.adopt(id)?;
                id.0
            }
        };
        let word = Word::alive(config.weight_in_range(), config.priority);
        let Some(id) = self.claim(word) else {
            self.disown(parent);
            return Err(Refused::TooMany);
        };
        let group = self.group(id);
        let slice = config::slice(config.slice);
        self.slices[slice.ilog2() as usize].fetch_add(1, Relaxed);
        self.longest.fetch_max(slice, Relaxed);
        let by_parent = config.parent.is_some_and(|id| self.group(id).is_governed());
        group.reset(slice, config.governed || by_parent, parent, now);
        group.set_quota(&self.clocks, config.quota, self.procs(), now);
        Ok(id)
    }

    /// A free place, now taken.
    fn claim(&self, word: Word) -> Option<GroupId> {
        let top = self.places();
        if self.free.load(Relaxed) != 0 {
            let first = (self.first_free.load(Relaxed) as usize).min(top);
            let mut used = (first..top).chain(0..first);
            if let Some(index) = used.find(|&index| self.claim_at(index, word)) {
                self.free.fetch_sub(1, Relaxed); // below zero for a moment if its last owner has not counted it yet
                self.first_free.store(index as u32 + 1, Relaxed);
                self.top.fetch_max(index as u32 + 1, AcqRel); // it may just have fallen
                return Some(GroupId(index as u32));
            }
        }
        let mut new = top..FIRST * ((1 << CHUNKS) - 1);
        let index = new.find(|&index| self.claim_at(index, word))?;
        self.top.fetch_max(index as u32 + 1, AcqRel);
        Some(GroupId(index as u32))
    }

    /// Takes free places off the end.
    fn lower_top(&self) {
        let is_dead = |index| !self.group(GroupId(index)).word().is_alive();
        let mut top = self.top.load(Acquire);
        while top > 1 && is_dead(top - 1) {
            match self.top.compare_exchange(top, top - 1, AcqRel, Acquire) {
                Ok(_) => top -= 1,
                Err(seen) => {
                    top = seen;
                    continue;
                }
            }
            // Who claimed it meanwhile raised `top` after that: before the exchange, so that it is seen here, or after it.
            if !is_dead(top) {
                self.top.fetch_max(top + 1, AcqRel);
                return;
            }
            self.free.fetch_sub(1, Relaxed);
        }
    }

    fn claim_at(&self, index: usize, word: Word) -> bool {
        let (chunk, at) = place(index);
        let made = self.chunks[chunk].get_or_init(|| {
            (0..FIRST << chunk)
                .map(|_| Group::empty())
                .collect::<Vec<_>>()
                .into_boxed_slice()
        });
        made[at].claim(Word::dead(), word)
    }

    fn adopt(&self, parent: GroupId) -> Result<(), Refused> {
        if parent.index() >= self.places() || !self.group(parent).word().is_alive() {
            return Err(Refused::ParentGone);
        }
        let group = self.group(parent);
        if group.has_parent() {
            return Err(Refused::TooDeep);
        }
        group.children.fetch_add(1, Relaxed);
        Ok(())
    }

    fn disown(&self, parent: u32) {
        if parent != NONE {
            self.group(GroupId(parent)).children.fetch_sub(1, Relaxed);
        }
    }

    /// Ends a group; its place may be used again.
    pub fn remove(&self, id: GroupId) -> Result<(), Refused> {
        let group = self.group(id);
        let word = group.word();
        let unused = word.is_alive() && word.present() == 0 && id != ROOT;
        if !unused || group.children.load(Relaxed) != 0 {
            return Err(Refused::Busy);
        }
        let (parent, slice) = (group.parent.load(Relaxed), group.slice());
        if !group.claim(word, Word::dead()) {
            return Err(Refused::Busy);
        }
        self.clocks.count_throttled(word, Word::dead());
        self.free.fetch_add(1, Relaxed);
        self.first_free.fetch_min(id.0, Relaxed);
        self.disown(parent);
        self.forget_slice(slice);
        self.lower_top();
        Ok(())
    }

    /// The longest slice may have become shorter: counted by bits, or each group that goes would have to look at all that stay.
    fn forget_slice(&self, slice: u64) {
        if self.slices[slice.ilog2() as usize].fetch_sub(1, Relaxed) == 1 {
            let bits = self.slices.iter().rposition(|n| n.load(Relaxed) != 0);
            let longest = (2 << bits.unwrap_or(SLICE_BITS - 1)) - 1;
            self.longest.fetch_min(longest, Relaxed);
        }
    }

    /// Changes the share; clamped.
    pub fn set_weight(&self, id: GroupId, weight: u32, now: u64) {
        let weight = config::weight(weight);
        self.group(id).set_weight(&self.clocks, weight, now);
    }

    /// Changes the priority. The Ps that hold the group should be told if they are idle, as after [`release`](Ledger::release).
    pub fn set_priority(&self, id: GroupId, priority: Priority, now: u64) {
        let group = self.group(id);
        group.set_priority(&self.clocks, priority, now);
        group.resume(&self.clocks, now); // it may have been the limit of its old class that stopped it
    }

    /// Changes the quota, or removes it. The Ps that hold the group, or a child of it, should be told if they are idle, as after
    /// [`release`](Ledger::release).
    pub fn set_quota(&self, id: GroupId, quota: Option<Quota>, now: u64) {
        let group = self.group(id);
        group.set_quota(&self.clocks, quota, self.procs(), now);
        if group.children.load(Relaxed) == 0 {
            return;
        }
        // It may have been this quota that stopped them.
        for child in self.groups().filter(|g| g.parent.load(Relaxed) == id.0) {
            child.resume(&self.clocks, now);
        }
    }

    /// Limits what all Low groups use together to `ppm` millionths of all cores; None: no limit. For [`Feedback`](super::Feedback). If that is more
    /// than before, the Ps should be told if they are idle, as after [`release`](Ledger::release).
    pub fn set_low_limit(&self, ppm: Option<u32>, now: u64) {
        let ppm = ppm.map(|ppm| ppm.max(LEAST_LOW));
        let before = self.low_ppm.swap(ppm.unwrap_or(0), Relaxed);
        match ppm {
            None => self.low.unlimit(),
            Some(ppm) => {
                let rate = Rate::part(ppm, self.procs());
                let procs = u64::from(self.procs());
                self.low.limit(rate, procs * 2 * MS, procs * TICK, now);
            }
        }
        let falls = ppm.is_some_and(|ppm| before == 0 || ppm < before);
        if !falls {
            // They were stopped for as long as the old limit took to let them go on.
            for group in self.groups().filter(|g| g.priority() == Priority::Low) {
                group.resume(&self.clocks, now);
            }
        }
    }

    /// The governor is not to be told of a group any more: it has ended, but for the turn that runs.
    pub fn ungovern(&self, id: GroupId) {
        self.group(id).governed.store(0, Relaxed);
    }

    /// The governor lets a group run for this long, all members together, before it may stop it: its residencies are no longer.
    pub fn leave(&self, id: GroupId, ns: u64) {
        self.group(id).set_left(ns);
    }

    /// The governor stopped a group.
    pub fn hold(&self, id: GroupId, now: u64) {
        self.group(id).hold(&self.clocks, true, now);
    }

    /// The governor lets a group go on. The Ps that hold it ([`Group::holders`]) should be told if they are idle.
    pub fn release(&self, id: GroupId, now: u64) {
        self.group(id).hold(&self.clocks, false, now);
    }

    // ---- where a group is ----

    pub(super) fn appear(&self, id: GroupId, p: usize, now: u64) {
        if self.group(id).appear(&self.clocks, p, now) && id != ROOT {
            self.active.fetch_add(1, Relaxed);
        }
    }

    pub(super) fn vanish(&self, id: GroupId, p: usize, now: u64) {
        if self.group(id).vanish(&self.clocks, p, now) && id != ROOT {
            self.active.fetch_sub(1, Relaxed);
        }
    }

    // ---- admission ----

    fn parent_of(&self, group: &Group) -> Option<&Group> {
        match group.parent.load(Relaxed) {
            NONE => None,
            id => Some(self.group(GroupId(id))),
        }
    }

    fn each_bucket(&self, group: &Group, f: impl Fn(&Bucket)) {
        f(&group.bucket);
        if let Some(parent) = self.parent_of(group) {
            f(&parent.bucket);
        }
    }

    /// A residency of the group begins, of `ns`.
    pub(super) fn enter(&self, id: GroupId, ns: u64, now: u64) -> Paid {
        let group = self.group(id);
        if let Some(parent) = self.parent_of(group) {
            parent.begin_run(now);
        }
        group.begin_run(now);
        group.pay(&self.clocks, ns)
    }

    /// What a P may use of a group that it picked. Or, nothing now: the group is out of the competition until then.
    pub(super) fn admit(&self, id: GroupId, floor: u64, now: u64) -> Result<Grant, u64> {
        let group = self.group(id);
        let low = group.word().priority() == Priority::Low;
        let want = match floor {
            0 => group.longest_run(),
            floor => floor.min(group.longest_run()),
        };
        match self.afford(group, low && floor == 0, want, now) {
            Ok((ns, borrowed)) => Ok(Grant {
                ns,
                borrowed,
                floor,
            }),
            Err(until) => {
                self.give_floor(floor);
                let until = until.max(now + 1);
                group.throttle(&self.clocks, until, now);
                Err(until)
            }
        }
    }

    /// Takes from the group's bucket, its parent's, and that of what is left over; from all or from none.
    fn afford(
        &self,
        group: &Group,
        leftover: bool,
        want: u64,
        now: u64,
    ) -> Result<(u64, u64), u64> {
        let procs = self.procs();
        let users = |bucket: &Bucket| procs.min(bucket.parallelism(now));
        let own = group.bucket.borrow(now, want, users(&group.bucket))?;
        let limited = group.bucket.is_limited();
        let give_back = |ns| {
            if limited {
                group.bucket.give(ns);
            }
        };
        let parent = self.parent_of(group).filter(|p| p.bucket.is_limited());
        let mut ns = own;
        if let Some(parent) = parent {
            ns = parent
                .bucket
                .borrow(now, own, users(&parent.bucket))
                .inspect_err(|_| give_back(own))?;
            give_back(own - ns);
        }
        if leftover && self.low.is_limited() {
            let least = self.low.level(now);
            if least < BORROW as i64 / 2 {
                give_back(ns);
                if let Some(parent) = parent {
                    parent.bucket.give(ns);
                }
                return Err(self.low.when(now, BORROW));
            }
            // Settled by real use only: it is what all share, so nobody reserves it.
        }
        Ok((ns, if limited || parent.is_some() { ns } else { 0 }))
    }

    /// The residency is over: buckets and floor are settled by what was really used.
    pub(super) fn settle(&self, id: GroupId, grant: Grant, paid: Paid, used: u64, now: u64) {
        let group = self.group(id);
        self.each_bucket(group, |bucket| match used.checked_sub(grant.borrowed) {
            Some(more) => bucket.take(now, more),
            None => bucket.give(grant.borrowed - used),
        });
        let low = group.word().priority() == Priority::Low;
        group.end_run(now);
        if let Some(parent) = self.parent_of(group) {
            parent.end_run(now);
        }
        group.settle(
            &self.clocks,
            paid,
            used,
            now,
            (self.procs(), self.longest.load(Relaxed)),
        );
        if low {
            self.low.take(now, used);
        }
        self.settle_floor(low, grant.floor, used);
    }

    /// A group pays for CPU time that was in none of its residencies: of a thread that ran on where it had no right to.
    pub fn charge(&self, id: GroupId, ns: u64, now: u64) {
        let group = self.group(id);
        self.each_bucket(group, |bucket| bucket.take(now, ns));
        group.charge(&self.clocks, ns, self.procs(), self.longest.load(Relaxed));
        let low = group.word().priority() == Priority::Low;
        if low {
            self.low.take(now, ns);
        }
        self.settle_floor(low, 0, ns);
    }

    // ---- the floor ----

    /// Takes one grant from the floor, if it covers one; else 0.
    pub(super) fn take_floor(&self) -> u64 {
        let mut old = self.floor.load(Relaxed);
        loop {
            let part = old / u64::from(self.procs());
            let grant = part.max(FLOOR_GRANT);
            if old < grant {
                return 0;
            }
            match self
                .floor
                .compare_exchange_weak(old, old - grant, Relaxed, Relaxed)
            {
                Ok(_) => return grant,
                Err(seen) => old = seen,
            }
        }
    }

    /// When a grant is due to Low groups, by what they earn from a residency of others that began at `since`.
    pub fn floor_due_at(&self, since: u64) -> u64 {
        let lacks = FLOOR_GRANT.saturating_sub(self.floor.load(Relaxed));
        since.saturating_add(lacks * FLOOR_PART)
    }

    /// Twice as much is due as one grant: somebody should look for Low work.
    #[inline]
    pub(super) fn floor_is_late(&self) -> bool {
        self.floor.load(Relaxed) >= 2 * FLOOR_GRANT
    }

    fn give_floor(&self, ns: u64) {
        if ns != 0 {
            self.floor.fetch_add(ns, Relaxed);
        }
    }

    fn settle_floor(&self, low: bool, taken: u64, used: u64) {
        if !low && self.clocks.of(Priority::Low).weight() == 0 {
            return; // nobody earns
        }
        let cap = u64::from(self.procs()) * FLOOR_CAP;
        let earned = used / FLOOR_PART + taken;
        let spent = if low { used } else { 0 };
        let mut old = self.floor.load(Relaxed);
        loop {
            let new = (old + earned).saturating_sub(spent).min(cap.max(old));
            match self.floor.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => return,
                Err(seen) => old = seen,
            }
        }
    }

    // ---- looking at all ----

    /// The group of the class of `like` that is most behind, of those that have something queued and may run, and of which `ask` is true.
    pub(super) fn most_behind(
        &self,
        like: Priority,
        now: u64,
        ask: impl Fn(GroupId) -> bool,
    ) -> Option<GroupId> {
        let low = like == Priority::Low;
        // Those that compete are in the clock, and those whose pause is over are throttled still.
        let none = self.clocks.of(like).weight() == 0 && !self.clocks.any_throttled();
        if none || !self.any_active() {
            return None;
        }
        let mut best: Option<(u64, GroupId)> = None;
        for index in 0..self.top.load(Relaxed) {
            let id = GroupId(index);
            let group = self.group(id);
            let word = group.word();
            let due = !word.is_throttled() || group.until() <= now;
            if word.present() == 0 || group.queued() == 0 || word.is_held() || !due {
                continue;
            }
            if (word.priority() == Priority::Low) != low || self.is_wide(group, now) || !ask(id) {
                continue;
            }
            let v = group.v();
            if best.is_none_or(|(least, _)| vtime::before(v, least)) {
                best = Some((v, id));
            }
        }
        best.map(|(_, id)| id)
    }

    /// All places, those of groups that are gone too.
    fn groups(&self) -> impl Iterator<Item = &Group> {
        (0..self.top.load(Relaxed)).map(|index| self.group(GroupId(index)))
    }

    /// When, after `now`, the first of the throttled groups may go on. For a P that is about to sleep. Also of those that have nothing queued: something
    /// may be until then, by somebody who sets no clock.
    pub fn next_resume(&self, now: u64) -> Option<u64> {
        if !self.clocks.any_throttled() {
            return None;
        }
        self.groups()
            .filter(|group| group.word().is_throttled())
            .map(|group| group.until())
            .filter(|&until| until > now)
            .min()
    }

    /// Takes back what races did to the clocks. For the monitor, every ten milliseconds or so while groups are active.
    pub fn resync(&self) {
        for class in [Priority::Normal, Priority::Low] {
            let clock = self.clocks.of(class);
            let base = clock.now();
            let (mut sum, mut weights) = (0i128, 0i128);
            for index in 0..self.top.load(Relaxed) {
                let group = self.group(GroupId(index));
                let word = group.word();
                let here = (word.priority() == Priority::Low) == (class == Priority::Low);
                if here && word.is_active() {
                    let ahead = group.v().wrapping_sub(base) as i64;
                    sum += i128::from(ahead) * i128::from(word.weight());
                    weights += i128::from(word.weight());
                }
            }
            if weights != 0 {
                let ahead = sum.div_euclid(weights) as i64;
                clock.pull(base.wrapping_add(ahead as u64));
            }
        }
    }

    /// How entitled a group is that was woken and [pushed](super::Lanes::pushed).
    pub fn wake(&self, id: GroupId) -> Wake {
        let group = self.group(id);
        let (word, v) = (group.word(), group.v());
        let deadline = group.deadline(v);
        let clock = self.clocks.of(word.priority());
        Wake {
            key: Key::new(word.priority(), false, deadline),
            active: word.is_active(),
            eligible: word.is_active() && !vtime::before(clock.now(), v),
            margin: group.margin(),
        }
    }
}

/// Chunk and place in it.
#[inline]
fn place(index: usize) -> (usize, usize) {
    let from = index + FIRST;
    let chunk = (from.ilog2() - FIRST.ilog2()) as usize;
    (chunk, from - (FIRST << chunk))
}

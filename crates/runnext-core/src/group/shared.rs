//! One group as all Ps see it: its vtime, its part in the competition, its limit.
//!
//! # Why this shape
//! A group's entitlement must be one number for the whole machine, or stealing makes the Ps' opinions drift apart. So the vtime is
//! shared; but a P touches it only where a residency begins or ends, or where the group appears on the P or goes from it. In between,
//! switches inside the group touch nothing here.
//!
//! Everything that decides whether, where and with what weight a group competes sits in one word (`word`), changed only in
//! `Group::change`. Whoever's exchange succeeds carries out the difference between the old and the new word on the
//! clocks, so the sum of weights is exact however many change it at once.
//!
//! # Words
//! *present*: a P has goroutines of the group queued, or runs them. *active*: present on some P and neither throttled nor held; active
//! groups compete. *dormant*: not active.
//!
//! # Sleep and wake
//! A group that goes dormant with credit keeps up to one slice of it, which melts away over [`MELT`]. One that goes dormant with a debt
//! keeps its vtime: the clock must come past it first, which takes just as long as it would have taken the group to pay by waiting.
//! So sleeping neither earns nor saves anything.
//!
//! # Newcomers
//! A debt ends with its group. So newcomers, which have no past that counts, share one: what each uses of its first `YOUTH` slices is noted as
//! if one group had used it, and where that group would stand the next one begins, though no more than a slice behind the others. One that comes
//! alone begins beside them; a job for each group, each made by the one before it, gets what one group gets. Rejected: every newcomer a slice
//! behind (its first turn is late, whoever it is); the maker's lag for the new group (the maker may be somebody who just started it).
//!
//! # Invariants
//! I1  An active group's weight is in exactly one clock, and only an active group's.
//! I2  A step of an active group's vtime moves its clock too, so lags add up to nothing (but for races: see `vtime`).
//! I3  After each residency |lag| ≤ n · (longest slice + tick), n = min(Ps, goroutines). It is the longest slice of all groups, not its
//!     own: that is how long others may keep it from a P, and what it is owed for that must not be lost, or a short slice would
//!     cost share.
//! I4  What a group is owed beyond n · slice melts, and does not grow, while all it has runs: one that cannot use its weight, having too few
//!     goroutines for it, banks no credit.
//!
//! # Context
//! No locks, no allocation. Any P, any time. Tests: `tables.rs`, `tests/groups`.

use super::bucket::{BORROW, Bucket, MIN_BORROW};
use super::config::{MS, Priority, Quota};
use super::preempt::MARGIN;
use super::spell::Spell;
use super::vtime::{self, Clock, FORGET};
use super::word::Word;
use super::{Clocks, MAX_PROCS, Usage};
use crate::shim::{AtomicU32, AtomicU64, Ordering::Relaxed};

/// How long a sleeper's credit lasts, in ns.
pub const MELT: u64 = 10 * MS;
/// How late a goroutine that never checkpoints is stopped at worst, in ns.
pub const TICK: u64 = 10 * MS;
/// One part in this many of what a group uses while all it has runs is taken off what it is owed: it is evidently not kept from
/// using it.
const IDLE_MELT: u64 = 16;

/// What the bucket of a quota holds, in ns: the burst, or a borrow for every P, and what flows in during one tick. The latter so that
/// waiting for a P, or for running code to be stopped, loses nothing.
pub fn quota_capacity(quota: Quota, procs: u32) -> u64 {
    quota.burst.max(u64::from(procs) * BORROW) + quota.rate.during(TICK)
}

/// How many slices a newcomer uses until it is none.
const YOUTH: u64 = 8;

/// No parent.
pub(super) const NONE: u32 = u32::MAX;

/// What a residency paid in advance.
#[derive(Clone, Copy, Debug)]
pub(super) struct Paid {
    /// The group's word at that time.
    pub(super) word: Word,
    /// The vtime it started from.
    pub(super) from: u64,
    /// In ns.
    ns: u64,
    /// What it was owed, if this was the last of it that waited.
    owed: Option<i64>,
}

/// One group. See the [module](self).
#[derive(Debug)]
#[repr(C, align(128))] // in this order: what a scan reads is on one line
pub struct Group {
    word: AtomicU64,
    v: AtomicU64,
    slice: AtomicU64,
    /// The slice in vtime at the weight that counts: a scan should not divide.
    vslice: AtomicU64,
    /// And [`MARGIN`]: nor should a wake-up.
    vmargin: AtomicU64,
    /// What the governor leaves it of its own slice, in ns: no residency is longer.
    left: AtomicU64,
    /// Goroutines queued, as the Ps last said.
    queued: AtomicU64,
    /// Ps that run it, or a child of it.
    running: AtomicU32,
    pub(super) parent: AtomicU32,
    pub(super) governed: AtomicU32,
    pub(super) children: AtomicU32,
    pub(super) bucket: Bucket,
    /// When it was last let go on after it had been throttled or held.
    went_on: AtomicU64,

    // Not needed where a P only looks at the group.
    cpu: AtomicU64,
    /// As much of that is not shown as CPU time.
    apart: AtomicU64,
    /// What the residencies that run paid in advance, in ns.
    prepaid: AtomicU64,
    /// Credit in ns when it went dormant, and when that was.
    credit: AtomicU64,
    slept: AtomicU64,
    until: AtomicU64,
    /// It was throttled or held, with something to run.
    stopped: Spell,
    throttled_count: AtomicU64,
    /// Something of it waited, and no P ran it.
    stalled: Spell,
    on: [AtomicU64; MAX_PROCS / 64],
}

impl Group {
    pub(super) fn empty() -> Group {
        Group {
            word: AtomicU64::new(Word::dead().0),
            v: AtomicU64::new(0),
            slice: AtomicU64::new(MS),
            vslice: AtomicU64::new(0),
            vmargin: AtomicU64::new(0),
            left: AtomicU64::new(u64::MAX),
            queued: AtomicU64::new(0),
            running: AtomicU32::new(0),
            parent: AtomicU32::new(NONE),
            governed: AtomicU32::new(0),
            children: AtomicU32::new(0),
            bucket: Bucket::unlimited(),
            went_on: AtomicU64::new(0),
            cpu: AtomicU64::new(0),
            prepaid: AtomicU64::new(0),
            apart: AtomicU64::new(0),
            credit: AtomicU64::new(0),
            slept: AtomicU64::new(0),
            until: AtomicU64::new(0),
            stopped: Spell::none(),
            throttled_count: AtomicU64::new(0),
            stalled: Spell::none(),
            on: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }

    /// Makes a claimed place a new group; nobody else knows it yet.
    pub(super) fn reset(&self, slice: u64, governed: bool, parent: u32, now: u64) {
        self.set_slice(slice);
        self.left.store(u64::MAX, Relaxed);
        self.parent.store(parent, Relaxed);
        self.governed.store(u32::from(governed), Relaxed);
        self.bucket.unlimit();
        self.credit.store(0, Relaxed);
        // So long ago that nothing of the place's former life counts.
        self.slept.store(now.wrapping_sub(FORGET), Relaxed);
        let (went_on, count) = (&self.went_on, &self.throttled_count);
        for word in [&self.queued, &self.cpu, &self.until, went_on, count] {
            word.store(0, Relaxed);
        }
        self.apart.store(0, Relaxed);
        self.stopped.reset();
        self.stalled.reset();
    }

    /// Claims the place for a new group, or gives it up; false if it is not in the state `from`.
    pub(super) fn claim(&self, from: Word, to: Word) -> bool {
        self.word
            .compare_exchange(from.0, to.0, Relaxed, Relaxed)
            .is_ok()
    }

    #[inline]
    pub(super) fn word(&self) -> Word {
        Word(self.word.load(Relaxed))
    }

    #[inline]
    pub(super) fn v(&self) -> u64 {
        self.v.load(Relaxed)
    }

    #[inline]
    pub(super) fn slice(&self) -> u64 {
        self.slice.load(Relaxed)
    }

    /// How long a residency of it may be: a slice, or what the governor leaves it, but never so little that it would be over before it was noticed.
    #[inline]
    pub(super) fn longest_run(&self) -> u64 {
        let left = self.left.load(Relaxed).max(MIN_BORROW);
        self.slice().min(left)
    }

    pub(super) fn set_left(&self, ns: u64) {
        self.left.store(ns, Relaxed);
    }

    /// Where it should be after a slice from `v`.
    #[inline]
    pub(super) fn deadline(&self, v: u64) -> u64 {
        v.wrapping_add(self.vslice.load(Relaxed))
    }

    /// [`MARGIN`] in vtime.
    #[inline]
    pub(super) fn margin(&self) -> u64 {
        self.vmargin.load(Relaxed)
    }

    #[inline]
    pub(super) fn running(&self) -> u32 {
        self.running.load(Relaxed)
    }

    #[inline]
    pub(super) fn queued(&self) -> u64 {
        self.queued.load(Relaxed)
    }

    #[inline]
    pub(super) fn until(&self) -> u64 {
        self.until.load(Relaxed)
    }

    /// Who waits for a residency has waited since then at the earliest.
    #[inline]
    pub(super) fn went_on(&self) -> u64 {
        self.went_on.load(Relaxed)
    }

    /// How it stands to the others.
    pub fn priority(&self) -> Priority {
        self.word().priority()
    }

    /// Whether there is a group in this place.
    pub fn is_alive(&self) -> bool {
        self.word().is_alive()
    }

    /// Whether something of it is queued or runs.
    #[inline]
    pub fn is_present(&self) -> bool {
        self.word().present() != 0
    }

    /// Under the governor.
    #[inline]
    pub fn is_governed(&self) -> bool {
        self.governed.load(Relaxed) != 0
    }

    /// Another group's quota binds it.
    #[inline]
    pub(super) fn has_parent(&self) -> bool {
        self.parent.load(Relaxed) != NONE
    }

    /// Another group shares its quota: a sibling, or a child.
    #[inline]
    pub(super) fn has_kin(&self) -> bool {
        self.has_parent() || self.children.load(Relaxed) != 0
    }

    /// Its scheduling parameters and counters, as of about now.
    pub fn usage(&self, clocks: &Clocks) -> Usage {
        let word = self.word();
        Usage {
            cpu_ns: self
                .cpu
                .load(Relaxed)
                .saturating_sub(self.apart.load(Relaxed)),
            throttled_ns: self.stopped.ns(),
            throttled_count: self.throttled_count.load(Relaxed),
            stalled_ns: self.stalled.ns(),
            queued: self.queued() as usize,
            running: self.running() as usize,
            lag_ns: if word.is_active() {
                vtime::service(self.v(), clocks.of(word.priority()).now(), word.weight())
            } else {
                0
            },
            throttled: word.is_paused(),
        }
    }

    /// The Ps it is present on.
    pub fn holders(&self) -> impl Iterator<Item = usize> + '_ {
        self.on.iter().enumerate().flat_map(|(i, word)| {
            let mut bits = word.load(Relaxed);
            core::iter::from_fn(move || {
                let bit = bits.trailing_zeros();
                bits &= bits.wrapping_sub(1);
                (bit < 64).then_some(i * 64 + bit as usize)
            })
        })
    }

    /// Of what it was charged with so much is not to be shown as CPU time.
    pub fn count_apart(&self, ns: u64) {
        self.apart.fetch_add(ns, Relaxed);
    }

    // ---- the state word ----

    /// Changes the word, and carries the difference out on the clocks.
    fn change(&self, clocks: &Clocks, now: u64, f: impl Fn(Word) -> Word) -> (Word, Word) {
        let mut old = self.word.load(Relaxed);
        let new = loop {
            let new = f(Word(old)).0;
            match self.word.compare_exchange_weak(old, new, Relaxed, Relaxed) {
                Ok(_) => break Word(new),
                Err(seen) => old = seen,
            }
        };
        let old = Word(old);
        match (old.is_active(), new.is_active()) {
            (false, true) => self.join(clocks.of(new.priority()), new.weight(), now),
            (true, false) => self.leave(clocks.of(old.priority()), old.weight(), now),
            (was, _) if old.priority() != new.priority() || old.weight() != new.weight() => {
                match was {
                    true => self.convert(clocks, old, new),
                    false => self.move_asleep(clocks, old, new),
                }
            }
            _ => {}
        }
        clocks.count_throttled(old, new);
        self.note_pause(old, new, now);
        (old, new)
    }

    fn join(&self, clock: &Clock, w: u32, now: u64) {
        let (v, clocked) = (self.v(), clock.settled());
        // It may have begun before the clock did, or after `now`, by another P's clock.
        let slept = now.wrapping_sub(self.slept.load(Relaxed)) as i64;
        let slept = slept.max(0) as u64;
        let debt = vtime::service(clocked, v, w);
        let place = if slept >= FORGET {
            clock.beginning(self.vslice.load(Relaxed), now)
        } else if debt > 0 {
            let most = MAX_PROCS as u64 * (self.slice() + TICK);
            clocked.wrapping_add(vtime::vtime((debt as u64).min(most), w))
        } else {
            let credit = self.credit.load(Relaxed).min(self.slice());
            let left = credit * MELT.saturating_sub(slept) / MELT;
            clocked.wrapping_sub(vtime::vtime(left, w))
        };
        self.v.store(place, Relaxed);
        clock.join(w, place);
    }

    fn leave(&self, clock: &Clock, w: u32, now: u64) {
        let v = self.v();
        let lag = vtime::service(v, clock.settled(), w);
        let credit = lag.clamp(0, self.slice() as i64);
        self.credit.store(credit as u64, Relaxed);
        self.slept.store(now, Relaxed);
        clock.leave(w, v);
    }

    /// The lag stays what it is, in ns. What was paid in advance is taken back before and paid again after that: residencies give back what they did not
    /// use at the weight of their end.
    fn convert(&self, clocks: &Clocks, old: Word, new: Word) {
        let (from, to) = (clocks.of(old.priority()), clocks.of(new.priority()));
        let w = new.weight();
        let prepaid = self.prepaid.load(Relaxed);
        self.step(clocks, old, -(vtime::vtime(prepaid, old.weight()) as i64));
        let v = self.v();
        let lag = vtime::service(v, from.now(), old.weight());
        let step = vtime::vtime(lag.unsigned_abs(), w);
        let place = |clocked: u64| match lag < 0 {
            true => clocked.wrapping_add(step),
            false => clocked.wrapping_sub(step),
        };
        if core::ptr::eq(from, to) {
            self.v.store(place(from.now()), Relaxed);
            from.reweighed(old.weight(), w);
        } else {
            from.leave(old.weight(), v);
            self.v.store(place(to.now()), Relaxed);
            to.join(w, place(to.now()));
        }
        self.step(clocks, new, vtime::vtime(prepaid, w) as i64);
    }

    /// The same of one that is dormant: what it owes stays what it is, whatever clock it will be compared with.
    fn move_asleep(&self, clocks: &Clocks, old: Word, new: Word) {
        let (from, to) = (clocks.of(old.priority()), clocks.of(new.priority()));
        let v = self.v();
        let debt = vtime::service(from.settled(), v, old.weight()).max(0); // credit is kept elsewhere
        let place = to
            .settled()
            .wrapping_add(vtime::vtime(debt as u64, new.weight()));
        // If it is not the same any more somebody has just woken it up, and placed it.
        let _ = self.v.compare_exchange(v, place, Relaxed, Relaxed);
    }

    /// It appeared on `p`. True if it was nowhere before.
    pub(super) fn appear(&self, clocks: &Clocks, p: usize, now: u64) -> bool {
        self.on[p / 64].fetch_or(1 << (p % 64), Relaxed);
        let (old, _) = self.change(clocks, now, Word::came);
        let first = old.present() == 0;
        if first && self.running() == 0 {
            self.stalled.begin(now);
        }
        first
    }

    /// It went from `p`. True if it is nowhere any more.
    pub(super) fn vanish(&self, clocks: &Clocks, p: usize, now: u64) -> bool {
        self.on[p / 64].fetch_and(!(1 << (p % 64)), Relaxed);
        let (_, new) = self.change(clocks, now, Word::went);
        let last = new.present() == 0;
        if last {
            self.stalled.end(now);
        }
        last
    }

    pub(super) fn set_weight(&self, clocks: &Clocks, weight: u32, now: u64) {
        self.change(clocks, now, |word| word.with_weight(weight));
        self.set_slice(self.slice());
    }

    pub(super) fn set_priority(&self, clocks: &Clocks, priority: Priority, now: u64) {
        self.change(clocks, now, |word| word.with_priority(priority));
        self.set_slice(self.slice());
    }

    pub(super) fn set_slice(&self, slice: u64) {
        self.slice.store(slice, Relaxed);
        let weight = self.word().weight();
        self.vslice.store(vtime::vtime(slice, weight), Relaxed);
        self.vmargin.store(vtime::vtime(MARGIN, weight), Relaxed);
    }

    pub(super) fn set_quota(&self, clocks: &Clocks, quota: Option<Quota>, procs: u32, now: u64) {
        match quota {
            Some(quota) => {
                let users = procs.min(quota.rate.parallelism() + 1);
                let capacity = quota_capacity(quota, procs);
                let debt = u64::from(users) * TICK;
                self.bucket.limit(quota.rate, capacity, debt, now);
            }
            None => self.bucket.unlimit(),
        }
        // Whoever picks it next finds out whether it must wait under the new quota.
        self.resume(clocks, now);
    }

    /// No quota left: out of the competition until `until`.
    pub(super) fn throttle(&self, clocks: &Clocks, until: u64, now: u64) {
        self.until.store(until, Relaxed);
        self.change(clocks, now, |word| word.throttled(true));
    }

    /// Back from [`throttle`](Group::throttle).
    pub(super) fn resume(&self, clocks: &Clocks, now: u64) {
        if self.word().is_throttled() {
            self.change(clocks, now, |word| word.throttled(false));
        }
    }

    /// The governor stops it, or lets it go on.
    pub(super) fn hold(&self, clocks: &Clocks, held: bool, now: u64) {
        self.change(clocks, now, |word| word.held(held));
    }

    /// It may be stopped for two reasons at once, and by two Ps: a pause lasts while there is any, and something that could run. Whoever has nothing to run is
    /// kept from nothing, and nobody looks then whether it may go on.
    #[inline]
    fn note_pause(&self, old: Word, new: Word, now: u64) {
        if !old.is_stopped() && new.is_stopped() {
            self.throttled_count.fetch_add(1, Relaxed);
        }
        if old.is_stopped() && !new.is_stopped() {
            self.went_on.store(now, Relaxed);
        }
        match (old.is_paused(), new.is_paused()) {
            (false, true) => self.stopped.begin(now),
            (true, false) => self.stopped.end(now),
            _ => {}
        }
    }

    /// How long it has been stopped now with something to run.
    pub(super) fn paused_ns(&self, now: u64) -> u64 {
        self.stopped.goes_on_for(self.word().is_paused(), now)
    }

    /// For how long it has had something to run by now, and no P runs it.
    pub(super) fn stalled_ns(&self, now: u64) -> u64 {
        let waits = self.word().present() != 0 && self.running() == 0;
        self.stalled.goes_on_for(waits, now)
    }

    // ---- service ----

    /// One P more runs it or a child of it.
    #[inline]
    pub(super) fn begin_run(&self, now: u64) {
        if self.running.fetch_add(1, Relaxed) == 0 {
            self.stalled.end(now);
        }
    }

    /// One P less does.
    #[inline]
    pub(super) fn end_run(&self, now: u64) {
        if self.running.fetch_sub(1, Relaxed) == 1 && self.word().present() != 0 {
            self.stalled.begin(now);
        }
    }

    /// A P begins to run it, and pays for the whole residency: until it ends nobody else takes the group for as much behind as it
    /// was.
    pub(super) fn pay(&self, clocks: &Clocks, ns: u64) -> Paid {
        let word = self.word();
        let step = vtime::vtime(ns, word.weight());
        let from = self.v.fetch_add(step, Relaxed);
        let clock = clocks.of(word.priority());
        let owed = vtime::service(from, clock.now(), word.weight());
        self.prepaid.fetch_add(ns, Relaxed);
        clock.paid(ns, true);
        self.moved(clocks, word, step as i64);
        Paid {
            word,
            from,
            ns,
            owed: (self.queued() <= 1).then_some(owed),
        }
    }

    /// The residency is over and took `used` ns.
    pub(super) fn settle(
        &self,
        clocks: &Clocks,
        paid: Paid,
        used: u64,
        now: u64,
        (procs, longest): (u32, u64),
    ) {
        clocks.of(paid.word.priority()).paid(paid.ns, false);
        self.prepaid.fetch_sub(paid.ns, Relaxed);
        let word = self.word();
        let (step, paid_step) = (
            vtime::vtime(used, word.weight()),
            vtime::vtime(paid.ns, word.weight()),
        );
        self.step(clocks, word, step.wrapping_sub(paid_step) as i64);
        if self.cpu.fetch_add(used, Relaxed) < YOUTH * self.slice() {
            let most = 2 * self.vslice.load(Relaxed);
            let clock = clocks.of(word.priority());
            clock.newcomer_ran(paid.from, step, most, now);
        }
        let n = self.wants(procs);
        let most = n * (longest + TICK); // I3
        let most_owed = match paid.owed {
            Some(owed) => {
                let left = owed.saturating_sub((used / IDLE_MELT) as i64);
                most.min(left.max((n * self.slice()) as i64) as u64) // I4
            }
            None => most,
        };
        self.clamp(clocks, word, most, most_owed);
    }

    /// It used `ns` in none of its residencies.
    pub(super) fn charge(&self, clocks: &Clocks, ns: u64, procs: u32, longest: u64) {
        let word = self.word();
        self.step(clocks, word, vtime::vtime(ns, word.weight()) as i64);
        self.cpu.fetch_add(ns, Relaxed);
        let most = self.wants(procs) * (longest + TICK); // I3
        self.clamp(clocks, word, most, most);
    }

    /// How many Ps it could use.
    fn wants(&self, procs: u32) -> u64 {
        let n = self.queued() + u64::from(self.running());
        n.clamp(1, u64::from(procs))
    }

    #[inline]
    fn step(&self, clocks: &Clocks, word: Word, dv: i64) {
        self.v.fetch_add(dv as u64, Relaxed);
        self.moved(clocks, word, dv);
    }

    #[inline]
    fn moved(&self, clocks: &Clocks, word: Word, dv: i64) {
        if word.is_active() {
            clocks.of(word.priority()).moved(word.weight(), dv); // I2
        }
    }

    fn clamp(&self, clocks: &Clocks, word: Word, least: u64, most: u64) {
        if !word.is_active() {
            return;
        }
        let (clock, w) = (clocks.of(word.priority()), word.weight());
        let lag = vtime::service(self.v(), clock.now(), w);
        let limit = if lag < 0 { least } else { most };
        let over = lag.unsigned_abs().saturating_sub(limit);
        let others = clock.weight().saturating_sub(u64::from(w));
        if over != 0 && others != 0 {
            // The mean moves along by w/W of each step: the step is that much longer.
            let step = u128::from(over) * u128::from(others + u64::from(w)) / u128::from(others);
            let cut = vtime::vtime(step as u64, w) as i64 * lag.signum();
            self.step(clocks, word, cut);
        }
    }

    /// A P's count of queued goroutines changed.
    #[inline]
    pub(super) fn publish(&self, before: u32, after: u32) {
        let change = u64::from(after).wrapping_sub(u64::from(before));
        if change != 0 {
            self.queued.fetch_add(change, Relaxed);
        }
    }
}

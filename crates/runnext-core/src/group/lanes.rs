//! One P's queues by group, and the decision which of them runs.
//!
//! # Why this shape
//! Few groups have something queued on a P at a time, so a scan over a compact list of them beats any tree, and happens once per
//! residency, not per switch. Queue lengths are the P's own: a push or pop inside a residency touches no shared word. The
//! queues themselves are the caller's (`Q`), since only it knows what a goroutine is.
//!
//! # Words
//! *entity*: a group on this P. *residency*: the time for which the P runs one group. *present*: the shared record knows that the group
//! is on this P; true while something is queued or the residency is the group's.
//!
//! # Order
//! Of the High and Normal entities: 1 one that waited beyond its [patience](PATIENCE), the longest waiting first; 2 eligible High, then
//! 3 eligible ones, both by earliest deadline; 4 the one that is least ahead. A Low entity if its floor is due, or nothing else can run.
//!
//! # Invariants
//! I1  `active` holds exactly the groups with `len > 0`, each at the place its entity names.
//! I2  An entity with `len > 0`, or whose residency runs, is present; others are not.
//! I3  A scan that found nothing admissible ends: each refusal takes one group out of the competition.
//!
//! # Context
//! For the P's owner, and thieves under the same lock. Only [`Storage::new`] allocates: grow by making storage outside the lock,
//! exchanging it inside, and dropping the old one outside.

use super::config::{MS, Priority};
use super::ledger::{Grant, Ledger};
use super::preempt::Key;
use super::shared::Paid;
use super::vtime;
use super::{GroupId, ROOT};

/// An entity that may run is not passed over for longer than this, in ns, and two rounds of its group's slice; its group may get its
/// share from other Ps, but its goroutines are queued here.
pub const PATIENCE: u64 = 100 * MS;
/// How often a P looks whether a group without entity here is further behind, in ns.
pub const GUIDE: u64 = MS / 2;
/// By how many of its slices it must be.
const BEHIND: i64 = 2;

#[derive(Debug, Default)]
struct Entity<Q> {
    queue: Q,
    len: u32,
    /// What the shared record was told of `len`.
    told: u32,
    /// Its place in `active`.
    at: u32,
    present: bool,
    /// Since when it waits for a residency here.
    since: u64,
}

/// Room for the entities of a P.
#[derive(Debug)]
pub struct Storage<Q> {
    entities: Box<[Entity<Q>]>,
    active: Box<[GroupId]>,
}

impl<Q: Default> Storage<Q> {
    /// For groups at the first `places` places; see [`Ledger::places`]. Allocates.
    pub fn new(places: usize) -> Storage<Q> {
        Storage {
            entities: (0..places).map(|_| Entity::default()).collect(),
            active: vec![ROOT; places].into_boxed_slice(),
        }
    }
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Run this group until then, or until its queue is empty; the key is what to publish.
    Run {
        /// Which; [`ROOT`] is the root lane.
        group: GroupId,
        /// When the residency is used up.
        until: u64,
        /// How entitled it is.
        key: Key,
    },
    /// Better steal from this group's [holders](super::Group::holders). Whether it worked or not, then pick again without `steal`.
    Steal(GroupId),
    /// Nothing here may run. Something may at that time, if any.
    Wait(Option<u64>),
}

/// A residency that ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Whose.
    pub group: GroupId,
    /// CPU time used.
    pub used: u64,
    /// It is governed: tell the governor.
    pub governed: bool,
    /// It ran on as many Ps as its quota allows, or its parent's, and there may be work of it elsewhere, of its siblings or children: an idle P should
    /// look.
    pub freed: bool,
}

#[derive(Clone, Copy, Debug)]
struct Residency {
    id: GroupId,
    start: u64,
    grant: Grant,
    paid: Paid,
}

/// One P's groups. See the [module](self).
#[derive(Debug)]
pub struct Lanes<Q> {
    on: bool,
    p: usize,
    entities: Box<[Entity<Q>]>,
    active: Box<[GroupId]>,
    len: usize,
    current: Option<Residency>,
    guided: u64,
    timer: Option<u64>,
}

/// The best of a class so far.
#[derive(Clone, Copy, Debug)]
struct Candidate {
    id: GroupId,
    tier: u8,
    /// Smaller is better, within a tier.
    rank: i64,
    v: u64,
}

#[derive(Debug, Default)]
struct Seen {
    fair: Option<Candidate>,
    low: Option<Candidate>,
    until: Option<u64>,
}

impl<Q> Lanes<Q> {
    /// Of P number `p`; nothing is queued.
    pub fn new(p: usize, storage: Storage<Q>) -> Lanes<Q> {
        Lanes {
            on: false,
            p,
            entities: storage.entities,
            active: storage.active,
            len: 0,
            current: None,
            guided: 0,
            timer: None,
        }
    }

    /// Moves into larger storage; returns the old one, to be dropped outside of locks. Storage that is not larger comes straight back.
    #[must_use = "drop it where dropping is allowed"]
    pub fn grow(&mut self, mut storage: Storage<Q>) -> Storage<Q> {
        if storage.entities.len() > self.entities.len() {
            self.entities
                .swap_with_slice(&mut storage.entities[..self.entities.len()]);
            storage.active[..self.len].copy_from_slice(&self.active[..self.len]);
            core::mem::swap(&mut self.entities, &mut storage.entities);
            core::mem::swap(&mut self.active, &mut storage.active);
        }
        storage
    }

    /// How many groups there is room for.
    pub fn room(&self) -> usize {
        self.entities.len()
    }

    /// Looks whether groups are active anywhere, so that the root lane is charged here too. Call at slice ends. True if the P is plain now.
    pub fn refresh(&mut self, ledger: &Ledger, now: u64) -> bool {
        if self.current.is_none() {
            // Who makes a group active says so after its first one is queued.
            let on = self.len != 0 || ledger.any_active();
            if self.on && !on {
                self.see_root(ledger, false, now);
            }
            self.on = on;
        }
        !self.on
    }

    /// The queue of a group.
    #[inline]
    pub fn queue(&mut self, id: GroupId) -> &mut Q {
        &mut self.entities[id.index()].queue
    }

    /// How many are queued in a group here.
    #[inline]
    pub fn queued(&self, id: GroupId) -> usize {
        self.entities[id.index()].len as usize
    }

    /// Groups with something queued here.
    pub fn groups(&self) -> &[GroupId] {
        &self.active[..self.len]
    }

    /// The group that runs, and since when.
    #[inline]
    pub fn current(&self) -> Option<(GroupId, u64)> {
        self.current.map(|r| (r.id, r.start))
    }

    /// `n` were queued in a group, other than [`ROOT`].
    #[inline]
    pub fn pushed(&mut self, ledger: &Ledger, id: GroupId, n: usize, now: u64) {
        let at = self.len as u32;
        let entity = &mut self.entities[id.index()];
        let before = entity.len;
        entity.len += n as u32;
        if before == 0 && n != 0 {
            entity.at = at;
            self.active[at as usize] = id; // I1
            self.len += 1;
            if !entity.present {
                entity.present = true; // I2
                entity.since = now;
                self.on = true;
                ledger.appear(id, self.p, now);
            }
        }
        if entity.len > 2 * entity.told {
            tell(ledger, id, entity, entity.len);
        }
    }

    /// `n` were taken from a group's queue, other than [`ROOT`]'s.
    #[inline]
    pub fn popped(&mut self, ledger: &Ledger, id: GroupId, n: usize, now: u64) {
        let entity = &mut self.entities[id.index()];
        entity.len -= n as u32;
        if entity.len == 0 && n != 0 {
            self.len -= 1;
            let at = entity.at as usize;
            let last = self.active[self.len];
            self.active[at] = last; // I1
            self.entities[last.index()].at = at as u32;
            self.rest(ledger, id, now);
        }
    }

    /// Of the group whose residency runs `n` are queued, whatever was counted: what runs leaves its queue without a word. For
    /// residencies that last; at its end each is counted anyway.
    pub fn recount(&mut self, ledger: &Ledger, n: usize) {
        let Some(Residency { id, start, .. }) = self.current else {
            return;
        };
        let counted = self.queued(id);
        // It is present, and stays so: the time is not used.
        match n.checked_sub(counted) {
            Some(0) => {}
            Some(more) => self.pushed(ledger, id, more, start),
            None => self.popped(ledger, id, counted - n, start),
        }
        let entity = &mut self.entities[id.index()];
        if entity.told > 2 * entity.len {
            tell(ledger, id, entity, entity.len);
        }
    }

    /// Takes an entity with nothing to do out of the shared record.
    fn rest(&mut self, ledger: &Ledger, id: GroupId, now: u64) {
        let resident = self.current.is_some_and(|r| r.id == id);
        let entity = &mut self.entities[id.index()];
        if entity.present && entity.len == 0 && !resident {
            tell(ledger, id, entity, entity.len);
            entity.present = false; // I2
            ledger.vanish(id, self.p, now);
        }
    }

    /// The root lane got something while another one runs: it competes from now on, not only from the next pick on.
    pub fn root_ready(&mut self, ledger: &Ledger, now: u64) {
        self.on = true;
        self.see_root(ledger, true, now);
    }

    /// The P becomes idle, or is one too many: the root lane does not compete here until the next pick. Not during a residency.
    pub fn root_gone(&mut self, ledger: &Ledger, now: u64) {
        debug_assert!(self.current.is_none(), "end the residency first");
        self.see_root(ledger, false, now);
    }

    /// The root lane's queue is its own; here it counts as one.
    fn see_root(&mut self, ledger: &Ledger, ready: bool, now: u64) {
        let root = &mut self.entities[0];
        root.len = u32::from(ready);
        if ready && !root.present {
            root.present = true;
            root.since = now;
            tell(ledger, ROOT, root, 1);
            ledger.appear(ROOT, self.p, now);
        } else if !ready {
            self.rest(ledger, ROOT, now);
        }
    }

    /// The last pick throttled a group: some idle P should be woken at that time to look whether this one is still busy with others.
    #[inline]
    pub fn take_timer(&mut self) -> Option<u64> {
        self.timer.take()
    }

    // ---- the decision ----

    /// Which group runs next; `root`: the root lane has something. With `steal` the answer may be to steal first. Not during a residency.
    pub fn pick(&mut self, ledger: &Ledger, now: u64, root: bool, steal: bool) -> Pick {
        debug_assert!(self.current.is_none(), "end the residency first");
        self.see_root(ledger, root, now);
        let mut steal = steal;
        loop {
            let seen = self.scan(ledger, now, root, |_| true);
            if steal && let Some(id) = self.guide(ledger, &seen, now) {
                return Pick::Steal(id);
            }
            steal = false;
            let (chosen, floor) = match (seen.fair, seen.low) {
                (None, None) => return Pick::Wait(earlier(seen.until, ledger.next_resume(now))),
                (Some(fair), None) => (fair, 0),
                (None, Some(low)) => (low, 0),
                (Some(fair), Some(low)) => match ledger.take_floor() {
                    0 => (fair, 0),
                    floor => (low, floor),
                },
            };
            match ledger.admit(chosen.id, floor, now) {
                Ok(grant) => return self.start(ledger, chosen.id, grant, now),
                Err(until) => self.timer = earlier(self.timer, Some(until)),
            }
        }
    }

    /// Looks at every entity that is `wanted` once; at the root lane if `root`.
    fn scan(
        &self,
        ledger: &Ledger,
        now: u64,
        root: bool,
        wanted: impl Fn(GroupId) -> bool,
    ) -> Seen {
        let mut seen = Seen::default();
        let queued = self.groups().iter().copied().filter(|&id| wanted(id));
        for id in queued.chain(root.then_some(ROOT)) {
            let group = ledger.group(id);
            let mut word = group.word();
            if word.is_held() {
                continue;
            }
            if word.is_throttled() {
                let until = group.until();
                if until > now {
                    seen.until = earlier(seen.until, Some(until));
                    continue;
                }
                group.resume(ledger.clocks(), now);
                word = group.word();
            }
            if ledger.is_wide(group, now) {
                continue;
            }
            let clock = ledger.clocks().of(word.priority());
            let (v, clocked, weight) = (group.v(), clock.now(), word.weight());
            let deadline = group.deadline(v);
            // What it was stopped for it has not waited.
            let since = self.entities[id.index()].since.max(group.went_on());
            let waited = now.saturating_sub(since);
            let (tier, rank) = if is_overdue(waited, group.slice(), weight, clock.weight()) {
                (0, -(waited as i64))
            } else if vtime::before(clocked, v) {
                (3, v.wrapping_sub(clocked) as i64)
            } else {
                let tier = if word.priority() == Priority::High {
                    1
                } else {
                    2
                };
                (tier, deadline.wrapping_sub(clocked) as i64)
            };
            let best = match word.priority() {
                Priority::Low => &mut seen.low,
                _ => &mut seen.fair,
            };
            if best.is_none_or(|b| (tier, rank) < (b.tier, b.rank)) {
                *best = Some(Candidate { id, tier, rank, v });
            }
        }
        seen
    }

    /// Whether a group that has nothing queued here, but elsewhere, should run here rather than the best that is here.
    fn guide(&mut self, ledger: &Ledger, seen: &Seen, now: u64) -> Option<GroupId> {
        let best = seen.fair.or(seen.low);
        if best.is_some() && now.saturating_sub(self.guided) < GUIDE {
            return None;
        }
        self.guided = now;
        let absent = |id: GroupId| id != ROOT && self.queued(id) == 0;
        if seen.low.is_none()
            && ledger.floor_is_late()
            && let Some(id) = ledger.most_behind(Priority::Low, now, absent)
        {
            return Some(id);
        }
        let fair = ledger.most_behind(Priority::Normal, now, absent);
        match (seen.fair, fair) {
            (None, Some(id)) => return Some(id),
            (Some(here), Some(id)) => return is_behind(ledger, id, here).then_some(id),
            (Some(_), None) => return None,
            (None, None) => {}
        }
        let low = ledger.most_behind(Priority::Low, now, absent)?;
        let better = seen.low.is_none_or(|here| is_behind(ledger, low, here));
        better.then_some(low)
    }

    /// The root lane has nothing here, but waits on other Ps: whether some of it should come here, before a pick. Its queues are the caller's, so it is not
    /// among those that `guide` sees.
    pub fn wants_root(&self, ledger: &Ledger, now: u64) -> bool {
        let seen = self.scan(ledger, now, false, |_| true);
        match seen.fair {
            Some(here) => {
                let due = now.saturating_sub(self.guided) >= GUIDE;
                due && ledger.group(ROOT).is_present() && is_behind(ledger, ROOT, here)
            }
            None => seen.low.is_some(), // nothing is left over
        }
    }

    /// One of a group runs here already, picked by nobody: the residency becomes the group's, whoever is next. None if the group may not run.
    /// Not during a residency.
    pub fn resume(&mut self, ledger: &Ledger, id: GroupId, now: u64) -> Option<Pick> {
        debug_assert!(self.current.is_none(), "end the residency first");
        if !ledger.may_start(id, now) {
            return None;
        }
        // As if it came out of the queue.
        self.pushed(ledger, id, 1, now);
        let group = ledger.group(id);
        if group.word().is_throttled() {
            group.resume(ledger.clocks(), now);
        }
        let pick = match ledger.admit(id, 0, now) {
            Ok(grant) => Some(self.start(ledger, id, grant, now)),
            Err(until) => {
                self.timer = earlier(self.timer, Some(until));
                None
            }
        };
        self.popped(ledger, id, 1, now);
        pick
    }

    fn start(&mut self, ledger: &Ledger, id: GroupId, grant: Grant, now: u64) -> Pick {
        let group = ledger.group(id);
        let paid = ledger.enter(id, grant.ns, now);
        let word = paid.word;
        // One of them is about to leave the queue and run.
        let entity = &mut self.entities[id.index()];
        tell(ledger, id, entity, entity.len - 1);
        self.current = Some(Residency {
            id,
            start: now,
            grant,
            paid,
        });
        let deadline = group.deadline(paid.from);
        Pick::Run {
            group: id,
            until: now + grant.ns,
            key: Key::new(word.priority(), grant.floor != 0, deadline),
        }
    }

    /// Ends the residency, and charges the CPU time it `used`. What ran and is still runnable should be back in its queue by now. None if no
    /// residency runs.
    pub fn end(&mut self, ledger: &Ledger, now: u64, used: u64) -> Option<Ended> {
        let r = self.current.take()?;
        let group = ledger.group(r.id);
        let entity = &mut self.entities[r.id.index()];
        entity.since = now;
        tell(ledger, r.id, entity, entity.len);
        let wide = ledger.is_wide(group, now);
        ledger.settle(r.id, r.grant, r.paid, used, now);
        let ended = Ended {
            group: r.id,
            used,
            governed: group.is_governed(),
            freed: wide && (group.queued() > u64::from(entity.len) || group.has_kin()),
        };
        if r.id != ROOT {
            self.rest(ledger, r.id, now); // the root lane's length is seen at the next pick
        }
        Some(ended)
    }

    /// What a thief should take here: the most behind of the groups that may run, or `want`, and half of what is in its queue, rounded up.
    /// Goroutines of a group that may not run stay where they are. `len` says how many a queue really holds: of the group whose residency
    /// runs, fewer than are counted, perhaps none.
    pub fn offer(
        &self,
        ledger: &Ledger,
        want: Option<GroupId>,
        now: u64,
        len: impl Fn(&Q) -> usize,
    ) -> Option<(GroupId, usize)> {
        let len = |id: GroupId| len(&self.entities[id.index()].queue);
        let half = |id: GroupId| (id, len(id).div_ceil(2));
        if let Some(id) = want {
            return (len(id) != 0).then(|| half(id));
        }
        // The root lane has thieves of its own.
        let seen = self.scan(ledger, now, false, |id| len(id) != 0);
        seen.fair.or(seen.low).map(|best| half(best.id))
    }
}

#[inline]
fn earlier(a: Option<u64>, b: Option<u64>) -> Option<u64> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Tells the shared record how many are queued here.
#[inline]
fn tell<Q>(ledger: &Ledger, id: GroupId, entity: &mut Entity<Q>, len: u32) {
    ledger.group(id).publish(entity.told, len);
    entity.told = len;
}

/// Whether an entity waited longer for a residency here than its weight explains.
#[inline]
fn is_overdue(waited: u64, slice: u64, weight: u32, all: u64) -> bool {
    waited > PATIENCE
        && u128::from(waited - PATIENCE) * u128::from(weight)
            > 2 * u128::from(slice) * u128::from(all)
}

/// Whether `id` is so far behind what could run here that it should be fetched.
fn is_behind(ledger: &Ledger, id: GroupId, here: Candidate) -> bool {
    let group = ledger.group(id);
    let ahead = vtime::service(group.v(), here.v, group.word().weight());
    here.tier != 0 && ahead > BEHIND * group.slice() as i64
}

#[cfg(test)]
mod tests {
    use super::super::GroupConfig;
    use super::*;

    const NOW: u64 = 1_000 * MS;

    /// One P runs the root lane, the other a group, each all the time: whether the other then wants some of the root lane.
    fn wants_after_a_while(weight: u32, priority: Priority) -> bool {
        let ledger = Ledger::new(2, NOW);
        let config = GroupConfig {
            weight,
            priority,
            ..GroupConfig::default()
        };
        let id = ledger.add(&config, NOW).expect("room");
        let mut lanes = [0, 1].map(|p| Lanes::<()>::new(p, Storage::new(ledger.places())));
        lanes[1].pushed(&ledger, id, 2, NOW);
        let mut now = NOW;
        for _ in 0..20 {
            for (p, lanes) in lanes.iter_mut().enumerate() {
                let pick = lanes.pick(&ledger, now, p == 0, false);
                assert!(matches!(pick, Pick::Run { group, .. } if group.index() == p));
            }
            now += MS;
            lanes.iter_mut().for_each(|lanes| {
                lanes.end(&ledger, now, MS);
            });
        }
        lanes[1].wants_root(&ledger, now)
    }

    /// It came to those Ps only that had nothing else to do, whatever its share.
    #[test]
    fn the_root_lane_comes_where_it_is_more_entitled() {
        assert!(wants_after_a_while(20, Priority::Normal));
        assert!(!wants_after_a_while(500, Priority::Normal));
        assert!(wants_after_a_while(500, Priority::Low));
    }
}

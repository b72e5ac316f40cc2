//! The governor: the idea this project began with.
//!
//! Goroutines that work together are a group. A group gets a slice of 20 ms of CPU time, all members together. When it is used up the
//! group waits in a queue, and whoever *began* its slice earliest is the first to go on: it took the longest to use the same 20 ms, so it
//! used the smallest part of the machine. How many go on is decided by a bucket into which CPU time flows at
//! `cores · fraction`, and which holds 100 ms: a group is let go on when 20 ms are in it. Without the bucket nobody would
//! ever wait in the queue, and without waiting there is no order.
//!
//! | a group of 20 ms that took | used      | so it goes on |
//! |----------------------------|-----------|---------------|
//! | 100 ms                     | 20 %      | first         |
//! | 20 ms                      | 100 %     | second        |
//! | 5 ms, on several cores     | 400 %     | last          |
//!
//! # What is charged
//! What was really used. A group that is let go on pays 20 ms in advance; what it uses beyond that, and what a group uses before
//! it ever waited, is taken from the bucket as it is used, into debt if need be. While there is a debt, groups that have paid nothing in advance
//! wait, new ones before they run: or work in groups that end before their slice does would have no limit. The debt ends at one capacity: a crowd
//! of new groups delays those that wait by a bounded time.
//!
//! Who waits and has nothing to run pays nothing: it goes on without an advance, when nobody waits who would use it.
//!
//! # State of a group
//! | state   | left by                                                          |
//! |---------|------------------------------------------------------------------|
//! | new     | [`begin`](Governor::begin): running; in debt: waiting            |
//! | running | [`charge`](Governor::charge), when the slice is used up, or in debt with nothing paid in advance: waiting |
//! | waiting | [`release`](Governor::release): running, on a fresh slice        |
//!
//! # Context
//! Plain values, for use under a lock; touched at the ends of governed groups' residencies only. [`Governor::reserve`] allocates, nothing else.
//! The caller stops and releases the goroutines ([`Ledger::hold`](super::Ledger::hold)). Tests: `tests/groups/governor.rs`.

use super::GroupId;
use super::bucket::Bucket;
use super::config::{MS, Rate};

/// CPU time a group gets at a time, in ns.
pub const SLICE: u64 = 20 * MS;
/// CPU time the bucket holds, in ns.
pub const CAPACITY: u64 = 100 * MS;

/// What a charge means for its group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// It goes on; this much of its slice is left, in ns. Without a limit, any time.
    GoOn(u64),
    /// Its slice is used up, or there is a debt: it waits until it is released.
    Wait,
}

#[derive(Clone, Copy, Debug, Default)]
struct Account {
    known: bool,
    waiting: bool,
    /// When the slice began.
    start: u64,
    used: u64,
    /// Paid in advance and not used.
    prepaid: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Waiter {
    start: u64,
    /// Equal starts: first come, first served.
    order: u64,
    id: GroupId,
}

/// The governor. See the [module](self).
#[derive(Debug)]
pub struct Governor {
    bucket: Bucket,
    accounts: Vec<Account>,
    /// Latest start first, so that the next is at the end.
    waiting: Vec<Waiter>,
    order: u64,
}

impl Governor {
    /// That lets groups use all they like.
    pub fn unlimited() -> Governor {
        Governor {
            bucket: Bucket::unlimited(),
            accounts: Vec::new(),
            waiting: Vec::new(),
            order: 0,
        }
    }

    /// That lets them use `ppm` millionths of `procs` cores; the bucket is full.
    pub fn new(ppm: u32, procs: usize, now: u64) -> Governor {
        let mut governor = Governor::unlimited();
        governor.limit(Some(ppm), procs, now);
        governor
    }

    /// Changes the limit; what is in the bucket stays. None: no limit, and the next [`release`](Governor::release) lets all go on.
    pub fn limit(&mut self, ppm: Option<u32>, procs: usize, now: u64) {
        match ppm {
            None => self.bucket.unlimit(),
            Some(ppm) => {
                let rate = Rate::part(ppm, procs as u32);
                self.bucket.limit(rate, CAPACITY, CAPACITY, now);
            }
        }
    }

    /// Makes room for groups at the first `places` places. Allocates.
    pub fn reserve(&mut self, places: usize) {
        if places > self.accounts.len() {
            self.accounts.resize(places, Account::default());
            self.waiting
                .reserve(places.saturating_sub(self.waiting.len()));
        }
    }

    /// Moves into the room of a governor that [reserved](Governor::reserve) more, and is otherwise unused; the caller drops what comes back
    /// where dropping is allowed. For those who may not allocate where they keep this one.
    #[must_use = "drop it where dropping is allowed"]
    pub fn grow(&mut self, mut room: Governor) -> Governor {
        if room.accounts.len() > self.accounts.len() {
            room.accounts[..self.accounts.len()].copy_from_slice(&self.accounts);
            room.waiting.clear();
            room.waiting.extend_from_slice(&self.waiting);
            core::mem::swap(&mut self.accounts, &mut room.accounts);
            core::mem::swap(&mut self.waiting, &mut room.waiting);
        }
        room
    }

    /// How many groups wait.
    pub fn waiting(&self) -> usize {
        self.waiting.len()
    }

    /// CPU time in the bucket, in ns; negative in debt.
    pub fn level(&self, now: u64) -> i64 {
        self.bucket.level(now)
    }

    /// A group is made. Also of one that is known already, which changes nothing.
    ///
    /// # Panics
    /// As [`charge`](Governor::charge).
    pub fn begin(&mut self, id: GroupId, now: u64) -> Verdict {
        if !self.accounts[id.index()].known && self.is_in_debt(now) {
            self.know(id, now);
            self.wait(id);
        }
        match self.accounts[id.index()].waiting {
            true => Verdict::Wait,
            false => Verdict::GoOn(SLICE), // which begins when it runs
        }
    }

    /// The slice of a group that is new begins.
    fn know(&mut self, id: GroupId, start: u64) {
        let account = &mut self.accounts[id.index()];
        if !account.known {
            *account = Account {
                known: true,
                start,
                ..Account::default()
            };
        }
    }

    fn is_in_debt(&self, now: u64) -> bool {
        self.bucket.is_limited() && self.bucket.level(now) < 0
    }

    /// A group's goroutine ran for `used` ns up to `now`. Members that were still running when their group began to wait are charged too.
    ///
    /// # Panics
    /// If there is no room for the group: [`reserve`](Governor::reserve) it when it is made.
    pub fn charge(&mut self, id: GroupId, used: u64, now: u64) -> Verdict {
        self.know(id, now.saturating_sub(used));
        let account = &mut self.accounts[id.index()];
        let prepaid = used.min(account.prepaid);
        account.prepaid -= prepaid;
        self.bucket.take(now, used - prepaid);
        account.used += used;
        if account.waiting {
            return Verdict::Wait;
        }
        if !self.bucket.is_limited() {
            return Verdict::GoOn(u64::MAX);
        }
        let (used, prepaid) = (account.used, account.prepaid);
        if used < SLICE && (prepaid != 0 || !self.is_in_debt(now)) {
            return Verdict::GoOn(SLICE - used);
        }
        self.wait(id);
        Verdict::Wait
    }

    fn wait(&mut self, id: GroupId) {
        let account = &mut self.accounts[id.index()];
        account.waiting = true;
        let waiter = Waiter {
            start: account.start,
            order: self.order,
            id,
        };
        self.order += 1;
        let at = self.waiting.partition_point(|other| *other > waiter);
        self.waiting.insert(at, waiter);
    }

    /// The next group that goes on, if 20 ms are there for it. Call until None, then again at [`when`](Governor::when).
    pub fn release(&mut self, now: u64) -> Option<GroupId> {
        self.release_of(now, |_| true)
    }

    /// As [`release`](Governor::release), where not all of them are `ready`: those that have nothing to run come after all that have, as nobody would use
    /// the 20 ms that they took. They go on when 20 ms are left for them, and pay for what they use then.
    pub fn release_of(&mut self, now: u64, ready: impl Fn(GroupId) -> bool) -> Option<GroupId> {
        let limited = self.bucket.is_limited();
        if self.waiting.is_empty() || limited && self.bucket.level(now) < SLICE as i64 {
            return None;
        }
        let at = self.waiting.iter().rposition(|waiter| ready(waiter.id));
        let Waiter { id, .. } = self.waiting.remove(at.unwrap_or(self.waiting.len() - 1));
        let prepaid = if limited && at.is_some() { SLICE } else { 0 };
        self.bucket.take(now, prepaid);
        self.accounts[id.index()] = Account {
            known: true,
            waiting: false,
            start: now,
            used: 0,
            prepaid,
        };
        Some(id)
    }

    /// When the next group can go on. None: nobody waits.
    pub fn when(&self, now: u64) -> Option<u64> {
        let waits = !self.waiting.is_empty();
        waits.then(|| self.bucket.when(now, SLICE))
    }

    /// A group ended, or is governed no more: what it paid in advance comes back.
    pub fn forget(&mut self, id: GroupId) {
        let Some(account) = self.accounts.get_mut(id.index()) else {
            return;
        };
        let old = core::mem::take(account);
        self.bucket.give(old.prepaid);
        if old.waiting {
            self.waiting.retain(|waiter| waiter.id != id);
        }
    }
}

//! What limits say of a group: its own quota, that of its parent, the limit of its class, and whether it is held. Nothing here changes anything.
//!
//! # Context
//! That of [`Ledger`].

use super::{Group, GroupId, Ledger, Priority};

impl Ledger {
    /// Whether something is so of the group, or of its parent.
    #[inline]
    fn own_or_parent(&self, group: &Group, is: impl Fn(&Group) -> bool) -> bool {
        is(group) || self.parent_of(group).is_some_and(is)
    }

    /// Runs on as many Ps as its quota is good for.
    #[inline]
    pub(in crate::group) fn is_wide(&self, group: &Group, now: u64) -> bool {
        let full = |g: &Group| g.bucket.is_limited() && g.running() >= g.bucket.parallelism(now);
        self.own_or_parent(group, full)
    }

    /// Whether one more P may run the group: it is neither throttled nor held, and its quota is good for another P.
    pub fn may_start(&self, id: GroupId, now: u64) -> bool {
        self.stopped_until(id, now).is_none() && !self.is_wide(self.group(id), now)
    }

    /// Until when no P may run the group: it is throttled, or held, and then nobody knows. None: it is neither, but may run on as many Ps as its quota
    /// is good for.
    pub fn stopped_until(&self, id: GroupId, now: u64) -> Option<u64> {
        let group = self.group(id);
        let word = group.word();
        if word.is_held() {
            return Some(u64::MAX);
        }
        let until = group.until();
        (word.is_throttled() && until > now).then_some(until)
    }

    /// Whether something of a group that runs now may have waited since `since` because of its own quota or its parent's, not for others: they
    /// throttled it meanwhile, or let it run on no more of the Ps than it does.
    pub fn kept_itself_waiting(&self, id: GroupId, since: u64, now: u64) -> bool {
        let group = self.group(id);
        let few = |g: &Group| {
            let most = g.bucket.parallelism(now);
            most < self.procs() && g.running() >= most
        };
        group.until() > since || few(group) || self.parent_of(group).is_some_and(few)
    }

    /// Whether a residency of the group must end on time even if nobody else waits: it, its parent or its class has a limit.
    pub fn is_limited(&self, id: GroupId) -> bool {
        let group = self.group(id);
        let low = group.word().priority() == Priority::Low && self.low.is_limited();
        low || self.own_or_parent(group, |g| g.bucket.is_limited())
    }

    /// Whether its quota, or its parent's, is good for no more than one P: then all that waits of it should wait in one place, or those
    /// on other Ps would wait for longer than their turn.
    pub fn is_narrow(&self, id: GroupId) -> bool {
        self.own_or_parent(self.group(id), |g| g.bucket.is_narrow())
    }
}

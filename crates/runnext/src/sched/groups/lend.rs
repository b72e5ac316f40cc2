//! Priority inheritance: the owner of a lock runs in the lane of a more entitled goroutine that waits for the lock.
//!
//! A goroutine that must wait for a lock (the *lender*) looks at the lock's owner. If the owner's lane is less entitled, the owner is queued in
//! the lender's lane from now on, and its runs are charged to the lender's group, until it releases a lock that somebody waits for, or its last
//! one. If the owner is in a list of its old lane, it is moved to the lender's, so that it runs when the lender would have. Lenders
//! without a group lend the root lane. Who was woken for a lock, or handed it, and has not run yet counts as an owner (`sync/raw.rs`, `heir`).
//! `RUNNEXT_DEBUG=lend=0` switches all this off.
//!
//! The owner of a `RwLock` is its writer: readers and other writers lend to it. A writer that waits for readers lends to nobody: there may be
//! many readers, and no list of them is kept.
//!
//! # Invariants
//! I1  A loan is a counted reference to the lender's group in the owner's header, which keeps the lane alive; the root lane always exists
//!     and is noted by a mark ([`root_loan`]). The owner gives the loan back itself, in user context: at its next contended unlock, when it
//!     holds no lock any more, when it changes its group, or at its end. An owner that waits for a condition does so when it resumes.
//! I2  The lender may be wrong about the owner, which may just have released the lock. If the owner holds no lock, it is lent nothing. If it holds
//!     another one, it keeps the loan until it has released that. Between the check and the loan, the owner may release its last lock, end, and its
//!     header may be reused: so it is checked once more after the loan, which is taken back if need be ([`G::borrow`]). If it is still the
//!     same goroutine and holds a lock, it sees the loan at its unlock.
//! I3  The lane of a goroutine may change while another thread queues it: that thread reads the lane once, or goes by the queue it chose.

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::group::{GroupId, Key};
use runnext_core::list::List;
use runnext_sys::clock;

use super::{ROOT_LANE, Record, grace};
use crate::g::G;
use crate::sched::Shared;
use crate::sched::call::Call;

/// How far into a list an owner is looked for.
const DEPTH: usize = 256;

/// The calling goroutine is about to wait for a lock that `owner` holds. In user context.
pub(crate) fn lend_to(owner: *const G) {
    let unused = lend(&Call::brief(), owner);
    drop(unused); // it may be the last count
}

/// Returns a count that nobody needs.
fn lend(call: &Call, owner: *const G) -> Option<Arc<Record>> {
    let (m, g) = (call.m()?, call.g()?);
    let shared = m.shared_static();
    let lane = g.lane();
    // Who has ended, and waits in its waker or hook, may have no group any more.
    if !shared.groups.is_used()
        || g.is_done()
        || !shared.groups.lends
        || !shared.slab.contains(owner)
    {
        return None;
    }
    // SAFETY: a header of this runtime, which are type-stable.
    let owner = unsafe { &*owner };
    if owner.lane() == lane {
        return None; // nearly all: it needs no lock
    }
    let _one = super::changing(call); // the owner may be giving back what another lent it
    let id = owner.alive()?;
    let theirs = owner.lane();
    if theirs == lane || !is_better(shared, lane, theirs) || owner.locks_held() == 0 {
        return None;
    }
    if lane == ROOT_LANE {
        if owner.borrow(id, root_loan()) {
            owner.set_lane(lane);
            shared.move_owner(owner, theirs, lane);
        }
        return None;
    }
    let raw = g.group_ptr().load(Relaxed);
    // SAFETY: the caller's own group; if it runs in another's name, that one's count is another header's, so it cannot be lent on.
    let record = unsafe { Record::share(raw) }?;
    if record.id_in(shared).map(|id| id.index() as u32) != Some(lane) {
        return Some(record);
    }
    let raw = Arc::into_raw(record);
    if !owner.borrow(id, raw.cast_mut().cast()) {
        // SAFETY: made just above.
        return Some(unsafe { Arc::from_raw(raw) });
    }
    owner.set_lane(lane);
    // SAFETY: counted by the header now, and by the caller's.
    unsafe { &*raw }.lent.fetch_add(1, Relaxed);
    shared.move_owner(owner, theirs, lane);
    None
}

impl G {
    /// It runs in the name of this loan from now on. False: in that of another already; or it is not goroutine `id`, or holds no lock any more. With
    /// [`changing`](super::changing) held: whoever would give the loan back waits until it is known to be one.
    fn borrow(&self, id: u64, loan: *mut ()) -> bool {
        let (lent, none) = (self.lent_ptr(), ptr::null_mut());
        let put = |in_place_of| lent.compare_exchange(in_place_of, loan, AcqRel, Relaxed);
        if put(none).is_err() && put(grace::owed()).is_err() {
            return false;
        }
        fence(SeqCst); // who releases a lock says so, and then looks whether it was lent something
        if self.alive() == Some(id) && self.locks_held() != 0 {
            return true;
        }
        // If it is not there any more, another goroutine has begun in the header. The count is the caller's either way.
        let _ = lent.compare_exchange(loan, none, AcqRel, Relaxed);
        false
    }
}

/// What stands in the header of a goroutine that was lent the root lane: no group, and nothing that is counted.
fn root_loan() -> *mut () {
    static ROOT_LOAN: u8 = 0;
    ptr::from_ref(&ROOT_LOAN).cast_mut().cast()
}

/// Whether the first lane is the more entitled.
fn is_better(shared: &Shared, lane: u32, than: u32) -> bool {
    let key = |lane: u32| -> Key {
        let id = GroupId::from_index(lane as usize);
        shared.groups.ledger.wake(id).key
    };
    let stopped = than != ROOT_LANE
        && !shared
            .groups
            .ledger
            .may_start(GroupId::from_index(than as usize), clock::now_ns());
    stopped || key(than).is_worse(key(lane))
}

/// The calling goroutine has released its last lock, and has something to settle: what was lent to it, or a turn that it owes. In user context.
#[cold]
#[inline(never)]
pub(crate) fn settle(g: &G) {
    let paid = (g.lent_ptr()).compare_exchange(grace::owed(), ptr::null_mut(), Relaxed, Relaxed);
    match paid {
        Ok(_) => grace::make_way(),
        Err(_) => give_back(g),
    }
}

/// The calling goroutine runs in its own name again. In user context.
pub(crate) fn give_back(g: &G) {
    let lent = g.lent_ptr().load(Relaxed);
    if lent.is_null() || lent == grace::owed() {
        return;
    }
    // SAFETY: the caller's own group.
    let own = unsafe { Record::of(g.group_ptr().load(Relaxed)) };
    let lent = {
        let call = Call::brief();
        let id = call.m().and_then(|m| own?.id_in(m.shared()));
        let _one = super::changing(&call);
        g.set_lane(id.map_or(ROOT_LANE, |id| id.index() as u32));
        g.lent_ptr().swap(ptr::null_mut(), AcqRel)
    };
    if !lent.is_null() && lent != root_loan() && lent != grace::owed() {
        // SAFETY: I1; the swap made the count ours.
        unsafe { Record::release(lent) };
    }
}

impl Shared {
    /// One that was taken out of a list goes before all others of the root lane.
    fn put_first(&self, g: &G) {
        if g.is_light() {
            // SAFETY: runnable, and in no queue.
            unsafe { self.push_global(g.ptr()) };
            return;
        }
        let mut one = List::new();
        // SAFETY: as above.
        unsafe { one.push_back(g.ptr()) };
        self.prepend_global(one);
    }

    /// Moves an owner that waits in a list to the lane it was lent, where it is the first.
    fn move_owner(&self, owner: &G, from: u32, to: u32) {
        if from == ROOT_LANE {
            return; // the root lane's queue has no middle
        }
        let ledger = &self.groups.ledger;
        let id = GroupId::from_index(from as usize);
        let now = clock::now_ns();
        for p in self.all_ps().filter(|p| p.groups.listed() != 0) {
            let found = {
                let mut lanes = p.groups.lanes();
                let is_owner = |g: NonNull<G>| ptr::eq(g.as_ptr(), owner);
                let at = lanes.queue(id).iter().take(DEPTH).position(is_owner);
                at.and_then(|at| p.groups.pluck(&mut lanes, ledger, id, at, now))
            };
            if let Some(g) = found {
                match to {
                    ROOT_LANE => self.put_first(owner),
                    _ => p.groups.list(ledger, to, g, true, now),
                }
                self.wake_one();
                return;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::Location;

    use super::*;
    use crate::g::slab::Slab;
    use crate::g::{Birth, Vtable};

    static NOTHING: Vtable = Vtable {
        run: |_| unreachable!(),
        poll: |_| unreachable!(),
        fail: |_, _| unreachable!(),
        drop_result: |_| unreachable!(),
        leave_group: |_| unreachable!(),
        errand: false,
    };

    fn begin(g: &G, id: u64) {
        let birth = Birth {
            id,
            vtable: &NOTHING,
            site: Location::caller(),
            ext: ptr::null_mut(),
            stack_class: 0,
            lane: ROOT_LANE,
            group: ptr::null(),
        };
        // SAFETY: the test's own header; nobody runs it.
        unsafe { g.begin(birth) };
    }

    /// It had the lane of another until its next unlock, or for ever; or the next goroutine in its header did.
    #[test]
    fn one_that_has_gone_is_lent_nothing() {
        let slab = Slab::new();
        let mut headers = slab.alloc(1, ptr::null()).expect("memory");
        // SAFETY: of the slab, which is dropped last.
        let g = unsafe { headers.pop_front().expect("one").as_ref() };
        let refused = |id, why| {
            assert!(!g.borrow(id, root_loan()), "{why}");
            assert!(!g.has_debts(), "{why}");
        };
        refused(0, "nobody has begun there");
        begin(g, 7);
        refused(7, "it holds no lock");
        g.lock_taken();
        refused(6, "another, which has ended");
        assert!(g.borrow(7, root_loan()));
        assert!(!g.borrow(7, root_loan()), "once");
        assert!(g.has_debts());
        begin(g, 8);
        g.lock_taken();
        let _ = g.finish();
        refused(8, "it has ended");
    }
}

//! Priority inheritance: the owner of a lock runs in the lane of a more entitled goroutine that waits for the lock.
//!
//! A goroutine that must wait for a lock (the *lender*) looks at the lock's owner. If the owner's lane is less entitled, the owner is queued in
//! the lender's lane from now on, and its runs are charged to the lender's group, until it releases a lock that somebody waits for, or its last
//! one. If the owner is in a list of its old lane, it is moved to the lender's, so that it runs when the lender would have. Lenders
//! without a group lend the root lane. Who was woken for a lock, or handed it, and has not run yet counts as an owner (`sync/raw.rs`, `heir`); if
//! others were passed over for it, the most entitled of them lends to it then. A more entitled lender takes the place of another, and what somebody was
//! lent it lends on. `RUNNEXT_DEBUG=lend=0` switches all this off.
//!
//! A lane whose group is stopped is no help, so nobody lends it. If a group is stopped whose lane was lent, and not for a moment only, the owner goes
//! back to its own lane, where it may get to run earlier ([`Shared::recall_loans`]).
//!
//! The owner of a `RwLock` is its writer: readers and other writers lend to it. A writer that waits for readers lends to nobody: there may be
//! many readers, and no list of them is kept.
//!
//! # Invariants
//! I1  A loan is a counted reference to the lender's group in the owner's header, which keeps the lane alive; the root lane always exists
//!     and is noted by a mark ([`root_loan`]). The owner gives the loan back itself, in user context: at its next contended unlock, when it
//!     holds no lock any more, when it changes its group, or at its end. An owner that waits for a condition does so when it resumes. A loan that was
//!     replaced is given back by the new lender. An owner that was recalled keeps its loan, and does not run in its lane.
//! I2  The lender may be wrong about the owner, which may just have released the lock. If the owner holds no lock, it is lent nothing. If it holds
//!     another one, it keeps the loan until it has released that. Between the check and the loan, the owner may release its last lock, end, and its
//!     header may be reused: so it is checked once more after the loan, which is taken back if need be ([`G::borrow`]). If it is still the
//!     same goroutine and holds a lock, it sees the loan at its unlock.
//! I3  The lane of a goroutine may change while another thread queues it: that thread reads the lane once, or goes by the queue it chose.
//! I4  Loans are made, replaced, recalled and given back under [`changing`](super::changing).

use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::group::{GroupId, Key, Priority};
use runnext_core::list::List;
use runnext_sys::clock;

use super::{ROOT_LANE, Record, changing, changing_in_rt, grace};
use crate::g::G;
use crate::sched::call::Call;
use crate::sched::{Shared, shared_of};

/// How far into a list an owner is looked for.
const DEPTH: usize = 256;
/// From how long on a pause of a group is worse than the lane of a lower priority, in ns: about what Low groups wait for their floor on a busy machine.
const LONG: u64 = 10_000_000;

/// What stands in a header for a lane that was lent, with its count, if it is that of a group.
type Loan = *mut ();

/// What stands in the header of a goroutine that was lent the root lane: no group, and nothing that is counted.
fn root_loan() -> Loan {
    static ROOT_LOAN: u8 = 0;
    ptr::from_ref(&ROOT_LOAN).cast_mut().cast()
}

fn is_loan(word: *mut ()) -> bool {
    !word.is_null() && word != grace::owed()
}

/// The group of a loan, or of a header; None for the root lane, or if it is no loan.
///
/// # Safety
/// Its count lives for as long as the reference.
unsafe fn group_of<'a>(word: *mut ()) -> Option<&'a Record> {
    match is_loan(word) && word != root_loan() {
        // SAFETY: the caller's promise.
        true => unsafe { Record::of(word) },
        false => None,
    }
}

/// Gives back the count of what is no loan any more. In user context.
///
/// # Safety
/// The count is the caller's.
unsafe fn let_go(loan: Loan) {
    if is_loan(loan) && loan != root_loan() {
        // SAFETY: the caller's promise.
        unsafe { Record::release(loan) };
    }
}

/// The calling goroutine is about to wait for a lock that `owner` holds. In user context.
pub(crate) fn lend_to(owner: *const G) {
    let unused = lend(&Call::brief(), owner);
    // SAFETY: its count is ours. It may be the last, so not within the call.
    unsafe { let_go(unused) };
}

/// Returns a count that nobody needs, or null.
fn lend(call: &Call, owner: *const G) -> Loan {
    let none = ptr::null_mut();
    let (Some(m), Some(g)) = (call.m(), call.g()) else {
        return none;
    };
    let shared = m.shared_static();
    let lane = g.lane();
    // Who has ended, and waits in its waker or hook, may have no group any more.
    if !shared.groups.is_used()
        || g.is_done()
        || !shared.groups.lends
        || !shared.slab.contains(owner)
    {
        return none;
    }
    // SAFETY: a header of this runtime, which are type-stable.
    let owner = unsafe { &*owner };
    if owner.lane() == lane {
        return none; // nearly all: it needs no lock
    }
    let _one = changing(call); // the owner may be giving back what another lent it
    let now = clock::now_ns();
    let theirs = owner.lane();
    let Some(id) = owner.alive() else { return none };
    if theirs == lane || !is_better(shared, lane, theirs, now) || owner.locks_held() == 0 {
        return none;
    }
    // SAFETY: the caller's own, which only it lets go of, or who has the lock we have.
    let held = unsafe { [g.group_ptr(), g.lent_ptr()].map(|word| group_of(word.load(Relaxed))) };
    let Some(loan) = loan_of(shared, lane, &held) else {
        return none;
    };
    let Ok(before) = shared.borrow(owner, id, loan, lane) else {
        return loan;
    };
    shared.move_owner(owner, theirs, lane);
    before
}

/// A count of a lane that one of `held` is the group of.
fn loan_of(shared: &Shared, lane: u32, held: &[Option<&Record>]) -> Option<Loan> {
    if lane == ROOT_LANE {
        return Some(root_loan());
    }
    let is_it = |group: &&Record| group.lane_in(shared) == lane;
    let group = held.iter().copied().flatten().find(is_it)?;
    // SAFETY: counted by a header, where the caller found it.
    let counted = unsafe { Record::share(ptr::from_ref(group).cast()) }?;
    Some(Arc::into_raw(counted).cast_mut().cast())
}

/// `heir` is about to be woken for a lock, for which `lender`, or a plain thread if that is None, goes on waiting. That one is not woken before the heir
/// has looked at the lock. In RT.
pub(crate) fn lend_to_heir(call: &Call, lender: Option<&G>, heir: &G) {
    // SAFETY: the two wait, so their runtimes' memory is there.
    let shared = unsafe { shared_of(heir) };
    // SAFETY: as above.
    let foreign = |g: &G| !ptr::eq(shared, unsafe { shared_of(g) });
    if !shared.groups.lends || lender.is_some_and(foreign) {
        return;
    }
    let _one = changing(call);
    // SAFETY: it waits, so it keeps its group.
    let own = lender.and_then(|g| unsafe { group_of(g.group_ptr().load(Relaxed)) });
    let lane = own.map_or(ROOT_LANE, |group| group.lane_in(shared));
    let (id, theirs) = (heir.alive(), heir.lane());
    // What it would have to be given in exchange may be the last count of a group: there is nobody here to let go of that.
    if is_loan(heir.lent_ptr().load(Relaxed))
        || lane == theirs
        || !is_better(shared, lane, theirs, clock::now_ns())
    {
        return;
    }
    if let (Some(id), Some(loan)) = (id, loan_of(shared, lane, &[own]))
        && shared.borrow(heir, id, loan, lane).is_err()
    {
        // SAFETY: our count; the lender has another, so nothing ends with it.
        unsafe { let_go(loan) };
    }
}

impl G {
    /// It runs in the name of this loan from now on; the one it had before is the caller's. None: it is not goroutine `id`, or holds no lock any more. With
    /// [`changing`] held: whoever would give the loan back waits until it is known to be one.
    fn borrow(&self, id: u64, loan: Loan) -> Option<Loan> {
        let before = self.lent_ptr().swap(loan, AcqRel);
        let before = if is_loan(before) {
            before
        } else {
            ptr::null_mut()
        };
        fence(SeqCst); // who releases a lock says so, and then looks whether it was lent something
        if self.alive() == Some(id) && self.locks_held() != 0 {
            return Some(before);
        }
        // If it is not there any more, another goroutine has begun in the header. One that had a loan is there: it waits for us with giving that back.
        let _ = (self.lent_ptr()).compare_exchange(loan, before, AcqRel, Relaxed);
        None
    }
}

/// Whether somebody gets to run earlier in the first lane: it is not stopped, and is the more entitled; or the other one is stopped, and it is no
/// less so, or the pause is long.
fn is_better(shared: &Shared, lane: u32, than: u32, now: u64) -> bool {
    let ledger = &shared.groups.ledger;
    let id = |lane: u32| GroupId::from_index(lane as usize);
    let stopped = |lane: u32| ledger.stopped_until(id(lane), now);
    let key = |lane: u32| -> Key { ledger.wake(id(lane)).key };
    let class = |lane: u32| match ledger.group(id(lane)).priority() {
        Priority::High => 0,
        Priority::Normal => 1,
        Priority::Low => 2,
    };
    if stopped(lane).is_some() {
        return false;
    }
    match stopped(than) {
        Some(until) => class(lane) <= class(than) || until.saturating_sub(now) > LONG,
        None => key(than).is_worse(key(lane)),
    }
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
    if !is_loan(g.lent_ptr().load(Relaxed)) {
        return;
    }
    // SAFETY: the caller's own group.
    let own = unsafe { Record::of(g.group_ptr().load(Relaxed)) };
    let lent = {
        let call = Call::brief();
        let shared = call.m().map(|m| m.shared());
        let _one = changing(&call);
        g.set_lane(
            shared
                .and_then(|shared| Some(own?.lane_in(shared)))
                .unwrap_or(ROOT_LANE),
        );
        let lent = g.lent_ptr().swap(ptr::null_mut(), AcqRel);
        if let Some(shared) = shared {
            shared.groups.count_loan(lent, ptr::null_mut());
        }
        lent
    };
    // SAFETY: I1; the swap made the count ours.
    unsafe { let_go(lent) };
}

impl super::Groups {
    /// A loan was put in the place of another, or of none.
    fn count_loan(&self, before: Loan, now: Loan) {
        let counts = |loan: Loan| is_loan(loan) && loan != root_loan();
        match (counts(before), counts(now)) {
            (false, true) => self.loans.fetch_add(1, Relaxed),
            (true, false) => self.loans.fetch_sub(1, Relaxed),
            _ => 0,
        };
    }
}

impl Shared {
    /// As [`G::borrow`]: this lane. Err: not.
    fn borrow(&self, owner: &G, id: u64, loan: Loan, lane: u32) -> Result<Loan, ()> {
        let before = owner.borrow(id, loan).ok_or(())?;
        owner.set_lane(lane);
        self.groups.count_loan(before, loan);
        // SAFETY: counted by the header now, which is not without it before we let go of the lock.
        if let Some(group) = unsafe { group_of(loan) } {
            group.lent.fetch_add(1, Relaxed);
        }
        Ok(before)
    }

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
        let is_owner = |g: NonNull<G>| ptr::eq(g.as_ptr(), owner);
        if self.move_first(GroupId::from_index(from as usize), is_owner, |_| to) {
            self.wake_one();
        }
    }

    /// Moves the first one that is `wanted` from a list of this group to the head of another lane. True: there was one. With [`changing`] held.
    fn move_first(
        &self,
        id: GroupId,
        wanted: impl Fn(NonNull<G>) -> bool,
        to: impl Fn(&G) -> u32,
    ) -> bool {
        let (ledger, now) = (&self.groups.ledger, clock::now_ns());
        for p in self.all_ps().filter(|p| p.groups.listed() != 0) {
            let found = {
                let mut lanes = p.groups.lanes();
                let at = lanes.queue(id).iter().take(DEPTH).position(&wanted);
                at.and_then(|at| p.groups.pluck(&mut lanes, ledger, id, at, now))
            };
            if let Some(g) = found {
                // SAFETY: it was queued, so it is alive.
                let header = unsafe { g.as_ref() };
                match to(header) {
                    ROOT_LANE => self.put_first(header),
                    lane => p.groups.list(ledger, lane, g, true, now),
                }
                return true;
            }
        }
        false
    }

    /// The turn of `ended` ended, or the group picked now was throttled, or more: who waits in a list in the name of such a group that is stopped, but would
    /// run earlier in its own, goes back. True: somebody did. In RT, by an owner of a P, with no lock held.
    pub(super) fn recall_loans(&self, ended: Option<GroupId>, throttled: bool, now: u64) -> bool {
        if self.groups.loans.load(Relaxed) == 0 {
            return false;
        }
        let _one = changing_in_rt();
        let ledger = &self.groups.ledger;
        let own_lane = |g: &G| {
            // SAFETY: it waits in a list, so it has not ended, and does not change its group.
            let own = unsafe { group_of(g.group_ptr().load(Relaxed)) };
            own.map_or(ROOT_LANE, |group| group.lane_in(self))
        };
        let mut any = false;
        // A pause of no length begins now.
        let just_now = |id: GroupId| throttled && ledger.paused_ns(id, now) == 0;
        let ids = (1..ledger.places()).map(GroupId::from_index);
        let stopped = |id: &GroupId| ledger.stopped_until(*id, now).is_some();
        for id in ids.filter(|id| (ended == Some(*id) || just_now(*id)) && stopped(id)) {
            let lane = id.index() as u32;
            let goes_back = |g: NonNull<G>| {
                // SAFETY: queued, so it is alive.
                let g = unsafe { g.as_ref() };
                is_loan(g.lent_ptr().load(Relaxed)) && is_better(self, own_lane(g), lane, now)
            };
            let back = |g: &G| {
                let own = own_lane(g);
                g.set_lane(own);
                own
            };
            while self.move_first(id, goes_back, back) {
                any = true;
            }
        }
        if any {
            self.wake_one();
        }
        any
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
            assert_eq!(g.borrow(id, root_loan()), None, "{why}");
            assert!(!g.has_debts(), "{why}");
        };
        refused(0, "nobody has begun there");
        begin(g, 7);
        refused(7, "it holds no lock");
        g.lock_taken();
        refused(6, "another, which has ended");
        assert_eq!(g.borrow(7, root_loan()), Some(ptr::null_mut()));
        assert_eq!(g.borrow(7, root_loan()), Some(root_loan()), "replaced");
        assert!(g.has_debts());
        begin(g, 8);
        g.lock_taken();
        let _ = g.finish();
        refused(8, "it has ended");
    }
}

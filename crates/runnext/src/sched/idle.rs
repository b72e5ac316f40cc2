//! Idle Ps, idle Ms, and starting one of them.
//!
//! # Protocol
//! `runnext_core::searchers`: who counts as what, which fences pair, and why nobody is left asleep beside work.
//!
//! # Context
//! Nothing else is locked under the idle lock. It guards both stacks and the number of Ps. Popping an M and
//! handing it a P neither sleeps nor allocates, so a signal handler may.

use std::ptr;
use std::sync::atomic::Ordering::*;

use runnext_core::list::List;
use runnext_core::searchers::{Need, Roster};

use super::Shared;
use crate::m::M;
use crate::p::P;

pub(super) struct Idle {
    pub(super) roster: Roster,
    ps: *const P,
    ms: *const M,
    pub(super) ms_len: usize,
    /// The M in the seat (`seat`), idle but not on the list, unless somebody has taken it.
    polling: *const M,
    /// Somebody is in the seat, or was taken and has not left it yet.
    seated: bool,
    /// It is the monitor.
    lent: bool,
}

// SAFETY: the lists link Ps and Ms that live as long as the runtime; the lock around `Idle` serialises.
unsafe impl Send for Idle {}

impl Idle {
    pub(super) const fn new() -> Idle {
        Idle {
            roster: Roster::new(),
            ps: ptr::null(),
            ms: ptr::null(),
            ms_len: 0,
            polling: ptr::null(),
            seated: false,
            lent: false,
        }
    }

    fn push_p(&mut self, p: &P) {
        debug_assert!(!p.idle.load(Relaxed), "P {} is idle already", p.id);
        p.next_idle.set(self.ps);
        // Who ends the runtime looks without the lock, and has what belongs to the P from then on (`runtime::stop`).
        p.idle.store(true, Release);
        self.ps = p;
    }

    fn pop_p(&mut self) -> Option<&'static P> {
        // SAFETY: on the list, so alive.
        let p = unsafe { self.ps.as_ref()? };
        self.ps = p.next_idle.get();
        p.idle.store(false, Relaxed);
        Some(p)
    }

    /// Takes a given P off the list, wherever it is.
    fn remove_p(&mut self, wanted: *const P) -> Option<&'static P> {
        let (mut before, mut at) = (None::<&P>, self.ps);
        // SAFETY: all on the list, so alive.
        while let Some(p) = unsafe { at.as_ref() } {
            if at == wanted {
                match before {
                    Some(b) => b.next_idle.set(p.next_idle.get()),
                    None => self.ps = p.next_idle.get(),
                }
                p.idle.store(false, Relaxed);
                return Some(p);
            }
            (before, at) = (Some(p), p.next_idle.get());
        }
        None
    }

    pub(super) fn push_m(&mut self, m: &M) {
        m.next_idle.set(self.ms);
        self.ms = m;
        self.ms_len += 1;
    }

    /// An idle M; the one in the seat if there is no other. The caller hands it a P, or null.
    pub(super) fn pop_m(&mut self) -> Option<&'static M> {
        // SAFETY: on the list, so alive.
        let Some(m) = (unsafe { self.ms.as_ref() }) else {
            // SAFETY: in the seat, so alive.
            return unsafe { std::mem::replace(&mut self.polling, ptr::null()).as_ref() };
        };
        self.ms = m.next_idle.get();
        self.ms_len -= 1;
        Some(m)
    }

    /// Takes the seat, if it is free.
    pub(super) fn sit_down(&mut self, m: &M) -> bool {
        if self.seated {
            return false;
        }
        self.seated = true;
        self.polling = m;
        m.polling.set(true);
        true
    }

    /// The monitor takes the seat, if it is free. Nobody takes it from there; it leaves when notified.
    pub(super) fn lend_seat(&mut self) -> bool {
        if self.seated {
            return false;
        }
        self.seated = true;
        self.lent = true;
        true
    }

    pub(super) fn is_seat_lent(&self) -> bool {
        self.lent
    }

    pub(super) fn take_seat_back(&mut self) {
        self.seated = false;
        self.lent = false;
    }

    /// Leaves the seat. False: somebody has taken the M from there, and has a P for it.
    pub(super) fn stand_up(&mut self, m: &M) -> bool {
        self.seated = false;
        if !ptr::eq(self.polling, m) {
            return false;
        }
        self.polling = ptr::null();
        m.polling.set(false);
        true
    }
}

impl Shared {
    /// Work was queued: starts a searcher if a P is idle and nobody searches yet; if none is idle, the monitor sees
    /// to it that the work does not wait for a P that is stuck.
    #[inline]
    pub(crate) fn wake_one(&self) {
        // Its fence pairs with the monitor's, too.
        match self.searchers.queued() {
            Need::Nothing => {}
            Need::Searcher => self.wake_one_slow(),
            Need::Turn => self.monitor.work_waits(self.has_urgent()),
        }
    }

    /// As [`wake_one`](Self::wake_one), by the owner of `p`, who queued the work there.
    #[inline]
    pub(super) fn wake_another(&self, p: &P) {
        // Also if that one is too many since `set_procs`, and the only one that is left idle.
        if self.procs() > 1 || p.id != 0 {
            self.wake_one();
        } else {
            // The only P is not idle. No fence: should the monitor be about to sleep, it does not for long (`monitor`).
            self.monitor.work_waits(false);
        }
    }

    #[cold]
    fn wake_one_slow(&self) {
        if !self.searchers.claim() {
            return;
        }
        let p = {
            let mut idle = self.idle.lock();
            let stopped = self.stopped.load(Relaxed); // as in `take_idle_p`
            let p = if stopped { None } else { idle.pop_p() };
            match p {
                Some(_) => self.searchers.p_taken(&mut idle.roster),
                None => self.searchers.disclaim(&mut idle.roster),
            }
            p
        };
        match p {
            Some(p) => self.start_m(p, true),
            // Others relied on that searcher, and the monitor on an idle P.
            None => self.monitor.work_waits(self.has_urgent()),
        }
    }

    /// Whether some P but the caller's runs goroutines. A moment's view.
    pub(super) fn others_run(&self) -> bool {
        self.procs() > self.searchers.idle() + self.searchers.spinning() + 1
    }

    /// An idle P, `preferred` if it is one. None once the runtime has stopped: who stopped it goes through what Ps hold.
    pub(super) fn take_idle_p(&self, preferred: *const P) -> Option<&'static P> {
        if self.searchers.idle() == 0 {
            return None;
        }
        let mut idle = self.idle.lock();
        if self.stopped.load(Relaxed) {
            return None;
        }
        let p = idle.remove_p(preferred).or_else(|| idle.pop_p())?;
        self.searchers.p_taken(&mut idle.roster);
        Some(p)
    }

    /// Puts a P on the idle list; or aside, if it is one too many since `set_procs`. The caller then looks
    /// once more for work, or knows why it need not.
    pub(super) fn idle_p(&self, p: &P) {
        self.leave_root(p);
        let work = {
            let mut idle = self.idle.lock();
            // Nobody looks at one that was put aside.
            // SAFETY: the caller owns p.
            let aside = (p.id >= self.procs()).then(|| unsafe { p.runq.drain() });
            self.idle_p_locked(&mut idle, p);
            aside
        };
        if let Some(work) = work
            && !work.is_empty()
        {
            self.prepend_global(work);
            self.wake_one();
        }
    }

    pub(super) fn idle_p_locked(&self, idle: &mut Idle, p: &P) {
        p.m.store(ptr::null_mut(), Relaxed);
        if p.id < self.procs() {
            idle.push_p(p);
            self.searchers.p_idles(&mut idle.roster);
        } else {
            p.retired.store(true, Relaxed);
        }
    }

    /// Gives `p`, which the caller owns, to an idle M; or to one that sleeps with its goroutine and waits for a P. Without
    /// either, the P becomes idle and an M is made, which takes an idle P and searches. That may be another one, and thieves pass
    /// over idle Ps, or `p` may be one too many by now: so its work goes where every searcher looks.
    pub(super) fn start_m(&self, p: &P, spinning: bool) {
        let m = self.idle.lock().pop_m();
        if let Some(m) = m {
            m.spinning.set(spinning);
            m.hand(p);
            return;
        }
        if spinning {
            self.searchers.leave();
        }
        // SAFETY: the caller owns p.
        let work = unsafe { p.runq.drain() };
        if !work.is_empty() {
            self.prepend_global(work);
        }
        self.start_stranded(p);
        self.threads.want_m();
        if self.threads.is_exhausted() {
            self.monitor.poke();
        }
    }

    /// Ps are idle, and there is no thread for them, nor can one be made.
    pub(super) fn lacks_threads(&self) -> bool {
        self.threads.is_exhausted() && self.searchers.idle() != 0 && !self.has_idle_m()
    }

    /// Whether an M sleeps that would take a P.
    pub(super) fn has_idle_m(&self) -> bool {
        let idle = self.idle.lock();
        !idle.ms.is_null() || !idle.polling.is_null()
    }

    /// No thread could be made for an idle P. But one may do for it that was not looked at before: an idle one, which went to sleep just
    /// after it was looked for in vain, or one that sleeps with its goroutine. A new one would have found what there is to do.
    pub(super) fn rouse(&self) {
        self.searchers.look_again();
        if self.searchers.idle() != 0 && (self.seat.is_unwatched() || self.any_work()) {
            self.wake_one();
        }
    }

    /// As the owner of a P would: by the monitor, for want of a thread.
    pub(super) fn run_timers_for_all(&self, now: u64) {
        if let Some(p) = self.take_idle_p(ptr::null()) {
            self.run_all_timers(p, now);
            self.hand_off(p);
        }
    }

    /// There is no idle M: gives `p` to a thread that sleeps with its goroutine and waits for a P, if there is one.
    #[cold]
    fn start_stranded<'a>(&'a self, mut p: &'a P) {
        loop {
            if let Some(owner) = self.find_owner(p) {
                return owner.hand(p);
            }
            self.idle_p(p);
            self.searchers.look_again();
            if !self.has_wired() {
                return;
            }
            match self.take_idle_p(ptr::null()) {
                Some(other) => p = other,
                None => return,
            }
        }
    }

    /// The thread of a goroutine that waits, with it, for a P. By the owner of `p`, who found no idle M.
    fn find_owner(&self, p: &P) -> Option<&'static M> {
        self.take_wired().inspect(|_| p.fresh_slice())
    }

    /// Gives away a P the caller no longer needs: to an M if there is, or soon may be, something to run; else
    /// to the idle list.
    pub(crate) fn hand_off(&self, p: &P) {
        self.end_turn(p);
        self.observe.handoffs.fetch_add(1, Relaxed);
        if self.waits_for(p) {
            return self.start_m(p, false);
        }
        self.idle_p(p);
        if !self.see_to_rest() {
            self.note_rest();
        }
    }

    /// Ps may have become idle, not by an owner that looked for work: starts a searcher if there is something for it. False: there is nothing.
    pub(super) fn see_to_rest(&self) -> bool {
        self.searchers.look_again();
        let any = self.any_work() || self.seat.is_unwatched();
        if any {
            self.wake_one();
        }
        any
    }

    /// Nothing runs, nothing is queued, nothing will become due: no goroutine can move by itself.
    pub(super) fn is_dormant(&self) -> bool {
        self.searchers.all_idle(self.procs())
            && !self.any_work()
            && !self.seat.is_needed()
            && self.threads.all_idle()
    }

    /// Anything queued anywhere?
    pub(super) fn any_work(&self) -> bool {
        self.has_global()
            || self
                .all_ps()
                .any(|p| p.has_work() || self.offers_grouped(p))
    }

    /// Changes the number of Ps. Idle ones that are now too many leave the list, retired ones that are wanted again
    /// come back; one in use notices at its next dispatch.
    pub(super) fn resize(&self, n: usize) -> usize {
        let mut work = List::new();
        let old = {
            let mut idle = self.idle.lock();
            let old = self.procs.swap(n, SeqCst);
            let mut kept = Idle::new();
            let mut count = 0;
            while let Some(p) = idle.pop_p() {
                if p.id < n {
                    kept.push_p(p);
                    count += 1;
                } else {
                    // SAFETY: taken off the list under the lock, so it is ours.
                    work.append(unsafe { p.runq.drain() });
                    p.retired.store(true, Relaxed);
                }
            }
            for p in self.all_ps().take(n).skip(old) {
                if p.retired.swap(false, Relaxed) {
                    kept.push_p(p);
                    count += 1;
                }
            }
            idle.ps = kept.ps;
            self.searchers.recount(&mut idle.roster, count);
            old
        };
        if !work.is_empty() {
            self.prepend_global(work);
        }
        self.resize_groups();
        self.see_to_rest();
        if n < old {
            self.monitor.poke(); // to collect what is not given up soon
        }
        old
    }
}

#[cfg(test)]
mod tests {
    use std::hint;
    use std::sync::Arc;
    use std::sync::atomic::AtomicUsize;

    use super::*;
    use crate::runtime::tests::shared_of;
    use crate::sched::call::Call;
    use crate::{Runtime, chan, go, m, set_procs};

    fn patient(procs: usize) -> Runtime {
        let builder = Runtime::builder().procs(procs).preemption(false);
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        unsafe { builder.build() }.unwrap()
    }

    /// What was queued there nobody could steal, and the thread that looked for it did so for ever.
    #[test]
    fn what_waits_on_a_p_that_is_too_many_is_stolen() {
        let rt = patient(2);
        let (arrived, queued) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (tx, rx) = chan::unbounded();
        // Both run at once, so each on a P of its own.
        let role = move || {
            arrived.fetch_add(1, SeqCst);
            while arrived.load(SeqCst) < 2 {
                hint::spin_loop();
            }
            let p_id = || {
                let _call = Call::brief();
                m::current().unwrap().p().id
            };
            if p_id() == 0 {
                while queued.load(SeqCst) == 0 {
                    hint::spin_loop();
                }
                set_procs(1);
                return rx.iter().take(2).count();
            }
            let ran = Arc::new(AtomicUsize::new(0));
            for _ in 0..2 {
                let (tx, ran) = (tx.clone(), Arc::clone(&ran));
                go(move || {
                    tx.send(()).unwrap();
                    ran.fetch_add(1, SeqCst);
                });
            }
            queued.store(1, SeqCst);
            while ran.load(SeqCst) < 2 {
                hint::spin_loop(); // and makes no call
            }
            2
        };
        let other = rt.go(role.clone());
        assert_eq!(rt.run(role), 2);
        assert_eq!(other.join().unwrap(), 2);
    }

    /// Who relied on the searcher that was to be started was seen by nobody until the monitor woke by itself.
    #[test]
    fn a_void_claim_is_told_to_the_monitor() {
        let rt = patient(1);
        let word = shared_of(&rt).monitor.word();
        rt.run(move || {
            let shared = m::current().unwrap().shared_static();
            let before = word.load(SeqCst);
            // It is told only while it sleeps, and nothing else that happens here would wake it.
            while word.load(SeqCst) == before {
                let _call = Call::brief();
                shared.wake_one_slow();
            }
        });
    }
}

//! One runtime call: in, out, and what may happen between.
//!
//! Every entry point of the runtime starts with [`Call::enter`] and ends when the `Call` is dropped. Between
//! the two the thread is in RT: it owns its P and nobody takes it away. On a plain thread a `Call` is nothing, and parking
//! is sleeping.
//!
//! # Words
//! *brief*: a call opened by a function whose documentation has no `# Blocks`. It must not move the goroutine, so it never gives way
//! on leaving.
//! *stopped*: the runtime was shut down, and goroutines with a stack are abandoned.
//!
//! # Protocol
//! enter:  USER→RT. If that fails the P was taken away: wait for one, with the goroutine wired to this thread. A stopped runtime hands
//!         out none: the goroutine waits for ever, except in a brief call, which proceeds as on a plain thread, in NOP.
//! leave:  store USER; then, unless the call is brief, check for a note and give way if there is one. The note of a stopped runtime
//!         stops the goroutine here for ever, unless it is in a blocking section. Calls that acquire something also check for that note
//!         before they begin ([`Call::begin`]), in a section too.
//! poll:   an attempt that found nothing, and may be repeated in a loop, is a checkpoint that keeps its thread ([`checkpoint_here`]).
//!         Without preemption nobody is asked to give way at calls, only at [`checkpoint`]: programs that switch preemption off rely on the
//!         order in which goroutines run.
//! park:   publish the waiter first, drop all locks, then [`Call::park`]. Returns with the call still open, perhaps on
//!         another thread.
//! wake:   [`Call::wake`], after all locks are dropped.

use std::marker::PhantomData;
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::owner::{Home, State};

use super::Shared;
use super::wait::{Waiter, Who};
use super::wired::{park_wired, resume_wired, yield_wired};
use crate::fatal::fatal;
use crate::g::{G, Switch, WaitReason};
use crate::m::{self, M};
use crate::note;
use crate::observe::{Why, coarse_ns};
use crate::p::P;

/// An open runtime call. Not `Send`: it speaks for the calling thread.
pub(crate) struct Call {
    m: Option<&'static M>,
    /// It must not move the goroutine to another thread: a function that is not said to block opened it.
    brief: bool,
    _here: PhantomData<*const ()>,
}

impl Call {
    /// Opens a call.
    #[inline]
    pub(crate) fn enter() -> Call {
        Call::enter_on(m::current())
    }

    /// Opens a call that takes something, or waits for it. One that all has stopped for does not begin: it would stop at the end, with what it took.
    #[inline]
    pub(crate) fn begin() -> Call {
        let m = m::current();
        if let Some(m) = m
            && m.note.is_for_calls()
        {
            stop_first(m);
        }
        Call::enter_on(m)
    }

    #[inline]
    fn enter_on(m: Option<&'static M>) -> Call {
        if let Some(m) = m
            && !m.try_enter()
            && !enter_slow(m)
        {
            m.shared().freeze(m);
        }
        Call::new(m, false)
    }

    #[inline]
    fn new(m: Option<&'static M>, brief: bool) -> Call {
        Call {
            m,
            brief,
            _here: PhantomData,
        }
    }

    /// Opens a call of a function whose documentation has no `# Blocks`: the goroutine stays on its thread, so it does not
    /// give way on the way out. A note to do so waits for the next call that may, or for the signal that follows.
    ///
    /// It works for goroutines that were abandoned too, as on a plain thread if there is no P: others may wait for what they do, or for locks they hold.
    #[inline]
    pub(crate) fn brief() -> Call {
        let mut m = m::current();
        if let Some(own) = m
            && !own.try_enter()
        {
            m = enter_briefly(own);
        }
        Call::new(m, true)
    }

    /// As [`enter`](Self::enter), for one with whom others reckon already: one that is abandoned, and has no P any more, does not stop before it has done what it
    /// owes them, on which it is a [`stray`](Self::stray).
    #[inline]
    pub(crate) fn enter_to_give() -> Call {
        let mut call = Call::brief();
        call.brief = call.m.is_none();
        call
    }

    /// As [`brief`](Self::brief), for one that cannot do without its P: the abandoned stop here.
    #[inline]
    pub(super) fn brief_with_p() -> Call {
        let mut call = Call::enter();
        call.brief = true;
        call
    }

    /// The call that the worker opened when it resumed this goroutine.
    pub(super) fn resumed() -> Call {
        Call::new(m::current(), false)
    }

    /// Ends the call without leaving RT: the goroutine is about to return to its worker.
    pub(super) fn keep(self) {
        std::mem::forget(self);
    }

    /// The M this call runs on; none on a plain thread.
    #[inline]
    pub(crate) fn m(&self) -> Option<&'static M> {
        self.m
    }

    /// The calling goroutine, if it is one.
    #[inline]
    pub(crate) fn g(&self) -> Option<&'static G> {
        self.m.and_then(M::g)
    }

    /// The calling goroutine, if it is abandoned and its thread gets no P for it any more.
    #[inline]
    pub(crate) fn stray(&self) -> Option<&'static G> {
        match self.m {
            Some(_) => None,
            None => m::current().and_then(M::g),
        }
    }

    /// Who is calling.
    #[inline]
    pub(crate) fn waiter(&self) -> Waiter {
        match self.g() {
            Some(g) => Waiter::goroutine(g),
            None => Waiter::thread(),
        }
    }

    /// Waits until somebody wakes the caller, who has published its [`waiter`](Self::waiter).
    #[inline(always)]
    pub(crate) fn park(&mut self, reason: WaitReason) {
        let Some(m) = self.m else {
            return match Waiter::thread().who() {
                Who::Thread(parker) => parker.park(),
                Who::Goroutine(_) => unreachable!("a plain thread"),
            };
        };
        let g = current_g(m);
        if g.state.take_notice() {
            return;
        }
        g.set_reason(reason, coarse_ns());
        if must_stay(m, g) {
            return park_wired(m, g);
        }
        self.switch(m, g, Switch::Park);
    }

    /// Lets others run first because the goroutine wants to, which is not what hogs do: else one that was taken for one would
    /// stay behind others that yield as it does.
    #[inline(always)]
    pub(crate) fn yield_freely(&mut self) {
        if let Some(g) = self.g()
            && !g.is_light()
        {
            g.lose_weight();
        }
        self.yield_now();
    }

    /// Lets others run first.
    #[inline(always)]
    pub(crate) fn yield_now(&mut self) {
        let Some(m) = self.m else {
            return std::thread::yield_now();
        };
        let g = current_g(m);
        if must_stay(m, g) {
            return yield_wired(m, g);
        }
        self.switch(m, g, Switch::Yield);
    }

    #[inline(always)]
    fn switch(&mut self, m: &M, g: &G, what: Switch) {
        // A blocking section belongs to the goroutine and goes with it.
        let home = m.home.replace(Home::User);
        // SAFETY: on g's own stack: it is current here and has one.
        let on = unsafe { g.suspend(what) };
        // SAFETY: the worker that resumed it says which M it is (R2), and waits for it on that M's thread.
        let m: &'static M = unsafe { on.cast().as_ref() };
        debug_assert!(m::current().is_some_and(|now| ptr::eq(now, m)));
        self.m = Some(m);
        m.home.set(home);
        #[cfg(debug_assertions)]
        super::hazards::check(m, g);
    }

    /// Lets the one just woken run in the caller's place, if the caller can leave its thread.
    #[inline]
    pub(crate) fn make_way(&mut self) {
        if let Some(m) = self.m
            && !must_stay(m, current_g(m))
        {
            self.yield_now();
        }
    }

    /// Makes a waiter go on. Exactly once for each wait, with no runtime lock held.
    #[inline]
    pub(crate) fn wake(&self, waiter: Waiter) {
        match waiter.who() {
            // SAFETY: the header of a waiter is alive; it stays so, for only this call lets it go on.
            Who::Goroutine(g) => unsafe { self.ready(g.as_ref()) },
            Who::Thread(parker) => parker.unpark(),
        }
    }

    /// As [`wake`](Self::wake), for one that gets something by it and has made a will (`g::will`). False: its runtime has stopped, and what it was to get is the
    /// caller's to give to another.
    ///
    /// Its own runtime's threads are out of their calls before the last look at its queues. Others may have taken it out of a list long before that, and come here
    /// when nobody looks any more: they are visitors, who are seen off before that look, or else find that all has stopped.
    pub(crate) fn wake_to_give(&self, waiter: Waiter) -> bool {
        let Who::Goroutine(g) = waiter.who() else {
            self.wake(waiter);
            return true;
        };
        // SAFETY: as in `wake`; and its runtime's memory is there as long as it is.
        let (g, shared) = unsafe { (g.as_ref(), super::shared_of(g.as_ref())) };
        if self.local(shared).is_some() {
            self.ready(g);
            return true;
        }
        let _visit = shared.visit();
        if !g.wake() {
            return true;
        }
        let lost = shared.stopped.load(SeqCst) && g.take_will().is_some();
        if !lost {
            shared.put_global(g);
        }
        !lost
    }

    /// The waker's half of the park protocol (`runnext_core::park`).
    #[inline]
    pub(super) fn ready(&self, g: &G) {
        if g.wake() {
            self.enqueue_woken(g);
        }
    }

    /// Queues a goroutine that was just made: in `runnext` if this thread runs the same runtime, else globally.
    #[inline]
    pub(super) fn enqueue(&self, g: &G) {
        // SAFETY: g is runnable, so its runtime is alive.
        let shared = unsafe { super::shared_of(g) };
        match self.local(shared) {
            Some(p) if shared.put_local(p, g) => shared.wake_another(p),
            Some(_) => {}
            None => shared.put_global(g),
        }
    }

    /// Queues a goroutine that was woken. Unlike a new one it does not always get another P woken for it: two that wake each
    /// other in turn would be torn apart.
    #[inline]
    fn enqueue_woken(&self, g: &G) {
        // SAFETY: g is runnable, so its runtime is alive.
        let shared = unsafe { super::shared_of(g) };
        let local = self.local(shared);
        if let Some(p) = local {
            p.eye.queued(&shared.observe, g);
        }
        let Some(p) = local else {
            return shared.put_global(g);
        };
        if let Some(lane) = shared.special_lane(p, g) {
            if shared.put_special(p, g, lane, true) {
                shared.wake_another(p);
            }
        } else if p.keeps_its_own(&p.runq) {
            shared.put_ungrouped(p, g);
            // Should its waker not block, the monitor wakes another P for it.
            shared.monitor.work_waits(false);
        } else {
            shared.put_ungrouped(p, g);
            shared.wake_another(p);
        }
    }

    /// The P of this thread, if it is one of `shared`'s.
    #[inline]
    fn local(&self, shared: &Shared) -> Option<&'static P> {
        self.m.filter(|m| ptr::eq(m.shared, shared)).map(|m| m.p())
    }
}

impl Drop for Call {
    #[inline]
    fn drop(&mut self) {
        if let Some(m) = self.m {
            m.leave();
            if m.note.is_for_calls() && !self.brief {
                give_way(m, Way::Free);
            }
        } else if self.brief
            && let Some(m) = m::current()
        {
            m.end_stray();
        }
    }
}

#[inline]
fn current_g(m: &'static M) -> &'static G {
    match m.g() {
        Some(g) => g,
        None => fatal(format_args!("a runtime call parks on a scheduler stack")),
    }
}

/// Whether the goroutine may not leave its thread now.
#[inline]
fn must_stay(m: &M, g: &G) -> bool {
    m.locks.get() > 0 || std::thread::panicking() || !g.has_stack()
}

/// It cannot enter: the P was taken away while the thread ran user code. Gets one back: the old one if it is idle,
/// any idle one, or its turn in the queue. False: the runtime has stopped, and there will be none.
#[cold]
pub(super) fn enter_slow(m: &'static M) -> bool {
    let shared = m.shared();
    // Before any lock: a robbed thread whose timer ticks comes here from the handler, and would wait for itself.
    while !m.stop_robbed() {
        if m.try_enter() {
            return true; // the handler was here before us, and got a P
        }
        if matches!(m.state(), State::Rt | State::Nop) {
            fatal(format_args!(
                "user code called the runtime from inside the runtime"
            ));
        }
        if shared.stopped.load(Relaxed) {
            return false;
        }
    }
    let g = current_g(m);
    let old = m.p_ptr();
    if let Some(p) = shared.take_idle_p(old) {
        let arrears = m.arrears();
        take_p(m, p);
        shared.resume_in_group(m, g, arrears);
        p.eye.dispatched(p, g);
        // Nothing was queued, so nobody else tells it; and this thread may block again before it gives the P up.
        fence(SeqCst); // pairs with the monitor's before it sleeps
        shared.monitor.note_work();
        return true;
    }
    // Like any other, but on this thread: a call need not be one that may migrate.
    g.wire(m);
    g.state.set_runnable();
    shared.stranded.fetch_add(1, Relaxed);
    // SAFETY: runnable, and in no queue.
    unsafe { shared.push_global(g.ptr()) };
    shared.wake_one();
    let resumed = resume_wired(m, g);
    shared.stranded.fetch_sub(1, Relaxed);
    resumed
}

/// [`Call::brief`] on a thread that has lost its P. None: it gets none any more, and goes on as a plain one.
#[cold]
fn enter_briefly(m: &'static M) -> Option<&'static M> {
    if !m.is_stray() && enter_slow(m) {
        return Some(m);
    }
    m.begin_stray();
    None
}

/// Takes possession of a P.
pub(super) fn take_p(m: &M, p: *const P) {
    // SAFETY: Ps live as long as the runtime.
    let to = unsafe { &*p };
    debug_assert!(!to.idle.load(Relaxed), "nobody gave P {} away", to.id);
    to.m.store(ptr::from_ref(m).cast_mut(), Relaxed);
    to.cpu.store(m.cpu(), Relaxed);
    to.eye.taken();
    to.groups.taken(m);
    m.take(to);
}

/// How a goroutine gives way.
#[derive(Clone, Copy)]
enum Way {
    /// It may go on on another thread.
    Free,
    /// Its thread waits with it, as when it is preempted.
    Wired,
}

/// This thread has a note: at the end of a call, or at a checkpoint.
#[cold]
fn give_way(m: &'static M, way: Way) {
    let Some(asked) = m.note.take() else {
        return;
    };
    if m.shared().stopped.load(Relaxed) {
        return stop_for_good(m, way);
    }
    // A future cannot leave in the middle of a poll without its thread: it ends soon, or the slice's timer stops it.
    if m.g().is_none_or(G::is_stackless) || m.home.get() != Home::User {
        return;
    }
    let mut call = Call::enter();
    if let Some(m) = call.m()
        && m.p().slice.load(Relaxed) == asked.slice
        && m.shared().waits_for(m.p())
        && !m.g().is_some_and(|g| m.shared().holds_on(m.p(), g))
    {
        let g = current_g(m);
        if asked.blamed {
            m.shared().blame(g);
        }
        m.shared().observe.preempted(Why::Asked, asked.at, g);
        match way {
            Way::Free => call.yield_now(),
            Way::Wired => yield_wired(m, g),
        }
    }
    // Not dropped the usual way: a request that came meanwhile waits for the next call, or two busy neighbours would
    // keep each other in this function.
    if let Some(m) = call.m() {
        m.leave();
    }
    std::mem::forget(call);
}

/// Takes up the last note before a call; others wait until its end.
#[cold]
#[inline(never)]
fn stop_first(m: &'static M) {
    if !m.shared().stopped.load(Relaxed) {
        return;
    }
    if m.home.get() == Home::Blk && is_to_stop(m) {
        m.shared().freeze(m); // nothing was taken yet, so the section need not go on
    }
    give_way(m, Way::Free);
}

/// Whether what runs here is stopped when all has: a future is dropped when its poll returns, and whom an errand is to wake may be of another runtime.
fn is_to_stop(m: &M) -> bool {
    m.g()
        .is_some_and(|g| !g.is_stackless() && !g.vtable().errand)
}

/// The runtime has stopped, and has abandoned this goroutine: it ends here, at a call that might have blocked, and with it its thread. Calls that
/// never block go on working: others may wait for what they do.
#[cold]
fn stop_for_good(m: &'static M, way: Way) {
    if !is_to_stop(m) {
        return;
    }
    if m.home.get() != Home::User || matches!(way, Way::Wired) {
        return m.note.leave_last(); // not here: at a later call
    }
    let mut call = Call::enter();
    if let Some(m) = call.m()
        && !must_stay(m, current_g(m))
    {
        call.yield_now();
    }
    // It must not leave its thread; or nobody has stopped, but that cannot be taken back.
    let m = call.m().unwrap_or(m);
    m.leave();
    m.shared().freeze(m);
}

/// The caller's runtime has stopped, and others have done what was left to do for it.
#[cold]
pub(crate) fn stop_here_for_good() -> ! {
    loop {
        let mut call = Call::enter();
        let Some(m) = call.m() else {
            fatal(format_args!(
                "a plain thread was taken for an abandoned goroutine"
            ));
        };
        if must_stay(m, current_g(m)) {
            m.leave();
            m.shared().freeze(m);
        }
        call.yield_now(); // nobody resumes it
    }
}

/// The abandoned goroutine that finds out by an error that its runtime has stopped ends here, and does not get to see the error.
#[cold]
pub(super) fn stop_if_abandoned() {
    let Some(m) = m::current() else { return };
    if !m.shared().stopped.load(Relaxed) || !is_to_stop(m) {
        return;
    }
    if m.home.get() == Home::Blk {
        m.shared().freeze(m);
    }
    stop_here_for_good()
}

/// Whether waiting for a lock by spinning may pay: its holder can be running elsewhere, and nobody waits for this P. A moment's
/// view, for callers in user context.
pub(crate) fn spinning_helps() -> bool {
    static SEVERAL_CPUS: OnceLock<bool> = OnceLock::new();
    if !SEVERAL_CPUS.get_or_init(|| runnext_sys::cpu::available() > 1) {
        return false;
    }
    let Some(m) = m::current() else {
        return true;
    };
    // SAFETY: Ps live as long as the runtime; the thief's side of a queue may be read by anybody.
    let queued = unsafe { m.p_ptr().as_ref() }.is_some_and(P::has_work);
    !queued && m.shared().others_run()
}

/// Gives way if the calling thread was asked to: for loops of what ends without a runtime call.
#[inline]
pub(crate) fn checkpoint() {
    if note::any() {
        checkpoint_slow(Way::Free);
    }
}

/// As [`checkpoint`], in functions that are not said to block: the goroutine stays on its thread. So one that polls makes way at a
/// place where it holds nothing of the runtime's or the allocator's, and not wherever the signal meets it.
#[inline]
pub(crate) fn checkpoint_here() {
    if note::any() {
        checkpoint_slow(Way::Wired);
    }
}

#[cold]
#[inline(never)]
fn checkpoint_slow(way: Way) {
    let Some(m) = m::current() else {
        return;
    };
    let is_left = match way {
        Way::Free => m.note.is_left(),
        Way::Wired => m.note.is_for_calls(),
    };
    if is_left {
        give_way(m, way);
    }
}

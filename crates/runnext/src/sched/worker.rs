//! The loop of an M: find a goroutine, run it until it switches off, do what it asked for.
//!
//! All of this is in RT, on the thread's own stack. What to run is decided by `runnext_core::next`; this file
//! carries it out. After `resume` nothing that was read before holds any more (R2): the goroutine may have been
//! preempted with this thread, which then went on with another P.

use std::hint;
use std::ptr;
use std::sync::atomic::Ordering::*;

use runnext_core::next::{self, Pick};
use runnext_core::park::Parked;
use runnext_core::runq::RunQueue;
use runnext_sys::clock;

use super::call::take_p;
use super::groups::{self, Next};
use super::{Shared, future, seat, spawn};
use crate::g::{G, Switch};
use crate::m::{self, M};
use crate::observe::event::Kind;
use crate::p::{P, Sight, bump, look_ahead};
use crate::stack::NoStack;

/// Rounds over all Ps before a thief gives up; `runnext` is taken only in the last (Go's figure).
const PASSES: usize = 4;
/// How long a thief leaves a busy P's `runnext` alone, in ns: its goroutine is probably about to be run by the one that
/// woke it (Go's figure).
const NEXT_GRACE_NS: u64 = 3_000;

/// Runs the M until the runtime stops or its thread must end.
pub(super) fn run(m: &'static M) {
    if !begin_search(m) && !sleep(m) {
        return;
    }
    while let Some(g) = find_runnable(m) {
        if !execute(m, g) {
            return;
        }
    }
}

/// A new thread takes an idle P and searches: it was made because somebody found none to give a P to.
fn begin_search(m: &M) -> bool {
    let shared = m.shared();
    let Some(p) = shared.take_idle_p(ptr::null()) else {
        return false;
    };
    take_p(m, p);
    shared.observe.thread_starts.fetch_add(1, Relaxed);
    m.spinning.set(true);
    shared.searchers.begin();
    true
}

/// The next goroutine to run on this M's P. None: the runtime has stopped.
#[inline(always)]
fn find_runnable(m: &'static M) -> Option<&'static G> {
    match decide(m) {
        Decision::Run(g) => Some(g),
        Decision::Again => find_again(m),
        Decision::Stop => None,
    }
}

/// Apart from the first time, so that the compiler prepares nothing for a loop that is hardly ever one.
#[cold]
#[inline(never)]
fn find_again(m: &'static M) -> Option<&'static G> {
    loop {
        match decide(m) {
            Decision::Run(g) => return Some(g),
            Decision::Again => {}
            Decision::Stop => return None,
        }
    }
}

/// What an M does next.
enum Decision {
    Run(&'static G),
    /// Things have changed on the way, the P perhaps: decide again.
    Again,
    /// The runtime has stopped.
    Stop,
}

impl Decision {
    fn again_if(goes_on: bool) -> Decision {
        if goes_on {
            Decision::Again
        } else {
            Decision::Stop
        }
    }
}

#[inline(always)]
fn decide(m: &'static M) -> Decision {
    let shared = m.shared();
    if shared.stopped.load(Relaxed) {
        stop(m);
        return Decision::Stop;
    }
    // Even on a P that is one too many: this goroutine is in no queue.
    if let Some(g) = m.take_first() {
        shared.watch_timers(m.p(), g);
        return Decision::Run(g);
    }
    let p = m.p();
    if p.id >= shared.procs() {
        retire(m, p);
        return Decision::again_if(sleep(m));
    }
    let seat = shared.seat.is_needed();
    if seat {
        shared.tend(p);
    }
    if p.groups.is_on() {
        if let Some(g) = groups::follow(shared, p) {
            return run_found(m, p, g, seat);
        }
        match groups::next(shared, p) {
            Next::Run(g) => return run_found(m, p, g, seat),
            Next::Search => return search_grouped(m, p),
            Next::Plain => {}
        }
    }
    let found = match pick(shared, p) {
        Pick::Search => match seek(m, p) {
            Some(g) => Some(g),
            None if !p.runq.is_empty() => None, // events brought some
            None if p.groups.is_on() => None,   // it stole from a group
            None => return Decision::again_if(give_up_p(m, p)),
        },
        local => carry_out(shared, p, local),
    };
    match found {
        Some(g) => run_found(m, p, g, seat),
        None => Decision::Again,
    }
}

/// The runtime has stopped: leaves the P, with nothing on it.
#[cold]
#[inline(never)]
fn stop(m: &M) {
    let (shared, p) = (m.shared(), m.p());
    if let Some(first) = m.take_first() {
        // SAFETY: it was handed over with the P, and is in no queue.
        unsafe { shared.push_global(first.ptr()) };
    }
    m.give_up();
    shared.put_down(p);
}

impl Shared {
    /// The runtime has stopped, and nobody takes this P any more, which the caller owns: whoever drops futures finds all it had in a queue. Who
    /// stopped the runtime may be gone already.
    #[cold]
    pub(crate) fn put_down(&self, p: &P) {
        self.end_turn(p);
        // SAFETY: the caller owns p.
        let headers = unsafe { p.own() }.give_all_back(self);
        // None: the last one may have come back before, and whoever brought it has been told.
        let last = !headers.is_empty() && self.slab.free(headers);
        // Not a thread of this runtime: a visitor, who was seen off before the slab was orphaned.
        let own = m::current().filter(|m| ptr::eq(m.shared, self));
        if let Some(m) = own.filter(|_| last) {
            m.frees.set(true);
        }
        self.idle_p(p);
    }
}

#[inline(always)]
fn run_found(m: &M, p: &P, g: ptr::NonNull<G>, seat: bool) -> Decision {
    if m.spinning.get() {
        stop_spinning(m);
    }
    // SAFETY: queued until now, so alive.
    let g: &'static G = unsafe { g.as_ref() };
    // Asked once: who waits for something from here on does so on another P, which then asks.
    if seat {
        m.shared().watch_timers(p, g);
    }
    Decision::Run(g)
}

/// Nobody on this P may run, among groups.
#[inline(never)]
fn search_grouped(m: &'static M, p: &P) -> Decision {
    let shared = m.shared();
    match seek(m, p) {
        // It waits for the root lane's turn like all others of it.
        // SAFETY: queued until now, so alive.
        Some(g) => shared.put_next(p, unsafe { g.as_ref() }),
        None if !p.runq.is_empty() => {} // events brought some
        None if p.has_grouped() && shared.offers_grouped(p) => {}
        None => return Decision::again_if(give_up_p(m, p)),
    }
    Decision::Again
}

/// Decides for the root lane of a P that the caller owns.
#[inline(always)] // at every dispatch
fn pick(shared: &Shared, p: &P) -> Pick {
    next::pick(&Sight {
        p,
        ring: &p.runq,
        shared: Some(shared),
    })
}

/// The next goroutine of the root lane of `p`, without a search. By `p`'s owner.
pub(super) fn next_of_root(shared: &Shared, p: &P) -> Found {
    loop {
        let pick = pick(shared, p);
        if pick == Pick::Search {
            return None;
        }
        let found = carry_out(shared, p, pick);
        if found.is_some() {
            return found;
        }
    }
}

pub(super) type Found = Option<ptr::NonNull<G>>;

/// Takes what was picked. None if a thief was faster, or after a kick: decide again. By `p`'s owner; not for `Search`.
#[inline(always)] // right behind the decision there is nothing to decide again
pub(super) fn carry_out(shared: &Shared, p: &P, pick: Pick) -> Found {
    match pick {
        Pick::Next => take_next(p, P::inherit_slice),
        Pick::NextFresh => take_next(p, P::fresh_slice),
        Pick::Kick => {
            kick(shared, p);
            None
        }
        // SAFETY: the caller owns p.
        Pick::Local => unsafe { p.runq.pop() }.inspect(|_| {
            p.fresh_slice();
            p.urgent_served(false);
            look_ahead(p, &p.runq);
        }),
        Pick::Urgent => shared.take_urgent().inspect(|_| {
            p.fresh_slice();
            p.urgent_served(true);
        }),
        Pick::Global(n) => take_global(shared, p, n),
        Pick::Search => None,
    }
}

#[inline]
fn take_next(p: &P, slice: fn(&P)) -> Found {
    // SAFETY: the caller owns p. None if a thief was faster.
    unsafe { p.runq.take_next() }.inspect(|_| slice(p))
}

/// A chain of hand-offs is over while others wait: its next member queues up.
#[cold]
fn kick(shared: &Shared, p: &P) {
    // SAFETY: the caller owns p; what was in its queue is alive, and now in none.
    if let Some(g) = unsafe { p.runq.take_next().map(|g| g.as_ref()) } {
        shared.put_tail(p, g);
    }
}

#[inline(never)]
fn take_global(shared: &Shared, p: &P, n: usize) -> Found {
    let mut list = shared.take_global(n);
    let g = list.pop_front()?;
    // SAFETY: the caller owns p.
    unsafe { p.runq.push_batch(&mut list) };
    if !list.is_empty() {
        shared.prepend_global(list);
    }
    p.global_slice();
    Some(g)
}

/// A searcher found work: there may be more, so the next one starts.
fn stop_spinning(m: &M) {
    let shared = m.shared();
    m.spinning.set(false);
    shared.searchers.leave();
    shared.wake_one();
}

/// Looks for work elsewhere: on the other Ps and among descriptors, there first if nobody is late. What events bring is on `p`.
fn seek(m: &M, p: &P) -> Found {
    let shared = m.shared();
    if !shared.seat.hub().is_waited_for() {
        return search(m, p);
    }
    let late = shared.others_queue(p);
    if !late && shared.look_for_events(p) {
        return None;
    }
    let found = search(m, p);
    if found.is_none() && late {
        shared.look_for_events(p);
    }
    found
}

/// Looks on the other Ps.
fn search(m: &M, p: &P) -> Found {
    let shared = m.shared();
    if !m.spinning.get() {
        if !shared.searchers.join(shared.procs()) {
            return None;
        }
        m.spinning.set(true);
    }
    let g = steal(shared, p)?;
    p.fresh_slice();
    Some(g)
}

/// A search found work elsewhere: one to run, and what is in the queue of `p`, which was empty.
fn count_stolen(p: &P) {
    p.stats.stole(1 + p.runq.len());
}

/// Who was woken last on `victim`, from one of its queues, unless the P takes it up within a moment: it is probably about to. If it is not, its
/// next ones are for others too.
pub(super) fn steal_next_patiently(victim: &P, queue: &RunQueue<G>) -> Found {
    let since = clock::ticks();
    // The clocks of two CPUs may differ by a little, and the thread move from one to the other.
    let passed = || clock::ticks_to_ns(clock::ticks().saturating_sub(since));
    while queue.has_next() && passed() < NEXT_GRACE_NS {
        hint::spin_loop();
    }
    let next = queue.steal_next();
    next.inspect(|_| victim.streak.store(0, Relaxed))
}

fn steal(shared: &Shared, p: &P) -> Found {
    let order = shared.orders[shared.procs()].get()?;
    for pass in 1..=PASSES {
        // SAFETY: the caller owns p.
        let roll = unsafe { p.own() }.dice.u32();
        for id in order.start(roll) {
            let Some(victim) = shared.p(id) else { continue };
            if pass == PASSES && shared.steal_timers(p, victim) {
                // SAFETY: the caller owns p.
                let g = unsafe { p.runq.take_next().or_else(|| p.runq.pop()) };
                if g.is_some() && !ptr::eq(victim, p) {
                    count_stolen(p);
                }
                return g;
            }
            if ptr::eq(victim, p) || victim.idle.load(Relaxed) {
                continue;
            }
            // SAFETY: the caller owns p.
            if let Some(g) = unsafe { victim.runq.steal_into(&p.runq) } {
                count_stolen(p);
                p.eye.note(Kind::Steal, id as u32, g.as_ptr());
                return Some(g);
            }
            if pass == PASSES
                && let Some(g) = steal_next_patiently(victim, &victim.runq)
            {
                count_stolen(p);
                p.eye.note(Kind::Steal, id as u32, g.as_ptr());
                return Some(g);
            }
        }
        // Their owners queue there until they notice that they are too many.
        let surplus = (shared.procs()..).map_while(|id| shared.p(id));
        for victim in surplus.filter(|victim| !ptr::eq(*victim, p)) {
            // SAFETY: the caller owns p.
            let found = unsafe { victim.runq.steal_into(&p.runq) };
            let next = || (pass == PASSES).then(|| steal_next_patiently(victim, &victim.runq));
            if let Some(g) = found.or_else(|| next()?) {
                count_stolen(p);
                p.eye.note(Kind::Steal, victim.id as u32, g.as_ptr());
                return Some(g);
            }
        }
        if shared.has_global() {
            return None;
        }
    }
    shared.steal_grouped(p);
    None
}

/// Nothing found: the P becomes idle and the M sleeps, unless work turns up at the last moment. True: go on with the P it
/// has now. False: the runtime has stopped.
fn give_up_p(m: &'static M, p: &P) -> bool {
    let shared = m.shared();
    {
        let mut idle = shared.idle.lock();
        if shared.has_global() {
            return true;
        }
        if !m.spinning.get() && shared.searchers.relieve(&mut idle.roster) {
            m.spinning.set(true);
            return true;
        }
        p.eye.given_up();
        m.give_up();
        shared.idle_p_locked(&mut idle, p);
    }
    if m.spinning.get() {
        m.spinning.set(false);
        shared.searchers.stop();
        if shared.any_work() {
            if begin_search(m) {
                return true;
            }
            shared.monitor.work_waits(shared.has_urgent());
        }
    }
    seat::rest(m)
}

/// Sleeps as an idle M until it is handed a P. False: the runtime has stopped.
pub(super) fn sleep(m: &M) -> bool {
    sleep_after(m, || ())
}

/// The same, after something that must be done when this M already counts as idle.
fn sleep_after(m: &M, last: impl FnOnce()) -> bool {
    let stopped = {
        let mut idle = m.shared().idle.lock();
        let stopped = m.shared().stopped.load(Relaxed);
        if !stopped {
            idle.push_m(m);
            let (shared, idle) = (m.shared(), idle.ms_len);
            shared.threads.check_surplus(shared, idle);
        }
        stopped
    };
    last();
    if stopped {
        return false;
    }
    let Some(p) = m.wait_for_p() else {
        return false;
    };
    take_p(m, p);
    m.shared().find_room(m);
    true
}

/// This P is one too many since `set_procs`: its work goes to the front of the global queue.
#[cold]
fn retire(m: &M, p: &P) {
    let shared = m.shared();
    if m.spinning.replace(false) {
        shared.searchers.leave();
    }
    p.eye.given_up();
    m.give_up();
    put_aside(shared, p);
}

/// Puts aside a P that is one too many and that the caller, M or robber, owns.
pub(super) fn put_aside(shared: &Shared, p: &P) {
    shared.end_turn(p);
    // SAFETY: the caller owns p.
    let (work, headers) = unsafe { (p.runq.drain(), p.own().give_all_back(shared)) };
    let last = shared.slab.free(headers);
    debug_assert!(!last, "a runtime with a running M is not orphaned");
    if !work.is_empty() {
        shared.prepend_global(work);
    }
    shared.idle_p(p);
    shared.evacuate(p);
    shared.see_to_rest();
}

/// Runs `g` until it switches off. False: this thread must end.
fn execute(m: &'static M, g: &'static G) -> bool {
    let shared = m.shared();
    if g.is_special() {
        if let Some(waited) = m.p().eye.take_mark(&shared.observe, g) {
            shared.note_ungrouped_wait(g, waited);
        }
        if let Some(owner) = g.wired_to() {
            let p = m.p();
            p.eye.given_up();
            p.groups.pass_on(p);
            m.give_up();
            // Idle first: the thread it wakes may push it off its CPU at once, for as long as that one computes.
            return sleep_after(m, || owner.hand_here(p));
        }
    }
    if !g.has_stack() {
        if g.is_stackless() {
            return future::poll(m, g);
        }
        // SAFETY: this M owns its P.
        match unsafe { m.p().own() }.take_stack(g.stack_class(), shared) {
            // SAFETY: dispatched by this M, for the first time.
            Ok(stack) => unsafe { g.attach(stack, spawn::entry) },
            Err(why) => return cannot_start(m, g, &why),
        }
    }
    m.set_g(g);
    let p = m.p();
    bump(&p.stats.dispatched);
    p.eye.dispatched(p, g);
    if resume(m, g) {
        resume_again(m, g);
    }
    m.set_g(ptr::null());
    spawn::is_thread_clean(m)
}

/// Runs it until it switches off. True: it has been notified by then, and goes on at once, on the same slice.
#[inline(always)]
fn resume(m: &'static M, g: &'static G) -> bool {
    let shared = m.shared();
    g.state.set_running();
    // SAFETY: dispatched by this M, which is on its own stack; it has a stack.
    let asked = unsafe { g.resume(ptr::NonNull::from(m).cast()) };
    let p = m.p(); // R2
    // `left` in each arm: what it is told is known there, and it need not ask again.
    match asked {
        Some(Switch::Park) => {
            p.eye.left(&shared.observe, g, asked);
            shared.acquit(g);
            g.lose_weight();
            return g.state.park() == Parked::Notified;
        }
        Some(Switch::Yield) => {
            p.eye.left(&shared.observe, g, asked);
            g.state.set_runnable();
            shared.put_tail(p, g);
        }
        None => {
            p.eye.left(&shared.observe, g, asked);
            // SAFETY: it ended. This M owns its P.
            unsafe { p.own().give_stack(g.detach(), shared) };
            shared.acquit(g);
            spawn::bury(shared, p, g);
        }
    }
    false
}

/// Apart, as [`find_again`] is.
#[cold]
#[inline(never)]
fn resume_again(m: &'static M, g: &'static G) {
    loop {
        m.p().eye.dispatched(m.p(), g);
        if !resume(m, g) {
            return;
        }
    }
}

#[cold]
fn cannot_start(m: &'static M, g: &'static G, why: &NoStack) -> bool {
    m.set_g(g);
    g.state.set_running();
    spawn::fail(m, g, why);
    let p = m.p(); // R2
    spawn::bury(m.shared(), p, g);
    m.set_g(ptr::null());
    spawn::is_thread_clean(m)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// In groups nobody set it back, and from the first few hand-offs on no other P was woken for who is woken there.
    #[test]
    fn a_victim_does_not_take_up_its_own_any_more() {
        let p = P::new(0, 1);
        for queue in [&p.runq, p.groups.ring()] {
            p.streak.store(8, Relaxed);
            assert_eq!(steal_next_patiently(&p, queue), None);
            assert_eq!(p.streak.load(Relaxed), 8, "nothing was taken");
            let woken = ptr::NonNull::dangling();
            // SAFETY: nobody else has the P; what is queued is not looked at.
            assert!(unsafe { queue.put_next_kick(woken) }.is_ok());
            assert_eq!(steal_next_patiently(&p, queue), Some(woken));
            assert_eq!(p.streak.load(Relaxed), 0);
        }
    }
}

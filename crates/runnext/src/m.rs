//! M: an OS thread that runs goroutines.
//!
//! # Owning a P
//! `owner` says what the thread is doing, which P it has, and who may take that away (`runnext_core::owner`). Every runtime call begins with a
//! store of RT and ends with one of USER (`sched::call`). In RT the thread is neither robbed nor preempted, so it may hold the runtime's
//! locks and use its P's queues. The monitor robs, and pays for the fences of both; the thread finds out at its next call or tick.
//!
//! # Waiting for a P
//! A thread without a P sleeps on its `inbox` (`runnext_core::inbox`): the only way a P reaches a sleeping thread.
//!
//! # Thread-locals
//! The address of the current M is the one thread-local of the scheduler. It is read through a function that is
//! never inlined, and again after each switch: the compiler would otherwise keep the old thread's address.

use std::cell::Cell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{
    AtomicBool, AtomicI32, AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*,
    compiler_fence,
};

use runnext_core::inbox::{EMPTY, Found, Inbox};
use runnext_core::owner::{Home, Owner, Robber, Seen, State};
use runnext_sys::clock::{self, ThreadCpu};
use runnext_sys::futex;
use runnext_sys::thread::{self, CpuSet};

use crate::fatal::fatal;
use crate::fences;
use crate::g::{G, Timed};
use crate::note::Note;
use crate::observe::set_coarse_ns;
use crate::p::P;
use crate::sched::{COPY, Shared};

#[repr(align(128))]
pub(crate) struct M {
    owner: Owner<P>,
    /// Somebody wants this thread to give way; looked at on the way out of each runtime call.
    pub(crate) note: Note,
    /// The goroutine it runs, or that is parked together with it.
    g: AtomicPtr<G>,
    /// Where runtime calls return to: user code, or a section inside `blocking`.
    pub(crate) home: Cell<Home>,
    /// How often `lock_os_thread` guards are alive.
    pub(crate) locks: Cell<u32>,
    /// How many calls are open that do without a P.
    strays: Cell<u32>,
    /// How many locks it has under which its goroutine is not stopped (`sched::shield`). Written by the thread, read in its signal handler.
    shields: AtomicU32,
    pub(crate) spinning: Cell<bool>,
    /// The slice (of its P) the CPU timer last fired in.
    pub(crate) timer_slice: Cell<u32>,
    /// It has a CPU timer. Else the monitor ends its slices. Written by the thread when it begins.
    pub(crate) is_timed: AtomicBool,
    /// Where the CPU timer last found it in user code, and in which turn.
    ticked_at: AtomicUsize,
    ticked_in: AtomicU64,
    /// What to run first when it is handed a P.
    first: AtomicPtr<G>,
    /// It is parked inside the preemption handler, or about to be. Set in RT, before the P goes.
    pub(crate) in_handler: AtomicBool,
    /// Since all has stopped. For who stops it.
    pub(crate) outside: Outside,
    /// The goroutine that waits for a P together with this thread is timed (`observe`). The thread's own.
    pub(crate) timed: Cell<Option<Timed>>,
    /// A signal of ours is on its way: one at a time.
    pub(crate) signalled: AtomicBool,

    /// CPU time of this thread that somebody has paid for, in ns; 0: nobody counts (`sched::groups::meter`).
    pub(crate) paid: AtomicU64,

    inbox: Inbox<P>,
    /// Where this thread may run, while it is bound to the CPU of who woke it. Written by who hands it a P, before that.
    roams: Cell<Option<CpuSet>>,
    /// The CPU it was on when it last slept, woke up, or used up a slice.
    cpu: AtomicUsize,
    /// Sleeps in the poller, not on `inbox`. Set by the thread, read by who takes it from there; under the idle lock.
    pub(crate) polling: Cell<bool>,
    /// Link in the stack of idle Ms.
    pub(crate) next_idle: Cell<*const M>,
    /// It brought back the last header of a runtime that has stopped, and frees its memory when it ends. The thread's own.
    pub(crate) frees: Cell<bool>,
    pub(crate) shared: *const Shared,
    pub(crate) id: u32,
    /// Of all Ms there ever were; not 0.
    pub(crate) serial: u64,
    /// Its thread; 0 until that has begun.
    tid: AtomicI32,
}

// SAFETY: `Cell`s are used by the M's own thread only, or under the idle lock (`next_idle`, `polling`); the rest is atomic.
unsafe impl Sync for M {}
// SAFETY: as above; the thread that creates an M hands it over before it starts.
unsafe impl Send for M {}

impl G {
    /// Ties the goroutine to `m`: it goes on there and nowhere else.
    #[inline]
    pub(crate) fn wire(&self, m: &M) {
        self.set_wired(ptr::from_ref(m).cast());
    }

    /// The M it is tied to.
    #[inline]
    pub(crate) fn wired_to(&self) -> Option<&'static M> {
        // SAFETY: set by `wire`; the M of a wired goroutine runs it or sleeps with it, so it is alive.
        unsafe { self.wired().cast::<M>().as_ref() }
    }
}

/// Whether a thread has been outside of RT since the first look at it. It need not be found there: one that makes calls in a loop, with no CPU most of the time,
/// hardly ever is, and of many never all at once.
#[derive(Default)]
pub(crate) struct Outside {
    /// That of the first look, plus one; 0: there was none.
    turn: AtomicU64,
}

impl Outside {
    /// It was seen so. By one observer, all the time.
    pub(crate) fn was(&self, word: Seen) -> bool {
        const FOR_GOOD: u64 = u64::MAX;
        let (first, now) = (self.turn.load(Relaxed), word.turn() + 1);
        let was = word.state() != State::Rt || first != 0 && first != now;
        if was || first == 0 {
            self.turn.store(if was { FOR_GOOD } else { now }, Relaxed);
        }
        was
    }
}

thread_local! {
    static CURRENT: Cell<*const M> = const { Cell::new(ptr::null()) };
}

fn next_serial() -> u64 {
    static LAST: AtomicU64 = AtomicU64::new(0);
    LAST.fetch_add(1, Relaxed) + 1
}

/// The M of the calling thread, if it is one.
///
/// The reference is good until the caller switches goroutines: then ask again.
#[inline(never)]
pub(crate) fn current() -> Option<&'static M> {
    // SAFETY: set by `M::install` for as long as the thread is that M, which outlives its thread.
    unsafe { CURRENT.get().as_ref() }
}

/// The calling goroutine; none on a plain thread. For the few functions where a call more is too much.
///
/// The caller must be `#[inline(never)]` and use the answer before anything that may switch: inlined into code that
/// switches, the thread-local's address would outlive the thread it belongs to.
#[inline(always)]
pub(crate) fn current_g() -> Option<&'static G> {
    // SAFETY: as in `current`; a goroutine's header outlives the goroutine, which is the caller.
    unsafe { CURRENT.get().as_ref()?.g.load(Relaxed).as_ref() }
}

impl M {
    pub(crate) fn new(id: u32, shared: *const Shared) -> M {
        M {
            owner: Owner::new(),
            note: Note::new(),
            g: AtomicPtr::new(ptr::null_mut()),
            home: Cell::new(Home::User),
            locks: Cell::new(0),
            strays: Cell::new(0),
            shields: AtomicU32::new(0),
            spinning: Cell::new(false),
            timer_slice: Cell::new(0),
            is_timed: AtomicBool::new(false),
            ticked_at: AtomicUsize::new(0),
            ticked_in: AtomicU64::new(0),
            first: AtomicPtr::new(ptr::null_mut()),
            in_handler: AtomicBool::new(false),
            outside: Outside::default(),
            timed: Cell::new(None),
            signalled: AtomicBool::new(false),
            paid: AtomicU64::new(0),
            inbox: Inbox::new(),
            roams: Cell::new(None),
            cpu: AtomicUsize::new(usize::MAX),
            polling: Cell::new(false),
            next_idle: Cell::new(ptr::null()),
            frees: Cell::new(false),
            shared,
            id,
            serial: next_serial(),
            tid: AtomicI32::new(0),
        }
    }

    /// Makes the calling thread this M.
    pub(crate) fn install(&self) {
        self.tid.store(thread::tid(), Relaxed);
        CURRENT.set(self);
    }

    /// The calling thread stops being an M.
    pub(crate) fn uninstall(&self) {
        CURRENT.set(ptr::null());
    }

    #[inline]
    pub(crate) fn shared(&self) -> &Shared {
        // SAFETY: the runtime outlives its threads.
        unsafe { &*self.shared }
    }

    /// As [`shared`](Self::shared), for code that runs on this thread and so cannot outlive the runtime.
    #[inline]
    pub(crate) fn shared_static(&'static self) -> &'static Shared {
        // SAFETY: the runtime outlives its threads.
        unsafe { &*self.shared }
    }

    #[inline]
    pub(crate) fn state(&self) -> State {
        self.owner.state()
    }

    /// Whether the thread is in the runtime, or about to find out that it has no P.
    #[inline]
    pub(crate) fn is_inside(&self) -> bool {
        self.owner.is_inside()
    }

    /// Its word at this moment, for who may [`rob`](Self::rob) it later.
    #[inline]
    pub(crate) fn look(&self) -> Seen {
        self.owner.look()
    }

    /// Enters RT. False: the P was taken away (or the state is not one that calls).
    #[inline]
    pub(crate) fn try_enter(&self) -> bool {
        self.owner.try_enter()
    }

    /// Takes the P away from the thread, if its word is still `seen`, a USER or BLK one. The P is the caller's then.
    pub(crate) fn rob(&self, robber: &mut Robber, seen: Seen) -> Option<&'static P> {
        let p = self.owner.rob(robber, seen, fences::heavy);
        // SAFETY: Ps live as long as the runtime.
        p.map(|p| unsafe { p.as_ref() })
    }

    /// Leaves RT for user code.
    #[inline]
    pub(crate) fn leave(&self) {
        self.owner.leave(self.home.get());
    }

    /// The same for one that came from there for certain: where a blocking section ends, `home` is told a moment later.
    pub(crate) fn leave_to_user(&self) {
        self.owner.leave(Home::User);
    }

    /// Closes a declared blocking section. False: the P was taken away meanwhile.
    #[inline]
    pub(crate) fn leave_blocking(&self) -> bool {
        self.owner.leave_blocking()
    }

    /// A thread without a P begins to wait for one: ROBBED or OUT → NOP. False: it is in another state by now, or the runtime
    /// has stopped.
    pub(crate) fn stop_robbed(&self) -> bool {
        if self.shared().stopped.load(Relaxed) {
            return false;
        }
        let stopped = self.owner.stop_robbed();
        if stopped == Some(State::Robbed) {
            self.shared().observe.back();
        }
        stopped.is_some()
    }

    /// The runtime has stopped: the thread runs user code, as nobody's, to its next call.
    pub(crate) fn set_robbed(&self) {
        self.owner.set_robbed(self.home.get());
    }

    /// Such a thread makes a call that works without a P: in NOP, where a handler that comes leaves everything alone. Within one it may open another, as a plain
    /// thread may.
    pub(crate) fn begin_stray(&self) {
        if !self.is_stray() {
            let was = self.owner.stop_robbed();
            debug_assert!(was.is_some(), "it had been robbed, for good");
        }
        self.strays.set(self.strays.get() + 1);
    }

    pub(crate) fn end_stray(&self) {
        self.strays.set(self.strays.get() - 1);
        if !self.is_stray() {
            self.set_robbed();
        }
    }

    /// Whether it is in such a call.
    pub(crate) fn is_stray(&self) -> bool {
        self.strays.get() != 0
    }

    /// The thread takes possession of a P it was given.
    #[inline]
    pub(crate) fn take(&self, p: &P) {
        self.owner.take(NonNull::from(p));
    }

    /// The thread gives up the P it owns. The caller, who had it from [`p`](Self::p), sees to what becomes of it.
    #[inline]
    pub(crate) fn give_up(&self) {
        self.owner.give_up();
    }

    /// The P this thread owns. In RT only.
    #[inline]
    pub(crate) fn p(&self) -> &P {
        debug_assert_eq!(self.state(), State::Rt);
        // SAFETY: in RT the thread owns its P, and Ps live as long as the runtime.
        unsafe { &*self.owner.p() }
    }

    /// The P it owns, or had when it was robbed; null if it gave it up.
    #[inline]
    pub(crate) fn p_ptr(&self) -> *const P {
        self.owner.p()
    }

    /// Whether its goroutine is not to be stopped now. By the thread.
    pub(crate) fn is_shielded(&self) -> bool {
        self.shields.load(Relaxed) != 0
    }

    /// Until [`lower_shield`](Self::lower_shield) was called as often. By the thread.
    pub(crate) fn raise_shield(&self) {
        self.shields.store(self.shields.load(Relaxed) + 1, Relaxed);
        compiler_fence(SeqCst); // the handler sees it from here on
    }

    /// True: it was the last.
    pub(crate) fn lower_shield(&self) -> bool {
        compiler_fence(SeqCst);
        let left = self.shields.load(Relaxed) - 1;
        self.shields.store(left, Relaxed);
        left == 0
    }

    /// The kernel's number of its thread; 0 until that has begun.
    #[inline]
    pub(crate) fn tid(&self) -> i32 {
        self.tid.load(Relaxed)
    }

    /// CPU time its thread has used. None until it has begun, and once it has ended.
    pub(crate) fn cpu_ns(&self) -> Option<u64> {
        match self.tid() {
            0 => None,
            tid => ThreadCpu::of(tid).read(),
        }
    }

    /// The goroutine on this thread.
    #[inline]
    pub(crate) fn g(&self) -> Option<&G> {
        // SAFETY: headers are type-stable while the runtime lives.
        unsafe { self.g.load(Relaxed).as_ref() }
    }

    #[inline]
    pub(crate) fn set_g(&self, g: *const G) {
        self.g.store(g.cast_mut(), Relaxed);
    }

    /// Gives a P to this thread, which sleeps or is about to, and wakes it. If the runtime has stopped and sent it on before, the P is put down.
    ///
    /// The P names its new M from here on, not only when that M runs: the one it comes from may end before, and the
    /// monitor, which frees it, would look through the P at an M that is gone.
    pub(crate) fn hand(&self, p: &P) {
        p.m.store(ptr::from_ref(self).cast_mut(), Release);
        let shared = self.shared();
        shared.observe.thread_starts.fetch_add(1, Relaxed);
        if !self.tell(|inbox| inbox.hand(NonNull::from(p))) {
            shared.put_down(p);
        }
    }

    /// This thread is handed no P any more: it goes on without, now if it waits for one, or as soon as it would.
    pub(crate) fn send_on(&self) {
        self.tell(|inbox| {
            inbox.close();
            true
        });
    }

    /// Changes what it sleeps on and, if told to, wakes it.
    fn tell(&self, change: impl FnOnce(&Inbox<P>) -> bool) -> bool {
        let (word, polling) = (&raw const *self.inbox.word(), self.polling.get());
        let shared = self.shared();
        let changed = change(&self.inbox);
        if changed {
            // From here on the M may be gone. One that polls may have come back meanwhile and wait on its word.
            futex::wake_one(word);
            if polling {
                shared.end_poll();
            }
        }
        changed
    }

    /// As [`hand`](Self::hand), by a thread that is about to sleep itself: this one starts on the CPU that becomes free.
    ///
    /// The kernel would find the caller's CPU busy, for it is; it often puts the woken thread behind another one that computes, and
    /// leaves this CPU idle until it next balances: `bench lost` lost 7 - 20 % to that.
    pub(crate) fn hand_here(&self, p: &P) {
        let cpu = thread::cpu();
        // Where it slept, there it wakes up, unless another CPU is idle.
        if self.cpu() != cpu {
            self.bind(cpu);
        }
        self.hand(p);
    }

    /// By this thread's handler: the CPU timer found it at this address.
    pub(crate) fn note_tick(&self, pc: usize) {
        let word = self.look();
        if matches!(word.state(), State::User | State::Blk | State::Robbed) {
            self.ticked_at.store(pc, Relaxed);
            self.ticked_in.store(word.turn(), Release);
        }
    }

    /// Where the CPU timer last found it in this turn, if it did. Whoever is late may be told of the next turn.
    pub(crate) fn ticked_at(&self, turn: u64) -> Option<usize> {
        let same = self.ticked_in.load(Acquire) == turn;
        Some(self.ticked_at.load(Relaxed)).filter(|&pc| same && pc != 0)
    }

    /// By this thread: it is here.
    pub(crate) fn note_cpu(&self) {
        self.cpu.store(thread::cpu(), Relaxed);
    }

    /// The CPU it is on, as far as anybody has noticed.
    pub(crate) fn cpu(&self) -> usize {
        self.cpu.load(Relaxed)
    }

    /// Lets this thread, which sleeps, run on one CPU only until it has woken up.
    fn bind(&self, cpu: usize) {
        let tid = self.tid.load(Relaxed);
        if let (Some(here), Some(may)) = (CpuSet::only(cpu), CpuSet::of(tid))
            && may != here
            && may.contains(&here)
            && here.bind(tid)
        {
            self.roams.set(Some(may));
        }
    }

    /// Pushes this thread from `cpu` to the next one that is `free`, of those it may run on, which are the same afterwards.
    pub(crate) fn push_from(&self, cpu: usize, free: impl Fn(usize) -> bool) {
        let tid = self.tid.load(Relaxed);
        let Some(may) = CpuSet::of(tid) else {
            return;
        };
        let others = std::iter::successors(may.after(cpu), |&next| may.after(next));
        let room = others.take(may.len() - 1).find(|&next| free(next));
        if let Some(room) = room
            && CpuSet::only(room).is_some_and(|there| there.bind(tid))
        {
            may.bind(tid);
            self.cpu.store(room, Relaxed);
        }
    }

    /// Gives a P to this idle thread together with the goroutine to run on it first.
    pub(crate) fn hand_with(&self, p: &P, g: &G) {
        self.first.store(ptr::from_ref(g).cast_mut(), Relaxed);
        self.hand_here(p);
    }

    /// The goroutine that came with the P.
    #[inline]
    pub(crate) fn take_first(&self) -> Option<&'static G> {
        if self.first.load(Relaxed).is_null() {
            return None;
        }
        // SAFETY: runnable, so its header is alive.
        unsafe { self.first.swap(ptr::null_mut(), Relaxed).as_ref() }
    }

    /// Sleeps until a P is handed over. None: there will be none. Async-signal-safe.
    pub(crate) fn wait_for_p(&self) -> Option<&'static P> {
        self.note_cpu();
        let p = loop {
            match self.inbox.take() {
                // Nobody is left to wake it.
                Found::Nothing if self.shared().is_copy() => fatal(format_args!("{COPY}")),
                Found::Nothing => futex::wait(self.inbox.word(), EMPTY),
                // SAFETY: Ps live as long as the runtime.
                Found::P(p) => break Some(unsafe { p.as_ref() }),
                Found::Closed => break None,
            };
        };
        self.note_cpu();
        set_coarse_ns(clock::now_ns());
        if let Some(everywhere) = self.roams.take() {
            everywhere.bind(0);
        }
        p
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_was_outside_if_it_was_seen_there_or_has_had_another_turn() {
        let p = P::new(0, 1);
        let (m, outside) = (M::new(0, ptr::null()), Outside::default());
        let was = || outside.was(m.look());
        m.take(&p);
        assert!(!was() && !was());
        m.leave();
        assert!(m.try_enter());
        assert!(was(), "it has left, and come back");
        assert!(was(), "for good");
        assert!(!m.outside.was(m.look()));
        m.leave();
        assert!(m.outside.was(m.look()));
        assert!(m.try_enter());
        assert!(m.outside.was(m.look()), "for good");
    }

    #[test]
    fn a_push_is_no_bond() {
        let m = M::new(0, ptr::null());
        m.tid.store(thread::tid(), Relaxed);
        let (may, here) = (CpuSet::of(0).unwrap(), thread::cpu());
        m.note_cpu();
        m.push_from(here, |_| false);
        assert_eq!(m.cpu(), here, "there was no room");
        m.push_from(here, |cpu| cpu != here);
        assert_eq!(CpuSet::of(0), Some(may));
        assert_eq!(m.cpu() == here, may.len() == 1);
    }
}

//! The threads of a runtime: made here, kept for reuse, ended when there are too many, waited for at the end.
//!
//! # Why a thread of its own
//! Making a thread allocates, and whoever finds out that one is needed is in RT (R1). The monitor must not either: a goroutine
//! that was preempted inside the allocator holds its lock until it has a P again, and the monitor is who sees to that. The
//! thread that runs this module may wait for such a lock; meanwhile Ps go to threads that exist (`Shared::start_m`).
//!
//! It also keeps threads clean: one made by an M that a goroutine has locked would inherit what that goroutine did to it
//! (namespaces, masks, limits). Here every thread descends from one that never ran user code, which is what Go's template
//! thread is for.
//!
//! # Sleeping
//! It sleeps on `word` until an M is wanted, or idle Ms have become too many; while there is something to return it wakes
//! every [`HOUSEKEEPING_NS`].
//!
//! # Context
//! May block and allocate. Takes the idle lock, nothing else under it.
//!
//! Tests: `tests/pool.rs`, `tests/stress_preempt_alloc.rs`.

use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::thread::{self, JoinHandle};
use std::{io, ptr};

use runnext_core::owner::State;
use runnext_core::park;
use runnext_sys::{clock, futex, limit, signal};

use super::call::Call;
use super::{Shared, drops, preempt, spawn, wait, worker};
use crate::dump;
use crate::fatal::fatal;
use crate::fences;
use crate::m::{M, Outside};
use crate::say;

/// Between rounds of housekeeping while there is something to return.
const HOUSEKEEPING_NS: u64 = 100_000_000;
/// Between two counts of the CPUs the process may use, while it is at work (Go's figure).
const CPUS_NS: u64 = 1_000_000_000;
/// Idle Ms kept for preemption, which cannot make threads: one to take over, one while the next is made.
const SPARES: usize = 2;
/// Stack of the threads that run no goroutines.
pub(super) const STACK: usize = 256 << 10;
/// Stack of an M's own thread: scheduler frames, and futures, which are polled there. Committed on touch; too small for the kernel to
/// put a huge page in it.
const WORKER_STACK: usize = 1 << 20;
/// How long to wait after the system refused a thread, and between looks at ending threads.
const RETRY_NS: u64 = 10_000_000;
const ENDING_NS: u64 = 50_000;

pub(crate) struct Threads {
    /// Grows with every reason to wake up.
    word: AtomicU32,
    wants_m: AtomicBool,
    wants_spare: AtomicBool,
    wants_dump: AtomicBool,
    /// The last M that was wanted could not be made.
    exhausted: AtomicBool,
    /// It knows that there are too many, and comes back to it.
    surplus: AtomicBool,
    /// By number; null where there is none.
    ms: Box<[AtomicPtr<M>]>,
    count: AtomicUsize,
    /// Threads that have begun, and that are about to be gone: for who must not take one for alive that is not.
    begun: AtomicUsize,
    gone: AtomicUsize,
    /// Made, and not yet at work or idle.
    starting: AtomicUsize,
    /// The runtime has stopped, and nobody is left who looks at Ms.
    unwatched: AtomicBool,
    /// The same, and nobody waits for those that are left: the last of them closes the poller.
    left_alone: AtomicBool,
    handle: std::sync::Mutex<Option<JoinHandle<()>>>,
}

impl Threads {
    pub(super) fn new(max_threads: usize) -> Threads {
        Threads {
            word: AtomicU32::new(0),
            wants_m: AtomicBool::new(false),
            wants_spare: AtomicBool::new(false),
            wants_dump: AtomicBool::new(false),
            exhausted: AtomicBool::new(false),
            surplus: AtomicBool::new(false),
            ms: (0..max_threads)
                .map(|_| AtomicPtr::new(ptr::null_mut()))
                .collect(),
            count: AtomicUsize::new(0),
            begun: AtomicUsize::new(0),
            gone: AtomicUsize::new(0),
            starting: AtomicUsize::new(0),
            unwatched: AtomicBool::new(false),
            left_alone: AtomicBool::new(false),
            handle: std::sync::Mutex::new(None),
        }
    }

    /// A P found no M. A signal handler may.
    pub(super) fn want_m(&self) {
        if !self.wants_m.swap(true, AcqRel) {
            self.poke();
        }
    }

    /// Whether a thread was wanted and could not be had.
    pub(super) fn is_exhausted(&self) -> bool {
        self.exhausted.load(Relaxed)
    }

    /// Somebody wants a dump of all goroutines. A signal handler may.
    pub(crate) fn want_dump(&self) {
        self.wants_dump.store(true, Release);
        self.poke();
    }

    /// Preemption needs an M in reserve while any P is at work.
    pub(super) fn check_spares(&self, shared: &Shared) {
        if self.lacks_spares(shared) {
            self.want_spare();
        }
    }

    pub(super) fn lacks_spares(&self, shared: &Shared) -> bool {
        let busy = shared.searchers.idle() < shared.procs();
        busy && shared.idle.lock().ms_len + self.starting.load(Relaxed) < SPARES
    }

    pub(super) fn want_spare(&self) {
        if !self.wants_spare.swap(true, AcqRel) {
            self.poke();
        }
    }

    /// Something may have become unused.
    pub(super) fn tidy(&self) {
        self.poke();
    }

    /// One more M is idle, of so many.
    pub(super) fn check_surplus(&self, shared: &Shared, idle: usize) {
        if idle > shared.procs() + SPARES && !self.surplus.swap(true, AcqRel) {
            self.poke();
        }
    }

    #[cold]
    fn poke(&self) {
        self.word.fetch_add(1, Release);
        futex::wake_one(&self.word);
    }

    /// Whether no M has a goroutine but such as wait with it. By the monitor, in a look, while no M is freed.
    pub(super) fn all_idle(&self) -> bool {
        let mut ms = self.ms.iter().filter_map(|slot| {
            // SAFETY: no M is freed during a look.
            unsafe { slot.load(Acquire).as_ref() }
        });
        ms.all(|m| m.state() == State::Nop && m.g().is_none_or(|g| g.state.get() == park::WAITING))
    }

    /// Shows every M. While it looks no M may be freed (`Observe::while_looking`).
    pub(crate) fn for_each(&self, mut f: impl FnMut(&M)) {
        for slot in &self.ms {
            // SAFETY: not freed meanwhile.
            if let Some(m) = unsafe { slot.load(Acquire).as_ref() } {
                f(m);
            }
        }
    }

    /// How many there are, with those that have ended and were not joined yet.
    pub(crate) fn count(&self) -> usize {
        self.count.load(Relaxed)
    }

    /// Which of them the system has for certain: as long as this says the same, none has come or gone, and it has at least so many.
    pub(super) fn alive(&self) -> Alive {
        let gone = self.gone.load(SeqCst);
        Alive {
            begun: self.begun.load(SeqCst),
            gone,
        }
    }
}

impl Threads {
    /// The calling thread, which was `m`, uses nothing of the runtime any more but its memory.
    fn leave(&self, shared: &Shared) {
        self.gone.fetch_add(1, SeqCst);
        shared.close_deserted();
    }

    /// Nobody waits for those that are left any more.
    pub(super) fn leave_alone(&self) {
        self.left_alone.store(true, SeqCst);
    }

    /// Whether none is left, and none comes. Of who leaves last and who says that nobody waits one sees the other.
    pub(super) fn is_deserted(&self) -> bool {
        self.left_alone.load(SeqCst) && self.alive().count() == 0
    }
}

/// The threads between their first and their last line. See [`Threads::alive`].
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) struct Alive {
    begun: usize,
    gone: usize,
}

impl Alive {
    pub(super) fn count(self) -> usize {
        self.begun - self.gone
    }
}

impl Drop for Threads {
    fn drop(&mut self) {
        for slot in &self.ms {
            let m = slot.load(Acquire);
            if !m.is_null() {
                // SAFETY: from `Box::into_raw`; its thread has ended, or it would keep the runtime alive.
                drop(unsafe { Box::from_raw(m) });
            }
        }
    }
}

impl Shared {
    /// No M dispatches anything from now on. Returns when all threads are gone but those that are inside an abandoned
    /// goroutine's code.
    pub(crate) fn stop(&self) {
        self.note_abandoned();
        {
            // A goroutine of another runtime may be the one to call: it is not preempted while it holds the lock.
            let _call = Call::brief();
            let mut idle = self.idle.lock();
            self.stopped.store(true, SeqCst);
            while let Some(m) = idle.pop_m() {
                m.send_on();
            }
        }
        // Who is in the runtime without having seen that is seen there from here on.
        fences::heavy();
        self.release_stopped();
        {
            let _call = Call::brief(); // as above, for the gate of the hub
            self.monitor.poke();
        }
        self.monitor.join(self);
        {
            let _call = Call::brief(); // as above
            self.gauges.close();
        }
        self.threads.unwatched.store(true, SeqCst);
        self.threads.poke();
        let handle = self.threads.handle.lock();
        let handle = handle.unwrap_or_else(|e| e.into_inner()).take();
        if let Some(handle) = handle {
            // It does not panic; if it did, its threads are as gone as they will be.
            let _ = handle.join();
        }
        self.note_abandoned(); // some may have been made meanwhile
    }

    /// Those who find goroutines of this runtime in a wait list look whether they are gone from now on, if there are any.
    fn note_abandoned(&self) {
        if self.live() != 0 || self.errands.load(SeqCst) != 0 {
            wait::note_abandoned();
        }
    }

    /// The runtime has stopped and abandoned the goroutine on this thread, which it cannot leave: both stay here. What the thread had of the runtime
    /// goes, as when it ends. In user context.
    #[cold]
    pub(super) fn freeze(&self, m: &M) -> ! {
        m.uninstall();
        if let Some(g) = m.g() {
            drops::carry_out_will(g);
        }
        let never = AtomicU32::new(0);
        while !self.threads.unwatched.load(SeqCst) {
            futex::wait_until(&never, 0, clock::now_ns() + ENDING_NS); // the monitor may still look
        }
        self.threads.leave(self);
        loop {
            futex::wait(&never, 0);
        }
    }

    /// Goroutines that were made to stop in the middle of their code go on, as nobody's: they may hold locks of the allocator, for which
    /// our own threads wait when they end, or make another. Nobody is made to stop from here on (`preempt::stop_here`), but at a call that may
    /// block (`call::stop_for_good`). So do those that wait for a P with their thread, in whatever call: they may hold locks too, and their threads what the runtime
    /// has. One that begins to wait later does not: its thread has been sent on before (`runnext_core::inbox`). A thread without a goroutine gets none any more,
    /// and takes the P it may be about to be handed.
    ///
    /// After a heavy fence: who goes into RT from then on sees that all has stopped, so it is enough that each M was outside once.
    fn release_stopped(&self) {
        loop {
            let mut again = false;
            {
                let _call = Call::brief(); // as in `stop`
                self.monitor.while_looking(|| {
                    self.threads.for_each(|m| {
                        m.note.leave_last();
                        // In this order: who is seen to have no P has said before whether it sleeps in the handler.
                        again |= !m.outside.was(m.look());
                        again |= m.in_handler.load(Relaxed);
                        if m.g().is_some() {
                            m.send_on();
                        }
                    });
                });
            }
            if !again {
                return;
            }
            futex::wait_until(&AtomicU32::new(0), 0, clock::now_ns() + ENDING_NS);
        }
    }
}

/// Starts the thread that makes the others, and has it make the first M: a runtime without any could run nothing, and whoever waited for
/// that would do so for ever.
pub(crate) fn start(shared: &Arc<Shared>) -> io::Result<()> {
    let (tell, told) = mpsc::sync_channel(1);
    let maker = Maker {
        shared: Arc::clone(shared),
        threads: Vec::new(),
        refused: false,
        retry_at: 0,
        retry_spare_at: 0,
        next_housekeeping: 0,
        next_count: 0,
    };
    let handle = thread::Builder::new()
        .name("runnext-threads".into())
        .stack_size(STACK)
        .spawn(move || maker.run(&tell))?;
    *shared
        .threads
        .handle
        .lock()
        .unwrap_or_else(|e| e.into_inner()) = Some(handle);
    let ended = |_| io::Error::other("the thread that makes the others has ended");
    told.recv().map_err(ended)?
}

struct Thread {
    id: u32,
    handle: JoinHandle<()>,
    /// Since this thread knows that all has stopped.
    outside: Outside,
}

/// What the thread keeps to itself.
struct Maker {
    shared: Arc<Shared>,
    threads: Vec<Thread>,
    /// The system refused a thread, and we said so.
    refused: bool,
    /// Before this no M is made: the last could not be. Nor, before the second, a spare one, which is wanted again at the next looks; that one is never
    /// the earlier.
    retry_at: u64,
    retry_spare_at: u64,
    next_housekeeping: u64,
    next_count: u64,
}

impl Maker {
    fn run(mut self, tell: &mpsc::SyncSender<io::Result<()>>) {
        let shared = Arc::clone(&self.shared);
        let word = &shared.threads.word;
        let first = self.make_first();
        let _ = tell.send(first); // somebody waits for it
        loop {
            let seen = word.load(Acquire);
            // Before the look at the wish: who stops the runtime takes it out of what dumps show first, so none comes after that.
            let stopped = shared.stopped.load(SeqCst);
            if shared.threads.wants_dump.swap(false, AcqRel) {
                dump::serve(&shared);
            }
            if stopped {
                return self.wait_for_threads();
            }
            let now = clock::now_ns();
            let retry = self.make_wanted(now);
            let housekeeping = self.keep_house(now);
            futex::wait_until(word, seen, housekeeping.min(retry));
        }
    }

    /// Makes the first M, and returns when it is idle: before that, whoever starts a goroutine would ask for another one, which may be one
    /// too many.
    fn make_first(&mut self) -> io::Result<()> {
        self.make_m()?;
        while !self.shared.has_idle_m() {
            thread::yield_now();
        }
        Ok(())
    }

    /// Makes the threads that were asked for. Returns when to come back to those that could not be made.
    fn make_wanted(&mut self, now: u64) -> u64 {
        let shared = Arc::clone(&self.shared);
        let all = &shared.threads;
        let wanted = now >= self.retry_at && all.wants_m.swap(false, AcqRel);
        let spare = now >= self.retry_spare_at && all.wants_spare.swap(false, AcqRel);
        if wanted || spare {
            match self.make_m() {
                Ok(()) => (self.retry_at, self.retry_spare_at) = (0, 0),
                Err(e) => self.do_without(wanted, &e, now),
            }
        }
        // Who asks meanwhile finds that somebody has asked already, and does not wake this thread.
        let when = |wish: &AtomicBool, at| if wish.load(Acquire) { at } else { u64::MAX };
        let retry_spare = when(&all.wants_spare, self.retry_spare_at);
        when(&all.wants_m, self.retry_at).min(retry_spare)
    }

    /// No thread could be made; `wanted`: and not only as a spare, without which there is just less preemption.
    fn do_without(&mut self, wanted: bool, e: &io::Error, now: u64) {
        let shared = Arc::clone(&self.shared);
        self.retry_spare_at = now + RETRY_NS;
        if !wanted {
            return;
        }
        if shared.has_idle_m() {
            shared.threads.exhausted.store(false, Relaxed);
            return shared.rouse();
        }
        self.complain(e);
        self.retry_at = now + RETRY_NS;
        shared.threads.wants_m.store(true, Release);
        if !shared.threads.exhausted.swap(true, Relaxed) {
            shared.monitor.poke(); // it stands in for who is missing
            shared.rouse(); // those who bring their threads were passed over until now
        }
    }

    fn make_m(&mut self) -> io::Result<()> {
        self.reap();
        let all = &self.shared.threads;
        let Some(id) = (0..all.ms.len()).find(|&i| all.ms[i].load(Relaxed).is_null()) else {
            return Err(io::Error::other(format!(
                "all {} threads a runtime may have are in use, each blocked, locked or stopped with a goroutine; raise \
                 Builder::max_threads or RUNNEXT_MAX_THREADS",
                all.ms.len()
            )));
        };
        let m = Box::into_raw(Box::new(M::new(id as u32, Arc::as_ptr(&self.shared))));
        all.ms[id].store(m, Release);
        let shared = Arc::clone(&self.shared);
        // SAFETY: freed only after this thread has ended (`reap`), or with the runtime, which the thread keeps alive.
        let own: &'static M = unsafe { &*m };
        all.starting.fetch_add(1, Relaxed);
        let made = thread::Builder::new()
            .name(format!("runnext-{id}"))
            .stack_size(WORKER_STACK)
            .spawn(move || thread_main(own, shared));
        match made {
            Ok(handle) => {
                self.threads.push(Thread {
                    id: id as u32,
                    handle,
                    outside: Outside::default(),
                });
                all.count.store(self.threads.len(), Relaxed);
                self.refused = false;
                all.exhausted.store(false, Relaxed);
                Ok(())
            }
            Err(e) => {
                all.starting.fetch_sub(1, Relaxed);
                all.ms[id].store(ptr::null_mut(), Release);
                self.let_looks_end();
                // SAFETY: the thread was not made, and nobody looks at it any more.
                drop(unsafe { Box::from_raw(m) });
                Err(limit::explain(e))
            }
        }
    }

    /// Joins threads that have ended and frees their Ms.
    fn reap(&mut self) {
        while let Some(i) = self.threads.iter().position(|t| self.has_left(t)) {
            let id = self.join(i);
            let m = self.shared.threads.ms[id as usize].swap(ptr::null_mut(), AcqRel);
            self.let_looks_end(); // no P names it any more, but one may have begun while one did
            // SAFETY: its thread has ended; only this thread frees Ms.
            drop(unsafe { Box::from_raw(m) });
        }
    }

    /// Whether joining a thread takes no time. After its last line its thread-locals are destroyed, by code of the program's, which may want another thread: nobody
    /// who makes threads may wait for that. The system has no clock any more of one that is gone.
    fn has_left(&self, thread: &Thread) -> bool {
        // SAFETY: not reaped, so alive.
        let m = || unsafe { &*self.shared.threads.ms[thread.id as usize].load(Acquire) };
        thread.handle.is_finished() && m().cpu_ns().is_none()
    }

    /// Joins a thread that has ended, and returns which M it was.
    fn join(&mut self, i: usize) -> u32 {
        let ended = self.threads.swap_remove(i);
        let _ = ended.handle.join();
        self.shared.threads.count.store(self.threads.len(), Relaxed);
        ended.id
    }

    /// Returns when no look is under way that may have found an M which is in no table any more.
    fn let_looks_end(&self) {
        self.shared.monitor.let_look_end();
        self.shared.observe.let_look_end();
    }

    fn complain(&mut self, e: &io::Error) {
        if !self.refused {
            self.refused = true;
            let threads = self.threads.len();
            say::line(format_args!(
                "runnext: cannot make another thread: {e}. Goroutines that are runnable wait until one of the {threads} \
                 threads is free."
            ));
        }
    }

    /// Returns what has not been needed for a while: threads, memory. Returns when to do so next.
    fn keep_house(&mut self, now: u64) -> u64 {
        if now < self.next_housekeeping {
            return self.next_housekeeping;
        }
        let shared = Arc::clone(&self.shared);
        shared.threads.surplus.store(false, SeqCst);
        let surplus = {
            let mut idle = shared.idle.lock();
            let surplus = idle.ms_len.saturating_sub(shared.procs() + SPARES);
            // Half of them each time: a burst that comes back finds some.
            for _ in 0..surplus.div_ceil(2) {
                if let Some(m) = idle.pop_m() {
                    m.send_on();
                }
            }
            surplus
        };
        self.reap();
        if now >= self.next_count {
            self.next_count = now + CPUS_NS;
            shared.follow_system();
            if shared.config.preemption {
                preempt::check_handler();
            }
        }
        let more = shared.stacks.trim();
        self.next_housekeeping = now + HOUSEKEEPING_NS;
        let ending = self.threads.iter().any(|t| t.handle.is_finished());
        if surplus > 0 || more || ending {
            self.next_housekeeping
        } else {
            u64::MAX
        }
    }

    /// The runtime has stopped: all threads go, but those inside an abandoned goroutine. Their Ms go with the runtime: whoever has found a goroutine that
    /// waited with its thread may hand a P to that thread when it has long been sent on, and has ended.
    fn wait_for_threads(mut self) {
        loop {
            // Nobody wants a thread any more: whatever they do last is waited for.
            while let Some(i) = self.threads.iter().position(|t| t.handle.is_finished()) {
                self.join(i);
            }
            let mut waits = false;
            for t in &self.threads {
                // SAFETY: not reaped, so alive.
                let m = unsafe { &*self.shared.threads.ms[t.id as usize].load(Acquire) };
                let inside = !t.outside.was(m.look());
                waits |= m.g().is_none() || inside;
            }
            if !waits {
                return; // the others are detached
            }
            futex::wait_until(&AtomicU32::new(0), 0, clock::now_ns() + ENDING_NS);
        }
    }
}

fn thread_main(m: &'static M, shared: Arc<Shared>) {
    shared.threads.begun.fetch_add(1, SeqCst);
    m.install();
    // Without it a stack overflow kills without a word, which is not a reason to refuse to run.
    let _alt_stack = signal::AltStack::install();
    let timer = preempt::slice_timer(m);
    shared.threads.starting.fetch_sub(1, Relaxed);
    let unwinds = Unwinds;
    worker::run(m);
    std::mem::forget(unwinds);
    drop(timer);
    m.uninstall();
    if shared.stopped.load(SeqCst) {
        shared.drop_queued(); // futures that this one has left, or polled last
    }
    let frees = m.frees.get();
    shared.threads.leave(&shared);
    if frees {
        // SAFETY: the slab has told this M so, and nobody else.
        unsafe { spawn::free_orphaned(&shared) };
    }
    drop(shared);
}

/// On the way out of a scheduler that panicked: its P would be lost, and the monitor look at an M that was freed.
struct Unwinds;

impl Drop for Unwinds {
    fn drop(&mut self) {
        fatal(format_args!("the scheduler panicked, as said above"));
    }
}

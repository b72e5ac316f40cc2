//! Preemption: the thread stops with its goroutine, and the P goes on with another thread.
//!
//! # Why this shape
//! Rust code has no compiler-made safe points. Switching stacks inside a signal handler would move a goroutine that may be
//! inside `malloc`, hold any lock, or be in the middle of a thread-local access. So nothing is moved: the handler puts
//! *this thread* to sleep, with everything it holds, queues its goroutine as one that must go on here (`G::wired`), and
//! hands the P to a spare M. Any code can be stopped anywhere, foreign code included.
//! Rejected: switching in the handler (deadlocks in `malloc`); flags that only loops with checkpoints see.
//!
//! # Who asks
//! | what                               | how it reaches the thread                          | when                       |
//! |------------------------------------|-----------------------------------------------------|----------------------------|
//! | its slice is used up               | its own CPU-time timer: only a thread that burns CPU gets the signal, on its way to user code, so no system call is cut short | every `time_slice` of CPU  |
//! | a light goroutine waits ([`MIN_RUN_NS`]) | a signal to it, after looking that the thread is on a CPU | monitor                    |
//! | its slice is used up, and the system refused it a timer | the same                                 | monitor                    |
//!
//! # Protocol, in the handler
//! 1 a signal that is not ours: pass it on; ours, and no worker: nothing  2 in RT: leave a note, looked at on the way out
//! 3 robbed: it has no right to run; get a P or queue for one  4 USER: nobody else to run: return
//! 5 USER→RT (a robber may be faster)  6 choose the next goroutine; it needs a sleeping thread: its own if it is
//! wired, else an idle M; none: return, and ask for one (`threads`)  7 queue own goroutine, hand the P over, sleep
//!
//! # Invariants
//! I1  In USER the thread holds no runtime lock, so the handler may take them. Inside (`M::is_inside`) it may hold any, the poller's gate too: there the
//!     handler takes none, and so does not poke the monitor.
//! I2  A request may be lost, never misdelivered: the slice number says whether it is still the same turn (`note`, `M::timer_slice`).
//!
//! # Context
//! Async-signal-safe: no allocation, no foreign lock, errno kept. On the alternate stack, where it may sleep for long.
//!
//! Tunables: [`MIN_RUN_NS`], [`MIN_RUN_AT_HOME_NS`]. `bench tail` is the measure: the light p99 against the heavy throughput. With 1 ms, 0.5, 0.3 and 0.2 for hogs
//! at home p99 was 1.3, 0.8, 0.6 and 0.5 ms, and the throughput the same. The 1 ms of light ones protects requests of that size from each other: with 0.2 ms
//! p50 of requests of 0.4 ms at a load of 0.9 (`bench tail clients=0 light_us=400 rate=3400`) was 2.6 - 4.1 ms in place of 1.2. New ones are light, too: a server that
//! starts a goroutine for each request would stop one for each that comes, and at a load of 0.8 do little else.

mod sites;

use std::ffi::c_void;
use std::io;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, Ordering::*, fence};

use runnext_core::owner::{Home, State};
use runnext_sys::signal::{self, CpuTimer, Previous};
use runnext_sys::{clock, errno, thread};

use super::call::enter_slow;
use super::wired::resume_wired;
use super::{Shared, worker};
use crate::g::G;
use crate::m::{self, M};
use crate::observe::Why;
use crate::observe::event::Kind;
use crate::p::P;
use crate::say;

pub(crate) use sites::Sites;

/// The signal; SIGURG unless `RUNNEXT_DEBUG=preemptsignal=n` says otherwise. One per process.
static SIGNAL: OnceLock<(i32, Previous)> = OnceLock::new();

/// How long a light goroutine runs, of CPU time, before another that an event woke may take its P; and a hog whose own children wait.
pub(super) const MIN_RUN_NS: u64 = 1_000_000;
const MIN_RUN_AT_HOME_NS: u64 = 200_000;

/// Why a goroutine is stopped, and whether it counts from now on as one that runs on and on.
#[derive(Clone, Copy)]
pub(super) struct Stop {
    pub(super) why: Why,
    blamed: bool,
}

impl Stop {
    pub(super) fn weigh(self, shared: &Shared, g: &G) {
        if self.blamed {
            shared.blame(g);
        }
    }
}

impl Shared {
    /// It ran on until it was made to stop.
    pub(super) fn blame(&self, g: &G) {
        if g.is_fresh() {
            self.sites.saw_hog(g.site());
        }
        g.gain_weight();
    }

    /// It waits, or ends.
    #[inline(always)] // at every end and every wait
    pub(super) fn acquit(&self, g: &G) {
        if g.is_fresh() {
            self.sites.saw_light(|| g.site());
        }
    }

    /// Whether it is a hog, or is presumed to be one because others from the same place are.
    pub(super) fn may_hog(&self, g: &G) -> bool {
        !g.is_light() || g.is_fresh() && self.sites.start_hogs(g.site())
    }
}

/// How long this one is left alone, from when the monitor first saw it. Hogs are not, nor those of whom the same is presumed: they lose nothing but their turn.
pub(super) fn min_run(shared: &Shared, g: &G) -> u64 {
    if shared.may_hog(g) { 0 } else { MIN_RUN_NS }
}

/// The same where those who wait are its own P's: mostly its children, so a hog too may go on for a while.
pub(super) fn min_run_at_home(shared: &Shared, g: &G) -> u64 {
    min_run(shared, g).max(MIN_RUN_AT_HOME_NS)
}

/// Installs the handler. Called by every `build`; acts once, so the first runtime's signal is the process's.
pub(crate) fn install(signo: i32) -> io::Result<()> {
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = INSTALLING.lock().unwrap_or_else(|e| e.into_inner());
    if SIGNAL.get().is_none() {
        // Known before the handler can run, so that it always has somewhere to pass a signal on to.
        let _ = SIGNAL.set((signo, Previous::current(signo)?));
        // SAFETY: the handler is async-signal-safe and passes on what is not ours.
        unsafe { signal::install(signo, on_signal)? };
    }
    Ok(())
}

/// Says so, once, if somebody has put another handler in the place of ours: from then on no goroutine is preempted, unless that one chains. Ours is not put back, as the other may want
/// the signal, and nobody can tell when it is done with it. By a thread that may allocate.
pub(super) fn check_handler() {
    static SAID: AtomicBool = AtomicBool::new(false);
    let Some((signo, _)) = SIGNAL.get() else {
        return;
    };
    let lost = || Previous::current(*signo).is_ok_and(|now| !now.is(on_signal));
    if !SAID.load(Relaxed) && lost() && !SAID.swap(true, Relaxed) {
        say::line(format_args!(
            "runnext: another handler of signal {signo} was installed after the runtime's: goroutines are not preempted while it is there, unless it calls the one it replaced. Install it before the first \
             Runtime is built, which passes signals on, or give the runtime another signal: RUNNEXT_DEBUG=preemptsignal=34"
        ));
    }
}

/// The timer that ends slices on the calling thread, an M.
pub(super) fn slice_timer(m: &M) -> Option<CpuTimer> {
    let config = &m.shared().config;
    let (signo, _) = SIGNAL.get()?;
    if !config.preemption {
        return None;
    }
    signal::unblock(*signo);
    // Refused (RLIMIT_SIGPENDING): the monitor ends slices by itself.
    let timer = CpuTimer::new(thread::tid(), *signo, config.time_slice).ok();
    m.is_timed.store(timer.is_some(), Relaxed);
    timer
}

unsafe extern "C" fn on_signal(signo: i32, info: *mut signal::siginfo_t, context: *mut c_void) {
    let error = errno::get();
    // SAFETY: the kernel gave us this siginfo.
    let (timer, sent) = unsafe { (signal::from_timer(info), signal::from_request(info)) };
    let m = m::current();
    // Of several pending signals with one number the kernel delivers one: whichever this is, a request may have come with it.
    let asked = m.is_some_and(|m| m.signalled.swap(false, Relaxed));
    match m {
        Some(m) if timer => {
            // SAFETY: the kernel gave us this context.
            m.note_tick(unsafe { signal::pc(context) });
            // SAFETY: the kernel gave us this siginfo, for a timer.
            slice_over(m, unsafe { signal::periods(info) });
        }
        // Ours, whether or not somebody still waits for it, or the thread is an M still: its timer may outlive that (`Shared::freeze`). So is one of which the kernel
        // kept only the number, at the limit of pending signals, if a request is on its way.
        // SAFETY: the kernel gave us this siginfo.
        _ if sent || timer || asked && unsafe { signal::is_bare(info) } => {}
        _ => {
            if let Some((_, previous)) = SIGNAL.get() {
                // SAFETY: with the arguments the kernel gave us.
                unsafe { previous.chain(signo, info, context) };
            }
        }
    }
    // It may have given way to the note meanwhile; then there is nothing to do, and nobody to pass it on to.
    if let Some(m) = m
        && asked
        && m.note.is_for_calls()
    {
        stop_here(m, Why::Wakeup);
    }
    errno::set(error);
}

/// The thread has burnt a slice's worth of CPU, or several; whether in one turn, the slice number tells (I2).
fn slice_over(m: &'static M, slices: u64) {
    m.note_cpu();
    let inside = m.is_inside();
    if !inside {
        m.shared().monitor.note_work();
    }
    match m.state() {
        State::User | State::Rt => {}
        State::Robbed if !inside && !m.is_shielded() => return get_in_line(m),
        _ => return,
    }
    // SAFETY: Ps live as long as the runtime; in USER another may have it by now, and then the numbers differ.
    let Some(p) = (unsafe { m.p_ptr().as_ref() }) else {
        return;
    };
    if !p.groups.is_on()
        && let Some(g) = m.g()
    {
        // Whoever runs when the timer ticks, for all that ran since its last tick: those that never run for long have their part by chance.
        g.charge(slices * m.shared().config.time_slice.as_nanos() as u64);
    }
    p.cpu.store(m.cpu(), Relaxed);
    let slice = p.slice.load(Relaxed);
    if m.timer_slice.replace(slice) != slice {
        return; // a new turn since the last tick
    }
    p.expired.store(true, Relaxed);
    if !inside && p.timers.next() != u64::MAX {
        m.shared().monitor.watch_until(p.timers.next()); // it was taken for one that does not run for long
    }
    stop_here(m, Why::Slice);
}

/// It was taken for blocked, and is not: without a P it has no right to burn CPU.
fn get_in_line(m: &'static M) {
    if m.g().is_none() || m.shared().stopped.load(Relaxed) {
        return;
    }
    m.in_handler.store(true, Relaxed);
    fence(SeqCst); // as in `stop_here`: `enter_slow` looks whether all has stopped
    if enter_slow(m) {
        m.timer_slice.set(m.p().slice.load(Relaxed));
        m.leave_to_user(); // ROBBED: it was in no section
    }
    m.in_handler.store(false, Relaxed);
}

/// Gives way, now if possible.
fn stop_here(m: &'static M, why: Why) {
    let shared = m.shared();
    if m.is_inside() || m.is_shielded() {
        if why == Why::Slice {
            m.note.leave(m.timer_slice.get(), true);
        }
        return; // the note is read on the way out, or when the shield goes
    }
    if shared.stopped.load(Relaxed) {
        return; // it runs on to its next call, where a note waits
    }
    let asked = m.note.take();
    if !waits(shared, m) || m.home.get() != Home::User || !m.try_enter() {
        return put_back_last(m);
    }
    let (Some(g), p) = (m.g(), m.p()) else {
        put_back_last(m);
        return m.leave();
    };
    // Seen in RT, or it sees that all has stopped: `Shared::release_stopped` wakes everybody who sleeps here, once.
    fence(SeqCst);
    if shared.stopped.load(Relaxed) {
        put_back_last(m);
        return m.leave();
    }
    let asked = asked.filter(|asked| asked.slice == p.slice.load(Relaxed));
    let blamed = why == Why::Slice || asked.is_some_and(|asked| asked.blamed);
    if why != Why::Slice && asked.is_none() {
        return m.leave(); // who was meant has gone by itself
    }
    m.in_handler.store(true, Relaxed);
    if !hand_over(shared, m, g, p, Stop { why, blamed }) {
        m.in_handler.store(false, Relaxed);
        return m.leave();
    }
    shared
        .observe
        .preempted(why, asked.map_or(0, |asked| asked.at), g);
    let resumed = resume_wired(m, g);
    shared.stranded.fetch_sub(1, Relaxed);
    m.in_handler.store(false, Relaxed);
    if resumed {
        // Its CPU clock stood still meanwhile: the next tick is one full slice from here.
        m.timer_slice.set(m.p().slice.load(Relaxed));
        m.leave();
    } // else all has stopped: it runs on, as nobody's, to its next call
}

/// The note that was taken may have been the last, left since the look whether all has stopped: whoever took that sees here that all has, and leaves it
/// for the next call.
fn put_back_last(m: &M) {
    if m.shared().stopped.load(Relaxed) {
        m.note.leave_last();
    }
}

/// Is there anything else to run on this thread's P? Read in USER: a moment's view.
fn waits(shared: &Shared, m: &M) -> bool {
    // SAFETY: Ps live as long as the runtime.
    unsafe { m.p_ptr().as_ref() }.is_some_and(|p| shared.waits_for(p))
}

/// Queues `g` and gives the P to the thread that runs the next goroutine. False: there is none, and it goes on, on a slice
/// of its own.
fn hand_over(shared: &Shared, m: &M, g: &G, p: &P, stop: Stop) -> bool {
    if p.groups.is_on() {
        return shared.hand_over_turn(m, g, p, stop);
    }
    let Some((owner, first)) = next_thread(shared, p, stop.why) else {
        return false;
    };
    stop.weigh(shared, g);
    p.eye.stopped_runnable(Kind::Preempt, stop.why as u32, g, m);
    g.wire(m);
    g.state.set_runnable();
    m.give_up();
    shared.stranded.fetch_add(1, Relaxed);
    // SAFETY: runnable, and in no queue.
    unsafe {
        // Who is presumed a hog has not had its turn yet; among the urgent ones the next that is stopped would have to let it go first.
        if g.is_light() && shared.may_hog(g) {
            shared.push_global_front(g.ptr());
        } else {
            shared.push_global(g.ptr());
        }
    }
    shared.wake_one(); // another P may have become idle since its search, when there was nothing to find
    shared.threads.check_spares(shared);
    if let Some(next) = first.or_else(|| owner.g()) {
        shared.watch_timers(p, next);
    }
    // Last: the kernel may run that thread in place of this one at once, and this one when that has computed for a while.
    match first {
        Some(next) => owner.hand_with(p, next),
        None => owner.hand_here(p),
    }
    true
}

/// The thread that takes over a P, and the goroutine it runs if that is not its own. None: there is none.
fn next_thread(shared: &Shared, p: &P, why: Why) -> Option<(&'static M, Option<&'static G>)> {
    // First: nobody is taken from where other Ps would find it, for want of a thread to run it here.
    if shared.has_idle_m() {
        let next = choose(shared, p, why)?;
        if let Some(owner) = next.wired_to() {
            return Some((owner, None));
        }
        if let Some(spare) = shared.idle.lock().pop_m() {
            return Some((spare, Some(next)));
        }
        // Somebody was faster.
        // SAFETY: it was queued, so it is runnable, and now in no queue.
        unsafe { shared.push_global(next.ptr()) };
        shared.wake_one();
    }
    shared.threads.want_m();
    // One that brings its own thread will do.
    let owner = shared.take_wired()?;
    p.fresh_slice();
    Some((owner, None))
}

/// The next goroutine of this P, without a search: who interrupts another has one in mind.
fn choose(shared: &Shared, p: &P, why: Why) -> Option<&'static G> {
    if why == Why::Wakeup {
        p.put_off_global();
    }
    if shared.seat.any_timers() {
        shared.run_all_timers(p, clock::now_ns()); // it may be another's for which this P was asked
    }
    // SAFETY: queued, so alive.
    worker::next_of_root(shared, p).map(|g| unsafe { g.as_ref() })
}

/// Asks an M to give way, in the turn `slice`: by a note if it is in the runtime, by a signal if it computes. True: it was asked.
pub(super) fn request(m: &M, slice: u32, blamed: bool) -> bool {
    let Some((signo, _)) = SIGNAL.get() else {
        return false;
    };
    m.note.leave(slice, blamed);
    if m.state() != State::User {
        return true;
    }
    // The note alone is not enough here, even an old one: the thread may have looked for it just before it was left.
    if m.signalled.swap(true, Relaxed) {
        return false; // one at a time
    }
    let sent = signal::request(m.tid(), *signo).is_ok();
    if !sent {
        m.signalled.store(false, Relaxed);
    }
    sent
}

#[cfg(test)]
mod tests;

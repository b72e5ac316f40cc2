//! `blocking`: a call that may sit in the kernel, or in foreign code, for long.
//!
//! The goroutine keeps its thread and, at first, its P. In the BLK state the monitor may take the P as soon as it has seen the same
//! section in two looks, without asking the kernel whether the thread really sleeps. So short sections cost a few stores, and long
//! ones cost the P's other goroutines the time between two looks of the monitor. Giving the P away on entry would cost two thread
//! switches each time, which is thousands of times as much (`bench syscall` has the price as it is).

use std::ptr;

use runnext_core::owner::Home;

use super::call::Call;
use super::groups;
use super::timers::NEVER;
use crate::m::{self, M};
use crate::observe::event::Kind;
use crate::p::bump;

/// Runs `f`, which may block the thread, without holding up other goroutines: its processor is given to another thread
/// if it takes long.
///
/// Unmarked blocking calls are noticed too; the mark makes it sooner and cheaper. Goroutine calls inside `f` work.
///
/// It is for waiting, not for computing: a thread that computes here is not preempted, and once its processor was taken it computes beside the processors. What it
/// computes before that counts against weight and quota of its [`TaskGroup`](crate::TaskGroup), what comes after does not; the group shows all of it apart
/// (`blocking_time`).
///
/// # Blocks
/// The goroutine, for as long as `f` takes, and until it has a processor again.
///
/// # Example
/// ```
/// #[runnext::main(procs = 1)]
/// fn main() {
///     let slow = runnext::go(|| {
///         runnext::blocking(|| std::thread::sleep(std::time::Duration::from_millis(5)));
///         "slow"
///     });
///     assert_eq!(slow.join().unwrap(), "slow");
/// }
/// ```
pub fn blocking<F, T>(f: F) -> T
where
    F: FnOnce() -> T,
{
    let Some(m) = m::current() else { return f() };
    if m.home.get() == Home::Blk {
        return f(); // nested: the section is open already
    }
    let section = Section { since: open(m) };
    let value = f();
    drop(section);
    value
}

/// Closes the section, also when `f` unwinds.
struct Section {
    /// When it opened, if a group is to be told.
    since: u64,
}

impl Drop for Section {
    #[inline]
    fn drop(&mut self) {
        // `f` may have parked and come back on another thread.
        let Some(m) = m::current() else { return };
        let observe = &m.shared().observe;
        observe.section_closed(m.id);
        let kept = m.leave_blocking();
        if kept && !observe.is_tracing() {
            m.home.set(Home::User);
        } else {
            let call = Call::enter(); // the P is gone: get one, still as one in a section
            if let Some(m) = call.m() {
                m.home.set(Home::User);
                let g = m.g().map_or(ptr::null(), ptr::from_ref);
                m.p().eye.note(Kind::BlockOut, 0, g);
            }
        }
        if self.since != 0 {
            groups::unblocked(self.since, kept);
        }
    }
}

#[inline]
fn open(m: &'static M) -> u64 {
    let call = Call::brief_with_p();
    m.home.set(Home::Blk);
    bump(&m.p().stats.sections);
    m.p()
        .eye
        .note(Kind::BlockIn, 0, m.g().map_or(ptr::null(), ptr::from_ref));
    if m.p().has_work() || m.p().has_grouped() || m.shared().has_global() {
        m.shared().monitor.work_waits(false);
    }
    if m.p().timers.next() != NEVER {
        m.shared().monitor.watch_until(m.p().timers.next());
    }
    let since = groups::blocked(m.p());
    drop(call);
    since
}

//! A timer on one thread's CPU time, which signals one thread: the source of preemption.
//!
//! It runs only while the thread runs, so a thread that sleeps is never disturbed, and it fires on
//! the way back to user mode, so that no system call is interrupted. The kernel looks at it on its
//! own tick (`CONFIG_HZ`, 1 to 10 ms): shorter periods do not fire more often.

use super::COOKIE;
use crate::{check, clock, syscall};
use libc::{itimerspec, sigevent};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::time::Duration;

/// Sends a signal for each `period` of CPU time that the thread which made it burns.
/// Dropping it stops it; so does the end of the thread.
///
/// ```
/// use runnext_sys::{signal::{CpuTimer, SIGURG}, thread};
/// use std::time::Duration;
/// // SIGURG is ignored unless a handler is installed.
/// let timer = CpuTimer::new(thread::tid(), SIGURG, Duration::from_millis(10))?;
/// timer.set_period(Duration::ZERO); // stopped
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct CpuTimer {
    id: i32,
}

impl CpuTimer {
    /// Starts a timer on the *calling* thread's CPU clock that sends `signo` to thread `tid` of
    /// this process (normally the same one), in a way that its handler can tell
    /// ([`from_timer`](super::from_timer)).
    ///
    /// # Errors
    /// `EINVAL` for a thread or signal that does not exist, `EAGAIN` at the limit of pending
    /// signals (`ulimit -i`).
    pub fn new(tid: i32, signo: i32, period: Duration) -> io::Result<Self> {
        // SAFETY: integers and a null pointer, for which zero is valid.
        let mut event: sigevent = unsafe { MaybeUninit::zeroed().assume_init() };
        event.sigev_notify = libc::SIGEV_THREAD_ID;
        event.sigev_signo = signo;
        event.sigev_notify_thread_id = tid;
        event.sigev_value.sival_ptr = (&raw const COOKIE).cast_mut().cast(); // only compared
        let mut id = 0i32;
        let clock = libc::CLOCK_THREAD_CPUTIME_ID;
        // SAFETY: event and id are alive, and have the kernel's layout. (libc's timer_create would
        // only wrap the id.)
        check(unsafe { syscall!(libc::SYS_timer_create, clock, &raw mut event, &raw mut id) })?;
        let timer = CpuTimer { id };
        timer.set_period(period);
        Ok(timer)
    }

    /// Changes the period, from now on, from any thread. Zero stops the timer.
    pub fn set_period(&self, period: Duration) {
        let period = clock::timespec(u64::try_from(period.as_nanos()).unwrap_or(u64::MAX));
        let spec = itimerspec {
            it_interval: period,
            it_value: period,
        };
        let none = ptr::null_mut::<itimerspec>();
        // SAFETY: the timer is ours and the specification alive. Fails only if the thread has
        // ended, when there is nothing left to time.
        unsafe { syscall!(libc::SYS_timer_settime, self.id, 0, &raw const spec, none) };
    }
}

impl Drop for CpuTimer {
    fn drop(&mut self) {
        // SAFETY: ours, and not used again.
        unsafe { syscall!(libc::SYS_timer_delete, self.id) };
    }
}

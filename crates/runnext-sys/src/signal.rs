//! Signals: handlers that chain to what was there before, alternate stacks, timers on CPU time,
//! and dying by a signal so that the parent sees it.
//!
//! # Why this shape
//! A library is a guest in the process. The program, its crash reporter or a sanitizer may have
//! handlers of their own, so every installation returns the [`Previous`] disposition and a handler
//! that has no business with a signal passes it on with [`Previous::chain`]. std's stack-overflow
//! report is such a previous handler.
//!
//! # Chaining
//! What `chain` does with a signal is what the kernel would have done had we never come:
//!
//! | previous disposition       | a fault (kernel, synchronous)     | anything else               |
//! |----------------------------|-----------------------------------|-----------------------------|
//! | handler, either kind       | called, with its mask             | called, with its mask       |
//! | one-shot, already called   | as default                        | as default                  |
//! | ignore                     | as default: the kernel forces it  | nothing                     |
//! | default: ignore, continue  |                                   | nothing                     |
//! | default: stop              |                                   | stops, and may be continued |
//! | default: die               | default restored; faults again    | default restored; raised    |
//!
//! A previous handler runs where ours does, on the alternate stack, and with the signal blocked,
//! even if it did not ask for that.
//!
//! ```
//! use runnext_sys::{signal, thread};
//! use std::sync::OnceLock;
//!
//! static PREVIOUS: OnceLock<signal::Previous> = OnceLock::new();
//!
//! unsafe extern "C" fn handler(n: i32, info: *mut signal::siginfo_t, ctx: *mut signal::c_void) {
//!     // Not ours: let it take its former course. For SIGURG that is to be ignored.
//!     if let Some(previous) = PREVIOUS.get() {
//!         // SAFETY: the handler's own arguments.
//!         unsafe { previous.chain(n, info, ctx) };
//!     }
//! }
//!
//! PREVIOUS.set(signal::Previous::current(signal::SIGURG)?).unwrap();
//! // SAFETY: the handler is async-signal-safe, and a function of this program.
//! unsafe { signal::install(signal::SIGURG, handler)? };
//! signal::request(thread::tid(), signal::SIGURG)?;
//! # Ok::<(), std::io::Error>(())
//! ```
//!
//! # Context
//! Everything but [`install`], [`AltStack`] and [`CpuTimer`] is async-signal-safe.
//!
//! Tests: `signal/tests.rs`; what kills runs in a child process.

use crate::thread::{self, raise};
use crate::{arch, check, errno, syscall};
use std::io;
use std::mem::MaybeUninit;
use std::ptr;
use std::sync::atomic::{AtomicBool, Ordering::*};

mod altstack;
mod timer;

pub use altstack::AltStack;
pub use libc::{SIGBUS, SIGQUIT, SIGSEGV, SIGURG, c_void, siginfo_t};
pub use timer::CpuTimer;

#[cfg(test)]
mod tests;

/// A handler as `SA_SIGINFO` wants it: signal number, details, interrupted context.
pub type Handler = unsafe extern "C" fn(i32, *mut siginfo_t, *mut c_void);

/// The disposition a signal had before [`install`].
pub struct Previous {
    action: libc::sigaction,
    /// A handler installed with `SA_RESETHAND` has had its one call.
    spent: AtomicBool,
}

impl std::fmt::Debug for Previous {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let kind = match self.action.sa_sigaction {
            libc::SIG_DFL => "default",
            libc::SIG_IGN => "ignore",
            _ => "handler",
        };
        f.debug_tuple("Previous").field(&kind).finish()
    }
}

/// Installs `handler` for `signo`, on the alternate stack where there is one, with interrupted
/// system calls restarted (`SA_SIGINFO | SA_ONSTACK | SA_RESTART`).
///
/// A signal may arrive before the caller has stored the result: store [`Previous::current`] first
/// if the handler chains.
///
/// # Errors
/// `EINVAL` for a number that is no signal, or one that cannot be caught.
///
/// # Safety
/// `handler` runs at any point of any thread: it must be async-signal-safe, and must stay
/// valid for good.
pub unsafe fn install(signo: i32, handler: Handler) -> io::Result<Previous> {
    // SAFETY: passed on.
    unsafe { install_with(signo, handler, true) }
}

/// As [`install`], but with `restart` false the signal makes blocking system calls fail with
/// `EINTR`.
///
/// # Errors
/// As for [`install`].
///
/// # Safety
/// As for [`install`].
pub unsafe fn install_with(signo: i32, handler: Handler, restart: bool) -> io::Result<Previous> {
    let mut action = default_action();
    action.sa_sigaction = handler as usize;
    action.sa_flags =
        libc::SA_SIGINFO | libc::SA_ONSTACK | if restart { libc::SA_RESTART } else { 0 };
    // SAFETY: the caller vouches for the handler.
    unsafe { exchange(signo, Some(&action)) }
}

/// `SIG_DFL` with no flags and an empty mask.
fn default_action() -> libc::sigaction {
    // SAFETY: zero is SIG_DFL, an empty mask, no flags and no restorer.
    unsafe { MaybeUninit::zeroed().assume_init() }
}

/// # Safety
/// A new action must be sound to run at any point of any thread.
unsafe fn exchange(signo: i32, new: Option<&libc::sigaction>) -> io::Result<Previous> {
    let mut action = default_action();
    let new = new.map_or(ptr::null(), ptr::from_ref);
    // SAFETY: both are null or alive; the caller vouches for what `new` does.
    if unsafe { libc::sigaction(signo, new, &mut action) } != 0 {
        return Err(io::Error::last_os_error());
    }
    Ok(Previous {
        action,
        spent: AtomicBool::new(false),
    })
}

impl Previous {
    /// The disposition `signo` has now, without changing it.
    ///
    /// # Errors
    /// `EINVAL` for a number that is no signal.
    pub fn current(signo: i32) -> io::Result<Previous> {
        // SAFETY: no new action.
        unsafe { exchange(signo, None) }
    }

    /// Whether nobody has a handler, and the signal is not ignored.
    pub fn is_default(&self) -> bool {
        self.action.sa_sigaction == libc::SIG_DFL
    }

    /// Whether this is the handler.
    pub fn is(&self, handler: Handler) -> bool {
        self.action.sa_sigaction == handler as usize
    }

    /// Passes a signal on as if our handler were not there; see the table in the [module](self).
    /// Async-signal-safe as far as the previous handler is.
    ///
    /// # Safety
    /// Call it from a handler for `signo`, on the thread that received it, with the handler's own
    /// arguments. Do not hold what the previous handler may want: it need not return.
    pub unsafe fn chain(&self, signo: i32, info: *mut siginfo_t, ctx: *mut c_void) {
        let saved = errno::get();
        // SAFETY: passed on.
        unsafe {
            match self.action.sa_sigaction {
                libc::SIG_IGN if !is_fault(signo, info) => {}
                libc::SIG_DFL | libc::SIG_IGN => act_by_default(signo, info),
                _ if self.used_up() => act_by_default(signo, info),
                _ => self.call(signo, info, ctx),
            }
        }
        errno::set(saved);
    }

    /// Claims the one call of a one-shot handler; true if it was made before.
    fn used_up(&self) -> bool {
        self.action.sa_flags & libc::SA_RESETHAND != 0 && self.spent.swap(true, Relaxed)
    }

    /// # Safety
    /// As for [`chain`](Self::chain); the action is a handler.
    unsafe fn call(&self, signo: i32, info: *mut siginfo_t, ctx: *mut c_void) {
        let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
        // SAFETY: block what the previous handler asked to have blocked; the old mask is written by
        // the first call and read by the second. The address is a handler of the kind that its
        // flags say, since someone installed it so.
        unsafe {
            libc::pthread_sigmask(libc::SIG_BLOCK, &self.action.sa_mask, mask.as_mut_ptr());
            if self.action.sa_flags & libc::SA_SIGINFO != 0 {
                let handler: Handler = std::mem::transmute(self.action.sa_sigaction);
                handler(signo, info, ctx);
            } else {
                let handler: extern "C" fn(i32) = std::mem::transmute(self.action.sa_sigaction);
                handler(signo);
            }
            libc::pthread_sigmask(libc::SIG_SETMASK, mask.as_ptr(), ptr::null_mut());
        }
    }
}

/// Whether the signal is the CPU's complaint about the interrupted instruction, which will be
/// repeated if the handler returns. `SIGTRAP` and `SIGSYS` come after theirs.
///
/// # Safety
/// `info` is a handler's second argument, or null.
unsafe fn is_fault(signo: i32, info: *const siginfo_t) -> bool {
    let synchronous = matches!(
        signo,
        libc::SIGSEGV | libc::SIGBUS | libc::SIGILL | libc::SIGFPE
    );
    // SAFETY: passed on; checked for null.
    synchronous && !info.is_null() && unsafe { (*info).si_code } > 0
}

/// # Safety
/// Inside a handler for `signo`, with its `info`.
unsafe fn act_by_default(signo: i32, info: *const siginfo_t) {
    match signo {
        libc::SIGURG | libc::SIGCHLD | libc::SIGWINCH | libc::SIGCONT => {}
        libc::SIGTSTP | libc::SIGTTIN | libc::SIGTTOU => raise(libc::SIGSTOP),
        _ => {
            reset(signo);
            // SAFETY: passed on.
            if !unsafe { is_fault(signo, info) } {
                // Blocked while the handler runs, so it arrives when the handler returns.
                raise(signo);
            }
        }
    }
}

/// Sets `signo` to `SIG_DFL`.
fn reset(signo: i32) {
    // SAFETY: SIG_DFL is no code of ours. Fails only for numbers that cannot be caught, which have
    // it anyway.
    let _ = unsafe { libc::sigaction(signo, &default_action(), ptr::null_mut()) };
}

/// The address whose access faulted, for `SIGSEGV` and `SIGBUS`. Zero if the CPU did not say, as
/// for a non-canonical address, or if the signal was sent with `kill`.
///
/// # Safety
/// `info` is the second argument of a running handler.
pub unsafe fn fault_address(info: *const siginfo_t) -> usize {
    // SAFETY: by the contract alive; the field is read as an integer, whatever the kernel put
    // there.
    unsafe {
        if (*info).si_code > 0 {
            (*info).si_addr() as usize
        } else {
            0
        }
    }
}

/// Whether the signal comes from a [`CpuTimer`], and not from a timer of the program's own.
///
/// # Safety
/// `info` is the second argument of a running handler.
pub unsafe fn from_timer(info: *const siginfo_t) -> bool {
    // SAFETY: by the contract alive; a signal with this code has a value.
    unsafe {
        (*info).si_code == libc::SI_TIMER
            && ptr::eq((*info).si_value().sival_ptr.cast(), &raw const COOKIE)
    }
}

/// How many periods of the [`CpuTimer`] have ended since its last signal: several, if they are shorter than the kernel's tick, or the signal was
/// blocked.
///
/// # Safety
/// `info` is the second argument of a running handler, and the signal [from a timer](from_timer).
pub unsafe fn periods(info: *const siginfo_t) -> u64 {
    /// The kernel's layout of a timer's signal, as far as needed.
    #[repr(C)]
    struct Expired {
        signo: i32,
        errno: i32,
        code: i32,
        _pad: i32,
        timer: i32,
        overrun: i32,
    }
    const { assert!(size_of::<Expired>() <= size_of::<siginfo_t>()) };
    // SAFETY: by the contract alive and of this kind; smaller, and aligned no more.
    let missed = unsafe { (*info.cast::<Expired>()).overrun };
    1 + u64::try_from(missed).unwrap_or(0)
}

/// Sends signal `signo` to thread `tid` of this process, in a way that its handler can tell ([`from_request`]). Async-signal-safe.
///
/// # Errors
/// `ESRCH` if there is no such thread (any more), `EINVAL` for a number that is no signal, `EAGAIN` if too many are pending.
pub fn request(tid: i32, signo: i32) -> io::Result<()> {
    /// The kernel's layout of a queued signal.
    #[repr(C)]
    struct Queued {
        signo: i32,
        errno: i32,
        code: i32,
        _pad: i32,
        pid: i32,
        uid: u32,
        value: *const u8,
        rest: [u64; 12],
    }
    let pid = thread::pid();
    let info = Queued {
        signo,
        errno: 0,
        code: libc::SI_QUEUE,
        _pad: 0,
        pid,
        uid: 0, // nobody asks
        value: &raw const COOKIE,
        rest: [0; 12],
    };
    const { assert!(size_of::<Queued>() == size_of::<siginfo_t>()) };
    let call = libc::SYS_rt_tgsigqueueinfo;
    // SAFETY: the structure has the size the kernel reads. What the signal does is up to its disposition.
    check(unsafe { syscall!(call, pid, tid, signo, &raw const info) }).map(drop)
}

/// Its address marks our own signals: nobody else sends that.
static COOKIE: u8 = 0;

/// Whether the signal was sent by [`request`] in this process. With [`from_timer`] it tells our own signals from those meant for
/// others, which are to be chained.
///
/// # Safety
/// `info` is the second argument of a running handler.
pub unsafe fn from_request(info: *const siginfo_t) -> bool {
    // SAFETY: by the contract alive; a signal with this code has a value.
    unsafe {
        (*info).si_code == libc::SI_QUEUE
            && ptr::eq((*info).si_value().sival_ptr.cast(), &raw const COOKIE)
            && (*info).si_pid() == thread::pid()
    }
}

/// Whether the kernel no longer knows who sent the signal: at the limit of pending signals it keeps no more than its number.
///
/// # Safety
/// `info` is the second argument of a running handler.
pub unsafe fn is_bare(info: *const siginfo_t) -> bool {
    // SAFETY: by the contract alive; a signal with this code has a sender, 0 if it is unknown.
    unsafe { (*info).si_code == libc::SI_USER && (*info).si_pid() == 0 }
}

/// Where the interrupted thread was.
///
/// # Safety
/// `ctx` is the third argument of a running handler.
pub unsafe fn pc(ctx: *const c_void) -> usize {
    // SAFETY: passed on.
    unsafe { arch::pc(ctx) }
}

/// The stack pointer of the interrupted thread.
///
/// # Safety
/// `ctx` is the third argument of a running handler.
pub unsafe fn sp(ctx: *const c_void) -> usize {
    // SAFETY: passed on.
    unsafe { arch::sp(ctx) }
}

/// Lets the calling thread receive `signo`.
pub fn unblock(signo: i32) {
    // SAFETY: the set is initialised before use. The calls fail only for numbers that are no
    // signals, and pthread_sigmask reports by its value, not by errno.
    errno::preserved(|| unsafe {
        let mut set = MaybeUninit::<libc::sigset_t>::uninit();
        libc::sigemptyset(set.as_mut_ptr());
        libc::sigaddset(set.as_mut_ptr(), signo);
        libc::pthread_sigmask(libc::SIG_UNBLOCK, set.as_ptr(), ptr::null_mut());
    });
}

/// Writes all of `bytes` to `fd`, as far as that is possible: goes on after a signal or a short
/// write, waits up to a second for a full non-blocking pipe, gives up on any other error.
/// Async-signal-safe.
///
/// # Safety
/// The caller owns `fd` or was lent it, and writing there is its business.
pub unsafe fn raw_write(fd: i32, mut bytes: &[u8]) {
    let mut patience = 10;
    while !bytes.is_empty() {
        // SAFETY: the bytes are alive and as many as given.
        let n = unsafe { syscall!(libc::SYS_write, fd, bytes.as_ptr(), bytes.len()) };
        match -n as i32 {
            libc::EINTR => {}
            libc::EAGAIN if patience > 0 => {
                patience -= 1;
                await_room(fd);
            }
            error if error >= 0 => return,
            _ => bytes = bytes.get(n as usize..).unwrap_or(&[]),
        }
    }
}

/// Waits until `fd` can be written, a tenth of a second at most.
fn await_room(fd: i32) {
    let mut poll = libc::pollfd {
        fd,
        events: libc::POLLOUT,
        revents: 0,
    };
    let timeout = crate::clock::timespec(100_000_000);
    // SAFETY: one live pollfd, a live timeout (which ppoll may overwrite), no signal mask.
    unsafe { syscall!(libc::SYS_ppoll, &raw mut poll, 1, &raw const timeout, 0) };
}

/// Ends the process as `signo` does by default, on this thread, so that the parent and the core
/// dump see the true reason. Aborts if that signal does not kill. Async-signal-safe.
pub fn die_by(signo: i32) -> ! {
    reset(signo);
    unblock(signo);
    raise(signo);
    // SAFETY: no preconditions.
    unsafe { libc::abort() }
}

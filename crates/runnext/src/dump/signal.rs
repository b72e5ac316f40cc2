//! Dumps that nobody calls for: on SIGQUIT, as Go's programs do, and when the runtime finds itself broken.
//!
//! # Protocol
//! 1 handler, or fatal error: adds one to `PENDING` for each runtime and wakes its thread that makes threads (`sched::threads`); with one
//!   more meanwhile, or the first could be done, and the last, before the second is asked
//! 2 that thread starts another for the dump, which may take long, and goes on with its work
//! 3 the dump's thread writes to stderr and takes one off `PENDING`; the last one ends the process by the signal, or
//!   lets the fatal error go on
//! A second SIGQUIT ends the process without; and a fatal error waits three seconds for its dump, no longer.
//!
//! # Invariants
//! I1  A runtime is in `RUNTIMES` only while its threads run: who takes it out waits for handlers that may be looking at it.
//!
//! # Context
//! The handler is async-signal-safe: it stores words and wakes futexes. It is installed only where nobody else has one.

use std::ffi::c_void;
use std::fmt::Write as _;
use std::io::{self, Write};
use std::ptr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicU32, Ordering::*};
use std::{hint, thread};

use runnext_sys::signal::{self, Previous, SIGQUIT};
use runnext_sys::{clock, futex};

use super::write_all;
use crate::fatal::Line;
use crate::sched::Shared;

/// Runtimes that a dump shows; those beyond are left out.
const MOST: usize = 32;
/// How long a fatal error waits for its dump.
const PATIENCE_NS: u64 = 3_000_000_000;

static RUNTIMES: [AtomicPtr<Shared>; MOST] = [const { AtomicPtr::new(ptr::null_mut()) }; MOST];
/// Handlers that look at the list.
static LOOKING: AtomicU32 = AtomicU32::new(0);
/// Runtimes whose dump is wanted and not written.
static PENDING: AtomicU32 = AtomicU32::new(0);
/// The process ends when they are.
static QUITS: AtomicBool = AtomicBool::new(false);
/// SIGQUIT makes a dump.
static SWITCHED_ON: AtomicBool = AtomicBool::new(true);

/// Makes SIGQUIT write a dump, or not (any more). Called by every `build`.
pub(crate) fn set_sigquit(on: bool) {
    static INSTALLED: std::sync::Once = std::sync::Once::new();
    SWITCHED_ON.store(on, Relaxed);
    if on {
        INSTALLED.call_once(|| {
            // Whoever has a handler, or ignores the signal, has a reason.
            if Previous::current(SIGQUIT).is_ok_and(|p| p.is_default()) {
                // SAFETY: the handler is async-signal-safe.
                let _ = unsafe { signal::install(SIGQUIT, on_sigquit) };
            }
        });
    }
}

/// A runtime has its threads, and is shown in dumps; until [`retire`].
pub(crate) fn enlist(shared: &Shared) {
    let shared = ptr::from_ref(shared).cast_mut();
    for slot in &RUNTIMES {
        if slot
            .compare_exchange(ptr::null_mut(), shared, SeqCst, Relaxed)
            .is_ok()
        {
            return;
        }
    }
}

/// A runtime is about to stop.
pub(crate) fn retire(shared: &Shared) {
    let shared = ptr::from_ref(shared).cast_mut();
    for slot in &RUNTIMES {
        let _ = slot.compare_exchange(shared, ptr::null_mut(), SeqCst, Relaxed);
    }
    while LOOKING.load(SeqCst) != 0 {
        hint::spin_loop(); // I1
    }
}

/// Asks every runtime for a dump. False: there is none. Async-signal-safe.
fn request() -> bool {
    LOOKING.fetch_add(1, SeqCst);
    PENDING.fetch_add(1, SeqCst); // ours
    let mut asked = false;
    for slot in &RUNTIMES {
        // SAFETY: I1.
        let shared = unsafe { slot.load(SeqCst).as_ref() };
        // After a fork its threads are elsewhere, and nobody would answer.
        if let Some(shared) = shared.filter(|shared| !shared.is_copy()) {
            PENDING.fetch_add(1, SeqCst);
            shared.threads.want_dump();
            asked = true;
        }
    }
    LOOKING.fetch_sub(1, SeqCst);
    if asked {
        done();
    } else {
        PENDING.fetch_sub(1, SeqCst);
    }
    asked
}

unsafe extern "C" fn on_sigquit(_signo: i32, _info: *mut signal::siginfo_t, _context: *mut c_void) {
    if QUITS.swap(true, SeqCst) || !SWITCHED_ON.load(Relaxed) || !request() {
        signal::die_by(SIGQUIT);
    }
}

/// The runtime is broken: shows all goroutines before it dies, if that is still possible.
pub(crate) fn on_fatal() {
    static ONCE: AtomicBool = AtomicBool::new(false);
    if ONCE.swap(true, SeqCst) || !request() {
        return;
    }
    let deadline = clock::now_ns() + PATIENCE_NS;
    loop {
        let pending = PENDING.load(SeqCst);
        if pending == 0 || !futex::wait_until(&PENDING, pending, deadline) {
            return;
        }
    }
}

/// Writes the dump that was asked for, in a thread of its own. By the thread that makes threads.
pub(crate) fn serve(shared: &Arc<Shared>) {
    let of = Arc::clone(shared);
    let dump = move || {
        let _ = write_all(&of, &mut Stderr);
        drop(of);
        done();
    };
    if thread::Builder::new()
        .name("runnext-dump".into())
        .spawn(dump)
        .is_err()
    {
        let mut line = Line::new();
        let _ = writeln!(line, "runnext: no thread for a dump of all goroutines");
        line.print();
        done();
    }
}

/// One that was pending is not. Async-signal-safe.
fn done() {
    let left = PENDING.fetch_sub(1, SeqCst) - 1;
    futex::wake_all(&PENDING);
    if left == 0 && QUITS.load(SeqCst) {
        signal::die_by(SIGQUIT);
    }
}

/// Stderr without its lock, which a goroutine may hold.
pub(super) struct Stderr;

impl Write for Stderr {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        // SAFETY: an initialised slice, and stderr is always a valid target for write(2).
        unsafe { signal::raw_write(2, bytes) };
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

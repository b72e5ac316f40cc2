//! Stack overflow: says whose stack it was, then dies as the program would have.
//!
//! A SIGSEGV or SIGBUS inside the guard of the current goroutine's slot is an overflow: the handler, on the thread's
//! alternate stack, writes one line, however odd the name in it, and passes the signal on. Any other fault goes to the handler that was there before,
//! untouched. Installed once per process, by the first runtime; never removed, since other runtimes may still run.
//!
//! # Context
//! Async-signal-safe: no allocation, no lock. Reads only the current thread's M and G.

use std::ffi::c_void;
use std::fmt::Write;
use std::io;
use std::sync::OnceLock;

use runnext_sys::signal::{self, Previous, SIGBUS, SIGSEGV};

use crate::fatal::Line;
use crate::m;
use crate::one_line::OneLine;
use crate::stack;

static PREVIOUS: [OnceLock<Previous>; 2] = [OnceLock::new(), OnceLock::new()];

fn slot(signo: i32) -> &'static OnceLock<Previous> {
    &PREVIOUS[usize::from(signo == SIGBUS)]
}

/// Makes overflows speak. Called by every `build`; acts once.
pub(crate) fn install() -> io::Result<()> {
    static INSTALLING: std::sync::Mutex<()> = std::sync::Mutex::new(());
    let _one = INSTALLING.lock().unwrap_or_else(|e| e.into_inner());
    for signo in [SIGSEGV, SIGBUS] {
        if slot(signo).get().is_none() {
            // Known before the handler can run, so that it always has somewhere to pass a fault on to.
            let _ = slot(signo).set(Previous::current(signo)?);
            // SAFETY: the handler is async-signal-safe and passes on what is not ours.
            unsafe { signal::install(signo, on_fault)? };
        }
    }
    Ok(())
}

unsafe extern "C" fn on_fault(signo: i32, info: *mut signal::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gave us this siginfo.
    let address = unsafe { signal::fault_address(info) };
    report(address);
    if let Some(previous) = slot(signo).get() {
        // SAFETY: with the arguments the kernel gave us.
        unsafe { previous.chain(signo, info, context) };
    }
}

fn report(address: usize) {
    let Some(g) = m::current().and_then(m::M::g) else {
        return;
    };
    if !g.has_stack() {
        return;
    }
    // SAFETY: current on this thread, with a stack.
    let (start, end) = unsafe { g.stack_bounds() };
    if !(start..start + stack::guard_size()).contains(&address) {
        return;
    }
    let mut line = Line::new();
    let _ = write!(line, "\nrunnext: goroutine {}", g.id());
    if let Some(name) = g.name() {
        let _ = write!(line, " '{}'", OneLine(name));
    }
    line.print();
    // A line of its own: a long name is cut off, not what follows.
    let mut line = Line::new();
    let site = g.site();
    let _ = writeln!(
        line,
        " overflowed its stack of {} KiB (spawned at {}:{}:{}). Give it a larger one with \
         goroutine::Builder::stack_size or Builder::stack_size.",
        (end - start).next_power_of_two() >> 10, // as it was asked for
        site.file(),
        site.line(),
        site.column(),
    );
    line.print();
}

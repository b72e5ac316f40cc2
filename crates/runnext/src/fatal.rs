//! The runtime is broken: say so and die, without waiting for anything.

use std::fmt::{self, Write};

use std::sync::OnceLock;

use runnext_sys::signal;

/// What else is to be said before the end; set by the first runtime.
pub(crate) static LAST_WORDS: OnceLock<fn()> = OnceLock::new();

/// A line buffer for places where nothing may be allocated: signal handlers, fatal errors.
pub(crate) struct Line {
    bytes: [u8; 512],
    len: usize,
}

impl Line {
    pub(crate) const fn new() -> Line {
        Line {
            bytes: [0; 512],
            len: 0,
        }
    }

    /// Writes what was gathered to stderr. Async-signal-safe.
    pub(crate) fn print(&self) {
        // SAFETY: an initialised slice, and stderr is always a valid target for write(2).
        unsafe { signal::raw_write(2, &self.bytes[..self.len]) };
    }
}

impl Write for Line {
    /// What does not fit is cut off: a shortened message is better than none.
    fn write_str(&mut self, s: &str) -> fmt::Result {
        let n = s.len().min(self.bytes.len() - self.len);
        self.bytes[self.len..self.len + n].copy_from_slice(&s.as_bytes()[..n]);
        self.len += n;
        Ok(())
    }
}

/// Prints `what` and all goroutines, and aborts. Never allocates, and waits for the second for three seconds at most.
#[cold]
pub(crate) fn fatal(what: fmt::Arguments<'_>) -> ! {
    let mut line = Line::new();
    let _ = writeln!(line, "runnext: fatal error: {what}");
    line.print();
    if let Some(say) = LAST_WORDS.get() {
        say();
    }
    std::process::abort()
}

//! What the runtime tells whoever runs the program, on stderr.
//!
//! `eprintln!` panics where stderr does not take it: a pipe nobody reads, a full disk. That would take the process with it inside the panic hook, and a
//! thread that others wait for elsewhere. What cannot be said is not said. But test harnesses show what `eprintln!` prints with the test that printed it, and
//! only with those that fail; so it is used where it cannot fail. (The house rules refuse it and its kin in the rest of the runtime.)
//!
//! # Context
//! User context: it may block. Signal handlers, and whoever must not allocate, use [`fatal::Line`](crate::fatal::Line).

use std::fmt;
use std::io::{self, Write};
use std::os::fd::AsFd;

use runnext_sys::file;

/// One message, to which a line's end is added.
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let mut stderr = io::stderr();
    if file::may_refuse(stderr.as_fd()) {
        let _ = writeln!(stderr, "{message}");
    } else {
        eprintln!("{message}");
    }
}

//! What the runtime tells whoever runs the program, on stderr.
//!
//! `eprintln!` panics where stderr does not take it: a pipe nobody reads, a full disk. That would take the process with it inside the panic hook, and a
//! thread that others wait for elsewhere. What cannot be said is not said. (The house rules refuse `eprintln!` and its kin in the runtime.)
//!
//! # Context
//! User context: it may block. Signal handlers, and whoever must not allocate, use [`fatal::Line`](crate::fatal::Line).

use std::fmt;
use std::io::{self, Write};

/// One message, to which a line's end is added.
pub(crate) fn line(message: fmt::Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{message}");
}

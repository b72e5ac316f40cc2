//! Standard output and standard error of the command.
//!
//! `println!` panics when a line cannot be written, and that is no status the help names. What goes wrong here ends the command as follows.
//!
//! | what                                    | message               | status           |
//! |-----------------------------------------|-----------------------|------------------|
//! | the reader closed the pipe (`\| head`)  | none: it has had enough | 0              |
//! | any other error (a full disk)           | on standard error     | 3, could not run |
//!
//! Remarks on standard error are dropped if nobody can read them.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};
use std::process;

use crate::{FAILED, HELD};

/// Prints a line on standard output, as `println!` does.
macro_rules! say {
    ($($part:tt)*) => {
        $crate::out::line(format_args!($($part)*))
    };
}

/// Prints a line on standard error, as `eprintln!` does.
macro_rules! remark {
    ($($part:tt)*) => {
        $crate::out::remark_line(format_args!($($part)*))
    };
}

pub(crate) use {remark, say};

/// Behind [`say`].
pub fn line(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    checked(writeln!(stdout, "{text}").and_then(|()| stdout.flush()));
}

/// Behind [`remark`].
pub fn remark_line(text: Arguments<'_>) {
    let _ = writeln!(io::stderr(), "{text}");
}

/// Prints all of `bytes` on standard output.
pub fn all(bytes: &[u8]) {
    let mut stdout = io::stdout().lock();
    checked(stdout.write_all(bytes).and_then(|()| stdout.flush()));
}

/// Goes on if it was written; otherwise ends the process, as the table above has it.
pub fn checked(written: io::Result<()>) {
    let Err(error) = written else { return };
    if error.kind() == ErrorKind::BrokenPipe {
        process::exit(HELD.into());
    }
    remark!("runnext: cannot write to standard output: {error}");
    process::exit(FAILED.into());
}

//! Standard output of the runner. `println!` panics when a line cannot be written.
//!
//! Lines for a reader that closed the pipe (`| head`) are dropped and the measuring goes on: the figures are in the file of `--json` as
//! well. Any other error (a full disk) is said on standard error and ends the runner with status 1.

use std::fmt::Arguments;
use std::io::{self, ErrorKind, Write};

/// Prints a line, as `println!` does.
macro_rules! say {
    ($($part:tt)*) => {
        $crate::out::line(format_args!($($part)*))
    };
}

pub(crate) use say;

/// Behind [`say`].
pub fn line(text: Arguments<'_>) {
    let mut stdout = io::stdout().lock();
    match writeln!(stdout, "{text}").and_then(|()| stdout.flush()) {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => {
            eprintln!("cannot write to standard output: {error}");
            std::process::exit(1);
        }
        _ => {}
    }
}

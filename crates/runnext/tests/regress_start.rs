//! Bugs of the start of a runtime: what is said when it cannot start, and who is told.

mod common;

use std::process::{ExitCode, Termination};

use common::child;

/// A program whose runtime is refused.
mod refused {
    #[runnext::main(procs = 5000)]
    pub(crate) fn main() {
        unreachable!("there is no runtime for it");
    }
}

/// A `main` without a return type threw the code away: the process ended with status 0.
#[test]
fn a_main_that_cannot_start_is_no_success() {
    fn code(ended: impl Termination) -> ExitCode {
        ended.report()
    }
    child(&[], || {
        assert_eq!(code(refused::main()), ExitCode::from(101))
    })
    .passed()
    .said(&["cannot start the runtime: procs must be from 1 to 1024, not 5000"]);
}

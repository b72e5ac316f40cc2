//! Bugs of the start of a runtime: what is said when it cannot start, and who is told.

mod common;

use std::panic::Location;
use std::process::{ExitCode, Termination};
use std::sync::Mutex;

use common::child;

fn spawned_at() -> &'static Location<'static> {
    runnext::current().expect("a goroutine").spawned_at()
}

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

// ---- where the main goroutine comes from ----

mod program {
    use super::*;

    pub(super) static ORIGIN: Mutex<Option<&Location<'static>>> = Mutex::new(None);

    #[runnext::main(procs = 1)]
    pub(super) fn main() {
        *ORIGIN.lock().unwrap() = Some(spawned_at());
    }
    pub(super) const LINE: u32 = line!() - 4; // the attribute's
}

/// It was a line of the runtime's.
#[test]
fn the_main_goroutine_comes_from_the_users_line() {
    assert_eq!(program::main(), ExitCode::SUCCESS);
    let origin = program::ORIGIN.lock().unwrap().expect("it ran");
    assert_eq!((origin.file(), origin.line()), (file!(), program::LINE));
}

const TEST_LINE: u32 = line!() + 3;

/// The same.
#[runnext::test(procs = 1)]
fn the_goroutine_of_a_test_comes_from_the_users_line() -> Result<(), String> {
    let origin = spawned_at();
    assert_eq!((origin.file(), origin.line()), (file!(), TEST_LINE));
    Ok(())
}

//! Code of others whose panics nobody waits for.

use std::mem;
use std::panic::{self, AssertUnwindSafe};

/// Runs it. The message of a panic has been printed by then; what it panicked with is dropped here, which is code of others too: a panic there
/// would unwind the scheduler. What that one leaves is forgotten, or there would be no end to it.
pub(crate) fn panics<T>(f: impl FnOnce() -> T) -> Option<T> {
    match panic::catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            if let Err(second) = panic::catch_unwind(AssertUnwindSafe(|| drop(payload))) {
                mem::forget(second);
            }
            None
        }
    }
}

//! Code of others whose panics nobody waits for.

use std::mem;
use std::panic::{self, AssertUnwindSafe};

/// Runs it. The message of a panic has been printed by then; what it panicked with is forgotten: dropping that is code of others too, and
/// a panic there would unwind the scheduler.
pub(crate) fn panics<T>(f: impl FnOnce() -> T) -> Option<T> {
    match panic::catch_unwind(AssertUnwindSafe(f)) {
        Ok(value) => Some(value),
        Err(payload) => {
            mem::forget(payload);
            None
        }
    }
}

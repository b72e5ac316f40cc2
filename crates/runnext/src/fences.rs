//! Who pays for the fences between those who are often somewhere and those who seldom look at them (`runnext_core::fence`).

use std::sync::Once;
use std::sync::atomic::{self, Ordering::SeqCst};

use runnext_core::fence;
use runnext_sys::fence as sys;

use crate::fatal::fatal;

/// Whether it is known who pays.
static CHOSEN: Once = Once::new();

/// From now on those who seldom come pay, if the kernel lets them. Once per process, with its first runtime.
pub(crate) fn choose(heavy: bool) {
    CHOSEN.call_once(|| {
        if heavy && sys::register().is_ok() {
            fence::rely_on_heavy();
        }
    });
}

/// The counterpart of `fence::light`: what any thread stored before its last one is seen from here on, or it sees what the caller stored.
/// Async-signal-safe.
#[cold]
pub(crate) fn heavy() {
    // Nobody does, or will. To ask the kernel all the same is to be registered with it first, which waits for all CPUs: a quarter of a second on a busy machine.
    if CHOSEN.is_completed() && !fence::relies_on_heavy() {
        return atomic::fence(SeqCst);
    }
    // Though nobody may rely on it yet: somebody may begin to just now.
    let done = sys::heavy().or_else(|_| sys::register().and_then(|()| sys::heavy()));
    if let Err(e) = done {
        if fence::relies_on_heavy() {
            fatal(format_args!(
                "membarrier(2), allowed when the program started, is refused now: {e}"
            ));
        }
        atomic::fence(SeqCst);
    }
}

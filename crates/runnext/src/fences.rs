//! Which side of a protocol executes the fences: both, or for both the side that runs rarely, by `membarrier` (`runnext_core::fence`).

use std::sync::Once;
use std::sync::atomic::{self, Ordering::SeqCst};

use runnext_core::fence;
use runnext_sys::fence as sys;

use crate::fatal::fatal;

/// Completed when the choice is made.
static CHOSEN: Once = Once::new();

/// Makes the choice, once per process, with its first runtime. `heavy`: the rare side executes both fences, if the kernel allows it.
pub(crate) fn choose(heavy: bool) {
    CHOSEN.call_once(|| {
        if heavy && sys::register().is_ok() {
            fence::rely_on_heavy();
        }
    });
}

/// The counterpart of `fence::light`. For each other thread: either the caller sees from here on what that thread stored before its last light
/// fence, or that thread sees after it what the caller stored.
/// Async-signal-safe.
#[cold]
pub(crate) fn heavy() {
    // Nobody relies on it, or will. `membarrier` would need a registration first, which waits for all CPUs: a quarter of a second on a busy machine.
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

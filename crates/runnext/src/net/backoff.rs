//! What `accept` does when the process has no descriptor or memory left.
//!
//! The connection stays in the listener's queue, so trying again at once would spin, and giving up would end servers over
//! a shortage that passes. So it waits, longer each time, and only then says what is wrong.

use std::io;
use std::time::Duration;

use super::socket::Descriptor;
use crate::time::sleep;

const FIRST: Duration = Duration::from_millis(1);
/// Together with those before it about a second.
const LAST: Duration = Duration::from_millis(512);

// Linux's numbers, the same on all architectures.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

pub(super) struct Backoff(Duration);

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff(FIRST)
    }

    /// Pauses after an error that may pass; returns any other, and that one too once it has lasted.
    pub(super) fn after(&mut self, listener: &Descriptor, e: io::Error) -> io::Result<()> {
        let passes = matches!(e.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM | ENOBUFS));
        if !passes || self.0 > LAST || listener.is_nonblocking() {
            return Err(e);
        }
        sleep(self.0);
        self.0 *= 2;
        Ok(())
    }
}

//! What `accept` does when the process has no descriptor or memory left.
//!
//! The connection stays in the listener's queue, so trying again at once would spin, and giving up would end servers over
//! a shortage that passes. So it waits, longer each time, and only then says what is wrong. Deadlines and time-outs of the
//! listener end these waits as any other. Futures pause in the same way (`Descriptor::poll_accept`).

use std::io;
use std::time::Duration;

use super::socket::{Descriptor, Direction, FIRST_PAUSE_NS, LAST_PAUSE_NS};

const FIRST: Duration = Duration::from_nanos(FIRST_PAUSE_NS);
const LAST: Duration = Duration::from_nanos(LAST_PAUSE_NS);

// Linux's numbers, the same on all architectures.
const ENOMEM: i32 = 12;
const ENFILE: i32 = 23;
const EMFILE: i32 = 24;
const ENOBUFS: i32 = 105;

/// Whether it is an error of a shortage.
pub(super) fn passes(e: &io::Error) -> bool {
    matches!(e.raw_os_error(), Some(EMFILE | ENFILE | ENOMEM | ENOBUFS))
}

pub(super) struct Backoff {
    next: Duration,
    /// When the whole call has to end, once it has waited.
    limit: Option<u64>,
}

impl Backoff {
    pub(super) fn new() -> Backoff {
        Backoff {
            next: FIRST,
            limit: None,
        }
    }

    /// Accepts by `op`, which does not wait, with pauses while there is a shortage.
    pub(super) fn accept<T>(
        mut self,
        listener: &Descriptor,
        mut op: impl FnMut() -> io::Result<T>,
    ) -> io::Result<T> {
        loop {
            match listener.io_within(Direction::Read, &mut self.limit, &mut op) {
                Err(e) => self.after(listener, e)?,
                accepted => return accepted,
            }
        }
    }

    /// Pauses after an error that may pass; returns any other, and that one too once it has lasted.
    fn after(&mut self, listener: &Descriptor, e: io::Error) -> io::Result<()> {
        if !passes(&e) || self.next > LAST || listener.is_nonblocking() {
            return Err(e);
        }
        listener.pause(Direction::Read, &mut self.limit, self.next)?;
        self.next *= 2;
        Ok(())
    }
}

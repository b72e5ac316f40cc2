//! Shortages: futures that accept while the process has no descriptor or memory left.
//!
//! # Why this shape
//! The connection stays in the listener's queue, so no event tells when it is worth trying again, and a task that gets the error usually asks
//! again at once. So it pauses as a blocking `accept` does (`net::backoff`), but has no frame to keep the pause in: that is in the
//! slot, for all tasks that accept there. Each of them that meets the shortage sets the alarm anew, since the runtime that had it may have
//! ended.
//!
//! # Protocol
//! task:  1 read the word  2 accept: shortage  3 set the alarm  4 ask, unless something happened since 1: again
//! alarm: wakes all who have asked, which counts as an event
//! Who accepts, or gives up, takes the alarm away from all, and wakes them in its place: they find that the shortage is over, or begin another pause.
//!
//! # Context
//! User context; what is in the slot is read and replaced under its lock, and dropped afterwards.

use std::io;
use std::sync::atomic::Ordering::*;
use std::task::{Context, Poll};

use runnext_sys::clock;

use super::reactor::Alarm as ReactorAlarm;
use super::slot::Direction;
use super::wakers::late;
use super::{Descriptor, rouse};
use crate::m;
use crate::sched::call::Call;
use crate::sched::timers::Alarm as TimerAlarm;

/// The first pause; each is twice as long as the one before.
pub(crate) const FIRST_NS: u64 = 1_000_000;
/// The last one; with those before it about a second.
pub(crate) const LAST_NS: u64 = 512 * FIRST_NS;

/// A pause.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Pause {
    length: u64,
    end: u64,
}

impl Pause {
    fn new(length: u64, now: u64) -> Pause {
        Pause {
            length,
            end: now + length,
        }
    }

    /// What is left of the one before, or the one after it; `None` if the shortage has lasted. One that nobody has come back to is forgotten.
    fn next(before: Option<Pause>, now: u64) -> Option<Pause> {
        match before {
            Some(current) if now < current.end => Some(current),
            Some(over) if now - over.end < LAST_NS => {
                (over.length < LAST_NS).then(|| Pause::new(2 * over.length, now))
            }
            _ => Some(Pause::new(FIRST_NS, now)),
        }
    }
}

/// The pause in which futures are, and what ends it: one of the two alarms.
pub(super) struct Shortage {
    pause: Pause,
    _timer: Option<TimerAlarm>,
    _reactor: Option<ReactorAlarm>,
}

impl Descriptor {
    /// Accepts by `op` for a future, as [`poll_io`](Self::poll_io) does, with pauses after errors that may pass. One that has lasted for about a second
    /// is returned, and so is one after which nobody can be found to end the pause.
    pub(crate) fn poll_accept<T>(
        &self,
        cx: &mut Context<'_>,
        passes: fn(&io::Error) -> bool,
        mut op: impl FnMut() -> io::Result<T>,
    ) -> Poll<io::Result<T>> {
        let way = Direction::Read;
        let side = self.0.side(way);
        loop {
            let fixed = side.deadline.load(SeqCst);
            let seen = side.word.load(Acquire);
            match self.poll_io(cx, way, &mut op) {
                Poll::Ready(Err(e)) if passes(&e) => {
                    if !self.begin_pause(way) {
                        return Poll::Ready(Err(e));
                    }
                }
                Poll::Ready(done) => {
                    self.end_shortage(way);
                    return Poll::Ready(done);
                }
                Poll::Pending => return Poll::Pending,
            }
            match self.poll_ready(cx, way, seen, fixed) {
                Ok(true) => {}
                Ok(false) => return Poll::Pending,
                Err(e) => return Poll::Ready(Err(e)),
            }
        }
    }

    /// Has all who ask in that direction woken at the end of the pause. False: there is none any more, or nobody to end it.
    #[cold]
    fn begin_pause(&self, direction: Direction) -> bool {
        let before = {
            let _call = Call::brief();
            let lists = self.0.lists.lock();
            let shortage = lists[direction as usize].shortage.as_ref();
            shortage.map(|shortage| shortage.pause)
        };
        let Some(pause) = Pause::next(before, clock::now_ns()) else {
            self.end_shortage(direction);
            return false;
        };
        let waker = late(self.0, direction);
        // One that has stopped rings nobody.
        let m = m::current().filter(|m| !m.shared().stopped.load(Relaxed));
        let timer = m.map(|m| TimerAlarm::new(m, pause.end, &waker));
        let reactor = match timer {
            Some(_) => None,
            None => match ReactorAlarm::new(pause.end, &waker) {
                Ok(alarm) => Some(alarm),
                Err(_) => return false, // it would start its thread: for want of descriptors it cannot
            },
        };
        self.set_shortage(
            direction,
            Some(Box::new(Shortage {
                pause,
                _timer: timer,
                _reactor: reactor,
            })),
        );
        true
    }

    fn end_shortage(&self, direction: Direction) {
        if self.0.short.load(Relaxed) {
            self.set_shortage(direction, None);
            rouse(self.0, direction, 0);
        }
    }

    fn set_shortage(&self, direction: Direction, mut shortage: Option<Box<Shortage>>) {
        let call = Call::brief();
        {
            let mut lists = self.0.lists.lock();
            self.0.short.store(shortage.is_some(), Relaxed);
            std::mem::swap(&mut lists[direction as usize].shortage, &mut shortage);
        }
        drop(call); // then the one before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Twice as long each time, for a second in all, and from the beginning if nobody came for long.
    #[test]
    fn pauses_grow_and_end() {
        let (mut now, mut pauses) = (0, Vec::new());
        let mut pause = Pause::next(None, now);
        while let Some(current) = pause {
            assert_eq!(Pause::next(pause, current.end - 1), pause, "it goes on");
            pauses.push(current.length / FIRST_NS);
            now = current.end;
            let (long_after, first) = (now + LAST_NS, Pause::new(FIRST_NS, now + LAST_NS));
            assert_eq!(Pause::next(pause, long_after), Some(first));
            pause = Pause::next(pause, now);
        }
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32, 64, 128, 256, 512]);
        assert_eq!(now, 1023 * FIRST_NS);
    }
}

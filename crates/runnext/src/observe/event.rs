//! One event of the trace: a word, after one with the time where that has changed.
//!
//! ```text
//! | goroutine's header / 64 : 41 bits | argument : 17 | kind : 6 |     or     | number : 58 | kind : 6 |
//! ```
//!
//! A goroutine is known by the address of its header, which is at hand where its number would be a cache line away. Headers are
//! reused, so its birth is followed by its number ([`Kind::Id`]), and its end is told by the number.

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum Kind {
    /// It was made; an [`Id`](Kind::Id) follows. By the goroutine that runs on this P, if one does.
    Born = 1,
    /// The number of the goroutine of the event before.
    Id,
    /// It was made runnable, by the goroutine that runs on this P, if one does.
    Wake,
    /// It goes on. The argument is how the one before it on this P left, unless an event has told that ([`Left`]).
    Run,
    /// It gave way by itself.
    Yield,
    /// It waits; the argument is why (`g::WaitReason`).
    Park,
    /// The one that runs on this P ended; its number.
    End,
    /// It was made to stop; the argument is why (`observe::Why`).
    Preempt,
    /// Others' goroutines were taken; the argument is from which P.
    Steal,
    /// It begins a blocking section.
    BlockIn,
    /// It ended one.
    BlockOut,
    /// Its thread lost its P, which is the argument.
    Robbed,
    /// It begins a span; a [`Value`](Kind::Value) with the number of its name follows.
    Span,
    /// It ended its last span.
    SpanEnd,
    /// A number that belongs to the event before.
    Value,
    /// How many wait on this P; by somebody without one: in the global queues.
    Queue,
    /// A group's CPU time in microseconds is about to follow; this is its number.
    Group,
    /// How many goroutines of a group wait is about to follow; this is its number.
    GroupQueue,
    /// The time of the events that follow, in ticks.
    Clock,
}

impl Kind {
    /// Those that carry a number in place of a goroutine.
    fn has_number(self) -> bool {
        matches!(
            self,
            Kind::Id
                | Kind::End
                | Kind::Value
                | Kind::Queue
                | Kind::Group
                | Kind::GroupQueue
                | Kind::Clock
        )
    }

    fn from_bits(bits: u64) -> Option<Kind> {
        const ALL: [Kind; 19] = [
            Kind::Born,
            Kind::Id,
            Kind::Wake,
            Kind::Run,
            Kind::Yield,
            Kind::Park,
            Kind::End,
            Kind::Preempt,
            Kind::Steal,
            Kind::BlockIn,
            Kind::BlockOut,
            Kind::Robbed,
            Kind::Span,
            Kind::SpanEnd,
            Kind::Value,
            Kind::Queue,
            Kind::Group,
            Kind::GroupQueue,
            Kind::Clock,
        ];
        ALL.get((bits as usize).wrapping_sub(1)).copied()
    }
}

const KIND_BITS: u32 = 6;
const ARG_BITS: u32 = 17;
/// Headers are cache lines.
const HEADER_BITS: u32 = 6;

/// How a goroutine left its P, as the argument of the next one's [`Kind::Run`], where it lies in that event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Left(u32);

impl Left {
    /// It told so itself, or nobody was there.
    pub(crate) const TOLD: Left = Left::from_arg(256);
    pub(crate) const YIELDED: Left = Left::from_arg(257);

    /// It waits, for this reason.
    #[inline(always)]
    pub(crate) fn parked(reason: u8) -> Left {
        Left::from_arg(reason as u32)
    }

    /// As the argument of a [`Kind::Run`] tells it.
    pub(crate) const fn from_arg(arg: u32) -> Left {
        Left(arg << KIND_BITS)
    }

    /// The same as an event of its own: kind and argument.
    pub(crate) fn event(self) -> Option<(Kind, u32)> {
        match self {
            Left::TOLD => None,
            Left::YIELDED => Some((Kind::Yield, 0)),
            Left(reason) => Some((Kind::Park, reason >> KIND_BITS)),
        }
    }
}

/// One event, as it lies in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event(pub(crate) u64);

/// The same, taken apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Parts {
    /// Something about the goroutine with this header (zero: about none).
    Of { kind: Kind, arg: u32, header: u64 },
    /// A number.
    Value { kind: Kind, value: u64 },
}

impl Event {
    #[inline(always)]
    pub(crate) fn of(kind: Kind, arg: u32, header: usize) -> Event {
        let header = (header >> HEADER_BITS) as u64;
        Event(
            header << (KIND_BITS + ARG_BITS)
                | u64::from(arg & ((1 << ARG_BITS) - 1)) << KIND_BITS
                | kind as u64,
        )
    }

    /// The goroutine goes on, after one that left so.
    #[inline(always)]
    pub(crate) fn run(after: Left, header: usize) -> Event {
        let header = (header >> HEADER_BITS) as u64;
        Event(header << (KIND_BITS + ARG_BITS) | Kind::Run as u64 | u64::from(after.0))
    }

    #[inline(always)]
    pub(crate) fn value(kind: Kind, value: u64) -> Event {
        Event(value << KIND_BITS | kind as u64)
    }

    /// The time, if it is one.
    pub(crate) fn clock(self) -> Option<u64> {
        (self.0 & ((1 << KIND_BITS) - 1) == Kind::Clock as u64).then_some(self.0 >> KIND_BITS)
    }

    /// None: not an event. A slot that was read while it was written may hold anything.
    pub(crate) fn parts(self) -> Option<Parts> {
        let kind = Kind::from_bits(self.0 & ((1 << KIND_BITS) - 1))?;
        Some(if kind.has_number() {
            Parts::Value {
                kind,
                value: self.0 >> KIND_BITS,
            }
        } else {
            Parts::Of {
                kind,
                arg: (self.0 >> KIND_BITS) as u32 & ((1 << ARG_BITS) - 1),
                header: self.0 >> (KIND_BITS + ARG_BITS) << HEADER_BITS,
            }
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_packed_comes_apart() {
        let header = 0x7fff_1234_5678_9ac0_usize & !63;
        assert_eq!(
            Event::of(Kind::Park, 0x1_ffff, header).parts(),
            Some(Parts::Of {
                kind: Kind::Park,
                arg: 0x1_ffff,
                header: header as u64 & ((1 << 47) - 1),
            })
        );
        assert_eq!(
            Event::value(Kind::Id, (1 << 58) - 1).parts(),
            Some(Parts::Value {
                kind: Kind::Id,
                value: (1 << 58) - 1
            })
        );
        assert_eq!(Event::value(Kind::Clock, 77).clock(), Some(77));
        assert_eq!(Event::value(Kind::Id, 77).clock(), None);
        assert_eq!((Event(0).parts(), Event(63).parts()), (None, None));
    }

    #[test]
    fn every_kind_is_known() {
        for bits in 1..=Kind::Clock as u64 {
            assert_eq!(Kind::from_bits(bits).map(|k| k as u64), Some(bits));
        }
    }

    #[test]
    fn how_one_left_fits_beside_the_next() {
        assert_eq!(Left::TOLD.event(), None);
        assert_eq!(Left::YIELDED.event(), Some((Kind::Yield, 0)));
        assert_eq!(Left::parked(255).event(), Some((Kind::Park, 255)));
        let run = |left| Event::run(left, 0x7fff_1234_5640).parts();
        let parts = |arg| {
            Some(Parts::Of {
                kind: Kind::Run,
                arg,
                header: 0x7fff_1234_5640,
            })
        };
        assert_eq!(run(Left::TOLD), parts(256));
        assert_eq!(run(Left::parked(255)), parts(255));
    }
}

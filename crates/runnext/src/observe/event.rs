//! One event of the trace: sixteen bytes.
//!
//! ```text
//! when: ticks of the CPU's counter
//! what: | goroutine's header / 64 : 41 bits | argument : 17 | kind : 6 |     or     | number : 58 | kind : 6 |
//! ```
//!
//! A goroutine is known by the address of its header, which is at hand where its number would be a cache line away. Headers are
//! reused, so its birth and its end are followed by an [`Kind::Id`] with the number.

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
    /// It goes on.
    Run,
    /// It gave way by itself.
    Yield,
    /// It waits; the argument is why (`g::WaitReason`).
    Park,
    /// It ended; an [`Id`](Kind::Id) follows.
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
    /// How many wait on this P.
    Queue,
    /// A group's CPU time in microseconds is about to follow; this is its number.
    Group,
}

impl Kind {
    /// Those that carry a number in place of a goroutine.
    fn has_number(self) -> bool {
        matches!(self, Kind::Id | Kind::Value | Kind::Queue | Kind::Group)
    }

    fn from_bits(bits: u64) -> Option<Kind> {
        const ALL: [Kind; 17] = [
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
        ];
        ALL.get((bits as usize).wrapping_sub(1)).copied()
    }
}

const KIND_BITS: u32 = 6;
const ARG_BITS: u32 = 17;
/// Headers are cache lines.
const HEADER_BITS: u32 = 6;

/// One event, as it lies in a ring.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Event {
    pub(crate) when: u64,
    pub(crate) what: u64,
}

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
    pub(crate) fn of(kind: Kind, when: u64, arg: u32, header: usize) -> Event {
        let header = (header >> HEADER_BITS) as u64;
        Event {
            when,
            what: header << (KIND_BITS + ARG_BITS)
                | u64::from(arg & ((1 << ARG_BITS) - 1)) << KIND_BITS
                | kind as u64,
        }
    }

    #[inline(always)]
    pub(crate) fn value(kind: Kind, when: u64, value: u64) -> Event {
        Event {
            when,
            what: value << KIND_BITS | kind as u64,
        }
    }

    /// None: not an event. A slot that was read while it was written may hold anything.
    pub(crate) fn parts(self) -> Option<Parts> {
        let kind = Kind::from_bits(self.what & ((1 << KIND_BITS) - 1))?;
        Some(if kind.has_number() {
            Parts::Value {
                kind,
                value: self.what >> KIND_BITS,
            }
        } else {
            Parts::Of {
                kind,
                arg: (self.what >> KIND_BITS) as u32 & ((1 << ARG_BITS) - 1),
                header: self.what >> (KIND_BITS + ARG_BITS) << HEADER_BITS,
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
        let event = Event::of(Kind::Park, 77, 0x1_ffff, header);
        assert_eq!(
            event.parts(),
            Some(Parts::Of {
                kind: Kind::Park,
                arg: 0x1_ffff,
                header: header as u64 & ((1 << 47) - 1),
            })
        );
        let event = Event::value(Kind::Id, 78, (1 << 58) - 1);
        assert_eq!(
            event.parts(),
            Some(Parts::Value {
                kind: Kind::Id,
                value: (1 << 58) - 1
            })
        );
        assert_eq!(Event { when: 0, what: 0 }.parts(), None);
        assert_eq!(Event { when: 0, what: 63 }.parts(), None);
    }

    #[test]
    fn every_kind_is_known() {
        for bits in 1..=Kind::Group as u64 {
            assert_eq!(Kind::from_bits(bits).map(|k| k as u64), Some(bits));
        }
    }
}

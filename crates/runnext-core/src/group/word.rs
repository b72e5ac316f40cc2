//! Whether, where and with what weight a group competes: a word that changes as one (`Group::change`).
//!
//! | bits of `word` | meaning                                             | changed by                                     |
//! |----------------|-----------------------------------------------------|------------------------------------------------|
//! | 0–15           | weight, as the user set it                          | `set_weight`                                   |
//! | 16–17          | priority                                            | `set_priority`                                 |
//! | 18             | throttled: no quota left, until `until`             | the P that found out; whoever looks after that |
//! | 19             | held by the governor                                | the governor's caller                          |
//! | 20             | alive                                               | `Ledger::add`, `Ledger::remove`                |
//! | 32–63          | Ps it is present on                                 | each P for itself                              |

use super::config::Priority;

/// A copy of a group's state word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Word(pub(super) u64);

/// How often a High group's weight counts.
pub(super) const HIGH_FACTOR: u32 = 4;

const THROTTLED: u64 = 1 << 18;
const HELD: u64 = 1 << 19;
const ALIVE: u64 = 1 << 20;
const PRESENT: u64 = 1 << 32;

impl Word {
    pub(super) fn alive(weight: u32, priority: Priority) -> Word {
        Word(ALIVE).with_weight(weight).with_priority(priority)
    }

    pub(super) const fn dead() -> Word {
        Word(0)
    }

    #[inline]
    pub(super) fn is_alive(self) -> bool {
        self.0 & ALIVE != 0
    }

    #[inline]
    pub(super) fn present(self) -> u32 {
        (self.0 >> 32) as u32
    }

    #[inline]
    pub(super) fn priority(self) -> Priority {
        match self.0 >> 16 & 3 {
            0 => Priority::Normal,
            1 => Priority::High,
            _ => Priority::Low,
        }
    }

    /// The weight that counts.
    #[inline]
    pub(super) fn weight(self) -> u32 {
        let weight = self.0 as u16 as u32;
        if self.priority() == Priority::High {
            weight * HIGH_FACTOR
        } else {
            weight
        }
    }

    #[inline]
    pub(super) fn is_throttled(self) -> bool {
        self.0 & THROTTLED != 0
    }

    #[inline]
    pub(super) fn is_held(self) -> bool {
        self.0 & HELD != 0
    }

    /// By its quota, the governor, or both.
    #[inline]
    pub(super) fn is_stopped(self) -> bool {
        self.0 & (THROTTLED | HELD) != 0
    }

    /// Stopped, with something to run.
    #[inline]
    pub(super) fn is_paused(self) -> bool {
        self.is_stopped() && self.present() != 0
    }

    #[inline]
    pub(super) fn is_active(self) -> bool {
        self.present() != 0 && !self.is_stopped()
    }

    pub(super) fn with_weight(self, weight: u32) -> Word {
        Word(self.0 & !0xffff | u64::from(weight))
    }

    pub(super) fn with_priority(self, priority: Priority) -> Word {
        let bits = match priority {
            Priority::Normal => 0,
            Priority::High => 1,
            Priority::Low => 2,
        };
        Word(self.0 & !(3 << 16) | bits << 16)
    }

    pub(super) fn throttled(self, yes: bool) -> Word {
        self.with(THROTTLED, yes)
    }

    pub(super) fn held(self, yes: bool) -> Word {
        self.with(HELD, yes)
    }

    /// On one P more.
    pub(super) fn came(self) -> Word {
        Word(self.0 + PRESENT)
    }

    /// On one P less.
    pub(super) fn went(self) -> Word {
        Word(self.0 - PRESENT)
    }

    fn with(self, bit: u64, set: bool) -> Word {
        match set {
            true => Word(self.0 | bit),
            false => Word(self.0 & !bit),
        }
    }
}

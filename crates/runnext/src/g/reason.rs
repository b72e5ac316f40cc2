//! Why a goroutine waits, in Go's words where Go has them.

use std::ptr;
use std::sync::atomic::Ordering::*;

use super::G;

/// Why a goroutine waits, in Go's words, for dumps and traces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(u8)]
pub(crate) enum WaitReason {
    None = 0,
    Join,
    Scope,
    ChanReceive,
    ChanSend,
    Select,
    SelectNoCases,
    Sleep,
    Mutex,
    RwLockRead,
    RwLockWrite,
    Cond,
    WaitGroup,
    Semaphore,
    Barrier,
    Once,
    Await,
    Io,
}

impl WaitReason {
    pub(crate) fn text(self) -> &'static str {
        match self {
            WaitReason::None => "waiting",
            WaitReason::Join => "join",
            WaitReason::Scope => "scope",
            WaitReason::ChanReceive => "chan receive",
            WaitReason::ChanSend => "chan send",
            WaitReason::Select => "select",
            WaitReason::SelectNoCases => "select (no cases)",
            WaitReason::Sleep => "sleep",
            WaitReason::Mutex => "sync.Mutex.Lock",
            WaitReason::RwLockRead => "sync.RWMutex.RLock",
            WaitReason::RwLockWrite => "sync.RWMutex.Lock",
            WaitReason::Cond => "sync.Cond.Wait",
            WaitReason::WaitGroup => "sync.WaitGroup.Wait",
            WaitReason::Semaphore => "semacquire",
            WaitReason::Barrier => "barrier",
            WaitReason::Once => "sync.Once",
            WaitReason::Await => "await",
            WaitReason::Io => "IO wait",
        }
    }

    /// Whether who waits for this leaves word of what is to be done with what it gets, should it never run again (`g::will`).
    pub(crate) fn has_will(self) -> bool {
        matches!(
            self,
            WaitReason::Mutex
                | WaitReason::RwLockRead
                | WaitReason::RwLockWrite
                | WaitReason::Semaphore
        )
    }

    /// The reason with this number, as a trace has it.
    pub(crate) fn from_bits(bits: u32) -> Option<WaitReason> {
        const ALL: &[WaitReason] = &[
            WaitReason::None,
            WaitReason::Join,
            WaitReason::Scope,
            WaitReason::ChanReceive,
            WaitReason::ChanSend,
            WaitReason::Select,
            WaitReason::SelectNoCases,
            WaitReason::Sleep,
            WaitReason::Mutex,
            WaitReason::RwLockRead,
            WaitReason::RwLockWrite,
            WaitReason::Cond,
            WaitReason::WaitGroup,
            WaitReason::Semaphore,
            WaitReason::Barrier,
            WaitReason::Once,
            WaitReason::Await,
            WaitReason::Io,
        ];
        ALL.get(bits as usize).copied()
    }
}

impl G {
    /// Why it waits, or waited last.
    pub(crate) fn reason(&self) -> WaitReason {
        WaitReason::from_bits(self.cold().reason.load(Relaxed).into()).unwrap_or(WaitReason::None)
    }

    /// The number of that, as a trace has it.
    #[inline]
    pub(crate) fn reason_bits(&self) -> u8 {
        self.cold().reason.load(Relaxed)
    }

    /// It is about to wait for this, as of `now`.
    #[inline]
    pub(crate) fn set_reason(&self, reason: WaitReason, now: u64) {
        self.cold().reason.store(reason as u8, Relaxed);
        self.link
            .store(ptr::without_provenance_mut(now as usize), Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_known_by_its_number() {
        for bits in 0.. {
            let Some(reason) = WaitReason::from_bits(bits) else {
                assert!(bits > WaitReason::Io as u32);
                break;
            };
            assert_eq!(reason as u32, bits);
            assert!(!reason.text().is_empty());
        }
    }
}

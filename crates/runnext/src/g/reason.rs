//! Why a goroutine waits, in Go's words where Go has them.

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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_is_known_by_its_number() {
        for bits in 0.. {
            let Some(reason) = WaitReason::from_bits(bits) else {
                assert!(bits > WaitReason::Once as u32);
                break;
            };
            assert_eq!(reason as u32, bits);
            assert!(!reason.text().is_empty());
        }
    }
}

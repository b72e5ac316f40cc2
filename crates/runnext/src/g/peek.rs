//! A look at a goroutine from outside, while it lives on.
//!
//! The words that are read are atomics; what hangs off the header (its name, its saved registers) is copied by the kernel, which
//! neither faults nor races, and is believed only if the header says the same afterwards.

use std::mem::offset_of;
use std::panic::Location;
use std::sync::atomic::Ordering::*;

use runnext_core::park;
use runnext_sys::inspect;

use super::{Coro, Ext, G, WaitReason};
use crate::stack;

/// Longer names are cut.
const NAME_MAX: usize = 256;

/// What was seen of a goroutine.
#[derive(Debug)]
pub(crate) struct Peek {
    pub(crate) id: u64,
    /// One of `runnext_core::park`'s.
    pub(crate) state: u32,
    pub(crate) reason: WaitReason,
    /// When it began to wait, if it does.
    pub(crate) since: u64,
    pub(crate) site: &'static Location<'static>,
    /// It can only go on on one thread.
    pub(crate) wired: bool,
    /// Where the record of its own group is; 0: it has none. Only to be compared.
    pub(crate) group: usize,
    pub(crate) name: Option<String>,
    /// Where its stack is suspended, and where that ends; none if it runs, has not begun, or has no stack.
    pub(crate) suspended: Option<(usize, usize)>,
}

impl G {
    /// Looks at it, in any state and from anywhere. None: it is no goroutine now, or changed too fast.
    pub(crate) fn peek(&self) -> Option<Peek> {
        let state = self.state.get();
        if matches!(state, park::IDLE | park::DEAD) {
            return None;
        }
        let id = self.id();
        let cold = self.cold();
        // SAFETY: null in a header that is just being made, else from a reference.
        let site = unsafe { cold.site.load(Relaxed).as_ref() }?;
        let seen = Peek {
            id,
            state,
            reason: self.reason(),
            since: self.link.load(Relaxed).addr() as u64,
            site,
            wired: !self.wired().is_null(),
            group: cold.group.load(Relaxed).addr(),
            name: self.peek_name(),
            suspended: self.peek_suspended(),
        };
        (self.id() == id && id != 0 && self.state.get() == state).then_some(seen)
    }

    fn peek_name(&self) -> Option<String> {
        let ext = self.cold().ext.load(Acquire);
        if ext.is_null() {
            return None;
        }
        // A `Box<str>`: where it is, and how long.
        let at = read_words::<2>(ext.addr() + offset_of!(Ext, name))?;
        let mut bytes = vec![0; at[1].min(NAME_MAX)];
        let got = inspect::read_memory(at[0], &mut bytes);
        bytes.truncate(got);
        let same = at[0] != 0 && self.cold().ext.load(Acquire) == ext;
        same.then(|| String::from_utf8_lossy(&bytes).into_owned())
    }

    /// The saved stack pointer is one of the words of the coroutine, which does not say which: of the two that lie in the stack,
    /// the other is where it began, and above.
    fn peek_suspended(&self) -> Option<(usize, usize)> {
        const WORDS: usize = size_of::<Coro>() / size_of::<usize>();
        if !self.has_stack() {
            return None;
        }
        let words = read_words::<WORDS>(self.coro.get().addr())?;
        let (start, end) = stack::slot_of(words[0])?;
        let mut inside = words[1..].iter().filter(|&&w| w > start && w < end);
        match (inside.next(), inside.next(), inside.next()) {
            (Some(&a), Some(&b), None) if a != b => Some((a.min(b), end)),
            _ => None,
        }
    }
}

fn read_words<const N: usize>(address: usize) -> Option<[usize; N]> {
    let mut words = [0usize; N];
    // SAFETY: the words as bytes.
    let bytes = unsafe {
        std::slice::from_raw_parts_mut(words.as_mut_ptr().cast::<u8>(), size_of_val(&words))
    };
    (inspect::read_memory(address, bytes) == size_of::<usize>() * N).then_some(words)
}

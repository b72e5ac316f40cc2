//! The concurrency primitives of this crate: std's, or loom's under `--cfg loom`.
//!
//! # Why this shape
//! The loom models run the shipped code, not a copy of it, so the code must name its atomics in one
//! place that can be switched. Only what differs between the two worlds is here; `Ordering` is std's in both.
//! Rejected: a cargo feature (features add up, and one crate asking for loom would break the others).
//!
//! Code outside the crate that implements [`Linked`](crate::list::Linked) takes its link word from here.

use core::ops::{Deref, DerefMut};

pub use core::sync::atomic::Ordering;

#[cfg(loom)]
pub use loom::{
    cell::{Cell, UnsafeCell},
    hint,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence},
    thread,
};

#[cfg(not(loom))]
pub use core::{
    cell::Cell,
    hint,
    sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, fence},
};
#[cfg(not(loom))]
pub use std::thread;

/// [`core::cell::UnsafeCell`] with loom's interface: access is a closure, so that loom sees where it ends.
#[cfg(not(loom))]
#[derive(Debug, Default)]
#[repr(transparent)]
pub struct UnsafeCell<T: ?Sized>(core::cell::UnsafeCell<T>);

#[cfg(not(loom))]
impl<T> UnsafeCell<T> {
    /// Wraps `value`.
    pub const fn new(value: T) -> UnsafeCell<T> {
        UnsafeCell(core::cell::UnsafeCell::new(value))
    }

    /// Hands `f` a pointer for reading. Dereferencing it is the caller's promise that nobody writes meanwhile.
    #[inline(always)]
    pub fn with<R>(&self, f: impl FnOnce(*const T) -> R) -> R {
        f(self.0.get())
    }

    /// Hands `f` a pointer for writing. Dereferencing it is the caller's promise that nobody else touches it
    /// meanwhile.
    #[inline(always)]
    pub fn with_mut<R>(&self, f: impl FnOnce(*mut T) -> R) -> R {
        f(self.0.get())
    }

    /// The value, out of its cell.
    pub fn into_inner(self) -> T {
        self.0.into_inner()
    }
}

/// A value on cache lines of its own.
///
/// 128 bytes, not 64: the adjacent-line prefetcher of x86 fetches lines in pairs, so two words 64 bytes
/// apart still slow each other down; aarch64 server cores have lines of 128.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// Pads and aligns `value`.
    pub const fn new(value: T) -> CachePadded<T> {
        CachePadded(value)
    }

    /// The value, without its padding.
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;

    #[inline(always)]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline(always)]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn padded_values_do_not_share_lines() {
        let two = [CachePadded::new(1u8), CachePadded::new(2u8)];
        let (a, b) = (&raw const *two[0], &raw const *two[1]);
        assert_eq!(b as usize - a as usize, 128);
        assert_eq!(a as usize % 128, 0);
    }
}

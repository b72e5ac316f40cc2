//! The memory of a timer heap: arrays in mappings of their own.
//!
//! Timers are armed in RT, where the allocator is off limits (R1), and there may be millions of them. So an array
//! asks the kernel: a mapping is reserved on the first push, committed as it is touched, and moved by page
//! tables when it is full. Rejected: growing in user context before the call (the goroutine may enter on another P than
//! the one it looked at, and a select would have to prepare for every heap).
//!
//! # Context
//! May be used in RT and under a `Lock`. Without memory for another timer the process ends, as it does when the
//! allocator has none.

use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::{mem, ptr, slice};

use runnext_core::timers::{Array, Memory};
use runnext_sys::map::{self, Region};

use crate::fatal::fatal;

/// Address space reserved at first, in bytes.
const FIRST: usize = 1 << 20;
/// Memory kept when nearly all elements have left, in bytes.
const KEEP: usize = 64 << 10;
/// Places left out at the start. The keys of the four children of a node, which are compared with each other, then lie in one cache
/// line: the first of all is at a multiple of four.
const LEFT_OUT: usize = 3;

pub(super) struct Mappings;

impl Memory for Mappings {
    type Array<N> = Mapped<N>;
}

pub(super) struct Mapped<N> {
    region: Option<Region>,
    len: usize,
    capacity: usize,
    /// Bytes from the start that may have been touched.
    touched: usize,
    _elements: PhantomData<N>,
}

impl<N> Default for Mapped<N> {
    fn default() -> Mapped<N> {
        Mapped {
            region: None,
            len: 0,
            capacity: 0,
            touched: 0,
            _elements: PhantomData,
        }
    }
}

impl<N> Mapped<N> {
    #[inline]
    fn base(&self) -> *mut N {
        match &self.region {
            // SAFETY: a region is longer than a few elements.
            Some(region) => unsafe { region.base().cast::<N>().add(LEFT_OUT) },
            None => ptr::NonNull::dangling().as_ptr(),
        }
    }

    #[cold]
    fn grow(&mut self) {
        const { assert!(!mem::needs_drop::<N>() && mem::align_of::<N>() <= 4096) };
        let grown = match &mut self.region {
            Some(region) => region.grow(region.len() * 2),
            none => Region::reserve(FIRST, map::page_size(), false).map(|new| *none = Some(new)),
        };
        if let Err(e) = grown {
            fatal(format_args!("no memory for another timer: {e}"));
        }
        self.capacity = self.region.as_ref().map_or(0, Region::len) / size_of::<N>() - LEFT_OUT;
    }

    /// The bytes of so many elements, with what is left out before them.
    #[inline]
    fn bytes(len: usize) -> usize {
        (LEFT_OUT + len) * size_of::<N>()
    }
}

impl<N> Array<N> for Mapped<N> {
    #[inline]
    fn push(&mut self, element: N) {
        if self.len == self.capacity {
            self.grow();
        }
        // SAFETY: within the capacity, so inside the region.
        unsafe { self.base().add(self.len).write(element) };
        self.len += 1;
        self.touched = self.touched.max(Self::bytes(self.len));
    }

    #[inline]
    fn pop(&mut self) -> Option<N> {
        self.len = self.len.checked_sub(1)?;
        // SAFETY: it was in use, and is not any more.
        Some(unsafe { self.base().add(self.len).read() })
    }

    fn shrink(&mut self) {
        let used = Self::bytes(self.len);
        let keep = (used * 2).max(KEEP).next_multiple_of(map::page_size());
        let touched = self.touched.next_multiple_of(map::page_size());
        if let Some(region) = &self.region
            && touched > keep * 2
        {
            region.discard(keep, touched.min(region.len()) - keep);
            self.touched = keep;
        }
    }
}

impl<N> Deref for Mapped<N> {
    type Target = [N];

    #[inline]
    fn deref(&self) -> &[N] {
        // SAFETY: the first `len` are initialised.
        unsafe { slice::from_raw_parts(self.base(), self.len) }
    }
}

impl<N> DerefMut for Mapped<N> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [N] {
        // SAFETY: as above, and `&mut self`.
        unsafe { slice::from_raw_parts_mut(self.base(), self.len) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_array() {
        let mut array = Mapped::<[u64; 4]>::default();
        assert!(array.is_empty() && array.pop().is_none());
        let n = 3 * FIRST / 32;
        for i in 0..n {
            array.push([i as u64; 4]);
        }
        assert_eq!(array.len(), n);
        array[n - 2][3] = 1;
        assert_eq!(array.pop(), Some([n as u64 - 1; 4]));
        assert_eq!(array.pop().map(|x| x[3]), Some(1));
        while array.len() > 10 {
            array.pop();
        }
        array.shrink();
        assert!(array.touched <= KEEP);
        assert!(array.iter().enumerate().all(|(i, x)| x[0] == i as u64));
        for i in 10..n {
            array.push([i as u64; 4]);
        }
        assert!(array.iter().enumerate().all(|(i, x)| x[0] == i as u64));
    }
}

//! A FIFO list of handles, linked through a word inside what they point to.
//!
//! # Why this shape
//! Work moves between queues in batches: an overflowing ring sends 129 goroutines to the global queue, a
//! poller returns everything that became ready. With the link inside the goroutine such a batch is three words,
//! needs no memory, and joins another list in O(1), so a lock around the global queue is held for a
//! few instructions whatever the size. Rejected: `VecDeque` (allocates under that lock, moves
//! elements); doubly linked (nothing leaves from the middle, and it would cost each goroutine another word).
//!
//! # Words
//! *handle*: a `NonNull<T>`; the list never owns or drops the `T`. *link*: the word inside it.
//!
//! # Invariants
//! I1  From `head`, following links, `len` steps reach `tail`. The link of `tail` is stale and never followed.
//! I2  A handle is in at most one list, once: it has only one link.
//!
//! # Context
//! A plain `&mut` structure: no allocation, no lock; the caller brings the lock. Links are atomics accessed
//! Relaxed, which costs nothing: the same word may serve a lock-free structure while in no list. Dropping a
//! list that is not empty forgets its handles, hence the `must_use`.
//!
//! Tests: below.

use core::fmt;
use core::marker::PhantomData;
use core::ptr::{self, NonNull};

use crate::shim::{AtomicPtr, Ordering::Relaxed};

/// Something that can be in a [`List`].
///
/// # Safety
/// - `link(this)` returns the same word at each call for the same `this`, inside what `this` points to, and
///   different words for different handles. It does not read through `this` beyond that.
/// - The word is used by at most one list at a time, and by nothing else while in one.
/// - Handles may be passed between threads: whoever holds the handle may access the word from its thread.
pub unsafe trait Linked: Sized {
    /// Where the link of `this` is. Called with valid handles only.
    fn link(this: NonNull<Self>) -> *const AtomicPtr<Self>;
}

/// An intrusive singly linked FIFO list. See the [module](self).
#[must_use = "dropping a list forgets the handles in it"]
pub struct List<T: Linked> {
    head: *mut T,
    tail: *mut T,
    len: usize,
}

// SAFETY: a list is some handles and exclusive use of their links; `Linked` promises both may change threads.
unsafe impl<T: Linked> Send for List<T> {}
// SAFETY: through `&List` links are only read, and they are atomics.
unsafe impl<T: Linked> Sync for List<T> {}

impl<T: Linked> List<T> {
    /// The empty list.
    pub const fn new() -> List<T> {
        List {
            head: ptr::null_mut(),
            tail: ptr::null_mut(),
            len: 0,
        }
    }

    /// How many handles are in it.
    #[inline]
    pub const fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a handle at the tail.
    ///
    /// # Safety
    /// `g` is in no list, and stays valid for as long as it is in this one (or in one this one is moved into).
    #[inline]
    pub unsafe fn push_back(&mut self, g: NonNull<T>) {
        match NonNull::new(self.tail) {
            // SAFETY: `tail` is in the list, so it is valid (contract of the push that brought it).
            Some(tail) => unsafe { set_link(tail, g.as_ptr()) },
            None => self.head = g.as_ptr(),
        }
        self.tail = g.as_ptr();
        self.len += 1;
    }

    /// Adds a handle at the head.
    ///
    /// # Safety
    /// As [`push_back`](Self::push_back).
    #[inline]
    pub unsafe fn push_front(&mut self, g: NonNull<T>) {
        if self.head.is_null() {
            self.tail = g.as_ptr();
        } else {
            // SAFETY: the caller says `g` is valid and in no list.
            unsafe { set_link(g, self.head) };
        }
        self.head = g.as_ptr();
        self.len += 1;
    }

    /// Takes the handle at the head.
    #[inline]
    pub fn pop_front(&mut self) -> Option<NonNull<T>> {
        let first = NonNull::new(self.head)?;
        self.len -= 1;
        if self.len == 0 {
            self.head = ptr::null_mut();
            self.tail = ptr::null_mut();
        } else {
            // SAFETY: `first` is in the list and is not its tail (I1), so its link is valid and current.
            self.head = unsafe { get_link(first) };
        }
        Some(first)
    }

    /// Moves all of `other` behind the tail, in order, in O(1).
    #[inline]
    pub fn append(&mut self, other: List<T>) {
        let Some(tail) = NonNull::new(self.tail) else {
            *self = other;
            return;
        };
        if !other.is_empty() {
            // SAFETY: `tail` is in this list, so it is valid.
            unsafe { set_link(tail, other.head) };
            self.tail = other.tail;
            self.len += other.len;
        }
    }

    /// Moves all of `other` before the head, in order, in O(1).
    #[inline]
    pub fn prepend(&mut self, mut other: List<T>) {
        other.append(core::mem::take(self));
        *self = other;
    }

    /// Splits off the first `n` handles, or all if there are fewer. O(n).
    pub fn take(&mut self, n: usize) -> List<T> {
        if n >= self.len {
            return core::mem::take(self);
        }
        if n == 0 {
            return List::new();
        }
        let front = List {
            head: self.head,
            tail: self
                .iter()
                .nth(n - 1)
                .map_or(ptr::null_mut(), NonNull::as_ptr),
            len: n,
        };
        // SAFETY: `n < len`, so `front.tail` is in the list and not its tail: its link is valid and current (I1).
        self.head = unsafe { get_link(NonNull::new_unchecked(front.tail)) };
        self.len -= n;
        front
    }

    /// The handles from head to tail, for dumps.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter {
            at: self.head,
            left: self.len,
            list: PhantomData,
        }
    }
}

/// # Safety
/// `of` is valid.
#[inline(always)]
unsafe fn set_link<T: Linked>(of: NonNull<T>, to: *mut T) {
    // SAFETY: `Linked` says the word lies inside what `of` points to, which the caller says is valid.
    unsafe { (*T::link(of)).store(to, Relaxed) }
}

/// # Safety
/// `of` is valid.
#[inline(always)]
unsafe fn get_link<T: Linked>(of: NonNull<T>) -> *mut T {
    // SAFETY: as in `set_link`.
    unsafe { (*T::link(of)).load(Relaxed) }
}

impl<T: Linked> Default for List<T> {
    fn default() -> List<T> {
        List::new()
    }
}

impl<T: Linked> fmt::Debug for List<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter()).finish()
    }
}

impl<'a, T: Linked> IntoIterator for &'a List<T> {
    type Item = NonNull<T>;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

/// The handles of a [`List`], from head to tail.
pub struct Iter<'a, T: Linked> {
    at: *mut T,
    left: usize,
    list: PhantomData<&'a List<T>>,
}

impl<T: Linked> Iterator for Iter<'_, T> {
    type Item = NonNull<T>;

    fn next(&mut self) -> Option<NonNull<T>> {
        self.left = self.left.checked_sub(1)?;
        let here = NonNull::new(self.at)?;
        if self.left > 0 {
            // SAFETY: the list is borrowed, so `here` is still in it; it is not the tail (I1).
            self.at = unsafe { get_link(here) };
        }
        Some(here)
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left, Some(self.left))
    }
}

impl<T: Linked> ExactSizeIterator for Iter<'_, T> {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::testing::{Item, Items};

    fn list(items: &Items, ids: impl IntoIterator<Item = usize>) -> List<Item> {
        let mut list = List::new();
        for id in ids {
            // SAFETY: each test puts an item in one list only, and `items` outlives the lists.
            unsafe { list.push_back(items.get(id)) };
        }
        list
    }

    fn ids(mut list: List<Item>) -> Vec<usize> {
        let seen: Vec<_> = list.iter().map(Item::id).collect();
        assert_eq!(seen.len(), list.len());
        let popped: Vec<_> = std::iter::from_fn(|| list.pop_front())
            .map(Item::id)
            .collect();
        assert!(list.is_empty());
        assert_eq!(seen, popped);
        popped
    }

    #[test]
    fn keeps_order() {
        let items = Items::new(5);
        let mut l = list(&items, 1..4);
        // SAFETY: 0 and 4 are in no list.
        unsafe {
            l.push_front(items.get(0));
            l.push_back(items.get(4));
        }
        assert_eq!(ids(l), [0, 1, 2, 3, 4]);
        let mut one = List::new();
        // SAFETY: the first list is drained.
        unsafe { one.push_front(items.get(2)) };
        // SAFETY: 3 is in no list.
        unsafe { one.push_back(items.get(3)) };
        assert_eq!(ids(one), [2, 3]);
    }

    #[test]
    fn joins_at_both_ends() {
        let items = Items::new(6);
        for cut in 0..=6 {
            let mut l = list(&items, 0..cut);
            l.append(list(&items, cut..6));
            assert_eq!(ids(l), [0, 1, 2, 3, 4, 5]);
            let mut l = list(&items, cut..6);
            l.prepend(list(&items, 0..cut));
            assert_eq!(ids(l), [0, 1, 2, 3, 4, 5]);
        }
    }

    #[test]
    fn takes_from_the_front() {
        let items = Items::new(5);
        for n in 0..=7 {
            let mut rest = list(&items, 0..5);
            let front = rest.take(n);
            assert_eq!(ids(front), (0..n.min(5)).collect::<Vec<_>>());
            assert_eq!(ids(rest), (n.min(5)..5).collect::<Vec<_>>());
        }
    }

    #[test]
    fn can_be_used_again_after_a_stale_tail_link() {
        let items = Items::new(4);
        let mut l = list(&items, 0..4);
        drop(ids(l.take(2)));
        // SAFETY: 0 was popped. Its link is stale, and it becomes the tail.
        unsafe { l.push_back(items.get(0)) };
        assert_eq!(ids(l), [2, 3, 0]);
    }
}

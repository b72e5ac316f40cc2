//! What the tests of this crate share: numbered items with a link, to queue; the locks of their channels.

use core::ptr::NonNull;

use crate::flavor::Locks;
use crate::list::Linked;
use crate::shim::{AtomicPtr, UnsafeCell};

#[cfg(loom)]
use ::loom::sync::{Mutex, MutexGuard};
#[cfg(not(loom))]
use std::sync::{Mutex, MutexGuard};

/// Locks of std, or of loom, whose models do without those of the runtime: `lock_word` has its own.
pub(crate) struct Mutexes;

// SAFETY: that is what a mutex does.
unsafe impl Locks for Mutexes {
    type Lock<V> = Mutex<V>;
    type Guard<'a, V: 'a> = MutexGuard<'a, V>;

    fn new<V>(value: V) -> Mutex<V> {
        Mutex::new(value)
    }

    fn lock<V>(lock: &Mutex<V>) -> MutexGuard<'_, V> {
        lock.lock().expect("no panic")
    }
}

/// A stand-in for a goroutine.
#[derive(Debug)]
pub(crate) struct Item {
    id: usize,
    /// Not atomic: two holders at once are a data race, which loom and Miri report.
    uses: UnsafeCell<usize>,
    link: AtomicPtr<Item>,
}

// SAFETY: the link is a field, and nothing but a list uses it; an `Item` has nothing tied to a thread.
unsafe impl Linked for Item {
    fn link(this: NonNull<Item>) -> *const AtomicPtr<Item> {
        // SAFETY: computes an address inside a valid item.
        unsafe { &raw const (*this.as_ptr()).link }
    }
}

impl Item {
    /// The number of the item behind a handle. Writes to the item: only the holder of the handle may ask.
    pub(crate) fn id(this: NonNull<Item>) -> usize {
        // SAFETY: tests keep their `Items` alive longer than any queue of its handles.
        let item = unsafe { this.as_ref() };
        // SAFETY: that no other thread holds the handle is what the tests are there to find out.
        item.uses.with_mut(|uses| unsafe { *uses += 1 });
        item.id
    }
}

/// Items number 0 to n-1, and the memory they live in.
pub(crate) struct Items(Vec<NonNull<Item>>);

// SAFETY: only the holder of a handle writes to the item, and links are atomics.
unsafe impl Sync for Items {}
// SAFETY: as above.
unsafe impl Send for Items {}

impl Items {
    pub(crate) fn new(n: usize) -> Items {
        let boxed = |id| {
            Box::new(Item {
                id,
                uses: UnsafeCell::new(0),
                link: AtomicPtr::new(core::ptr::null_mut()),
            })
        };
        Items(
            (0..n)
                .map(|id| NonNull::from(Box::leak(boxed(id))))
                .collect(),
        )
    }

    pub(crate) fn get(&self, id: usize) -> NonNull<Item> {
        self.0[id]
    }
}

impl Drop for Items {
    fn drop(&mut self) {
        for g in &self.0 {
            // SAFETY: leaked in `new`, freed only here.
            drop(unsafe { Box::from_raw(g.as_ptr()) });
        }
    }
}

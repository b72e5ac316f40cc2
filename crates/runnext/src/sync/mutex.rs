//! `Mutex`: mutual exclusion that blocks goroutines, not threads.
//!
//! The lock is `raw`; this file joins it with the data. Three words of queue stand beside the word of state, so that waiting needs
//! no table shared with other locks (`queue`, "Why this shape"). No poisoning: a panic of a holder releases the lock like any
//! other end of its guard.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};

use super::raw::RawMutex;
use crate::g::WaitReason;

/// Mutual exclusion: one holder at a time may use the data.
///
/// Like [`std::sync::Mutex`], with three differences. Waiting blocks the goroutine and not its thread. There is no poisoning,
/// so [`lock`](Self::lock) returns the guard itself. And waiting is bounded: a goroutine that has waited for a millisecond gets
/// the lock next, in order of arrival, however many others compete for it.
///
/// In a program with [task groups](crate::TaskGroup), waiting goroutines of a higher priority are served first, but the one
/// that has waited longest is passed over at most sixteen times. A goroutine whose group has used up its quota is passed over until the
/// group may run again.
///
/// A lock may be held across any call, including one that parks the goroutine, and its guard may be dropped on another thread
/// or by another goroutine. Locking it twice in one goroutine waits for ever, unless another one drops the first guard.
///
/// # Example
/// ```
/// use runnext::sync::Mutex;
///
/// #[runnext::main]
/// fn main() {
///     let total = Mutex::new(0);
///     runnext::scope(|s| {
///         for i in 1..=100 {
///             let total = &total;
///             s.go(move || *total.lock() += i);
///         }
///     });
///     assert_eq!(total.into_inner(), 5050);
/// }
/// ```
pub struct Mutex<T: ?Sized> {
    raw: RawMutex,
    data: UnsafeCell<T>,
}

// SAFETY: the lock gives the data to one holder at a time, on any thread: it moves, so `T: Send` is enough.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}
// SAFETY: owning the mutex is owning the data; the lock itself belongs to no thread.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}

// As std's. There is no poison: who catches a panic looks after what the holder left.
impl<T: ?Sized> UnwindSafe for Mutex<T> {}
impl<T: ?Sized> RefUnwindSafe for Mutex<T> {}

impl<T> Mutex<T> {
    /// A free mutex with `value` inside.
    ///
    /// ```
    /// static HITS: runnext::sync::Mutex<u64> = runnext::sync::Mutex::new(0);
    /// *HITS.lock() += 1;
    /// assert_eq!(*HITS.lock(), 1);
    /// ```
    pub const fn new(value: T) -> Mutex<T> {
        Mutex {
            raw: RawMutex::new(),
            data: UnsafeCell::new(value),
        }
    }

    /// The data, without the lock.
    ///
    /// ```
    /// let m = runnext::sync::Mutex::new(String::from("inside"));
    /// assert_eq!(m.into_inner(), "inside");
    /// ```
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Takes the lock; dropping the guard releases it.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), until the lock is free, or handed over.
    ///
    /// # Example
    /// ```
    /// let m = runnext::sync::Mutex::new(vec![1]);
    /// m.lock().push(2);
    /// assert_eq!(*m.lock(), [1, 2]);
    /// ```
    #[inline]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        self.raw.lock(WaitReason::Mutex);
        MutexGuard::new(self)
    }

    /// Takes the lock if it is free and promised to nobody.
    ///
    /// ```
    /// let m = runnext::sync::Mutex::new(7);
    /// let held = m.lock();
    /// assert!(m.try_lock().is_none());
    /// drop(held);
    /// assert_eq!(*m.try_lock().unwrap(), 7);
    /// ```
    #[inline]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        self.raw.try_lock().then(|| MutexGuard::new(self))
    }

    /// The data, through a borrow that proves nobody else has it.
    ///
    /// ```
    /// let mut m = runnext::sync::Mutex::new(1);
    /// *m.get_mut() = 2;
    /// assert_eq!(m.into_inner(), 2);
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<T: Default> Default for Mutex<T> {
    fn default() -> Mutex<T> {
        Mutex::new(T::default())
    }
}

impl<T> From<T> for Mutex<T> {
    fn from(value: T) -> Mutex<T> {
        Mutex::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    /// Shows the data if the lock is free; never waits for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("Mutex");
        match Glance::at(self) {
            Some(glance) => out.field("data", &glance.data()),
            None => out.field("data", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

/// A lock held while the data is shown. Whoever formats may hold a thread-local (loggers have buffers there), so its end must not
/// move the goroutine, as that of a guard may.
struct Glance<'a, T: ?Sized>(&'a Mutex<T>);

impl<'a, T: ?Sized> Glance<'a, T> {
    /// None if the lock is not free.
    fn at(mutex: &'a Mutex<T>) -> Option<Glance<'a, T>> {
        mutex.raw.try_lock().then(|| Glance(mutex))
    }

    fn data(&self) -> &T {
        // SAFETY: the lock is held, so nobody else has a reference that writes.
        unsafe { &*self.0.data.get() }
    }
}

impl<T: ?Sized> Drop for Glance<'_, T> {
    fn drop(&mut self) {
        // SAFETY: taken in `at`, and this ends here.
        unsafe { self.0.raw.unlock_here() };
    }
}

/// The right to use the data of a [`Mutex`]; dropping it releases the lock.
///
/// It is `Send` where `&mut T` is: a goroutine may move between threads while it holds it, or give it to another.
///
/// # Blocks
/// Dropping it may switch to the goroutine that the lock is handed to. The dropping goroutine is then queued, and may resume on
/// another thread. It does not wait for anything else.
///
/// # Example
/// ```
/// use runnext::sync::{Mutex, MutexGuard};
///
/// let m = Mutex::new(5);
/// let guard: MutexGuard<'_, i32> = m.lock();
/// std::thread::scope(|s| { s.spawn(move || drop(guard)); });
/// assert_eq!(*m.lock(), 5);
/// ```
///
/// ```compile_fail,E0277
/// # use runnext::sync::Mutex;
/// let m = Mutex::new(std::rc::Rc::new(5));
/// let guard = m.lock();
/// std::thread::scope(|s| { s.spawn(move || drop(guard)); }); // an Rc must stay on its thread
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct MutexGuard<'a, T: ?Sized> {
    mutex: &'a Mutex<T>,
    /// Sent and shared as what it gives access to.
    _data: PhantomData<&'a mut T>,
}

// As std's.
impl<T: ?Sized> UnwindSafe for MutexGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for MutexGuard<'_, T> {}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    /// The caller has just taken the lock.
    #[inline]
    fn new(mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        MutexGuard {
            mutex,
            _data: PhantomData,
        }
    }

    pub(super) fn raw(&self) -> &'a RawMutex {
        &self.mutex.raw
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the lock, so nobody else has a reference that writes.
        unsafe { &*self.mutex.data.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the lock, and is itself borrowed for writing.
        unsafe { &mut *self.mutex.data.get() }
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the guard, and it ends here.
        unsafe { self.mutex.raw.unlock() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

//! `RwLock`: many readers or one writer, in phases.
//!
//! # Why this shape
//! Readers are one atomic addition each way as long as no writer wants in, so they do not queue behind each other. A writer
//! announces itself by taking 2^30 off the count of readers: who comes later sees a negative count and waits, who was
//! there is waited for. So phases alternate: a writer waits for at most the readers that were in before it, and when it
//! leaves, all readers that came meanwhile go in together before the next writer.
//! Rejected: readers preferred (a flood of them starves a writer), writers preferred (the reverse), one FIFO (readers that could share
//! take turns).
//!
//! # Words
//! *pending*: a writer has announced itself, and holds the lock or waits for readers to leave.
//!
//! | word      | meaning                                                       | changed by                              |
//! |-----------|---------------------------------------------------------------|-----------------------------------------|
//! | `writers` | serialises writers: fair by the rules of `Mutex`               | writers                                 |
//! | `readers` | readers in, and waiting; less `PENDING` while a writer is pending | readers ±1, the writer ∓`PENDING`     |
//! | `leaving` | readers that the pending writer still waits for               | the writer +n, leaving readers −1        |
//!
//! # Protocol
//! ```text
//! read:    readers += 1; negative: wait for a token at `read_spot`. With the token the lock is held: no second try
//! unread:  readers -= 1; negative: leaving -= 1; the one that makes it 0 leaves a token at `write_spot`
//! write:   1 take `writers`  2 n = readers; readers -= PENDING  3 n readers in: leaving += n; not 0: wait at `write_spot`
//! downgrade: as unwrite, but readers += PENDING + 1
//! unwrite: 1 n = (readers += PENDING)  2 n tokens at `read_spot`  3 release `writers`
//! ```
//!
//! # Invariants
//! I1  A reader blocked by a writer is counted in `readers` from the start, so the next writer's n includes it: the whole batch
//!     goes first.
//! I2  `leaving` may be negative for a moment (readers leave between steps 2 and 3 of `write`); exactly one party
//!     brings it to 0 after step 3 has begun, and only that one speaks for the token.
//! I3  `readers + PENDING` stays below `PENDING`: one above [`MAX_READERS`] panics, so that leaked guards cannot turn the
//!     sign around.
//! I4  One that waits and is abandoned with its runtime (`sched::wait`) is counted until it would get its token. Then it is counted out, as if it
//!     had come and left at once; a writer with all it has announced. So is one that has got its token and never runs again (`g::will`), or has no
//!     processor to wait with any more when it would begin to.
//!
//! Tests: `tests/sync/rwlock.rs`.

use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::ops::{Deref, DerefMut};
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicI32, Ordering::*};

use super::queue::Place;
use super::raw::{self, RawMutex, Spot};
use crate::g::{G, WaitReason};
use crate::sched::call::Call;

/// What a pending writer takes off the count of readers (Go's figure).
const PENDING: i32 = 1 << 30;
/// Read guards that may exist at once; far below `PENDING`, so that those who are refused do no harm before they notice.
const MAX_READERS: i32 = 1 << 29;

/// Many readers at a time, or one writer.
///
/// Like [`std::sync::RwLock`], but waiting blocks the goroutine and not its thread, there is no poisoning, and neither side starves
/// the other: a writer waits for the readers that were in before it and no others; the readers that wait for a writer
/// go in together when it leaves, before the next writer.
///
/// It follows that a goroutine must not take a second read lock while it holds one: if a writer arrives in between, the second
/// read lock waits for the writer, and the writer for the first one.
///
/// With [groups](crate::TaskGroup), a writer inherits the priority of those that wait for it, as the owner of a
/// [`Mutex`](super::Mutex) does. Readers, of which there may be many, do not.
///
/// # Example
/// ```
/// use runnext::sync::RwLock;
///
/// #[runnext::main]
/// fn main() {
///     let config = RwLock::new(String::from("v1"));
///     {
///         let (a, b) = (config.read(), config.try_read().unwrap());
///         assert_eq!(*a, *b); // readers share
///     }
///     config.write().replace_range(.., "v2");
///     assert_eq!(*config.read(), "v2");
/// }
/// ```
pub struct RwLock<T: ?Sized> {
    raw: RawRwLock,
    data: UnsafeCell<T>,
}

// SAFETY: readers on several threads share the data (`Sync`), writers move it between threads (`Send`).
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}
// SAFETY: owning the lock is owning the data; the lock itself belongs to no thread.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}

// As std's. There is no poison: who catches a panic looks after what the holder left.
impl<T: ?Sized> UnwindSafe for RwLock<T> {}
impl<T: ?Sized> RefUnwindSafe for RwLock<T> {}

struct RawRwLock {
    readers: AtomicI32,
    leaving: AtomicI32,
    writers: RawMutex,
    read_spot: Spot,
    write_spot: Spot,
}

impl RawRwLock {
    /// Takes a read lock. The caller gives what it gets back to `unread`. Not inlined: see `raw`, "Context".
    #[inline(never)]
    fn read(&self) -> *const G {
        let readers = self.readers.fetch_add(1, Acquire) + 1;
        if readers > 0 && readers <= MAX_READERS {
            return raw::note_taken();
        }
        self.read_slow(readers)
    }

    #[cold]
    #[inline(never)]
    fn read_slow(&self, readers: i32) -> *const G {
        if readers > MAX_READERS {
            self.readers.fetch_sub(1, Relaxed);
            panic!("more than {MAX_READERS} read locks on one RwLock: guards are leaked somewhere");
        }
        self.writers.lend_to_owner(); // whom all readers wait for
        let (call, reason) = (Call::enter_to_give(), WaitReason::RwLockRead);
        (self.read_spot).take(call, Place::Back, reason, || self.lose_reader());
        note_taken_after_wait()
    }

    #[inline(never)]
    fn try_read(&self) -> Option<*const G> {
        let mut readers = self.readers.load(Relaxed);
        while (0..MAX_READERS).contains(&readers) {
            match self
                .readers
                .compare_exchange_weak(readers, readers + 1, Acquire, Relaxed)
            {
                Ok(_) => return Some(raw::note_taken()),
                Err(now) => readers = now,
            }
        }
        None
    }

    #[inline(never)]
    fn unread(&self, holder: *const G) {
        let own = raw::note_released(holder);
        if self.readers.fetch_sub(1, Release) <= 0 {
            self.unread_slow();
        }
        if let Some(g) = own {
            raw::settle(g);
        }
    }

    /// A writer waits. AcqRel: it must see what all leaving readers did, through the last one's token.
    #[cold]
    #[inline(never)]
    fn unread_slow(&self) {
        if self.leaving.fetch_sub(1, AcqRel) == 1 {
            let call = Call::brief();
            // I2. One at most ever waits there.
            if self.write_spot.give_many(&call, 1) != 0 {
                self.undo_write(&call);
            }
        }
    }

    /// The writer that the last reader was to let in has been abandoned: what it did is undone in its name.
    #[cold]
    fn undo_write(&self, call: &Call) {
        let waiting = self.readers.fetch_add(PENDING, AcqRel) + PENDING;
        if waiting > 0 {
            self.admit(call, waiting);
        }
        // SAFETY: that writer holds it, and will never come back to it.
        unsafe { self.writers.unlock_within(call) };
    }

    /// A reader that was let in never runs again.
    fn lose_reader(&self) {
        if self.readers.fetch_sub(1, Release) <= 0 {
            self.unread_slow();
        }
    }

    /// A writer that was let in never runs again.
    fn lose_writer(&self) {
        self.undo_write(&Call::brief());
    }

    /// Readers that waited for a writer go in. Those who have been abandoned count no longer; no other writer is pending before `writers` is
    /// released, so nobody waits for them to leave.
    fn admit(&self, call: &Call, waiting: i32) {
        let gone = self.read_spot.give_many(call, waiting as usize);
        if gone > 0 {
            self.readers.fetch_sub(gone as i32, Release);
        }
    }

    fn write(&self) {
        self.writers.lock(WaitReason::RwLockWrite);
        let in_before = self.readers.fetch_sub(PENDING, AcqRel);
        if in_before != 0 && self.leaving.fetch_add(in_before, AcqRel) + in_before != 0 {
            let (call, reason) = (Call::enter_to_give(), WaitReason::RwLockWrite);
            (self.write_spot).take(call, Place::Back, reason, || self.lose_writer());
        }
    }

    fn try_write(&self) -> bool {
        if !self.writers.try_lock() {
            return false;
        }
        let free = self
            .readers
            .compare_exchange(0, -PENDING, AcqRel, Relaxed)
            .is_ok();
        if !free {
            // SAFETY: taken above.
            unsafe { self.writers.unlock_here() };
        }
        free
    }

    /// The write lock becomes a read lock; the caller gives what it gets back to `unread`. No writer comes between: one more reader is in before `writers`
    /// is released. Not inlined: see `raw`, "Context".
    ///
    /// # Safety
    /// As for [`unwrite`](Self::unwrite).
    #[inline(never)]
    unsafe fn downgrade(&self) -> *const G {
        let waiting = self.readers.fetch_add(PENDING + 1, AcqRel) + PENDING;
        let holder = raw::note_taken();
        if waiting > 0 {
            self.let_in(waiting);
        }
        // SAFETY: a writer holds it.
        unsafe { self.writers.unlock() };
        holder
    }

    /// What those who waited lent to the caller is theirs again.
    #[cold]
    #[inline(never)]
    fn let_in(&self, waiting: i32) {
        raw::give_back_own();
        self.admit(&Call::brief(), waiting);
    }

    /// # Safety
    /// The caller holds the write lock, in the sense that a guard for it is being given up.
    unsafe fn unwrite(&self) {
        let waiting = self.readers.fetch_add(PENDING, AcqRel) + PENDING;
        if waiting > 0 {
            self.let_in(waiting);
        }
        // SAFETY: a writer holds it.
        unsafe { self.writers.unlock() };
    }
}

/// As `raw::note_taken`, for after a wait.
#[inline(never)]
fn note_taken_after_wait() -> *const G {
    raw::note_taken()
}

impl<T> RwLock<T> {
    /// A free lock with `value` inside.
    ///
    /// ```
    /// static NAMES: runnext::sync::RwLock<Vec<&str>> = runnext::sync::RwLock::new(Vec::new());
    /// NAMES.write().push("gopher");
    /// assert_eq!(NAMES.read().len(), 1);
    /// ```
    pub const fn new(value: T) -> RwLock<T> {
        RwLock {
            raw: RawRwLock {
                readers: AtomicI32::new(0),
                leaving: AtomicI32::new(0),
                writers: RawMutex::new(),
                read_spot: Spot::new(),
                write_spot: Spot::new(),
            },
            data: UnsafeCell::new(value),
        }
    }

    /// The data, without the lock.
    ///
    /// ```
    /// assert_eq!(runnext::sync::RwLock::new(3).into_inner(), 3);
    /// ```
    pub fn into_inner(self) -> T {
        self.data.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Takes a read lock, which others may have too; dropping the guard releases it.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), while a writer holds the lock or waits for it.
    ///
    /// # Panics
    /// If half a billion read guards exist.
    ///
    /// # Example
    /// ```
    /// let l = runnext::sync::RwLock::new(1);
    /// let (a, b) = (l.read(), l.read());
    /// assert_eq!(*a + *b, 2);
    /// ```
    #[inline]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        RwLockReadGuard {
            lock: self,
            holder: self.raw.read(),
            _data: PhantomData,
        }
    }

    /// Takes a read lock if no writer holds the lock or waits for it.
    ///
    /// ```
    /// let l = runnext::sync::RwLock::new(1);
    /// let writing = l.write();
    /// assert!(l.try_read().is_none());
    /// drop(writing);
    /// assert_eq!(*l.try_read().unwrap(), 1);
    /// ```
    #[inline]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        Some(RwLockReadGuard {
            holder: self.raw.try_read()?,
            lock: self,
            _data: PhantomData,
        })
    }

    /// Takes the write lock, which nobody else has; dropping the guard releases it.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), until writers before it and the readers that were in have left.
    ///
    /// # Example
    /// ```
    /// let l = runnext::sync::RwLock::new(1);
    /// *l.write() += 1;
    /// assert_eq!(l.into_inner(), 2);
    /// ```
    #[inline]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        self.raw.write();
        RwLockWriteGuard {
            lock: self,
            _data: PhantomData,
        }
    }

    /// Takes the write lock if nobody has the lock in any way.
    ///
    /// ```
    /// let l = runnext::sync::RwLock::new(1);
    /// let reading = l.read();
    /// assert!(l.try_write().is_none());
    /// drop(reading);
    /// assert!(l.try_write().is_some());
    /// ```
    #[inline]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        self.raw.try_write().then(|| RwLockWriteGuard {
            lock: self,
            _data: PhantomData,
        })
    }

    /// The data, through a borrow that proves nobody else has it.
    ///
    /// ```
    /// let mut l = runnext::sync::RwLock::new(1);
    /// *l.get_mut() = 2;
    /// assert_eq!(*l.read(), 2);
    /// ```
    pub fn get_mut(&mut self) -> &mut T {
        self.data.get_mut()
    }
}

impl<T: Default> Default for RwLock<T> {
    fn default() -> RwLock<T> {
        RwLock::new(T::default())
    }
}

impl<T> From<T> for RwLock<T> {
    fn from(value: T) -> RwLock<T> {
        RwLock::new(value)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    /// Shows the data if no writer has the lock; never waits for it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_struct("RwLock");
        match self.try_read() {
            Some(guard) => out.field("data", &&*guard),
            None => out.field("data", &format_args!("<locked>")),
        };
        out.finish_non_exhaustive()
    }
}

/// The right to read the data of a [`RwLock`]; dropping it releases the lock.
///
/// # Example
/// ```
/// use runnext::sync::{RwLock, RwLockReadGuard};
///
/// let sizes = RwLock::new(vec![10, 20]);
/// let guard: RwLockReadGuard<'_, Vec<u32>> = sizes.read();
/// assert_eq!(guard.iter().sum::<u32>(), 30); // used as the data itself
/// assert!(sizes.try_write().is_none());
/// drop(guard);
/// assert!(sizes.try_write().is_some());
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Whose count of locks it is in; null for a plain thread.
    holder: *const G,
    /// Sent and shared as what it gives access to.
    _data: PhantomData<&'a T>,
}

// SAFETY: it gives `&T` to whatever thread it is on, and may be dropped anywhere. `holder` is compared, and looked
// into only after the slab was asked.
unsafe impl<T: ?Sized + Sync> Send for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}

// As the lock, which gives the same data away after a panic.
impl<T: ?Sized> UnwindSafe for RwLockReadGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for RwLockReadGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds a read lock, so nobody writes.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        self.lock.raw.unread(self.holder);
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

/// The right to use the data of a [`RwLock`] alone; dropping it releases the lock.
///
/// # Blocks
/// Dropping it may switch to a goroutine that the lock is handed to. The dropping goroutine is then queued, and may resume on
/// another thread. It does not wait for anything else.
///
/// # Example
/// ```
/// use runnext::sync::{RwLock, RwLockWriteGuard};
///
/// fn append(mut log: RwLockWriteGuard<'_, String>, line: &str) {
///     log.push_str(line);
/// } // released here
///
/// let log = RwLock::new(String::from("log:"));
/// append(log.write(), " started");
/// assert_eq!(*log.read(), "log: started");
/// ```
#[must_use = "the lock is released when the guard is dropped"]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    /// Sent and shared as what it gives access to.
    _data: PhantomData<&'a mut T>,
}

impl<'a, T: ?Sized> RwLockWriteGuard<'a, T> {
    /// Makes it a read lock, with no writer in between; readers that wait come in too. As std's, it is not a method, since the data might have one of that name.
    ///
    /// # Blocks
    /// As dropping it.
    ///
    /// # Example
    /// ```
    /// use runnext::sync::{RwLock, RwLockWriteGuard};
    ///
    /// let version = RwLock::new(1);
    /// let mut writing = version.write();
    /// *writing += 1;
    /// let reading = RwLockWriteGuard::downgrade(writing);
    /// assert_eq!(*version.try_read().unwrap(), 2); // others may read now
    /// assert!(version.try_write().is_none());
    /// # drop(reading);
    /// ```
    pub fn downgrade(guard: Self) -> RwLockReadGuard<'a, T> {
        let lock = ManuallyDrop::new(guard).lock;
        RwLockReadGuard {
            lock,
            // SAFETY: this was the guard, and it is not dropped.
            holder: unsafe { lock.raw.downgrade() },
            _data: PhantomData,
        }
    }
}

// SAFETY: it gives `&mut T` to whatever thread it is on, and may be dropped anywhere. Not derived, because a shared `RwLock` asks
// `T: Sync` too, for its readers, of which there are none now.
unsafe impl<T: ?Sized + Send> Send for RwLockWriteGuard<'_, T> {}
// SAFETY: a shared guard gives `&T` only.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

// As above.
impl<T: ?Sized> UnwindSafe for RwLockWriteGuard<'_, T> {}
impl<T: ?Sized> RefUnwindSafe for RwLockWriteGuard<'_, T> {}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        // SAFETY: the guard holds the write lock.
        unsafe { &*self.lock.data.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: the guard holds the write lock, and is itself borrowed for writing.
        unsafe { &mut *self.lock.data.get() }
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    #[inline]
    fn drop(&mut self) {
        // SAFETY: this is the guard, and it ends here.
        unsafe { self.lock.raw.unwrite() };
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Display> fmt::Display for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

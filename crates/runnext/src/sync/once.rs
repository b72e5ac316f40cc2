//! `Once` and `OnceLock`: something that happens one time, whoever comes first.
//!
//! | state   | meaning                              | who leaves it, to what                                   |
//! |---------|--------------------------------------|----------------------------------------------------------|
//! | NEW     | has not happened                     | the first caller → RUNNING                               |
//! | RUNNING | `runner` is at it; others queue up   | the runner → DONE; if it panics → NEW, for the next one  |
//! | DONE    | has happened                         | nobody                                                   |
//!
//! All changes are made under the lock of the queue; the usual caller reads DONE without it. Both ends of RUNNING wake everybody, who look
//! again.

use std::cell::UnsafeCell;
use std::fmt;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::atomic::{AtomicU32, Ordering::*};

use super::queue::{Node, Place, Queue};
use crate::g::WaitReason;
use crate::lock::{Lock, LockGuard};
use crate::sched::call::Call;
use crate::sched::wait::Waiter;

const NEW: u32 = 0;
const RUNNING: u32 = 1;
const DONE: u32 = 2;

/// Makes something happen one time, however many goroutines ask for it.
///
/// Like [`std::sync::Once`], but waiting blocks the goroutine and not its thread, and there is no poisoning: if the closure panics,
/// the next caller runs its own.
///
/// # Example
/// ```
/// use runnext::sync::Once;
/// use std::sync::atomic::{AtomicU32, Ordering::*};
///
/// static SETUP: Once = Once::new();
/// static RUNS: AtomicU32 = AtomicU32::new(0);
///
/// #[runnext::main]
/// fn main() {
///     runnext::scope(|s| {
///         for _ in 0..10 {
///             s.go(|| SETUP.call_once(|| { RUNS.fetch_add(1, Relaxed); }));
///         }
///     });
///     assert_eq!(RUNS.load(Relaxed), 1);
/// }
/// ```
pub struct Once {
    state: AtomicU32,
    inner: Lock<Inner>,
}

struct Inner {
    runner: Option<Waiter>,
    queue: Queue,
}

impl Once {
    /// One that has not happened.
    ///
    /// ```
    /// assert!(!runnext::sync::Once::new().is_completed());
    /// ```
    pub const fn new() -> Once {
        Once::in_state(NEW)
    }

    const fn in_state(state: u32) -> Once {
        Once {
            state: AtomicU32::new(state),
            inner: Lock::new(Inner {
                runner: None,
                queue: Queue::new(),
            }),
        }
    }

    /// Runs `f` if nobody has done so yet; returns when it has happened, here or elsewhere.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), while another runs its closure.
    ///
    /// # Panics
    /// With the panic of `f`, after which the next caller runs its own. If `f` itself calls `call_once` on the same `Once`.
    ///
    /// # Example
    /// ```
    /// let once = runnext::sync::Once::new();
    /// let mut runs = Vec::new();
    /// once.call_once(|| runs.push("first"));
    /// once.call_once(|| runs.push("second"));
    /// assert_eq!(runs, ["first"]);
    /// ```
    #[inline]
    #[track_caller]
    pub fn call_once(&self, f: impl FnOnce()) {
        if !self.is_completed() && self.begin() {
            let mut running = Running {
                once: self,
                ends_as: NEW,
            };
            f();
            running.ends_as = DONE;
        }
    }

    /// Whether it has happened.
    ///
    /// ```
    /// let once = runnext::sync::Once::new();
    /// once.call_once(|| {});
    /// assert!(once.is_completed());
    /// ```
    #[inline]
    pub fn is_completed(&self) -> bool {
        self.state.load(Acquire) == DONE
    }

    /// Waits until it has happened.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread).
    ///
    /// # Example
    /// ```
    /// static READY: runnext::sync::Once = runnext::sync::Once::new();
    /// # #[runnext::main] fn main() {
    /// runnext::go(|| READY.call_once(|| {}));
    /// READY.wait();
    /// assert!(READY.is_completed());
    /// # }
    /// ```
    pub fn wait(&self) {
        while !self.is_completed() {
            let mut call = Call::enter();
            let node = Node::new(&call);
            let inner = self.inner.lock();
            if self.state.load(Relaxed) != DONE {
                self.queue_up(&mut call, node, inner);
            }
        }
    }

    /// Makes the caller the runner. False: it has happened.
    #[cold]
    #[track_caller]
    fn begin(&self) -> bool {
        loop {
            let mut call = Call::enter();
            let node = Node::new(&call);
            let me = call.waiter();
            let mut inner = self.inner.lock();
            match self.state.load(Relaxed) {
                NEW => {
                    inner.runner = Some(me);
                    self.state.store(RUNNING, Relaxed);
                    return true;
                }
                RUNNING if inner.runner == Some(me) => {
                    drop(inner);
                    drop(call);
                    panic!(
                        "the closure that initialises a Once or OnceLock asks for the same one: it would wait \
                         for itself for ever; pass it what it needs instead"
                    );
                }
                RUNNING => self.queue_up(&mut call, node, inner),
                _ => return false,
            }
        }
    }

    fn queue_up(&self, call: &mut Call, node: Node, inner: LockGuard<'_, Inner>) {
        node.wait(
            call,
            inner,
            |inner| &mut inner.queue,
            Place::Back,
            WaitReason::Once,
        );
    }
}

/// Somebody runs the closure; at the end of this it has happened, or not.
struct Running<'a> {
    once: &'a Once,
    ends_as: u32,
}

impl Drop for Running<'_> {
    fn drop(&mut self) {
        let call = Call::brief();
        let batch = {
            let mut inner = self.once.inner.lock();
            inner.runner = None;
            self.once.state.store(self.ends_as, Release);
            inner.queue.take_all()
        };
        batch.wake(&call);
    }
}

impl Default for Once {
    fn default() -> Once {
        Once::new()
    }
}

impl fmt::Debug for Once {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Once")
            .field("completed", &self.is_completed())
            .finish_non_exhaustive()
    }
}

/// A value that is written once and then only read.
///
/// Like [`std::sync::OnceLock`], but waiting for another's initialisation blocks the goroutine and not its thread.
///
/// # Example
/// ```
/// use runnext::sync::OnceLock;
///
/// static CONFIG: OnceLock<String> = OnceLock::new();
///
/// #[runnext::main]
/// fn main() {
///     let name = || CONFIG.get_or_init(|| "runnext".to_owned());
///     let other = runnext::go(move || name().len());
///     assert_eq!(name(), "runnext");
///     assert_eq!(other.join().unwrap(), 7);
/// }
/// ```
pub struct OnceLock<T> {
    once: Once,
    /// Holds a value once `once` has happened. An `Option`, though `once` knows as much: it is dropped without a `Drop` of the cell's own, which
    /// would refuse values that borrow what is declared after the cell, as std's does not.
    value: UnsafeCell<Option<T>>,
}

// SAFETY: the value is written by one caller, perhaps to be dropped on another thread (`Send`), and read by all (`Sync`).
unsafe impl<T: Send + Sync> Sync for OnceLock<T> {}
// SAFETY: owning the cell is owning the value.
unsafe impl<T: Send> Send for OnceLock<T> {}

// As std's.
impl<T: UnwindSafe> UnwindSafe for OnceLock<T> {}
impl<T: RefUnwindSafe + UnwindSafe> RefUnwindSafe for OnceLock<T> {}

impl<T> OnceLock<T> {
    /// An empty one.
    ///
    /// ```
    /// assert!(runnext::sync::OnceLock::<u8>::new().get().is_none());
    /// ```
    pub const fn new() -> OnceLock<T> {
        OnceLock {
            once: Once::new(),
            value: UnsafeCell::new(None),
        }
    }

    /// The value, if there is one.
    ///
    /// ```
    /// let cell = runnext::sync::OnceLock::from(3);
    /// assert_eq!(cell.get(), Some(&3));
    /// ```
    #[inline]
    pub fn get(&self) -> Option<&T> {
        if !self.once.is_completed() {
            return None;
        }
        // SAFETY: written, and never again while shared.
        unsafe { (*self.value.get()).as_ref() }
    }

    /// The value, if there is one, for writing: nobody else can see it.
    ///
    /// ```
    /// let mut cell = runnext::sync::OnceLock::from(3);
    /// *cell.get_mut().unwrap() += 1;
    /// assert_eq!(cell.into_inner(), Some(4));
    /// ```
    pub fn get_mut(&mut self) -> Option<&mut T> {
        self.value.get_mut().as_mut()
    }

    /// Writes the value, if there is none.
    ///
    /// # Errors
    /// Gives `value` back if there is one already.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), while another writes.
    ///
    /// # Example
    /// ```
    /// let cell = runnext::sync::OnceLock::new();
    /// assert_eq!(cell.set("first"), Ok(()));
    /// assert_eq!(cell.set("second"), Err("second"));
    /// ```
    pub fn set(&self, value: T) -> Result<(), T> {
        let mut value = Some(value);
        self.get_or_init(|| value.take().expect("this closure runs at most once"));
        value.map_or(Ok(()), Err)
    }

    /// The value; `init` makes it, if there is none.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread), while another makes it.
    ///
    /// # Panics
    /// With the panic of `init`, after which the next caller runs its own. If `init` itself asks for this value.
    ///
    /// # Example
    /// ```
    /// let cell = runnext::sync::OnceLock::new();
    /// assert_eq!(cell.get_or_init(|| vec![1, 2]).len(), 2);
    /// assert_eq!(cell.get_or_init(Vec::new), &[1, 2]); // made already
    /// ```
    #[inline]
    #[track_caller]
    pub fn get_or_init(&self, init: impl FnOnce() -> T) -> &T {
        self.once.call_once(|| {
            let value = init();
            // SAFETY: the one runner, before it has happened: nobody reads.
            unsafe { *self.value.get() = Some(value) };
        });
        // SAFETY: it has happened, so there is a value, and never another while shared.
        unsafe { (*self.value.get()).as_ref().unwrap_unchecked() }
    }

    /// Waits until there is a value.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread).
    ///
    /// # Example
    /// ```
    /// static PORT: runnext::sync::OnceLock<u16> = runnext::sync::OnceLock::new();
    /// # #[runnext::main] fn main() {
    /// runnext::go(|| PORT.set(80));
    /// assert_eq!(*PORT.wait(), 80);
    /// # }
    /// ```
    pub fn wait(&self) -> &T {
        self.once.wait();
        // SAFETY: it has happened, so there is a value, and never another while shared.
        unsafe { (*self.value.get()).as_ref().unwrap_unchecked() }
    }

    /// Takes the value out, leaving an empty cell.
    ///
    /// ```
    /// let mut cell = runnext::sync::OnceLock::from(3);
    /// assert_eq!(cell.take(), Some(3));
    /// assert_eq!(cell.take(), None);
    /// ```
    pub fn take(&mut self) -> Option<T> {
        self.once = Once::new();
        self.value.get_mut().take()
    }

    /// The value, if there is one, without the cell.
    ///
    /// ```
    /// assert_eq!(runnext::sync::OnceLock::from(3).into_inner(), Some(3));
    /// ```
    pub fn into_inner(self) -> Option<T> {
        self.value.into_inner()
    }
}

impl<T> Default for OnceLock<T> {
    fn default() -> OnceLock<T> {
        OnceLock::new()
    }
}

impl<T> From<T> for OnceLock<T> {
    fn from(value: T) -> OnceLock<T> {
        OnceLock {
            once: Once::in_state(DONE), // not run: that might move the goroutine
            value: UnsafeCell::new(Some(value)),
        }
    }
}

/// Equal if both have no value, or equal ones.
impl<T: PartialEq> PartialEq for OnceLock<T> {
    fn eq(&self, other: &OnceLock<T>) -> bool {
        self.get() == other.get()
    }
}

impl<T: Eq> Eq for OnceLock<T> {}

impl<T: Clone> Clone for OnceLock<T> {
    fn clone(&self) -> OnceLock<T> {
        self.get()
            .cloned()
            .map_or_else(OnceLock::new, OnceLock::from)
    }
}

impl<T: fmt::Debug> fmt::Debug for OnceLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut out = f.debug_tuple("OnceLock");
        match self.get() {
            Some(value) => out.field(value),
            None => out.field(&format_args!("<empty>")),
        };
        out.finish()
    }
}

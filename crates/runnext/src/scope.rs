//! `scope`: goroutines that may borrow from their caller's frame.
//!
//! The scope does not return before all its goroutines have ended, so what they borrow outlives them. It waits even when
//! its own closure panics. A child counts as ended when its closure is gone and its result is either in the
//! hands of a handle, which cannot outlive the scope, or dropped: what may outlive it, a `Goroutine` or a waker, keeps no
//! result (`runnext_core::life`, I1).

use std::marker::PhantomData;
use std::panic::{self, AssertUnwindSafe, Location};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::{fmt, io, mem};

use crate::g::{After, WaitReason};
use crate::goroutine::{Builder, Goroutine, JoinHandle, current_shared};
use crate::sched::Shared;
use crate::sched::call::Call;
use crate::sched::spawn::{self, Body, Options, Outcome};
use crate::sched::wait::Waiter;
use crate::swallow;

/// A scope for goroutines that borrow; see [`scope`].
///
/// # Example
/// ```
/// use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
/// use runnext::{Scope, scope};
///
/// /// Starts goroutines in its caller's scope, and does not wait for them.
/// fn count<'scope, 'env>(s: &'scope Scope<'scope, 'env>, words: &'env [&str], letters: &'env AtomicUsize) {
///     for word in words {
///         s.go(move || letters.fetch_add(word.len(), Relaxed));
///     }
/// }
///
/// #[runnext::main]
/// fn main() {
///     let (words, letters) = (["wait", "for", "us"], AtomicUsize::new(0));
///     scope(|s| count(s, &words, &letters));
///     assert_eq!(letters.into_inner(), 9);
/// }
/// ```
pub struct Scope<'scope, 'env: 'scope> {
    state: State,
    // Invariant in both: a longer lifetime must not be made from a shorter one.
    scope: PhantomData<&'scope mut &'scope ()>,
    env: PhantomData<&'env mut &'env ()>,
}

struct State {
    /// Children that have not ended, plus one for the scope's own closure.
    running: AtomicUsize,
    /// Panics of children that no `join` has taken.
    panics: AtomicUsize,
    /// The one that waits at the end of the scope; written before the scope gives up its own count.
    waiter: AtomicUsize,
}

/// Starts goroutines that may borrow local variables: all of them have ended when `scope` returns.
///
/// # Blocks
/// The goroutine (on a plain thread, the thread), until every goroutine of the scope has ended.
///
/// # Panics
/// If `f` panics, with its panic; if a goroutine of the scope panicked and was not joined.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let words = ["goroutines", "may", "borrow"];
///     let mut total = 0;
///     runnext::scope(|s| {
///         let lengths = words.map(|w| s.go(move || w.len()));
///         total = lengths.into_iter().map(|l| l.join().unwrap()).sum();
///     });
///     assert_eq!(total, 19);
/// }
/// ```
pub fn scope<'env, F, T>(f: F) -> T
where
    F: for<'scope> FnOnce(&'scope Scope<'scope, 'env>) -> T,
{
    let scope = Scope {
        state: State {
            running: AtomicUsize::new(1),
            panics: AtomicUsize::new(0),
            waiter: AtomicUsize::new(0),
        },
        scope: PhantomData,
        env: PhantomData,
    };
    let outcome = panic::catch_unwind(AssertUnwindSafe(|| f(&scope)));
    scope.state.wait();
    match outcome {
        Err(payload) => panic::resume_unwind(payload),
        Ok(_) if scope.state.panics.load(Relaxed) > 0 => panic!("a scoped goroutine panicked"),
        Ok(value) => value,
    }
}

impl State {
    fn wait(&self) {
        let mut call = Call::enter();
        self.waiter.store(call.waiter().into_raw(), Relaxed);
        if self.running.fetch_sub(1, AcqRel) != 1 {
            call.park(WaitReason::Scope);
        }
    }

    /// The last child out wakes the scope.
    ///
    /// # Safety
    /// `state` is the scope of a child that was counted in and calls this once.
    unsafe fn child_ended(state: *const ()) {
        // SAFETY: the child's count keeps the scope until it is given up.
        let state = unsafe { &*state.cast::<State>() };
        if state.running.fetch_sub(1, AcqRel) == 1 {
            // The count reached zero, so the scope has given up its own and sleeps, or is about to, until we
            // wake it: it is still there.
            // SAFETY: written by `wait` before it gave up its count.
            Call::brief().wake(unsafe { Waiter::from_raw(state.waiter.load(Relaxed)) });
        }
    }

    fn after_child(&self) -> After {
        After {
            call: Some(State::child_ended),
            with: std::ptr::from_ref(self).cast(),
        }
    }
}

/// The body of a child: counts its panic, and its end.
struct Child<'scope, F> {
    f: F,
    state: &'scope State,
}

impl<F: FnOnce() -> T, T> Body for Child<'_, F> {
    type Output = T;

    fn run(self) -> (Outcome<T>, After) {
        let Child { f, state } = self;
        let outcome = panic::catch_unwind(AssertUnwindSafe(f));
        if outcome.is_err() {
            state.panics.fetch_add(1, Relaxed);
        }
        (outcome, state.after_child())
    }

    fn fail(self) -> After {
        let Child { f, state } = self;
        state.panics.fetch_add(1, Relaxed);
        // A panic in the drop of what it captured has nobody to go to.
        swallow::panics(move || drop(f));
        state.after_child()
    }
}

impl<'scope> Scope<'scope, '_> {
    /// Starts a goroutine in the scope; like [`go`](crate::go), but `f` may borrow what outlives the scope.
    ///
    /// # Panics
    /// As [`go`](crate::go).
    ///
    /// # Example
    /// ```
    /// use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let visits = AtomicU32::new(0);
    ///     runnext::scope(|s| {
    ///         for _ in 0..3 {
    ///             s.go(|| {
    ///                 visits.fetch_add(1, Relaxed);
    ///                 s.go(|| visits.fetch_add(100, Relaxed)); // the scope waits for this one too
    ///             });
    ///         }
    ///     });
    ///     assert_eq!(visits.into_inner(), 303);
    /// }
    /// ```
    #[track_caller]
    pub fn go<F, T>(&'scope self, f: F) -> ScopedJoinHandle<'scope, T>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let shared = current_shared("Scope::go");
        let options = Options {
            site: Location::caller(),
            ext: None,
            stack_class: None,
            group: None,
        };
        match self.start(shared, options, f) {
            Ok(handle) => handle,
            Err(e) => panic!("cannot start a goroutine: {e}"),
        }
    }

    fn start<F, T>(
        &'scope self,
        shared: &Shared,
        options: Options<'_>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let state = &self.state;
        state.running.fetch_add(1, Relaxed);
        let counted = Counted(state);
        // SAFETY: the scope waits for the child, so 'scope outlives it; Send by the bounds.
        let g = unsafe { spawn::spawn(shared, options, Child { f, state }) }?;
        mem::forget(counted); // the child's now
        Ok(ScopedJoinHandle {
            // SAFETY: the header counts one handle for us, and its result is a T.
            inner: unsafe { JoinHandle::new(g) },
            state,
        })
    }
}

/// A child that was counted and has not been started: the scope need not wait for it. Whoever starts one is counted too, so this is never the last.
struct Counted<'a>(&'a State);

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        self.0.running.fetch_sub(1, Relaxed);
    }
}

impl Builder {
    /// Starts the goroutine in a scope; like [`spawn`](Self::spawn), but `f` may borrow what outlives the scope.
    ///
    /// # Errors
    /// As [`spawn`](Self::spawn).
    ///
    /// # Panics
    /// As [`spawn`](Self::spawn).
    ///
    /// # Example
    /// ```
    /// use runnext::goroutine::Builder;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let text = String::from("borrowed");
    ///     runnext::scope(|s| {
    ///         let counter = Builder::new().name("counter").spawn_scoped(s, || text.len())?;
    ///         assert_eq!(counter.goroutine().name(), Some("counter"));
    ///         assert_eq!(counter.join().unwrap(), 8);
    ///         Ok(())
    ///     })
    /// }
    /// ```
    #[track_caller]
    pub fn spawn_scoped<'scope, 'env, F, T>(
        mut self,
        scope: &'scope Scope<'scope, 'env>,
        f: F,
    ) -> io::Result<ScopedJoinHandle<'scope, T>>
    where
        F: FnOnce() -> T + Send + 'scope,
        T: Send + 'scope,
    {
        let shared = current_shared("goroutine::Builder::spawn_scoped");
        let options = self.options(Location::caller())?;
        scope.start(shared, options, f)
    }
}

impl fmt::Debug for Scope<'_, '_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let children = self.state.running.load(Relaxed).saturating_sub(1);
        f.debug_struct("Scope")
            .field("running", &children)
            .finish_non_exhaustive()
    }
}

/// The right to wait for a goroutine of a scope and take its result.
///
/// # Example
/// ```
/// use runnext::{ScopedJoinHandle, scope};
///
/// #[runnext::main]
/// fn main() {
///     let numbers = [3, 1, 4, 1, 5, 9, 2, 6];
///     let largest = scope(|s| {
///         let halves: Vec<ScopedJoinHandle<'_, Option<&i32>>> =
///             numbers.chunks(4).map(|half| s.go(|| half.iter().max())).collect();
///         halves.into_iter().filter_map(|h| h.join().unwrap()).max()
///     });
///     assert_eq!(largest, Some(&9));
/// }
/// ```
pub struct ScopedJoinHandle<'scope, T> {
    inner: JoinHandle<T>,
    state: &'scope State,
}

impl<T> ScopedJoinHandle<'_, T> {
    /// Waits for the goroutine to end and takes its result; `Err` is the payload of its panic.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread) until the other one ends.
    ///
    /// # Errors
    /// The panic's payload, which then no longer makes the scope panic.
    ///
    /// # Panics
    /// If it is the calling goroutine's own.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let inputs = ["17", "seventeen"];
    ///     let parsed = runnext::scope(|s| {
    ///         let jobs = inputs.map(|input| s.go(|| input.parse::<u32>().expect("a number")));
    ///         jobs.map(|job| job.join().ok())
    ///     });
    ///     assert_eq!(parsed, [Some(17), None]); // the panic was taken: the scope ends well
    /// }
    /// ```
    pub fn join(self) -> std::thread::Result<T> {
        let outcome = self.inner.join();
        if outcome.is_err() {
            self.state.panics.fetch_sub(1, Relaxed);
        }
        outcome
    }

    /// Whether it has ended, so that [`join`](Self::join) would not wait.
    ///
    /// # Example
    /// ```
    /// use runnext::{chan, scope, yield_now};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (ask, asked) = chan::bounded::<&str>(0);
    ///     scope(|s| {
    ///         let job = s.go(|| asked.recv().unwrap().len());
    ///         assert!(!job.is_finished()); // nobody has asked
    ///         ask.send("how long?").unwrap();
    ///         while !job.is_finished() {
    ///             yield_now();
    ///         }
    ///         assert_eq!(job.join().unwrap(), 9);
    ///     });
    /// }
    /// ```
    pub fn is_finished(&self) -> bool {
        self.inner.is_finished()
    }

    /// The goroutine this handle is for.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let parent = runnext::current().unwrap();
    ///     runnext::scope(|s| {
    ///         let child = s.go(|| ());
    ///         assert_ne!(child.goroutine().id(), parent.id());
    ///         assert_eq!(child.goroutine().spawned_at().file(), file!());
    ///     });
    /// }
    /// ```
    pub fn goroutine(&self) -> &Goroutine {
        self.inner.goroutine()
    }
}

impl<T> fmt::Debug for ScopedJoinHandle<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

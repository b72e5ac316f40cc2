//! The public API of goroutines: `go`, handles, builders, yielding.
//!
//! # Example
//! ```
//! use runnext::goroutine::{self, Builder};
//!
//! #[runnext::main]
//! fn main() -> std::io::Result<()> {
//!     let first = goroutine::go(|| 20); // the same as runnext::go
//!     let second = Builder::new().name("second").spawn(|| 22)?;
//!     assert_eq!(second.goroutine().name(), Some("second"));
//!     assert_eq!(first.join().unwrap() + second.join().unwrap(), 42);
//!     Ok(())
//! }
//! ```

mod builder;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::marker::PhantomData;
use std::mem::ManuallyDrop;
use std::panic::Location;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::ptr::{self, NonNull};
use std::sync::Arc;
use std::time::Duration;

use crate::g::{G, WaitReason};
use crate::m::{self, M};
use crate::sched::call::{self, Call};
use crate::sched::groups::{self, Record};
use crate::sched::spawn::{self, Options};
use crate::sched::waker;
use crate::sched::{self, Shared, drops};

pub use builder::Builder;

/// Panics with advice, at the caller's place, when there is no runtime around.
#[track_caller]
pub(crate) fn current_shared(what: &str) -> &'static Shared {
    match m::current() {
        Some(m) => m.shared_static(),
        None => panic!(
            "runnext::{what} called outside a runtime: call it from a goroutine (under #[runnext::main], \
             #[runnext::test] or Runtime::run), or use the methods of a Runtime you have built"
        ),
    }
}

/// Starts a goroutine: `f` runs concurrently with the caller, on any of the runtime's processors.
///
/// It costs about as much as pushing to a queue; start as many as the problem has parts. A panic in `f` ends
/// this goroutine only, is reported on stderr, and is what [`JoinHandle::join`] returns.
///
/// # Panics
/// Outside a runtime, and when the system has no memory for another goroutine.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let answer = runnext::go(|| 6 * 7);
///     assert_eq!(answer.join().unwrap(), 42);
/// }
/// ```
#[track_caller]
pub fn go<F, T>(f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    go_on(current_shared("go"), Location::caller(), f)
}

pub(crate) fn go_on<F, T>(shared: &Shared, site: &'static Location<'static>, f: F) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    start(shared, site, None, f)
}

/// As [`go_on`], in a group.
pub(crate) fn go_in<F, T>(
    shared: &Shared,
    site: &'static Location<'static>,
    group: &Arc<Record>,
    f: F,
) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    start(shared, site, Some(group), f)
}

#[inline]
fn start<F, T>(
    shared: &Shared,
    site: &'static Location<'static>,
    group: Option<&Arc<Record>>,
    f: F,
) -> JoinHandle<T>
where
    F: FnOnce() -> T + Send + 'static,
    T: Send + 'static,
{
    // SAFETY: 'static and Send by the bounds.
    match unsafe {
        spawn::spawn(
            shared,
            Options {
                site,
                ext: None,
                stack_class: None,
                group,
            },
            f,
        )
    } {
        // SAFETY: the header counts one handle for us, and its result is a T.
        Ok(g) => unsafe { JoinHandle::new(g) },
        Err(e) => panic!("cannot start a goroutine: {e}"),
    }
}

/// Gives the processor to the other goroutines that are ready to run; returns when it is this one's turn again.
///
/// # Blocks
/// The goroutine, briefly. On a plain thread: as [`std::thread::yield_now`].
///
/// # Example
/// ```
/// #[runnext::main(procs = 1)]
/// fn main() {
///     let other = runnext::go(|| ());
///     runnext::yield_now();
///     assert!(other.is_finished());
/// }
/// ```
#[inline(always)]
pub fn yield_now() {
    Call::enter().yield_freely();
}

/// A point in a long computation where the goroutine lets others run if the scheduler asked it to; otherwise it costs one
/// load and a branch.
///
/// Preemption needs no checkpoints; but yielding at one is cheaper than a signal, and CPU limits are kept most exactly there. Where preemption is switched
/// off, a goroutine that has used up its time slice while others wait yields here.
///
/// # Blocks
/// The goroutine, if the scheduler has asked it to give way.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let mut sum = 0u64;
///     for i in 0..1_000_000u64 {
///         sum = sum.wrapping_add(i * i);
///         runnext::checkpoint();
///     }
///     assert!(sum > 0);
/// }
/// ```
#[inline]
pub fn checkpoint() {
    call::checkpoint();
}

/// The calling goroutine; none on a plain thread.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let other = runnext::go(|| runnext::current().unwrap().id()).join().unwrap();
///     assert_ne!(runnext::current().unwrap().id(), other);
/// }
/// ```
pub fn current() -> Option<Goroutine> {
    let g = m::current()?.g()?;
    g.add_ref();
    Some(Goroutine(g.ptr()))
}

/// How many goroutines of this runtime exist: started and not ended, the caller included.
///
/// # Panics
/// Outside a runtime.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     assert_eq!(runnext::num_goroutines(), 1);
/// }
/// ```
#[track_caller]
pub fn num_goroutines() -> usize {
    current_shared("num_goroutines").live()
}

/// How many processors this runtime has: the most goroutines that run user code at one moment.
///
/// # Panics
/// Outside a runtime.
///
/// # Example
/// ```
/// #[runnext::main(procs = 3)]
/// fn main() {
///     assert_eq!(runnext::procs(), 3);
/// }
/// ```
#[track_caller]
pub fn procs() -> usize {
    current_shared("procs").procs()
}

/// Sets the number of processors while the program runs, and returns the previous number. Additional processors can be used at
/// once; a surplus one is given up when the goroutine on it next enters the scheduler. By default the number follows the CPUs and
/// the cgroup's quota as they change; this call ends that, even if it sets the number there already is, until
/// [`set_default_procs`].
///
/// # Panics
/// Outside a runtime, and if `n` is 0 or above 1024.
///
/// # Example
/// ```
/// #[runnext::main(procs = 2)]
/// fn main() {
///     assert_eq!(runnext::set_procs(4), 2);
///     assert_eq!(runnext::procs(), 4);
/// }
/// ```
#[track_caller]
pub fn set_procs(n: usize) -> usize {
    current_shared("set_procs").fix_procs(n)
}

/// As many processors as the system gives CPUs, by affinity and the cgroup's quota, now and whenever these change: as if nobody had ever
/// chosen a number. Returns how many there were. Go's `SetDefaultGOMAXPROCS`.
///
/// # Panics
/// Outside a runtime.
///
/// # Example
/// ```
/// #[runnext::main(procs = 1000)]
/// fn main() {
///     assert_eq!(runnext::set_default_procs(), 1000);
///     assert!(runnext::procs() < 1000); // on most machines
/// }
/// ```
#[track_caller]
pub fn set_default_procs() -> usize {
    current_shared("set_default_procs").unfix_procs()
}

/// Ties the calling goroutine to the thread it runs on, until the guard is dropped: nothing else runs on that thread and the
/// goroutine runs nowhere else. For libraries that keep state in thread-locals, and for calls that act on the
/// thread. Guards nest. A goroutine that ends while tied takes its thread with it.
///
/// Switching to and from a tied goroutine is switching threads: microseconds instead of nanoseconds.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let _tied = runnext::lock_os_thread();
///     let thread = std::thread::current().id();
///     runnext::yield_now();
///     assert_eq!(std::thread::current().id(), thread);
/// }
/// ```
pub fn lock_os_thread() -> OsThreadGuard {
    let call = Call::brief();
    let mut on = 0;
    if let (Some(m), Some(g)) = (call.m(), call.g()) {
        m.locks.set(
            m.locks
                .get()
                .checked_add(1)
                .expect("lock_os_thread nested four billion times"),
        );
        g.wire(m);
        on = m.serial;
    }
    OsThreadGuard {
        on,
        _here: PhantomData,
    }
}

/// Keeps a goroutine on its thread; see [`lock_os_thread`]. On a plain thread it does nothing.
///
/// # Example
/// ```
/// use std::cell::Cell;
/// use runnext::OsThreadGuard;
///
/// thread_local! { static OPEN: Cell<bool> = const { Cell::new(false) }; } // stands for what a C library keeps
///
/// struct Session {
///     _tied: OsThreadGuard, // a session works on the thread that opened it, and only there
/// }
///
/// fn open() -> Session {
///     let tied = runnext::lock_os_thread();
///     OPEN.set(true);
///     Session { _tied: tied }
/// }
///
/// #[runnext::main]
/// fn main() {
///     let _session = open();
///     runnext::yield_now();
///     assert!(OPEN.get());
/// }
/// ```
#[must_use = "dropping the guard lets the goroutine move again"]
#[derive(Debug)]
pub struct OsThreadGuard {
    /// The M it counts on, which a future loses that keeps a guard until a later poll; 0 on a plain thread.
    on: u64,
    /// It speaks for one goroutine: it must not be sent to another.
    _here: PhantomData<*const ()>,
}

impl Drop for OsThreadGuard {
    fn drop(&mut self) {
        let call = Call::brief();
        if let (Some(m), Some(g)) = (call.m(), call.g())
            && m.serial == self.on
        {
            m.locks.set(m.locks.get() - 1);
            if m.locks.get() == 0 {
                g.unwire();
            }
        }
    }
}

/// A goroutine, as others see it. Cheap to clone; keeps nothing running.
///
/// # Example
/// ```
/// #[runnext::main]
/// fn main() {
///     let job = runnext::go(|| "done");
///     let who = job.goroutine().clone();
///     assert_eq!(job.join().unwrap(), "done");
///     // It has ended, and can still be told from others.
///     assert_ne!(who, runnext::current().unwrap());
///     assert!(format!("{who:?}").starts_with("Goroutine { id: "));
/// }
/// ```
pub struct Goroutine(NonNull<G>);

// SAFETY: a counted reference to a header whose readable parts are immutable or atomic.
unsafe impl Send for Goroutine {}
// SAFETY: as above.
unsafe impl Sync for Goroutine {}

// What is behind it is never left half-way by a panic: others run the goroutine.
impl UnwindSafe for Goroutine {}
impl RefUnwindSafe for Goroutine {}

impl Goroutine {
    pub(crate) fn g(&self) -> &G {
        // SAFETY: the handle counts, so the header is alive.
        unsafe { self.0.as_ref() }
    }

    /// CPU time it has used so far. For goroutines of a [`TaskGroup`](crate::TaskGroup) it is measured; for others it is estimated
    /// from ticks of the CPU timer, one per slice, so the figure of a goroutine that runs for less than a slice at a time is
    /// statistical, and without preemption, or where the system refuses the timer, there is none. Neither time in [`blocking`](crate::blocking) sections counts, nor time that the system gave to other processes;
    /// for a running goroutine the latter is subtracted with a short delay.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let group = runnext::TaskGroup::new("sums");
    ///     let sum = group.go(|| (0..1_000_000u64).fold(0, |a, b| std::hint::black_box(a ^ b)));
    ///     let goroutine = sum.goroutine().clone();
    ///     sum.join().unwrap();
    ///     assert!(goroutine.cpu_time() > std::time::Duration::ZERO);
    /// }
    /// ```
    pub fn cpu_time(&self) -> Duration {
        // SAFETY: the handle keeps the runtime's memory.
        let shared = unsafe { sched::shared_of(self.g()) };
        Duration::from_nanos(groups::cpu_ns(shared, self.g()))
    }

    /// Its number: unique in its runtime, never reused. The first goroutine has number 1.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(runnext::current().unwrap().id(), 1); // `main` is the first
    ///     assert!(runnext::go(|| ()).goroutine().id() > 1);
    /// }
    /// ```
    pub fn id(&self) -> u64 {
        self.g().id()
    }

    /// The name given with [`Builder::name`].
    ///
    /// # Example
    /// ```
    /// use runnext::goroutine::Builder;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let named = Builder::new().name("indexer").spawn(|| ())?;
    ///     assert_eq!(named.goroutine().name(), Some("indexer"));
    ///     assert_eq!(runnext::go(|| ()).goroutine().name(), None);
    ///     Ok(())
    /// }
    /// ```
    pub fn name(&self) -> Option<&str> {
        self.g().name()
    }

    /// Where it was started.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let (job, line) = (runnext::go(|| ()), line!());
    ///     assert_eq!(job.goroutine().spawned_at().line(), line);
    /// }
    /// ```
    pub fn spawned_at(&self) -> &'static Location<'static> {
        self.g().site()
    }
}

/// Equal if they are handles of the same goroutine.
impl PartialEq for Goroutine {
    fn eq(&self, other: &Goroutine) -> bool {
        self.0 == other.0 // both count, so neither header has been used again
    }
}

impl Eq for Goroutine {}

impl Hash for Goroutine {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.hash(state);
    }
}

impl Clone for Goroutine {
    fn clone(&self) -> Self {
        self.g().add_ref();
        Goroutine(self.0)
    }
}

impl Drop for Goroutine {
    fn drop(&mut self) {
        spawn::drop_handle(self.0);
    }
}

impl fmt::Debug for Goroutine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Goroutine")
            .field("id", &self.id())
            .field("name", &self.name())
            .field("locks_held", &self.g().locks_held())
            .field("spawned_at", &format_args!("{}", self.spawned_at()))
            .finish()
    }
}

/// The right to wait for a goroutine and take its result. Dropping it detaches the goroutine, which runs on and drops its result
/// when it ends.
///
/// # Example
/// ```
/// use runnext::{JoinHandle, chan, go};
///
/// #[runnext::main]
/// fn main() {
///     let lengths: Vec<JoinHandle<usize>> = ["one", "three"].into_iter().map(|word| go(|| word.len())).collect();
///     assert_eq!(lengths.into_iter().map(|l| l.join().unwrap()).sum::<usize>(), 8);
///
///     let (tx, rx) = chan::bounded(0);
///     drop(go(move || tx.send("nobody joins me").unwrap()));
///     assert_eq!(rx.recv(), Ok("nobody joins me"));
/// }
/// ```
pub struct JoinHandle<T> {
    /// Goes with the right to the result, in one step.
    goroutine: ManuallyDrop<Goroutine>,
    _result: PhantomData<fn() -> T>,
}

// The handle gives out a T made elsewhere, so it may go where a T may. `Sync` needs nothing of T: a shared handle gives
// out no result.
impl<T> JoinHandle<T> {
    /// # Safety
    /// The header counts one handle for the caller, has no other `JoinHandle`, and its result is a `T`.
    pub(crate) unsafe fn new(g: NonNull<G>) -> Self {
        JoinHandle {
            goroutine: ManuallyDrop::new(Goroutine(g)),
            _result: PhantomData,
        }
    }

    /// Waits for the goroutine to end and takes its result; `Err` is the payload of its panic.
    ///
    /// # Blocks
    /// The goroutine (on a plain thread, the thread) until the other one ends.
    ///
    /// For ever, if its runtime was shut down and has abandoned the goroutine.
    ///
    /// # Errors
    /// The panic's payload, as with [`std::thread::JoinHandle::join`]. A `String` with the reason, if the goroutine got no stack, or
    /// was made of a future and its runtime was shut down before the future was done.
    ///
    /// # Panics
    /// If the handle is the calling goroutine's own, or if it was awaited before and has already returned the result.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(runnext::go(|| "done").join().unwrap(), "done");
    ///     assert!(runnext::go(|| panic!("its own business")).join().is_err());
    /// }
    /// ```
    pub fn join(self) -> std::thread::Result<T> {
        let g = self.goroutine.g();
        wait_for(g, WaitReason::Join);
        // SAFETY: ended; we are its one JoinHandle.
        unsafe { spawn::take_outcome(g) }
    }

    /// Whether it has ended, so that [`join`](Self::join) would not wait.
    ///
    /// # Example
    /// ```
    /// use runnext::{chan, go, yield_now};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (release, released) = chan::bounded::<()>(0);
    ///     let job = go(move || released.recv().is_err());
    ///     assert!(!job.is_finished()); // it waits for us
    ///     drop(release);
    ///     while !job.is_finished() {
    ///         yield_now(); // or something useful
    ///     }
    ///     assert!(job.join().unwrap());
    /// }
    /// ```
    pub fn is_finished(&self) -> bool {
        self.goroutine.g().is_done()
    }

    /// The goroutine this handle is for.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let job = runnext::go(|| runnext::current().unwrap().id());
    ///     let id = job.goroutine().id();
    ///     assert_eq!(job.join().unwrap(), id);
    /// }
    /// ```
    pub fn goroutine(&self) -> &Goroutine {
        &self.goroutine
    }
}

impl<T> Drop for JoinHandle<T> {
    fn drop(&mut self) {
        // SAFETY: the one handle, and the reference it counts is not dropped otherwise.
        unsafe { spawn::drop_join_handle(self.goroutine.0) };
    }
}

/// A task that awaited the end of `g` does so no longer. False: `g` has ended.
#[inline]
pub(crate) fn withdraw(g: &G) -> bool {
    if g.joiner().is_none() {
        return true;
    }
    match g.withdraw_joiner() {
        Some(word) => {
            // SAFETY: who waits in `join` is still there, so this is a task's, and nobody else's any more.
            drop(unsafe { waker::from_word(word) });
            true
        }
        None => false,
    }
}

/// Waits until `g` has ended. Only its one joiner may.
pub(crate) fn wait_for(g: &G, reason: WaitReason) {
    if g.is_done() || !withdraw(g) {
        return;
    }
    drops::hurry(g);
    let mut call = Call::enter();
    if call.m().and_then(M::g).is_some_and(|own| ptr::eq(own, g)) {
        drop(call);
        joins_itself();
    }
    if g.register_joiner(call.waiter().into_raw(), false) {
        call.park(reason);
    }
}

#[cold]
fn joins_itself() -> ! {
    panic!(
        "a goroutine that waits for its own end waits for ever: give the JoinHandle to another one, or drop it"
    )
}

impl<T> fmt::Debug for JoinHandle<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("JoinHandle")
            .field("goroutine", self.goroutine())
            .field("finished", &self.is_finished())
            .finish()
    }
}

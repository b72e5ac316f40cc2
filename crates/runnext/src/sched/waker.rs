//! Wakers: references to a goroutine that polls a future.
//!
//! # Why this shape
//! A waker is a counted reference to the goroutine's header and nothing else: cloning is one addition, and the header outlives it, so it
//! may be used from any thread, twice, after the future is done, after the runtime has gone. Waking rings the header's
//! signal (`runnext_core::signal`), and one ring per sleep goes on to the park protocol. So goroutines without a stack and
//! those in `block_on` have the same wakers, and a future cannot tell which of the two polls it.
//!
//! # Wakers of others
//! Executors inside a future (`FuturesUnordered`, `select`) and other runtimes bring their own wakers. Calling one is running
//! user code, which RT does not (R1). Where the runtime rings from inside, a [`Slot`], it rings its own wakers directly and leaves
//! those of others to a goroutine made for it; those of other runtimes too, which may have stopped: then ringing one drops it (`future`).
//!
//! # Words
//! The end of a goroutine is told to a `Waiter`, or to a waker in one word:
//!
//! | low bits | the rest                     |
//! |----------|------------------------------|
//! | 00, 01   | a `Waiter` (`wait`)          |
//! | 10       | a counted reference to a G   |
//! | 11       | a `Box<Waker>` of others     |
//!
//! # Context
//! Wakers are made, used and dropped in user context; `Slot::ring` is in RT.

use std::mem::{self, ManuallyDrop};
use std::panic::Location;
use std::ptr::{self, NonNull};
use std::sync::atomic::Ordering::*;
use std::task::{RawWaker, RawWakerVTable, Waker};

use super::call::Call;
use super::wait::Waiter;
use super::{Shared, spawn};
use crate::fatal::fatal;
use crate::g::{After, G};
use crate::lock::Lock;
use crate::p::P;
use crate::swallow;

// A static, not a constant: its address tells our wakers from those of others.
static VTABLE: RawWakerVTable = RawWakerVTable::new(clone, wake, wake_by_ref, drop_waker);

/// SAFETY of the four: `data` is a header that the waker counts, or that runs the poll the waker was lent to.
unsafe fn header<'a>(data: *const ()) -> &'a G {
    // SAFETY: as above.
    unsafe { &*data.cast::<G>() }
}

unsafe fn clone(data: *const ()) -> RawWaker {
    // SAFETY: the contract of the table.
    unsafe { header(data) }.add_ref();
    RawWaker::new(data, &VTABLE)
}

unsafe fn wake(data: *const ()) {
    // SAFETY: the contract of the table; the reference is given up by this.
    unsafe {
        wake_by_ref(data);
        drop_waker(data);
    }
}

unsafe fn wake_by_ref(data: *const ()) {
    // SAFETY: the contract of the table.
    let g = unsafe { header(data) };
    if g.signal().ring() {
        queue(g);
    }
}

/// Wakes one whose signal was rung in its sleep. In user context.
#[inline]
fn queue(g: &G) {
    Call::brief().ready(g);
    // SAFETY: the caller's waker counts the header, and with it the runtime's memory.
    let shared = unsafe { super::shared_of(g) };
    // One with a stack is abandoned, and stays where it is.
    if g.is_stackless() && shared.stopped.load(SeqCst) {
        shared.queued_late();
    }
}

unsafe fn drop_waker(data: *const ()) {
    // SAFETY: the contract of the table.
    spawn::drop_handle(unsafe { header(data) }.ptr());
}

/// The waker of a goroutine, lent to a poll that it runs. Not counted: the goroutine outlives the poll.
#[inline]
pub(crate) fn lent(g: &G) -> ManuallyDrop<Waker> {
    let raw = RawWaker::new(ptr::from_ref(g).cast(), &VTABLE);
    // SAFETY: the table keeps the contract of wakers; never dropped, so no count is missing.
    ManuallyDrop::new(unsafe { Waker::from_raw(raw) })
}

/// The goroutine that a waker wakes, if it is one of ours.
#[inline]
pub(super) fn goroutine_of(waker: &Waker) -> Option<&G> {
    // SAFETY: our table, so the data is a header, counted by the waker.
    ptr::eq(waker.vtable(), &VTABLE).then(|| unsafe { &*waker.data().cast::<G>() })
}

/// As [`goroutine_of`], if it is of this runtime.
#[inline]
pub(super) fn goroutine_in<'a>(waker: &'a Waker, shared: &Shared) -> Option<&'a G> {
    goroutine_of(waker).filter(|g| ptr::eq(g.owner().cast::<Shared>(), shared))
}

// ---- a waker in a word ----

const WAKER: usize = 2;
const BOXED: usize = 1;

/// A clone of the waker as a word, for [`G::register_joiner`].
pub(crate) fn into_word(waker: &Waker) -> usize {
    match goroutine_of(waker) {
        Some(g) => {
            g.add_ref();
            g.ptr().addr().get() | WAKER
        }
        None => Box::into_raw(Box::new(waker.clone())).addr() | WAKER | BOXED,
    }
}

/// Whether the word is one of this very goroutine's wakers. A `false` is a "perhaps not".
pub(crate) fn is_word_of(word: usize, waker: &Waker) -> bool {
    goroutine_of(waker).is_some_and(|g| g.ptr().addr().get() | WAKER == word)
}

/// Whether waking it may run code of others: it is a waker. One of ours too: its runtime may have stopped, and then futures are dropped.
pub(crate) fn is_foreign(word: usize) -> bool {
    word & WAKER != 0
}

/// The waker of a word.
///
/// # Safety
/// The word came from [`into_word`], and is used up by this.
pub(crate) unsafe fn from_word(word: usize) -> Waker {
    let at = word & !(WAKER | BOXED);
    if word & BOXED == 0 {
        // SAFETY: the word counted the header.
        unsafe { Waker::from_raw(RawWaker::new(at as *const (), &VTABLE)) }
    } else {
        // SAFETY: from `Box::into_raw`.
        *unsafe { Box::from_raw(at as *mut Waker) }
    }
}

/// The end of a goroutine, told to whoever was registered: at once, or by the waker returned, to be used in user context.
///
/// # Safety
/// The word was registered as a joiner, and is used up by this.
#[inline]
pub(super) unsafe fn wake_joiner(call: &Call, word: usize) -> Option<Waker> {
    if word & WAKER == 0 {
        // SAFETY: no waker, so a waiter.
        call.wake(unsafe { Waiter::from_raw(word) });
        return None;
    }
    // SAFETY: a waker, by the mark.
    Some(unsafe { from_word(word) })
}

/// Uses a waker up; if it is not one of ours, it may panic, and there is nobody to tell.
pub(super) fn use_up(waker: Waker) {
    swallow::panics(move || waker.wake());
}

// ---- a waker that the runtime rings ----

/// Room for one waker, set by the future that waits and rung in RT.
pub(crate) struct Slot(Lock<Option<Waker>>);

impl Slot {
    pub(crate) const fn new() -> Slot {
        Slot(Lock::new(None))
    }

    /// From now on this one is rung. In user context; the one before it is dropped.
    pub(crate) fn set(&self, waker: &Waker) {
        if !self.holds(waker) {
            self.put(Some(waker.clone()));
        }
    }

    /// Nobody is to be rung. In user context.
    pub(crate) fn clear(&self) {
        self.put(None);
    }

    /// Takes the waker out. In user context.
    pub(super) fn take(&self) -> Option<Waker> {
        let _call = Call::brief();
        self.0.lock().take()
    }

    /// Whether it is set to wake the same. In user context.
    fn holds(&self, waker: &Waker) -> bool {
        let _call = Call::brief(); // the lock is held in RT only
        let held = self.0.lock();
        held.as_ref().is_some_and(|held| held.will_wake(waker))
    }

    fn put(&self, waker: Option<Waker>) {
        let call = Call::brief();
        let old = mem::replace(&mut *self.0.lock(), waker);
        drop(call);
        drop(old); // user code, perhaps
    }

    /// Rings, in RT. A goroutine that is runnable now, to be queued by the caller, in whose runtime it is; one that wakes the
    /// sleeper, if the waker is not of this runtime. It keeps a waker of ours, which need not be set again.
    pub(crate) fn ring(&self, shared: &Shared, p: Option<&P>) -> Option<NonNull<G>> {
        let mut held = self.0.lock();
        let waker = held.as_ref()?;
        if let Some(g) = goroutine_in(waker, shared) {
            return (g.signal().ring() && g.wake()).then(|| g.ptr());
        }
        let foreign = held.take()?;
        drop(held);
        // SAFETY: a waker is 'static and Send.
        match unsafe { spawn::detached(shared, p, Location::caller(), Messenger(foreign)) } {
            Ok(g) => Some(g),
            Err(e) => fatal(format_args!("no memory for the goroutine of a waker: {e}")),
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.clear();
    }
}

/// Wakes what RT may not.
struct Messenger(Waker);

impl spawn::Body for Messenger {
    type Output = ();
    const ERRAND: bool = true; // whom it wakes may be of another runtime

    fn run(self) -> (spawn::Outcome<()>, After) {
        use_up(self.0);
        (Ok(()), After::NOTHING)
    }

    fn fail(self) -> After {
        // No stack for it, or no worker any more: then on the caller's, which is as good for something so short.
        use_up(self.0);
        After::NOTHING
    }
}

#[cfg(all(test, feature = "async"))]
mod tests {
    use std::future;
    use std::thread;
    use std::time::Duration;

    use super::*;
    use crate::runtime::tests::runtime;

    /// One that was rung, and not yet queued when its runtime dropped its futures, was never dropped: its joiner waited for ever.
    #[test]
    fn a_future_rung_while_its_runtime_stops_is_dropped() {
        let rt = runtime(1);
        let task = rt.spawn(future::pending::<()>());
        let goroutine = task.goroutine();
        let g = goroutine.g();
        while !g.signal().is_asleep() {
            thread::yield_now();
        }
        assert!(g.signal().ring()); // half of a waker's work; the runtime stops; the other half
        rt.shutdown(Duration::ZERO);
        assert!(!task.is_finished());
        queue(g);
        while !task.is_finished() {
            thread::yield_now(); // a thread of its own drops it, for whoever rings may hold a lock
        }
        assert!(task.join().is_err());
    }
}

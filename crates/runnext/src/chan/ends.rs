//! The two ends of a channel: what users hold, and the blocking operations.

use std::any::Any;
use std::panic::{self, AssertUnwindSafe, RefUnwindSafe, UnwindSafe};
use std::ptr::NonNull;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*, fence};
use std::thread;
use std::time::Duration;

use runnext_core::chain::Chain;
use runnext_core::flavor::Flavor;
use runnext_core::rendezvous::Rendezvous;
use runnext_core::ring::Ring;

use super::clock::Clock;
use super::error::{
    RecvError, RecvTimeoutError, SendError, SendTimeoutError, TryRecvError, TrySendError,
};
use super::op::{Not, recv_until, send_until, try_recv, try_send};
use super::wait;
use super::{Chan, each};
use crate::g::WaitReason;
use crate::instant::Instant;
use crate::sched::call::{self, Call};
use crate::sched::timers::NEVER;
use crate::swallow;

/// A channel with room for `cap` values; 0 makes a *rendezvous* channel, where each send waits for its receive.
///
/// The room is reserved at once; where only a few of very many places will ever be used, [`unbounded`] needs less.
///
/// # Panics
/// If there is no memory for so many values.
///
/// # Example
/// ```
/// use runnext::chan;
///
/// let (tx, rx) = chan::bounded(2);
/// tx.send("a").unwrap();
/// tx.send("b").unwrap();
/// assert!(tx.is_full());
/// assert_eq!(rx.recv(), Ok("a"));
/// ```
#[track_caller]
pub fn bounded<T>(cap: usize) -> (Sender<T>, Receiver<T>) {
    if cap == 0 {
        return ends(Chan::Rendezvous(Rendezvous::new()));
    }
    match Ring::new(cap) {
        Some(ring) => ends(Chan::Ring(ring)),
        // A bound that came out wrong is for the caller to handle, and must not end the process.
        None => panic!(
            "no memory for a channel with room for {cap} values of {} bytes, which is reserved when it is made: give it a smaller \
             capacity, or use chan::unbounded, which takes memory as values come",
            size_of::<T>()
        ),
    }
}

/// A channel without a limit: a send never blocks.
///
/// Prefer a bound where you can name one: a producer that is faster than its consumer fills the memory.
///
/// ```
/// use runnext::chan;
///
/// let (tx, rx) = chan::unbounded();
/// (0..1000).for_each(|i| tx.send(i).unwrap());
/// drop(tx);
/// assert_eq!(rx.iter().sum::<i32>(), 499_500);
/// ```
pub fn unbounded<T>() -> (Sender<T>, Receiver<T>) {
    ends(Chan::Chain(Chain::new()))
}

/// A receiver that never receives anything and is never closed: a case of a `select!` that is switched off.
///
/// ```
/// use runnext::chan::{self, TryRecvError};
///
/// let rx = chan::never::<u8>();
/// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
/// ```
pub fn never<T>() -> Receiver<T> {
    Receiver { shared: None }
}

/// A receiver that receives one value, the moment that lies `d` from now, when that has come. `Duration::MAX` is "never".
///
/// It costs nothing while nobody waits for it, and is gone when dropped. Its `len` is always 0.
///
/// ```
/// use runnext::{chan, select, time::Instant};
/// use std::time::Duration;
///
/// let start = Instant::now();
/// let (_tx, rx) = chan::bounded::<()>(0);
/// let at = select! {
///     recv(rx) -> _ => unreachable!(),
///     recv(chan::after(Duration::from_millis(1))) -> at => at.unwrap(),
/// };
/// assert!(at >= start + Duration::from_millis(1) && Instant::now() >= at);
/// ```
pub fn after(d: Duration) -> Receiver<Instant> {
    timer(Instant::after(d), Duration::ZERO)
}

/// A receiver that receives one value, `when`, as soon as that moment has come; like [`after`], with an absolute time. A moment in
/// the past is received at once.
///
/// ```
/// use runnext::{chan, time::Instant};
/// use std::time::Duration;
///
/// let closing_time = Instant::now() + Duration::from_millis(1);
/// let rx = chan::at(closing_time);
/// assert_eq!(rx.recv(), Ok(closing_time));
/// assert!(Instant::now() >= closing_time && rx.try_recv().is_err()); // it comes once
/// ```
pub fn at(when: Instant) -> Receiver<Instant> {
    timer(when, Duration::ZERO)
}

/// A receiver that receives the moment `d` from now when that has come, then `d` after it, and so on. Moments that nobody
/// received in time are skipped.
///
/// It costs nothing while nobody waits for it, and is gone when dropped. Its `len` is always 0.
///
/// ```
/// use std::time::Duration;
///
/// let rx = runnext::chan::tick(Duration::from_millis(1));
/// let (a, b) = (rx.recv().unwrap(), rx.recv().unwrap());
/// assert!(b - a >= Duration::from_millis(1));
/// ```
pub fn tick(d: Duration) -> Receiver<Instant> {
    timer(Instant::after(d), d.max(Duration::from_nanos(1)))
}

/// The channel of a timer that goes off at `when` and then each `period`, unless that is zero.
pub(crate) fn timer(when: Instant, period: Duration) -> Receiver<Instant> {
    without_sender(Chan::Clock(Clock::new(when, in_ns(period))))
}

/// A channel without values that is closed at `when`, or before.
pub(crate) fn ending<T>(when: Instant) -> Receiver<T> {
    without_sender(Chan::Clock(Clock::ending(when)))
}

fn without_sender<T>(chan: Chan<T>) -> Receiver<T> {
    let (sender, receiver) = ends(chan);
    // The side of the senders is empty, which does not close this kind.
    let sender = std::mem::ManuallyDrop::new(sender);
    // SAFETY: once, and no sender is left to use it.
    unsafe { leave(sender.shared) };
    receiver
}

/// Beyond the range of the clock is never.
fn in_ns(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(NEVER)
}

impl Receiver<Instant> {
    /// Sets a timer's channel anew, unless it is closed; see [`timer`]. True if it was set and what it was set to had not been received, which now
    /// never will be. `Instant`s beyond the clock's range stop it.
    pub(crate) fn set_timer(&self, when: Instant, period: Duration) -> bool {
        match self.chan() {
            Some(Chan::Clock(clock)) => clock.set(&Call::brief(), when, in_ns(period)),
            _ => false,
        }
    }
}

/// What both ends share. The last end of one side closes the channel; the last of all frees it.
struct Shared<T> {
    chan: Chan<T>,
    senders: AtomicUsize,
    receivers: AtomicUsize,
    /// One side is gone: the other one frees.
    half: AtomicBool,
}

fn ends<T>(chan: Chan<T>) -> (Sender<T>, Receiver<T>) {
    let shared = NonNull::from(Box::leak(Box::new(Shared {
        chan,
        senders: AtomicUsize::new(1),
        receivers: AtomicUsize::new(1),
        half: AtomicBool::new(false),
    })));
    let sender = Sender { shared };
    let receiver = Receiver {
        shared: Some(shared),
    };
    (sender, receiver)
}

/// One more end. Aborts before the count can overflow, as `Arc` does.
fn add_end(count: &AtomicUsize) {
    if count.fetch_add(1, Relaxed) > isize::MAX as usize {
        std::process::abort();
    }
}

/// The side is gone. Frees the channel if the other is, too.
///
/// # Safety
/// Once for each side, and it is not used from there any more.
unsafe fn leave<T>(shared: NonNull<Shared<T>>) {
    // SAFETY: the first side to leave does not free it.
    if unsafe { shared.as_ref() }.half.swap(true, AcqRel) {
        // SAFETY: leaked in `ends`, and both sides are gone.
        drop(unsafe { Box::from_raw(shared.as_ptr()) });
    }
}

/// The sending end of a channel. Clones are ends of the same channel.
///
/// The channel is closed when its last sender is dropped: receivers get the buffered values, then errors.
///
/// ```
/// use runnext::chan::{self, Sender};
///
/// fn countdown(from: u32, out: Sender<u32>) {
///     (1..=from).rev().for_each(|n| out.send(n).unwrap());
/// } // the only sender goes here, and the channel is closed
///
/// #[runnext::main]
/// fn main() {
///     let (tx, rx) = chan::bounded(1);
///     runnext::go(move || countdown(3, tx));
///     assert_eq!(rx.iter().collect::<Vec<_>>(), [3, 2, 1]);
/// }
/// ```
///
/// Values go to other threads, so an end does only if they may; and the two ends of a channel agree on their lifetimes.
///
/// ```compile_fail,E0277
/// let (tx, _rx) = runnext::chan::bounded::<std::rc::Rc<()>>(1);
/// std::thread::spawn(move || drop(tx));
/// ```
/// ```compile_fail,E0597
/// let (tx, rx) = runnext::chan::bounded::<&'static str>(1);
/// {
///     let text = String::from("short-lived");
///     tx.send(&text).unwrap();
/// }
/// println!("{}", rx.recv().unwrap());
/// ```
pub struct Sender<T> {
    shared: NonNull<Shared<T>>,
}

/// The receiving end of a channel. Clones are ends of the same channel, and each value goes to one of them.
///
/// The channel is closed when its last receiver is dropped: sends fail, and buffered values are dropped.
///
/// ```
/// use runnext::{chan, scope};
///
/// #[runnext::main]
/// fn main() {
///     let (jobs, todo) = chan::bounded(0);
///     let sum: u32 = scope(|s| {
///         let workers = [todo.clone(), todo].map(|todo| s.go(move || todo.iter().map(|n: u32| n * n).sum::<u32>()));
///         (1..=10).for_each(|n| jobs.send(n).unwrap());
///         drop(jobs); // no more: the workers end
///         workers.into_iter().map(|worker| worker.join().unwrap()).sum()
///     });
///     assert_eq!(sum, 385); // each job was done by one of them
/// }
/// ```
pub struct Receiver<T> {
    /// None: it is never going to receive anything.
    shared: Option<NonNull<Shared<T>>>,
}

// SAFETY: what is shared is `Sync` if values may go to other threads, and that is all the ends are for.
unsafe impl<T: Send> Send for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Sender<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for Receiver<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Sync for Receiver<T> {}

// A channel is never left half-way through an operation by a panic: no user code runs in one.
impl<T> UnwindSafe for Sender<T> {}
impl<T> RefUnwindSafe for Sender<T> {}
impl<T> UnwindSafe for Receiver<T> {}
impl<T> RefUnwindSafe for Receiver<T> {}

impl<T> Sender<T> {
    #[inline]
    fn shared(&self) -> &Shared<T> {
        // SAFETY: alive while there is a sender.
        unsafe { self.shared.as_ref() }
    }

    #[inline]
    pub(super) fn chan(&self) -> &Chan<T> {
        &self.shared().chan
    }

    /// Sends a value, waiting for room; on a rendezvous channel, until it is received.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::bounded(0);
    /// std::thread::spawn(move || tx.send(1).unwrap());
    /// assert_eq!(rx.recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    /// Gives the value back if the channel is closed, or is closed while this waits.
    ///
    /// # Blocks
    /// The goroutine, until there is room. On a plain thread, the thread.
    #[inline]
    pub fn send(&self, value: T) -> Result<(), SendError<T>> {
        each!(self.chan(), c => send_until(c, value, NEVER)).map_err(|(_, value)| SendError(value))
    }

    /// Sends a value if that is possible at once.
    ///
    /// ```
    /// use runnext::chan::{self, TrySendError};
    /// let (tx, _rx) = chan::bounded(0);
    /// assert_eq!(tx.try_send(1), Err(TrySendError::Full(1)));
    /// ```
    ///
    /// # Errors
    /// Gives the value back if there is no room (on a rendezvous channel: nobody waits to receive), or the channel is closed.
    #[inline]
    pub fn try_send(&self, value: T) -> Result<(), TrySendError<T>> {
        each!(self.chan(), c => {
            if !Flavor::<T, _>::probe_send(c).ready {
                call::checkpoint_here();
                return Err(TrySendError::Full(value));
            }
            try_send(c, value)
        })
    }

    /// Sends a value, waiting for room for so long at most. `Duration::MAX` is "for ever".
    ///
    /// ```
    /// use runnext::chan::{self, SendTimeoutError};
    /// let (tx, _rx) = chan::bounded(0);
    /// let sent = tx.send_timeout(1, std::time::Duration::from_millis(1));
    /// assert_eq!(sent, Err(SendTimeoutError::Timeout(1)));
    /// ```
    ///
    /// # Errors
    /// Gives the value back if the time is over, or the channel is closed.
    ///
    /// # Blocks
    /// The goroutine, until there is room. On a plain thread, the thread.
    pub fn send_timeout(&self, value: T, timeout: Duration) -> Result<(), SendTimeoutError<T>> {
        self.send_by(value, Instant::after(timeout).as_ns())
    }

    /// Sends a value, waiting for room until the deadline at most.
    ///
    /// ```
    /// use runnext::{chan, time::Instant};
    /// let (tx, rx) = chan::bounded(1);
    /// assert!(tx.send_deadline(1, Instant::now()).is_ok()); // there is room: no need to wait
    /// assert!(tx.send_deadline(2, Instant::now()).unwrap_err().is_timeout());
    /// # drop(rx);
    /// ```
    ///
    /// # Errors
    /// Gives the value back if the deadline has passed, or the channel is closed.
    ///
    /// # Blocks
    /// The goroutine, until there is room. On a plain thread, the thread.
    pub fn send_deadline(&self, value: T, deadline: Instant) -> Result<(), SendTimeoutError<T>> {
        self.send_by(value, deadline.as_ns())
    }

    fn send_by(&self, value: T, deadline: u64) -> Result<(), SendTimeoutError<T>> {
        each!(self.chan(), c => send_until(c, value, deadline)).map_err(|(not, value)| match not {
            Not::Closed => SendTimeoutError::Disconnected(value),
            Not::InTime => SendTimeoutError::Timeout(value),
        })
    }

    /// Closes the channel for all its ends. True for the call that did.
    ///
    /// Buffered values can still be received; every other operation fails from now on, including those already waiting.
    ///
    /// ```
    /// use runnext::chan::{self, RecvError, SendError};
    /// let (tx, rx) = chan::bounded(1);
    /// tx.send(1).unwrap();
    /// assert!(tx.close() && !tx.close());
    /// assert_eq!(tx.send(2), Err(SendError(2)));
    /// assert_eq!(rx.recv(), Ok(1));
    /// assert_eq!(rx.recv(), Err(RecvError));
    /// ```
    pub fn close(&self) -> bool {
        close(self.chan())
    }

    /// Whether both are ends of the same channel.
    ///
    /// ```
    /// let (tx, _rx) = runnext::chan::bounded::<()>(1);
    /// assert!(tx.same_channel(&tx.clone()));
    /// ```
    pub fn same_channel(&self, other: &Sender<T>) -> bool {
        self.shared == other.shared
    }
}

fn close<T>(chan: &Chan<T>) -> bool {
    let call = Call::brief();
    let ended = each!(chan, c => Flavor::<T, _>::close(c));
    ended
        .map(|ended| ended.wake(|waiter| call.wake(waiter)))
        .is_some()
}

impl<T> Receiver<T> {
    #[inline]
    pub(super) fn chan(&self) -> Option<&Chan<T>> {
        // SAFETY: alive while there is a receiver.
        self.shared
            .map(|shared| unsafe { &(*shared.as_ptr()).chan })
    }

    /// Receives a value, waiting for one.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::bounded(1);
    /// std::thread::spawn(move || tx.send("hello").unwrap());
    /// assert_eq!(rx.recv(), Ok("hello"));
    /// assert!(rx.recv().is_err()); // the sender is gone
    /// ```
    ///
    /// # Errors
    /// If the channel is empty and closed, or is closed while this waits.
    ///
    /// # Blocks
    /// The goroutine, until there is a value. On a plain thread, the thread.
    #[inline]
    pub fn recv(&self) -> Result<T, RecvError> {
        self.recv_by(NEVER).map_err(|_| RecvError)
    }

    #[inline]
    fn recv_by(&self, deadline: u64) -> Result<T, Not> {
        match self.chan() {
            Some(chan) => each!(chan, c => recv_until(c, deadline)),
            None => {
                wait::for_nothing(deadline, WaitReason::ChanReceive);
                Err(Not::InTime)
            }
        }
    }

    /// Receives a value if there is one.
    ///
    /// ```
    /// use runnext::chan::{self, TryRecvError};
    /// let (tx, rx) = chan::bounded(1);
    /// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty));
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.try_recv(), Ok(1));
    /// ```
    ///
    /// # Errors
    /// If there is no value (on a rendezvous channel: no waiting sender); and if, in addition, the channel is closed.
    ///
    /// # Blocks
    /// Only in one case: it was matched with a send of a [`Select`](super::Select) whose value has not been supplied yet. Then it waits for that, however
    /// long [that sender](super::SelectedOperation) takes.
    #[inline]
    pub fn try_recv(&self) -> Result<T, TryRecvError> {
        let Some(chan) = self.chan() else {
            call::checkpoint_here();
            return Err(TryRecvError::Empty);
        };
        each!(chan, c => {
            if !Flavor::<T, _>::probe_recv(c).ready {
                call::checkpoint_here();
                return Err(TryRecvError::Empty);
            }
            try_recv(c)
        })
    }

    /// Receives a value, waiting for so long at most. `Duration::MAX` is "for ever".
    ///
    /// ```
    /// use runnext::chan::{self, RecvTimeoutError};
    /// let (_tx, rx) = chan::bounded::<u8>(0);
    /// let got = rx.recv_timeout(std::time::Duration::from_millis(1));
    /// assert_eq!(got, Err(RecvTimeoutError::Timeout));
    /// ```
    ///
    /// # Errors
    /// If the time is over, or the channel is empty and closed.
    ///
    /// # Blocks
    /// The goroutine, until there is a value. On a plain thread, the thread. In one case for longer than that: once it was matched with a send of a
    /// [`Select`](super::Select) it waits for the value, however long [that sender](super::SelectedOperation) takes.
    pub fn recv_timeout(&self, timeout: Duration) -> Result<T, RecvTimeoutError> {
        self.recv_in_time(Instant::after(timeout).as_ns())
    }

    /// Receives a value, waiting until the deadline at most.
    ///
    /// ```
    /// use runnext::{chan, time::Instant};
    /// let (tx, rx) = chan::bounded(1);
    /// tx.send(1).unwrap();
    /// assert_eq!(rx.recv_deadline(Instant::now()), Ok(1)); // it is there: no need to wait
    /// assert!(rx.recv_deadline(Instant::now()).unwrap_err().is_timeout());
    /// ```
    ///
    /// # Errors
    /// If the deadline has passed, or the channel is empty and closed.
    ///
    /// # Blocks
    /// The goroutine, until there is a value. On a plain thread, the thread. In one case for longer than that: once it was matched with a send of a
    /// [`Select`](super::Select) it waits for the value, however long [that sender](super::SelectedOperation) takes.
    pub fn recv_deadline(&self, deadline: Instant) -> Result<T, RecvTimeoutError> {
        self.recv_in_time(deadline.as_ns())
    }

    fn recv_in_time(&self, deadline: u64) -> Result<T, RecvTimeoutError> {
        self.recv_by(deadline).map_err(|not| match not {
            Not::Closed => RecvTimeoutError::Disconnected,
            Not::InTime => RecvTimeoutError::Timeout,
        })
    }

    /// Closes the channel for all its ends, as [`Sender::close`] does. True for the call that did.
    ///
    /// Buffered values can still be received. It has no effect on [`never()`], nor on the `done` of a context, which only the context
    /// closes.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::bounded(1);
    /// tx.send(1).unwrap();
    /// assert!(rx.close());
    /// assert!(tx.send(2).is_err());
    /// assert_eq!(rx.recv(), Ok(1));
    /// ```
    pub fn close(&self) -> bool {
        let theirs = |chan: &&Chan<T>| !matches!(chan, Chan::Clock(clock) if clock.ends());
        self.chan().filter(theirs).is_some_and(close)
    }

    /// Closes one made by [`ending`]. True for the call that did.
    pub(crate) fn end(&self) -> bool {
        self.chan().is_some_and(close)
    }

    /// Whether it is the only one: then nobody can come to have another. [`never()`] is shared by all.
    pub(crate) fn is_only(&self) -> bool {
        // SAFETY: alive while there is a receiver.
        self.shared
            .is_some_and(|shared| unsafe { shared.as_ref() }.receivers.load(Acquire) == 1)
    }

    /// Whether both are ends of the same channel. Two receivers made by [`never()`] count as that.
    ///
    /// ```
    /// let (_tx, rx) = runnext::chan::bounded::<()>(1);
    /// assert!(rx.same_channel(&rx.clone()) && !rx.same_channel(&runnext::chan::never()));
    /// ```
    pub fn same_channel(&self, other: &Receiver<T>) -> bool {
        self.shared == other.shared
    }
}

impl<T> Clone for Sender<T> {
    fn clone(&self) -> Sender<T> {
        add_end(&self.shared().senders);
        Sender {
            shared: self.shared,
        }
    }
}

impl<T> Clone for Receiver<T> {
    fn clone(&self) -> Receiver<T> {
        if let Some(shared) = self.shared {
            // SAFETY: alive while there is a receiver.
            add_end(&unsafe { shared.as_ref() }.receivers);
        }
        Receiver {
            shared: self.shared,
        }
    }
}

impl<T> Drop for Sender<T> {
    fn drop(&mut self) {
        if self.shared().senders.fetch_sub(1, Release) == 1 {
            fence(Acquire);
            close(self.chan());
            // SAFETY: the last sender.
            unsafe { leave(self.shared) };
        }
    }
}

impl<T> Drop for Receiver<T> {
    fn drop(&mut self) {
        let Some(shared) = self.shared else { return };
        // SAFETY: alive while there is a receiver.
        let count = &unsafe { shared.as_ref() }.receivers;
        if count.fetch_sub(1, Release) == 1 {
            fence(Acquire);
            self.close();
            let panicked = self.drop_all();
            // SAFETY: the last receiver.
            unsafe { leave(shared) };
            match panicked {
                Some(payload) if !thread::panicking() => panic::resume_unwind(payload),
                payload => _ = swallow::panics(move || drop(payload)),
            }
        }
    }
}

impl<T> Receiver<T> {
    /// Nobody can receive the values any more: they go now, not with the last sender. All of them do, also behind one whose drop panics; returns
    /// the first panic. Not left to the unwinding, where a second one would end the process.
    fn drop_all(&self) -> Option<Box<dyn Any + Send>> {
        let mut first = None;
        while let Ok(value) = self.try_recv() {
            if let Err(payload) = panic::catch_unwind(AssertUnwindSafe(move || drop(value))) {
                match first {
                    None => first = Some(payload),
                    Some(_) => _ = swallow::panics(move || drop(payload)),
                }
            }
        }
        first
    }
}

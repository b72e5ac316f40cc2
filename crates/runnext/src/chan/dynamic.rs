//! `Select`: a select whose cases are known at run time only.
//!
//! # Why this shape
//! A send of this form is chosen before its value is known, so it makes a *promise*. At a bounded channel that is a place
//! kept free; at a rendezvous channel it is the receiver, claimed and waiting. A receive needs no
//! promise: each has a place for its value on the heap, and what was received waits there for
//! [`SelectedOperation::recv`]. So whatever was chosen completes without blocking.
//!
//! A `Select` goes to other threads whatever its channels carry, as crossbeam's does. Values that may not are moved there at most, into their places:
//! to take one out needs the receiver, which stays; and one that nobody takes out is dropped only by who added the operation ([`By`]).

use std::fmt;
use std::marker::PhantomData;
use std::mem::{ManuallyDrop, MaybeUninit, needs_drop};
use std::ptr::{self, NonNull};
use std::thread::{self, ThreadId};
use std::time::Duration;

use runnext_core::rendezvous;

use super::error::{RecvError, SelectTimeoutError, SendError, TrySelectError};
use super::select::{self, Case, Limit, Order};
use super::wait::Node;
use super::{Chan, Receiver, Sender};
use crate::goroutine::{self, Goroutine};
use crate::instant::Instant;
use crate::sched::call::Call;
use crate::swallow;

/// A `select` over a set of operations that is put together at run time; [`select!`](crate::select) is faster.
///
/// ```
/// use runnext::chan::{self, Select};
///
/// let channels: Vec<_> = (0..5).map(|_| chan::bounded(1)).collect();
/// channels[3].0.send("three").unwrap();
///
/// let mut select = Select::new();
/// for (_, rx) in &channels {
///     select.recv(rx);
/// }
/// let op = select.select();
/// let index = op.index();
/// assert_eq!((index, op.recv(&channels[index].1)), (3, Ok("three")));
/// ```
///
/// A clone has the same operations, under the same indices. A `Select` may be sent to another thread or goroutine; what it chose is completed where
/// it was chosen.
#[derive(Clone, Default)]
pub struct Select<'a> {
    ops: Vec<Option<Op<'a>>>,
    order: Order,
}

/// An operation, its type forgotten.
struct Op<'a> {
    /// A `Receiver<T>` or a `Sender<T>`.
    end: *const (),
    case: unsafe fn(*const (), *mut ()) -> Case,
    /// For receives.
    place: Option<Place>,
    new_place: Option<fn() -> Place>,
    /// For receives of values with a drop.
    by: Option<By>,
    /// For sends: gives up what was promised.
    give_up: unsafe fn(*const (), &Call),
    borrows: PhantomData<&'a ()>,
}

impl Clone for Op<'_> {
    /// The place is its own: a clone makes one when it needs it.
    fn clone(&self) -> Self {
        Op {
            place: None,
            by: self.by.clone(),
            ..*self
        }
    }
}

// SAFETY: the ends are borrowed, and used through the functions beside them, which are the same on each thread: a channel's own state may be shared
// whatever it carries. Of the values themselves see the header: places are empty but during a wait, and move with the `SelectedOperation`, which stays.
unsafe impl Send for Select<'_> {}
// SAFETY: all that a shared one can do is to be cloned, which touches no place, and to count its operations.
unsafe impl Sync for Select<'_> {}

/// Who added an operation: nobody else has to do with values that may not be sent.
#[derive(Clone, PartialEq, Eq)]
enum By {
    Goroutine(Goroutine),
    Thread(ThreadId),
}

impl By {
    fn me() -> By {
        goroutine::current().map_or_else(|| By::Thread(thread::current().id()), By::Goroutine)
    }
}

/// Room for one value on the heap.
struct Place {
    at: NonNull<()>,
    full: bool,
    /// Frees it, and drops the value if there is one.
    free: unsafe fn(NonNull<()>, bool),
}

impl Place {
    fn new<T>() -> Place {
        unsafe fn free<T>(at: NonNull<()>, full: bool) {
            // SAFETY: leaked below as this type.
            let mut place = unsafe { Box::from_raw(at.cast::<MaybeUninit<T>>().as_ptr()) };
            if full {
                // SAFETY: the caller says that there is a value.
                unsafe { place.assume_init_drop() };
            }
        }
        Place {
            at: NonNull::from(Box::leak(Box::<MaybeUninit<T>>::new_uninit())).cast(),
            full: false,
            free: free::<T>,
        }
    }

    /// # Safety
    /// It holds a `T`.
    unsafe fn take<T>(mut self) -> T {
        self.full = false;
        // SAFETY: the contract; `full` keeps it from being dropped.
        unsafe { self.at.cast::<T>().read() }
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // SAFETY: made by `new`, freed once.
        unsafe { (self.free)(self.at, self.full) };
    }
}

impl<'a> Select<'a> {
    /// A select without operations.
    ///
    /// ```
    /// use runnext::chan::{self, Select};
    /// let rx = chan::after(std::time::Duration::ZERO);
    /// let mut select = Select::new();
    /// assert!(select.try_select().is_err()); // without operations none is ready
    /// select.recv(&rx);
    /// assert!(select.select().recv(&rx).is_ok());
    /// ```
    pub fn new() -> Select<'a> {
        Select::default()
    }

    /// One that chooses the operation that was added first, if several are ready; as [`select_biased!`](crate::select_biased) does.
    ///
    /// ```
    /// use runnext::chan::{self, Select};
    /// let lanes: Vec<_> = (0..3).map(|_| chan::bounded(1)).collect();
    /// let mut select = Select::new_biased();
    /// lanes.iter().for_each(|(_, rx)| { select.recv(rx); });
    /// [2, 1].map(|lane: usize| lanes[lane].0.send(lane).unwrap());
    /// for expected in [1, 2] {
    ///     let op = select.select();
    ///     let index = op.index();
    ///     assert_eq!((index, op.recv(&lanes[index].1)), (expected, Ok(expected)));
    /// }
    /// ```
    pub fn new_biased() -> Select<'a> {
        Select {
            order: Order::First,
            ..Select::default()
        }
    }

    /// Adds a receive. Returns its index: the first operation has 0, the next 1.
    ///
    /// ```
    /// use runnext::chan::{self, Select};
    /// let words = chan::never::<&str>();
    /// let (tx, numbers) = chan::bounded(1);
    /// let mut select = Select::new();
    /// assert_eq!(select.recv(&words), 0);
    /// assert_eq!(select.recv(&numbers), 1); // types may differ
    /// tx.send(7).unwrap();
    /// let op = select.select();
    /// assert_eq!((op.index(), op.recv(&numbers)), (1, Ok(7)));
    /// ```
    pub fn recv<T>(&mut self, rx: &'a Receiver<T>) -> usize {
        self.add(Op {
            end: ptr::from_ref(rx).cast(),
            // SAFETY: the end is borrowed for 'a; the place is an empty `T`'s.
            case: |end, place| unsafe {
                Case::recv(&*end.cast::<Receiver<T>>(), place.cast::<T>())
            },
            place: None,
            new_place: Some(Place::new::<T>),
            by: needs_drop::<T>().then(By::me),
            give_up: |_, _| {},
            borrows: PhantomData,
        })
    }

    /// Adds a send. Returns its index: the first operation has 0, the next 1.
    ///
    /// ```
    /// use runnext::chan::{self, Select};
    /// let (tx, rx) = chan::bounded(1);
    /// let mut select = Select::new();
    /// let index = select.send(&tx);
    /// let op = select.select();
    /// assert_eq!(op.index(), index);
    /// op.send(&tx, "made after it was chosen").unwrap();
    /// # drop(rx);
    /// ```
    pub fn send<T>(&mut self, tx: &'a Sender<T>) -> usize {
        self.add(Op {
            end: ptr::from_ref(tx).cast(),
            // SAFETY: the end is borrowed for 'a.
            case: |end, _| unsafe { Case::promise(&*end.cast::<Sender<T>>()) },
            place: None,
            new_place: None,
            by: None,
            // SAFETY: as above.
            give_up: |end, call| match unsafe { &*end.cast::<Sender<T>>() }.chan() {
                Chan::Ring(ring) => ring.give_up().wake(|waiter| call.wake(waiter)),
                Chan::Rendezvous(_) | Chan::Chain(_) | Chan::Clock(_) => {}
            },
            borrows: PhantomData,
        })
    }

    fn add(&mut self, op: Op<'a>) -> usize {
        self.ops.push(Some(op));
        self.ops.len() - 1
    }

    /// Takes an operation out again. The indices of the others stay as they are.
    ///
    /// ```
    /// use runnext::chan::{self, Select};
    /// let (rx, rx2) = (chan::never::<u8>(), chan::never::<u8>());
    /// let mut select = Select::new();
    /// let (a, b) = (select.recv(&rx), select.recv(&rx2));
    /// select.remove(a);
    /// assert_eq!(select.recv(&rx), b + 1);
    /// ```
    ///
    /// # Panics
    /// If there is no operation with this index (any more).
    pub fn remove(&mut self, index: usize) {
        let op = self.ops.get_mut(index).and_then(Option::take);
        assert!(op.is_some(), "this select has no operation {index}");
    }

    /// Waits until one of the operations is ready, and chooses it; if several are, one of them at random, unless it is [biased](Self::new_biased). The caller must
    /// complete it with [`SelectedOperation::recv`] or [`SelectedOperation::send`].
    ///
    /// # Panics
    /// If there are no operations: it would wait for ever.
    ///
    /// # Blocks
    /// The goroutine, until an operation is ready. On a plain thread, the thread.
    ///
    /// # Example
    /// ```
    /// use runnext::chan::{self, Select};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let replies = ["a.example", "b.example"].map(|server| {
    ///         let (tx, rx) = chan::bounded(1);
    ///         runnext::go(move || tx.send(server.len()));
    ///         rx
    ///     });
    ///     let mut select = Select::new();
    ///     replies.iter().for_each(|rx| { select.recv(rx); });
    ///     let op = select.select(); // whoever answers first
    ///     let first = op.index();
    ///     assert_eq!(op.recv(&replies[first]), Ok(9));
    /// }
    /// ```
    pub fn select(&mut self) -> SelectedOperation<'a> {
        assert!(
            self.ops.iter().any(Option::is_some),
            "a select without operations would wait for ever: add some first"
        );
        self.run(Limit::NEVER)
            .unwrap_or_else(|| unreachable!("without a limit one is chosen"))
    }

    /// Chooses one of the operations that are ready.
    ///
    /// ```
    /// use runnext::chan::{self, Select, TrySelectError};
    /// let (tx, rx) = chan::bounded(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert_eq!(select.try_select().unwrap_err(), TrySelectError);
    /// tx.send(1).unwrap();
    /// assert_eq!(select.try_select().unwrap().recv(&rx), Ok(1));
    /// ```
    ///
    /// # Errors
    /// If none is, at one moment.
    ///
    /// # Blocks
    /// Only in one case: the chosen receive was matched with a send of another [`Select`] whose value has not been supplied yet. Then it waits for that,
    /// however long [that sender](SelectedOperation) takes.
    pub fn try_select(&mut self) -> Result<SelectedOperation<'a>, TrySelectError> {
        self.run(Limit::Now).ok_or(TrySelectError)
    }

    /// As [`select`](Self::select), for so long at most.
    ///
    /// ```
    /// use runnext::chan::{self, Select};
    /// let rx = chan::never::<u8>();
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// assert!(select.select_timeout(std::time::Duration::from_millis(1)).is_err());
    /// ```
    ///
    /// # Errors
    /// If the time is over.
    ///
    /// # Blocks
    /// The goroutine, until an operation is ready. On a plain thread, the thread. In one case for longer than that: as [`try_select`](Self::try_select).
    pub fn select_timeout(
        &mut self,
        timeout: Duration,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Limit::At(Instant::after(timeout).as_ns()))
            .ok_or(SelectTimeoutError)
    }

    /// As [`select`](Self::select), until the deadline at most.
    ///
    /// # Errors
    /// If it has passed.
    ///
    /// # Blocks
    /// The goroutine, until an operation is ready. On a plain thread, the thread. In one case for longer than that: as [`try_select`](Self::try_select).
    ///
    /// # Example
    /// ```
    /// use runnext::{chan::{self, Select}, time::Instant};
    /// let (tx, rx) = chan::bounded(2);
    /// [1, 2].map(|n| tx.send(n).unwrap());
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// let deadline = Instant::now() + std::time::Duration::from_millis(1);
    /// let mut sum = 0;
    /// while let Ok(op) = select.select_deadline(deadline) {
    ///     sum += op.recv(&rx).unwrap();
    /// }
    /// assert!(sum == 3 && Instant::now() >= deadline);
    /// ```
    pub fn select_deadline(
        &mut self,
        deadline: Instant,
    ) -> Result<SelectedOperation<'a>, SelectTimeoutError> {
        self.run(Limit::At(deadline.as_ns()))
            .ok_or(SelectTimeoutError)
    }

    fn run(&mut self, limit: Limit) -> Option<SelectedOperation<'a>> {
        let mut indices = Vec::with_capacity(self.ops.len());
        let mut cases = Vec::with_capacity(self.ops.len());
        for (index, op) in self.ops.iter_mut().enumerate() {
            let Some(op) = op else { continue };
            if let Some(new_place) = op.new_place
                && op.place.is_none()
            {
                op.place = Some(new_place());
            }
            let place = op.place.as_ref().map_or(ptr::null_mut(), |p| p.at.as_ptr());
            indices.push(index);
            // SAFETY: the function fits the end, by `recv` and `send`. The place is empty: a full one was moved out.
            cases.push(unsafe { (op.case)(op.end, place) });
        }
        let chosen = select::run(&mut cases, limit, self.order)?;
        let index = indices[chosen.index];
        let op = self.ops[index].as_mut().expect("it was a case");
        let mut place = op.place.take();
        if let Some(place) = &mut place {
            place.full = !chosen.closed;
        }
        Some(SelectedOperation {
            index,
            closed: chosen.closed,
            chan: cases[chosen.index].chan(),
            place,
            by: op.by.clone(),
            peer: chosen.peer,
            end: op.end,
            give_up: op.give_up,
            borrows: PhantomData,
        })
    }
}

impl fmt::Debug for Select<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Select")
            .field("operations", &self.ops.iter().flatten().count())
            .finish()
    }
}

/// An operation that was chosen by a [`Select`] and must be completed, which does not block.
///
/// For a send to a bounded channel a place in the buffer is reserved until then. At a rendezvous channel a receiver is, which waits: neither its time-out nor
/// anything else ends that wait. So a send is to be completed at once. If its goroutine does not run for long (its group is throttled), or never
/// again (its runtime was shut down), the receiver waits as long.
///
/// # Panics
/// Dropping an operation that was not completed panics: a peer may be waiting for it. What was received is dropped; it is lost if the operation was
/// added by another thread or goroutine.
///
/// # Example
/// ```
/// use runnext::chan::{self, Select};
/// let (tx, rx) = chan::bounded(1);
/// let mut select = Select::new();
/// let sending = select.send(&tx);
/// select.recv(&rx);
/// for _ in 0..2 {
///     let op = select.select();
///     match op.index() == sending {
///         true => op.send(&tx, 5).unwrap(), // the first time: there is room, and no value
///         false => assert_eq!(op.recv(&rx), Ok(5)), // the second
///     }
/// }
/// assert!(rx.is_empty());
/// ```
#[must_use = "a chosen operation must be completed"]
pub struct SelectedOperation<'a> {
    index: usize,
    closed: bool,
    /// The `Chan<T>`, null for a receiver of nothing.
    chan: *const (),
    /// What was received. None for a send.
    place: Option<Place>,
    by: Option<By>,
    /// The receiver a promise was made to.
    peer: Option<NonNull<Node>>,
    end: *const (),
    give_up: unsafe fn(*const (), &Call),
    borrows: PhantomData<&'a ()>,
}

impl SelectedOperation<'_> {
    /// The index of the operation, as [`Select::recv`] or [`Select::send`] returned it.
    ///
    /// ```
    /// use runnext::chan::{self, Select};
    /// let (quiet, (tx, rx)) = (chan::never::<u8>(), chan::bounded(1));
    /// let mut select = Select::new();
    /// let indices = [select.recv(&quiet), select.recv(&rx)];
    /// tx.send("here").unwrap();
    /// let op = select.select();
    /// assert_eq!(op.index(), indices[1]);
    /// op.recv(&rx).unwrap();
    /// ```
    pub fn index(&self) -> usize {
        self.index
    }

    /// Completes a receive.
    ///
    /// # Errors
    /// If the channel is empty and closed.
    ///
    /// # Panics
    /// If it is not a receive from this channel that was chosen.
    ///
    /// # Example
    /// ```
    /// use runnext::chan::{self, RecvError, Select};
    /// let (tx, rx) = chan::bounded(1);
    /// let mut select = Select::new();
    /// select.recv(&rx);
    /// tx.send('x').unwrap();
    /// drop(tx);
    /// assert_eq!(select.select().recv(&rx), Ok('x'));
    /// assert_eq!(select.select().recv(&rx), Err(RecvError)); // a closed channel is ready, too
    /// ```
    pub fn recv<T>(mut self, rx: &Receiver<T>) -> Result<T, RecvError> {
        let same = rx.chan().is_some_and(|chan| self.is_from(chan));
        let place = match self.place.take() {
            Some(place) if same => place,
            place => {
                self.place = place;
                panic!("the chosen operation is not a receive from this channel");
            }
        };
        self.by = None;
        let this = ManuallyDrop::new(self);
        match this.closed {
            true => Err(RecvError),
            // SAFETY: received from a channel of `T`.
            false => Ok(unsafe { place.take::<T>() }),
        }
    }

    /// Completes a send.
    ///
    /// # Errors
    /// Gives the value back if the channel is closed.
    ///
    /// # Panics
    /// If it is not a send to this channel that was chosen.
    ///
    /// # Example
    /// ```
    /// use runnext::chan::{self, Select, SendError};
    /// let (tx, rx) = chan::bounded(1);
    /// let mut select = Select::new();
    /// select.send(&tx);
    /// assert_eq!(select.select().send(&tx, "in time"), Ok(()));
    /// assert_eq!(rx.recv(), Ok("in time"));
    /// rx.close();
    /// assert_eq!(select.select().send(&tx, "too late"), Err(SendError("too late")));
    /// ```
    pub fn send<T>(self, tx: &Sender<T>, value: T) -> Result<(), SendError<T>> {
        if self.place.is_some() || !self.is_from(tx.chan()) {
            swallow::panics(|| drop(value)); // one panic at a time
            panic!("the chosen operation is not a send to this channel");
        }
        let this = ManuallyDrop::new(self);
        if this.closed {
            return Err(SendError(value));
        }
        let value = ManuallyDrop::new(value);
        let from: *const T = &raw const *value;
        let call = Call::brief();
        let sent = match (tx.chan(), this.peer) {
            (Chan::Ring(ring), _) => {
                // SAFETY: this holds a promise of the ring, and the value is given up if it is taken.
                let ended = unsafe { ring.keep(from) };
                ended
                    .map(|ended| ended.wake(|waiter| call.wake(waiter)))
                    .is_some()
            }
            (_, Some(peer)) => {
                // SAFETY: the receiver is claimed and waits for this value, in an empty slot of the same type.
                call.wake(unsafe { rendezvous::keep(peer.as_ref(), from) });
                true
            }
            (_, None) => {
                drop(call);
                // A channel without a limit. Not `send`, which may let others run.
                let sent = tx.try_send(ManuallyDrop::into_inner(value));
                return sent.map_err(|e| SendError(e.into_inner()));
            }
        };
        drop(call);
        match sent {
            true => Ok(()),
            false => Err(SendError(ManuallyDrop::into_inner(value))),
        }
    }

    fn is_from<T>(&self, chan: &Chan<T>) -> bool {
        ptr::eq(self.chan, ptr::from_ref(chan).cast())
    }
}

impl Drop for SelectedOperation<'_> {
    fn drop(&mut self) {
        if !self.closed && self.place.is_none() {
            let call = Call::brief();
            match self.peer {
                // SAFETY: claimed by us, and still waiting.
                Some(peer) => call.wake(rendezvous::give_up(unsafe { peer.as_ref() })),
                // SAFETY: the end is borrowed, and the function fits it; the promise was not kept.
                None => unsafe { (self.give_up)(self.end, &call) },
            }
        }
        if let Some(mut place) = self.place.take() {
            if self.by.as_ref().is_some_and(|by| *by != By::me()) {
                place.full = false; // it may belong to another thread: see the header
            }
            swallow::panics(|| drop(place)); // one panic at a time
        }
        if !thread::panicking() {
            panic!(
                "operation {} of a select was chosen and not completed: call `recv` or `send` on it",
                self.index
            );
        }
    }
}

impl fmt::Debug for SelectedOperation<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SelectedOperation")
            .field("index", &self.index)
            .finish_non_exhaustive()
    }
}

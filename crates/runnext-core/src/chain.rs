//! The unbounded channel: a chain of blocks with a lock for each end.
//!
//! # Why this shape
//! As the [`ring`](crate::ring) (see there), without "full": nobody waits to send. Values lie in blocks of `BLOCK`, so that the
//! allocator is asked once per block. It may not be asked under a lock, nor by who holds the runtime up: a sender that needs a block and has none
//! lets go of everything, makes one and comes again. A block that was read out becomes the *spare* one, for the next
//! sender that needs one; if there is one already it becomes *waste*, freed by the next receiver that may.
//! Rejected: a growing ring, which moves all values under the lock.
//!
//! # Words
//! `tail` and `head` count all values ever put in and taken out. *S* is the senders' lock, *R* the receivers'.
//!
//! | what                                  | changed under | so that under it                                     |
//! |---------------------------------------|---------------|------------------------------------------------------|
//! | tail, last block, waiting receivers   | S             | "empty" stays true: a receiver queues up under S     |
//! | head, first block                     | R             | a block is left by one                               |
//! | closed                                | R and S       | both ends see it                                     |
//! | spare, waste                          |               | whoever takes a block has it alone                   |
//!
//! # Protocol
//! send: S: 1 closed?  2 a receiver waits: hand over  3 the last block is full: chain the spare one; none: `Again`  4 put
//! recv: R: 1 not empty: the first block is read out: go on to the next; take.  2 closed?  Else S: 3 still empty: queue up, otherwise from 1
//! Both locks are taken in the order R, S.
//!
//! # Invariants
//! I1  A receiver that can be served waits only while the channel is empty.
//! I2  head..tail are in the chain from the first to the last block, in order; no other place holds a value.
//! I3  `next` of a block is set before `tail` counts a value in the next block.
//! I4  A block is in the chain, the spare one, waste, or with one party. Who puts it down releases what was done with it, who takes it up acquires that.
//!
//! # Context
//! [`flavor`](crate::flavor). Tests: `chain/loom.rs`, on this code with blocks of two; `tests/chan*.rs` of the runtime.

use core::fmt;
use core::mem::MaybeUninit;
use core::ptr::{self, NonNull};

use crate::flavor::{Flavor, Locks};
use crate::probe::{self, Probe};
use crate::shim::{
    AtomicBool, AtomicPtr, AtomicUsize, CachePadded, Cell,
    Ordering::{AcqRel, Acquire, Relaxed, Release},
    UnsafeCell,
};
use crate::waiting::{Ended, Mode, Node, Outcome, Queue, Step, Waiter, attempt_or_queue, win};

/// Values in a block. A guess: 31 and the link fill 256 bytes of words.
const BLOCK: usize = if cfg!(loom) { 2 } else { 31 };

struct Block<T> {
    next: Cell<*mut Block<T>>,
    slots: [UnsafeCell<MaybeUninit<T>>; BLOCK],
    /// Tells the models of a block that is never freed.
    #[cfg(loom)]
    _track: ::loom::alloc::Track<()>,
}

impl<T> Block<T> {
    #[cfg(not(loom))]
    fn new() -> Box<Block<T>> {
        let mut block = Box::<Block<T>>::new_uninit();
        // SAFETY: `next` is written, and the slots need no initialising.
        unsafe {
            (&raw mut (*block.as_mut_ptr()).next).write(Cell::new(ptr::null_mut()));
            block.assume_init()
        }
    }

    #[cfg(loom)] // whose cells need it
    fn new() -> Box<Block<T>> {
        Box::new(Block {
            next: Cell::new(ptr::null_mut()),
            slots: core::array::from_fn(|_| UnsafeCell::new(MaybeUninit::uninit())),
            _track: ::loom::alloc::Track::new(()),
        })
    }
}

/// See the [module](self).
pub struct Chain<T, W: Waiter, L: Locks> {
    closed: AtomicBool,
    /// A block for whoever needs one next.
    spare: AtomicPtr<Block<T>>,
    /// Blocks to be freed, linked by `next`. Added to under R.
    waste: AtomicPtr<Block<T>>,
    senders: CachePadded<Senders<T, W, L>>,
    receivers: CachePadded<Receivers<T, L>>,
}

struct Senders<T, W: Waiter, L: Locks> {
    lock: L::Lock<SendSide<T, W>>,
    tail: AtomicUsize,
}

/// Under S.
struct SendSide<T, W: Waiter> {
    block: NonNull<Block<T>>,
    at: usize,
    waiting: Queue<W>,
}

struct Receivers<T, L: Locks> {
    lock: L::Lock<RecvSide<T>>,
    head: AtomicUsize,
}

/// Under R.
struct RecvSide<T> {
    block: NonNull<Block<T>>,
    at: usize,
    tail_seen: usize,
}

// SAFETY: a block, and each place in it, is used by one party at a time (I2, I4 and the locks), which moves the value to
// another thread.
unsafe impl<T: Send, W: Waiter, L: Locks> Sync for Chain<T, W, L> {}
// SAFETY: as above.
unsafe impl<T: Send, W: Waiter, L: Locks> Send for Chain<T, W, L> {}

impl<T, W: Waiter, L: Locks> Chain<T, W, L> {
    /// Without values. Allocates a block.
    #[allow(clippy::new_without_default)] // it allocates
    pub fn new() -> Chain<T, W, L> {
        let block = NonNull::from(Box::leak(Block::new()));
        Chain {
            closed: AtomicBool::new(false),
            spare: AtomicPtr::new(ptr::null_mut()),
            waste: AtomicPtr::new(ptr::null_mut()),
            senders: CachePadded::new(Senders {
                lock: L::new(SendSide {
                    block,
                    at: 0,
                    waiting: Queue::new(),
                }),
                tail: AtomicUsize::new(0),
            }),
            receivers: CachePadded::new(Receivers {
                lock: L::new(RecvSide {
                    block,
                    at: 0,
                    tail_seen: 0,
                }),
                head: AtomicUsize::new(0),
            }),
        }
    }

    #[inline]
    fn lock_s(&self) -> L::Guard<'_, SendSide<T, W>> {
        L::lock(&self.senders.lock)
    }

    #[inline]
    fn lock_r(&self) -> L::Guard<'_, RecvSide<T>> {
        L::lock(&self.receivers.lock)
    }

    /// Makes a block and keeps it for the next who needs one.
    #[cold]
    fn bring_block(&self) {
        let block = Box::into_raw(Block::new());
        if !self.keep_block(block) {
            // SAFETY: made above, and nobody has seen it.
            drop(unsafe { Box::from_raw(block) });
        }
    }

    fn keep_block(&self, block: *mut Block<T>) -> bool {
        self.spare
            .compare_exchange(ptr::null_mut(), block, AcqRel, Relaxed)
            .is_ok()
    }

    /// Chains the spare block behind the last. False if there is none. Under S.
    #[cold]
    fn add_block(&self, side: &mut SendSide<T, W>) -> bool {
        let Some(block) = NonNull::new(self.spare.swap(ptr::null_mut(), Acquire)) else {
            return false;
        };
        // SAFETY: the spare block is in no chain, and ours now (I4). The last block is in the chain, and receivers do not look at
        // its link before `tail` goes beyond it (I3).
        unsafe {
            block.as_ref().next.set(ptr::null_mut());
            side.block.as_ref().next.set(block.as_ptr());
        }
        side.block = block;
        side.at = 0;
        true
    }

    /// Puts a value into the next place. Under S.
    ///
    /// # Safety
    /// The last block has room, and `value` is initialised and not used again.
    #[inline]
    unsafe fn put(&self, side: &mut SendSide<T, W>, value: *const T) {
        // SAFETY: the last block is in the chain.
        let block = unsafe { side.block.as_ref() };
        // SAFETY: this place holds nothing yet (I2), and the receivers do not look at it before `tail` says so.
        block.slots[side.at].with_mut(|slot| unsafe {
            (*slot).as_mut_ptr().copy_from_nonoverlapping(value, 1);
        });
        side.at += 1;
        let tail = self.senders.tail.load(Relaxed);
        self.senders.tail.store(tail.wrapping_add(1), Release);
    }

    /// Takes the oldest value. Under R.
    ///
    /// # Safety
    /// There is one, and `into` is valid.
    #[inline]
    unsafe fn get(&self, side: &mut RecvSide<T>, into: *mut T) {
        if side.at == BLOCK {
            self.next_block(side);
        }
        // SAFETY: the first block is in the chain.
        let block = unsafe { side.block.as_ref() };
        // SAFETY: this place holds the value `head` (I2), and the senders have left it.
        block.slots[side.at].with_mut(|slot| unsafe {
            into.copy_from_nonoverlapping((*slot).as_ptr(), 1);
        });
        side.at += 1;
        let head = self.receivers.head.load(Relaxed);
        self.receivers.head.store(head.wrapping_add(1), Release);
    }

    /// Goes on to the next block and lets the one before be used again.
    #[cold]
    fn next_block(&self, side: &mut RecvSide<T>) {
        // SAFETY: in the chain; a value beyond it was counted, so `next` is set (I3), and the senders have left it.
        let next = unsafe { side.block.as_ref() }.next.get();
        let old = core::mem::replace(&mut side.block, NonNull::new(next).expect("I3"));
        side.at = 0;
        if self.keep_block(old.as_ptr()) {
            return;
        }
        let mut first = self.waste.load(Relaxed);
        loop {
            // SAFETY: out of the chain, not kept: ours alone until it is waste.
            unsafe { old.as_ref() }.next.set(first);
            match self
                .waste
                .compare_exchange(first, old.as_ptr(), Release, Relaxed)
            {
                Ok(_) => return,
                Err(now) => first = now,
            }
        }
    }

    #[cold]
    fn free_waste(&self) {
        free_chain(self.waste.swap(ptr::null_mut(), Acquire));
    }

    /// A receiver queues up if the channel is still empty. False: look again.
    ///
    /// # Safety
    /// As [`recv`](Flavor::recv), of the node.
    #[cold]
    unsafe fn queue_recv(&self, node: &Node<W>) -> bool {
        let mut side = self.lock_s();
        if self.probe_recv().ready {
            return false;
        }
        // SAFETY: the contract.
        unsafe { side.waiting.push(node) };
        true
    }
}

/// Frees blocks that are linked by `next`, and not the values in them.
fn free_chain<T>(mut block: *mut Block<T>) {
    while !block.is_null() {
        // SAFETY: made by `Block::new`, and nobody else has them.
        let owned = unsafe { Box::from_raw(block) };
        block = owned.next.get();
    }
}

impl<T, W: Waiter, L: Locks> Flavor<T, W> for Chain<T, W, L> {
    /// `Again` if it needs a block, which cannot be made here: see [`prepare_send`](Flavor::prepare_send).
    #[inline(always)] // for most it is the whole operation
    unsafe fn quick_send(&self, value: *mut T) -> Step<W> {
        let mut side = self.lock_s();
        if self.closed.load(Relaxed) {
            return Step::Closed;
        }
        if !side.waiting.is_empty()
            && let Some(peer) = side.waiting.take()
        {
            // SAFETY: `value` is initialised and not used again (contract); the peer waits with an empty slot of the same
            // type.
            unsafe { ptr::copy_nonoverlapping(value, peer.slot::<T>(), 1) };
            return Step::Done(Some(peer.end(Outcome::Done)));
        }
        if side.at == BLOCK && !self.add_block(&mut side) {
            return Step::Again;
        }
        // SAFETY: the contract, and there is room in the last block.
        unsafe { self.put(&mut side, value) };
        Step::Done(None)
    }

    #[inline(always)] // for most it is the whole operation
    unsafe fn quick_recv(&self, into: *mut T) -> Step<W> {
        let mut side = self.lock_r();
        let (head, tail) = (&self.receivers.head, &self.senders.tail);
        if probe::value_since(head, tail, &mut side.tail_seen) {
            // SAFETY: there is a value, and `into` is valid (contract).
            unsafe { self.get(&mut side, into) };
            return Step::Done(None);
        }
        if self.closed.load(Relaxed) {
            return Step::Closed;
        }
        Step::Blocked
    }

    unsafe fn send(&self, value: *mut T, _: &Node<W>, mode: Mode<W>) -> Step<W> {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_send(value) };
        match mode {
            Mode::QueueMore(own) => win(own, quick),
            Mode::Try | Mode::Queue => quick(),
        }
    }

    /// There is always room.
    unsafe fn promise(&self, _: &Node<W>, mode: Mode<W>) -> Step<W> {
        let done = || match self.closed.load(Acquire) {
            true => Step::Closed,
            false => Step::Done(None),
        };
        match mode {
            Mode::QueueMore(own) => win(own, done),
            Mode::Try | Mode::Queue => done(),
        }
    }

    unsafe fn recv(&self, into: *mut T, node: &Node<W>, mode: Mode<W>) -> Step<W> {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_recv(into) };
        let is_ready = || self.probe_recv().ready;
        // SAFETY: the contract.
        attempt_or_queue(mode, is_ready, quick, || unsafe { self.queue_recv(node) })
    }

    fn leave_send(&self, _: &Node<W>) {}

    fn leave_recv(&self, node: &Node<W>) {
        self.lock_s().waiting.leave(node);
    }

    #[inline]
    fn probe_send(&self) -> Probe {
        Probe {
            stamp: 0,
            ready: true,
        }
    }

    /// Becomes ready by a value being put or the close; the first moves the stamp.
    #[inline]
    fn probe_recv(&self) -> Probe {
        probe::value(&self.receivers.head, &self.senders.tail).or_closed(&self.closed)
    }

    fn close(&self) -> Option<Ended<W>> {
        let _r = self.lock_r();
        let mut s = self.lock_s();
        if self.closed.load(Relaxed) {
            return None;
        }
        self.closed.store(true, Release);
        Some(s.waiting.end_all(Outcome::Closed))
    }

    #[inline]
    fn is_closed(&self) -> bool {
        self.closed.load(Acquire)
    }

    #[inline]
    fn count(&self) -> usize {
        probe::len(&self.receivers.head, &self.senders.tail)
    }

    fn capacity(&self) -> Option<usize> {
        None
    }

    /// Room for one more value: the block it may need.
    fn prepare_send(&self) {
        if self.spare.load(Relaxed).is_null() {
            self.bring_block();
        }
    }

    #[inline]
    fn tidy(&self) {
        if !self.waste.load(Relaxed).is_null() {
            self.free_waste();
        }
    }
}

impl<T, W: Waiter, L: Locks> Drop for Chain<T, W, L> {
    fn drop(&mut self) {
        let (head, tail) = (&self.receivers.head, self.senders.tail.load(Relaxed));
        let (mut block, mut at) = {
            let side = self.lock_r();
            (side.block, side.at)
        };
        // Counted before it is dropped: if one panics the others are leaked, and none is dropped twice.
        while head.load(Relaxed) != tail {
            head.store(head.load(Relaxed).wrapping_add(1), Relaxed);
            if at == BLOCK {
                // SAFETY: in the chain, with values behind it (I3). Nobody else is left.
                let owned = unsafe { Box::from_raw(block.as_ptr()) };
                block = NonNull::new(owned.next.get()).expect("I3");
                at = 0;
            }
            // SAFETY: in the chain.
            let slots = &unsafe { block.as_ref() }.slots;
            // SAFETY: head..tail hold values (I2).
            slots[at].with_mut(|slot| unsafe { (*slot).assume_init_drop() });
            at += 1;
        }
        free_chain(block.as_ptr());
        self.free_waste();
        let spare = self.spare.swap(ptr::null_mut(), Acquire);
        if !spare.is_null() {
            // SAFETY: in no chain; its link is stale, so it is freed by itself.
            drop(unsafe { Box::from_raw(spare) });
        }
    }
}

impl<T, W: Waiter, L: Locks> fmt::Debug for Chain<T, W, L> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Chain")
            .field("count", &self.count())
            .field("closed", &self.is_closed())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom;

//! The unbounded channel: a chain of blocks with a lock for each end.
//!
//! # Why this shape
//! As the ring (see there), without "full": nobody waits to send. Values lie in blocks of [`BLOCK`], so that the
//! allocator is asked once per block. It may not be asked under a lock (R1): a sender that needs a block and has none
//! lets go of everything, makes one and comes again. A block that was read out becomes the *spare* one, for the next
//! sender that needs one; if there is one already it becomes *waste*, freed by the next receiver that has left the runtime.
//! Rejected: a growing ring, which moves all values under the lock.
//!
//! | what                                  | changed under |
//! |---------------------------------------|---------------|
//! | tail, last block, waiting receivers   | S             |
//! | head, first block                     | R             |
//! | closed                                | R and S       |
//!
//! # Invariants
//! I1  A receiver that can be served waits only while the channel is empty.
//! I2  head..tail are in the chain from the first to the last block, in order; no other place holds a value.
//! I3  `next` of a block is set before `tail` counts a value in the next block.

use std::cell::{Cell, UnsafeCell};
use std::mem::MaybeUninit;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicBool, AtomicPtr, AtomicUsize, Ordering::*};

use runnext_core::flavor::Flavor;
use runnext_core::probe::{self, Probe};
use runnext_core::shim::CachePadded;
use runnext_core::waiting::Ended;

use super::wait::{Mode, Node, Outcome, Queue, Step, attempt_or_queue, win};
use crate::lock::Lock;
use crate::sched::wait::Waiter;

/// Values in a block. A guess: 31 and the link fill 256 bytes of words.
const BLOCK: usize = 31;

struct Block<T> {
    next: Cell<*mut Block<T>>,
    slots: [UnsafeCell<MaybeUninit<T>>; BLOCK],
}

impl<T> Block<T> {
    fn new() -> Box<Block<T>> {
        let mut block = Box::<Block<T>>::new_uninit();
        // SAFETY: `next` is written, and the slots need no initialising.
        unsafe {
            (&raw mut (*block.as_mut_ptr()).next).write(Cell::new(ptr::null_mut()));
            block.assume_init()
        }
    }
}

pub(super) struct List<T> {
    closed: AtomicBool,
    /// A block for whoever needs one next.
    spare: AtomicPtr<Block<T>>,
    /// Blocks to be freed, linked by `next`. Added to under R.
    waste: AtomicPtr<Block<T>>,
    senders: CachePadded<Senders<T>>,
    receivers: CachePadded<Receivers<T>>,
}

struct Senders<T> {
    lock: Lock<SendSide<T>>,
    tail: AtomicUsize,
}

struct SendSide<T> {
    block: NonNull<Block<T>>,
    at: usize,
    waiting: Queue,
}

struct Receivers<T> {
    lock: Lock<RecvSide<T>>,
    head: AtomicUsize,
}

struct RecvSide<T> {
    block: NonNull<Block<T>>,
    at: usize,
    tail_seen: usize,
}

// SAFETY: a block, and each place in it, is used by one party at a time (I2 and the locks), which moves the value to
// another thread.
unsafe impl<T: Send> Sync for List<T> {}
// SAFETY: as above.
unsafe impl<T: Send> Send for List<T> {}

impl<T> List<T> {
    pub(super) fn new() -> List<T> {
        let block = NonNull::from(Box::leak(Block::new()));
        List {
            closed: AtomicBool::new(false),
            spare: AtomicPtr::new(ptr::null_mut()),
            waste: AtomicPtr::new(ptr::null_mut()),
            senders: CachePadded::new(Senders {
                lock: Lock::new(SendSide {
                    block,
                    at: 0,
                    waiting: Queue::new(),
                }),
                tail: AtomicUsize::new(0),
            }),
            receivers: CachePadded::new(Receivers {
                lock: Lock::new(RecvSide {
                    block,
                    at: 0,
                    tail_seen: 0,
                }),
                head: AtomicUsize::new(0),
            }),
        }
    }

    /// Makes a block and keeps it for the next who needs one. In user context.
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
    fn add_block(&self, side: &mut SendSide<T>) -> bool {
        let Some(block) = NonNull::new(self.spare.swap(ptr::null_mut(), Acquire)) else {
            return false;
        };
        // SAFETY: the spare block is in no chain, and ours now. The last block is in the chain, and receivers do not look at
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
    unsafe fn put(&self, side: &mut SendSide<T>, value: *const T) {
        // SAFETY: the last block is in the chain, and this place holds nothing yet (I2).
        unsafe {
            let slot = side.block.as_ref().slots[side.at].get();
            (*slot).as_mut_ptr().copy_from_nonoverlapping(value, 1);
        }
        side.at += 1;
        let tail = self.senders.tail.load(Relaxed);
        self.senders.tail.store(tail.wrapping_add(1), Release);
    }

    /// A receiver queues up if the channel is still empty. False: look again.
    #[cold]
    fn queue_recv(&self, node: &Node) -> bool {
        let mut side = self.senders.lock.lock();
        let empty = self.senders.tail.load(Relaxed) == self.receivers.head.load(Acquire);
        if self.closed.load(Relaxed) || !empty {
            return false;
        }
        // SAFETY: the caller keeps the node until its wait is over.
        unsafe { side.waiting.push(node) };
        true
    }

    /// Whether there is a value. Under R.
    #[inline]
    fn has_value(&self, side: &mut RecvSide<T>) -> bool {
        let head = self.receivers.head.load(Relaxed);
        if head != side.tail_seen {
            return true;
        }
        side.tail_seen = self.senders.tail.load(Acquire);
        head != side.tail_seen
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
        // SAFETY: the first block is in the chain, and this place holds the value `head` (I2).
        unsafe {
            let slot = side.block.as_ref().slots[side.at].get();
            into.copy_from_nonoverlapping((*slot).as_ptr(), 1);
        }
        side.at += 1;
        let head = self.receivers.head.load(Relaxed);
        self.receivers.head.store(head.wrapping_add(1), Release);
    }

    /// Goes on to the next block and lets the one before be used again.
    #[cold]
    fn next_block(&self, side: &mut RecvSide<T>) {
        // SAFETY: in the chain; a value beyond it was counted, so `next` is set (I3), and the senders have left it.
        let next = unsafe { side.block.as_ref() }.next.get();
        let old = std::mem::replace(&mut side.block, NonNull::new(next).expect("I3"));
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
}

/// Frees blocks that are linked by `next`, and not the values in them.
fn free_chain<T>(mut block: *mut Block<T>) {
    while !block.is_null() {
        // SAFETY: made by `Block::new`, and nobody else has them.
        let owned = unsafe { Box::from_raw(block) };
        block = owned.next.get();
    }
}

impl<T> Flavor<T, Waiter> for List<T> {
    /// `Again` if it needs a block, which cannot be made here (R1): see [`prepare_send`](Flavor::prepare_send).
    #[inline]
    unsafe fn quick_send(&self, value: *mut T) -> Step {
        let mut side = self.senders.lock.lock();
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

    #[inline]
    unsafe fn quick_recv(&self, into: *mut T) -> Step {
        let mut side = self.receivers.lock.lock();
        if self.has_value(&mut side) {
            // SAFETY: there is a value, and `into` is valid (contract).
            unsafe { self.get(&mut side, into) };
            return Step::Done(None);
        }
        if self.closed.load(Relaxed) {
            return Step::Closed;
        }
        Step::Blocked
    }

    unsafe fn send(&self, value: *mut T, _: &Node, mode: Mode) -> Step {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_send(value) };
        match mode {
            Mode::QueueMore(own) => win(own, quick),
            Mode::Try | Mode::Queue => quick(),
        }
    }

    /// There is always room.
    unsafe fn promise(&self, _: &Node, mode: Mode) -> Step {
        let done = || match self.closed.load(Acquire) {
            true => Step::Closed,
            false => Step::Done(None),
        };
        match mode {
            Mode::QueueMore(own) => win(own, done),
            Mode::Try | Mode::Queue => done(),
        }
    }

    unsafe fn recv(&self, into: *mut T, node: &Node, mode: Mode) -> Step {
        // SAFETY: the contract.
        let quick = || unsafe { self.quick_recv(into) };
        let is_ready = || self.probe_recv().ready;
        attempt_or_queue(mode, is_ready, quick, || self.queue_recv(node))
    }

    fn leave_send(&self, _: &Node) {}

    fn leave_recv(&self, node: &Node) {
        self.senders.lock.lock().waiting.leave(node);
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
        let value = probe::value(&self.receivers.head, &self.senders.tail);
        Probe {
            ready: value.ready || self.closed.load(Acquire),
            ..value
        }
    }

    fn close(&self) -> Option<Ended<Waiter>> {
        let _r = self.receivers.lock.lock();
        let mut s = self.senders.lock.lock();
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

impl<T> Drop for List<T> {
    fn drop(&mut self) {
        let tail = *self.senders.tail.get_mut();
        let (mut block, mut at) = {
            let side = self.receivers.lock.lock();
            (side.block, side.at)
        };
        // Counted before it is dropped: if one panics the others are leaked, and none is dropped twice.
        while *self.receivers.head.get_mut() != tail {
            let head = self.receivers.head.get_mut();
            *head = head.wrapping_add(1);
            if at == BLOCK {
                // SAFETY: in the chain, with values behind it (I3). Nobody else is left.
                let owned = unsafe { Box::from_raw(block.as_ptr()) };
                block = NonNull::new(owned.next.get()).expect("I3");
                at = 0;
            }
            // SAFETY: head..tail hold values (I2).
            unsafe { (*block.as_ref().slots[at].get()).assume_init_drop() };
            at += 1;
        }
        free_chain(block.as_ptr());
        free_chain(std::mem::replace(self.waste.get_mut(), ptr::null_mut()));
        let spare = std::mem::replace(self.spare.get_mut(), ptr::null_mut());
        if !spare.is_null() {
            // SAFETY: in no chain; its link is stale, so it is freed by itself.
            drop(unsafe { Box::from_raw(spare) });
        }
    }
}

//! The wait list of a channel or a lock: first come, first served, and anybody may leave from the middle.
//!
//! # Why this shape
//! A goroutine that waits for several things at once is in several lists, is served through one of them and must
//! leave the others. With a million waiters on a channel that must not cost a walk, so the links go both ways and
//! leaving is O(1). The nodes live in the frames of the waiters, so waiting needs no memory. Rejected: the singly
//! linked [`list`](crate::list) (no leaving); a slab of nodes per channel (allocates under the channel's
//! lock); "lazy" losers that stay until somebody walks by (a quiet channel would collect them for ever).
//!
//! # Words
//! *waiter*: whoever owns a [`Node`] and its memory. *server*: whoever takes it from the list. *linked*: in the list.
//!
//! | `linked` | meaning                              | changed by, under the list's lock       |
//! |----------|--------------------------------------|-----------------------------------------|
//! | false    | with its waiter, or with its server  | the waiter → true, by `push_back`       |
//! | true     | in the list                          | server or waiter → false                |
//!
//! # Protocol
//! waiter: 1 lock  2 `push_back`  3 unlock  4 sleep  5 if it was not served: lock, `remove`, unlock  6 free the node
//! server: 1 lock  2 `pop_front`  3 use the node  4 unlock  5 wake the waiter, without looking at the node again
//!
//! # Invariants
//! I1  From `head` along `next` one reaches `tail`, and from `tail` along `prev` the same nodes backwards.
//! I2  A node is linked exactly if its `linked` says so, in one list at most.
//! I3  A node is touched by others only under the list's lock, or between being popped and its waiter's being
//!     woken; so a waiter that was woken, or that holds the lock and finds itself in the list, may free it.
//!
//! # Context
//! No allocation, no lock of its own, no atomics: the lock around the list orders everything.
//!
//! Tests: below, and `waitlist/loom.rs` for I3.

use core::cell::Cell;
use core::fmt;
use core::ops::Deref;
use core::ptr::{self, NonNull};

/// One place in a [`WaitList`], with what its waiter wants to tell the server. It must not move while linked.
pub struct Node<T> {
    prev: Cell<*const Node<T>>,
    next: Cell<*const Node<T>>,
    linked: Cell<bool>,
    value: T,
}

impl<T> Node<T> {
    /// A node in no list.
    #[inline]
    pub const fn new(value: T) -> Node<T> {
        Node {
            prev: Cell::new(ptr::null()),
            next: Cell::new(ptr::null()),
            linked: Cell::new(false),
            value,
        }
    }

    /// Whether it is in a list. Under the list's lock only.
    #[inline]
    pub fn is_linked(&self) -> bool {
        self.linked.get()
    }
}

impl<T> Deref for Node<T> {
    type Target = T;

    #[inline]
    fn deref(&self) -> &T {
        &self.value
    }
}

impl<T> fmt::Debug for Node<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        // The links belong to whoever holds the lock, which a formatter does not.
        f.debug_struct("Node").finish_non_exhaustive()
    }
}

/// A doubly linked FIFO of [`Node`]s that live elsewhere. See the [module](self).
pub struct WaitList<T> {
    head: *const Node<T>,
    tail: *const Node<T>,
}

// SAFETY: a list is the right to touch the nodes in it (I3), which are shared between threads under one lock; what they
// carry is handed from thread to thread with them.
unsafe impl<T: Send> Send for WaitList<T> {}

impl<T> WaitList<T> {
    /// The empty list.
    pub const fn new() -> WaitList<T> {
        WaitList {
            head: ptr::null(),
            tail: ptr::null(),
        }
    }

    /// Whether nobody waits.
    #[inline]
    pub const fn is_empty(&self) -> bool {
        self.head.is_null()
    }

    /// Adds a node behind all others.
    ///
    /// # Safety
    /// The node is in no list, and stays where it is, alive, until it has left this one.
    #[inline]
    pub unsafe fn push_back(&mut self, node: &Node<T>) {
        debug_assert!(!node.linked.get());
        let this: *const Node<T> = node;
        node.linked.set(true);
        node.next.set(ptr::null());
        node.prev.set(self.tail);
        // SAFETY: linked nodes are alive (contract of the push that brought them).
        match unsafe { self.tail.as_ref() } {
            Some(tail) => tail.next.set(this),
            None => self.head = this,
        }
        self.tail = this;
    }

    /// Adds a node before all others.
    ///
    /// # Safety
    /// As for [`push_back`](Self::push_back).
    #[inline]
    pub unsafe fn push_front(&mut self, node: &Node<T>) {
        debug_assert!(!node.linked.get());
        let this: *const Node<T> = node;
        node.linked.set(true);
        node.prev.set(ptr::null());
        node.next.set(self.head);
        // SAFETY: linked nodes are alive.
        match unsafe { self.head.as_ref() } {
            Some(head) => head.prev.set(this),
            None => self.tail = this,
        }
        self.head = this;
    }

    /// Adds all of another list behind those of this one, in their order.
    pub fn append(&mut self, other: &mut WaitList<T>) {
        let WaitList { head, tail } = core::mem::take(other);
        // SAFETY: linked nodes are alive.
        let Some(first) = (unsafe { head.as_ref() }) else {
            return;
        };
        first.prev.set(self.tail);
        // SAFETY: as above.
        match unsafe { self.tail.as_ref() } {
            Some(last) => last.next.set(head),
            None => self.head = head,
        }
        self.tail = tail;
    }

    /// The one that waits longest.
    #[inline]
    pub fn front(&self) -> Option<&Node<T>> {
        // SAFETY: linked nodes are alive.
        unsafe { self.head.as_ref() }
    }

    /// Takes the one that waits longest.
    #[inline]
    pub fn pop_front(&mut self) -> Option<NonNull<Node<T>>> {
        let first = NonNull::new(self.head.cast_mut())?;
        // SAFETY: linked, so alive and in this list.
        unsafe { self.unlink(first.as_ref()) };
        Some(first)
    }

    /// Takes the one that came last.
    #[inline]
    pub fn pop_back(&mut self) -> Option<NonNull<Node<T>>> {
        let last = NonNull::new(self.tail.cast_mut())?;
        // SAFETY: linked, so alive and in this list.
        unsafe { self.unlink(last.as_ref()) };
        Some(last)
    }

    /// Takes a node out, wherever it is. False if it is in no list any more.
    ///
    /// # Safety
    /// It is in no other list.
    #[inline]
    pub unsafe fn remove(&mut self, node: &Node<T>) -> bool {
        if node.linked.get() {
            // SAFETY: linked, and in no other list (contract).
            unsafe { self.unlink(node) };
            return true;
        }
        false
    }

    /// The nodes from the head to the tail.
    pub fn iter(&self) -> impl Iterator<Item = &Node<T>> {
        // SAFETY: linked nodes are alive, and the list is borrowed, so they stay linked.
        core::iter::successors(self.front(), |node| unsafe { node.next.get().as_ref() })
    }

    /// # Safety
    /// The node is in this list.
    #[inline]
    unsafe fn unlink(&mut self, node: &Node<T>) {
        let (prev, next) = (node.prev.get(), node.next.get());
        // SAFETY: neighbours are linked (I1), so alive.
        match unsafe { prev.as_ref() } {
            Some(prev) => prev.next.set(next),
            None => self.head = next,
        }
        // SAFETY: as above.
        match unsafe { next.as_ref() } {
            Some(next) => next.prev.set(prev),
            None => self.tail = prev,
        }
        node.linked.set(false);
    }
}

impl<T> Default for WaitList<T> {
    fn default() -> WaitList<T> {
        WaitList::new()
    }
}

impl<T> fmt::Debug for WaitList<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("WaitList")
            .field("is_empty", &self.is_empty())
            .finish_non_exhaustive()
    }
}

#[cfg(all(test, loom))]
mod loom;

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use crate::rng::Dice;
    use std::collections::VecDeque;

    fn ids(list: &WaitList<usize>) -> Vec<usize> {
        list.iter().map(|node| **node).collect()
    }

    #[test]
    fn first_come_first_served() {
        let nodes: Vec<_> = (0..4).map(Node::new).collect();
        let mut list = WaitList::new();
        for node in &nodes {
            // SAFETY: in no list; `nodes` is not touched before the list is done with.
            unsafe { list.push_back(node) };
        }
        assert_eq!(ids(&list), [0, 1, 2, 3]);
        for want in 0..4 {
            assert_eq!(**list.front().unwrap(), want);
            // SAFETY: the nodes are alive.
            assert_eq!(unsafe { **list.pop_front().unwrap().as_ref() }, want);
        }
        assert!(list.is_empty() && list.pop_front().is_none() && list.pop_back().is_none());
    }

    #[test]
    fn one_list_behind_another() {
        for (here, there) in [(0, 0), (0, 2), (2, 0), (1, 1), (3, 2)] {
            let nodes: Vec<_> = (0..here + there).map(Node::new).collect();
            let (mut list, mut other) = (WaitList::new(), WaitList::new());
            for node in &nodes {
                let to = if **node < here { &mut list } else { &mut other };
                // SAFETY: in no list; `nodes` outlives both.
                unsafe { to.push_back(node) };
            }
            list.append(&mut other);
            assert!(other.is_empty());
            assert_eq!(ids(&list), (0..here + there).collect::<Vec<_>>());
            for want in (0..here + there).rev() {
                // SAFETY: the nodes are alive.
                assert_eq!(unsafe { **list.pop_back().unwrap().as_ref() }, want);
            }
            assert!(list.is_empty());
        }
    }

    #[test]
    fn agrees_with_a_model_under_random_use() {
        let nodes: Vec<_> = (0..16).map(Node::new).collect();
        let (mut list, mut model, mut dice) = (WaitList::new(), VecDeque::new(), Dice::new(1));
        for _ in 0..20_000 {
            let id = dice.below(16) as usize;
            let present = model.iter().position(|&x| x == id);
            assert_eq!(nodes[id].is_linked(), present.is_some());
            match dice.below(5) {
                0 => {
                    // SAFETY: the nodes outlive the list and are in no other.
                    let popped = list.pop_front().map(|n| unsafe { **n.as_ref() });
                    assert_eq!(popped, model.pop_front());
                }
                1 => {
                    // SAFETY: as above.
                    let popped = list.pop_back().map(|n| unsafe { **n.as_ref() });
                    assert_eq!(popped, model.pop_back());
                }
                2 if present.is_none() => {
                    // SAFETY: as above.
                    unsafe { list.push_back(&nodes[id]) };
                    model.push_back(id);
                }
                3 if present.is_none() => {
                    // SAFETY: as above.
                    unsafe { list.push_front(&nodes[id]) };
                    model.push_front(id);
                }
                _ => {
                    // SAFETY: as above.
                    assert_eq!(unsafe { list.remove(&nodes[id]) }, present.is_some());
                    present.map(|at| model.remove(at));
                }
            }
            assert!(ids(&list).into_iter().eq(model.iter().copied()));
        }
    }
}

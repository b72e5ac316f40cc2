//! Looking at a buffer with two ends without the locks that guard them: is there a value, is there room?
//!
//! # Words
//! `tail` and `head` count all values ever put in and taken out, each under the lock of its end. *promised*: places
//! given away that hold no value yet; *broken*: how often one of them became free again without a value having been put there.
//! Both are changed under both locks. *used*: `tail - head + promised`, never more than the capacity.
//!
//! # Why the order of the loads matters
//! Several words are read one after the other, while others change them. "Ready" is only a hint: who acts on it takes a lock and
//! finds out. "Not ready" is an answer (`try_recv`, `default`), so there must have been a moment in which it was true.
//!
//! *No value*: `head`, then `tail`; the same. `head` has not gone back since, and is never beyond `tail`: when `tail` was read,
//! both were the same. (The other way round, `head` may have caught up with a `tail` of long ago.)
//!
//! *No room*: `tail`, then `promised`, then `head`; together the capacity. When `promised` was read, `tail` was no less and
//! `head` no more, so no less was used: it was full then, and nothing was taken between that and the load of `head`. (With
//! `promised` before `tail`, a promise that is kept in between counts twice; with `head` first, what was taken counts still.)
//! A number below zero means that values came and went: look under the lock.
//!
//! # Stamps
//! A direction that is not ready becomes so only by moving its stamp. For values that is `tail`. For room it is `head` and
//! `broken`, which is read before the others: if two looks find no room and the same stamp, there was none from the moment of the
//! first to the beginning of the second.
//!
//! # Orderings
//! Whoever changes a word has seen the others as far as its change depends on them, and stores it with Release; the loads are Acquire: a look
//! that sees a change sees all that went before it. Two changes in one step have their order: what becomes free, then what is
//! used (`head`, then `tail` or `promised`; `promised` less, then `tail` more), so that no look counts a place twice; and
//! `promised` less, then `broken`, so that a look that has the new stamp has the new room.
//!
//! # Context
//! Never blocks. Tests: below, and `RUSTFLAGS="--cfg loom" cargo test -p runnext-core --release --lib loom`.

use crate::shim::{
    AtomicBool, AtomicUsize,
    Ordering::{Acquire, Relaxed},
};

/// A look at one direction of a channel without its lock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Probe {
    /// Differs whenever the direction has become ready in between, unless by a close, which stays.
    pub stamp: usize,
    /// Whether it can be done at once, as far as one can see from here. If not, it could not be at some moment of the look.
    pub ready: bool,
}

impl Probe {
    /// A closed channel is ready, too.
    #[inline]
    pub(crate) fn or_closed(self, closed: &AtomicBool) -> Probe {
        Probe {
            ready: self.ready || closed.load(Acquire),
            ..self
        }
    }
}

/// Whether there is a value.
#[inline]
pub fn value(head: &AtomicUsize, tail: &AtomicUsize) -> Probe {
    let head = head.load(Acquire);
    let tail = tail.load(Acquire);
    Probe {
        stamp: tail,
        ready: tail != head,
    }
}

/// Whether there is a value, for who keeps others from taking it and has seen `tail` go so far. This is an answer either way, and looks at the
/// other end only where it must. Under the receivers' lock.
#[inline]
pub(crate) fn value_since(head: &AtomicUsize, tail: &AtomicUsize, tail_seen: &mut usize) -> bool {
    let head = head.load(Relaxed);
    if head != *tail_seen {
        return true;
    }
    *tail_seen = tail.load(Acquire);
    head != *tail_seen
}

/// Whether there is room for one more.
#[inline]
pub fn room(
    tail: &AtomicUsize,
    promised: &AtomicUsize,
    broken: &AtomicUsize,
    head: &AtomicUsize,
    capacity: usize,
) -> Probe {
    let broken = broken.load(Acquire);
    let tail = tail.load(Acquire);
    let promised = promised.load(Acquire);
    let head = head.load(Acquire);
    let used = tail.wrapping_add(promised).wrapping_sub(head);
    Probe {
        stamp: head.wrapping_add(broken),
        ready: used < capacity || (used as isize) < 0,
    }
}

/// How many values there are, at one moment.
#[inline]
pub fn len(head: &AtomicUsize, tail: &AtomicUsize) -> usize {
    let mut before = tail.load(Acquire);
    loop {
        let head = head.load(Acquire);
        // It only grows: the same again means that it was that when `head` was read.
        let after = tail.load(Acquire);
        if before == after {
            return after.wrapping_sub(head);
        }
        before = after;
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    fn at(n: usize) -> AtomicUsize {
        AtomicUsize::new(n)
    }

    #[test]
    fn counts_may_wrap() {
        let (head, tail) = (at(usize::MAX), at(usize::MAX));
        assert!(!value(&head, &tail).ready);
        let tail = at(1);
        assert!(value(&head, &tail).ready);
        assert_eq!(len(&head, &tail), 2);
        assert!(room(&tail, &at(0), &at(0), &head, 3).ready);
        assert!(!room(&tail, &at(1), &at(0), &head, 3).ready);
        assert!(!room(&tail, &at(0), &at(0), &head, 2).ready);
        assert!(room(&tail, &at(0), &at(0), &head, usize::MAX).ready);
    }

    #[test]
    fn what_came_and_went_during_the_look_is_no_reason_to_give_up() {
        // `tail` is of long ago.
        assert!(room(&at(3), &at(0), &at(0), &at(5), 1).ready);
    }

    #[test]
    fn stamps_move_with_what_makes_room() {
        let stamp = |broken, head| room(&at(1), &at(0), &at(broken), &at(head), 1).stamp;
        assert_ne!(stamp(0, 0), stamp(1, 0));
        assert_ne!(stamp(0, 0), stamp(0, 1));
    }
}

#[cfg(all(test, loom))]
mod loom {
    //! A buffer's counters changed as a channel does, and looked at meanwhile, in every interleaving: what was never true is not seen.
    use ::loom::sync::atomic::Ordering::*;
    use ::loom::sync::{Arc, Mutex};
    use ::loom::{model, thread};

    use super::*;

    struct Buffer {
        senders: Mutex<()>,
        receivers: Mutex<()>,
        tail: AtomicUsize,
        promised: AtomicUsize,
        broken: AtomicUsize,
        head: AtomicUsize,
        capacity: usize,
    }

    impl Buffer {
        fn new(capacity: usize, values: usize, promised: usize) -> Buffer {
            Buffer {
                senders: Mutex::new(()),
                receivers: Mutex::new(()),
                tail: AtomicUsize::new(values),
                promised: AtomicUsize::new(promised),
                broken: AtomicUsize::new(0),
                head: AtomicUsize::new(0),
                capacity,
            }
        }

        fn value(&self) -> Probe {
            value(&self.head, &self.tail)
        }

        fn room(&self) -> Probe {
            room(
                &self.tail,
                &self.promised,
                &self.broken,
                &self.head,
                self.capacity,
            )
        }

        fn add(word: &AtomicUsize, n: isize) {
            let now = word.load(Relaxed);
            word.store(now.wrapping_add_signed(n), Release);
        }

        fn put(&self) {
            let _s = self.senders.lock().unwrap();
            assert!(self.tail.load(Relaxed) - self.head.load(Acquire) < self.capacity);
            Self::add(&self.tail, 1);
        }

        fn get(&self) {
            let _r = self.receivers.lock().unwrap();
            assert!(self.head.load(Relaxed) < self.tail.load(Acquire));
            Self::add(&self.head, 1);
        }

        fn get_and_promise(&self) {
            let _r = self.receivers.lock().unwrap();
            let _s = self.senders.lock().unwrap();
            Self::add(&self.head, 1);
            Self::add(&self.promised, 1);
        }

        fn promise(&self) {
            let _r = self.receivers.lock().unwrap();
            let _s = self.senders.lock().unwrap();
            Self::add(&self.promised, 1);
        }

        fn keep(&self) {
            let _r = self.receivers.lock().unwrap();
            let _s = self.senders.lock().unwrap();
            Self::add(&self.promised, -1);
            Self::add(&self.tail, 1);
        }

        fn give_up(&self) {
            let _r = self.receivers.lock().unwrap();
            let _s = self.senders.lock().unwrap();
            Self::add(&self.promised, -1);
            Self::add(&self.broken, 1);
        }
    }

    /// Both at once, on these buffers.
    fn check<const N: usize>(
        buffers: fn() -> [Buffer; N],
        change: fn(&[Buffer; N]),
        look: fn(&[Buffer; N]),
    ) {
        model(move || {
            let shared = Arc::new(buffers());
            let other = Arc::clone(&shared);
            // Not the other way round: a look that comes first is not brought forward to a store whose thread has loaded the word itself.
            let looking = thread::spawn(move || look(&other));
            change(&shared);
            looking.join().unwrap();
        });
    }

    #[test]
    fn loom_a_buffer_that_always_has_a_value_is_never_seen_empty() {
        let change = |[b]: &[Buffer; 1]| {
            b.get();
            b.put();
            b.get();
        };
        let look = |[b]: &[Buffer; 1]| {
            assert!(b.value().ready);
            assert!(len(&b.head, &b.tail) > 0);
        };
        check(|| [Buffer::new(2, 2, 0)], change, look);
    }

    #[test]
    fn loom_a_buffer_that_always_has_room_is_never_seen_full() {
        let change = |[b]: &[Buffer; 1]| {
            b.put();
            b.get();
            b.put();
        };
        check(
            || [Buffer::new(2, 0, 0)],
            change,
            |[b]| assert!(b.room().ready),
        );
    }

    #[test]
    fn loom_a_promise_and_its_value_do_not_count_twice() {
        let change = |[b]: &[Buffer; 1]| {
            b.get_and_promise();
            b.keep();
            b.get_and_promise();
        };
        check(
            || [Buffer::new(2, 1, 0)],
            change,
            |[b]| assert!(b.room().ready),
        );
    }

    /// One of the two always has room: two looks at both that find none have not the same stamps.
    #[test]
    fn loom_two_looks_with_the_same_stamps_saw_one_moment() {
        let change = |[a, b]: &[Buffer; 2]| {
            a.give_up();
            b.promise();
            b.give_up();
            a.promise();
            a.give_up();
            b.promise();
        };
        let look = |both: &[Buffer; 2]| {
            let first = both.each_ref().map(Buffer::room);
            let second = both.each_ref().map(Buffer::room);
            let none = first.iter().all(|probe| !probe.ready);
            assert!(!none || first != second);
        };
        let buffers = || [Buffer::new(1, 0, 1), Buffer::new(1, 0, 0)];
        check(buffers, change, look);
    }
}

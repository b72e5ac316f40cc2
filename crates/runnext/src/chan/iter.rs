//! Receiving by iteration.

use std::fmt;
use std::iter::FusedIterator;

use super::Receiver;

/// Receives until the channel is empty and closed; see [`Receiver::iter`].
///
/// ```
/// let (tx, rx) = runnext::chan::unbounded();
/// std::thread::spawn(move || [2, 3, 4].map(|n| tx.send(n).unwrap()));
/// let mut product = 1;
/// for n in &rx {
///     product *= n;
/// }
/// assert_eq!(product, 24);
/// assert!(rx.is_closed()); // it was borrowed only
/// ```
pub struct Iter<'a, T>(&'a Receiver<T>);

/// Receives the values that are there now; see [`Receiver::try_iter`].
///
/// ```
/// let (tx, rx) = runnext::chan::unbounded();
/// tx.send('a').unwrap();
/// let mut there = rx.try_iter();
/// assert_eq!((there.next(), there.next()), (Some('a'), None));
/// tx.send('b').unwrap();
/// assert_eq!(there.next(), Some('b')); // `None` was for that moment only
/// ```
pub struct TryIter<'a, T>(&'a Receiver<T>);

/// Receives until the channel is empty and closed, and owns its receiver.
///
/// ```
/// use runnext::chan::{self, IntoIter};
///
/// fn readings() -> IntoIter<u32> {
///     let (tx, rx) = chan::bounded(0);
///     runnext::go(move || [17, 23, 19].map(|degrees| tx.send(degrees).unwrap()));
///     rx.into_iter()
/// }
///
/// #[runnext::main]
/// fn main() {
///     assert_eq!(readings().max(), Some(23));
/// }
/// ```
pub struct IntoIter<T>(Receiver<T>);

/// Derived, it would ask for values that can be shown.
macro_rules! debug {
    ($name:literal, $iter:ty) => {
        impl<T> fmt::Debug for $iter {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_tuple($name).field(&self.0).finish()
            }
        }
    };
}

debug!("Iter", Iter<'_, T>);
debug!("TryIter", TryIter<'_, T>);
debug!("IntoIter", IntoIter<T>);

impl<T> Receiver<T> {
    /// Receives until the channel is empty and closed.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::bounded(3);
    /// (1..=3).for_each(|i| tx.send(i).unwrap());
    /// drop(tx);
    /// assert_eq!(rx.iter().collect::<Vec<_>>(), [1, 2, 3]);
    /// ```
    ///
    /// # Blocks
    /// `next` blocks the goroutine until there is a value. On a plain thread, the thread.
    pub fn iter(&self) -> Iter<'_, T> {
        Iter(self)
    }

    /// Receives the values that are there now, and those that arrive meanwhile.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::unbounded();
    /// tx.send(1).unwrap();
    /// tx.send(2).unwrap();
    /// assert_eq!(rx.try_iter().sum::<i32>(), 3);
    /// ```
    ///
    /// # Blocks
    /// As [`try_recv`](Self::try_recv): hardly ever.
    pub fn try_iter(&self) -> TryIter<'_, T> {
        TryIter(self)
    }
}

impl<T> Iterator for Iter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> FusedIterator for Iter<'_, T> {}

impl<T> Iterator for TryIter<'_, T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.try_recv().ok()
    }
}

impl<T> Iterator for IntoIter<T> {
    type Item = T;

    fn next(&mut self) -> Option<T> {
        self.0.recv().ok()
    }
}

impl<T> FusedIterator for IntoIter<T> {}

impl<'a, T> IntoIterator for &'a Receiver<T> {
    type Item = T;
    type IntoIter = Iter<'a, T>;

    fn into_iter(self) -> Iter<'a, T> {
        self.iter()
    }
}

impl<T> IntoIterator for Receiver<T> {
    type Item = T;
    type IntoIter = IntoIter<T>;

    fn into_iter(self) -> IntoIter<T> {
        IntoIter(self)
    }
}

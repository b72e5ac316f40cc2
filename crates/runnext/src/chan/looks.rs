//! What both ends of a channel can tell about it, without changing anything: a moment's view.

use std::fmt;

use super::ends::{Receiver, Sender};
use runnext_core::flavor::Flavor;

use super::each;

/// What both ends can tell.
macro_rules! looks {
    ($end:ident, $of:ident => $chan:expr) => {
        impl<T> $end<T> {
            /// How many values are buffered. A moment's view.
            ///
            /// ```
            /// let (tx, rx) = runnext::chan::bounded(2);
            /// tx.send('a').unwrap();
            /// assert_eq!((tx.len(), rx.len(), rx.capacity()), (1, 1, Some(2)));
            /// assert!(!rx.is_empty() && !rx.is_full() && !rx.is_closed());
            /// ```
            pub fn len(&self) -> usize {
                let $of = self;
                $chan.map_or(0, |chan| each!(chan, c => Flavor::<T, _>::count(c)))
            }

            /// Whether nothing is buffered: always so on a rendezvous channel.
            ///
            /// ```
            /// let (tx, rx) = runnext::chan::bounded(1);
            /// assert!(tx.is_empty() && rx.is_empty());
            /// tx.send('a').unwrap();
            /// assert!(!tx.is_empty() && !rx.is_empty());
            /// ```
            pub fn is_empty(&self) -> bool {
                self.len() == 0
            }

            /// Whether there is no room: always so on a rendezvous channel. Places kept for a [`Select`](super::Select)'s send are taken.
            ///
            /// ```
            /// let (tx, rx) = runnext::chan::bounded(1);
            /// assert!(!tx.is_full());
            /// tx.send(1).unwrap();
            /// assert!(tx.is_full() && rx.is_full());
            /// ```
            pub fn is_full(&self) -> bool {
                let $of = self;
                $chan.is_none_or(|chan| each!(chan, c => Flavor::<T, _>::is_full(c)))
            }

            /// How many values can be buffered; `None` if that has no limit.
            ///
            /// ```
            /// use runnext::chan;
            /// let (tx, rx) = chan::bounded::<u8>(5);
            /// assert_eq!((tx.capacity(), rx.capacity()), (Some(5), Some(5)));
            /// let (tx, rx) = chan::unbounded::<u8>();
            /// assert_eq!((tx.capacity(), rx.capacity()), (None, None));
            /// ```
            pub fn capacity(&self) -> Option<usize> {
                let $of = self;
                match $chan {
                    Some(chan) => each!(chan, c => Flavor::<T, _>::capacity(c)),
                    None => Some(0),
                }
            }

            /// Whether the channel is closed. What is buffered can still be received.
            ///
            /// ```
            /// let (tx, rx) = runnext::chan::bounded(1);
            /// tx.send("last words").unwrap();
            /// tx.close();
            /// assert!(tx.is_closed() && rx.is_closed());
            /// assert_eq!(rx.recv(), Ok("last words"));
            /// ```
            pub fn is_closed(&self) -> bool {
                let $of = self;
                $chan.is_some_and(|chan| each!(chan, c => Flavor::<T, _>::is_closed(c)))
            }
        }

        impl<T> fmt::Debug for $end<T> {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.debug_struct(stringify!($end))
                    .field("len", &self.len())
                    .field("capacity", &self.capacity())
                    .field("closed", &self.is_closed())
                    .finish()
            }
        }
    };
}

looks!(Sender, end => Some(end.chan()));
looks!(Receiver, end => end.chan());

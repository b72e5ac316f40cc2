//! What can go wrong at a channel, in the names and shapes of crossbeam-channel.
//!
//! "Disconnected" means closed: by `close`, or because the last end on the other side is gone. Errors of sending carry the value
//! that was not sent.

use std::error::Error;
use std::fmt;

/// The value could not be sent, because the channel is closed. It is inside.
///
/// ```
/// use runnext::chan::{self, SendError};
/// let (tx, rx) = chan::bounded(1);
/// drop(rx);
/// assert_eq!(tx.send(7), Err(SendError(7)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct SendError<T>(pub T);

/// Why [`try_send`](super::Sender::try_send) did not send. The value is inside.
///
/// ```
/// use runnext::chan::{self, TrySendError};
/// let (tx, _rx) = chan::bounded(1);
/// tx.send(1).unwrap();
/// assert_eq!(tx.try_send(2), Err(TrySendError::Full(2)));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum TrySendError<T> {
    /// No room; on a rendezvous channel, nobody waits to receive.
    Full(T),
    /// The channel is closed.
    Disconnected(T),
}

/// Why [`send_timeout`](super::Sender::send_timeout) did not send. The value is inside.
///
/// ```
/// use runnext::chan::{self, SendTimeoutError};
/// use std::time::Duration;
///
/// let (tx, rx) = chan::bounded(0);
/// let patience = Duration::from_millis(1);
/// assert_eq!(tx.send_timeout("a", patience), Err(SendTimeoutError::Timeout("a")));
/// drop(rx);
/// assert_eq!(tx.send_timeout("b", patience), Err(SendTimeoutError::Disconnected("b")));
/// ```
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum SendTimeoutError<T> {
    /// Still no room when the time was over.
    Timeout(T),
    /// The channel is closed.
    Disconnected(T),
}

/// Nothing can be received: the channel is empty and closed.
///
/// ```
/// use runnext::chan::{self, Receiver, RecvError};
///
/// fn two(rx: &Receiver<u32>) -> Result<u32, RecvError> {
///     Ok(rx.recv()? + rx.recv()?)
/// }
///
/// let (tx, rx) = chan::unbounded();
/// [1, 2, 3].map(|n| tx.send(n).unwrap());
/// drop(tx);
/// assert_eq!(two(&rx), Ok(3));
/// assert_eq!(two(&rx), Err(RecvError)); // only one was left
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RecvError;

/// Why [`try_recv`](super::Receiver::try_recv) received nothing.
///
/// ```
/// use runnext::chan::{self, TryRecvError};
/// let (tx, rx) = chan::bounded::<u8>(1);
/// assert_eq!(rx.try_recv(), Err(TryRecvError::Empty)); // there may be one later
/// drop(tx);
/// assert_eq!(rx.try_recv(), Err(TryRecvError::Disconnected)); // there will be none
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TryRecvError {
    /// No value now; on a rendezvous channel, nobody waits to send.
    Empty,
    /// The channel is empty and closed.
    Disconnected,
}

/// Why [`recv_timeout`](super::Receiver::recv_timeout) received nothing.
///
/// ```
/// use runnext::chan::{self, RecvTimeoutError};
/// use std::time::Duration;
///
/// let (tx, rx) = chan::bounded::<u8>(0);
/// let look = || match rx.recv_timeout(Duration::from_millis(1)) {
///     Ok(_) => "a value",
///     Err(RecvTimeoutError::Timeout) => "not yet",
///     Err(RecvTimeoutError::Disconnected) => "nobody is left to send",
/// };
/// assert_eq!(look(), "not yet");
/// drop(tx);
/// assert_eq!(look(), "nobody is left to send");
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecvTimeoutError {
    /// Still no value when the time was over.
    Timeout,
    /// The channel is empty and closed.
    Disconnected,
}

/// No operation of a [`Select`](super::Select) was ready.
///
/// ```
/// use runnext::chan::{self, Receiver, Select, TrySelectError};
///
/// fn poll(rx: &Receiver<u8>) -> Result<u8, Box<dyn std::error::Error>> {
///     let mut select = Select::new();
///     select.recv(rx);
///     Ok(select.try_select()?.recv(rx)?)
/// }
///
/// assert!(poll(&chan::never()).unwrap_err().is::<TrySelectError>());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TrySelectError;

/// No operation of a [`Select`](super::Select) became ready in time.
///
/// ```
/// use runnext::chan::{self, Select, SelectTimeoutError};
/// use std::time::Duration;
///
/// let quiet = [chan::never::<u8>(), chan::never()];
/// let mut select = Select::new();
/// for rx in &quiet {
///     select.recv(rx);
/// }
/// let error = select.select_timeout(Duration::from_millis(1)).unwrap_err();
/// assert_eq!(error, SelectTimeoutError);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SelectTimeoutError;

const CLOSED_SEND: &str = "sending on a closed channel";
const CLOSED_RECV: &str = "receiving on an empty and closed channel";

impl<T> SendError<T> {
    /// The value that was not sent.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::bounded(1);
    /// drop(rx);
    /// let letter = String::from("return to sender");
    /// assert_eq!(tx.send(letter).unwrap_err().into_inner(), "return to sender");
    /// ```
    pub fn into_inner(self) -> T {
        self.0
    }
}

impl<T> TrySendError<T> {
    /// The value that was not sent.
    ///
    /// ```
    /// let (tx, _rx) = runnext::chan::bounded(1);
    /// let mut left_over = Vec::new();
    /// for job in 1..=3 {
    ///     if let Err(error) = tx.try_send(job) {
    ///         left_over.push(error.into_inner());
    ///     }
    /// }
    /// assert_eq!(left_over, [2, 3]);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            TrySendError::Full(value) | TrySendError::Disconnected(value) => value,
        }
    }

    /// Whether there was no room.
    ///
    /// ```
    /// let (tx, _rx) = runnext::chan::bounded(0);
    /// assert!(tx.try_send(1).unwrap_err().is_full()); // nobody waits to receive
    /// ```
    pub fn is_full(&self) -> bool {
        matches!(self, TrySendError::Full(_))
    }

    /// Whether the channel is closed.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::unbounded();
    /// drop(rx);
    /// assert!(tx.try_send(1).unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TrySendError::Disconnected(_))
    }
}

impl<T> SendTimeoutError<T> {
    /// The value that was not sent.
    ///
    /// ```
    /// let (tx, _rx) = runnext::chan::bounded(0);
    /// let error = tx.send_timeout(vec![1, 2], std::time::Duration::from_millis(1)).unwrap_err();
    /// assert_eq!(error.into_inner(), [1, 2]);
    /// ```
    pub fn into_inner(self) -> T {
        match self {
            SendTimeoutError::Timeout(value) | SendTimeoutError::Disconnected(value) => value,
        }
    }

    /// Whether the time was over.
    ///
    /// ```
    /// let (tx, _rx) = runnext::chan::bounded(0);
    /// let error = tx.send_deadline('x', runnext::time::Instant::now()).unwrap_err();
    /// assert!(error.is_timeout() && !error.is_disconnected());
    /// ```
    pub fn is_timeout(&self) -> bool {
        matches!(self, SendTimeoutError::Timeout(_))
    }

    /// Whether the channel is closed.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::bounded(0);
    /// std::thread::spawn(move || drop(rx));
    /// let error = tx.send_timeout(1, std::time::Duration::MAX).unwrap_err();
    /// assert!(error.is_disconnected()); // the close ended the wait
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, SendTimeoutError::Disconnected(_))
    }
}

impl TryRecvError {
    /// Whether there was no value.
    ///
    /// ```
    /// let (_tx, rx) = runnext::chan::unbounded::<u8>();
    /// assert!(rx.try_recv().unwrap_err().is_empty());
    /// ```
    pub fn is_empty(&self) -> bool {
        matches!(self, TryRecvError::Empty)
    }

    /// Whether the channel is closed.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::unbounded();
    /// tx.send(1).unwrap();
    /// drop(tx);
    /// assert_eq!(rx.try_recv(), Ok(1)); // what is buffered comes first
    /// assert!(rx.try_recv().unwrap_err().is_disconnected());
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, TryRecvError::Disconnected)
    }
}

impl RecvTimeoutError {
    /// Whether the time was over.
    ///
    /// ```
    /// let rx = runnext::chan::never::<u8>();
    /// let error = rx.recv_timeout(std::time::Duration::from_millis(1)).unwrap_err();
    /// assert!(error.is_timeout());
    /// ```
    pub fn is_timeout(&self) -> bool {
        matches!(self, RecvTimeoutError::Timeout)
    }

    /// Whether the channel is closed.
    ///
    /// ```
    /// let (tx, rx) = runnext::chan::bounded::<u8>(0);
    /// tx.close();
    /// let error = rx.recv_timeout(std::time::Duration::MAX).unwrap_err();
    /// assert!(error.is_disconnected()); // at once
    /// ```
    pub fn is_disconnected(&self) -> bool {
        matches!(self, RecvTimeoutError::Disconnected)
    }
}

// The values need not be `Debug` for `unwrap` to work.
impl<T> fmt::Debug for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SendError(..)")
    }
}

impl<T> fmt::Debug for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "Full(..)",
            TrySendError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Debug for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "Timeout(..)",
            SendTimeoutError::Disconnected(_) => "Disconnected(..)",
        })
    }
}

impl<T> fmt::Display for SendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLOSED_SEND)
    }
}

impl<T> fmt::Display for TrySendError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TrySendError::Full(_) => "sending on a full channel",
            TrySendError::Disconnected(_) => CLOSED_SEND,
        })
    }
}

impl<T> fmt::Display for SendTimeoutError<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            SendTimeoutError::Timeout(_) => "the time was over before there was room to send",
            SendTimeoutError::Disconnected(_) => CLOSED_SEND,
        })
    }
}

impl fmt::Display for RecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(CLOSED_RECV)
    }
}

impl fmt::Display for TryRecvError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            TryRecvError::Empty => "receiving on an empty channel",
            TryRecvError::Disconnected => CLOSED_RECV,
        })
    }
}

impl fmt::Display for RecvTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            RecvTimeoutError::Timeout => "the time was over before there was a value to receive",
            RecvTimeoutError::Disconnected => CLOSED_RECV,
        })
    }
}

impl fmt::Display for TrySelectError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("no operation of the select is ready")
    }
}

impl fmt::Display for SelectTimeoutError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the time was over before an operation of the select was ready")
    }
}

impl<T: Send> Error for SendError<T> {}
impl<T: Send> Error for TrySendError<T> {}
impl<T: Send> Error for SendTimeoutError<T> {}
impl Error for RecvError {}
impl Error for TryRecvError {}
impl Error for RecvTimeoutError {}
impl Error for TrySelectError {}
impl Error for SelectTimeoutError {}

impl<T> From<SendError<T>> for TrySendError<T> {
    fn from(error: SendError<T>) -> TrySendError<T> {
        TrySendError::Disconnected(error.0)
    }
}

impl<T> From<SendError<T>> for SendTimeoutError<T> {
    fn from(error: SendError<T>) -> SendTimeoutError<T> {
        SendTimeoutError::Disconnected(error.0)
    }
}

impl From<RecvError> for TryRecvError {
    fn from(_: RecvError) -> TryRecvError {
        TryRecvError::Disconnected
    }
}

impl From<RecvError> for RecvTimeoutError {
    fn from(_: RecvError) -> RecvTimeoutError {
        RecvTimeoutError::Disconnected
    }
}

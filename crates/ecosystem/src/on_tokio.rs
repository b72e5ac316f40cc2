//! Futures that were made for tokio: its timers, its sockets, and whatever is built on them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use tokio::runtime::Handle;

/// Polls a future inside a tokio runtime, which has threads of its own for timers and sockets. The future itself runs where it is
/// polled: in a goroutine.
///
/// The handle is entered for each poll and left at its end. Entering is a thread-local, so it must not last any longer: between two
/// polls the goroutine may move to another thread.
///
/// # Example
/// ```
/// use ecosystem::on_tokio::OnTokio;
/// use std::time::Duration;
///
/// #[runnext::main]
/// fn main() {
///     let tokio = tokio::runtime::Runtime::new().unwrap();
///     let nap = async { tokio::time::sleep(Duration::from_millis(1)).await };
///     runnext::block_on(OnTokio::new(tokio.handle().clone(), nap));
/// }
/// ```
#[derive(Debug)]
pub struct OnTokio<F> {
    handle: Handle,
    future: Pin<Box<F>>,
}

impl<F: Future> OnTokio<F> {
    /// Wraps a future.
    pub fn new(handle: Handle, future: F) -> OnTokio<F> {
        let future = Box::pin(future);
        OnTokio { handle, future }
    }
}

impl<F: Future> Future for OnTokio<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = this.handle.enter();
        // In debug builds: says so if the poll parks and comes back on another thread.
        let _held = runnext::hazard::hold("a tokio handle that was entered");
        this.future.as_mut().poll(cx)
    }
}

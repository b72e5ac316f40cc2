//! Futures that were made for tokio: its timers, its sockets, and whatever is built on them.

use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};

use runnext::hazard::hold;
use tokio::runtime::Handle;

/// Polls a future inside a tokio runtime, which has threads of its own for timers and sockets. The future itself runs where it is
/// polled: in a goroutine.
///
/// The handle is entered for each poll and left at its end, and again where the future is dropped: what it holds may spawn as it ends. Entering is a thread-local, so it must not last any longer: between two
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
    /// Until it is dropped.
    future: Option<Pin<Box<F>>>,
}

impl<F: Future> OnTokio<F> {
    /// Wraps a future.
    pub fn new(handle: Handle, future: F) -> OnTokio<F> {
        let future = Some(Box::pin(future));
        OnTokio { handle, future }
    }
}

/// In debug builds this is said if the goroutine parks inside and comes back on another thread.
const HELD: &str = "a tokio handle that was entered";

impl<F: Future> Future for OnTokio<F> {
    type Output = F::Output;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<F::Output> {
        let this = &mut *self;
        let _entered = this.handle.enter();
        let _held = hold(HELD);
        let future = this.future.as_mut();
        future.expect("only a drop takes it").as_mut().poll(cx)
    }
}

impl<F> Drop for OnTokio<F> {
    fn drop(&mut self) {
        let _entered = self.handle.enter();
        let _held = hold(HELD);
        self.future = None;
    }
}

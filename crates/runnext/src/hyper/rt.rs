//! `Executor` and `Timer`.

use std::future::Future;
use std::pin::Pin;
use std::time::{Duration, Instant};

use ::hyper::rt::{self, Sleep};

use crate::future::{self, spawn};

/// Runs what hyper wants to run beside a connection, as goroutines without a stack.
///
/// # Panics
/// When hyper uses it outside a runtime.
#[derive(Clone, Copy, Debug, Default)]
pub struct Executor;

impl Executor {
    /// The same as `default`.
    pub fn new() -> Executor {
        Executor
    }
}

impl<F> rt::Executor<F> for Executor
where
    F: Future + Send + 'static,
    F::Output: Send + 'static,
{
    fn execute(&self, fut: F) {
        drop(spawn(fut));
    }
}

/// The runtime's clock, for hyper's time-outs.
#[derive(Clone, Copy, Debug, Default)]
pub struct Timer;

impl Timer {
    /// The same as `default`.
    pub fn new() -> Timer {
        Timer
    }
}

impl Sleep for future::Sleep {}

impl rt::Timer for Timer {
    fn sleep(&self, duration: Duration) -> Pin<Box<dyn Sleep>> {
        Box::pin(future::sleep(duration))
    }

    fn sleep_until(&self, deadline: Instant) -> Pin<Box<dyn Sleep>> {
        Box::pin(future::sleep_until(deadline.into()))
    }

    fn reset(&self, sleep: &mut Pin<Box<dyn Sleep>>, new_deadline: Instant) {
        match sleep.as_mut().downcast_mut_pin::<future::Sleep>() {
            Some(ours) => ours.get_mut().reset(new_deadline.into()),
            None => *sleep = self.sleep_until(new_deadline),
        }
    }
}

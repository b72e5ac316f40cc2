//! `sleep` as a future.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use crate::instant::Instant;
use crate::m;
use crate::sched::timers::{Alarm, NEVER};

/// Waits for `d` at least; the form of [`time::sleep`](crate::time::sleep) that is awaited. The time runs from this call on.
///
/// # Example
/// ```
/// use std::time::{Duration, Instant};
///
/// #[runnext::main]
/// fn main() {
///     let start = Instant::now();
///     let sleepers: Vec<_> = (0..1000)
///         .map(|_| runnext::spawn(runnext::future::sleep(Duration::from_millis(10))))
///         .collect();
///     for sleeper in sleepers {
///         sleeper.join().unwrap();
///     }
///     assert!(start.elapsed() >= Duration::from_millis(10)); // and far less than 1000 times that
/// }
/// ```
pub fn sleep(d: Duration) -> Sleep {
    sleep_until(Instant::after(d))
}

/// Waits until `t`; the form of [`time::sleep_until`](crate::time::sleep_until) that is awaited.
pub fn sleep_until(t: Instant) -> Sleep {
    Sleep {
        deadline: t,
        alarm: None,
    }
}

/// What [`sleep`] and [`sleep_until`] return. It is done at its deadline, never before.
///
/// # Panics
/// When it has to wait and is polled outside a runtime: there is nobody to wake it.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    /// From the first poll on.
    alarm: Option<Alarm>,
}

impl Sleep {
    /// When it is done.
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it is done.
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Sets another deadline, whether or not the old one has passed. It must be polled again to know whom to wake.
    pub fn reset(&mut self, deadline: Instant) {
        self.alarm = None;
        self.deadline = deadline;
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if self.is_elapsed() {
            self.alarm = None;
            return Poll::Ready(());
        }
        if self.deadline.as_ns() == NEVER {
            return Poll::Pending;
        }
        if let Some(alarm) = &self.alarm
            && alarm.set_waker(cx.waker())
        {
            return Poll::Pending;
        }
        let Some(m) = m::current() else {
            panic!(
                "runnext::future::sleep polled outside a runtime, so there is nobody to wake it: poll it in a goroutine \
                 (under #[runnext::main], #[runnext::test] or Runtime::run)"
            )
        };
        let alarm = Alarm::new(m, self.deadline.as_ns(), cx.waker());
        self.alarm = Some(alarm);
        Poll::Pending
    }
}

impl fmt::Debug for Sleep {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Sleep")
            .field("deadline", &self.deadline)
            .finish_non_exhaustive()
    }
}

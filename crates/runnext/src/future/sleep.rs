//! `sleep` as a future.
//!
//! Its alarm is in the runtime whose goroutine polled it last, or with the reactor if that was a plain thread. One that moves between them takes it along:
//! a runtime it has left may end, and its timers with it. The one it is in may end too: then it is woken before its time, and sees to that.

use std::fmt;
use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::Ordering::Relaxed;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use crate::instant::Instant;
use crate::m::{self, M};
use crate::sched::netpoll::ReactorAlarm;
use crate::sched::timers::{self, NEVER};

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
///
/// # Example
/// ```
/// use std::time::Duration;
/// use runnext::{block_on, future, time::Instant};
///
/// #[runnext::main]
/// fn main() {
///     let start = Instant::now();
///     let mut next = start;
///     block_on(async {
///         for _ in 0..3 {
///             next += Duration::from_millis(1); // from the last one's time, not from now: nothing adds up
///             future::sleep_until(next).await;
///         }
///     });
///     assert!(start.elapsed() >= Duration::from_millis(3));
/// }
/// ```
pub fn sleep_until(t: Instant) -> Sleep {
    Sleep {
        deadline: t,
        alarm: None,
    }
}

/// What [`sleep`] and [`sleep_until`] return. It is done at its deadline, never before.
///
/// It may be polled anywhere: in a goroutine, by [`block_on`](crate::block_on) on a plain thread, and by other executors.
///
/// # Example
/// ```
/// use std::time::Duration;
///
/// // No runtime.
/// runnext::block_on(runnext::future::sleep(Duration::from_millis(1)));
/// ```
///
/// # Panics
/// When it has to wait and is polled on a plain thread, and the thread that is to wake it cannot be started: the process is
/// out of threads, descriptors or memory.
#[must_use = "futures do nothing unless awaited"]
pub struct Sleep {
    deadline: Instant,
    /// From the first poll on; it may have been stopped.
    alarm: Option<Alarm>,
}

impl Sleep {
    /// When it is done.
    ///
    /// # Example
    /// ```
    /// use runnext::{future, time::Instant};
    ///
    /// let noon = Instant::now() + std::time::Duration::from_secs(3600);
    /// assert_eq!(future::sleep_until(noon).deadline(), noon);
    /// ```
    pub fn deadline(&self) -> Instant {
        self.deadline
    }

    /// Whether it is done.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::{block_on, future};
    ///
    /// assert!(!future::sleep(Duration::from_secs(3600)).is_elapsed());
    /// let mut nap = future::sleep(Duration::from_millis(1));
    /// block_on(&mut nap);
    /// assert!(nap.is_elapsed());
    /// ```
    pub fn is_elapsed(&self) -> bool {
        Instant::now() >= self.deadline
    }

    /// Sets another deadline, whether or not the old one has passed. The future must be polled again to register a waker.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::{block_on, future, time::Instant};
    ///
    /// let mut alarm = future::sleep(Duration::from_secs(3600));
    /// let soon = Instant::now() + Duration::from_millis(1);
    /// alarm.reset(soon);
    /// block_on(alarm); // not for an hour
    /// assert!(Instant::now() >= soon);
    /// ```
    pub fn reset(&mut self, deadline: Instant) {
        match &self.alarm {
            Some(Alarm::Timer(alarm)) => alarm.stop(), // kept: it is often set again at once
            _ => self.alarm = None,
        }
        self.deadline = deadline;
    }
}

enum Alarm {
    Timer(timers::Alarm),
    Reactor(ReactorAlarm),
}

impl Alarm {
    /// Rings `waker` at `when`, wherever the caller is.
    fn new(m: Option<&M>, when: u64, waker: &Waker) -> Alarm {
        match m {
            Some(m) => Alarm::Timer(timers::Alarm::new(m, when, waker)),
            None => match ReactorAlarm::new(when, waker) {
                Ok(alarm) => Alarm::Reactor(alarm),
                Err(e) => panic!(
                    "runnext::future::sleep polled outside a runtime, and the thread that would wake it cannot be started: {e}"
                ),
            },
        }
    }

    fn is_at(&self, m: Option<&M>) -> bool {
        match (self, m) {
            (Alarm::Timer(alarm), Some(m)) => alarm.is_of(m),
            (Alarm::Reactor(_), None) => true,
            _ => false,
        }
    }

    /// Rings this one instead. False: it has rung already.
    fn set_waker(&self, waker: &Waker) -> bool {
        match self {
            Alarm::Timer(alarm) => alarm.set_waker(waker),
            Alarm::Reactor(alarm) => alarm.set_waker(waker),
        }
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
        // One that has stopped rings nobody.
        let m = m::current().filter(|m| !m.shared().stopped.load(Relaxed));
        if let Some(alarm) = &self.alarm
            && alarm.is_at(m)
            && alarm.set_waker(cx.waker())
        {
            return Poll::Pending;
        }
        let when = self.deadline.as_ns();
        match (&mut self.alarm, m) {
            (Some(Alarm::Timer(alarm)), Some(m)) => alarm.reset(m, when, cx.waker()),
            (alarm, m) => *alarm = Some(Alarm::new(m, when, cx.waker())),
        }
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

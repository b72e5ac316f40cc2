//! `Timer`, `Ticker` and `after_func`.
//!
//! A channel's timer is nothing but the moment its channel becomes ready at (`chan::clock`): it is in no heap, so it needs no
//! runtime, costs nothing until somebody waits for it, and cannot leave a stale value behind. Only `after_func` has something
//! to start by itself, and so an entry in a heap (`sched::timers::Task`), or among the reactor's alarms (`plain`).

use std::fmt;
use std::panic::Location;
use std::panic::{RefUnwindSafe, UnwindSafe};
use std::sync::Arc;
use std::time::Duration;

use crate::chan::{self, Receiver};
use crate::instant::Instant;
use crate::m;
use crate::sched::timers::Task;

use super::plain::Plain;

/// A one-shot timer: a channel that receives one value, the moment that was set, when that moment has come. Or, made by
/// [`after_func`], a function that is run then.
///
/// The length of the channel is always 0, and after [`stop`](Self::stop) or [`reset`](Self::reset) the moment set before can no longer
/// be received. The value is the moment that was set, however late it is received. Dropping a timer stops its channel, unless a
/// clone of the receiver exists; it does not stop a function.
///
/// [`chan::after`](crate::chan::after) is shorter where it is neither stopped nor reset.
///
/// # Example
/// ```
/// use runnext::time::Timer;
/// use runnext::{chan, select};
/// use std::time::Duration;
///
/// #[runnext::main]
/// fn main() {
///     let (tx, rx) = chan::bounded(0);
///     runnext::go(move || (0..3).for_each(|i| tx.send(i).unwrap()));
///     let patience = Duration::from_secs(10);
///     let timer = Timer::new(patience);
///     loop {
///         select! {
///             recv(rx) -> msg => match msg {
///                 Ok(_) => { timer.reset(patience); }
///                 Err(_) => break,
///             },
///             recv(timer.c()) -> _ => panic!("ten seconds without a message"),
///         }
///     }
///     assert!(timer.stop());
/// }
/// ```
pub struct Timer {
    c: Receiver<Instant>,
    task: Option<Func>,
}

/// A function to be run, and by whom.
enum Func {
    Runtime(Arc<Task>),
    Plain(Arc<Plain>),
}

impl Func {
    fn arm(&self, when: Instant) -> bool {
        match self {
            Func::Runtime(task) => task.arm(when.as_ns()),
            Func::Plain(task) => task.arm(when.as_ns()).unwrap_or_else(|e| {
                panic!("a timer on a plain thread, and the thread that would wait for it cannot be started: {e}")
            }),
        }
    }

    fn stop(&self) -> bool {
        match self {
            Func::Runtime(task) => task.stop(),
            Func::Plain(task) => task.stop(),
        }
    }
}

// What is behind it is never left half-way by a panic: no user code runs inside.
impl UnwindSafe for Timer {}
impl RefUnwindSafe for Timer {}

impl Timer {
    /// A timer whose channel receives the moment `d` from now.
    ///
    /// # Example
    /// ```
    /// use runnext::time::{Instant, Timer};
    /// use std::time::Duration;
    ///
    /// let start = Instant::now();
    /// let timer = Timer::new(Duration::from_millis(1));
    /// let moment = timer.c().recv().unwrap();
    /// assert!(moment >= start + Duration::from_millis(1) && moment <= Instant::now());
    /// ```
    pub fn new(d: Duration) -> Timer {
        Timer {
            c: chan::timer(set_to(d), Duration::ZERO),
            task: None,
        }
    }

    /// The channel. That of an [`after_func`] timer never receives anything.
    ///
    /// # Example
    /// ```
    /// use runnext::{chan, select, time::Timer};
    ///
    /// let answers = chan::never::<u8>();
    /// let timer = Timer::new(std::time::Duration::from_millis(1));
    /// let late = select! {
    ///     recv(answers) -> _ => false,
    ///     recv(timer.c()) -> _ => true,
    /// };
    /// assert!(late && timer.c().try_recv().is_err()); // its moment comes once
    /// ```
    pub fn c(&self) -> &Receiver<Instant> {
        &self.c
    }

    /// Stops the timer. True if it was set: its moment had not been received, or its function not been started, and now
    /// never will be.
    ///
    /// A function that is already running continues.
    ///
    /// # Example
    /// ```
    /// let timer = runnext::time::Timer::new(std::time::Duration::ZERO);
    /// assert!(timer.stop()); // its moment has come, but nobody received it
    /// assert!(timer.c().try_recv().is_err());
    /// assert!(!timer.stop());
    /// ```
    pub fn stop(&self) -> bool {
        match &self.task {
            Some(task) => task.stop(),
            None => self.c.set_timer(Instant::NEVER, Duration::ZERO),
        }
    }

    /// Sets the timer to `d` from now, whatever it was set to before. True if it was set, as for [`stop`](Self::stop).
    ///
    /// A function that is already running continues; if its time comes again meanwhile, it is run once more afterwards. A closed channel stays
    /// closed.
    ///
    /// # Example
    /// ```
    /// use runnext::time::Timer;
    /// use std::time::Duration;
    ///
    /// let timer = Timer::new(Duration::MAX);
    /// assert!(timer.reset(Duration::from_millis(1))); // it was set, to never
    /// assert!(timer.c().recv().is_ok());
    /// assert!(!timer.reset(Duration::from_millis(1))); // it was not: what it was set to was received
    /// assert!(timer.c().recv().is_ok());
    /// ```
    pub fn reset(&self, d: Duration) -> bool {
        match &self.task {
            Some(task) => task.arm(Instant::after(d)),
            None => self.c.set_timer(set_to(d), Duration::ZERO),
        }
    }
}

impl fmt::Debug for Timer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Timer").finish_non_exhaustive()
    }
}

/// Runs `f` in a goroutine of its own, `d` from now; again, each time the returned timer is [`reset`](Timer::reset).
///
/// Runs do not overlap. Until its time has come the function is no goroutine and has no stack. Dropping the timer does not
/// stop it. A panic in `f` is reported and ends that run only.
///
/// On a plain thread, where there is no runtime to run it, the function runs on a plain thread of its own, which is started when its time has come;
/// wherever the timer is reset from. All else is the same.
///
/// # Panics
/// On a plain thread, if the thread that waits for the time, one for all of them, cannot be started.
///
/// # Example
/// ```
/// use runnext::{chan, time};
/// use std::time::Duration;
///
/// #[runnext::main]
/// fn main() {
///     let (tx, rx) = chan::bounded(1);
///     let timer = time::after_func(Duration::from_millis(1), move || tx.send("now").unwrap());
///     assert_eq!(rx.recv(), Ok("now"));
///     assert!(!timer.reset(Duration::from_secs(3600)));
///     assert!(timer.stop());
/// }
/// ```
/// Without a runtime:
/// ```
/// let (tx, rx) = std::sync::mpsc::channel();
/// let timer = runnext::time::after_func(std::time::Duration::from_millis(1), move || tx.send("now").unwrap());
/// assert_eq!(rx.recv(), Ok("now"));
/// assert!(!timer.stop());
/// ```
#[track_caller]
pub fn after_func<F>(d: Duration, f: F) -> Timer
where
    F: FnMut() + Send + 'static,
{
    let func = match m::current() {
        Some(m) => Func::Runtime(Task::new(m, Location::caller(), Box::new(f))),
        None => Func::Plain(Plain::new(Box::new(f))),
    };
    func.arm(Instant::after(d));
    Timer {
        c: chan::never(),
        task: Some(func),
    }
}

/// Moments at regular distances, as a channel: it receives each of them when it has come.
///
/// A moment that nobody received before the next one came is skipped: a slow receiver gets fewer ticks, not a burst of late
/// ones. The channel shows a length of 0 at all times, and receives nothing stale after [`stop`](Self::stop) or
/// [`reset`](Self::reset). Stopping does not close it.
///
/// # Example
/// ```
/// use runnext::time::Ticker;
/// use std::time::Duration;
///
/// let ticker = Ticker::new(Duration::from_millis(1));
/// let first = ticker.c().recv().unwrap();
/// let second = ticker.c().recv().unwrap();
/// assert!(second >= first + Duration::from_millis(1));
/// ticker.stop();
/// assert!(ticker.c().try_recv().is_err());
/// ```
pub struct Ticker {
    c: Receiver<Instant>,
}

impl Ticker {
    /// A ticker whose first moment is `d` from now, and each further one `d` after the previous one.
    ///
    /// # Panics
    /// If `d` is zero.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    ///
    /// let d = Duration::from_millis(1);
    /// let ticker = runnext::time::Ticker::new(d);
    /// let moments: Vec<_> = ticker.c().iter().take(3).collect();
    /// // However late they are received: the distances are `d`, or several where some were skipped.
    /// assert!(moments.windows(2).all(|w| (w[1] - w[0]).as_nanos() % d.as_nanos() == 0));
    /// ```
    #[track_caller]
    pub fn new(d: Duration) -> Ticker {
        assert_period(d);
        Ticker {
            c: chan::timer(Instant::after(d), d),
        }
    }

    /// The channel.
    ///
    /// # Example
    /// ```
    /// use runnext::{chan, go, select, time};
    /// use std::time::Duration;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (tx, result) = chan::bounded(0);
    ///     go(move || {
    ///         time::sleep(Duration::from_millis(3));
    ///         tx.send(42)
    ///     });
    ///     let ticker = time::Ticker::new(Duration::from_millis(1));
    ///     let answer = loop {
    ///         select! {
    ///             recv(result) -> answer => break answer,
    ///             recv(ticker.c()) -> _ => println!("still waiting"),
    ///         }
    ///     };
    ///     assert_eq!(answer, Ok(42));
    /// }
    /// ```
    pub fn c(&self) -> &Receiver<Instant> {
        &self.c
    }

    /// No moment is received any more, until [`reset`](Self::reset).
    ///
    /// # Example
    /// ```
    /// use runnext::{chan::RecvTimeoutError, time::Ticker};
    /// use std::time::Duration;
    ///
    /// let ticker = Ticker::new(Duration::from_millis(1));
    /// ticker.c().recv().unwrap();
    /// ticker.stop();
    /// let next = ticker.c().recv_timeout(Duration::from_millis(3));
    /// assert_eq!(next, Err(RecvTimeoutError::Timeout)); // quiet, but not closed
    /// ```
    pub fn stop(&self) {
        self.c.set_timer(Instant::NEVER, Duration::ZERO);
    }

    /// Begins anew, with the distance `d`: the next moment lies `d` from now.
    ///
    /// # Panics
    /// If `d` is zero.
    ///
    /// # Example
    /// ```
    /// use runnext::time::{Instant, Ticker};
    /// use std::time::Duration;
    ///
    /// let ticker = Ticker::new(Duration::from_secs(3600));
    /// let start = Instant::now();
    /// ticker.reset(Duration::from_millis(2)); // not in an hour
    /// assert!(ticker.c().recv().unwrap() >= start + Duration::from_millis(2));
    /// ```
    #[track_caller]
    pub fn reset(&self, d: Duration) {
        assert_period(d);
        self.c.set_timer(Instant::after(d), d);
    }
}

#[track_caller]
fn assert_period(d: Duration) {
    assert!(
        !d.is_zero(),
        "a ticker needs a distance between its ticks, not zero"
    );
}

impl fmt::Debug for Ticker {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Ticker").finish_non_exhaustive()
    }
}

/// What the channel of a timer shows that is set to `d` from now: also one that will never fire is set, until it is stopped.
fn set_to(d: Duration) -> Instant {
    Instant::after(d).min(Instant::from_ns(chan::NEVER_SET))
}

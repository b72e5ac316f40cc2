//! How a group is made, and what becomes of senseless settings.

use std::sync::Arc;
use std::time::Duration;

use runnext_core::group::{GroupConfig, Priority, Quota, Refused};

use super::TaskGroup;
use crate::one_line::OneLine;
use crate::sched::groups::Record;

/// Makes a [`TaskGroup`].
///
/// Settings that are merely too small or too large are clamped to the nearest that works; those that make no sense at all are
/// refused by a panic that says why.
///
/// | setting    | works                               | outside it                                         |
/// |------------|-------------------------------------|----------------------------------------------------|
/// | `weight`   | 1 to 10,000                         | clamped, 0 to 1                                    |
/// | `slice`    | 0.1 to 100 ms                       | clamped                                            |
/// | `burst`    | 0 to 10 s                           | clamped                                            |
/// | `quota`    | 0.01 to 1024 cores                  | clamped; NaN, infinite, zero or negative: panics   |
/// | `parent`   | a group that has no parent itself   | panics: groups nest two deep                       |
///
/// # Example
/// ```
/// use std::time::Duration;
/// use runnext::{Priority, TaskGroup};
///
/// let tenant = TaskGroup::builder("tenant 7").quota(1.5).build();
/// let queries = TaskGroup::builder("queries")
///     .parent(&tenant)
///     .weight(200)
///     .priority(Priority::High)
///     .slice(Duration::from_micros(500))
///     .build();
/// assert_eq!(queries.parent(), Some(tenant));
/// ```
#[derive(Clone, Debug)]
#[must_use = "a builder makes no group until build is called"]
pub struct TaskGroupBuilder {
    name: Box<str>,
    config: GroupConfig,
    quota: Option<Quota>,
    burst: Duration,
    parent: Option<TaskGroup>,
}

impl TaskGroupBuilder {
    pub(super) fn new(name: &str) -> TaskGroupBuilder {
        TaskGroupBuilder {
            name: name.into(),
            config: GroupConfig::default(),
            quota: None,
            burst: Duration::ZERO,
            parent: None,
        }
    }

    /// Its share: a group of twice the weight gets twice the CPU time, when both want more than they get. Default 100.
    ///
    /// # Example
    /// ```
    /// use runnext::TaskGroup;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let free = TaskGroup::new("free plan");
    ///     let paid = TaskGroup::builder("paid plan").weight(300).build(); // three times as much, when both have much to do
    ///     assert!(format!("{free:?} {paid:?}").contains("weight: 300"));
    ///     let jobs = [free.go(|| (1..=100).sum::<u32>()), paid.go(|| (1..=10).product())];
    ///     assert_eq!(jobs.map(|job| job.join().unwrap()), [5050, 3_628_800]);
    /// }
    /// ```
    pub fn weight(mut self, w: u32) -> Self {
        self.config.weight = w;
        self
    }

    /// Which other groups it runs before. Default [`Priority::Normal`].
    ///
    /// # Example
    /// ```
    /// use runnext::{Priority, TaskGroup};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let requests = TaskGroup::builder("requests").priority(Priority::High).build();
    ///     let index = TaskGroup::builder("index").priority(Priority::Low).build();
    ///     // It runs in what the requests leave over.
    ///     let words = index.go(|| "to be or not to be".split(' ').count());
    ///     let found = requests.go(|| "not to be".find("be"));
    ///     assert_eq!((found.join().unwrap(), words.join().unwrap()), (Some(7), 6));
    /// }
    /// ```
    pub fn priority(mut self, p: Priority) -> Self {
        self.config.priority = p;
        self
    }

    /// How many cores it may use in the long run. The budget is refilled continuously, so a group that has used it up pauses for
    /// milliseconds, not for the rest of a period. Default: no limit.
    ///
    /// # Panics
    /// If it is not a positive, finite number.
    ///
    /// # Example
    /// ```
    /// use runnext::{TaskGroup, checkpoint};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let thumbnails = TaskGroup::builder("thumbnails").quota(0.02).build();
    ///     // Left alone it would take a whole core. It goes on until it has been made to pause.
    ///     thumbnails.enter(|| while thumbnails.stats().throttled_time.is_zero() { checkpoint() });
    ///     assert!(thumbnails.stats().throttled_count > 0);
    /// }
    /// ```
    #[track_caller]
    pub fn quota(mut self, cores: f64) -> Self {
        self.quota = Some(quota(cores, 0));
        self
    }

    /// CPU time it may save up while it does not use its quota, and then use at once. Default: a millisecond for each processor.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::{TaskGroup, checkpoint};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     // Little in the long run, but a request that comes after a pause is answered without one.
    ///     let rare = TaskGroup::builder("rare").quota(0.02).burst(Duration::from_secs(1)).build();
    ///     rare.enter(|| while rare.stats().cpu_time < Duration::from_millis(5) { checkpoint() });
    ///     assert_eq!(rare.stats().throttled_count, 0);
    /// }
    /// ```
    pub fn burst(mut self, d: Duration) -> Self {
        self.burst = d;
        self
    }

    /// How long it keeps a processor at a time while others wait. With a shorter slice it gets a processor sooner after a wake-up; its
    /// share is the same. Default 2 ms.
    ///
    /// # Example
    /// ```
    /// use std::sync::Arc;
    /// use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
    /// use std::time::Duration;
    /// use runnext::{TaskGroup, go, yield_now};
    ///
    /// #[runnext::main(procs = 1)]
    /// fn main() {
    ///     let done = Arc::new(AtomicBool::new(false));
    ///     let seen = Arc::clone(&done);
    ///     let computing = go(move || while !seen.load(Relaxed) {}); // never gives way by itself
    ///     let pings = TaskGroup::builder("pings").slice(Duration::from_micros(200)).build();
    ///     pings.go(|| (0..5).for_each(|_| yield_now())).join().unwrap();
    ///     assert!(!computing.is_finished());
    ///     done.store(true, Relaxed);
    ///     computing.join().unwrap();
    /// }
    /// ```
    pub fn slice(mut self, d: Duration) -> Self {
        self.config.slice = nanos(d);
        self
    }

    /// Puts it under the runtime's [`cpu_limit`](crate::Builder::cpu_limit): all governed groups together, and their children, use no more
    /// than that. Default false.
    ///
    /// # Example
    /// ```
    /// use runnext::{CpuLimit, TaskGroup};
    ///
    /// #[runnext::main(cpu_limit = CpuLimit::Fraction(0.5))]
    /// fn main() {
    ///     // Together they leave half of the machine to everything else.
    ///     let jobs = ["backup", "reindex"].map(|name| TaskGroup::builder(name).governed(true).build());
    ///     let lengths = jobs.each_ref().map(|job| job.go(|| TaskGroup::current().unwrap().name().len()));
    ///     assert_eq!(lengths.map(|length| length.join().unwrap()), [6, 7]);
    /// }
    /// ```
    pub fn governed(mut self, on: bool) -> Self {
        self.config.governed = on;
        self
    }

    /// The parent, whose quota also limits this group: the CPU time of this group is charged to both. If the parent is
    /// [governed](Self::governed) so is this group. Weights compete as if there were no parent.
    ///
    /// # Example
    /// ```
    /// use runnext::TaskGroup;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let tenant = TaskGroup::builder("tenant").quota(1.0).build();
    ///     let mail = TaskGroup::builder("mail").parent(&tenant).weight(300).build();
    ///     let search = TaskGroup::builder("search").parent(&tenant).build();
    ///     // Three to one, and never more than one core together.
    ///     let done = [mail.go(|| "sent"), search.go(|| "found")].map(|job| job.join().unwrap());
    ///     assert_eq!(done, ["sent", "found"]);
    ///     assert_eq!(mail.parent(), search.parent());
    /// }
    /// ```
    pub fn parent(mut self, parent: &TaskGroup) -> Self {
        self.parent = Some(parent.clone());
        self
    }

    /// Makes the group.
    ///
    /// # Panics
    /// If the parent has a parent itself.
    ///
    /// # Example
    /// ```
    /// let settings = runnext::TaskGroup::builder("worker").weight(50);
    /// let (one, two) = (settings.clone().build(), settings.build());
    /// assert_eq!(one.name(), two.name());
    /// assert_ne!(one, two); // the same settings, but each has a share of its own
    /// ```
    pub fn build(self) -> TaskGroup {
        if self.parent.as_ref().is_some_and(|p| p.parent().is_some()) {
            panic!(
                "the task group '{}': {}",
                OneLine(&self.name),
                Refused::TooDeep
            );
        }
        let mut config = self.config;
        let burst = nanos(self.burst).min(runnext_core::group::config::MAX_BURST);
        config.quota = self.quota.map(|quota| Quota { burst, ..quota });
        let parent = self.parent.map(|parent| Arc::clone(parent.record()));
        TaskGroup {
            record: Record::new(&self.name, config, burst, parent),
        }
    }
}

/// A quota that works.
///
/// # Panics
/// With advice, if there is no such thing.
#[track_caller]
pub(super) fn quota(cores: f64, burst: u64) -> Quota {
    match Quota::new(cores, burst) {
        Ok(quota) => quota,
        Err(why) => panic!("{why}"), // not in a closure, which has a place of its own
    }
}

fn nanos(d: Duration) -> u64 {
    u64::try_from(d.as_nanos()).unwrap_or(u64::MAX)
}

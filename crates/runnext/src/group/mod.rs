//! Task groups: sets of goroutines with a share of CPU time, a priority and a quota.
//!
//! This is the public API. What runs when is decided by `runnext_core::group` and carried out by `sched::groups`.

mod builder;
mod stats;

pub use builder::TaskGroupBuilder;
/// # Example
/// ```
/// use std::time::Duration;
/// use runnext::{CpuLimit, TaskGroup};
///
/// const LIMIT: CpuLimit = CpuLimit::Adaptive { target_p99: Duration::from_millis(2) };
///
/// #[runnext::main(cpu_limit = LIMIT)]
/// fn main() {
///     // Has all that can be spared without making others wait for more than 2 ms.
///     let backup = TaskGroup::builder("backup").governed(true).build();
///     assert_eq!(backup.go(|| (1..=10u64).product::<u64>()).join().unwrap(), 3_628_800);
/// }
/// ```
pub use runnext_core::group::CpuLimit;
/// # Example
/// ```
/// use runnext::{Priority, TaskGroup};
///
/// fn class(of: &str) -> Priority {
///     match of {
///         "health check" => Priority::High,
///         "backup" => Priority::Low,
///         _ => Priority::default(),
///     }
/// }
///
/// let groups = ["health check", "search"].map(|name| TaskGroup::builder(name).priority(class(name)).build());
/// assert!(format!("{:?}", groups[0]).contains("priority: High"));
/// assert!(format!("{:?}", groups[1]).contains("priority: Normal"));
/// ```
pub use runnext_core::group::Priority;
pub use stats::GroupStats;

use std::fmt;
use std::hash::{Hash, Hasher};
use std::panic::Location;
use std::sync::Arc;

use crate::g::G;
use crate::goroutine::{Goroutine, JoinHandle, current_shared, go_in};
use crate::m;
use crate::sched::call::Call;
use crate::sched::groups::{self, Record};

/// A group of goroutines that the scheduler treats as one when it hands out CPU time.
///
/// Groups share the processors by *weight*: when two groups want more CPU time than there is, the one of twice the weight gets twice
/// as much, however many goroutines each has. All goroutines that belong to no group count together as a group of weight 100, the
/// default. A group's *slice* is how long it keeps a processor at a time, its *priority* decides which groups it runs before, its
/// *quota* is the number of cores it may use at most. A processor never idles while any goroutine that may run is ready.
///
/// A goroutine started by a member of a group belongs to the same group. A group belongs to no runtime until it is used; it ends when its last
/// handle and its last goroutine are gone. Handles are cheap to clone.
///
/// # Example
/// ```
/// use runnext::{Priority, TaskGroup};
///
/// #[runnext::main]
/// fn main() {
///     let bulk = TaskGroup::builder("bulk").priority(Priority::Low).quota(0.5).build();
///     let sum = bulk.go(|| {
///         // Belongs to `bulk` as well.
///         let part = runnext::go(|| (0..500u64).sum::<u64>());
///         (500..1000u64).sum::<u64>() + part.join().unwrap()
///     });
///     assert_eq!(sum.join().unwrap(), 499_500);
///     assert_eq!(bulk.stats().goroutines, 0);
/// }
/// ```
#[derive(Clone)]
pub struct TaskGroup {
    record: Arc<Record>,
}

impl TaskGroup {
    /// A group of default weight, priority and slice, without a quota.
    ///
    /// # Example
    /// ```
    /// assert_eq!(runnext::TaskGroup::new("index").name(), "index");
    /// ```
    pub fn new(name: &str) -> TaskGroup {
        TaskGroup::builder(name).build()
    }

    /// A builder for a group that differs from the default.
    ///
    /// # Example
    /// ```
    /// use runnext::{Priority, TaskGroup};
    ///
    /// let mail = TaskGroup::builder("mail").weight(50).priority(Priority::Low).build();
    /// assert_eq!(format!("{mail:?}"), r#"TaskGroup { name: "mail", weight: 50, priority: Low, .. }"#);
    /// ```
    pub fn builder(name: &str) -> TaskGroupBuilder {
        TaskGroupBuilder::new(name)
    }

    /// Its name.
    ///
    /// # Example
    /// ```
    /// let shards = ["a to m", "n to z"].map(runnext::TaskGroup::new);
    /// assert_eq!(shards.each_ref().map(|shard| shard.name()), ["a to m", "n to z"]);
    /// ```
    pub fn name(&self) -> &str {
        self.record.name()
    }

    /// The parent: the group whose quota also limits this one, if there is one.
    ///
    /// # Example
    /// ```
    /// use runnext::TaskGroup;
    ///
    /// let tenant = TaskGroup::builder("tenant").quota(2.0).build();
    /// let mail = TaskGroup::builder("mail").parent(&tenant).build();
    /// assert_eq!(tenant.parent(), None);
    /// assert_eq!(mail.parent(), Some(tenant));
    /// ```
    pub fn parent(&self) -> Option<TaskGroup> {
        let record = self.record.parent().cloned()?;
        Some(TaskGroup { record })
    }

    /// Starts a goroutine in this group; see [`go`](crate::go).
    ///
    /// # Panics
    /// Outside a runtime, when the system has no memory for another goroutine, and if another runtime uses the group.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let group = runnext::TaskGroup::new("numbers");
    ///     let name = group.go(|| runnext::TaskGroup::current().unwrap().name().to_owned());
    ///     assert_eq!(name.join().unwrap(), "numbers");
    /// }
    /// ```
    #[track_caller]
    pub fn go<F, T>(&self, f: F) -> JoinHandle<T>
    where
        F: FnOnce() -> T + Send + 'static,
        T: Send + 'static,
    {
        go_in(
            current_shared("TaskGroup::go"),
            Location::caller(),
            &self.record,
            f,
        )
    }

    /// Runs `f` in this group: the calling goroutine belongs to it until `f` returns or panics, and then again to the group it came
    /// from. On a plain thread, which belongs to no group, it only runs `f`.
    ///
    /// # Blocks
    /// The goroutine, twice: before `f` until this group has its turn, and after `f` until its former group has. Not at all if it is in this group
    /// already.
    ///
    /// # Panics
    /// If another runtime uses the group.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let batch = runnext::TaskGroup::new("batch");
    ///     assert!(runnext::TaskGroup::current().is_none());
    ///     let sum: u64 = batch.enter(|| {
    ///         assert_eq!(runnext::TaskGroup::current().unwrap().name(), "batch");
    ///         (1..=10).sum()
    ///     });
    ///     assert_eq!(sum, 55);
    ///     assert!(runnext::TaskGroup::current().is_none());
    /// }
    /// ```
    pub fn enter<F, T>(&self, f: F) -> T
    where
        F: FnOnce() -> T,
    {
        let _inside = Inside::enter(Some(Arc::clone(&self.record)));
        f()
    }

    /// All groups that were used in the current runtime and still exist, for monitoring.
    ///
    /// # Panics
    /// Outside a runtime.
    ///
    /// # Example
    /// ```
    /// use runnext::TaskGroup;
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let (web, _idle) = (TaskGroup::new("web"), TaskGroup::new("idle"));
    ///     web.go(|| ()).join().unwrap();
    ///     let names: Vec<_> = TaskGroup::all().iter().map(|group| group.name().to_owned()).collect();
    ///     assert_eq!(names, ["web"]); // the other one has not been used
    /// }
    /// ```
    #[track_caller]
    pub fn all() -> Vec<TaskGroup> {
        let records = current_shared("TaskGroup::all").groups.records();
        let group = |record| TaskGroup { record };
        records.into_iter().map(group).collect()
    }

    /// The group of the calling goroutine; none if it is in no group, and on a plain thread.
    ///
    /// # Example
    /// ```
    /// use runnext::{TaskGroup, go};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     assert_eq!(TaskGroup::current(), None);
    ///     let search = TaskGroup::new("search");
    ///     // Whoever is started from inside belongs to it, too.
    ///     let inherited = search.go(|| go(TaskGroup::current).join().unwrap());
    ///     assert_eq!(inherited.join().unwrap(), Some(search));
    /// }
    /// ```
    pub fn current() -> Option<TaskGroup> {
        of(m::current()?.g()?)
    }

    /// What the group used, and how it fares.
    ///
    /// # Example
    /// ```
    /// use runnext::{TaskGroup, chan};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let group = TaskGroup::new("visitors");
    ///     let (open, closed) = chan::bounded::<()>(0);
    ///     let visitors = [closed.clone(), closed].map(|closed| group.go(move || closed.recv()));
    ///     assert_eq!(group.stats().goroutines, 2);
    ///     drop(open);
    ///     for visitor in visitors {
    ///         visitor.join().unwrap().unwrap_err();
    ///     }
    ///     assert_eq!(group.stats().goroutines, 0);
    /// }
    /// ```
    pub fn stats(&self) -> GroupStats {
        GroupStats::read(&self.record)
    }

    /// Changes its share, from the next decision on. Clamped to 1 to 10,000.
    ///
    /// # Example
    /// ```
    /// let tenant = runnext::TaskGroup::builder("tenant 7").weight(100).build();
    /// tenant.set_weight(300); // somebody pays for more
    /// assert!(format!("{tenant:?}").contains("weight: 300"));
    /// tenant.set_weight(0); // there is no such weight: the least there is
    /// assert!(format!("{tenant:?}").contains("weight: 1,"));
    /// ```
    pub fn set_weight(&self, w: u32) {
        self.record.set_weight(w);
    }

    /// Changes how many cores it may use, or lifts the limit. Its burst does not change. Clamped to 0.01 to 1024 cores.
    ///
    /// # Panics
    /// If the quota is not a positive, finite number.
    ///
    /// # Example
    /// ```
    /// use std::time::Duration;
    /// use runnext::{TaskGroup, checkpoint};
    ///
    /// #[runnext::main]
    /// fn main() {
    ///     let crawler = TaskGroup::builder("crawler").quota(0.02).build();
    ///     crawler.set_quota(None); // it is night: nobody minds
    ///     crawler.enter(|| while crawler.stats().cpu_time < Duration::from_millis(5) { checkpoint() });
    ///     assert_eq!(crawler.stats().throttled_count, 0);
    /// }
    /// ```
    #[track_caller]
    pub fn set_quota(&self, q: Option<f64>) {
        let Some(cores) = q else {
            return self.record.set_quota(None);
        };
        self.record.set_quota(Some(builder::quota(cores, 0)));
    }

    /// Changes how it stands to the others.
    ///
    /// # Example
    /// ```
    /// use runnext::{Priority, TaskGroup};
    ///
    /// let report = TaskGroup::builder("report").priority(Priority::Low).build();
    /// report.set_priority(Priority::High); // now somebody waits for it
    /// assert!(format!("{report:?}").contains("priority: High"));
    /// ```
    pub fn set_priority(&self, p: Priority) {
        self.record.set_priority(p);
    }

    pub(crate) fn record(&self) -> &Arc<Record> {
        &self.record
    }
}

impl fmt::Debug for TaskGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let config = self.record.config();
        f.debug_struct("TaskGroup")
            .field("name", &self.name())
            .field("weight", &config.weight_in_range())
            .field("priority", &config.priority)
            .finish_non_exhaustive()
    }
}

impl PartialEq for TaskGroup {
    /// Whether both are handles to the same group.
    fn eq(&self, other: &TaskGroup) -> bool {
        Arc::ptr_eq(&self.record, &other.record)
    }
}

impl Eq for TaskGroup {}

impl Hash for TaskGroup {
    fn hash<H: Hasher>(&self, state: &mut H) {
        Arc::as_ptr(&self.record).hash(state);
    }
}

/// The group of a goroutine that is the caller's, or kept by a handle.
fn of(g: &G) -> Option<TaskGroup> {
    let record = groups::of(g)?;
    Some(TaskGroup { record })
}

impl Goroutine {
    /// The group it belongs to, or belonged to when it ended, if any.
    ///
    /// # Example
    /// ```
    /// #[runnext::main]
    /// fn main() {
    ///     let group = runnext::TaskGroup::new("parsers");
    ///     let inside = group.go(|| runnext::current().unwrap().group().unwrap());
    ///     assert_eq!(inside.join().unwrap(), group);
    ///     assert!(runnext::current().unwrap().group().is_none());
    /// }
    /// ```
    pub fn group(&self) -> Option<TaskGroup> {
        of(self.g())
    }
}

/// The calling goroutine is in another group until this is dropped.
struct Inside {
    /// What it goes back to; nothing to do if it did not move.
    back: Option<Option<Arc<Record>>>,
}

impl Inside {
    fn enter(group: Option<Arc<Record>>) -> Inside {
        Inside {
            back: change_group(group),
        }
    }
}

impl Drop for Inside {
    fn drop(&mut self) {
        if let Some(back) = self.back.take() {
            change_group(back);
        }
    }
}

/// Moves the calling goroutine, and returns where it was; None if it is there already, or on a plain thread.
fn change_group(group: Option<Arc<Record>>) -> Option<Option<Arc<Record>>> {
    let (m, g) = m::current().and_then(|m| Some((m, m.g()?)))?;
    let old = groups::of(g);
    if old.as_ref().map(Arc::as_ptr) == group.as_ref().map(Arc::as_ptr) {
        return None;
    }
    groups::move_to(m.shared(), g, group);
    // What it uses from here on is the new group's; its turn may be later.
    Call::enter().yield_now();
    Some(old)
}

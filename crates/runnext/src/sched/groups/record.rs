//! One task group as the program sees it: its settings, its name, and its place in the runtime that uses it.
//!
//! # Why this shape
//! A group is made before anybody knows which runtime will use it, so its settings live here; the first use gives it a place in that
//! runtime's ledger. Handles, goroutines, child groups and locks that were lent a lane all count the same `Arc`, so the place is given
//! back by whoever lets go last. They do so in user context: giving back frees memory.
//!
//! | `home`  | meaning                                | left by                                        |
//! |---------|----------------------------------------|------------------------------------------------|
//! | null    | no runtime uses it                     | `bind`                                         |
//! | a `Shared` | has place `id` there                | the end of that runtime, the last count        |
//!
//! # Invariants
//! I1  `id` is the group's for as long as `home` is set, and `home` is set while a goroutine of that runtime belongs to it.

use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use runnext_core::group::{GroupConfig, GroupId, Priority, Quota, ROOT, Usage};
use runnext_sys::clock;

use super::{Belongs, ROOT_LANE};
use crate::g::G;
use crate::histogram::Recorder;
use crate::one_line::OneLine;
use crate::sched::Shared;
use crate::sched::call::Call;
use crate::sched::shield::{self, Shielded};

/// See the [module](self).
pub(crate) struct Record {
    name: Box<str>,
    parent: Option<Arc<Record>>,
    /// Of the quota, also of one it may get later.
    burst: u64,
    home: AtomicPtr<Shared>,
    id: AtomicU32,
    bond: Mutex<Bond>,
    goroutines: AtomicUsize,
    pub(super) blocking_ns: AtomicU64,
    pub(super) preempted: AtomicU64,
    pub(super) lent: AtomicU64,
    pub(super) wake_latency: Recorder,
    pub(crate) run_time: Recorder,
    pub(crate) preempt_latency: Recorder,
}

/// What changes rarely.
struct Bond {
    /// Its `parent` is not used: places are the runtime's.
    config: GroupConfig,
    shared: Weak<Shared>,
    /// Used in runtimes that are gone.
    past: Usage,
    /// What it was last said to have used. Turns and pauses that go on are counted by the clock; a turn proves shorter if the system ran
    /// others meanwhile, and a pause if its end was noted with an older time. But who reads twice expects no less.
    told: Usage,
}

/// A moment's view of a group.
pub(crate) struct Reading {
    pub(crate) usage: Usage,
    pub(crate) goroutines: usize,
    pub(crate) blocking: Duration,
    pub(crate) preempted: u64,
    pub(crate) lent: u64,
}

impl Record {
    pub(crate) fn new(
        name: &str,
        config: GroupConfig,
        burst: u64,
        parent: Option<Arc<Record>>,
    ) -> Arc<Record> {
        Arc::new(Record {
            name: name.into(),
            parent,
            burst,
            home: AtomicPtr::new(ptr::null_mut()),
            id: AtomicU32::new(0),
            bond: Mutex::new(Bond {
                config,
                shared: Weak::new(),
                past: Usage::default(),
                told: Usage::default(),
            }),
            goroutines: AtomicUsize::new(0),
            blocking_ns: AtomicU64::new(0),
            preempted: AtomicU64::new(0),
            lent: AtomicU64::new(0),
            wake_latency: Recorder::new(),
            run_time: Recorder::new(),
            preempt_latency: Recorder::new(),
        })
    }

    pub(crate) fn name(&self) -> &str {
        &self.name
    }

    pub(crate) fn parent(&self) -> Option<&Arc<Record>> {
        self.parent.as_ref()
    }

    pub(crate) fn wake_latency(&self) -> &Recorder {
        &self.wake_latency
    }

    pub(crate) fn config(&self) -> GroupConfig {
        self.bond().config
    }

    /// Whoever has it enters no [`Call`] (`Groups::registry`).
    fn bond(&self) -> Shielded<'_, Bond> {
        shield::lock(&self.bond)
    }

    /// The group's place in `shared`'s ledger; given to it now if this is its first use there. In user context.
    ///
    /// # Panics
    /// If another runtime that still runs uses the group, or there are too many groups.
    pub(crate) fn bind(self: &Arc<Record>, shared: &Shared) -> u32 {
        if ptr::eq(self.home.load(Acquire), shared) {
            return self.id.load(Relaxed);
        }
        self.bind_first(shared)
    }

    #[cold]
    fn bind_first(self: &Arc<Record>, shared: &Shared) -> u32 {
        let parent = self.parent.as_ref().map(|p| p.bind(shared));
        loop {
            match self.try_bind(shared, parent) {
                Ok(Some(id)) => {
                    shared.begin_governed(GroupId::from_index(id as usize)); // no lock is held any more
                    return id;
                }
                Ok(None) => shared.groups.make_room(shared),
                Err(why) => panic!("the task group '{}' {why}", OneLine(&self.name)),
            }
        }
    }

    /// None: the Ps lack room for it.
    fn try_bind(
        self: &Arc<Record>,
        shared: &Shared,
        parent: Option<u32>,
    ) -> Result<Option<u32>, String> {
        let mut bond = self.bond();
        let home = self.home.load(Acquire);
        if ptr::eq(home, shared) {
            return Ok(Some(self.id.load(Relaxed)));
        }
        if !home.is_null() {
            return Err("is in use by another runtime: make one group for each runtime".into());
        }
        let config = GroupConfig {
            parent: parent.map(|id| GroupId::from_index(id as usize)),
            ..bond.config
        };
        let added = shared.groups.add(shared, &config, self);
        let Some(id) = added.map_err(|why| format!("cannot be used: {why}"))? else {
            return Ok(None);
        };
        if id == ROOT {
            return Ok(Some(ROOT_LANE)); // the runtime has stopped: the group may be used elsewhere
        }
        let id = id.index() as u32;
        bond.shared = shared.weak();
        self.id.store(id, Relaxed);
        self.home.store(ptr::from_ref(shared).cast_mut(), Release);
        Ok(Some(id))
    }

    /// Its place in `shared`, if it has one there.
    pub(super) fn id_in(&self, shared: &Shared) -> Option<GroupId> {
        ptr::eq(self.home.load(Acquire), shared)
            .then(|| GroupId::from_index(self.id.load(Relaxed) as usize))
    }

    /// The same as a lane; the root lane if it has none.
    pub(super) fn lane_in(&self, shared: &Shared) -> u32 {
        self.id_in(shared).map_or(ROOT_LANE, |id| id.index() as u32)
    }

    /// The runtime ends: what the group used there is kept.
    pub(super) fn unbind(&self, usage: Usage) {
        let mut bond = self.bond();
        bond.past = add(bond.past, usage);
        bond.shared = Weak::new();
        self.home.store(ptr::null_mut(), Release);
    }

    /// Changes a setting, here and where the group is in use.
    fn change(&self, f: impl FnOnce(&mut GroupConfig, Option<(&Shared, GroupId, u64)>)) {
        let mut bond = self.bond();
        let shared = bond.shared.upgrade();
        let place = shared
            .as_deref()
            .and_then(|shared| Some((shared, self.id_in(shared)?, clock::now_ns())));
        f(&mut bond.config, place);
        drop(bond);
        if let Some(shared) = shared {
            let _call = Call::brief(); // what wakes a P takes runtime locks
            shared.groups.look_again(&shared);
            shared.hurry(clock::now_ns()); // a turn that had no limit may have one now
        }
    }

    pub(crate) fn set_weight(&self, weight: u32) {
        self.change(|config, place| {
            config.weight = weight;
            if let Some((shared, id, now)) = place {
                shared.groups.ledger.set_weight(id, weight, now);
            }
        });
    }

    pub(crate) fn set_priority(&self, priority: Priority) {
        self.change(|config, place| {
            config.priority = priority;
            if let Some((shared, id, now)) = place {
                shared.groups.ledger.set_priority(id, priority, now);
            }
        });
    }

    /// The burst is what it was made with, whatever that of `quota` is.
    pub(crate) fn set_quota(&self, quota: Option<Quota>) {
        let burst = self.burst;
        self.change(|config, place| {
            config.quota = quota.map(|quota| Quota { burst, ..quota });
            if let Some((shared, id, now)) = place {
                shared.groups.ledger.set_quota(id, config.quota, now);
            }
        });
    }

    // ---- goroutines ----

    /// One goroutine more. Returns what its header keeps: one count.
    pub(crate) fn join(self: &Arc<Record>) -> *const () {
        self.goroutines.fetch_add(1, Relaxed);
        Arc::into_raw(Arc::clone(self)).cast()
    }

    /// As [`join`](Self::join), of the group a header names, if it is one of `shared`'s.
    ///
    /// # Safety
    /// As for [`of`](Self::of); not null.
    pub(in crate::sched) unsafe fn join_in(raw: *const (), shared: &Shared) -> Belongs {
        let raw = raw.cast::<Record>();
        // SAFETY: the caller's promise.
        let record = unsafe { &*raw };
        let Some(id) = record.id_in(shared) else {
            return Belongs::NOWHERE; // of another runtime
        };
        record.goroutines.fetch_add(1, Relaxed);
        // SAFETY: the header's count keeps it meanwhile.
        unsafe { Arc::increment_strong_count(raw) };
        Belongs {
            lane: id.index() as u32,
            group: raw.cast(),
        }
    }

    /// One goroutine less: it is at its end. Its header may keep its count for longer.
    pub(super) fn ended(&self) {
        self.goroutines.fetch_sub(1, Relaxed);
    }

    /// Gives back what [`join`](Self::join) returned, in user context.
    ///
    /// # Safety
    /// `raw` came from there, and is not used any more.
    pub(crate) unsafe fn release(raw: *const ()) {
        // SAFETY: the caller's promise.
        drop(unsafe { Arc::from_raw(raw.cast::<Record>()) });
    }

    /// The record a header names.
    ///
    /// # Safety
    /// `raw` came from [`join`](Self::join), and its count lives for as long as the reference.
    pub(crate) unsafe fn of<'a>(raw: *const ()) -> Option<&'a Record> {
        // SAFETY: null, or the caller's promise.
        unsafe { raw.cast::<Record>().as_ref() }
    }

    /// The group of a goroutine that the calling thread runs, is about to run, or has just run and not let go of. None once it has ended, while
    /// its waker or a hook still runs: whoever joined it may be giving its count back.
    pub(crate) fn of_own(g: &G) -> Option<&Record> {
        if g.is_done() {
            return None;
        }
        // SAFETY: it ends by its own doing, and the caller is the goroutine itself or keeps it from running: so it keeps its count.
        unsafe { Record::of(g.group_ptr().load(Relaxed)) }
    }

    /// A count more of the record a header names.
    ///
    /// # Safety
    /// As for [`of`](Self::of).
    pub(crate) unsafe fn share(raw: *const ()) -> Option<Arc<Record>> {
        let raw = raw.cast::<Record>();
        if raw.is_null() {
            return None;
        }
        // SAFETY: the caller's promise.
        unsafe {
            Arc::increment_strong_count(raw);
            Some(Arc::from_raw(raw))
        }
    }

    pub(crate) fn read(&self) -> Reading {
        let (mut usage, shared) = self.usage();
        if let Some(shared) = shared
            && let Some(id) = self.id_in(&shared)
        {
            // The ledger's count is that of where turns begin and end.
            let call = Call::brief();
            usage.queued = shared.groups.runnable(&shared, id);
            drop(call);
        }
        Reading {
            usage,
            goroutines: self.goroutines.load(Relaxed),
            blocking: Duration::from_nanos(self.blocking_ns.load(Relaxed)),
            preempted: self.preempted.load(Relaxed),
            lent: self.lent.load(Relaxed),
        }
    }

    /// What it used, and the runtime that uses it.
    fn usage(&self) -> (Usage, Option<Arc<Shared>>) {
        let mut bond = self.bond();
        let (mut usage, shared) = (bond.past, bond.shared.upgrade());
        if let Some(shared) = &shared
            && let Some(id) = self.id_in(shared)
        {
            usage = add(usage, shared.groups.usage(shared, id));
        }
        usage.cpu_ns = usage.cpu_ns.max(bond.told.cpu_ns);
        usage.throttled_ns = usage.throttled_ns.max(bond.told.throttled_ns);
        usage.stalled_ns = usage.stalled_ns.max(bond.told.stalled_ns);
        bond.told = usage;
        (usage, shared)
    }
}

impl Drop for Record {
    fn drop(&mut self) {
        let bond = self.bond.get_mut().unwrap_or_else(|e| e.into_inner());
        if let Some(shared) = bond.shared.upgrade()
            && ptr::eq(*self.home.get_mut(), Arc::as_ptr(&shared))
        {
            let id = GroupId::from_index(*self.id.get_mut() as usize);
            shared.groups.remove(&shared, id);
        }
    }
}

/// Counters add up; what is a state is the later one's.
fn add(past: Usage, now: Usage) -> Usage {
    Usage {
        cpu_ns: past.cpu_ns + now.cpu_ns,
        throttled_ns: past.throttled_ns + now.throttled_ns,
        stalled_ns: past.stalled_ns + now.stalled_ns,
        throttled_count: past.throttled_count + now.throttled_count,
        ..now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Runtime, m};

    /// A goroutine that outlived its runtime, or the drop of a future, could bind a group to it for good: no other could use it.
    #[test]
    fn a_runtime_that_has_stopped_keeps_no_group() {
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let built = || unsafe { Runtime::builder().procs(1).build() }.unwrap();
        let old = built();
        let weak = old.run(|| m::current().unwrap().shared().weak());
        let shared = weak.upgrade().unwrap();
        drop(old);
        let parent = Record::new("parent", GroupConfig::default(), 0, None);
        let child = Record::new(
            "child",
            GroupConfig::default(),
            0,
            Some(Arc::clone(&parent)),
        );
        assert_eq!(child.bind(&shared), ROOT_LANE);
        built().run(|| {
            let shared = m::current().unwrap().shared();
            assert_ne!(child.bind(shared), ROOT_LANE);
            assert_ne!(parent.bind(shared), child.bind(shared));
        });
    }
}

//! The reactor: a thread for futures that no runtime polls, and for timers without one.
//!
//! # Why this shape
//! A future on a plain thread may be polled by anybody, `block_on` or another executor, and has nothing
//! but a waker to be reached by. Somebody has to be awake to use it: one thread for the process, started when it is first needed, which waits
//! in a poller of its own and until the first alarm. Rejected: that `block_on` sleeps no longer than the first alarm (a
//! waker inside it, as those of `FuturesUnordered`, must be woken too, and other executors know nothing of it), the timers of
//! some runtime (it may end).
//!
//! # Protocol
//! alarm:   1 enter it in the list  2 it is the first: notify the poller
//! reactor: 1 take what is due out of the list, mark it rung, wake it  2 poll, until the first that is left  3 wake the futures of events
//!
//! A notification is kept until the next poll, so one between 1 and 2 of the reactor ends its poll at once. Who sets another waker looks at
//! the mark afterwards, and the reactor takes the waker after it has set the mark: so one of them sees the other.
//!
//! # Context
//! User context. The list is behind a lock of std's, since its nodes are allocated; it is never taken in RT, and who has it is not made to stop
//! (`sched::shield`).

use std::collections::BTreeMap;
use std::io;
use std::mem;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicPtr, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::Waker;
use std::thread;

use runnext_sys::clock;
use runnext_sys::poll::Events;

use super::harvest::Harvest;
use super::hub::Hub;
use crate::sched::call::Call;
use crate::sched::shield::{self, Shielded};
use crate::sched::waker::{Slot, use_up};
use crate::swallow;

/// The hub of the futures that no runtime runs; its thread stays. In a process that was forked since there is no such thread, and another hub is
/// made.
pub(super) fn reactor() -> io::Result<Arc<Hub>> {
    static REACTOR: AtomicPtr<Arc<Hub>> = AtomicPtr::new(ptr::null_mut());
    static STARTING: Mutex<()> = Mutex::new(());
    // SAFETY: what is in it is never freed.
    let current = || unsafe { REACTOR.load(Acquire).as_ref() };
    let working = || current().filter(|hub| !hub.is_copy()).cloned();
    if let Some(hub) = working() {
        return Ok(hub);
    }
    let _one = shield::lock(&STARTING);
    if let Some(hub) = working() {
        return Ok(hub);
    }
    if current().is_some() {
        // Their wakers are for goroutines and threads of the other process: neither rung here nor dropped.
        mem::forget(mem::take(&mut alarms().list));
    }
    let hub = Arc::new(Hub::new()?);
    let own = Arc::clone(&hub);
    thread::Builder::new()
        .name("runnext-reactor".into())
        .spawn(move || react(&own))?;
    REACTOR.store(Box::into_raw(Box::new(Arc::clone(&hub))), Release);
    Ok(hub)
}

fn react(hub: &Hub) {
    let mut events = Events::new();
    loop {
        let pause = ring_due();
        hub.poll(&mut events, pause);
        let mut found = Harvest::new();
        found.gather(&events, None);
        found.wake_futures();
    }
}

/// When, and which of those at the same time.
type Key = (u64, u64);

/// The alarms that have not rung.
struct Alarms {
    list: BTreeMap<Key, Arc<Bell>>,
    /// How many there were.
    made: u64,
}

struct Bell {
    waker: Slot,
    rung: AtomicBool,
}

fn alarms() -> Shielded<'static, Alarms> {
    static ALARMS: Mutex<Alarms> = Mutex::new(Alarms {
        list: BTreeMap::new(),
        made: 0,
    });
    shield::lock(&ALARMS)
}

/// Rings all alarms whose time has come. How long until the next, if there is one.
fn ring_due() -> Option<u64> {
    loop {
        let bell = {
            let mut alarms = alarms();
            let first = alarms.list.first_entry()?;
            let (when, _) = *first.key();
            let now = clock::now_ns();
            if when > now {
                return Some(when - now);
            }
            first.remove()
        };
        bell.rung.store(true, Release);
        if let Some(waker) = bell.waker.take() {
            use_up(waker);
        }
        // Its future may have set another and gone since: then that waker is dropped here.
        swallow::panics(move || drop(bell));
    }
}

/// A moment at which the reactor rings a waker.
pub(crate) struct Alarm {
    key: Key,
    bell: Arc<Bell>,
}

impl Alarm {
    /// Rings `waker` at `when`. In user context.
    ///
    /// # Errors
    /// The reactor cannot be started.
    pub(crate) fn new(when: u64, waker: &Waker) -> io::Result<Alarm> {
        let hub = reactor()?;
        let bell = Arc::new(Bell {
            waker: Slot::new(),
            rung: AtomicBool::new(false),
        });
        bell.waker.set(waker);
        let (key, first) = {
            let mut alarms = alarms();
            alarms.made += 1;
            let key = (when, alarms.made);
            alarms.list.insert(key, Arc::clone(&bell));
            let first = alarms.list.first_key_value();
            (key, first.is_some_and(|(first, _)| *first == key))
        };
        if first {
            let _call = Call::brief(); // the hub's lock
            hub.notify();
        }
        Ok(Alarm { key, bell })
    }

    /// Whether its time has come. The waker is rung after that.
    pub(crate) fn has_rung(&self) -> bool {
        self.bell.rung.load(Acquire)
    }

    /// Rings this one instead. False: it has rung already.
    pub(crate) fn set_waker(&self, waker: &Waker) -> bool {
        self.bell.waker.set(waker);
        // After that: who rings now rings this one.
        !self.bell.rung.load(Acquire)
    }
}

impl Drop for Alarm {
    fn drop(&mut self) {
        let listed = alarms().list.remove(&self.key);
        drop(listed); // the waker is user code, perhaps
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::m;
    use crate::runtime::tests::runtime;

    /// A goroutine of a throttled group that was stopped with the lock kept the reactor's thread, and with it all who wait for that.
    #[test]
    fn who_has_the_lock_is_not_stopped() {
        runtime(1).run(|| {
            let m = m::current().unwrap();
            let held = alarms();
            assert!(m.is_shielded());
            drop(held);
            let held = m.shared().observe.session(); // for which who begins a span waits
            assert!(m.is_shielded());
            drop(held);
            assert!(!m.is_shielded());
        });
    }
}

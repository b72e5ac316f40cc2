//! What the kernel says of Ms' threads, asked through a few open files of `/proc`.
//!
//! # Why this shape
//! A file that is open is read in a third of the time that it takes to open it. But a file for each thread would be a descriptor for each
//! goroutine that blocks: a thousand of them, and the program could not open a socket. Only threads with a P are asked about, so a
//! small cache has nearly all answers. When no descriptor is left it closes one of its own to open another: threads are seen to block even then.
//!
//! # Context
//! Under its own lock, a leaf, for one system call, or three. Never allocates: it is the monitor who asks. An M that is asked about is alive
//! (`monitor`, I2).

use std::io::ErrorKind;

use runnext_sys::thread::StatReader;

use crate::lock::Lock;
use crate::m::M;

/// Files that may be open. A guess: enough for sixteen Ps whose threads take turns.
const OPEN: usize = 32;

pub(super) struct Gauges(Lock<Cache>);

struct Cache {
    /// By the M's number.
    entries: [Entry; OPEN],
    /// The runtime has stopped: nothing is opened any more.
    closed: bool,
}

struct Entry {
    /// Whose it is ([`M::serial`]).
    serial: u64,
    file: Option<StatReader>,
    /// It was asked since the last [`Gauges::tidy`].
    used: bool,
}

impl Entry {
    const FREE: Entry = Entry {
        serial: 0,
        file: None,
        used: false,
    };
}

impl Cache {
    fn file(&mut self, m: &M) -> Option<&StatReader> {
        if self.closed {
            return None;
        }
        let (tid, at) = (m.tid(), m.id as usize % OPEN);
        if self.entries[at].serial != m.serial || self.entries[at].file.is_none() {
            self.entries[at] = Entry::FREE; // closed first: there may be no more than this one
            self.entries[at].file = match StatReader::open(tid) {
                Ok(file) => Some(file),
                Err(e) if e.kind() == ErrorKind::NotFound => None, // it has not begun, or has ended
                Err(_) => {
                    let other = self.entries.iter_mut().find(|entry| entry.file.is_some());
                    *other? = Entry::FREE;
                    StatReader::open(tid).ok()
                }
            };
            self.entries[at].serial = m.serial;
        }
        self.entries[at].used = true;
        self.entries[at].file.as_ref()
    }
}

impl Gauges {
    pub(super) const fn new() -> Gauges {
        Gauges(Lock::new(Cache {
            entries: [Entry::FREE; OPEN],
            closed: false,
        }))
    }

    /// Closes what nobody has asked for since the last time.
    pub(super) fn tidy(&self) {
        for entry in &mut self.0.lock().entries {
            if !std::mem::take(&mut entry.used) {
                *entry = Entry::FREE;
            }
        }
    }

    /// Closes all, for good.
    pub(super) fn close(&self) {
        let mut cache = self.0.lock();
        cache.closed = true;
        cache.entries = [Entry::FREE; OPEN];
    }
}

impl M {
    /// The letter of its thread's state, as in `/proc`. None if it has ended, or nobody can say.
    pub(super) fn kernel_state(&self) -> Option<u8> {
        self.shared().gauges.0.lock().file(self)?.state()
    }

    /// The CPU its thread runs on, or waits for. None if it sleeps, or nobody can say.
    pub(super) fn computes_on(&self) -> Option<usize> {
        self.shared().gauges.0.lock().file(self)?.computes_on()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Runtime;
    use crate::m;

    /// Ms of the same place take each other's file away, and each is told of itself.
    #[test]
    fn each_is_told_of_itself() {
        // SAFETY: the goroutine keeps no reference into a thread-local over a runtime call.
        let rt = unsafe { Runtime::builder().procs(1).build() }.unwrap();
        rt.run(|| {
            let shared = m::current().unwrap().shared();
            let gauges = Gauges::new();
            let other = M::new(m::current().unwrap().id + OPEN as u32, shared); // no thread is that
            let mut cache = gauges.0.lock();
            let own = |cache: &mut Cache| cache.file(m::current().unwrap())?.state();
            assert_eq!(own(&mut cache), Some(b'R'));
            assert_eq!(cache.file(&other).and_then(StatReader::state), None);
            assert_eq!(own(&mut cache), Some(b'R'));
            let open = |cache: &Cache| cache.entries.iter().filter(|e| e.file.is_some()).count();
            assert_eq!(open(&cache), 1);
            drop(cache);
            gauges.tidy();
            assert_eq!(open(&gauges.0.lock()), 1, "it was asked since");
            gauges.tidy();
            assert_eq!(open(&gauges.0.lock()), 0);
            gauges.close();
            assert_eq!(own(&mut gauges.0.lock()), None);
        });
    }
}

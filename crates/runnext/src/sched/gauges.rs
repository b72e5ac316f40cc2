//! What the kernel says of Ms' threads, asked through a few open files of `/proc`.
//!
//! # Why this shape
//! A file that is open is read in a third of the time that it takes to open it. But a file for each thread would be a descriptor for each
//! goroutine that blocks: a thousand of them, and the program could not open a socket. Only threads with a P are asked about, so a
//! small cache has nearly all answers. When no descriptor is left it closes one of its own to open another: threads are seen to block even then.
//!
//! Where there is no `/proc` (a bare chroot), or none of the descriptors is ours, a thread whose CPU time stands still for [`STILL_NS`] is taken for
//! asleep. It may be ready and have no CPU; then it is robbed of its P too early, which costs time only (`monitor`). Else a goroutine in an unmarked system
//! call would keep its P for ever, and with it those whom it waits for.
//!
//! # Context
//! Under its own lock, a leaf, for one system call, or four. Never allocates: it is the monitor who asks. An M that is asked about is alive
//! (`monitor`, I2).

use std::io::ErrorKind;

use runnext_sys::clock;
use runnext_sys::thread::StatReader;

use crate::lock::Lock;
use crate::m::M;

/// Files that may be open. A guess: enough for sixteen Ps whose threads take turns.
const OPEN: usize = 32;
/// Without `/proc`: how long a thread uses no CPU time before it is taken for asleep. A guess: more than the kernel's usual turn on a busy CPU.
const STILL_NS: u64 = 4_000_000;

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
    /// Without a file: the CPU time of its thread, and since when it is that.
    cpu: u64,
    still_since: u64,
}

impl Entry {
    const FREE: Entry = Entry {
        serial: 0,
        file: None,
        used: false,
        cpu: 0,
        still_since: 0,
    };

    /// The state of a thread that has used so much CPU time by `now`, as far as that tells.
    fn guess(&mut self, cpu: u64, now: u64) -> u8 {
        if cpu != self.cpu {
            (self.cpu, self.still_since) = (cpu, now);
        }
        match now - self.still_since < STILL_NS {
            true => b'R',
            false => b'S',
        }
    }
}

impl Cache {
    fn file(&mut self, m: &M) -> Option<&StatReader> {
        if self.closed {
            return None;
        }
        let (tid, at) = (m.tid(), m.id as usize % OPEN);
        if self.entries[at].serial != m.serial {
            self.entries[at] = Entry::FREE; // closed first: there may be no more than this one
            self.entries[at].serial = m.serial;
        }
        if self.entries[at].file.is_none() {
            self.entries[at].file = match StatReader::open(tid) {
                Ok(file) => Some(file),
                Err(e) if e.kind() == ErrorKind::NotFound => None, // it has not begun, or has ended
                Err(_) => {
                    let other = self.entries.iter_mut().find(|entry| entry.file.is_some());
                    other?.file = None;
                    StatReader::open(tid).ok()
                }
            };
        }
        self.entries[at].used = true;
        self.entries[at].file.as_ref()
    }

    fn state(&mut self, m: &M) -> Option<u8> {
        if let Some(file) = self.file(m) {
            return file.state();
        }
        let entry = &mut self.entries[m.id as usize % OPEN];
        let known = entry.serial == m.serial && !self.closed;
        known.then(|| Some(entry.guess(m.cpu_ns()?, clock::now_ns())))?
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
    /// The letter of its thread's state, as in `/proc`, or the guess that stands in for it. None if it has ended, or nobody can say.
    pub(super) fn kernel_state(&self) -> Option<u8> {
        self.shared().gauges.0.lock().state(self)
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

    /// One that has just used its CPU is not asleep; nor is one that has not for a moment.
    #[test]
    fn without_a_file_cpu_time_that_stands_still_is_sleep() {
        let mut entry = Entry::FREE;
        let asked = [
            (5, 10, b'R'),
            (5, 10 + STILL_NS - 1, b'R'),
            (5, 10 + STILL_NS, b'S'),
            (6, 11 + STILL_NS, b'R'),
            (6, 10 + 2 * STILL_NS, b'R'),
            (6, 11 + 2 * STILL_NS, b'S'),
        ];
        for (cpu, now, state) in asked {
            assert_eq!(entry.guess(cpu, now), state, "{cpu} at {now}");
        }
    }
}

//! Which `go` starts goroutines that run on and on.
//!
//! Each new goroutine is presumed light, and left alone for its first millisecond: of 200 that compute each kept a timer waiting once. So what was found out about one counts
//! for those that are started at the same place, as long as they are all of a kind: [`SURE`] in a row ran on and on, and none since then has waited or
//! ended before anybody stopped it. Who is presumed to be a hog may be stopped sooner, and nothing else.
//!
//! # Context
//! Guesses, by anybody: a signal handler, and the monitor, too. Two places may share an entry, and one forgets the other.

use std::panic::Location;
use std::ptr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

/// So many in a row. Two may be chance.
const SURE: u64 = 3;
/// The number of entries. A program has few places that start hogs.
const SIZE: usize = 64;
/// The bits of an entry for the hogs in a row; above them is the address of the place.
const COUNT: u32 = 8;

pub(crate) struct Sites {
    /// Some entry is not 0.
    any: AtomicBool,
    entries: [AtomicU64; SIZE],
}

/// Its entry, and what stands there without the count.
#[inline]
fn find(site: &'static Location<'static>) -> (usize, u64) {
    let address = ptr::from_ref(site).addr() as u64;
    let spread = address.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    ((spread >> 32) as usize % SIZE, address << COUNT)
}

impl Sites {
    pub(crate) fn new() -> Sites {
        Sites {
            any: AtomicBool::new(false),
            entries: [const { AtomicU64::new(0) }; SIZE],
        }
    }

    /// One that was started there, and has never waited, ran on until it was stopped.
    pub(super) fn saw_hog(&self, site: &'static Location<'static>) {
        let (i, place) = find(site);
        let before = self.entries[i].load(Relaxed);
        let count = match before >> COUNT == place >> COUNT {
            true => (before + 1 - place).min(SURE),
            false => 1,
        };
        self.entries[i].store(place | count, Relaxed);
        self.any.store(true, Relaxed);
    }

    /// One that was started there has waited, or ended, before it was stopped.
    #[inline(always)] // at every end: one load where there are no hogs
    pub(crate) fn saw_light(&self, site: impl FnOnce() -> &'static Location<'static>) {
        if self.any.load(Relaxed) {
            self.forget(site());
        }
    }

    #[cold]
    fn forget(&self, site: &'static Location<'static>) {
        let (i, place) = find(site);
        if self.entries[i].load(Relaxed) >> COUNT == place >> COUNT {
            self.entries[i].store(0, Relaxed);
            let any = self.entries.iter().any(|entry| entry.load(Relaxed) != 0);
            self.any.store(any, Relaxed);
        }
    }

    /// Whether those that are started there run on and on.
    pub(crate) fn start_hogs(&self, site: &'static Location<'static>) -> bool {
        let (i, place) = find(site);
        self.any.load(Relaxed) && self.entries[i].load(Relaxed) == place | SURE
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[track_caller]
    fn here() -> &'static Location<'static> {
        Location::caller()
    }

    #[test]
    fn several_in_a_row_tell_and_one_that_is_light_takes_it_back() {
        let (sites, heavy, other) = (Sites::new(), here(), here());
        for _ in 1..SURE {
            sites.saw_hog(heavy);
            assert!(!sites.start_hogs(heavy));
        }
        sites.saw_hog(heavy);
        sites.saw_hog(heavy);
        assert!(sites.start_hogs(heavy) && !sites.start_hogs(other));
        sites.saw_light(|| other);
        assert!(sites.start_hogs(heavy));
        sites.saw_light(|| heavy);
        assert!(!sites.start_hogs(heavy) && !sites.any.load(Relaxed));
        sites.saw_hog(heavy);
        sites.saw_light(|| heavy);
        sites.saw_hog(heavy);
        sites.saw_hog(heavy);
        assert!(!sites.start_hogs(heavy));
    }
}

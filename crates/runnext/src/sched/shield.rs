//! Locks of `std` that the runtime takes in user context, and under which no goroutine is made to stop.
//!
//! # Why this shape
//! What allocates under a lock cannot be in RT, so it uses a lock of `std`, for which others wait with their threads. A goroutine that is stopped
//! while it has one keeps them all waiting until it goes on: one of a throttled group for seconds. So it is not stopped: as in a
//! call, a note stays where it is, and is read when the last such lock is released. These sections are short, and bounded.
//! Rejected: counting them among the locks of `sync`, whose owners run on for a while: who locks again and again is stopped in the middle of
//! another section.
//!
//! # Context
//! User context; on a plain thread it is the lock alone. Whoever has such a lock enters no call: if the runtime stops, one may not return.

use std::ops::{Deref, DerefMut};
use std::sync::{Mutex, MutexGuard};

use super::call::checkpoint_here;
use crate::m::{self, M};

/// A lock that is held, and shields its owner.
pub(crate) struct Shielded<'a, T> {
    guard: MutexGuard<'a, T>, // released before what follows is dropped
    _shield: Shield,
}

/// Takes the lock. A panic under it leaves nothing half-way: no user code runs there.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> Shielded<'_, T> {
    let shield = Shield::raise();
    Shielded {
        guard: mutex.lock().unwrap_or_else(|e| e.into_inner()),
        _shield: shield,
    }
}

impl<T> Deref for Shielded<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        &self.guard
    }
}

impl<T> DerefMut for Shielded<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.guard
    }
}

/// The M cannot change meanwhile: its goroutine neither makes calls nor is stopped.
struct Shield(Option<&'static M>);

impl Shield {
    fn raise() -> Shield {
        let m = m::current();
        if let Some(m) = m {
            m.raise_shield();
        }
        Shield(m)
    }
}

impl Drop for Shield {
    fn drop(&mut self) {
        if let Some(m) = self.0
            && m.lower_shield()
        {
            checkpoint_here();
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering::*};
    use std::time::Duration;

    use super::*;
    use crate::{Runtime, go};

    #[test]
    fn who_has_a_lock_is_stopped_when_it_releases_the_last() {
        let one = Runtime::builder().procs(1);
        let often = one.time_slice(Duration::from_millis(1));
        // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
        let rt = unsafe { often.build() }.unwrap();
        rt.run(|| {
            let ran = Arc::new(AtomicU32::new(0));
            // Two: the second is in `runnext`, and queues up behind us when our slice is used up.
            let others = [(); 2].map(|()| {
                let ran = Arc::clone(&ran);
                go(move || ran.fetch_add(1, Relaxed))
            });
            let (outer, inner) = (Mutex::new(()), Mutex::new(()));
            let held = lock(&outer);
            drop(lock(&inner));
            let cpu = || m::current().and_then(M::cpu_ns);
            let begin = cpu();
            while cpu() < begin.map(|ns| ns + 20_000_000) {}
            let before = ran.load(Relaxed);
            drop(held);
            let after = ran.load(Relaxed);
            assert!(before == 0 && after > 0, "{before}, then {after}");
            others.into_iter().for_each(|other| drop(other.join()));
        });
    }
}

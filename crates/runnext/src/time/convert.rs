//! Moments of the standard library and ours.
//!
//! Both count the system's monotonic clock, but std does not say from when. Reading both clocks tells the difference, to within the
//! time a reading takes; it is found out once, so that each moment has one counterpart, and their order is the same.

use std::sync::OnceLock;

use super::Instant;

/// A moment of both clocks.
static SAME: OnceLock<(Instant, std::time::Instant)> = OnceLock::new();

fn same() -> (Instant, std::time::Instant) {
    // Of many tries the shortest; what std shows then lies in the middle.
    let once = |_| {
        let before = Instant::now();
        let there = std::time::Instant::now();
        let took = before.elapsed();
        (took, before + took / 2, there)
    };
    *SAME.get_or_init(|| {
        let tries = (0..64).map(once);
        let (_, here, there) = tries.min_by_key(|&(took, ..)| took).expect("some");
        (here, there)
    })
}

impl Instant {
    /// The same moment for the standard library. *Never* becomes one centuries away.
    ///
    /// # Example
    /// ```
    /// let here = runnext::time::Instant::now();
    /// let there = here.into_std();
    /// assert_eq!(runnext::time::Instant::from(there), here);
    /// ```
    pub fn into_std(self) -> std::time::Instant {
        let (here, there) = same();
        match self.checked_duration_since(here) {
            Some(ahead) => there + ahead,
            None => {
                let ago = here.duration_since(self);
                there.checked_sub(ago).unwrap_or(there)
            }
        }
    }
}

impl From<Instant> for std::time::Instant {
    fn from(here: Instant) -> std::time::Instant {
        here.into_std()
    }
}

impl From<std::time::Instant> for Instant {
    fn from(moment: std::time::Instant) -> Instant {
        let (here, there) = same();
        match moment.checked_duration_since(there) {
            Some(ahead) => here + ahead,
            None => here - there.duration_since(moment),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    const S: Duration = Duration::from_secs(1);

    #[test]
    fn std_and_back() {
        let now = Instant::now();
        for t in [now, now + S, now - Duration::from_millis(1), now + 1000 * S] {
            assert_eq!(t.into_std(), t.into_std());
            assert_eq!(Instant::from(t.into_std()), t);
        }
        let _ = (now + Duration::MAX).into_std();
        let _ = (now - Duration::MAX).into_std();
    }

    #[test]
    fn the_order_is_the_same() {
        for _ in 0..1000 {
            let before = Instant::now();
            let there = std::time::Instant::now();
            let after = Instant::now();
            // A reading takes longer than the clocks are apart.
            assert!(before.into_std() <= there && there <= after.into_std());
            assert!(before <= Instant::from(there) && Instant::from(there) <= after);
        }
    }
}

//! Moments of the standard library and ours.
//!
//! Both count the system's monotonic clock, but std does not say from when: reading both clocks tells the difference.

use super::Instant;

impl Instant {
    /// The same moment for the standard library. *Never* becomes one centuries away.
    ///
    /// # Example
    /// ```
    /// let here = runnext::time::Instant::now();
    /// let there = here.into_std();
    /// assert_eq!(runnext::time::Instant::from(there).duration_since(here).as_millis(), 0);
    /// ```
    pub fn into_std(self) -> std::time::Instant {
        let (now, std_now) = (Instant::now(), std_now());
        match self.checked_duration_since(now) {
            Some(ahead) => std_now + ahead,
            None => {
                let ago = now.duration_since(self);
                std_now.checked_sub(ago).unwrap_or(std_now)
            }
        }
    }
}

fn std_now() -> std::time::Instant {
    std::time::Instant::now()
}

impl From<Instant> for std::time::Instant {
    fn from(here: Instant) -> std::time::Instant {
        here.into_std()
    }
}

impl From<std::time::Instant> for Instant {
    fn from(there: std::time::Instant) -> Instant {
        let (now, std_now) = (Instant::now(), std_now());
        match there.checked_duration_since(std_now) {
            Some(ahead) => now + ahead,
            None => now - std_now.duration_since(there),
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
            let back = Instant::from(t.into_std());
            let off = back.duration_since(t).max(t.duration_since(back));
            assert!(off < S, "{off:?} between the two clocks"); // they are read one after the other
        }
        let _ = (now + Duration::MAX).into_std();
        let _ = (now - Duration::MAX).into_std();
    }
}

//! How much of a CPU the monitor may use.
//!
//! # Why this shape
//! The monitor has precedence over all other threads. On a busy machine, a thread that is asked to end its turn or to give way can do so only
//! when it gets a CPU. If the monitor's own looks keep the CPU from it, the monitor waits for something that it prevents, and keeps looking. So
//! it has a budget: it may look at once until it has used [`SAVED`]; from then on, looks are spaced so that it uses no more than one CPU
//! in [`PART`]. A thread that pokes the monitor is served at once in any case: such a thread has a CPU.

/// One CPU in so many.
const PART: u64 = 4;
/// What it may use at once when it has rested, in ns.
const SAVED: u64 = 1_000_000;
/// A look that lasts longer was stopped by the machine itself, in ns.
const LONGEST: u64 = 200_000;

/// See the [module](self).
pub(super) struct Allowance {
    /// What it may still use, in ns, and when that was. Below zero what it has used too much of.
    left: i64,
    at: u64,
}

impl Allowance {
    pub(super) fn new() -> Allowance {
        Allowance {
            left: SAVED as i64,
            at: 0,
        }
    }

    /// A look is over. Not before the time returned there may be another.
    pub(super) fn spend(&mut self, began: u64, ended: u64) -> u64 {
        let rested = began.saturating_sub(self.at) / PART;
        let used = ended.saturating_sub(began).min(LONGEST);
        let saved = self.left.saturating_add_unsigned(rested).min(SAVED as i64);
        self.left = (saved - used as i64).max(-(LONGEST as i64)); // looks that others asked for are not held against it for long
        self.at = began;
        match u64::try_from(-self.left) {
            Ok(owed) => began + owed * PART,
            Err(_) => 0,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LOOK: u64 = 100_000;

    /// Looks of the same length, each as soon as it may be, or after `pause`: how many there are in a second.
    fn looks(pause: u64) -> u64 {
        let (mut allowance, mut now, mut looks) = (Allowance::new(), 0, 0);
        while now < 1_000_000_000 {
            let may = allowance.spend(now, now + LOOK);
            (now, looks) = (may.max(now + LOOK + pause), looks + 1);
        }
        looks
    }

    #[test]
    fn it_uses_no_more_than_its_part() {
        let most = 1_000_000_000 / LOOK / PART;
        let at_once = SAVED / LOOK;
        let found = looks(0);
        assert!((most..=most + at_once + 1).contains(&found), "{found}");
    }

    /// Who is asked often by others comes back by itself all the same.
    #[test]
    fn what_others_ask_for_is_soon_forgotten() {
        let mut asked = Allowance::new();
        let may = (0..1_000u64).map(|n| asked.spend(n * LOOK, (n + 1) * LOOK));
        let last = 999 * LOOK;
        assert!(may.last().is_some_and(|may| may <= last + LONGEST * PART));
    }

    #[test]
    fn who_looks_rarely_is_never_held_up() {
        assert_eq!(looks(3 * LOOK), 1_000_000_000 / (4 * LOOK));
        let mut rested = Allowance::new();
        let late = 1_000_000_000;
        assert_eq!(rested.spend(late, late + LOOK), 0);
        // The machine stood still in the middle of one.
        assert!(rested.spend(late + LOOK, 2 * late) < late + 10 * LOOK);
    }
}

//! The order in which a thief visits its victims: a random start, then a random step that shares no factor
//! with their number.
//!
//! # Why this shape
//! Such a walk meets each of `n` once and ends where it began, in a random-looking order, with no memory but two
//! numbers. Rejected: random picks (some are asked twice, others not at all, so "nothing anywhere" is never
//! sure); a fixed order from a random start (thieves queue up behind each other at the same victim); a
//! shuffle (memory and n dice per search).
//!
//! # Context
//! Only construction allocates. Read-only afterwards, so all Ps share one. Tests: below.

/// The victim orders for a fixed number of Ps.
#[derive(Clone, Debug)]
pub struct StealOrder {
    n: u32,
    /// The numbers of `1..=n` that share no factor with `n`.
    steps: Box<[u32]>,
}

impl StealOrder {
    /// The orders over `0..n`.
    ///
    /// # Panics
    /// If `n` is 0, or does not fit in 31 bits.
    pub fn new(n: usize) -> StealOrder {
        let n = u32::try_from(n).expect("more Ps than fit in 31 bits");
        assert!(
            (1..1 << 31).contains(&n),
            "a runtime has at least one P, and fewer than 2^31"
        );
        StealOrder {
            n,
            steps: (1..=n).filter(|&step| gcd(n, step) == 1).collect(),
        }
    }

    /// How many are visited.
    pub fn len(&self) -> usize {
        self.n as usize
    }

    /// Never: there is at least one P.
    pub fn is_empty(&self) -> bool {
        false
    }

    /// A walk over `0..n`, each number once, chosen by `rand`. All starts and steps are as likely as each other.
    #[inline]
    pub fn start(&self, rand: u32) -> Walk {
        let step = self.steps[(rand / self.n) as usize % self.steps.len()];
        Walk {
            at: rand % self.n,
            step,
            n: self.n,
            left: self.n,
        }
    }
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

/// One walk over all victims. See [`StealOrder::start`].
#[derive(Clone, Debug)]
pub struct Walk {
    at: u32,
    step: u32,
    n: u32,
    left: u32,
}

impl Iterator for Walk {
    type Item = usize;

    #[inline]
    fn next(&mut self) -> Option<usize> {
        self.left = self.left.checked_sub(1)?;
        let here = self.at;
        // Both are at most n < 2^31, so one subtraction does for the remainder.
        self.at += self.step;
        if self.at >= self.n {
            self.at -= self.n;
        }
        Some(here as usize)
    }

    #[inline]
    fn size_hint(&self) -> (usize, Option<usize>) {
        (self.left as usize, Some(self.left as usize))
    }
}

impl ExactSizeIterator for Walk {}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn every_walk_visits_each_victim_once() {
        for n in (1..=64).chain([100, 1023, 1024]) {
            let order = StealOrder::new(n);
            let walks = n * order.steps.len();
            for rand in (0..walks).step_by(walks.div_ceil(2000)) {
                let mut seen = vec![false; n];
                for victim in order.start(rand as u32) {
                    assert!(
                        !std::mem::replace(&mut seen[victim], true),
                        "n={n} rand={rand}: twice {victim}"
                    );
                }
                assert!(seen.iter().all(|&s| s), "n={n} rand={rand}");
            }
        }
    }

    #[test]
    fn start_and_step_do_not_repeat() {
        for n in 1..=64 {
            let order = StealOrder::new(n);
            let walks = (n * order.steps.len()) as u32;
            let pairs: BTreeSet<_> = (0..walks)
                .map(|rand| order.start(rand))
                .map(|walk| (walk.at, walk.step))
                .collect();
            assert_eq!(pairs.len(), walks as usize, "n={n}");
        }
    }

    #[test]
    #[should_panic(expected = "at least one P")]
    fn no_ps() {
        StealOrder::new(0);
    }
}

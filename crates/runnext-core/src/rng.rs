//! The dice of the scheduler: small, seeded, the same numbers for the same seed on every machine.
//!
//! # Why this shape
//! Every choice left to chance (whom to rob first, which `select!` case, chaos mode) rolls one of these, so
//! choices replay from a seed. One per P, so rolling takes no atomics. The
//! generator is splitmix64: eight bytes, no bad seeds, and neighbouring seeds give unrelated streams, so
//! `seed + p` is a fine seed for P number `p`. Rejected: xorshift (zero is a fixed point, near seeds start alike);
//! `std`'s `RandomState` (not replayable).
//!
//! Not for secrets. Tests: below.

/// A seeded source of random numbers.
#[derive(Clone, Debug)]
pub struct Dice(u64);

impl Dice {
    /// Dice that always roll the same numbers for the same seed.
    pub const fn new(seed: u64) -> Dice {
        Dice(seed)
    }

    /// 64 random bits.
    #[inline]
    pub fn u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut x = self.0;
        x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        x ^ (x >> 31)
    }

    /// 32 random bits.
    #[inline]
    pub fn u32(&mut self) -> u32 {
        (self.u64() >> 32) as u32
    }

    /// A number from 0 to `n - 1`; 0 for `n` = 0.
    ///
    /// By multiplication, without rejection: a value is at most `n / 2^32` more likely than another.
    #[inline]
    pub fn below(&mut self, n: u32) -> u32 {
        ((u64::from(self.u32()) * u64::from(n)) >> 32) as u32
    }
}

#[cfg(all(test, not(loom)))]
mod tests {
    use super::*;

    #[test]
    fn same_seed_same_numbers() {
        let (mut a, mut b) = (Dice::new(7), Dice::new(7));
        assert!((0..100).all(|_| a.u64() == b.u64()));
        // The published first output of splitmix64 for seed 0: the streams are part of what replays.
        assert_eq!(Dice::new(0).u64(), 0xe220_a839_7b1d_cdaf);
    }

    #[test]
    fn neighbouring_seeds_differ() {
        let firsts: std::collections::BTreeSet<_> = (0..1000).map(|s| Dice::new(s).u32()).collect();
        assert!(firsts.len() > 995);
    }

    #[test]
    fn below_is_in_range_and_even() {
        let mut dice = Dice::new(1);
        for n in [1, 2, 3, 6, 61] {
            let mut hits = vec![0u32; n as usize];
            for _ in 0..n * 1000 {
                hits[dice.below(n) as usize] += 1;
            }
            // 1000 expected, standard deviation below 32: six of them.
            assert!(
                hits.iter().all(|h| (810..1190).contains(h)),
                "{n}: {hits:?}"
            );
        }
        assert_eq!(dice.below(0), 0);
    }
}

//! Work, dice and the clock.

use std::hint::black_box;
use std::time::Duration;

/// Burns CPU: a fixed number of dependent steps, so that losing the CPU costs time. About 1.9 ns each; the runner
/// measures it once and tells every program how many steps a millisecond has.
#[inline(never)]
pub fn work(steps: u64) {
    black_box(stir(black_box(0x9e37_79b9_7f4a_7c15), steps));
}

/// The steps themselves (xorshift), for loops that carry their state from turn to turn.
#[inline]
pub fn stir(mut x: u64, steps: u64) -> u64 {
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    x
}

/// `CLOCK_MONOTONIC` in nanoseconds.
pub fn now_ns() -> u64 {
    let mut t = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `t` is a valid place for the result, and the clock always exists.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &mut t) };
    t.tv_sec as u64 * 1_000_000_000 + t.tv_nsec as u64
}

/// Computes, without a call into any runtime, until `span` has passed.
pub fn spin_for(span: Duration) {
    let end = now_ns() + span.as_nanos() as u64;
    while now_ns() < end {
        std::hint::spin_loop();
    }
}

/// SplitMix64: tiny, seedable, the same in Rust and in Go.
#[derive(Clone, Debug)]
pub struct Rng(u64);

impl Rng {
    /// The generator of this seed.
    pub fn new(seed: u64) -> Rng {
        Rng(seed)
    }

    /// The next 64 bits.
    pub fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number in (0, 1].
    pub fn unit(&mut self) -> f64 {
        ((self.bits() >> 11) + 1) as f64 / (1_u64 << 53) as f64
    }

    /// A sleep of the `timers` scenario: 1 to 50 ms.
    pub fn sleep(&mut self) -> Duration {
        Duration::from_micros(1_000 + self.bits() % 49_000)
    }
}

#[cfg(test)]
mod tests {
    use super::Rng;

    #[test]
    fn dice_are_the_published_ones() {
        // The first outputs of SplitMix64 for seed 0; the Go program relies on the same.
        let mut dice = Rng::new(0);
        assert_eq!(dice.bits(), 0xe220_a839_7b1d_cdaf);
        assert_eq!(dice.bits(), 0x6e78_9e6a_a1b9_65f4);
    }
}

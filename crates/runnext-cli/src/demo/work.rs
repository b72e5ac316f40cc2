//! What requests make the server compute: a number of steps that take the same CPU time everywhere in a run.

use std::hint::black_box;
use std::time::Instant;

/// CPU time of a light request.
pub const LIGHT_US: u64 = 50;
/// CPU time of a heavy request.
pub const HEAVY_US: u64 = 30_000;

/// Computes for `steps` steps, without a call that could give way.
pub fn burn(steps: u64) -> u64 {
    let mut x = black_box(0x9e37_79b9_7f4a_7c15u64);
    for _ in 0..steps {
        x ^= x << 13;
        x ^= x >> 7;
        x ^= x << 17;
    }
    black_box(x)
}

/// Steps in a microsecond: the most of many tries, so that what others take from us does not make the work smaller.
pub fn calibrate() -> f64 {
    const STEPS: u64 = 1_000_000;
    let once = || {
        let begin = Instant::now();
        burn(STEPS);
        STEPS as f64 / (begin.elapsed().as_nanos() as f64 / 1e3)
    };
    (0..50).map(|_| once()).fold(0.0, f64::max)
}

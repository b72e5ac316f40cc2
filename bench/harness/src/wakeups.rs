//! How soon another processor takes what a task that goes on computing has made runnable.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use crate::{Args, Report, now_ns, spin_for};

/// Computes for `gap_us`, calls `wake`, and goes on computing until the other has stored the time in `ran`; gives way if that takes too
/// long. For runtimes whose yield is a function.
pub fn wakeups(args: &Args, ran: &AtomicU64, mut wake: impl FnMut(), mut yield_now: impl FnMut()) {
    let gap = Duration::from_micros(args.get("gap_us", 1_000));
    let (mut late, mut missed) = (Vec::new(), 0);
    for _ in 0..args.get("samples", 1_000) {
        spin_for(gap);
        ran.store(0, Ordering::Relaxed);
        let begin = now_ns();
        wake();
        while ran.load(Ordering::Acquire) == 0 && now_ns() < begin + 20_000_000 {
            std::hint::spin_loop();
        }
        missed += u32::from(ran.load(Ordering::Acquire) == 0);
        while ran.load(Ordering::Acquire) == 0 {
            yield_now();
        }
        late.push((ran.load(Ordering::Acquire) - begin) as f64 / 1e3);
    }
    Report::new("wakeup")
        .percentiles("us_", &mut late)
        .put("missed", f64::from(missed))
        .print();
}

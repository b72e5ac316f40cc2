//! What is seen of starting and stopping from inside only.

use std::time::Duration;

use super::Runtime;

/// Who wakes the last goroutine of a runtime from outside may still be at work in it when that one has ended.
#[test]
fn a_runtime_waits_for_strangers_in_it() {
    // SAFETY: no goroutine runs.
    let rt = unsafe { Runtime::builder().procs(1).build() }.unwrap();
    let shared = std::sync::Arc::clone(&rt.shared);
    let visit = shared.visit();
    std::thread::scope(|s| {
        let stopping = s.spawn(move || drop(rt));
        while std::sync::Arc::strong_count(&shared) > 3 {
            std::thread::yield_now(); // its threads hold it until they have ended
        }
        std::thread::sleep(Duration::from_millis(20));
        assert!(!stopping.is_finished());
        drop(visit);
        stopping.join().unwrap();
    });
}

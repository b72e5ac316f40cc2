//! What is seen of starting and stopping from inside only.

use std::time::Duration;

use super::Runtime;

/// A runtime for unit tests, none of which keeps a thread-local borrowed over a call that can park.
pub(crate) fn runtime(procs: usize) -> Runtime {
    // SAFETY: see above.
    unsafe { Runtime::builder().procs(procs).build() }.expect("a runtime starts")
}

/// What its threads share.
pub(crate) fn shared_of(rt: &Runtime) -> &std::sync::Arc<crate::sched::Shared> {
    &rt.shared
}

/// A thread that wakes the last goroutine of a runtime from outside may still be at work in it when that goroutine has ended.
#[test]
fn a_runtime_waits_for_strangers_in_it() {
    let rt = runtime(1);
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

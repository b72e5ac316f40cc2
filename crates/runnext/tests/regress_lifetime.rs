//! Bugs of the end of goroutines: who takes their results, who drops what they leave, how many there were.

mod common;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use common::{Counted, built, message};
use runnext::{Runtime, block_on, go};

/// One P and no preemption: who runs when is a fact.
fn alone() -> Runtime {
    built(Runtime::builder().procs(1).preemption(false))
}

fn drops() -> Arc<AtomicUsize> {
    Arc::default()
}

// ---- results are taken once ----

/// `join` gave the result of a handle that had been awaited a second time: two owners of one value.
#[test]
fn a_handle_that_was_awaited_has_no_result_for_join() {
    alone().run(|| {
        let drops = drops();
        let counted = Counted::new(&drops);
        let mut job = go(move || counted);
        let first = block_on(&mut job).unwrap();
        let second = catch_unwind(AssertUnwindSafe(move || job.join()));
        match second {
            Ok(again) => {
                std::mem::forget(again); // not ours to drop
                panic!("it gave its result twice");
            }
            Err(payload) => assert!(message(&*payload).contains("gives its result once")),
        }
        assert_eq!(drops.load(SeqCst), 0);
        drop(first);
        assert_eq!(drops.load(SeqCst), 1);
    });
}

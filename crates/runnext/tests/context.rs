//! Contexts: who ends whom, and when.

mod common;

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{runtime, until};
use runnext::chan::TryRecvError;
use runnext::context::{Context, ContextError};
use runnext::time::{self, Instant};
use runnext::{go, scope, select};

const MS: Duration = Duration::from_millis(1);
const HOUR: Duration = Duration::from_secs(3600);

fn is_done(ctx: &Context) -> bool {
    ctx.done().try_recv() == Err(TryRecvError::Disconnected)
}

#[test]
fn the_background_never_ends() {
    let ctx = Context::background();
    ctx.cancel();
    assert_eq!((ctx.err(), ctx.deadline()), (None, None));
    assert!(!is_done(&ctx));
    assert!(ctx.done().recv_timeout(MS).is_err());
    assert!(!is_done(&Context::default()));
    assert_eq!(format!("{ctx:?}"), "Context(background)");
}

#[test]
fn cancellation_goes_down_and_not_up() {
    let root = Context::background().with_cancel();
    let left = root.with_cancel();
    let right = root.with_timeout(HOUR);
    let below = left.with_deadline(Instant::now() + HOUR);
    left.clone().cancel();
    for ended in [&left, &below] {
        assert_eq!(ended.err(), Some(ContextError::Canceled));
        assert!(is_done(ended));
    }
    for alive in [&root, &right] {
        assert_eq!(alive.err(), None);
        assert!(!is_done(alive));
    }
    let late = below.with_cancel();
    assert!(is_done(&late) && late.err().is_some());
    root.cancel();
    root.cancel();
    assert_eq!(right.err(), Some(ContextError::Canceled));
    assert_eq!(right.deadline().map(|t| t > Instant::now()), Some(true));
}

#[test]
fn dropping_does_not_cancel() {
    let root = Context::background().with_cancel();
    let child = root.with_cancel();
    drop(root);
    assert_eq!(child.err(), None);
    assert!(!is_done(&child));
    let grandchild = child.with_cancel();
    drop(child);
    assert!(!is_done(&grandchild));
}

#[test]
fn a_deadline_ends_it_and_all_below() {
    for procs in [1, 2] {
        runtime(procs).run(|| {
            let start = Instant::now();
            let ctx = Context::background().with_timeout(5 * MS);
            let child = ctx.with_timeout(HOUR);
            let grandchild = child.with_cancel();
            assert_eq!(grandchild.deadline(), ctx.deadline());
            assert!(grandchild.done().recv().is_err());
            assert!(start.elapsed() >= 5 * MS);
            for ended in [&ctx, &child, &grandchild] {
                assert!(is_done(ended));
                assert_eq!(ended.err(), Some(ContextError::DeadlineExceeded));
                ended.cancel();
                assert_eq!(ended.err(), Some(ContextError::DeadlineExceeded));
            }
        });
    }
}

#[test]
fn canceled_before_the_deadline_stays_canceled() {
    let ctx = loop {
        let ctx = Context::background().with_timeout(5 * MS);
        ctx.cancel();
        if Instant::now() < ctx.deadline().unwrap() {
            break ctx;
        }
    };
    time::sleep_until(ctx.deadline().unwrap() + MS);
    assert_eq!(ctx.err(), Some(ContextError::Canceled));
}

#[test]
fn a_deadline_that_has_passed() {
    let ctx = Context::background().with_deadline(Instant::now());
    assert!(is_done(&ctx));
    assert_eq!(ctx.err(), Some(ContextError::DeadlineExceeded));
    let child = ctx.with_cancel();
    assert_eq!(child.err(), Some(ContextError::DeadlineExceeded));
    let endless = Context::background().with_timeout(Duration::MAX);
    assert_eq!((endless.err(), endless.deadline()), (None, None));
}

#[test]
fn everyone_who_waits_is_woken() {
    for procs in [1, 4] {
        runtime(procs).run(|| {
            let root = Context::background().with_cancel();
            let (waiting, woken) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
            scope(|s| {
                for i in 0..200 {
                    let ctx = match i % 3 {
                        0 => root.clone(),
                        1 => root.with_cancel(),
                        _ => root.with_timeout(HOUR).with_cancel(),
                    };
                    let (waiting, woken) = (&waiting, &woken);
                    s.go(move || {
                        waiting.fetch_add(1, SeqCst);
                        if i % 2 == 0 {
                            assert!(ctx.done().recv().is_err());
                        } else {
                            select! {
                                recv(ctx.done()) -> end => assert!(end.is_err()),
                                recv(runnext::chan::after(HOUR)) -> _ => unreachable!(),
                            }
                        }
                        assert_eq!(ctx.err(), Some(ContextError::Canceled));
                        woken.fetch_add(1, SeqCst);
                    });
                }
                until(|| waiting.load(SeqCst) == 200);
                time::sleep(MS);
                assert_eq!(woken.load(SeqCst), 0);
                root.cancel();
            });
            assert_eq!(woken.load(SeqCst), 200);
        });
    }
}

#[test]
fn done_and_err_agree() {
    runtime(4).run(|| {
        for i in 0..200 {
            let root = Context::background().with_timeout(MS * (i % 3));
            let child = root.with_cancel();
            let canceler = {
                let root = root.clone();
                go(move || root.cancel())
            };
            // Whichever is seen first, the other holds too.
            while child.err().is_none() {
                if is_done(&child) {
                    assert!(child.err().is_some());
                }
                runnext::yield_now();
            }
            assert!(is_done(&child));
            let why = child.err();
            canceler.join().unwrap();
            assert_eq!(child.err(), why, "the reason does not change");
        }
    });
}

#[test]
fn children_come_and_go_while_it_ends() {
    for procs in [1, 4] {
        runtime(procs).run(|| {
            for _ in 0..50 {
                let root = Context::background().with_cancel();
                scope(|s| {
                    for _ in 0..8 {
                        let root = &root;
                        s.go(move || {
                            while root.err().is_none() {
                                let child = root.with_cancel();
                                drop(root.with_timeout(HOUR).with_cancel());
                                let last = child.with_cancel();
                                drop(child);
                                if root.err().is_some() {
                                    // It was made before, or found the end.
                                    assert!(last.done().recv().is_err());
                                }
                                runnext::yield_now();
                            }
                        });
                    }
                    time::sleep(MS / 4);
                    root.cancel();
                });
            }
        });
    }
}

#[test]
fn a_long_chain() {
    let root = Context::background().with_cancel();
    let mut end = root.clone();
    for _ in 0..100_000 {
        end = end.with_cancel();
    }
    root.cancel();
    assert_eq!(end.err(), Some(ContextError::Canceled));
    drop(end);
}

#[test]
fn a_done_that_outlives_its_context_is_closed() {
    let root = Context::background().with_cancel();
    let child = root.with_cancel().done();
    let in_time = root.with_timeout(HOUR).with_timeout(HOUR).done();
    let below = {
        let middle = root.with_cancel();
        let below = middle.with_cancel().with_cancel().done();
        assert!(!below.is_closed());
        below // and nobody has `middle`
    };
    let kept = root.with_cancel();
    let below_kept = kept.with_cancel().done();
    for done in [&child, &in_time, &below, &below_kept] {
        assert!(!done.is_closed());
    }
    kept.cancel();
    assert!(below_kept.is_closed() && !below.is_closed());
    root.cancel();
    for done in [child, in_time, below] {
        assert_eq!(done.try_recv(), Err(TryRecvError::Disconnected));
        done.recv().unwrap_err();
    }
}

#[test]
fn cancel_returns_when_all_have_ended_whoever_was_first() {
    for round in 0..100 {
        let root = Context::background().with_cancel();
        let middle = root.with_cancel();
        let mut below: Vec<_> = (0..200).map(|_| middle.with_cancel()).collect();
        let orphans: Vec<_> = (0..50).map(|_| below[7].with_cancel().done()).collect();
        let last = middle.with_cancel().with_cancel();
        below.push(last.clone());
        let start = std::sync::Barrier::new(3);
        std::thread::scope(|s| {
            for canceled in [&root, &root, &middle] {
                let (start, below, orphans) = (&start, &below, &orphans);
                s.spawn(move || {
                    start.wait();
                    canceled.cancel();
                    assert!(is_done(canceled));
                    assert!(is_done(below.last().unwrap()), "round {round}");
                    assert!(below.iter().all(is_done), "round {round}");
                    assert!(orphans.iter().all(|done| done.is_closed()), "round {round}");
                });
            }
        });
    }
}

#[test]
fn contexts_are_dropped_while_it_ends() {
    for procs in [1, 4] {
        runtime(procs).run(|| {
            for _ in 0..100 {
                let root = Context::background().with_cancel();
                let (canceled, orphans) = (AtomicUsize::new(0), AtomicUsize::new(0));
                scope(|s| {
                    for _ in 0..4 {
                        let (root, canceled, orphans) = (&root, &canceled, &orphans);
                        s.go(move || {
                            while canceled.load(SeqCst) == 0 {
                                let middle = root.with_cancel();
                                let ends = [(); 4].map(|()| middle.with_cancel().done());
                                let below = middle.with_cancel();
                                let end = below.with_timeout(HOUR).done();
                                drop(middle);
                                orphans.fetch_add(ends.len(), SeqCst);
                                drop(below);
                                if canceled.load(SeqCst) == 1 {
                                    assert!(end.is_closed());
                                    assert!(ends.iter().all(|done| done.is_closed()));
                                }
                                runnext::yield_now();
                            }
                        });
                    }
                    until(|| orphans.load(SeqCst) > 50);
                    root.cancel();
                    canceled.store(1, SeqCst);
                });
            }
        });
    }
}

#[test]
fn reads_like_gos() {
    assert_eq!(ContextError::Canceled.to_string(), "context canceled");
    assert_eq!(
        ContextError::DeadlineExceeded.to_string(),
        "context deadline exceeded"
    );
    let ctx = Context::background().with_cancel();
    assert_eq!(
        format!("{ctx:?}"),
        "Context { deadline: None, err: None, .. }"
    );
}

//! `future::sleep` where no runtime polls it, and between runtimes and threads.

mod common;

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::task::{Context, Poll, Wake, Waker};
use std::thread::{self, Thread};
use std::time::Duration;

use common::runtime;
use runnext::future::{Sleep, sleep, sleep_until};
use runnext::time::Instant;
use runnext::{block_on, spawn};

fn ms(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// Polled once, by somebody who does not want to be woken.
fn begun(d: Duration) -> Sleep {
    let mut sleep = sleep(d);
    let _ = Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop()));
    sleep
}

#[test]
fn on_a_plain_thread() {
    let start = Instant::now();
    block_on(sleep(ms(5)));
    assert!(start.elapsed() >= ms(5));
    block_on(async {
        sleep(ms(5)).await;
        sleep_until(start).await;
        let mut again = sleep(Duration::from_secs(3600));
        again.reset(Instant::now() + ms(5));
        again.await;
    });
    assert!(start.elapsed() >= ms(15));
}

/// The reactor sleeps until an alarm that is far away, when a nearer one comes.
#[test]
fn the_nearest_comes_first() {
    let hour = begun(Duration::from_secs(3600));
    for _ in 0..20 {
        block_on(sleep(ms(1)));
    }
    drop(hour);
    let threads = (0..8).map(|i| {
        thread::spawn(move || {
            for _ in 0..20 {
                block_on(sleep(Duration::from_micros(100 * i)));
            }
        })
    });
    let threads: Vec<_> = threads.collect();
    threads.into_iter().for_each(|t| t.join().unwrap());
}

/// The waker of a part: notes which part it was, and passes it on.
struct Part {
    woken: AtomicBool,
    whole: Waker,
}

impl Wake for Part {
    fn wake(self: Arc<Self>) {
        self.woken.store(true, SeqCst);
        self.whole.wake_by_ref();
    }
}

/// All of them, each polled only when its own waker was woken, as `FuturesUnordered` does.
async fn all(mut sleeps: Vec<Sleep>) {
    let mut parts: Vec<Arc<Part>> = Vec::new();
    poll_fn(|cx| {
        if parts.is_empty() {
            let part = || Part {
                woken: AtomicBool::new(true),
                whole: cx.waker().clone(),
            };
            parts.extend(sleeps.iter().map(|_| Arc::new(part())));
        }
        let mut at = 0;
        while at < sleeps.len() {
            let waker = Waker::from(Arc::clone(&parts[at]));
            let mut cx = Context::from_waker(&waker);
            let woken = parts[at].woken.swap(false, SeqCst);
            if woken && Pin::new(&mut sleeps[at]).poll(&mut cx).is_ready() {
                drop(sleeps.remove(at));
                parts.remove(at);
            } else {
                at += 1;
            }
        }
        if sleeps.is_empty() {
            Poll::Ready(())
        } else {
            Poll::Pending
        }
    })
    .await;
}

#[test]
fn several_in_one() {
    let start = Instant::now();
    block_on(all([5, 20, 1, 5, 10].map(|n| sleep(ms(n))).into()));
    assert!(start.elapsed() >= ms(20));
}

struct Unpark(Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

#[test]
fn under_another_executor() {
    let waker = Waker::from(Arc::new(Unpark(thread::current())));
    let mut cx = Context::from_waker(&waker);
    let start = Instant::now();
    let mut sleep = pin!(sleep(ms(5)));
    while sleep.as_mut().poll(&mut cx).is_pending() {
        thread::park();
    }
    assert!(start.elapsed() >= ms(5));
}

/// Who polled it last is woken, and nothing hangs on a runtime that it has left.
#[test]
fn it_moves() {
    let (one, other) = (runtime(1), runtime(1));
    let from_thread = begun(ms(20));
    one.run(|| spawn(from_thread).join().unwrap());
    let from_thread = begun(ms(20));
    one.run(|| block_on(from_thread));

    let from_one = one.run(|| begun(ms(20)));
    block_on(from_one);
    let from_one = one.run(|| begun(ms(20)));
    other.run(|| block_on(from_one));

    let orphans = one.run(|| [begun(ms(20)), begun(ms(20))]);
    drop(one);
    let [here, there] = orphans;
    block_on(here);
    other.run(|| block_on(there));
}

/// A waker is kept no longer than it is needed.
#[test]
fn one_that_is_dropped_is_forgotten() {
    let counted = Arc::new(Unpark(thread::current()));
    let waker = Waker::from(Arc::clone(&counted));
    let mut cx = Context::from_waker(&waker);
    for _ in 0..1000 {
        let mut sleep = sleep(Duration::from_secs(3600));
        assert!(Pin::new(&mut sleep).poll(&mut cx).is_pending());
        assert_eq!(Arc::strong_count(&counted), 3);
        sleep.reset(Instant::now() + Duration::from_secs(1800));
        assert_eq!(Arc::strong_count(&counted), 2);
        assert!(Pin::new(&mut sleep).poll(&mut cx).is_pending());
    }
    assert_eq!(Arc::strong_count(&counted), 2);
}

/// Each time it waits for the last deadline, wherever it was polled before; a waker is not kept meanwhile.
#[test]
fn one_is_reset_again_and_again() {
    let (one, other) = (runtime(1), runtime(1));
    let hour = Duration::from_secs(3600);
    let counted = Arc::new(Unpark(thread::current()));
    let waker = Waker::from(Arc::clone(&counted));
    let mut sleep = one.run(|| begun(hour));
    let poll = |sleep: &mut Sleep| {
        let pending = Pin::new(sleep).poll(&mut Context::from_waker(&waker));
        assert!(pending.is_pending());
    };
    for _ in 0..50 {
        for rt in [&one, &one, &other] {
            rt.run(|| {
                sleep.reset(Instant::now() + hour);
                poll(&mut sleep);
                sleep.reset(Instant::now() + 2 * hour);
                assert_eq!(Arc::strong_count(&counted), 2);
                let soon = Instant::now() + Duration::from_micros(100);
                sleep.reset(soon);
                block_on(&mut sleep);
                assert!(Instant::now() >= soon);
                sleep.reset(Instant::now() + hour);
                poll(&mut sleep);
            });
        }
        sleep.reset(Instant::now());
        block_on(&mut sleep);
    }
}

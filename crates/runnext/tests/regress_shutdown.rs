//! Bugs of the end of a runtime: what becomes of futures whose drop waits, and of goroutines that go on.

mod common;

use std::future::{pending, poll_fn};
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::Poll;

use common::{child, runtime, shows, until};
use runnext::{JoinHandle, Runtime, block_on, chan};

/// Calls a function when it is dropped.
struct AtDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A future that is always queued or polled.
async fn busy() {
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    })
    .await;
}

/// A worker dropped futures as goroutines that did not run: a call that blocks in the drop returned at once, and left what it had queued
/// in a list behind.
#[test]
fn the_drop_of_a_future_that_a_worker_drops_may_block() {
    const FUTURES: usize = 20;
    child(&[], || {
        for _ in 0..20 {
            let (rt, served) = (runtime(2), Arc::new(AtomicUsize::new(0)));
            let (tx, rx) = chan::bounded(0);
            let handles: Vec<_> = (0..FUTURES)
                .map(|_| {
                    let (rx, served) = (rx.clone(), Arc::clone(&served));
                    let at_drop = AtDrop(move || {
                        assert_eq!(rx.recv(), Ok(7));
                        served.fetch_add(1, SeqCst);
                    });
                    rt.spawn(async move {
                        let _at_drop = at_drop;
                        busy().await;
                    })
                })
                .collect();
            let serves = std::thread::spawn(move || (0..FUTURES).try_for_each(|_| tx.send(7)));
            drop(rt);
            assert!(handles.into_iter().all(|handle| handle.join().is_err()));
            serves.join().unwrap().unwrap();
            assert_eq!(served.load(SeqCst), FUTURES);
        }
    })
    .passed();
}

/// What a future in the tests below waits for.
#[derive(Clone, Copy, Debug)]
enum Waits {
    Asleep,
    Queued,
}

/// A future that runs `at_drop`, and waits or is queued until then.
fn until_dropped(
    rt: &Runtime,
    waits: Waits,
    at_drop: impl FnMut() + Send + 'static,
) -> JoinHandle<()> {
    let at_drop = AtDrop(at_drop);
    let handle = rt.spawn(async move {
        let _at_drop = at_drop;
        match waits {
            Waits::Asleep => pending().await,
            Waits::Queued => busy().await,
        }
    });
    if let Waits::Asleep = waits {
        until(|| shows(&rt.dump(), &handle, "await"));
    }
    handle
}

/// Who dropped the futures of a runtime waited for ever in the drop of one that joins another: that one was still to be dropped, by whom?
#[test]
fn the_drop_of_a_future_may_join_another_of_its_runtime() {
    type Join = fn(JoinHandle<()>) -> std::thread::Result<()>;
    let joins: [Join; 2] = [JoinHandle::join, |handle| block_on(handle)];
    for join in joins {
        for waits in [
            [Waits::Asleep, Waits::Asleep],
            [Waits::Asleep, Waits::Queued],
            [Waits::Queued; 2],
        ] {
            for joiner in [0, 1] {
                let (rt, joined) = (runtime(1), Arc::new(AtomicUsize::new(0)));
                let place = Arc::new(Mutex::new(None::<JoinHandle<()>>));
                // Either of the two is found first.
                let handles = [0, 1].map(|which| {
                    let (place, joined) = (Arc::clone(&place), Arc::clone(&joined));
                    until_dropped(&rt, waits[which], move || {
                        if which != joiner {
                            return;
                        }
                        let other = place.lock().unwrap().take().unwrap();
                        assert!(join(other).is_err());
                        joined.fetch_add(1, SeqCst);
                    })
                });
                let [first, second] = handles;
                let (joins, joined_by_it) = if joiner == 0 {
                    (first, second)
                } else {
                    (second, first)
                };
                *place.lock().unwrap() = Some(joined_by_it);
                drop(rt);
                assert!(joins.join().is_err());
                assert_eq!(joined.load(SeqCst), 1, "{waits:?}, {joiner}");
            }
        }
    }
}

//! Goroutines without a stack, `block_on`, awaiting handles: what they promise, on one thread at a time.

mod common;

use std::cell::Cell;
use std::future::{self, Future, poll_fn};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering::*};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Wake, Waker};
use std::time::Duration;

use common::{Count, Counted, built, message, runtime, until};
use runnext::time::Instant;
use runnext::{Runtime, block_on, chan, go, goroutine_local, spawn, yield_now};

/// Gives way once.
async fn give_way() {
    let mut done = false;
    poll_fn(|cx| {
        if done {
            return Poll::Ready(());
        }
        done = true;
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A place where a future leaves its waker and waits for a word.
#[derive(Clone, Default)]
struct Gate(Arc<Mutex<(bool, Option<Waker>)>>);

impl Gate {
    async fn pass(self) {
        poll_fn(|cx| {
            let mut gate = self.0.lock().unwrap();
            if gate.0 {
                return Poll::Ready(());
            }
            gate.1 = Some(cx.waker().clone());
            Poll::Pending
        })
        .await;
    }

    fn waker(&self) -> Option<Waker> {
        self.0.lock().unwrap().1.clone()
    }

    fn open(&self) {
        let waker = {
            let mut gate = self.0.lock().unwrap();
            gate.0 = true;
            gate.1.take()
        };
        if let Some(waker) = waker {
            waker.wake();
        }
    }
}

#[runnext::test]
fn results_come_back_small_and_large() {
    let small = spawn(async { 7u8 });
    let large = spawn(async { [7u64; 100] });
    let big = [1u64; 100];
    let carried = spawn(async move {
        give_way().await;
        big.iter().sum::<u64>()
    });
    assert_eq!(small.join().unwrap(), 7);
    assert_eq!(large.join().unwrap()[99], 7);
    assert_eq!(carried.join().unwrap(), 100);
}

#[runnext::test]
fn both_kinds_are_awaited_and_joined() {
    let sum = block_on(async {
        let stackful = go(|| {
            yield_now();
            1
        });
        let stackless = spawn(async {
            give_way().await;
            2
        });
        stackful.await.unwrap() + stackless.await.unwrap()
    });
    assert_eq!(sum, 3);
    let nested = spawn(async { spawn(async { go(|| 5).await.unwrap() }).await.unwrap() });
    assert_eq!(nested.join().unwrap(), 5);
}

#[runnext::test]
fn a_panic_is_isolated_and_joined() {
    let failed = spawn(async {
        give_way().await;
        panic!("its own business")
    });
    let payload = failed.join().unwrap_err();
    assert_eq!(message(&*payload), "its own business");
    let awaited = block_on(spawn(async { panic!("again") }));
    assert_eq!(message(&*awaited.unwrap_err()), "again");
    assert_eq!(spawn(async { 1 }).join().unwrap(), 1);
}

/// A future whose drop panics.
struct Sore(Arc<AtomicUsize>);

impl Future for Sore {
    type Output = Counted;

    fn poll(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Counted> {
        Poll::Ready(Counted::new(&self.0))
    }
}

impl Drop for Sore {
    fn drop(&mut self) {
        panic!("sore");
    }
}

#[runnext::test]
fn a_panic_in_the_drop_of_the_future_is_its_own() {
    let drops = Arc::new(AtomicUsize::new(0));
    let sore = Arc::clone(&drops);
    let outcome = spawn(Sore(sore)).join().map(|_| ());
    assert_eq!(message(&*outcome.unwrap_err()), "sore");
    assert_eq!(drops.load(SeqCst), 1, "the value it gave is dropped");
}

#[runnext::test]
fn everything_is_dropped_once() {
    let drops = Arc::new(AtomicUsize::new(0));
    let [inside, given, unclaimed, large] = [(); 4].map(|()| Counted::new(&drops));
    let taken = spawn(async move {
        give_way().await;
        drop(inside);
        given
    });
    drop(taken.join().unwrap());
    assert_eq!(drops.load(SeqCst), 2);
    let gate = Gate::default();
    let detached = spawn({
        let gate = gate.clone();
        let ballast = [0u64; 32];
        async move {
            gate.pass().await;
            let _ = (&ballast, &large);
            unclaimed
        }
    });
    drop(detached);
    until(|| gate.waker().is_some());
    assert_eq!(drops.load(SeqCst), 2, "it waits");
    gate.open();
    until(|| drops.load(SeqCst) == 4);
}

#[runnext::test(procs = 1)]
fn it_is_a_goroutine_like_any_other() {
    let before = runnext::num_goroutines();
    let gate = Gate::default();
    let task = spawn({
        let gate = gate.clone();
        async move {
            let first = runnext::current().unwrap();
            gate.pass().await;
            let second = runnext::current().unwrap();
            assert_eq!(first.id(), second.id());
            (first.id(), first.spawned_at())
        }
    });
    until(|| gate.waker().is_some());
    assert_eq!(runnext::num_goroutines(), before + 1);
    assert!(!task.is_finished());
    gate.open();
    let handle = task.goroutine().clone();
    let (id, site) = task.join().unwrap();
    assert_eq!(runnext::num_goroutines(), before);
    assert_eq!(id, handle.id());
    assert_eq!(site.file(), file!());
    assert_eq!(handle.spawned_at(), site);
}

goroutine_local! { static OWN: Cell<u32> = Cell::new(0); }

#[runnext::test]
fn locals_follow_the_future() {
    let tasks: Vec<_> = (1..20u32)
        .map(|i| {
            spawn(async move {
                OWN.with(|own| own.set(i));
                for _ in 0..20 {
                    give_way().await;
                    assert_eq!(OWN.with(Cell::get), i);
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
}

#[runnext::test(procs = 1)]
fn giving_way_lets_the_others_go_first() {
    let order = Arc::new(Mutex::new(Vec::new()));
    let tasks: Vec<_> = (0..3)
        .map(|i| {
            let order = Arc::clone(&order);
            spawn(async move {
                for round in 0..3 {
                    order.lock().unwrap().push((round, i));
                    give_way().await;
                }
            })
        })
        .collect();
    for task in tasks {
        task.join().unwrap();
    }
    let order = order.lock().unwrap();
    for round in 0..3 {
        let mut who: Vec<_> = order[round * 3..][..3].to_vec();
        who.sort();
        assert_eq!(who, [(round, 0), (round, 1), (round, 2)], "{order:?}");
    }
}

#[runnext::test(procs = 1)]
fn many_rings_are_one_poll() {
    let polls = Arc::new(AtomicUsize::new(0));
    let gate = Gate::default();
    let task = spawn({
        let (polls, gate) = (Arc::clone(&polls), gate.clone());
        async move {
            let mut pass = Box::pin(gate.pass());
            poll_fn(move |cx| {
                polls.fetch_add(1, Relaxed);
                pass.as_mut().poll(cx)
            })
            .await;
        }
    });
    until(|| gate.waker().is_some());
    let waker = gate.waker().unwrap();
    assert_eq!(polls.load(Relaxed), 1);
    for _ in 0..10 {
        waker.wake_by_ref();
        let another = waker.clone();
        another.wake();
    }
    until(|| polls.load(Relaxed) == 2);
    gate.open();
    task.join().unwrap();
    assert_eq!(polls.load(Relaxed), 3);
    // It is done: nothing happens any more.
    waker.wake_by_ref();
    yield_now();
    assert_eq!(polls.load(Relaxed), 3);
}

#[test]
fn wakers_outlive_all() {
    let gate = Gate::default();
    let rt = runtime(2);
    let (pending, done) = (gate.clone(), Gate::default());
    let kept = done.clone();
    let _handle = rt.spawn(pending.pass());
    rt.run(|| {
        until(|| gate.waker().is_some());
        let task = spawn(done.clone().pass());
        until(|| done.waker().is_some());
        let waker = done.waker().unwrap();
        done.open();
        task.join().unwrap();
        kept.0.lock().unwrap().1 = Some(waker);
    });
    let (late, dead) = (gate.waker().unwrap(), kept.waker().unwrap());
    drop(rt);
    for waker in [&late, &dead] {
        waker.wake_by_ref();
        let another = waker.clone();
        std::thread::spawn(move || another.wake()).join().unwrap();
    }
    assert!(late.will_wake(&late.clone()) && !late.will_wake(&dead));
}

#[test]
fn block_on_works_on_plain_threads_and_nested() {
    assert_eq!(block_on(async { 3 }), 3);
    let gate = Gate::default();
    let opener = std::thread::spawn({
        let gate = gate.clone();
        move || {
            while gate.waker().is_none() {
                std::thread::yield_now();
            }
            gate.open();
        }
    });
    block_on(gate.pass());
    opener.join().unwrap();
    // A thread awaits goroutines.
    let rt = runtime(2);
    let answer = rt.go(|| 42);
    assert_eq!(block_on(answer).unwrap(), 42);
    let answer = rt.spawn(async { block_on(async { block_on(spawn(async { 43 })).unwrap() }) });
    assert_eq!(block_on(answer).unwrap(), 43);
}

#[runnext::test(procs = 1)]
fn a_nested_block_on_swallows_no_ring() {
    let (outer, inner) = (Gate::default(), Gate::default());
    let opener = go({
        let (outer, inner) = (outer.clone(), inner.clone());
        move || {
            until(|| outer.waker().is_some() && inner.waker().is_some());
            outer.open(); // rings while the inner one sleeps on the same signal
            inner.open();
        }
    });
    let mut pass = Box::pin(outer.pass());
    block_on(poll_fn(move |cx| {
        let polled = pass.as_mut().poll(cx);
        if polled.is_pending() {
            block_on(inner.clone().pass());
        }
        polled
    }));
    opener.join().unwrap();
}

#[runnext::test(procs = 1)]
fn blocking_calls_work_inside_a_poll() {
    let (tx, rx) = chan::bounded::<u32>(0);
    let lock = Arc::new(runnext::sync::Mutex::new(0));
    let task = spawn({
        let lock = Arc::clone(&lock);
        async move {
            let mut sum = 0;
            for _ in 0..10 {
                sum += rx.recv().unwrap();
                *lock.lock() += 1;
                give_way().await;
            }
            runnext::time::sleep(Duration::from_millis(1));
            runnext::blocking(|| std::thread::sleep(Duration::from_millis(1)));
            yield_now();
            go(move || sum).join().unwrap()
        }
    });
    for i in 0..10 {
        yield_now();
        tx.send(i).unwrap();
    }
    assert_eq!(task.join().unwrap(), 45);
    assert_eq!(*lock.lock(), 10);
}

#[runnext::test(procs = 1)]
fn a_ring_while_blocked_inside_a_poll_is_kept() {
    let gate = Gate::default();
    let (tx, rx) = chan::bounded::<()>(0);
    let task = spawn({
        let gate = gate.clone();
        async move {
            let mut pass = Box::pin(gate.pass());
            let mut first = true;
            poll_fn(move |cx| {
                let polled = pass.as_mut().poll(cx);
                if std::mem::take(&mut first) {
                    assert!(polled.is_pending());
                    rx.recv().unwrap();
                }
                polled
            })
            .await;
        }
    });
    until(|| gate.waker().is_some());
    gate.open(); // it is blocked in the channel, and must neither leave it nor forget this
    for _ in 0..10 {
        yield_now();
    }
    tx.send(()).unwrap();
    task.join().unwrap();
}

#[runnext::test(procs = 1)]
fn a_poll_that_computes_is_preempted() {
    let stop = Arc::new(AtomicUsize::new(0));
    let hog = spawn({
        let stop = Arc::clone(&stop);
        async move {
            while stop.load(Relaxed) == 0 {
                std::hint::spin_loop();
            }
        }
    });
    // The only P is the hog's as soon as we wait.
    runnext::time::sleep(Duration::from_millis(1));
    assert!(!hog.is_finished());
    let others: Vec<_> = (0..10).map(|i| spawn(async move { i })).collect();
    for (i, other) in others.into_iter().enumerate() {
        assert_eq!(other.join().unwrap(), i);
    }
    stop.store(1, Relaxed);
    hog.join().unwrap();
}

#[runnext::test]
fn a_forgotten_lock_of_the_thread_costs_the_thread() {
    for _ in 0..3 {
        let gate = Gate::default();
        let task = spawn({
            let gate = gate.clone();
            async move {
                std::mem::forget(runnext::lock_os_thread());
                give_way().await;
                gate.pass().await;
            }
        });
        until(|| gate.waker().is_some());
        gate.open();
        task.join().unwrap();
    }
}

#[runnext::test]
fn a_handle_changes_its_waiter() {
    let gate = Gate::default();
    let mut task = spawn(gate.clone().pass());
    let counts = [(); 3].map(|()| Arc::<Count>::default());
    for count in &counts {
        let waker = Waker::from(Arc::clone(count));
        for _ in 0..2 {
            let polled = Pin::new(&mut task).poll(&mut Context::from_waker(&waker));
            assert!(polled.is_pending());
        }
    }
    assert_eq!(
        counts.each_ref().map(Arc::strong_count),
        [1, 1, 2],
        "only the last waker is kept"
    );
    gate.open();
    until(|| task.is_finished() && Arc::strong_count(&counts[2]) == 1);
    assert_eq!(counts.each_ref().map(|c| c.0.load(SeqCst)), [0, 0, 1]);
    task.join().unwrap();

    // Polled, then joined; polled, then dropped.
    for join in [true, false] {
        let gate = Gate::default();
        let mut task = go({
            let gate = gate.clone();
            move || block_on(gate.pass())
        });
        let waker = Waker::from(Arc::clone(&counts[usize::from(join)]));
        assert!(
            Pin::new(&mut task)
                .poll(&mut Context::from_waker(&waker))
                .is_pending()
        );
        if join {
            go(move || gate.open());
            task.join().unwrap();
        } else {
            drop(task);
            gate.open();
        }
    }
    assert_eq!(counts[0].0.load(SeqCst), 0, "a dropped handle wakes nobody");
}

#[runnext::test]
fn a_handle_polled_after_its_result_says_so() {
    let mut task = spawn(async { 1 });
    assert_eq!(block_on(&mut task).unwrap(), 1);
    let again = catch_unwind(AssertUnwindSafe(|| block_on(&mut task)));
    assert!(message(&*again.map(|_| ()).unwrap_err()).contains("polled again"));
}

/// Lets three sleep until `margin` from now and a little longer. In which order they woke, if all slept by then.
fn order_of_sleeps(margin: Duration) -> Option<Vec<u64>> {
    let at = Instant::now() + margin;
    let ended = Arc::new(Mutex::new(Vec::new()));
    let tasks = [5, 1, 3].map(|ms| {
        let ended = Arc::clone(&ended);
        spawn(async move {
            let until = at + Duration::from_millis(ms);
            runnext::future::sleep_until(until).await;
            assert!(Instant::now() >= until);
            ended.lock().unwrap().push(ms);
        })
    });
    yield_now();
    let all_slept = Instant::now() < at;
    tasks.into_iter().for_each(|task| task.join().unwrap());
    all_slept.then(|| ended.lock().unwrap().clone())
}

/// One P, so one heap and one queue, and nobody is interrupted between waking up and saying so.
#[test]
fn sleeps_end_in_order_and_never_early() {
    built(Runtime::builder().procs(1).preemption(false)).run(|| {
        // On a slow machine some come too late to sleep: then all over again, with more time.
        let margins = (0..12).map(|n| Duration::from_millis(10 << n));
        assert_eq!(
            margins.map(order_of_sleeps).find(Option::is_some),
            Some(Some(vec![1, 3, 5]))
        );
    });
}

#[runnext::test]
fn a_sleep_is_reset_and_rings_wakers_of_others() {
    let mut sleep = runnext::future::sleep(Duration::MAX);
    assert!(
        Pin::new(&mut sleep)
            .poll(&mut Context::from_waker(Waker::noop()))
            .is_pending()
    );
    sleep.reset(Instant::now());
    block_on(sleep);
    // Foreign wakers are rung too.
    let mut sleep = Box::pin(runnext::future::sleep(Duration::from_millis(2)));
    assert!(block_on(Relay(sleep.as_mut(), 0)) >= 2);
}

/// Polls its part with a waker that is not ours.
struct Relay<'a>(Pin<&'a mut runnext::future::Sleep>, usize);

impl Future for Relay<'_> {
    type Output = usize;

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<usize> {
        struct Pass(Waker);
        impl Wake for Pass {
            fn wake(self: Arc<Self>) {
                self.0.wake_by_ref();
            }
        }
        self.1 += 1;
        let polls = self.1;
        let foreign = Waker::from(Arc::new(Pass(cx.waker().clone())));
        self.0
            .as_mut()
            .poll(&mut Context::from_waker(&foreign))
            .map(|()| polls)
    }
}

#[runnext::test]
fn a_sleep_dropped_early_is_forgotten() {
    for _ in 0..1000 {
        let mut sleep = runnext::future::sleep(Duration::from_secs(3600));
        let polled = Pin::new(&mut sleep).poll(&mut Context::from_waker(Waker::noop()));
        assert!(polled.is_pending());
    }
}

#[test]
fn outside_a_runtime_it_says_what_to_do() {
    let refused = catch_unwind(|| spawn(async {})).map(|_| ());
    assert!(message(&*refused.unwrap_err()).contains("outside a runtime"));
}

#[test]
fn shutdown_drops_what_waits() {
    let drops = Arc::new(AtomicUsize::new(0));
    let rt = runtime(2);
    let gate = Gate::default();
    let mut handles = Vec::new();
    for i in 0..50 {
        let (inside, gate) = (Counted::new(&drops), gate.clone());
        handles.push(rt.spawn(async move {
            if i % 2 == 0 {
                gate.pass().await;
            } else {
                future::pending::<()>().await;
            }
            drop(inside);
        }));
    }
    // One that awaits another, and one that rings others when dropped.
    let last = handles.pop().unwrap();
    let inside = Counted::new(&drops);
    rt.spawn(async move {
        let _inside = inside;
        let _ = last.await;
        future::pending::<()>().await;
    });
    struct Opens(Gate);
    impl Drop for Opens {
        fn drop(&mut self) {
            self.0.open();
        }
    }
    let opens = Opens(gate.clone());
    rt.spawn(async move {
        let _opens = opens;
        future::pending::<()>().await;
    });
    rt.run(|| until(|| gate.waker().is_some()));
    let counts = rt.shutdown(Duration::from_millis(10));
    assert_eq!((counts.finished, counts.abandoned), (0, 52));
    assert_eq!(drops.load(SeqCst), 51);
    for handle in handles {
        let why = handle.join().unwrap_err();
        assert!(message(&*why).contains("shut down"), "{}", message(&*why));
    }
}

#[test]
fn shutdown_drops_what_is_queued_or_polled() {
    for _ in 0..20 {
        let drops = Arc::new(AtomicUsize::new(0));
        let rt = runtime(2);
        for _ in 0..20 {
            let inside = Counted::new(&drops);
            rt.spawn(async move {
                let _inside = inside;
                loop {
                    give_way().await;
                }
            });
        }
        rt.run(yield_now);
        let counts = rt.shutdown(Duration::ZERO);
        assert_eq!(counts.abandoned, 20);
        // Those that were polled at that moment follow when their poll returns.
        until(|| drops.load(SeqCst) >= 20);
        assert_eq!(drops.load(SeqCst), 20);
    }
}

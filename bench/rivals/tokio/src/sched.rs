//! Yield, spawn, skynet, memory, wake-up, yield latency, idleness.

use std::future::Future;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::{Duration, Instant};

use harness::{Args, Parking, Report, Yields, now_ns, park_futures, spin_for};
use tokio::runtime::Runtime;
use tokio::sync::mpsc;
use tokio::task;

use crate::on_worker;

/// Wakes itself and gives way once: the scheduler alone, where `yield_now` also polls the driver first.
struct SelfWake(bool);

impl Future for SelfWake {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if std::mem::replace(&mut self.0, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    }
}

pub fn yield_now(args: &Args, rt: &Runtime) {
    let (tasks, yields) = (
        args.get("tasks", 2_usize),
        args.get("yields", 5_000_000_usize),
    );
    let bare = args.text("variant", "yield_now") == "selfwake";
    let round = async move |yields: usize| {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..tasks)
            .map(|_| {
                tokio::spawn(async move {
                    for _ in 0..yields {
                        if bare {
                            SelfWake(false).await
                        } else {
                            task::yield_now().await
                        }
                    }
                })
            })
            .collect();
        for task in tasks {
            task.await.expect("no panic");
        }
        begin.elapsed()
    };
    let took = on_worker(rt, async move {
        round(yields / 10).await;
        round(yields).await
    });
    Report::new("yield")
        .put(
            "ns_per_switch",
            took.as_nanos() as f64 / (tasks * yields) as f64,
        )
        .print();
}

pub fn spawn(args: &Args, rt: &Runtime) {
    let (n, batch) = (
        args.get("n", 1_000_000_usize),
        args.get("batch", 1_000_usize),
    );
    let round = async move |n: usize| {
        let mut handles = Vec::with_capacity(batch);
        for _ in 0..n / batch {
            handles.extend((0..batch).map(|i| tokio::spawn(async move { i })));
            for handle in handles.drain(..) {
                handle.await.expect("no panic");
            }
        }
    };
    let took = on_worker(rt, async move {
        round(n / 10).await;
        let begin = Instant::now();
        round(n).await;
        begin.elapsed()
    });
    Report::new("spawn")
        .put("ns_per_task", took.as_nanos() as f64 / n as f64)
        .print();
}

fn leaf_join(number: u64, size: u64) -> Pin<Box<dyn Future<Output = u64> + Send>> {
    Box::pin(async move {
        if size == 1 {
            return number;
        }
        let children: Vec<_> = (0..10)
            .map(|i| tokio::spawn(leaf_join(number + i * (size / 10), size / 10)))
            .collect();
        let mut sum = 0;
        for child in children {
            sum += child.await.expect("no panic");
        }
        sum
    })
}

fn leaf_chan(
    result: mpsc::Sender<u64>,
    number: u64,
    size: u64,
) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async move {
        let mut sum = number;
        if size > 1 {
            let (send, mut receive) = mpsc::channel(1);
            for i in 0..10 {
                tokio::spawn(leaf_chan(send.clone(), number + i * (size / 10), size / 10));
            }
            sum = 0;
            for _ in 0..10 {
                sum += receive.recv().await.expect("ten answers");
            }
        }
        result.send(sum).await.expect("the parent lives");
    })
}

pub fn skynet(args: &Args, rt: &Runtime) {
    let leaves = args.get("leaves", 1_000_000_u64);
    let channels = args.text("variant", "join") == "chan";
    let round = async move || {
        let sum = if channels {
            let (send, mut receive) = mpsc::channel(1);
            tokio::spawn(leaf_chan(send, 0, leaves));
            receive.recv().await.expect("an answer")
        } else {
            leaf_join(0, leaves).await
        };
        assert_eq!(sum, leaves * (leaves - 1) / 2);
    };
    let took = on_worker(rt, async move {
        round().await;
        let begin = Instant::now();
        round().await;
        begin.elapsed()
    });
    Report::new("skynet")
        .put("ms", took.as_secs_f64() * 1e3)
        .print();
}

pub fn memory(args: &Args, rt: &Runtime) {
    let n = args.get("n", 100_000_usize);
    on_worker(rt, async move {
        let mut parking = Parking::before(n);
        let parked = Arc::new(AtomicUsize::new(0));
        let mut tasks = Vec::with_capacity(n);
        for _ in 0..n {
            let (wake, mut woken) = mpsc::channel::<()>(1);
            let parked = parked.clone();
            let task = tokio::spawn(async move {
                parked.fetch_add(1, Ordering::Relaxed);
                woken.recv().await.expect("the sender lives");
            });
            tasks.push((wake, task));
        }
        while parked.load(Ordering::Relaxed) < n {
            tokio::time::sleep(Duration::from_micros(100)).await;
        }
        parking.parked();
        tokio::time::sleep(Duration::from_millis(200)).await;
        parking.settled();
        for (wake, _) in &tasks {
            wake.send(()).await.expect("the receiver lives");
        }
        for (_, task) in tasks {
            task.await.expect("no panic");
        }
        parking.woken();
    });
}

pub fn memory_of_futures(args: &Args, rt: &Runtime) {
    let n = args.get("n", 100_000_usize);
    let join = |task: task::JoinHandle<()>| async { task.await.expect("no panic") };
    on_worker(rt, park_futures(n, tokio::spawn, tokio::time::sleep, join));
}

pub fn wakeup(args: &Args, rt: &Runtime) {
    let gap = Duration::from_micros(args.get("gap_us", 1_000));
    let samples = args.get("samples", 1_000);
    let by_wake = args.text("via", "spawn") == "wake";
    on_worker(rt, async move {
        let ran = Arc::new(AtomicU64::new(0));
        let (wake, mut woken) = mpsc::channel::<()>(1);
        let at = ran.clone();
        tokio::spawn(async move {
            while woken.recv().await.is_some() {
                at.store(now_ns(), Ordering::Release);
            }
        });
        let (mut late, mut missed) = (Vec::new(), 0);
        for _ in 0..samples {
            spin_for(gap);
            ran.store(0, Ordering::Relaxed);
            let begin = now_ns();
            if by_wake {
                wake.try_send(()).expect("the receiver is waiting");
            } else {
                let at = ran.clone();
                tokio::spawn(async move { at.store(now_ns(), Ordering::Release) });
            }
            while ran.load(Ordering::Acquire) == 0 && now_ns() < begin + 20_000_000 {
                std::hint::spin_loop();
            }
            missed += u32::from(ran.load(Ordering::Acquire) == 0);
            while ran.load(Ordering::Acquire) == 0 {
                task::yield_now().await;
            }
            late.push((ran.load(Ordering::Acquire) - begin) as f64 / 1e3);
        }
        Report::new("wakeup")
            .percentiles("us_", &mut late)
            .put("missed", f64::from(missed))
            .print();
    });
}

fn chain(turns: Arc<AtomicU64>) -> Pin<Box<dyn Future<Output = ()> + Send>> {
    Box::pin(async {
        turns.fetch_add(1, Ordering::Relaxed);
        tokio::spawn(chain(turns));
    })
}

async fn pair(by_join: bool, turns: Arc<AtomicU64>) {
    if by_join {
        loop {
            tokio::spawn(async {}).await.expect("no panic");
            turns.fetch_add(1, Ordering::Relaxed);
        }
    }
    let (ping, mut pinged) = mpsc::channel::<u32>(1);
    let (pong, mut ponged) = mpsc::channel::<u32>(1);
    tokio::spawn(async move {
        while let Some(value) = pinged.recv().await {
            pong.send(value).await.expect("the peer lives");
        }
    });
    loop {
        ping.send(1).await.expect("the peer lives");
        ponged.recv().await.expect("the peer lives");
        turns.fetch_add(1, Ordering::Relaxed);
    }
}

pub fn yield_latency(args: &Args, rt: &Runtime) {
    let (pairs, chains) = (args.get("pairs", 0), args.get("chains", 0));
    let by_join = args.text("via", "chan") == "join";
    let turns = Arc::new(AtomicU64::new(0));
    let mut yields = Yields::start(args);
    on_worker(rt, async move {
        for _ in 0..pairs {
            tokio::spawn(pair(by_join, turns.clone()));
        }
        for _ in 0..chains {
            tokio::spawn(chain(turns.clone()));
        }
        loop {
            let begin = Instant::now();
            task::yield_now().await;
            if !yields.note(begin) {
                yields.finish(turns.load(Ordering::Relaxed));
            }
        }
    })
}

pub fn idle(args: &Args, rt: &Runtime) {
    on_worker(rt, async {
        for task in (0..1_000)
            .map(|_| tokio::spawn(task::yield_now()))
            .collect::<Vec<_>>()
        {
            task.await.expect("no panic");
        }
    });
    harness::idle(args);
}

//! What tasks that wait take, and how long it takes them to get there and back.

use std::future::Future;
use std::pin::Pin;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll, Waker};
use std::time::{Duration, Instant};

use crate::{Report, memory_bytes};

/// The `memory` scenario: [`before`](Parking::before) any task is started, when all have [`parked`](Parking::parked), when memory has
/// [`settled`](Parking::settled), and when all were [`woken`](Parking::woken) and have ended.
#[derive(Debug)]
pub struct Parking {
    tasks: usize,
    before: u64,
    bytes: f64,
    park_ms: f64,
    begin: Instant,
}

impl Parking {
    /// None of the tasks exists. The clock of parking starts.
    pub fn before(tasks: usize) -> Parking {
        Parking {
            tasks,
            before: memory_bytes(),
            bytes: 0.0,
            park_ms: 0.0,
            begin: Instant::now(),
        }
    }

    /// All wait.
    pub fn parked(&mut self) {
        self.park_ms = self.elapsed_ms();
    }

    /// All wait for a while. The clock of waking starts.
    pub fn settled(&mut self) {
        self.bytes = memory_bytes().saturating_sub(self.before) as f64 / self.tasks as f64;
        self.begin = Instant::now();
    }

    /// All have ended: reports.
    pub fn woken(self) {
        let wake_ms = self.elapsed_ms();
        Report::new("memory")
            .put("bytes_per_task", self.bytes)
            .put("park_ms", self.park_ms)
            .put("wake_ms", wake_ms)
            .print();
    }

    fn elapsed_ms(&self) -> f64 {
        self.begin.elapsed().as_secs_f64() * 1e3
    }
}

/// Whether it was rung, and who waits for that: the least a task can wait on.
type Bell = Arc<Mutex<(bool, Option<Waker>)>>;

/// A future that counts itself once it is polled, and waits for its bell.
#[derive(Debug)]
pub struct Sleeper {
    bell: Bell,
    asleep: Option<Arc<AtomicUsize>>,
}

impl Future for Sleeper {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        {
            let mut bell = self.bell.lock().expect("no panic");
            if bell.0 {
                return Poll::Ready(());
            }
            bell.1 = Some(cx.waker().clone());
        }
        if let Some(asleep) = self.asleep.take() {
            asleep.fetch_add(1, Ordering::Relaxed);
        }
        Poll::Pending
    }
}

/// The `memory` scenario with `kind=future`: the same futures for every runtime, by its own `spawn`, `sleep` and `join`.
pub async fn park_futures<T, S: Future, J: Future>(
    n: usize,
    spawn: impl Fn(Sleeper) -> T,
    sleep: impl Fn(Duration) -> S,
    join: impl Fn(T) -> J,
) {
    let mut tasks = Vec::with_capacity(n);
    let mut parking = Parking::before(n);
    let asleep = Arc::new(AtomicUsize::new(0));
    for _ in 0..n {
        let bell = Bell::default();
        let task = spawn(Sleeper {
            bell: bell.clone(),
            asleep: Some(asleep.clone()),
        });
        tasks.push((bell, task));
    }
    while asleep.load(Ordering::Relaxed) < n {
        sleep(Duration::from_micros(100)).await;
    }
    parking.parked();
    sleep(Duration::from_millis(200)).await;
    parking.settled();
    for (bell, _) in &tasks {
        let waker = {
            let mut bell = bell.lock().expect("no panic");
            bell.0 = true;
            bell.1.take()
        };
        waker.expect("it waits").wake();
    }
    for (_, task) in tasks {
        join(task).await;
    }
    parking.woken();
}

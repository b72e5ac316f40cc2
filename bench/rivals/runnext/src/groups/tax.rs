//! What groups cost those who switch: experiment 2.

use std::time::Instant;

use harness::{Args, Report};
use runnext::sync::Mutex;
use runnext::{JoinHandle, Runtime, TaskGroup, chan};

/// Where goroutines go: over all of these in turn, or into none.
struct Places(Vec<TaskGroup>);

impl Places {
    fn go(&self, i: usize, f: impl FnOnce() + Send + 'static) -> JoinHandle<()> {
        match self.0.len() {
            0 => runnext::go(f),
            n => self.0[i % n].go(f),
        }
    }

    /// Runs `f` as they would.
    fn enter<T>(&self, f: impl FnOnce() -> T) -> T {
        match self.0.first() {
            None => f(),
            Some(group) => group.enter(f),
        }
    }
}

/// `groups=0` leaves them unused, `idle` makes one that nobody is in, otherwise goroutines are spread over so many.
pub fn run(args: &Args, rt: &Runtime) {
    let made = (0..args.get("groups", 0)).map(|i| TaskGroup::new(&format!("group {i}")));
    let places = Places(made.collect());
    let idle = args.get("idle", false).then(|| TaskGroup::new("idle"));
    let figures = rt.run(|| {
        if let Some(idle) = &idle {
            idle.go(|| ()).join().expect("no panic");
        }
        places.enter(|| {
            let tasks = args.get("tasks", 32);
            [
                ("yield_ns", "yields", 2_000_000, yields(&places, tasks)),
                ("ping_ns", "pings", 1_000_000, pings(&places)),
                ("spawn_ns", "spawns", 500_000, spawns(&places)),
                ("fanout_ns", "messages", 1_000_000, fan_out(&places)),
                ("mutex_ns", "locks", 10_000_000, locks(&places)),
            ]
            .map(|(key, how_many, default, round)| {
                let n = args.get(how_many, default);
                round(n / 10);
                let begin = Instant::now();
                round(n);
                (key, begin.elapsed().as_nanos() as f64 / n as f64)
            })
        })
    });
    let report = Report::new("group-tax");
    let put = |report: Report, (key, ns)| report.put(key, ns);
    figures.into_iter().fold(report, put).print();
}

type Round<'a> = Box<dyn Fn(usize) + 'a>;

fn join(all: impl IntoIterator<Item = JoinHandle<()>>) {
    for one in all {
        one.join().expect("no panic");
    }
}

fn yields(places: &Places, tasks: usize) -> Round<'_> {
    Box::new(move |n| {
        let yielder = move || (0..n / tasks).for_each(|_| runnext::yield_now());
        let all: Vec<_> = (0..tasks).map(|i| places.go(i, yielder)).collect();
        join(all);
    })
}

/// Both in one group.
fn pings(places: &Places) -> Round<'_> {
    Box::new(|n| {
        let (there, received) = chan::bounded::<()>(0);
        let (back, answers) = chan::bounded::<()>(0);
        let one = places.go(0, move || {
            for _ in 0..n {
                there.send(()).expect("open");
                answers.recv().expect("open");
            }
        });
        let other = places.go(0, move || {
            received.iter().for_each(|()| back.send(()).expect("open"));
        });
        join([one, other]);
    })
}

fn spawns(places: &Places) -> Round<'_> {
    const BATCH: usize = 1_000;
    Box::new(|n| {
        let mut all = Vec::with_capacity(BATCH);
        for _ in 0..n / BATCH {
            all.extend((0..BATCH).map(|i| places.go(i, || ())));
            join(all.drain(..));
        }
    })
}

/// One sends, 1,000 wait for it in turn.
fn fan_out(places: &Places) -> Round<'_> {
    Box::new(|n| {
        let (tx, rx) = chan::bounded::<()>(0);
        let receivers: Vec<_> = (0..1_000)
            .map(|i| {
                let rx = rx.clone();
                places.go(i, move || rx.iter().for_each(|()| ()))
            })
            .collect();
        (0..n).for_each(|_| tx.send(()).expect("open"));
        drop(tx);
        join(receivers);
    })
}

fn locks(places: &Places) -> Round<'_> {
    Box::new(|n| {
        let alone = move || {
            let lock = Mutex::new(0_u64);
            (0..n).for_each(|_| *lock.lock() += 1);
        };
        join([places.go(0, alone)]);
    })
}

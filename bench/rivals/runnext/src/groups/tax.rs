//! What groups cost those who switch: experiment 2.

use std::time::Instant;

use harness::{Args, Report};
use runnext::{Runtime, TaskGroup, chan};

/// `groups=0` leaves them unused, `idle` makes one that nobody is in, otherwise goroutines are spread over so many.
pub fn run(args: &Args, rt: &Runtime) {
    let groups: usize = args.get("groups", 0);
    let made: Vec<TaskGroup> = (0..groups.max(usize::from(args.get("idle", false))))
        .map(|i| TaskGroup::new(&format!("group {i}")))
        .collect();
    let go = |i: usize, f: Box<dyn FnOnce() + Send>| match groups {
        0 => runnext::go(f),
        _ => made[i % groups].go(f),
    };
    let (yields, pings) = (
        args.get("yields", 2_000_000_usize),
        args.get("pings", 1_000_000_usize),
    );
    let tasks = args.get("tasks", 32_usize);
    let (yield_ns, ping_ns) = rt.run(|| {
        if args.get("idle", false) {
            made[0].go(|| ()).join().expect("no panic");
        }
        let round = |yields: usize| {
            let begin = Instant::now();
            let all: Vec<_> = (0..tasks)
                .map(|i| {
                    go(
                        i,
                        Box::new(move || {
                            for _ in 0..yields / tasks {
                                runnext::yield_now();
                            }
                        }),
                    )
                })
                .collect();
            for one in all {
                one.join().expect("no panic");
            }
            begin.elapsed().as_nanos() as f64 / yields as f64
        };
        round(yields / 10);
        let yield_ns = round(yields);
        let pair = |n: usize| {
            let (there, received) = chan::bounded::<()>(0);
            let (back, answers) = chan::bounded::<()>(0);
            let begin = Instant::now();
            let one = go(
                0,
                Box::new(move || {
                    for _ in 0..n {
                        there.send(()).expect("open");
                        answers.recv().expect("open");
                    }
                }),
            );
            let other = go(
                0,
                Box::new(move || received.iter().for_each(|()| back.send(()).expect("open"))),
            );
            one.join().expect("no panic");
            other.join().expect("no panic");
            begin.elapsed().as_nanos() as f64 / n as f64
        };
        pair(pings / 10);
        (yield_ns, pair(pings))
    });
    Report::new("group-tax")
        .put("yield_ns", yield_ns)
        .put("ping_ns", ping_ns)
        .print();
}

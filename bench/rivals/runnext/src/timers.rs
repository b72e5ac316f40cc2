//! Timers.

use std::time::{Duration, Instant};

use harness::{Args, Report, Rng};
use runnext::time::sleep;
use runnext::{Runtime, go};

pub fn timers(args: &Args, rt: &Runtime) {
    let (n, times) = (args.get("n", 100_000_u64), args.get("times", 10));
    rt.run(|| {
        let begin = Instant::now();
        let tasks: Vec<_> = (0..n)
            .map(|seed| {
                go(move || {
                    let mut dice = Rng::new(seed);
                    let mut late = Vec::with_capacity(times);
                    for _ in 0..times {
                        let span = dice.sleep();
                        let begin = Instant::now();
                        sleep(span);
                        late.push(begin.elapsed().saturating_sub(span).as_secs_f64() * 1e3);
                    }
                    late
                })
            })
            .collect();
        let mut late = Vec::with_capacity(n as usize * times);
        for task in tasks {
            late.extend(task.join().expect("no panic"));
        }
        let total = begin.elapsed().as_secs_f64() * 1e3;
        Report::new("timers")
            .put("total_ms", total)
            .percentiles("late_ms_", &mut late)
            .print();
    });
}

pub fn idle_sleep(args: &Args, rt: &Runtime) {
    let span = Duration::from_micros(args.get("us", 100));
    rt.run(|| {
        let mut took: Vec<f64> = (0..args.get("n", 2_000))
            .map(|_| {
                let begin = Instant::now();
                sleep(span);
                begin.elapsed().as_secs_f64() * 1e6
            })
            .collect();
        Report::new("idlesleep")
            .percentiles("us_", &mut took)
            .print();
    });
}

//! A service that does two kinds of work: requests people wait for, and reports nobody waits for. Groups keep them apart.
//!
//! ```sh
//! cargo run --release -p runnext --example priorities
//! ```

use std::hint::black_box;
use std::time::Duration;

use runnext::time::{self, Instant};
use runnext::{Priority, TaskGroup, chan};

/// Computes for about `rounds` microseconds, without giving way.
fn compute(rounds: u64) -> u64 {
    (0..rounds * 400).fold(1, |x: u64, i| black_box(x.wrapping_mul(31).wrapping_add(i)))
}

#[runnext::main]
fn main() {
    let reports = TaskGroup::builder("reports")
        .priority(Priority::Low)
        .build();
    let requests = TaskGroup::builder("requests")
        .priority(Priority::High)
        .build();
    let tenant = TaskGroup::builder("trial tenant").quota(0.2).build();

    let (stop, stopped) = chan::bounded::<()>(0);
    for group in [&reports, &reports, &reports, &reports, &tenant, &tenant] {
        let stopped = stopped.clone();
        group.go(move || {
            while stopped.try_recv() == Err(chan::TryRecvError::Empty) {
                compute(5_000);
            }
        });
    }

    // Requests come every 2 ms; each is a goroutine of its group, as are those it starts.
    let mut waits: Vec<Duration> = (0..250)
        .map(|_| {
            time::sleep(Duration::from_millis(2));
            let arrived = Instant::now();
            let answered = requests.go(|| compute(50));
            answered.join().unwrap();
            arrived.elapsed()
        })
        .collect();
    drop(stop);
    waits.sort();
    println!("requests: p50 {:?}, p99 {:?}", waits[125], waits[247]);
    for group in [requests, reports, tenant] {
        let stats = group.stats();
        let (used, held) = (stats.cpu_time, stats.throttled_time);
        println!(
            "{:<13} used {used:>10.1?} of CPU, held back {held:.1?}",
            group.name()
        );
    }
}

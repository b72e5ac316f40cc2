//! A worker pool: a few goroutines take jobs from one channel and put results into another.
//!
//! ```sh
//! cargo run --release -p runnext --example worker_pool
//! ```

use runnext::chan;
use runnext::sync::WaitGroup;

/// The longest Collatz sequence that starts in a range: where, and how long.
fn longest(range: std::ops::Range<u64>) -> (u64, u32) {
    let steps = |mut n: u64| {
        let mut steps = 0;
        while n != 1 {
            n = if n.is_multiple_of(2) {
                n / 2
            } else {
                3 * n + 1
            };
            steps += 1;
        }
        steps
    };
    let all = range.map(|n| (n, steps(n)));
    all.max_by_key(|&(_, steps)| steps).expect("not empty")
}

#[runnext::main]
fn main() {
    let (jobs, queue) = chan::bounded(16);
    let (results, done) = chan::unbounded();

    let workers = WaitGroup::new();
    for _ in 0..runnext::procs() {
        let (queue, results) = (queue.clone(), results.clone());
        workers.go(move || {
            // Ends when the channel is closed and empty.
            for range in queue {
                results.send(longest(range)).unwrap();
            }
        });
    }
    drop(results);

    for start in (1..1_000_000).step_by(10_000) {
        // Waits while 16 jobs are queued: whoever asks for more than is done is slowed down.
        jobs.send(start..start + 10_000).unwrap();
    }
    drop(jobs);
    workers.wait();

    let best = done.iter().max_by_key(|&(_, steps)| steps).unwrap();
    println!("longest below a million: {best:?}");
    assert_eq!(best, (837_799, 524));
}

//! A short tour: what goroutines cost here, and what the scheduler does for them. Takes a few seconds.
//!
//! ```sh
//! cargo run --release -p runnext --example tour
//! ```

use std::hint::black_box;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::time::{Duration, Instant};

use runnext::chan::bounded;
use runnext::{blocking, go, num_goroutines, procs, scope, time, yield_now};

/// Prints what `f` took in all and for each of `n`.
fn timed<T>(what: &str, n: u64, f: impl FnOnce() -> T) -> T {
    let begun = Instant::now();
    let value = f();
    let took = begun.elapsed();
    let each = took.as_nanos() as f64 / n as f64;
    println!(
        "  {what:<52} {:8.1} ms  {each:9.0} ns each",
        took.as_secs_f64() * 1e3
    );
    value
}

#[runnext::main]
fn main() {
    println!("runnext on {} processors\n", procs());

    println!("Cheap enough to start one for everything:");
    let sum = timed(
        "a million goroutines, spawned and joined",
        1_000_000,
        || {
            let mut sum = 0u64;
            for batch in 0..1000u64 {
                let handles: Vec<_> = (0..1000).map(|i| go(move || batch + i)).collect();
                sum += handles.into_iter().map(|h| h.join().unwrap()).sum::<u64>();
            }
            sum
        },
    );
    assert_eq!(sum, 999 * 1_000_000);
    timed("a million yields between two of them", 1_000_000, || {
        scope(|s| {
            for _ in 0..2 {
                s.go(|| (0..500_000).for_each(|_| yield_now()));
            }
        });
    });
    timed(
        "200,000 messages there and back, unbuffered",
        200_000,
        ping_pong,
    );

    println!("\nSmall enough to leave them waiting:");
    parked(100_000);

    println!("\nNobody has to give way for others to run:");
    println!(
        "  a goroutine that ticks every millisecond, median and longest gap, while every processor"
    );
    show("computes without a single yield:", gaps(hog));
    show("sleeps in the kernel, unannounced:", gaps(snore));
    show("sleeps inside `blocking`:", gaps(snore_politely));

    println!("\n{} goroutine left: this one.", num_goroutines());
}

fn ping_pong() {
    let (ping, pings) = bounded::<u32>(0);
    let (pong, pongs) = bounded::<u32>(0);
    let echo = go(move || pings.into_iter().for_each(|i| pong.send(i).unwrap()));
    for i in 0..100_000 {
        ping.send(i).unwrap();
        assert_eq!(pongs.recv(), Ok(i));
    }
    drop(ping);
    echo.join().unwrap();
}

/// Goroutines that wait in a row, each for the one before it.
fn parked(n: u64) {
    let before = resident();
    let (release, released) = bounded::<()>(1);
    let first = go(move || {
        let _ = released.recv();
        0u64
    });
    let last = timed("100,000 goroutines, each waiting for the last", n, || {
        (0..n).fold(first, |before, i| {
            if i % 64 == 0 {
                yield_now(); // let them start, and wait
            }
            go(move || before.join().unwrap() + 1)
        })
    });
    time::sleep(Duration::from_millis(50));
    let each = resident().saturating_sub(before) / n;
    println!(
        "  {:>52} {each:8} bytes of memory each",
        "waiting, they take"
    );
    timed("all of them woken, one by the other", n, || {
        release.send(()).unwrap();
        assert_eq!(last.join().unwrap(), n);
    });
}

fn resident() -> u64 {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap_or_default();
    let pages = statm.split(' ').nth(1).and_then(|n| n.parse().ok());
    pages.unwrap_or(0u64) * 4096
}

fn show(what: &str, (median, longest): (Duration, Duration)) {
    let ms = |d: Duration| d.as_secs_f64() * 1e3;
    println!("  {what:>52} {:8.1} ms {:8.1} ms", ms(median), ms(longest));
}

/// Keeps every processor busy for half a second with `work`, and times a goroutine that only wants to tick.
fn gaps(work: fn(&AtomicBool)) -> (Duration, Duration) {
    let stop = Arc::new(AtomicBool::new(false));
    let busy: Vec<_> = (0..2 * procs())
        .map(|_| {
            let stop = Arc::clone(&stop);
            go(move || work(&stop))
        })
        .collect();
    let (mut gaps, begun) = (Vec::new(), Instant::now());
    while begun.elapsed() < Duration::from_millis(500) {
        let tick = Instant::now();
        time::sleep(Duration::from_millis(1));
        gaps.push(tick.elapsed());
    }
    stop.store(true, Relaxed);
    busy.into_iter().for_each(|b| b.join().unwrap());
    gaps.sort_unstable();
    (gaps[gaps.len() / 2], gaps[gaps.len() - 1])
}

fn hog(stop: &AtomicBool) {
    static WORK: AtomicU64 = AtomicU64::new(0);
    let mut x = 1u64;
    while !stop.load(Relaxed) {
        x = black_box(x.wrapping_mul(6_364_136_223_846_793_005));
    }
    WORK.fetch_xor(x, Relaxed);
}

fn snore(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        std::thread::sleep(Duration::from_millis(20));
    }
}

fn snore_politely(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        blocking(|| std::thread::sleep(Duration::from_millis(20)));
    }
}

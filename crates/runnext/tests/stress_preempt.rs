//! Everything at once, with slices far too short: whatever a goroutine is in the middle of when it is stopped keeps working.
//!
//! In children, since some of it is loud. `examples/stall_stress.rs` runs the same for as long as one likes.

mod common;
#[path = "stall/loads.rs"]
mod loads;
mod stall;

use std::time::{Duration, Instant};

use common::{built, child, impatient};
use runnext::{Runtime, go};
use stall::{Dice, Hogs, watchdog};

fn everything(procs: usize, slice_ms: u64, seed: u64) {
    let rt = built(
        Runtime::builder()
            .procs(procs)
            .time_slice(Duration::from_millis(slice_ms)),
    );
    rt.run(|| {
        let hogs = Hogs::start(2);
        let end = Instant::now() + Duration::from_secs(2);
        for (name, rounds) in loads::run_all(2, end, seed) {
            assert!(rounds >= 2, "{name}: {rounds} rounds");
        }
        hogs.stop();
        assert_eq!(runnext::num_goroutines(), 1);
    });
}

#[test]
fn one_processor_and_slices_of_1_ms() {
    let _dog = watchdog("P=1, 1 ms");
    child(&[], || everything(1, 1, 11)).passed();
}

#[test]
fn two_processors_and_slices_of_1_ms() {
    let _dog = watchdog("P=2, 1 ms");
    child(&[], || everything(2, 1, 12)).passed();
}

#[test]
fn eight_processors_and_slices_of_1_ms() {
    let _dog = watchdog("P=8, 1 ms");
    child(&[], || everything(8, 1, 13)).passed();
}

#[test]
fn one_processor_and_slices_of_10_ms() {
    let _dog = watchdog("P=1, 10 ms");
    child(&[], || everything(1, 10, 14)).passed();
}

#[test]
fn two_processors_and_slices_of_10_ms() {
    let _dog = watchdog("P=2, 10 ms");
    child(&[], || everything(2, 10, 15)).passed();
}

#[test]
fn eight_processors_and_slices_of_10_ms() {
    let _dog = watchdog("P=8, 10 ms");
    child(&[], || everything(8, 10, 16)).passed();
}

#[test]
fn chaos() {
    let _dog = watchdog("chaos");
    child(&[("RUNNEXT_DEBUG", "chaos=1")], || everything(2, 1, 17)).passed();
}

/// Lines of several goroutines beside hogs arrive whole, all of them.
#[test]
fn lines_stay_whole() {
    let _dog = watchdog("println");
    const WRITERS: u64 = 6;
    const LINES: u64 = 300;
    let ended = child(&[], || {
        for procs in [1, 2] {
            let rt = impatient(procs);
            rt.run(|| {
                let hogs = Hogs::start(2);
                let writers: Vec<_> = (0..WRITERS)
                    .map(|w| {
                        go(move || {
                            let mut dice = Dice(w + 1);
                            for line in 0..LINES {
                                let fill = "x".repeat(dice.below(60) as usize);
                                println!("<{procs} {w} {line} {fill} {}>", fill.len());
                            }
                        })
                    })
                    .collect();
                for w in writers {
                    w.join().unwrap();
                }
                hogs.stop();
            });
        }
    })
    .passed();
    let mut lines = 0;
    // The harness writes the test's name in front of the first.
    for line in ended
        .stdout
        .lines()
        .filter_map(|l| l.find('<').map(|at| &l[at..]))
    {
        lines += 1;
        let parts: Vec<_> = line.trim_matches(['<', '>']).split(' ').collect();
        assert!(parts.len() == 5 && line.ends_with('>'), "torn: {line}");
        assert_eq!(
            parts[3].len(),
            parts[4].parse::<usize>().unwrap(),
            "torn: {line}"
        );
    }
    assert_eq!(lines, 2 * WRITERS * LINES);
}

/// Panics with their reports, which take the locks of stderr and of the backtrace.
#[test]
fn loud_panics() {
    let _dog = watchdog("loud panics");
    let ended = child(&[("RUST_BACKTRACE", "0")], || {
        let rt = impatient(2);
        rt.run(|| {
            let hogs = Hogs::start(3);
            let jobs: Vec<_> = (0..200)
                .map(|i| go(move || panic!("job {i} ends")))
                .collect();
            for job in jobs {
                assert!(job.join().map(|_: ()| ()).is_err());
            }
            hogs.stop();
        });
    })
    .passed();
    for i in 0..200 {
        assert!(
            ended.stderr.contains(&format!("job {i} ends")),
            "no report of job {i}"
        );
    }
}

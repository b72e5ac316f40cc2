//! Everything the runtime does, at random and at once, for a bounded time; every part adds up or the program fails.
//!
//! ```sh
//! cargo run --release -p runnext --example stress -- --seconds 60 [--procs N] [--seed N]
//! RUNNEXT_DEBUG=chaos=1 cargo run --release -p runnext --example stress
//! ```
//!
//! A few *drivers* each run one job after another, drawn from [`JOBS`] with a seed of their own, so that a job that fails can
//! be named. Every goroutine a job starts is counted when it is started and when it runs. Exit code 1: a sum is wrong; 2:
//! nothing moved for half a minute, and the jobs under way are printed.

use std::cell::Cell;
use std::process::exit;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use runnext::chan::{bounded, unbounded};
use runnext::{JoinHandle, Runtime, go, goroutine_local, scope, set_procs, sync, yield_now};

/// No job may take this long, on any machine.
const PATIENCE: Duration = Duration::from_secs(30);
const DRIVERS: usize = 12;

type Job = fn(&Runtime, &mut Dice) -> Result<(), String>;

const JOBS: &[(&str, Job)] = &[
    ("tree", tree),
    ("yields", yields),
    ("scopes", scopes),
    ("locals", locals),
    ("panics", panics),
    ("detached", detached),
    ("shapes", shapes),
    ("threads", threads),
    ("locked", locked),
    ("resize", resize),
    ("blocking", blocking),
    ("hogs", hogs),
    ("pipeline", pipeline),
    ("fan", fan),
    ("locks", locks),
    ("sleeps", sleeps),
];

static STARTED: AtomicU64 = AtomicU64::new(0);
static RAN: AtomicU64 = AtomicU64::new(0);
static JOBS_DONE: AtomicU64 = AtomicU64::new(0);
/// What each driver is doing: the job's name and seed.
static UNDER_WAY: Mutex<[Option<(&str, u64)>; DRIVERS]> = Mutex::new([None; DRIVERS]);

/// A goroutine that is counted at both ends.
fn counted<T: Send + 'static>(f: impl FnOnce() -> T + Send + 'static) -> JoinHandle<T> {
    STARTED.fetch_add(1, Relaxed);
    go(move || {
        RAN.fetch_add(1, Relaxed);
        f()
    })
}

/// Fails unless both are equal.
fn same<T: PartialEq + std::fmt::Debug>(what: &str, got: T, wanted: T) -> Result<(), String> {
    if got == wanted {
        return Ok(());
    }
    Err(format!("{what}: {got:?}, not {wanted:?}"))
}

/// Splitmix64: small, and the same everywhere.
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    fn below(&mut self, n: u64) -> u64 {
        self.roll() % n
    }

    /// From `least` to `most`, both included.
    fn from(&mut self, least: u64, most: u64) -> u64 {
        least + self.below(most - least + 1)
    }
}

// ---- the jobs ----

fn tree(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    fn grow(depth: u64, width: u64) -> u64 {
        if depth == 0 {
            return 1;
        }
        let children: Vec<_> = (0..width)
            .map(|_| counted(move || grow(depth - 1, width)))
            .collect();
        children.into_iter().map(|c| c.join().unwrap()).sum()
    }
    let (depth, width) = (dice.from(1, 5), dice.from(1, 5));
    same("leaves", grow(depth, width), width.pow(depth as u32))
}

fn yields(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let turns = Arc::new(AtomicU64::new(0));
    let (n, each) = (dice.from(1, 50), dice.from(1, 50));
    let handles: Vec<_> = (0..n)
        .map(|_| {
            let turns = Arc::clone(&turns);
            counted(move || {
                for _ in 0..each {
                    turns.fetch_add(1, Relaxed);
                    yield_now();
                }
            })
        })
        .collect();
    handles.into_iter().for_each(|h| h.join().unwrap());
    same("turns", turns.load(Relaxed), n * each)
}

fn scopes(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let mut cells = vec![0u64; dice.from(1, 64) as usize];
    let nested = dice.below(2) == 0;
    scope(|s| {
        for (i, cell) in cells.iter_mut().enumerate() {
            s.go(move || {
                if nested {
                    scope(|inner| inner.go(|| *cell = i as u64).join().unwrap());
                } else {
                    yield_now();
                    *cell = i as u64;
                }
            });
        }
    });
    let wanted = (0..cells.len() as u64).collect();
    same("cells", cells, wanted)
}

goroutine_local! {
    static MINE: Cell<u64> = Cell::new(0);
}

fn locals(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let handles: Vec<_> = (1..=dice.from(1, 40))
        .map(|i| {
            counted(move || {
                let before = MINE.with(|m| m.replace(i));
                yield_now();
                (before, MINE.with(Cell::get) == i)
            })
        })
        .collect();
    for handle in handles {
        same("local", handle.join().unwrap(), (0, true))?;
    }
    Ok(())
}

fn panics(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    /// Blocks while its goroutine unwinds.
    struct Joins(Option<JoinHandle<()>>);
    impl Drop for Joins {
        fn drop(&mut self) {
            self.0.take().unwrap().join().unwrap();
        }
    }
    let n = dice.from(1, 20);
    let handles: Vec<_> = (0..n)
        .map(|i| {
            counted(move || {
                let _joins = (i % 4 == 0).then(|| Joins(Some(counted(yield_now))));
                if i % 2 == 0 {
                    std::panic::resume_unwind(Box::new(i)); // without a word on stderr
                }
                i
            })
        })
        .collect();
    let mut sum = 0;
    for handle in handles {
        sum += match handle.join() {
            Ok(i) => i,
            Err(payload) => *payload.downcast::<u64>().map_err(|_| "another payload")?,
        };
    }
    same("payloads and results", sum, n * (n - 1) / 2)
}

fn detached(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let (n, left) = (dice.from(1, 100), Arc::new(AtomicU64::new(0)));
    for i in 0..n {
        let left = Arc::clone(&left);
        let handle = counted(move || {
            if i % 3 == 0 {
                yield_now();
            }
            left.fetch_add(1, Relaxed);
        });
        if i % 2 == 0 {
            yield_now();
        }
        drop(handle);
    }
    while left.load(Relaxed) < n {
        yield_now();
    }
    same("detached", left.load(Relaxed), n)
}

fn shapes(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    #[repr(align(64))]
    #[derive(Clone, Copy, PartialEq, Debug)]
    struct Aligned(u64);
    let x = dice.roll();
    same("word", counted(move || x).join().unwrap(), x)?;
    same("nothing", counted(|| ()).join().unwrap(), ())?;
    let large = [x; 100];
    same("large", counted(move || large).join().unwrap(), large)?;
    let aligned = Aligned(x);
    same("aligned", counted(move || aligned).join().unwrap(), aligned)?;
    let (size, name) = (1 << dice.from(15, 22), x.to_string());
    let builder = runnext::goroutine::Builder::new().stack_size(size);
    let named = builder.name(name.clone()).spawn(|| {
        let me = runnext::current().expect("a goroutine");
        me.name().map(str::to_owned)
    });
    let named = named.map_err(|e| e.to_string())?;
    same("name", named.join().unwrap(), Some(name))
}

fn threads(rt: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let (x, n) = (dice.below(1000), dice.from(1, 4));
    let from_here = counted(move || x);
    let sum: u64 = runnext::blocking(|| {
        std::thread::scope(|s| {
            let joins = s.spawn(move || from_here.join().unwrap());
            let runs: Vec<_> = (0..n)
                .map(|_| s.spawn(move || rt.run(|| counted(move || x).join().unwrap())))
                .collect();
            let goes = s.spawn(move || rt.go(move || x).join().unwrap());
            let runs: u64 = runs.into_iter().map(|t| t.join().unwrap()).sum();
            runs + joins.join().unwrap() + goes.join().unwrap()
        })
    });
    same("from threads", sum, x * (n + 2))
}

fn locked(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let rounds = dice.from(1, 10);
    let stays = counted(move || {
        let _tied = runnext::lock_os_thread();
        let thread = std::thread::current().id();
        (0..rounds).all(|i| {
            match i % 3 {
                0 => yield_now(),
                1 => counted(yield_now).join().unwrap(),
                _ => drop(counted(|| ())),
            }
            std::thread::current().id() == thread
        })
    });
    same("stayed", stays.join().unwrap(), true)
}

fn resize(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    for _ in 0..dice.from(1, 5) {
        set_procs(dice.from(1, 8) as usize);
        yield_now();
    }
    Ok(())
}

fn blocking(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let pause = Duration::from_micros(dice.below(300));
    let declared = dice.below(2) == 0;
    let handles: Vec<_> = (0..dice.from(1, 6))
        .map(|i| {
            counted(move || {
                if declared {
                    runnext::blocking(|| std::thread::sleep(pause));
                } else {
                    std::thread::sleep(pause); // nobody told the runtime
                }
                i
            })
        })
        .collect();
    for (i, handle) in handles.into_iter().enumerate() {
        same("blocked", handle.join().unwrap(), i as u64)?;
    }
    Ok(())
}

fn hogs(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let stop = Arc::new(AtomicBool::new(false));
    let handles: Vec<_> = (0..dice.from(1, 3))
        .map(|_| {
            let stop = Arc::clone(&stop);
            // Spins until another goroutine, which may have no other P, stops it.
            counted(move || {
                let since = Instant::now();
                while !stop.load(Relaxed) && since.elapsed() < PATIENCE {
                    std::hint::spin_loop();
                }
                stop.load(Relaxed)
            })
        })
        .collect();
    counted(move || stop.store(true, Relaxed)).join().unwrap();
    for handle in handles {
        same("stopped", handle.join().unwrap(), true)?;
    }
    Ok(())
}

fn pipeline(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let (stages, n) = (dice.from(1, 10), dice.from(1, 100));
    let (first, mut last) = bounded::<u64>(dice.below(4) as usize);
    for _ in 0..stages {
        let (tx, rx) = bounded(dice.below(4) as usize);
        let from = std::mem::replace(&mut last, rx);
        counted(move || from.into_iter().for_each(|x| tx.send(x + 1).unwrap()));
    }
    counted(move || (0..n).for_each(|i| first.send(i).unwrap()));
    let through: Vec<u64> = last.iter().collect();
    same("in order", through, (stages..stages + n).collect())
}

fn fan(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let (senders, each) = (dice.from(1, 8), dice.from(1, 200));
    let (tx, rx) = match dice.below(3) {
        0 => unbounded(),
        n => bounded(8 * (n as usize - 1)),
    };
    for _ in 0..senders {
        let tx = tx.clone();
        counted(move || (1..=each).for_each(|i| tx.send(i).unwrap()));
    }
    drop(tx);
    let receivers: Vec<_> = (0..dice.from(1, 8))
        .map(|_| {
            let rx = rx.clone();
            counted(move || rx.into_iter().sum::<u64>())
        })
        .collect();
    let sum = receivers
        .into_iter()
        .map(|r| r.join().unwrap())
        .sum::<u64>();
    same("received", sum, senders * each * (each + 1) / 2)
}

fn locks(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let (n, each) = (dice.from(1, 16), dice.from(1, 100));
    let total = Arc::new((
        sync::Mutex::new(0u64),
        sync::RwLock::new(0u64),
        sync::Semaphore::new(2),
    ));
    let group = sync::WaitGroup::new();
    for _ in 0..n {
        let total = Arc::clone(&total);
        STARTED.fetch_add(1, Relaxed);
        group.go(move || {
            RAN.fetch_add(1, Relaxed);
            for i in 0..each {
                let _permit = (i % 8 == 0).then(|| total.2.acquire());
                *total.0.lock() += 1;
                if i % 4 == 0 {
                    *total.1.write() += 1;
                } else {
                    let _ = *total.1.read();
                }
            }
        });
    }
    group.wait();
    same("under the mutex", *total.0.lock(), n * each)?;
    same("under the rwlock", *total.1.read(), n * each.div_ceil(4))
}

fn sleeps(_: &Runtime, dice: &mut Dice) -> Result<(), String> {
    let handles: Vec<_> = (0..dice.from(1, 20))
        .map(|_| {
            let nap = Duration::from_micros(dice.below(2000));
            counted(move || {
                let since = Instant::now();
                runnext::time::sleep(nap);
                since.elapsed() >= nap
            })
        })
        .collect();
    for handle in handles {
        same("not woken early", handle.join().unwrap(), true)?;
    }
    Ok(())
}

// ---- the frame ----

struct Options {
    seconds: u64,
    procs: Option<usize>,
    seed: u64,
}

fn options() -> Result<Options, String> {
    let clock = Instant::now();
    let mut options = Options {
        seconds: 10,
        procs: None,
        // Where things lie differs from run to run.
        seed: Dice(std::ptr::from_ref(&clock).addr() as u64 ^ u64::from(std::process::id())).roll(),
    };
    let mut args = std::env::args().skip(1);
    while let Some(name) = args.next() {
        let value = args.next().and_then(|v| v.parse().ok());
        let value: u64 = value.ok_or(format!("{name} needs a number"))?;
        match name.as_str() {
            "--seconds" => options.seconds = value,
            "--procs" => options.procs = Some(value as usize),
            "--seed" => options.seed = value,
            _ => return Err(format!("{name}? Known are --seconds, --procs, --seed")),
        }
    }
    Ok(options)
}

fn drive(rt: &Runtime, driver: usize, seed: u64, until: Instant) {
    let mut dice = Dice(seed);
    while Instant::now() < until {
        let (name, job) = JOBS[dice.below(JOBS.len() as u64) as usize];
        let seed = dice.roll();
        UNDER_WAY.lock().unwrap()[driver] = Some((name, seed));
        if let Err(what) = job(rt, &mut Dice(seed)) {
            println!("FAILED {name} (seed {seed}): {what}");
            exit(1);
        }
        UNDER_WAY.lock().unwrap()[driver] = None;
        JOBS_DONE.fetch_add(1, Relaxed);
    }
}

/// Prints how far it got; says what is missing, and ends it all, if nothing moves.
fn watch() {
    let mut last = (0, Instant::now());
    for second in 1u64.. {
        std::thread::sleep(Duration::from_secs(1));
        let now = JOBS_DONE.load(Relaxed);
        if now != last.0 {
            last = (now, Instant::now());
        } else if last.1.elapsed() > PATIENCE {
            let (started, ran) = (STARTED.load(Relaxed), RAN.load(Relaxed));
            println!("STUCK after {now} jobs; {started} goroutines started, {ran} ran; under way:");
            let under_way = UNDER_WAY.lock().unwrap();
            for (name, seed) in under_way.iter().flatten() {
                println!("  {name} (seed {seed})");
            }
            exit(2);
        }
        if second % 5 == 0 {
            let ran = RAN.load(Relaxed);
            println!("{second:4} s  {now:9} jobs  {ran:11} goroutines");
        }
    }
}

fn main() {
    let options = options().unwrap_or_else(|e| {
        eprintln!("{e}");
        exit(64)
    });
    println!("seed {}", options.seed);
    let mut builder = Runtime::builder();
    if let Some(procs) = options.procs {
        builder = builder.procs(procs);
    }
    // SAFETY: no job keeps a thread-local borrowed over a call that can park.
    let rt = unsafe { builder.build() }.unwrap_or_else(|e| {
        eprintln!("{e}");
        exit(64)
    });
    std::thread::spawn(watch);
    let begun = Instant::now();
    let until = begun + Duration::from_secs(options.seconds);
    let mut dice = Dice(options.seed);
    let left = rt.run(|| {
        scope(|s| {
            for driver in 0..DRIVERS {
                let (rt, seed) = (&rt, dice.roll());
                s.go(move || drive(rt, driver, seed, until));
            }
        });
        // Detached ones have done their part, but may still be on their way out.
        while runnext::num_goroutines() > 1 && begun.elapsed() < PATIENCE + (until - begun) {
            yield_now();
        }
        runnext::num_goroutines() - 1
    });
    let (started, ran) = (STARTED.load(Relaxed), RAN.load(Relaxed));
    let ends = rt.shutdown(PATIENCE);
    if left + ends.abandoned > 0 || started != ran {
        println!(
            "FAILED: {started} goroutines started, {ran} ran, {left} left at the end, {ends:?}"
        );
        exit(1);
    }
    let jobs = JOBS_DONE.load(Relaxed);
    println!(
        "ok: {jobs} jobs, {ran} goroutines, none lost and none run twice, in {:.1} s",
        begun.elapsed().as_secs_f64()
    );
}

//! Latency beside those that use all they get: experiments 1, 6, 8 and 9.

use std::io::{Read, Write};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Duration;

use harness::{Args, Report, Rng, now_ns, stir};
use runnext::sync::Mutex;
use runnext::time::sleep;
use runnext::{CpuLimit, Priority, Runtime, TaskGroup, chan};

use super::{CHECK, Hogs, Meter, seconds};

const PERIOD: Duration = Duration::from_millis(1);

/// A High group woken at 1 kHz beside 8 hogs per P in Low.
pub fn wake(args: &Args, rt: &Runtime) {
    let high = TaskGroup::builder("high").priority(Priority::High).build();
    let low = TaskGroup::builder("low").priority(Priority::Low).build();
    let steps = if args.get("checkpoints", true) {
        CHECK
    } else {
        0
    };
    let via = args.text("via", "timer").to_owned();
    let window = seconds(args, 5.0);
    let (mut late, used, wall) = rt.run(|| {
        let mut hogs = Hogs::new();
        if args.get("beside", true) {
            hogs.add(&low, 8 * args.procs(), steps);
        }
        sleep(Duration::from_millis(200));
        let groups = [low.clone()];
        let meter = Meter::start(&groups);
        let late = match via.as_str() {
            "timer" => high.go(move || by_timer(window)),
            "chan" => by_thread(&high, window),
            "socket" => by_socket(&high, window),
            _ => harness::unsupported("group-wake"),
        };
        let late = late.join().expect("no panic");
        let result = (late, meter.used(), meter.wall());
        hogs.stop();
        result
    });
    let queued = high.stats().wake_latency;
    Report::new("group-wake")
        .put("queued_ms_p90", queued.quantile(0.9).as_secs_f64() * 1e3)
        .put("queued_ms_p99", queued.quantile(0.99).as_secs_f64() * 1e3)
        .percentiles("late_ms_", &mut late)
        .put("low_percent", 100.0 * used[0] / wall / args.procs() as f64)
        .print();
}

/// How late each is, in ms; a wake-up that is late by n periods counts for those it made impossible too.
struct Late {
    due: u64,
    end: u64,
    late: Vec<f64>,
}

impl Late {
    fn new(window: Duration) -> Late {
        let now = now_ns();
        Late {
            due: now + PERIOD.as_nanos() as u64,
            end: now + window.as_nanos() as u64,
            late: Vec::new(),
        }
    }

    fn woke(&mut self) -> bool {
        let now = now_ns();
        while self.due <= now {
            self.late.push((now - self.due) as f64 / 1e6);
            self.due += PERIOD.as_nanos() as u64;
        }
        now < self.end
    }

    fn until(&self) -> Duration {
        Duration::from_nanos(self.due.saturating_sub(now_ns()))
    }
}

/// Wakes by itself.
pub fn by_timer(window: Duration) -> Vec<f64> {
    let mut late = Late::new(window);
    loop {
        sleep(late.until());
        if !late.woke() {
            return late.late;
        }
    }
}

/// A plain thread sends the time every millisecond.
fn by_thread(group: &TaskGroup, window: Duration) -> runnext::JoinHandle<Vec<f64>> {
    let (tx, rx) = chan::unbounded::<u64>();
    std::thread::spawn(move || {
        let end = now_ns() + window.as_nanos() as u64;
        while now_ns() < end {
            std::thread::sleep(PERIOD);
            if tx.send(now_ns()).is_err() {
                return;
            }
        }
    });
    group.go(move || {
        rx.iter()
            .map(|sent| (now_ns() - sent) as f64 / 1e6)
            .collect()
    })
}

/// A plain thread writes the time to a socket every millisecond.
fn by_socket(group: &TaskGroup, window: Duration) -> runnext::JoinHandle<Vec<f64>> {
    let listener = runnext::net::TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("bound");
    std::thread::spawn(move || {
        let mut stream = std::net::TcpStream::connect(address).expect("connect");
        stream.set_nodelay(true).expect("a socket");
        let end = now_ns() + window.as_nanos() as u64;
        while now_ns() < end {
            std::thread::sleep(PERIOD);
            if stream.write_all(&now_ns().to_le_bytes()).is_err() {
                return;
            }
        }
    });
    group.go(move || {
        let (mut stream, _) = listener.accept().expect("a connection");
        let (mut late, mut word) = (Vec::new(), [0; 8]);
        while stream.read_exact(&mut word).is_ok() {
            late.push((now_ns() - u64::from_le_bytes(word)) as f64 / 1e6);
        }
        late
    })
}

/// A request of the light kind: starts a goroutine that sleeps 1 ms and answers over a channel, and waits for it.
fn delay_1ms() {
    let (tx, rx) = chan::bounded(0);
    runnext::go(move || {
        sleep(PERIOD);
        let _ = tx.send(());
    });
    rx.recv().expect("an answer");
}

/// The cpuworker experiment, in process: light requests at random times, heavy ones all the time. `mode` is alone, plain or grouped.
pub fn mixed(args: &Args, rt: &Runtime) {
    let mode = args.text("mode", "grouped").to_owned();
    let rate: f64 = args.get("rate", 1000.0);
    let window = seconds(args, 4.0);
    let clients = (6.25 * args.procs() as f64) as usize;
    let light = TaskGroup::builder("light").priority(Priority::High).build();
    let heavy = TaskGroup::builder("heavy").build();
    let stop = Arc::new(AtomicBool::new(false));
    let done = Arc::new(std::sync::atomic::AtomicU64::new(0));
    let cpu = harness::usage();
    let begun = now_ns();
    let mut late = rt.run(|| {
        let mut all = Vec::new();
        for _ in 0..if mode == "alone" { 0 } else { clients } {
            let (stop, done) = (stop.clone(), done.clone());
            // 0.3 s of CPU at a time, with a checkpoint every 20 µs.
            let work = move || {
                while !stop.load(Relaxed) {
                    let mut x = 1;
                    for _ in 0..15_000 {
                        x = stir(x, CHECK);
                        runnext::checkpoint();
                        done.fetch_add(1, Relaxed);
                        if stop.load(Relaxed) {
                            break;
                        }
                    }
                    std::hint::black_box(x);
                }
            };
            all.push(match mode.as_str() {
                "grouped" => heavy.go(work),
                _ => runnext::go(work),
            });
        }
        sleep(Duration::from_millis(200));
        let requests = move || {
            let mut dice = Rng::new(7);
            let (tx, rx) = chan::unbounded::<f64>();
            let begin = now_ns();
            let mut at = begin;
            while at < begin + window.as_nanos() as u64 {
                at += (-dice.unit().ln() / rate * 1e9) as u64;
                sleep(Duration::from_nanos(at.saturating_sub(now_ns())));
                let tx = tx.clone();
                runnext::go(move || {
                    delay_1ms();
                    let _ = tx.send((now_ns() - at) as f64 / 1e6);
                });
            }
            drop(tx);
            rx.iter().collect::<Vec<f64>>()
        };
        let late = match mode.as_str() {
            "grouped" => light.go(requests),
            _ => runnext::go(requests),
        };
        let late = late.join().expect("no panic");
        stop.store(true, Relaxed);
        for one in all {
            one.join().expect("no panic");
        }
        late
    });
    let wall = (now_ns() - begun) as f64 / 1e9;
    let queued = light.stats().wake_latency;
    let mut report = Report::new("group-mixed");
    if mode == "grouped" {
        let of = |group: &TaskGroup| group.stats().cpu_time.as_secs_f64();
        let left = wall * args.procs() as f64 - of(&light);
        report = report.put("heavy_of_left_percent", 100.0 * of(&heavy) / left);
    }
    report
        .percentiles("light_ms_", &mut late)
        .put("queued_ms_p99", queued.quantile(0.99).as_secs_f64() * 1e3)
        .put("preempted", heavy.stats().preemptions as f64)
        .put("heavy_per_s", done.load(Relaxed) as f64 / wall)
        .put(
            "busy_percent",
            100.0 * (harness::usage().cpu - cpu.cpu).as_secs_f64() / wall / args.procs() as f64,
        )
        .print();
}

/// A Low owner of a lock, Normal hogs, a High waiter; `lend=0` switches lending off.
pub fn locks(args: &Args, rt: &Runtime) {
    let low = TaskGroup::builder("low").priority(Priority::Low).build();
    let normal = TaskGroup::new("normal");
    let high = TaskGroup::builder("high").priority(Priority::High).build();
    let window = seconds(args, 3.0);
    let section: u64 = args.get("section_us", 200);
    let mut waited = rt.run(|| {
        let lock: Arc<Mutex<()>> = Arc::new(Mutex::new(()));
        let mut hogs = Hogs::new();
        hogs.add(&normal, 4 * args.procs(), CHECK);
        let (held, stop) = (lock.clone(), hogs.stop.clone());
        let (taken, told) = chan::bounded::<()>(0);
        let (had, again) = chan::bounded::<()>(0);
        let owner = low.go(move || {
            while !stop.load(Relaxed) {
                let guard = held.lock();
                if taken.send(()).is_err() {
                    return;
                }
                let mut left = section;
                while left > 0 {
                    harness::spin_for(Duration::from_micros(10));
                    left = left.saturating_sub(10);
                    runnext::yield_now(); // others get their turns while it holds the lock
                }
                drop(guard);
                if again.recv().is_err() {
                    return;
                }
            }
        });
        let waiter = high.go(move || {
            let (mut waited, end) = (Vec::new(), now_ns() + window.as_nanos() as u64);
            while now_ns() < end && told.recv().is_ok() {
                let begin = now_ns();
                drop(lock.lock());
                waited.push((now_ns() - begin) as f64 / 1e6);
                sleep(PERIOD);
                let _ = had.send(());
            }
            waited
        });
        let waited = waiter.join().expect("no panic");
        hogs.stop();
        owner.join().expect("no panic");
        waited
    });
    Report::new("group-locks")
        .percentiles("wait_ms_", &mut waited)
        .put("lent", high.stats().lent as f64)
        .print();
}

/// Foreground load that steps from 60 to 90 % of the machine and back, beside a Low group that wants all: `CpuLimit::Adaptive`.
pub fn elastic(args: &Args) {
    let target = Duration::from_micros(args.get("target_us", 1000));
    // SAFETY: nothing here keeps anything of a thread-local over a call that can park.
    let rt = unsafe {
        Runtime::builder()
            .procs(args.procs())
            .cpu_limit(CpuLimit::Adaptive { target_p99: target })
            .build()
    }
    .expect("build the runtime");
    let groups = [
        TaskGroup::new("foreground"),
        TaskGroup::builder("background")
            .priority(Priority::Low)
            .build(),
    ];
    let procs = args.procs() as f64;
    let phase = seconds(args, 2.0);
    let rows = rt.run(|| {
        let cost = cost();
        let mut hogs = Hogs::new();
        if args.get("beside", true) {
            hogs.add(&groups[1], 2 * args.procs(), CHECK);
        }
        let rows = [0.6, 0.9, 0.6].map(|load| {
            let meter = Meter::start(&groups);
            let late = foreground(&groups[0], load * procs, cost, phase);
            (load, late, meter.used(), meter.wall())
        });
        hogs.stop();
        rows
    });
    let mut report = Report::new("group-elastic");
    for (i, (_, mut late, used, wall)) in rows.into_iter().enumerate() {
        let all = wall * procs;
        report = report
            .percentiles(&format!("phase{i}_ms_"), &mut late)
            .put(
                &format!("phase{i}_left_percent"),
                100.0 * used[1] / (all - used[0]),
            )
            .put(&format!("phase{i}_low_percent"), 100.0 * used[1] / all)
            .put(
                &format!("phase{i}_busy_percent"),
                100.0 * (used[0] + used[1]) / all,
            );
    }
    report.print();
}

/// Steps of a request of about half a millisecond.
const STEPS: u64 = 260_000;

/// What a request costs here, in seconds, while all processors are at it: the median of some.
pub fn cost() -> f64 {
    let timed = || {
        let one = |_| {
            let begin = now_ns();
            harness::work(STEPS);
            now_ns() - begin
        };
        (0..100).map(one).collect::<Vec<u64>>()
    };
    let mut all = runnext::scope(|s| {
        let each: Vec<_> = (0..runnext::procs()).map(|_| s.go(timed)).collect();
        let costs = each.into_iter().map(|one| one.join().expect("no panic"));
        costs.flatten().collect::<Vec<u64>>()
    });
    all.sort_unstable();
    all[all.len() / 2] as f64 / 1e9
}

/// Requests at random times that load so many cores, each of which costs `cost` seconds of CPU; how long each took.
pub fn foreground(group: &TaskGroup, cores: f64, cost: f64, window: Duration) -> Vec<f64> {
    let rate = cores / cost;
    let requests = move || {
        let mut dice = Rng::new(3);
        let (tx, rx) = chan::unbounded::<f64>();
        let begin = now_ns();
        let mut at = begin;
        while at < begin + window.as_nanos() as u64 {
            at += (-dice.unit().ln() / rate * 1e9) as u64;
            let wait = at.saturating_sub(now_ns());
            if wait > 0 {
                sleep(Duration::from_nanos(wait));
            }
            let tx = tx.clone();
            runnext::go(move || {
                harness::work(STEPS);
                let _ = tx.send((now_ns() - at) as f64 / 1e6);
            });
        }
        drop(tx);
        rx.iter().collect::<Vec<f64>>()
    };
    group.go(requests).join().expect("no panic")
}

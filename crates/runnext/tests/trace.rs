//! Traces: what is exported is read back, and tells what happened.

mod common;
#[path = "common/json.rs"]
mod json;

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::*};
use std::time::Duration;

use common::{built, child, runtime, until};
use json::Json;
use runnext::trace::{self, Options};
use runnext::{Runtime, TaskGroup, blocking, chan, go, scope, set_procs, time, yield_now};

/// Reads a trace back and checks what must hold of any: runs on a P do not overlap, arrows have two ends, async parts nest.
fn read(json: &str) -> Vec<Json> {
    let all = Json::parse(json);
    let events = all.list("traceEvents").to_vec();
    let mut tracks: HashMap<u64, Vec<(f64, f64)>> = HashMap::new();
    let (mut begun, mut arrived) = (HashMap::new(), 0);
    for e in &events {
        let ph = e.text("ph").expect("every event has a phase");
        assert!(e.number("pid").is_some(), "{e:?}");
        assert!(
            ph == "M" || e.number("ts").is_some_and(|ts| ts >= 0.0),
            "{e:?}"
        );
        match ph {
            "X" => {
                let (ts, dur) = (e.number("ts").unwrap(), e.number("dur").unwrap());
                assert!(dur >= 0.0);
                let tid = e.number("tid").unwrap() as u64;
                tracks.entry(tid).or_default().push((ts, ts + dur));
            }
            "s" => {
                let id = e.number("id").unwrap() as u64;
                assert!(begun.insert(id, e.number("ts").unwrap()).is_none());
            }
            "f" => {
                let from = begun[&(e.number("id").unwrap() as u64)];
                assert!(from <= e.number("ts").unwrap(), "an arrow goes back: {e:?}");
                arrived += 1;
            }
            _ => {}
        }
    }
    assert_eq!(begun.len(), arrived);
    for (p, mut runs) in tracks {
        runs.sort_by(|a, b| a.partial_cmp(b).unwrap());
        for pair in runs.windows(2) {
            // To the thousandth of a microsecond that is written.
            assert!(pair[0].1 <= pair[1].0 + 0.0015, "P{p}: {pair:?}");
        }
    }
    events
}

fn runs<'a>(events: &'a [Json], who: &str) -> Vec<&'a Json> {
    let name = format!("goroutine {who}");
    events
        .iter()
        .filter(|e| e.text("ph") == Some("X") && e.text("name") == Some(&name))
        .collect()
}

fn ends<'a>(runs: &[&'a Json]) -> Vec<&'a str> {
    runs.iter()
        .map(|r| r.get("args").unwrap().text("end").unwrap())
        .collect()
}

#[test]
fn every_run_of_a_known_goroutine_is_there() {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        trace::start(Options::default()).unwrap();
        let (tx, rx) = chan::bounded::<()>(0);
        let worker = go(move || {
            yield_now();
            yield_now();
            rx.recv().unwrap();
            rx.recv().unwrap_err();
        });
        let id = worker.goroutine().id().to_string();
        until(|| tx.try_send(()).is_ok());
        drop(tx);
        worker.join().unwrap();
        let trace = trace::stop().unwrap();
        assert_eq!(trace.lost(), 0);
        let events = read(&trace.to_chrome());
        let seen = runs(&events, &id);
        let ends = ends(&seen);
        assert_eq!(ends[..2], ["yields", "yields"]);
        assert_eq!(*ends.last().unwrap(), "ends");
        assert!(ends.contains(&"chan receive"), "{ends:?}");
        // It was born and woken by others that ran: arrows.
        assert!(events.iter().filter(|e| e.text("ph") == Some("f")).count() >= 2);
    });
}

#[test]
fn many_goroutines_on_several_processors_are_consistent() {
    let rt = runtime(4);
    rt.run(|| {
        trace::start(Options::default().events_per_proc(1 << 20)).unwrap();
        scope(|s| {
            for i in 0..200u64 {
                s.go(move || {
                    for n in 0..50 {
                        match (i + n) % 4 {
                            0 => yield_now(),
                            1 => drop(go(|| ()).join()),
                            2 => time::sleep(Duration::from_micros(i)),
                            _ => blocking(|| std::hint::black_box(())),
                        }
                    }
                });
            }
        });
        let trace = trace::stop().unwrap();
        assert_eq!(trace.lost(), 0);
        let events = read(&trace.to_chrome());
        let ended = events
            .iter()
            .filter(|e| e.text("ph") == Some("X"))
            .filter(|e| e.get("args").unwrap().text("end") == Some("ends"))
            .count();
        // Every one of them is seen to end, exactly once.
        assert!(ended >= 200 + 2400, "{ended}");
        let unknown = runs(&events, "?").len();
        assert_eq!(unknown, 0);
        assert!(events.iter().any(|e| e.text("ph") == Some("C")));
    });
}

#[test]
fn what_does_not_fit_is_counted_and_shown() {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        trace::start(Options::default().events_per_proc(64)).unwrap();
        scope(|s| {
            for _ in 0..4 {
                s.go(|| (0..1000).for_each(|_| yield_now()));
            }
        });
        let trace = trace::stop().unwrap();
        assert!(trace.lost() > 7000, "{}", trace.lost());
        // Two rings, the processor's and the monitor's, neither smaller than 256 words; the latter fills if this takes long.
        assert!(trace.events() <= 2 * 256, "{}", trace.events());
        let json = trace.to_chrome();
        read(&json);
        assert!(json.contains("events before this were lost"));
        assert!(json.contains(&format!("\"lost\":{}", trace.lost())));
    });
}

#[test]
fn the_flight_recorder_keeps_the_last_and_goes_on() {
    let rt = runtime(2);
    rt.run(|| {
        trace::start_flight_recorder(Options::default().events_per_proc(1024)).unwrap();
        let busy = || {
            scope(|s| {
                for _ in 0..4 {
                    s.go(|| (0..2000).for_each(|_| yield_now()));
                }
            })
        };
        busy();
        let first = trace::snapshot().unwrap();
        assert!(first.lost() > 0 && first.events() > 500);
        read(&first.to_chrome());
        busy();
        let second = trace::stop().unwrap();
        assert!(second.lost() > first.lost());
        read(&second.to_chrome());
        assert!(trace::stop().is_none() && trace::snapshot().is_none());
    });
}

/// The recorder tells how one left with the next that runs. Here that is often one locked to a thread: the P changes hands in between.
#[test]
fn the_flight_recorder_knows_why_each_left_beside_one_with_a_thread_of_its_own() {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        trace::start_flight_recorder(Options::default()).unwrap();
        let ((ping, pinged), (pong, ponged)) = (chan::bounded(0), chan::bounded(0));
        let locked = go(move || {
            let _locked = runnext::lock_os_thread();
            for n in pinged {
                pong.send(n).unwrap();
            }
        });
        let plain = go(move || {
            for n in 0..50 {
                ping.send(n).unwrap();
                assert_eq!(ponged.recv(), Ok(n));
            }
        });
        let id = plain.goroutine().id().to_string();
        plain.join().unwrap();
        locked.join().unwrap();
        let trace = trace::stop().unwrap();
        let events = read(&trace.to_chrome());
        let seen = runs(&events, &id);
        let ends = ends(&seen);
        let (last, before) = ends.split_last().unwrap();
        assert_eq!(*last, "ends");
        assert!(before.len() >= 50, "{ends:?}");
        assert!(
            before.iter().all(|end| end.starts_with("chan ")),
            "{ends:?}"
        );
    });
}

#[test]
fn one_at_a_time_and_again() {
    let rt = runtime(2);
    rt.run(|| {
        trace::start(Options::default()).unwrap();
        let refused = trace::start(Options::default()).unwrap_err();
        assert_eq!(refused.kind(), std::io::ErrorKind::AlreadyExists);
        trace::stop().unwrap();
        trace::start(Options::default()).unwrap();
        go(|| ()).join().unwrap();
        let again = trace::stop().unwrap();
        assert!(again.events() >= 3 && again.events() < 1000, "{again:?}");
        read(&again.to_chrome());
    });
}

#[test]
fn spans_follow_their_goroutine_and_nest() {
    let rt = runtime(2);
    rt.run(|| {
        trace::start(Options::default()).unwrap();
        let worker = go(|| {
            let _outer = trace::span("outer \"quoted\"\n");
            time::sleep(Duration::from_millis(1));
            let _inner = trace::span("inner");
            time::sleep(Duration::from_millis(1));
        });
        let id = format!("g{}", worker.goroutine().id());
        worker.join().unwrap();
        let events = read(&trace::stop().unwrap().to_chrome());
        let seen: Vec<_> = events
            .iter()
            .filter(|e| e.text("id") == Some(&id))
            .map(|e| (e.text("ph").unwrap(), e.text("name").unwrap()))
            .collect();
        let outer = "outer \"quoted\"\n";
        assert_eq!(
            seen,
            [("b", outer), ("b", "inner"), ("e", "inner"), ("e", outer)]
        );
    });
}

#[test]
fn processors_that_come_later_are_in_it() {
    let rt = runtime(1);
    rt.run(|| {
        trace::start(Options::default()).unwrap();
        set_procs(3);
        scope(|s| {
            for _ in 0..20 {
                s.go(|| (0..200).for_each(|_| yield_now()));
            }
        });
        let json = trace::stop().unwrap().to_chrome();
        read(&json);
        assert!(json.contains("\"name\":\"P2\""));
    });
}

/// One that blocked where processors were taken away seemed to run there to the end, and on another at once.
#[test]
fn who_loses_a_processor_that_is_one_too_many_does_not_run_there() {
    runtime(3).run(|| {
        trace::start(Options::default()).unwrap();
        let inside = AtomicUsize::new(0);
        scope(|s| {
            // One of them is not on the first processor, nor do they need a third.
            let (gates, _waiting): (Vec<_>, Vec<_>) = (0..2)
                .map(|_| {
                    let (open, gate) = std::sync::mpsc::channel::<()>();
                    let inside = &inside;
                    let waits = s.go(move || {
                        blocking(|| {
                            inside.fetch_add(1, Relaxed);
                            gate.recv().unwrap_err();
                        })
                    });
                    (open, waits)
                })
                .unzip();
            until(|| inside.load(Relaxed) == 2);
            set_procs(1);
            until(|| {
                let events = read(&trace::snapshot().unwrap().to_chrome());
                let ended = |e: &Json| e.get("args")?.text("end").map(str::to_owned);
                events
                    .iter()
                    .any(|e| ended(e).as_deref() == Some("blocks its thread"))
            });
            drop(gates);
        });
        read(&trace::stop().unwrap().to_chrome());
    });
}

/// 16 MiB for each of two processors and those without.
#[test]
fn memory_goes_back_when_a_trace_has_ended() {
    const RING: usize = 16 << 20;
    child(&[], || {
        runtime(2).run(|| {
            let mut rounds = Vec::new();
            let before = resident();
            for recorder in [false, true, false, true] {
                let (begin, per_event): (fn(Options) -> std::io::Result<()>, _) = match recorder {
                    true => (trace::start_flight_recorder, 8),
                    false => (trace::start, 16),
                };
                begin(Options::default().events_per_proc(RING / per_event)).unwrap();
                go(yield_now).join().unwrap();
                let during = resident().saturating_sub(before);
                let trace = trace::stop().unwrap();
                assert!(trace.events() >= 4, "{trace:?}");
                rounds.push((during >> 20, resident().saturating_sub(before) >> 20));
            }
            // All of it is there before the first event, so that who writes one need not wait for memory.
            assert!(
                rounds.iter().all(|r| r.0 >= 47 && r.1 < 16),
                "{rounds:?} MiB"
            );
        });
    })
    .passed();
}

fn resident() -> usize {
    let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
    let pages: usize = statm.split(' ').nth(1).unwrap().parse().unwrap();
    pages * 4096
}

#[test]
fn a_trace_there_is_no_room_for_is_refused() {
    child(&[("MALLOC_ARENA_MAX", "1")], || {
        runtime(2).run(|| {
            let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
            let pages: u64 = statm.split(' ').next().unwrap().parse().unwrap();
            let most = libc::rlimit {
                rlim_cur: pages * 4096 + (96 << 20), // one of them fits
                rlim_max: libc::RLIM_INFINITY,
            };
            // SAFETY: reads the structure only.
            let set = unsafe { libc::setrlimit(libc::RLIMIT_AS, &raw const most) };
            assert_eq!(set, 0);
            let large = Options::default().events_per_proc((64 << 20) / 16);
            let refused = trace::start(large).unwrap_err();
            assert_eq!(refused.kind(), std::io::ErrorKind::OutOfMemory, "{refused}");
            assert!(trace::stop().is_none(), "nothing was begun");
            trace::start(Options::default().events_per_proc(1024)).unwrap();
            go(yield_now).join().unwrap();
            assert!(trace::stop().unwrap().events() >= 4);
        });
    })
    .passed();
}

/// A tenth of that where the reader is not optimised: a million take it ten seconds and more.
#[test]
fn a_million_events_come_out_whole() {
    let yields_each = if cfg!(debug_assertions) { 5000 } else { 50_000 };
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        trace::start(Options::default().events_per_proc(1 << 21)).unwrap();
        scope(|s| {
            for _ in 0..10 {
                s.go(move || (0..yields_each).for_each(|_| yield_now()));
            }
        });
        let trace = trace::stop().unwrap();
        assert_eq!(trace.lost(), 0);
        assert!(trace.events() >= 20 * yields_each, "{trace:?}");
        let events = read(&trace.to_chrome());
        let yields = events
            .iter()
            .filter(|e| e.text("ph") == Some("X"))
            .filter(|e| e.get("args").unwrap().text("end") == Some("yields"))
            .count();
        assert_eq!(yields, 10 * yields_each);
    });
}

/// One P runs on without giving way: what is queued stays where it is until the monitor has told it.
#[test]
fn every_queue_has_a_counter() {
    let rt = built(Runtime::builder().procs(1).preemption(false));
    rt.run(|| {
        trace::start(Options::default()).unwrap();
        let group = TaskGroup::new("the \"group\"");
        // Of groups the monitor tells every 10 ms, and this goroutine may be asked to give way before that: they stay.
        let seen = Arc::new(AtomicBool::new(false));
        let stay = |seen: Arc<AtomicBool>| {
            move || {
                while !seen.load(Relaxed) {
                    yield_now()
                }
            }
        };
        let mut all: Vec<_> = (0..7).map(|_| group.go(stay(Arc::clone(&seen)))).collect();
        // More than a P keeps.
        all.extend((0..1000).map(|_| go(|| ())));
        let most = |events: &[Json], name: &str| {
            let counts = events.iter().filter(|e| e.text("name") == Some(name));
            let of = |e: &Json| e.get("args")?.number("goroutines");
            counts.filter_map(of).fold(0.0, f64::max)
        };
        let (mut global, mut grouped) = (0.0, 0.0);
        while global < 500.0 || grouped < 7.0 {
            let so_far = read(&trace::snapshot().unwrap().to_chrome());
            global = most(&so_far, "global run queue");
            grouped = most(&so_far, "group the \"group\" run queue");
        }
        assert!(global <= 1007.0 && grouped == 7.0, "{global} {grouped}");
        seen.store(true, Relaxed);
        all.into_iter().for_each(|j| j.join().unwrap());
        let events = read(&trace::stop().unwrap().to_chrome());
        assert!(most(&events, "P0 run queue") > 0.0);
    });
}

/// Go's stress of starts and stops: each trace is whole, whatever went on when it began and ended.
#[test]
fn begun_and_ended_all_the_time_beside_yielders() {
    let rt = runtime(4);
    rt.run(|| {
        let stop = std::sync::atomic::AtomicBool::new(false);
        scope(|s| {
            for _ in 0..50 {
                s.go(|| {
                    while !stop.load(std::sync::atomic::Ordering::Relaxed) {
                        yield_now();
                    }
                });
            }
            for _ in 0..200 {
                trace::start(Options::default().events_per_proc(1 << 10)).unwrap();
                yield_now();
                let trace = trace::stop().unwrap();
                read(&trace.to_chrome());
            }
            stop.store(true, std::sync::atomic::Ordering::Relaxed);
        });
    });
}

/// Go's TestTraceWaitOnPipe: one that is inside a call for as long as the trace lasts, and has no event in it.
#[test]
fn who_is_in_a_section_all_the_time_does_no_harm() {
    let rt = runtime(2);
    rt.run(|| {
        let (tx, rx) = std::sync::mpsc::channel::<()>();
        let inside = go(move || blocking(|| rx.recv()));
        until(|| runnext::stats::read().num_sys_calls == 1);
        trace::start(Options::default()).unwrap();
        go(|| ()).join().unwrap();
        let trace = trace::stop().unwrap();
        assert_eq!(trace.lost(), 0);
        let id = inside.goroutine().id().to_string();
        let events = read(&trace.to_chrome());
        assert_eq!(ends(&runs(&events, &id)), Vec::<&str>::new());
        drop(tx);
        assert!(inside.join().unwrap().is_err());
        // And in the next one it is there again.
        trace::start(Options::default()).unwrap();
        let other = go(|| blocking(|| ()));
        let id = other.goroutine().id().to_string();
        other.join().unwrap();
        let events = read(&trace::stop().unwrap().to_chrome());
        assert!(!runs(&events, &id).is_empty());
    });
}

//! Settings out of range, variables that make no sense, calls from the wrong place: an answer that says what to do.

mod common;

use std::io::ErrorKind;
use std::os::unix::ffi::OsStrExt;
use std::panic;
use std::time::Duration;

use common::{child, child_of, message, runtime};
use runnext::{Builder, Runtime, TaskGroup, chan, go, goroutine};

fn refusal(builder: Builder) -> String {
    // SAFETY: no thread-local is borrowed over a call that can park.
    let error = unsafe { builder.build() }.expect_err("must be refused");
    assert_eq!(error.kind(), ErrorKind::InvalidInput, "{error}");
    error.to_string()
}

#[test]
fn settings_out_of_range_are_refused_with_the_range() {
    let b = Runtime::builder;
    assert_eq!(refusal(b().procs(0)), "procs must be from 1 to 1024, not 0");
    assert!(refusal(b().procs(1025)).contains("1 to 1024"));
    assert!(refusal(b().procs(usize::MAX)).contains("1 to 1024"));
    assert!(refusal(b().max_threads(0)).starts_with("max_threads must be from 1"));
    assert!(refusal(b().max_threads(usize::MAX)).starts_with("max_threads must be from 1"));
    assert!(refusal(b().stack_size(0)).contains("stack size of 0 bytes"));
    assert!(refusal(b().stack_size(usize::MAX)).contains("stack size of"));
    assert!(refusal(b().stack_size((1 << 30) + 1)).contains("stack size of"));
    assert!(refusal(b().time_slice(Duration::ZERO)).starts_with("time_slice"));
    assert!(refusal(b().time_slice(Duration::MAX)).starts_with("time_slice"));
}

#[test]
fn a_refused_builder_leaves_no_runtime_behind() {
    child(&[], || {
        let threads = common::holdings().threads;
        for _ in 0..10 {
            refusal(Runtime::builder().procs(0));
        }
        assert_eq!(common::holdings().threads, threads);
    })
    .passed();
}

#[runnext::test(procs = 1)]
fn a_goroutines_stack_size_out_of_range_is_refused() {
    for size in [0, (1 << 30) + 1, usize::MAX] {
        let builder = goroutine::Builder::new().stack_size(size);
        let error = builder.spawn(|| ()).expect_err("must be refused");
        assert_eq!(error.kind(), ErrorKind::InvalidInput);
        assert!(error.to_string().contains(&size.to_string()), "{error}");
    }
    assert_eq!(runnext::num_goroutines(), 1);
}

#[test]
fn outside_a_runtime_every_call_says_what_to_do() {
    let calls: [(&str, fn()); 6] = [
        ("go", || drop(go(|| ()))),
        ("num_goroutines", || {
            runnext::num_goroutines();
        }),
        ("procs", || {
            runnext::procs();
        }),
        ("set_procs", || {
            runnext::set_procs(1);
        }),
        ("Scope::go", || runnext::scope(|s| drop(s.go(|| ())))),
        ("goroutine::Builder::spawn", || {
            drop(goroutine::Builder::new().spawn(|| ()))
        }),
    ];
    for (name, call) in calls {
        let payload = panic::catch_unwind(call).expect_err(name);
        let text = message(&*payload);
        assert!(
            text.contains(&format!("runnext::{name} called outside a runtime"))
                && text.contains("#[runnext::main]"),
            "{text}"
        );
    }
}

/// It named places in the runtime, which tell nobody where the mistake is.
#[test]
fn what_panics_with_advice_says_where_it_was_called() {
    let ended = child(&[("RUST_BACKTRACE", "0")], || {
        let group = TaskGroup::new("any");
        let calls: [&dyn Fn(); 7] = [
            &|| drop(go(|| ())),
            &|| _ = runnext::procs(),
            &|| _ = runnext::num_goroutines(),
            &|| drop(runnext::stats::read()),
            &|| drop(TaskGroup::all()),
            &|| drop(TaskGroup::builder("none").quota(0.0)),
            &|| group.set_quota(Some(f64::NAN)),
        ];
        for call in calls {
            panic::catch_unwind(panic::AssertUnwindSafe(call)).unwrap_err();
        }
    });
    let text = ended.passed().stderr;
    assert_eq!(text.matches("tests/bad_input.rs:").count(), 7, "{text}");
}

#[test]
fn outside_a_runtime_the_closure_is_dropped() {
    let drops = std::sync::Arc::default();
    let value = common::Counted::new(&drops);
    let call = panic::AssertUnwindSafe(move || drop(go(move || drop(value))));
    assert!(panic::catch_unwind(call).is_err());
    assert_eq!(drops.load(std::sync::atomic::Ordering::SeqCst), 1);
}

/// A runtime built in a child of `test` with one variable: how many procs it has, and what it said.
#[track_caller]
fn with_variable(test: &str, name: &str, value: &str) -> (usize, String) {
    let ended = child_of(test, &[(name, value)], || {
        let rt = common::built(Runtime::builder());
        rt.run(|| println!("procs={}", runnext::procs()));
    })
    .passed();
    let procs = ended.stdout.split("procs=").nth(1).unwrap();
    let procs = procs.lines().next().unwrap().parse().unwrap();
    (procs, ended.stderr)
}

fn usual_procs() -> usize {
    let rt = common::built(Runtime::builder());
    rt.run(runnext::procs)
}

#[test]
fn variables_set_what_nobody_set_in_code() {
    const TEST: &str = "variables_set_what_nobody_set_in_code";
    assert_eq!(with_variable(TEST, "RUNNEXT_PROCS", "5").0, 5);
}

#[test]
fn a_call_wins_over_a_variable() {
    child(&[("RUNNEXT_PROCS", "5")], || {
        assert_eq!(runtime(3).run(runnext::procs), 3);
    })
    .passed();
}

#[test]
fn a_variable_that_makes_no_sense_is_reported_and_ignored() {
    const TEST: &str = "a_variable_that_makes_no_sense_is_reported_and_ignored";
    for value in ["many", "", "-1", "0", "1025", "99999999999999999999999"] {
        let (procs, said) = with_variable(TEST, "RUNNEXT_PROCS", value);
        assert_eq!(procs, usual_procs(), "{value}");
        assert!(
            said.contains(&format!("ignored RUNNEXT_PROCS={value}:")),
            "{value}: {said}"
        );
    }
    for (name, value) in [
        ("RUNNEXT_MAX_THREADS", "0"),
        ("RUNNEXT_MAX_THREADS", "x"),
        ("RUNNEXT_STACK_SIZE", "0"),
        ("RUNNEXT_STACK_SIZE", "99999999999"),
        ("RUNNEXT_TIME_SLICE", "0"),
        ("RUNNEXT_TIME_SLICE", "soon"),
        ("RUNNEXT_TIME_SLICE", "0.09"),
        ("RUNNEXT_TIME_SLICE", "10001"),
        ("RUNNEXT_PREEMPTION", "maybe"),
        ("RUNNEXT_CPU_LIMIT", "0"),
        ("RUNNEXT_CPU_LIMIT", "1.5"),
        ("RUNNEXT_CPU_LIMIT", "adaptive"),
        ("RUNNEXT_CPU_LIMIT", "adaptive:soon"),
    ] {
        let (_, said) = with_variable(TEST, name, value);
        assert!(said.contains(&format!("ignored {name}={value}:")), "{said}");
    }
    let (_, said) = with_variable(TEST, "RUNNEXT_DEBUG", "chaos=perhaps,nonsense=1");
    assert!(
        said.contains("'chaos=perhaps'") && said.contains("'nonsense=1'"),
        "{said}"
    );
}

#[test]
fn a_variable_that_is_not_text_is_reported_and_ignored() {
    let odd = std::ffi::OsStr::from_bytes(b"4\xff");
    let ended = child(&[], || {
        // SAFETY: the only thread of interest; the harness's other threads do not read the environment.
        unsafe {
            std::env::set_var("RUNNEXT_PROCS", odd);
            std::env::set_var("RUNNEXT_DEBUG", odd);
        }
        let usual = std::thread::available_parallelism().unwrap().get();
        let rt = common::built(Runtime::builder());
        assert!(rt.run(runnext::procs) <= usual);
    });
    ended
        .passed()
        .said(&["ignored RUNNEXT_PROCS=", "RUNNEXT_DEBUG"]);
}

#[test]
fn good_values_say_nothing() {
    const TEST: &str = "good_values_say_nothing";
    for (name, value) in [
        ("RUNNEXT_PROCS", " 2 "),
        ("RUNNEXT_STACK_SIZE", "65536"),
        ("RUNNEXT_TIME_SLICE", "20"),
        ("RUNNEXT_TIME_SLICE", "0.1"),
        ("RUNNEXT_PREEMPTION", "off"),
        ("RUNNEXT_MAX_THREADS", "50"),
        ("RUNNEXT_CPU_LIMIT", "0.5"),
        ("RUNNEXT_CPU_LIMIT", "adaptive:0.5"),
        ("RUNNEXT_CPU_LIMIT", "unlimited"),
        ("RUNNEXT_DEBUG", "chaos=1,seed=3"),
    ] {
        let (_, said) = with_variable(TEST, name, value);
        assert!(!said.contains("runnext:"), "{name}={value}: {said}");
    }
}

/// The one overflowed in silence about what to do, the other ended the process.
#[test]
fn a_channel_for_which_there_is_no_memory_is_refused() {
    let calls: [(usize, fn(usize)); 3] = [
        (usize::MAX, |cap| drop(chan::bounded::<u8>(cap))),
        (usize::MAX / 16, |cap| drop(chan::bounded::<u64>(cap))),
        (1 << 58, |cap| drop(chan::bounded::<u8>(cap))),
    ];
    for (cap, call) in calls {
        let panic = panic::catch_unwind(|| call(cap)).unwrap_err();
        let text = message(&*panic);
        assert!(
            text.contains(&cap.to_string()) && text.contains("chan::unbounded"),
            "{text}"
        );
    }
    // What takes no room has room without end.
    let (tx, rx) = chan::bounded(usize::MAX);
    tx.send(()).unwrap();
    assert_eq!((rx.len(), rx.capacity()), (1, Some(usize::MAX)));
}

/// The program keeps its word when the system has no more threads: what runs goes on, and a message says why no more do.
#[test]
fn the_thread_limit_speaks_and_nothing_is_lost() {
    child(&[], || {
        let rt = common::built(Runtime::builder().procs(2).max_threads(6));
        let sum: usize = rt.run(|| {
            let handles: Vec<_> = (0..40)
                .map(|i| {
                    go(move || {
                        let _tied = runnext::lock_os_thread();
                        runnext::blocking(|| std::thread::sleep(Duration::from_millis(5)));
                        i
                    })
                })
                .collect();
            handles.into_iter().map(|h| h.join().unwrap()).sum()
        });
        assert_eq!(sum, 39 * 40 / 2);
    })
    .passed()
    .said(&[
        "runnext: cannot make another thread",
        "Builder::max_threads",
    ]);
}

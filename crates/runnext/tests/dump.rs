//! Dumps: every goroutine with what it does and where it stands; on demand, on SIGQUIT, on deadlock. Reports at intervals.

mod common;

use std::collections::HashSet;
use std::fs::File;
use std::io::{BufRead, BufReader, PipeReader, Read, Write};
use std::os::fd::{AsRawFd, FromRawFd};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::sync::mpsc::{self, Receiver};
use std::time::Duration;

use common::{child, runtime, shows, until};
use runnext::sync::{Condvar, Mutex, WaitGroup};
use runnext::{TaskGroup, blocking, chan, dump, go, goroutine, time};

/// What each goroutine does once nothing moves any more.
fn states() -> Vec<(u64, &'static str)> {
    let mut all = Vec::new();
    dump::for_each(|e| all.push((e.id, e.state)));
    all
}

#[test]
fn each_wait_has_its_word_in_go_s_form() {
    runtime(2).run(|| {
        let (tx, rx) = chan::bounded::<u32>(0);
        let (full, never) = chan::bounded::<u32>(0);
        let mutex = std::sync::Arc::new(Mutex::new(()));
        let held = mutex.lock();
        let group = WaitGroup::new();
        group.add(1);
        let condition = std::sync::Arc::new(Condvar::new());
        let receiver = {
            let rx = rx.clone();
            goroutine::Builder::new()
                .name("the receiver")
                .spawn(move || rx.recv())
                .unwrap()
        };
        let sender = go(move || full.send(1));
        let locker = {
            let mutex = std::sync::Arc::clone(&mutex);
            go(move || drop(mutex.lock()))
        };
        let waiter = {
            let group = group.clone();
            go(move || group.wait())
        };
        let sleeper = go(|| time::sleep(Duration::from_secs(3600)));
        let notified = {
            let condition = std::sync::Arc::clone(&condition);
            go(move || {
                let own = Mutex::new(());
                condition.wait(&mut own.lock());
            })
        };
        let wanted: HashSet<_> = [
            (receiver.goroutine().id(), "chan receive"),
            (sender.goroutine().id(), "chan send"),
            (locker.goroutine().id(), "sync.Mutex.Lock"),
            (waiter.goroutine().id(), "sync.WaitGroup.Wait"),
            (sleeper.goroutine().id(), "sleep"),
            (notified.goroutine().id(), "sync.Cond.Wait"),
        ]
        .into();
        until(|| wanted.is_subset(&states().into_iter().collect()));
        let text = dump::text();
        let line = format!(
            "goroutine {} [chan receive]: 'the receiver'\n",
            receiver.goroutine().id()
        );
        assert!(text.contains(&line), "{text}");
        let site = format!("\tspawned at {}\n", receiver.goroutine().spawned_at());
        assert!(text.contains(&site), "{text}");
        drop(held);
        drop((tx, never));
        group.done();
        condition.notify_all();
        locker.join().unwrap();
        waiter.join().unwrap();
        notified.join().unwrap();
        assert!(receiver.join().unwrap().is_err() && sender.join().unwrap().is_err());
        drop(sleeper);
    });
}

#[inline(never)]
fn a_function_to_be_found(rx: &chan::Receiver<()>) -> bool {
    std::hint::black_box(rx.recv().is_err())
}

#[cfg(feature = "backtrace")]
#[test]
fn parked_goroutines_show_where_they_stand() {
    runtime(1).run(|| {
        let (tx, rx) = chan::bounded::<()>(0);
        let waiter = go(move || a_function_to_be_found(&rx));
        let id = waiter.goroutine().id();
        until(|| states().contains(&(id, "chan receive")));
        let mut stack = None;
        dump::for_each(|e| {
            if e.id == id {
                stack = Some(e.stack);
            }
        });
        let stack = stack.expect("it is alive");
        let frame = stack
            .iter()
            .find(|f| f.function.contains("a_function_to_be_found"))
            .unwrap_or_else(|| panic!("{stack:#?}"));
        assert!(
            frame.file.as_ref().is_some_and(|f| f.ends_with("dump.rs")),
            "{frame:?}"
        );
        assert!(
            stack.iter().all(|f| !f.function.contains("corosensei")),
            "{stack:#?}"
        );
        drop(tx);
        assert!(waiter.join().unwrap());
    });
}

#[test]
fn groups_and_calls_show() {
    runtime(2).run(|| {
        let (release, hold) = chan::bounded::<()>(0);
        let group = runnext::TaskGroup::new("web");
        let member = {
            let hold = hold.clone();
            group.go(move || hold.recv())
        };
        let (let_go, pipe) = std::sync::mpsc::channel::<()>();
        let stuck = go(move || blocking(|| pipe.recv()));
        let (a, b) = (member.goroutine().id(), stuck.goroutine().id());
        until(|| {
            let all = states();
            all.contains(&(a, "chan receive")) && all.contains(&(b, "syscall"))
        });
        assert!(dump::text().contains(&format!("goroutine {a} [chan receive]: (group web)")));
        drop((release, let_go));
        assert!(member.join().unwrap().is_err() && stuck.join().unwrap().is_err());
    });
}

#[test]
fn a_handle_dumps_from_outside() {
    let rt = runtime(1);
    let (tx, rx) = chan::bounded::<()>(0);
    let waiter = rt.go(move || rx.recv());
    let line = format!("goroutine {} [chan receive]:", waiter.goroutine().id());
    until(|| rt.dump().contains(&line));
    drop(tx);
    waiter.join().unwrap().unwrap_err();
}

/// Go's TestNumGoroutine.
#[test]
fn as_many_are_shown_as_are_counted() {
    runtime(2).run(|| {
        assert_eq!((runnext::num_goroutines(), states().len()), (1, 1));
        let (tx, rx) = chan::bounded::<()>(0);
        let waiting: Vec<_> = (0..50)
            .map(|i| {
                let rx = rx.clone();
                go(move || match i % 3 {
                    0 => drop(rx.recv()),
                    1 => drop(blocking(|| rx.recv())),
                    _ => drop(go(move || rx.recv()).join()),
                })
            })
            .collect();
        until(|| runnext::num_goroutines() == 1 + 50 + 16);
        assert_eq!(states().len(), runnext::num_goroutines());
        assert_eq!(dump::text().matches("goroutine ").count(), 1 + 50 + 16);
        tx.close();
        waiting.into_iter().for_each(|w| w.join().unwrap());
        until(|| runnext::num_goroutines() == 1);
        until(|| states().len() == 1); // whoever ends is uncounted first
    });
}

/// However long it takes to write about them.
#[test]
fn all_are_looked_at_before_any_is_shown() {
    runtime(2).run(|| {
        let (tx, rx) = chan::bounded::<()>(0);
        let waiting: Vec<_> = (0..20)
            .map(|_| {
                let rx = rx.clone();
                go(move || rx.recv())
            })
            .collect();
        until(|| states().iter().filter(|s| s.1 == "chan receive").count() == 20);
        let mut shown = 0;
        dump::for_each(|entry| {
            tx.close();
            until(|| waiting.iter().all(|w| w.is_finished()));
            shown += usize::from(entry.state == "chan receive");
        });
        assert_eq!(shown, 20);
    });
}

#[test]
fn a_dump_beside_goroutines_that_move_shows_only_such_as_were() {
    runtime(2).run(|| {
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let movers: Vec<_> = (0..50)
            .map(|_| {
                let stop = std::sync::Arc::clone(&stop);
                go(move || {
                    while !stop.load(Relaxed) {
                        go(|| ()).join().unwrap();
                    }
                })
            })
            .collect();
        for _ in 0..20 {
            let mut seen = HashSet::new();
            dump::for_each(|e| assert!(e.id > 0 && seen.insert(e.id), "twice: {e:?}"));
            assert!(seen.len() > 40, "{}", seen.len());
        }
        stop.store(true, Relaxed);
        movers.into_iter().for_each(|j| j.join().unwrap());
    });
}

/// A shell starts what it runs in the background with SIGQUIT ignored, which a runtime respects.
fn sigquit_ends_the_process() {
    // SAFETY: the default action is no function.
    unsafe { libc::signal(libc::SIGQUIT, libc::SIG_DFL) };
}

#[test]
fn sigquit_shows_all_goroutines_and_ends_the_process() {
    child(&[], || {
        sigquit_ends_the_process();
        let rt = runtime(2);
        let (_tx, rx) = chan::bounded::<()>(0);
        let named = goroutine::Builder::new().name("left behind");
        let waiter = rt.run(|| named.spawn(move || rx.recv()).unwrap());
        let sleeper = rt.go(|| time::sleep(Duration::from_secs(3600)));
        until(|| {
            let text = rt.dump();
            shows(&text, &waiter, "chan receive") && shows(&text, &sleeper, "sleep")
        });
        // SAFETY: no preconditions.
        unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) };
        sleeper.join().unwrap();
    })
    .died_by(libc::SIGQUIT)
    .said(&["[chan receive]: 'left behind'", "[sleep]:", "spawned at"]);
}

/// The thread that was to make the dump saw that the runtime had stopped, and ended before it saw that a dump was wanted.
#[test]
fn sigquit_while_a_runtime_stops_ends_the_process() {
    child(&[], || {
        sigquit_ends_the_process();
        let rt = runtime(1);
        rt.run(|| ());
        // SAFETY: no preconditions.
        unsafe { libc::raise(libc::SIGQUIT) }; // its handler has run when this returns
        rt.shutdown(Duration::ZERO);
        loop {
            std::thread::park(); // the dump has a thread of its own, which ends the process
        }
    })
    .died_by(libc::SIGQUIT);
}

#[test]
fn sigquit_can_be_left_alone() {
    let ended = child(&[("RUNNEXT_DEBUG", "sigquit=0")], || {
        sigquit_ends_the_process();
        runtime(1).run(|| {
            // SAFETY: no preconditions.
            unsafe { libc::kill(libc::getpid(), libc::SIGQUIT) };
            time::sleep(Duration::from_secs(60));
        });
    })
    .died_by(libc::SIGQUIT);
    assert!(!ended.stderr.contains("goroutine"), "{ended:?}");
}

/// What this process writes to stderr from now on, by lines, which then go where they went before.
fn stderr_lines() -> Receiver<String> {
    let (reader, writer) = std::io::pipe().unwrap();
    // SAFETY: descriptors that are open, and the copy is ours alone.
    let mut before = unsafe {
        let before = File::from_raw_fd(libc::dup(2));
        assert_eq!(libc::dup2(writer.as_raw_fd(), 2), 2);
        before
    };
    let (tx, rx) = mpsc::channel();
    std::thread::spawn(move || {
        for line in BufReader::new(reader).lines().map_while(Result::ok) {
            writeln!(before, "{line}").unwrap();
            let _ = tx.send(line);
        }
    });
    rx
}

/// Waits until lines have said all of this, in any order.
fn until_said(lines: &Receiver<String>, parts: &[&str]) {
    let mut left: HashSet<_> = parts.iter().collect();
    while !left.is_empty() {
        let line = lines.recv().unwrap();
        left.retain(|part| !line.contains(**part));
    }
}

#[test]
fn schedtrace_is_in_go_s_form() {
    let ended = child(&[("RUNNEXT_DEBUG", "schedtrace=20")], || {
        let lines = stderr_lines();
        let _rt = runtime(2);
        let traces = lines.iter().filter(|l| l.starts_with("SCHED "));
        assert_eq!(traces.take(3).count(), 3);
    })
    .passed();
    let lines: Vec<_> = ended
        .stderr
        .lines()
        .filter(|l| l.starts_with("SCHED "))
        .collect();
    assert!(lines.len() >= 3, "{ended:?}");
    for line in lines {
        let shape: String = line
            .split(|c: char| c.is_ascii_digit())
            .filter(|part| !part.is_empty())
            .collect::<Vec<_>>()
            .join("N");
        assert_eq!(
            shape,
            "SCHED Nms: gomaxprocs=N idleprocs=N threads=N spinningthreads=N needspinning=N idlethreads=N \
             runqueue=N [ N N ] schedticks=[ N N ]",
            "{line}"
        );
    }
}

/// Of groups nothing was counted.
#[test]
fn schedtrace_counts_goroutines_of_groups() {
    let env = [("RUNNEXT_DEBUG", "schedtrace=20,asyncpreemptoff=1")];
    child(&env, || {
        let lines = stderr_lines();
        let (own, other) = (TaskGroup::new("own"), TaskGroup::new("other"));
        let seen = Arc::new(AtomicBool::new(false));
        let until = Arc::clone(&seen);
        let rt = runtime(1);
        // Three in the ring of its turn, the last of them in `runnext`; four in the list of another group.
        let handle = rt.go(move || {
            let body = move || {
                let mut all: Vec<_> = (0..3).map(|_| go(|| ())).collect();
                all.extend((0..4).map(|_| other.go(|| ())));
                while !until.load(Relaxed) {}
                all.into_iter().for_each(|one| one.join().unwrap());
            };
            own.go(body).join().unwrap();
        });
        let mut traces = lines.iter().filter(|l| l.starts_with("SCHED ")).take(500);
        assert!(traces.any(|l| l.contains(" [ 6 ] ")));
        seen.store(true, Relaxed);
        handle.join().unwrap();
    })
    .passed();
}

#[test]
fn scheddetail_has_every_p_m_and_g() {
    child(&[("RUNNEXT_DEBUG", "schedtrace=20,scheddetail=1")], || {
        let lines = stderr_lines();
        let rt = runtime(2);
        let (_tx, rx) = chan::bounded::<()>(0);
        rt.go(move || rx.recv());
        rt.go(|| time::sleep(Duration::from_secs(3600)));
        until_said(
            &lines,
            &[
                " gcwaiting=false nmidlelocked=0 stopwait=0 sysmonwait=",
                "  P0: status=",
                " schedtick=",
                " timerslen=",
                "  M0: p=",
                " mallocing=0 throwing=0 preemptoff= locks=0 dying=0 spinning=",
                "status=4(chan receive) m=nil lockedm=nil",
                "status=4(sleep) m=nil lockedm=nil",
            ],
        );
    })
    .passed();
}

/// Blocks its thread until the other end is closed. Not inlined: its name is looked for.
#[inline(never)]
fn wait_for_the_writer(mut pipe: PipeReader) {
    assert_eq!(pipe.read(&mut [0]).unwrap(), 0);
}

#[test]
fn stalls_are_counted_and_named_with_their_origin() {
    child(&[("RUNNEXT_DEBUG", "stalls=40")], || {
        let lines = stderr_lines();
        let rt = runtime(2);
        let (held, release) = std::io::pipe().unwrap();
        let culprit = goroutine::Builder::new().name("the culprit");
        let stuck = rt.run(|| culprit.spawn(move || wait_for_the_writer(held)).unwrap());
        let (section, leave) = std::io::pipe().unwrap();
        let declared = rt.go(move || blocking(|| wait_for_the_writer(section)));
        let culprit = "'the culprit' blocks its thread in undeclared code since ";
        let mut said = vec![culprit, "is in a blocking section since ", "dump.rs:"];
        // Where they stand: nobody can say that for other CPUs yet.
        if cfg!(all(feature = "backtrace", target_arch = "x86_64")) {
            said.push("wait_for_the_writer");
        }
        until_said(&lines, &said);
        let found = rt.stats().total_stalls;
        assert!(found >= 2, "{found}");
        until_said(&lines, &[culprit]);
        assert_eq!(
            rt.stats().total_stalls,
            found,
            "reported again, not found again"
        );
        drop((release, leave));
        stuck.join().unwrap();
        declared.join().unwrap();
    })
    .passed();
}

/// Calls nothing while it counts, so whoever looks finds it here. Not inlined: its name is looked for.
#[inline(never)]
fn count_until(stop: &AtomicBool) {
    while !stop.load(Relaxed) {
        let mut n = 0u32;
        while n < 50_000_000 {
            n += 1;
        }
    }
}

#[test]
fn a_hog_is_named_with_the_function_it_is_in() {
    child(&[("RUNNEXT_DEBUG", "stalls=40")], || {
        let lines = stderr_lines();
        let rt = runtime(2);
        let stop = std::sync::Arc::new(AtomicBool::new(false));
        let hog = rt.go({
            let stop = std::sync::Arc::clone(&stop);
            move || count_until(&stop)
        });
        let mut said = vec!["computes without giving way since "];
        if cfg!(feature = "backtrace") {
            said.push("count_until");
        }
        until_said(&lines, &said);
        stop.store(true, Relaxed);
        hog.join().unwrap();
    })
    .passed();
}

#[test]
fn bad_settings_are_reported_and_ignored() {
    child(
        &[("RUNNEXT_DEBUG", "schedtrace=often,stalls=-1,bogus=1")],
        || runtime(1).run(|| ()),
    )
    .passed()
    .said(&[
        "ignored 'schedtrace=often': the value of schedtrace must be a number",
        "ignored 'stalls=-1'",
        "ignored 'bogus=1': known are",
    ]);
}

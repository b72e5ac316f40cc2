//! A program in which nothing can happen any more says so and ends; one in which something can does not.
//!
//! Each case runs in a process of its own: this binary again, with the case's name in the environment.

use std::future::poll_fn;
use std::io::Write;
use std::process::{Command, Output};
use std::time::Duration;

use runnext::chan::bounded;
use runnext::net::{TcpListener, UnixStream};
use runnext::sync::{Condvar, Mutex};
use runnext::time::{Timer, after_func};

const CASE: &str = "RUNNEXT_TEST_DEADLOCK";

fn child(case: &str) -> Output {
    Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "case", "--nocapture", "--test-threads=1"])
        .env(CASE, case)
        .output()
        .unwrap()
}

/// Not a test by itself: the body of the children. It leaves the test harness behind, whose threads would count as able to act.
#[test]
fn case() {
    let Ok(case) = std::env::var(CASE) else {
        return;
    };
    // The harness's main thread waits for this one, in a way nobody can know: only a fork of this thread is alone.
    // SAFETY: the child runs nothing of the parent's but this function.
    match unsafe { fork() } {
        0 => {
            run(&case);
            std::process::exit(0);
        }
        pid => {
            let mut status = 0;
            // SAFETY: our own child, and a place for its status.
            unsafe { waitpid(pid, &mut status, 0) };
            std::process::exit((status >> 8) & 0xff);
        }
    }
}

unsafe extern "C" {
    fn fork() -> i32;
    fn waitpid(pid: i32, status: *mut i32, options: i32) -> i32;
    fn alarm(seconds: u32) -> u32;
}

fn run(case: &str) {
    let (case, procs) = match case.strip_suffix(" alone") {
        Some(case) => (case, 1),
        None => (case, 2),
    };
    // SAFETY: no thread-local is kept over a call that can park.
    let rt = unsafe { runnext::Runtime::builder().procs(procs).build() }.unwrap();
    rt.run(|| match case {
        "channel" => {
            let (_tx, rx) = bounded::<()>(0);
            let _ = rx.recv();
        }
        "mutex" => {
            let m = Mutex::new(());
            let _first = m.lock();
            let _second = m.lock();
        }
        "locked" => {
            let _tied = runnext::lock_os_thread();
            let (_tx, rx) = bounded::<()>(0);
            let _ = rx.recv();
        }
        "locked child" => locked_child(),
        "children" => children(),
        "threads" => {
            let (_tx, rx) = bounded::<()>(0);
            let _never = std::thread::spawn(|| runnext::chan::never::<()>().recv());
            let _select = std::thread::spawn({
                let rx = rx.clone();
                move || runnext::select! { recv(rx) -> _ => {} }
            });
            let _limit = std::thread::spawn(|| {
                let m = Mutex::new(());
                Condvar::new().wait_timeout(&mut m.lock(), Duration::MAX)
            });
            let _ = rx.recv();
        }
        "timer never" => timer_never(),
        "timer stopped" => timer_stopped(),
        "timer stopped by a thread" => timer_stopped_by_thread(),
        "timer" => runnext::time::sleep(Duration::from_millis(400)),
        "for ever" => {
            // SAFETY: no preconditions. The signal ends the process, which counts as success here.
            unsafe { alarm(1) };
            runnext::time::sleep(Duration::MAX);
        }
        "blocked" => std::thread::sleep(Duration::from_millis(400)),
        "thread" => {
            let (tx, rx) = bounded::<()>(0);
            std::thread::spawn(move || {
                std::thread::sleep(Duration::from_millis(400));
                tx.send(()).unwrap();
            });
            rx.recv().unwrap();
        }
        "timeout" => {
            let (_tx, rx) = bounded::<()>(0);
            assert!(rx.recv_timeout(Duration::from_millis(400)).is_err());
        }
        "open socket" => {
            let _listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let (_tx, rx) = bounded::<()>(0);
            let _ = rx.recv();
        }
        "awaited socket" => {
            let (here, mut there) = UnixStream::pair().unwrap();
            let writer = runnext::go(move || {
                runnext::time::sleep(Duration::from_millis(10));
                there.write_all(b"x").unwrap();
                there
            });
            let read = poll_fn(|cx| here.poll_read(cx, &mut [0]));
            assert_eq!(runnext::block_on(read).unwrap(), 1);
            let _open = (&here, writer.join().unwrap());
            let (_tx, rx) = bounded::<()>(0);
            let _ = rx.recv();
        }
        "socket" => {
            // Another process connects, which this one cannot know.
            let listener = TcpListener::bind("127.0.0.1:0").unwrap();
            let port = listener.local_addr().unwrap().port();
            let script = format!("sleep 0.4; exec 3<>/dev/tcp/127.0.0.1/{port}");
            let mut client = Command::new("bash").args(["-c", &script]).spawn().unwrap();
            listener.accept().unwrap();
            client.wait().unwrap();
        }
        sections => after_sections(sections.parse().expect("a case, or how many sections")),
    });
}

fn timer_never() {
    let timer = Timer::new(Duration::MAX);
    let again = Timer::new(Duration::ZERO);
    again.reset(Duration::MAX);
    let func = after_func(Duration::from_secs(3600), || ());
    func.reset(Duration::MAX);
    let plain = std::thread::spawn({
        let c = timer.c().clone();
        move || c.recv()
    });
    runnext::go({
        let c = timer.c().clone();
        move || c.recv()
    });
    runnext::select! {
        recv(timer.c()) -> _ => {}
        recv(again.c()) -> _ => {}
    }
    let _ = (plain.join(), func.stop());
}

fn timer_stopped() {
    let (tx, rx) = bounded::<()>(0);
    runnext::go({
        let tx = tx.clone();
        move || tx.send(())
    });
    rx.recv_timeout(Duration::from_secs(3600)).unwrap();
    let _ = rx.recv();
}

fn timer_stopped_by_thread() {
    // In a goroutine's heap; the thread is the last to rest.
    let timer = after_func(Duration::from_secs(3600), || ());
    let (tx, rx) = bounded::<()>(0);
    let last = std::thread::spawn({
        let rx = rx.clone();
        move || {
            std::thread::sleep(Duration::from_millis(300));
            assert!(timer.stop());
            rx.recv()
        }
    });
    let _ = (rx.recv(), last.join(), tx);
}

fn children() {
    let (tx, rx) = bounded::<u32>(0);
    let waiters: Vec<_> = (0..3)
        .map(|_| {
            let rx = rx.clone();
            runnext::goroutine::Builder::new()
                .name("starved")
                .spawn(move || rx.recv())
                .unwrap()
        })
        .collect();
    for waiter in waiters {
        let _ = waiter.join();
    }
    drop(tx);
}

fn locked_child() {
    let child = runnext::go(|| {
        let _tied = runnext::lock_os_thread();
        let _ = runnext::chan::never::<()>().recv();
    });
    let _ = child.join();
}

/// Waits for a plain thread, when so many blocking sections have left threads that are not needed any more, and end one by one.
fn after_sections(n: usize) {
    let sections: Vec<_> = (0..n)
        .map(|_| {
            runnext::go(|| runnext::blocking(|| std::thread::sleep(Duration::from_millis(50))))
        })
        .collect();
    for section in sections {
        section.join().unwrap();
    }
    let (tx, rx) = bounded::<()>(0);
    std::thread::spawn(move || {
        std::thread::sleep(Duration::from_secs(1));
        tx.send(()).unwrap();
    });
    rx.recv().unwrap();
}

fn assert_deadlock(case: &str, waits_for: &str) {
    let out = child(case);
    let stderr = String::from_utf8_lossy(&out.stderr);
    assert_eq!(out.status.code(), Some(2), "{case}: {stderr}");
    assert!(
        stderr.contains("all goroutines are asleep - deadlock!"),
        "{case}: {stderr}"
    );
    assert!(stderr.contains(waits_for), "{case}: {stderr}");
    assert!(stderr.contains("deadlock.rs:"), "{case}: {stderr}");
}

#[test]
fn a_receive_nobody_answers() {
    assert_deadlock("channel", "goroutine 1 [chan receive]:");
}

#[test]
fn a_lock_taken_twice() {
    assert_deadlock("mutex", "goroutine 1 [sync.Mutex.Lock]:");
}

#[test]
fn on_a_locked_thread() {
    assert_deadlock("locked", "[chan receive, locked to thread]:");
}

#[test]
fn a_child_on_a_locked_thread() {
    assert_deadlock("locked child", "[chan receive, locked to thread]:");
}

#[test]
fn the_dump_names_everybody() {
    assert_deadlock("children", "'starved'");
}

/// That nobody waits for: it wakes nobody.
#[test]
fn beside_an_open_socket() {
    assert_deadlock("open socket", "goroutine 1 [chan receive]:");
}

/// A thread of ours that had ended and was not joined yet was counted as one that is there, and so hid another that was about to act.
#[test]
fn threads_that_have_ended_hide_nobody() {
    std::thread::scope(|s| {
        for n in 3..=10 {
            s.spawn(move || {
                let out = child(&n.to_string());
                let stderr = String::from_utf8_lossy(&out.stderr);
                assert_eq!(out.status.code(), Some(0), "{n} sections: {stderr}");
            });
        }
    });
}

/// They counted as threads that wake by themselves, though their deadline is never.
#[test]
fn beside_threads_that_wait_without_a_deadline() {
    assert_deadlock("threads", "goroutine 1 [chan receive]:");
}

/// A timer that never goes off had an entry among the timers, 584 years from now.
#[test]
fn beside_timers_that_never_go_off() {
    assert_deadlock("timer never", "goroutine 1 [select]:");
}

/// The entry of a time-out that was not needed stayed in its heap, so there seemed to be something to wait for.
#[test]
fn after_a_time_out_that_was_not_needed() {
    for case in ["timer stopped", "timer stopped alone"] {
        assert_deadlock(case, "goroutine 1 [chan receive]:");
    }
}

/// The same, where a plain thread is the last to rest.
#[test]
fn after_a_timer_that_a_thread_stopped() {
    for case in [
        "timer stopped by a thread",
        "timer stopped by a thread alone",
    ] {
        assert_deadlock(case, "goroutine 1 [chan receive]:");
    }
}

/// Its future has what it waited for; it used to count as waiting until the socket was closed.
#[test]
fn beside_a_socket_that_was_awaited() {
    assert_deadlock("awaited socket", "goroutine 1 [chan receive]:");
}

#[test]
fn no_false_alarm() {
    for case in [
        "timer", "for ever", "blocked", "thread", "timeout", "socket",
    ] {
        let out = child(case);
        assert_eq!(
            out.status.code(),
            Some(0),
            "{case}: {}",
            String::from_utf8_lossy(&out.stderr)
        );
    }
}

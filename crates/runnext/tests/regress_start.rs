//! Bugs of the start of a runtime: what is said when it cannot start, and who is told.

mod common;

use std::error::Error;
use std::fs::File;
use std::io;
use std::os::fd::AsRawFd;
use std::panic::Location;
use std::process::{ExitCode, Termination};
use std::sync::Mutex;

use common::child;
use runnext::Runtime;

fn spawned_at() -> &'static Location<'static> {
    runnext::current().expect("a goroutine").spawned_at()
}

/// A program whose runtime is refused.
mod refused {
    #[runnext::main(procs = 5000)]
    pub(crate) fn main() {
        unreachable!("there is no runtime for it");
    }
}

/// A `main` without a return type threw the code away: the process ended with status 0.
#[test]
fn a_main_that_cannot_start_is_no_success() {
    fn code(ended: impl Termination) -> ExitCode {
        ended.report()
    }
    child(&[], || {
        assert_eq!(code(refused::main()), ExitCode::from(101))
    })
    .passed()
    .said(&["cannot start the runtime: procs must be from 1 to 1024, not 5000"]);
}

// ---- where the main goroutine comes from ----

mod program {
    use super::*;

    pub(super) static ORIGIN: Mutex<Option<&Location<'static>>> = Mutex::new(None);

    #[runnext::main(procs = 1)]
    pub(super) fn main() {
        *ORIGIN.lock().unwrap() = Some(spawned_at());
    }
    pub(super) const LINE: u32 = line!() - 4; // the attribute's
}

/// It was a line of the runtime's.
#[test]
fn the_main_goroutine_comes_from_the_users_line() {
    assert_eq!(program::main(), ExitCode::SUCCESS);
    let origin = program::ORIGIN.lock().unwrap().expect("it ran");
    assert_eq!((origin.file(), origin.line()), (file!(), program::LINE));
}

const TEST_LINE: u32 = line!() + 3;

/// The same.
#[runnext::test(procs = 1)]
fn the_goroutine_of_a_test_comes_from_the_users_line() -> Result<(), String> {
    let origin = spawned_at();
    assert_eq!((origin.file(), origin.line()), (file!(), TEST_LINE));
    Ok(())
}

// ---- what the system refuses ----

fn build() -> io::Result<Runtime> {
    // SAFETY: no thread-local is borrowed over a call that can park.
    unsafe { Runtime::builder().procs(1).build() }
}

/// Sets what `ulimit` shows, until the next time.
fn limit(resource: libc::__rlimit_resource_t, most: u64) {
    let mut limits = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: a place for the answer.
    assert_eq!(unsafe { libc::getrlimit(resource, &raw mut limits) }, 0);
    limits.rlim_cur = most.min(limits.rlim_max);
    // SAFETY: a valid argument.
    assert_eq!(unsafe { libc::setrlimit(resource, &raw const limits) }, 0);
}

/// It must say which limit to raise, and still be the system's error.
#[track_caller]
fn assert_explained(error: &io::Error, errno: i32, advice: &str) {
    let bare = io::Error::from_raw_os_error(errno);
    assert_eq!(error.kind(), bare.kind());
    let text = error.to_string();
    assert!(
        text.contains(&bare.to_string()) && text.contains(advice),
        "{text}"
    );
    let source = error.source().and_then(|e| e.downcast_ref::<io::Error>());
    assert_eq!(source.and_then(io::Error::raw_os_error), Some(errno));
}

/// It was "Too many open files", and no more.
#[test]
fn without_descriptors_it_says_which_limit_to_raise() {
    child(&[], || {
        let file = File::open("/dev/null").unwrap();
        let free = file.as_raw_fd() as u64;
        drop(file);
        for spare in 0..2 {
            limit(libc::RLIMIT_NOFILE, free + spare);
            assert_explained(&build().unwrap_err(), libc::EMFILE, "ulimit -n");
        }
        limit(libc::RLIMIT_NOFILE, u64::MAX);
        assert_eq!(build().unwrap().run(|| 1), 1);
    })
    .passed();
}

/// RLIMIT_NPROC is not for root; nobody else has this number, not even another run of this test.
fn leave_root() {
    let nobody = 50_000 + std::process::id() % 10_000;
    // SAFETY: no preconditions.
    unsafe {
        if libc::geteuid() == 0 {
            assert_eq!(libc::setresuid(nobody, nobody, nobody), 0);
        }
    }
}

/// With the monitor and the thread that makes the others, but no thread for goroutines, it started, and `run` hung.
#[test]
fn without_a_thread_for_goroutines_it_does_not_start() {
    child(&[], || {
        leave_root();
        let makes_thread = |most: &u64| {
            limit(libc::RLIMIT_NPROC, *most);
            let thread = std::thread::Builder::new().spawn(|| ());
            thread.map(|t| t.join().unwrap()).is_ok()
        };
        // There may be no more threads than now, then one more, and so on.
        let one_more = (1..).find(makes_thread).unwrap();
        let mut refused = 0;
        for most in one_more - 1..one_more + 6 {
            limit(libc::RLIMIT_NPROC, most);
            match build() {
                Ok(rt) => assert_eq!(rt.run(|| 1), 1, "with {most}"),
                Err(e) => {
                    assert_explained(&e, libc::EAGAIN, "ulimit -u");
                    refused += 1;
                }
            }
        }
        assert!(refused > 0);
        limit(libc::RLIMIT_NPROC, u64::MAX);
        assert_eq!(build().unwrap().run(|| 1), 1);
    })
    .passed();
}

/// The first stack of a runtime took 200 MiB of address space, 64 of them for a table of which it can use a 256th.
#[test]
fn the_first_stack_does_not_take_much_address_space() {
    fn address_space() -> usize {
        let statm = std::fs::read_to_string("/proc/self/statm").unwrap();
        statm.split(' ').next().unwrap().parse::<usize>().unwrap() * 4096
    }
    // One arena: glibc reserves 64 MiB for each further one.
    child(&[("MALLOC_ARENA_MAX", "1")], || {
        let rt = build().unwrap();
        let before = address_space();
        rt.run(|| ());
        let taken = address_space() - before;
        assert!(taken < 160 << 20, "{} MiB", taken >> 20);
    })
    .passed();
}

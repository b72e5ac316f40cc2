//! Handlers belong to the whole process, so nearly every test here runs in a child.

use super::*;
use crate::map::{Guard, Region, guard_support, page_size};
use crate::testing::{PASSED, await_sleep, burn_cpu, child_dies_by, child_passes, spawn_child};
use std::io::{Read, Write};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicI32, AtomicUsize};
use std::thread as os;
use std::time::Duration;

mod chain;

/// How often [`count`] ran, and what it saw last.
static COUNT: AtomicUsize = AtomicUsize::new(0);
static LAST_SIGNO: AtomicI32 = AtomicI32::new(0);
static LAST_SP: AtomicUsize = AtomicUsize::new(0);
static LAST_PC: AtomicUsize = AtomicUsize::new(0);
static BY_TIMER: AtomicUsize = AtomicUsize::new(0);
static BY_REQUEST: AtomicUsize = AtomicUsize::new(0);
static HANDLER_FRAME: AtomicUsize = AtomicUsize::new(0);

unsafe extern "C" fn count(signo: i32, info: *mut siginfo_t, ctx: *mut c_void) {
    let here = 0u8;
    HANDLER_FRAME.store(&raw const here as usize, Relaxed);
    LAST_SIGNO.store(signo, Relaxed);
    // SAFETY: the handler's own arguments.
    unsafe {
        LAST_SP.store(sp(ctx), Relaxed);
        LAST_PC.store(pc(ctx), Relaxed);
        BY_TIMER.fetch_add(usize::from(from_timer(info)), Relaxed);
        BY_REQUEST.fetch_add(usize::from(from_request(info)), Relaxed);
    }
    COUNT.fetch_add(1, Release);
}

fn install_count(signo: i32) -> Previous {
    // SAFETY: `count` touches atomics only.
    unsafe { install(signo, count) }.expect("installed")
}

fn counted() -> usize {
    COUNT.load(Acquire)
}

fn handler_of(signo: i32) -> usize {
    Previous::current(signo)
        .expect("a signal")
        .action
        .sa_sigaction
}

#[test]
fn install_runs_and_says_what_was_there() {
    child_passes(|| {
        assert_eq!(handler_of(libc::SIGUSR1), libc::SIG_DFL);
        let previous = install_count(libc::SIGUSR1);
        assert_eq!(format!("{previous:?}"), "Previous(\"default\")");
        raise(libc::SIGUSR1);
        assert_eq!((counted(), LAST_SIGNO.load(Relaxed)), (1, libc::SIGUSR1));
        assert_eq!(handler_of(libc::SIGUSR1), count as *const () as usize);
    });
}

#[test]
fn install_asks_for_the_alternate_stack_and_restart() {
    child_passes(|| {
        let flags = |signo| Previous::current(signo).expect("a signal").action.sa_flags;
        install_count(libc::SIGUSR1);
        let wanted = libc::SA_SIGINFO | libc::SA_ONSTACK;
        assert_eq!(
            flags(libc::SIGUSR1) & (wanted | libc::SA_RESTART),
            wanted | libc::SA_RESTART
        );
        // SAFETY: `count` touches atomics only.
        unsafe { install_with(libc::SIGUSR2, count, false) }.expect("installed");
        assert_eq!(flags(libc::SIGUSR2) & (wanted | libc::SA_RESTART), wanted);
    });
}

#[test]
fn the_sender_can_be_told() {
    child_passes(|| {
        install_count(libc::SIGUSR1);
        request(thread::tid(), libc::SIGUSR1).expect("sent");
        raise(libc::SIGUSR1);
        assert_eq!((counted(), BY_REQUEST.load(Relaxed)), (2, 1));
        let pid = std::process::id().to_string();
        let kill = std::process::Command::new("sh")
            .args(["-c", &format!("kill -USR1 {pid}")])
            .status();
        assert!(kill.expect("a shell").success());
        while counted() < 3 {
            os::yield_now();
        }
        assert_eq!((BY_REQUEST.load(Relaxed), BY_TIMER.load(Relaxed)), (1, 0));
    });
}

#[test]
fn what_cannot_be_caught_is_an_error() {
    for signo in [libc::SIGKILL, 0, 999] {
        // SAFETY: not installed.
        let error = unsafe { install(signo, count) }.expect_err("not catchable");
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}

fn current_altstack() -> (usize, usize, i32) {
    let mut stack = MaybeUninit::<libc::stack_t>::uninit();
    // SAFETY: asks only; read after the kernel wrote it.
    let stack = unsafe {
        assert_eq!(libc::sigaltstack(ptr::null(), stack.as_mut_ptr()), 0);
        stack.assume_init()
    };
    (stack.ss_sp as usize, stack.ss_size, stack.ss_flags)
}

#[test]
fn alternate_stacks_nest_and_restore() {
    os::spawn(|| {
        let before = current_altstack();
        let outer = AltStack::install().expect("installed");
        let with_outer = current_altstack();
        assert!(with_outer.1 >= 64 * 1024);
        let inner = AltStack::install().expect("installed");
        assert_ne!(current_altstack().0, with_outer.0);
        drop(inner);
        assert_eq!(current_altstack(), with_outer);
        drop(outer);
        assert_eq!(current_altstack(), before);
    })
    .join()
    .expect("no panic");
}

#[test]
fn handlers_run_on_the_alternate_stack() {
    child_passes(|| {
        install_count(libc::SIGUSR1);
        let _stack = AltStack::install().expect("installed");
        let (base, size, _) = current_altstack();
        let here = 0u8;
        raise(libc::SIGUSR1);
        let range = base..base + size;
        assert!(range.contains(&HANDLER_FRAME.load(Relaxed)));
        let interrupted = LAST_SP.load(Relaxed);
        assert!(!range.contains(&interrupted));
        assert!(
            interrupted.abs_diff(&raw const here as usize) < 64 * 1024,
            "near this frame"
        );
    });
}

#[test]
fn below_the_alternate_stack_is_a_guard() {
    let errors = child_dies_by(SIGSEGV, || {
        let _stack = AltStack::install().expect("installed");
        let (base, _, _) = current_altstack();
        // SAFETY: the lowest byte is ours; the one below is meant to fault.
        unsafe {
            (base as *mut u8).write_volatile(1);
            eprintln!("stack is fine");
            (base as *mut u8).sub(1).write_volatile(1);
        }
        eprintln!("guard did not fault");
    });
    assert!(
        errors.contains("stack is fine") && !errors.contains("did not fault"),
        "{errors}"
    );
}

#[test]
fn a_stack_overflow_can_be_reported() {
    static GUARD: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn report(signo: i32, info: *mut siginfo_t, ctx: *mut c_void) {
        // SAFETY: the handler's own arguments; stderr is the process's to write to.
        unsafe {
            let guard = GUARD.load(Relaxed);
            assert!((guard..guard + page_size()).contains(&fault_address(info)));
            assert!(sp(ctx).abs_diff(guard) < 1 << 20);
            raw_write(2, b"overflow seen\n");
        }
        die_by(signo);
    }
    let errors = child_dies_by(SIGSEGV, || {
        os::spawn(|| {
            let _stack = AltStack::install().expect("installed");
            // SAFETY: `report` is async-signal-safe.
            unsafe { install(SIGSEGV, report) }.expect("installed");
            recurse_into_guard(&GUARD);
        })
        .join()
        .expect("does not return");
    });
    assert!(errors.contains("overflow seen"), "{errors}");
}

/// Puts a guard page right below a deep frame of the calling thread's own stack and runs into it.
fn recurse_into_guard(at: &AtomicUsize) {
    #[inline(never)]
    fn dig(depth: usize) -> usize {
        let frame = std::hint::black_box([depth as u8; 512]);
        if depth == 0 {
            usize::from(frame[0])
        } else {
            dig(depth - 1) + usize::from(frame[511])
        }
    }
    let here = 0u8;
    let page = page_size();
    let below = (&raw const here as usize - 256 * 1024) / page * page;
    at.store(below, Relaxed);
    // SAFETY: a page of this thread's stack (2 MiB) that nothing uses yet.
    unsafe { libc::mprotect(below as *mut c_void, page, libc::PROT_NONE) };
    std::hint::black_box(dig(4096));
}

#[test]
fn a_fault_tells_its_address() {
    static EXPECTED: AtomicUsize = AtomicUsize::new(0);
    unsafe extern "C" fn verify(_: i32, info: *mut siginfo_t, _: *mut c_void) {
        // SAFETY: the handler's own argument; _exit is async-signal-safe.
        unsafe {
            let right = fault_address(info) == EXPECTED.load(Relaxed) && !from_timer(info);
            libc::_exit(if right { PASSED } else { 1 });
        }
    }
    child_passes(|| {
        let region = Region::reserve(2 * page_size(), page_size(), false).expect("reserved");
        region
            .guard(guard_support(), 0, page_size())
            .expect("guarded");
        EXPECTED.store(region.base() as usize + 123, Relaxed);
        // SAFETY: `verify` is async-signal-safe.
        unsafe { install(SIGSEGV, verify) }.expect("installed");
        // SAFETY: meant to fault.
        unsafe { region.base().add(123).write_volatile(1) };
        unreachable!("the guard did not fault");
    });
}

#[test]
fn a_sent_signal_has_no_address() {
    // SAFETY: integers and pointers, for which zero is valid; si_code 0 is SI_USER.
    let info: siginfo_t = unsafe { MaybeUninit::zeroed().assume_init() };
    // SAFETY: alive.
    assert_eq!(unsafe { fault_address(&info) }, 0);
}

#[test]
fn a_restarted_read_is_at_a_syscall() {
    child_passes(|| {
        install_count(libc::SIGUSR1);
        let (mut here, mut there) = std::os::unix::net::UnixStream::pair().expect("a pair");
        let reader = AtomicI32::new(0);
        os::scope(|s| {
            s.spawn(|| {
                reader.store(thread::tid(), Release);
                let mut byte = [0];
                // SA_RESTART: the read does not see the signal at all.
                assert_eq!(there.read(&mut byte).expect("not interrupted"), 1);
            });
            while reader.load(Acquire) == 0 {
                os::yield_now();
            }
            let tid = reader.load(Acquire);
            await_sleep(tid);
            thread::tgkill(tid, libc::SIGUSR1).expect("sent");
            while counted() == 0 {
                os::yield_now();
            }
            here.write_all(b"x").expect("written");
        });
    });
}

#[test]
fn a_loop_is_interrupted_by_its_timer() {
    #[inline(never)]
    fn spin() {
        while counted() < 5 {
            std::hint::spin_loop();
        }
    }
    child_passes(|| {
        os::spawn(|| {
            install_count(libc::SIGUSR1);
            let period = Duration::from_millis(1);
            let _timer = CpuTimer::new(thread::tid(), libc::SIGUSR1, period).expect("started");
            spin();
        })
        .join()
        .expect("no panic");
        assert_eq!(BY_TIMER.load(Relaxed), counted());
        assert_eq!(BY_REQUEST.load(Relaxed), 0);
        assert_ne!(LAST_PC.load(Relaxed), 0);
    });
}

#[test]
fn a_cpu_timer_fires_on_work_only() {
    child_passes(|| {
        install_count(SIGURG);
        os::spawn(|| {
            let period = Duration::from_millis(20);
            let timer = CpuTimer::new(thread::tid(), SIGURG, period).expect("started");
            os::sleep(Duration::from_millis(100));
            assert_eq!(counted(), 0, "asleep, it does not run");
            while counted() < 3 {
                burn_cpu(1_000_000);
            }
            assert!(
                crate::clock::thread_cpu_ns() >= 60_000_000,
                "not before the time is used"
            );
            timer.set_period(Duration::ZERO);
            let stopped = counted();
            burn_cpu(60_000_000);
            assert_eq!(counted(), stopped, "stopped");
            timer.set_period(Duration::from_millis(1));
            while counted() == stopped {
                burn_cpu(1_000_000);
            }
            drop(timer);
            let dropped = counted();
            burn_cpu(60_000_000);
            assert_eq!(counted(), dropped, "gone");
        })
        .join()
        .expect("no panic");
    });
}

#[test]
fn a_cpu_timer_reports_what_is_wrong() {
    let period = Duration::from_millis(10);
    assert!(
        CpuTimer::new(i32::MAX, SIGURG, period).is_err(),
        "no such thread"
    );
    assert!(
        CpuTimer::new(thread::tid(), 999, period).is_err(),
        "no such signal"
    );
    CpuTimer::new(thread::tid(), SIGURG, Duration::MAX).expect("longer than any run is fine");
}

#[test]
fn unblock_lets_a_pending_signal_in() {
    child_passes(|| {
        install_count(libc::SIGUSR1);
        // SAFETY: the set is initialised before use.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        }
        raise(libc::SIGUSR1);
        assert_eq!(counted(), 0);
        errno::set(4711);
        unblock(libc::SIGUSR1);
        unblock(999);
        assert_eq!(errno::get(), 4711);
        assert_eq!(counted(), 1);
    });
}

#[test]
fn raw_write_writes_all() {
    let (here, mut there) = std::os::unix::net::UnixStream::pair().expect("a pair");
    here.set_nonblocking(true).expect("set");
    let text = vec![b'x'; 1 << 20]; // More than the socket holds: short writes, then EAGAIN.
    let sent = text.clone();
    let writer = os::spawn(move || {
        errno::set(4711);
        // SAFETY: our socket.
        unsafe { raw_write(here.as_raw_fd(), &sent) };
        assert_eq!(errno::get(), 4711);
    });
    let mut received = Vec::new();
    there.read_to_end(&mut received).expect("read");
    writer.join().expect("no panic");
    assert_eq!(received, text);
}

#[test]
fn raw_write_gives_up_on_errors() {
    // SAFETY: no such descriptor, so nothing is written.
    unsafe { raw_write(-1, b"lost") };
}

#[test]
fn die_by_is_seen_by_the_parent() {
    child_dies_by(libc::SIGTERM, || die_by(libc::SIGTERM));
}

#[test]
fn die_by_overrides_handler_and_mask() {
    child_dies_by(SIGQUIT, || {
        install_count(SIGQUIT);
        // SAFETY: the set is initialised before use.
        unsafe {
            let mut set = MaybeUninit::<libc::sigset_t>::uninit();
            libc::sigfillset(set.as_mut_ptr());
            libc::pthread_sigmask(libc::SIG_BLOCK, set.as_ptr(), ptr::null_mut());
        }
        os::spawn(|| die_by(SIGQUIT))
            .join()
            .expect("does not return");
    });
}

#[test]
fn die_by_a_harmless_signal_aborts() {
    child_dies_by(libc::SIGABRT, || die_by(SIGURG));
}

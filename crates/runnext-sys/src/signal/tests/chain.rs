//! One test for each cell of the table of [`Previous::chain`].

use super::*;
use std::os::unix::process::ExitStatusExt;

static PREVIOUS: OnceLock<Previous> = OnceLock::new();
static PLAIN: AtomicUsize = AtomicUsize::new(0);
static MASKED: AtomicUsize = AtomicUsize::new(0);

/// Our handler in these tests: none of its business, so it passes the signal on.
unsafe extern "C" fn pass_on(signo: i32, info: *mut siginfo_t, ctx: *mut c_void) {
    errno::set(4711);
    let previous = PREVIOUS.get().expect("stored before installing");
    // SAFETY: the handler's own arguments.
    unsafe { previous.chain(signo, info, ctx) };
    assert_eq!(errno::get(), 4711, "left alone");
    assert!(
        !is_masked(libc::SIGUSR2),
        "the previous handler's mask is gone"
    );
}

fn is_masked(signo: i32) -> bool {
    let mut mask = MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: asks for the mask, then reads it.
    unsafe {
        libc::pthread_sigmask(libc::SIG_BLOCK, ptr::null(), mask.as_mut_ptr());
        libc::sigismember(mask.as_ptr(), signo) == 1
    }
}

/// What the program had before us: a handler of the old kind, that spoils errno.
extern "C" fn plain(signo: i32) {
    assert_eq!(signo, libc::SIGUSR1);
    MASKED.store(usize::from(is_masked(libc::SIGUSR2)), Relaxed);
    PLAIN.fetch_add(1, Relaxed);
    errno::set(1);
}

fn disposition(handler: usize, flags: i32) -> libc::sigaction {
    let mut action = default_action();
    action.sa_sigaction = handler;
    action.sa_flags = flags;
    action
}

/// Gives `signo` the disposition `before`, then our handler on top.
fn on_top_of(signo: i32, before: &libc::sigaction) {
    // SAFETY: the handlers of this file.
    unsafe { exchange(signo, Some(before)) }.expect("installed");
    PREVIOUS
        .set(Previous::current(signo).expect("a signal"))
        .expect("set once");
    // SAFETY: as above.
    unsafe { install(signo, pass_on) }.expect("installed");
}

fn fault() {
    let region = Region::reserve(page_size(), page_size(), false).expect("reserved");
    region
        .guard(Guard::Mprotect, 0, page_size())
        .expect("guarded");
    // SAFETY: meant to fault.
    unsafe { region.base().write_volatile(1) };
    eprintln!("survived the fault");
}

#[test]
fn to_a_handler_with_details() {
    child_passes(|| {
        on_top_of(
            libc::SIGUSR1,
            &disposition(count as *const () as usize, libc::SA_SIGINFO),
        );
        raise(libc::SIGUSR1);
        assert_eq!((counted(), LAST_SIGNO.load(Relaxed)), (1, libc::SIGUSR1));
        assert_ne!(LAST_PC.load(Relaxed), 0, "got the context");
    });
}

#[test]
fn to_a_plain_handler_with_its_mask() {
    child_passes(|| {
        let mut before = disposition(plain as *const () as usize, 0);
        // SAFETY: a live set.
        unsafe { libc::sigaddset(&mut before.sa_mask, libc::SIGUSR2) };
        on_top_of(libc::SIGUSR1, &before);
        raise(libc::SIGUSR1);
        raise(libc::SIGUSR1);
        assert_eq!((PLAIN.load(Relaxed), MASKED.load(Relaxed)), (2, 1));
    });
}

#[test]
fn to_a_one_shot_handler_only_once() {
    let errors = child_dies_by(libc::SIGUSR1, || {
        on_top_of(
            libc::SIGUSR1,
            &disposition(plain as *const () as usize, libc::SA_RESETHAND),
        );
        raise(libc::SIGUSR1);
        assert_eq!(PLAIN.load(Relaxed), 1);
        eprintln!("once");
        raise(libc::SIGUSR1);
        eprintln!("twice");
    });
    assert!(
        errors.contains("once") && !errors.contains("twice"),
        "{errors}"
    );
}

#[test]
fn to_ignore() {
    child_passes(|| {
        on_top_of(libc::SIGTERM, &disposition(libc::SIG_IGN, 0));
        raise(libc::SIGTERM);
    });
}

#[test]
fn to_ignore_of_a_fault_dies() {
    let errors = child_dies_by(SIGSEGV, || {
        on_top_of(SIGSEGV, &disposition(libc::SIG_IGN, 0));
        raise(SIGSEGV);
        eprintln!("a sent one is ignored");
        fault();
    });
    assert!(
        errors.contains("is ignored") && !errors.contains("survived"),
        "{errors}"
    );
}

#[test]
fn to_a_harmless_default() {
    child_passes(|| {
        on_top_of(SIGURG, &default_action());
        raise(SIGURG);
        raise(SIGURG);
        assert_eq!(
            handler_of(SIGURG),
            pass_on as *const () as usize,
            "still ours"
        );
    });
}

#[test]
fn to_a_deadly_default() {
    let errors = child_dies_by(libc::SIGTERM, || {
        on_top_of(libc::SIGTERM, &default_action());
        raise(libc::SIGTERM);
        eprintln!("survived");
    });
    assert!(!errors.contains("survived"), "{errors}");
}

#[test]
fn to_the_default_of_a_fault() {
    let errors = child_dies_by(SIGSEGV, || {
        on_top_of(SIGSEGV, &default_action());
        fault();
    });
    assert!(!errors.contains("survived"), "{errors}");
}

#[test]
fn to_the_default_of_a_fault_that_was_sent() {
    let errors = child_dies_by(SIGBUS, || {
        on_top_of(SIGBUS, &default_action());
        raise(SIGBUS);
        eprintln!("survived");
    });
    assert!(!errors.contains("survived"), "{errors}");
}

/// std's own handler knows the guards of std's threads and reports their overflow.
#[test]
fn to_the_overflow_report_of_std() {
    #[inline(never)]
    fn bottomless(depth: u64) -> u64 {
        let frame = std::hint::black_box([depth; 64]);
        if depth == u64::MAX {
            0
        } else {
            bottomless(depth + 1) + frame[63]
        }
    }
    let errors = child_dies_by(libc::SIGABRT, || {
        PREVIOUS
            .set(Previous::current(SIGSEGV).expect("a signal"))
            .expect("set once");
        // SAFETY: passes on.
        unsafe { install(SIGSEGV, pass_on) }.expect("installed");
        os::spawn(|| {
            let _stack = AltStack::install().expect("installed");
            std::hint::black_box(bottomless(0));
        })
        .join()
        .expect("does not return");
    });
    assert!(errors.contains("has overflowed its stack"), "{errors}");
}

#[test]
fn to_a_stopping_default() {
    let mut child = spawn_child(|| {
        on_top_of(libc::SIGTSTP, &default_action());
        raise(libc::SIGTSTP);
        eprintln!("went on");
        assert_eq!(
            handler_of(libc::SIGTSTP),
            pass_on as *const () as usize,
            "still ours"
        );
    });
    let mut status = 0;
    // SAFETY: our child, which std has not waited for yet.
    unsafe {
        assert_eq!(
            libc::waitpid(child.id() as i32, &mut status, libc::WUNTRACED),
            child.id() as i32
        );
        assert!(
            libc::WIFSTOPPED(status),
            "{}",
            std::process::ExitStatus::from_raw(status)
        );
        libc::kill(child.id() as i32, libc::SIGCONT);
    }
    assert_eq!(child.wait().expect("waited").code(), Some(PASSED));
    let mut errors = String::new();
    child
        .stderr
        .take()
        .expect("piped")
        .read_to_string(&mut errors)
        .expect("read");
    assert!(errors.contains("went on"), "{errors}");
}

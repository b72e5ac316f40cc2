//! Faults: an overflowed stack says whose it was and dies by the right signal; other faults are none of our business.
//!
//! Each in a child process.

mod common;

use std::hint::black_box;

use common::{child, runtime};
use runnext::{go, goroutine, yield_now};

#[allow(unconditional_recursion)]
fn recurse(depth: u64) -> u64 {
    let frame = black_box([depth; 16]);
    recurse(depth + 1) + frame[depth as usize % 16]
}

#[test]
fn an_overflow_names_the_goroutine() {
    child(&[], || {
        runtime(1).run(|| {
            let deep = goroutine::Builder::new().name("digger");
            let deep = deep.stack_size(128 << 10).spawn(|| recurse(0)).unwrap();
            let _ = deep.join();
        });
    })
    .died_by(libc::SIGSEGV)
    .said(&[
        "goroutine 2 'digger' overflowed its stack of 128 KiB",
        "spawned at crates/runnext/tests/crash.rs:",
        "stack_size",
    ]);
}

#[test]
fn an_overflow_of_a_nameless_one_of_the_default_size() {
    child(&[], || {
        runtime(1).run(|| {
            yield_now();
            recurse(0)
        });
    })
    .died_by(libc::SIGSEGV)
    .said(&["goroutine 1 overflowed its stack of 256 KiB"]);
}

#[test]
fn an_overflow_on_a_locked_thread_and_in_a_blocking_section() {
    child(&[], || {
        runtime(1).run(|| {
            let _tied = runnext::lock_os_thread();
            go(|| ()).join().unwrap();
            runnext::blocking(|| recurse(0))
        });
    })
    .died_by(libc::SIGSEGV)
    .said(&["goroutine 1 overflowed its stack"]);
}

#[test]
fn an_overflow_is_seen_with_mprotected_guards_too() {
    child(&[("RUNNEXT_DEBUG", "mprotectguards=1")], || {
        runtime(2).run(|| go(|| recurse(0)).join().unwrap());
    })
    .died_by(libc::SIGSEGV)
    .said(&["overflowed its stack of 256 KiB"]);
}

/// After the slot's neighbour was used, and the stack came from the pool.
#[test]
fn a_recycled_stack_is_still_guarded() {
    child(&[], || {
        runtime(2).run(|| {
            for _ in 0..1000 {
                go(|| ()).join().unwrap();
            }
            go(|| recurse(0)).join().unwrap()
        });
    })
    .died_by(libc::SIGSEGV)
    .said(&["overflowed its stack of 256 KiB"]);
}

fn read_null() -> u8 {
    // SAFETY: none, that is the point: the child must die of it.
    unsafe { black_box(std::ptr::without_provenance::<u8>(8)).read_volatile() }
}

#[test]
fn another_fault_in_a_goroutine_is_not_called_an_overflow() {
    let ended = child(&[], || {
        runtime(1).run(read_null);
    })
    .died_by(libc::SIGSEGV);
    assert!(!ended.stderr.contains("overflow"), "{ended:#?}");
}

#[test]
fn a_fault_on_a_plain_thread_is_not_ours() {
    let ended = child(&[], || {
        let _rt = runtime(1);
        read_null();
    })
    .died_by(libc::SIGSEGV);
    assert!(!ended.stderr.contains("runnext"), "{ended:#?}");
}

/// Std's own report of a plain thread's overflow still comes.
#[test]
fn an_overflow_of_a_plain_thread_is_stds() {
    child(&[], || {
        let _rt = runtime(1);
        std::thread::spawn(|| recurse(0)).join().unwrap();
    })
    .died_by(libc::SIGABRT)
    .said(&["has overflowed its stack"]);
}

extern "C" fn exit_with_the_address(_: i32, info: *mut libc::siginfo_t, _: *mut libc::c_void) {
    // SAFETY: given by the kernel.
    let address = unsafe { (*info).si_addr() }.addr();
    // SAFETY: async-signal-safe.
    unsafe { libc::_exit(if address == 8 { 42 } else { 43 }) }
}

fn install_own_handler() {
    // SAFETY: a valid handler for a child that is about to die.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        action.sa_sigaction = exit_with_the_address as *const () as usize;
        action.sa_flags = libc::SA_SIGINFO | libc::SA_ONSTACK;
        libc::sigaction(libc::SIGSEGV, &action, std::ptr::null_mut());
    }
}

#[test]
fn the_programs_handler_gets_foreign_faults_untouched() {
    let ended = child(&[], || {
        install_own_handler();
        runtime(1).run(read_null);
    });
    assert_eq!(ended.status.code(), Some(42), "{ended:#?}");
    assert!(!ended.stderr.contains("overflow"), "{ended:#?}");
}

#[test]
fn the_programs_handler_gets_an_overflow_after_our_report() {
    let ended = child(&[], || {
        install_own_handler();
        runtime(1).run(|| recurse(0));
    })
    .said(&["goroutine 1 overflowed its stack"]);
    assert_eq!(ended.status.code(), Some(43), "{ended:#?}");
}

/// `#[runnext::main]` programs end as others do: the code of their value, 101 for a panic.
#[test]
fn a_panic_in_main_is_a_panic_of_the_program() {
    let ended = child(&[], || runtime(1).run(|| panic!("main's last words")));
    assert_eq!(ended.status.code(), Some(1), "{ended:#?}"); // as the child helper reports a panic
    ended.said(&["main's last words", "goroutine 1, spawned at"]);
}

//! Helpers for the tests of this crate.
//!
//! What changes the whole process, or ends it, runs in a *child*: the test binary starts itself
//! again for that one test, with a variable that says so.

use crate::thread::StatReader;
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Output, Stdio};

const VARIABLE: &str = "RUNNEXT_SYS_TEST_CHILD";

/// How a child exits that ran to its end. Not zero: the harness gives that if it found no such
/// test.
pub(crate) const PASSED: i32 = 77;

/// Runs `body`, the closure of a test, in a child process and gives its outcome. In the child this
/// does not return.
pub(crate) fn child<F: FnOnce()>(body: F) -> Output {
    let mut command = command_for::<F>();
    if is_child::<F>() {
        run(body);
    }
    command.output().expect("the test binary starts again")
}

/// As [`child`], without waiting for it.
pub(crate) fn spawn_child<F: FnOnce()>(body: F) -> std::process::Child {
    let mut command = command_for::<F>();
    if is_child::<F>() {
        run(body);
    }
    command.spawn().expect("the test binary starts again")
}

/// Runs `body` in a child that must end by itself, without a failed assertion.
pub(crate) fn child_passes<F: FnOnce()>(body: F) {
    let output = child(body);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert_eq!(
        output.status.code(),
        Some(PASSED),
        "child: {}\n{errors}",
        output.status
    );
}

/// Runs `body` in a child that must be killed by `signo`; gives what it wrote to stderr.
pub(crate) fn child_dies_by<F: FnOnce()>(signo: i32, body: F) -> String {
    let output = child(body);
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert_eq!(
        output.status.signal(),
        Some(signo),
        "child: {}\n{errors}",
        output.status
    );
    errors
}

/// The test's path, as the harness wants it, from the name of its closure's type.
fn test_name<F>() -> &'static str {
    let closure = std::any::type_name::<F>();
    let test = closure.trim_end_matches("::{{closure}}");
    test.split_once("::").expect("a path inside the crate").1
}

fn is_child<F>() -> bool {
    std::env::var(VARIABLE).is_ok_and(|name| name == test_name::<F>())
}

fn command_for<F>() -> Command {
    let mut command = Command::new(std::env::current_exe().expect("the path of the test binary"));
    command.args(["--exact", test_name::<F>(), "--nocapture", "--quiet"]);
    command.env(VARIABLE, test_name::<F>());
    command.stdout(Stdio::null()).stderr(Stdio::piped());
    command
}

fn run(body: impl FnOnce()) -> ! {
    let no_core = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: reads the structure.
    unsafe { libc::setrlimit(libc::RLIMIT_CORE, &no_core) };
    let outcome = std::panic::catch_unwind(std::panic::AssertUnwindSafe(body));
    std::process::exit(if outcome.is_ok() { PASSED } else { 101 });
}

/// Waits until thread `tid` is asleep in the kernel.
pub(crate) fn await_sleep(tid: i32) {
    let thread = StatReader::open(tid).expect("a live thread");
    while thread.state() != Some(b'S') {
        std::thread::yield_now();
    }
}

/// Computes until the calling thread has used `ns` of CPU time.
pub(crate) fn burn_cpu(ns: u64) {
    let end = crate::clock::thread_cpu_ns() + ns;
    while crate::clock::thread_cpu_ns() < end {
        for _ in 0..1000 {
            std::hint::spin_loop();
        }
    }
}

/// Makes system call `nr` fail with `errno` in the calling thread and those it starts, for ever;
/// with `arg` only if that argument has that value. For playing an older kernel, in a child.
pub(crate) fn forbid(nr: i64, arg: Option<(u32, u32)>, errno: i32) {
    const LOAD: u16 = (libc::BPF_LD | libc::BPF_W | libc::BPF_ABS) as u16;
    const JUMP_IF: u16 = (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16;
    const RETURN: u16 = (libc::BPF_RET | libc::BPF_K) as u16;
    // Offsets in `struct seccomp_data`: nr at 0, arguments of eight bytes from 16.
    const ARGS: u32 = 16;
    let op = |code, jf, k| libc::sock_filter { code, jt: 0, jf, k };
    let mut program = vec![
        op(LOAD, 0, 0),
        op(JUMP_IF, if arg.is_some() { 3 } else { 1 }, nr as u32),
    ];
    if let Some((index, value)) = arg {
        program.extend([op(LOAD, 0, ARGS + 8 * index), op(JUMP_IF, 1, value)]);
    }
    program.push(op(RETURN, 0, libc::SECCOMP_RET_ERRNO | errno as u32));
    program.push(op(RETURN, 0, libc::SECCOMP_RET_ALLOW));
    let filter = libc::sock_fprog {
        len: program.len() as u16,
        filter: program.as_mut_ptr(),
    };
    // SAFETY: the program is alive and as long as stated.
    unsafe {
        assert_eq!(libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0), 0);
        assert_eq!(
            libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &filter),
            0
        );
    }
}

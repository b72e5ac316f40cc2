//! The endpoint in a process that has no descriptors left. Alone in its file: the limit is the process's.

use std::fs::File;

/// A connection of its own, which it did not get, was to end the wait for others: it was never stopped.
#[runnext::test(procs = 2)]
fn it_can_be_stopped_without_a_descriptor() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let few = libc::rlimit {
        rlim_cur: 256,
        rlim_max: 256,
    };
    // SAFETY: a limit to read.
    assert_eq!(unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &few) }, 0);
    let all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    assert!(!all.is_empty());
    server.stop();
}

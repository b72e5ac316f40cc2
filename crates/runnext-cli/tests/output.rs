//! What the command does when its output cannot be written: never a panic, always a status its help names.

use std::fs::File;
use std::process::{Command, Output, Stdio};

/// Every way to print something at once.
const WAYS: [&[&str]; 6] = [
    &["doctor"],
    &["doctor", "--json"],
    &["completions", "bash"],
    &["completions", "zsh"],
    &["--help"],
    &["--version"],
];

fn run(args: &[&str], stdout: impl Into<Stdio>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_runnext"))
        .args(args)
        .stdin(Stdio::null())
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|child| child.wait_with_output())
        .unwrap()
}

#[test]
fn a_closed_pipe_ends_it_quietly() {
    for args in WAYS {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let ended = run(args, writer);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!((ended.status.code(), &*said), (Some(0), ""), "{args:?}");
    }
}

#[test]
fn a_full_disk_is_a_failure_that_says_so() {
    for args in WAYS {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let ended = run(args, full);
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(3), "{args:?}: {said}");
        let message = "runnext: cannot write to standard output: No space left on device";
        assert!(said.starts_with(message), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    }
}

#[test]
fn nobody_has_to_read_its_messages() {
    for args in [&["--nonsense"][..], &["bench", "--from", "/nonexistent"]] {
        let full = File::options().write(true).open("/dev/full").unwrap();
        let status = Command::new(env!("CARGO_BIN_EXE_runnext"))
            .args(args)
            .stdout(Stdio::null())
            .stderr(full)
            .status()
            .unwrap();
        assert!(
            matches!(status.code(), Some(2 | 3)),
            "{args:?} gave {status}"
        );
    }
}

//! The runner as whoever calls it sees it.

use std::fs::File;
use std::process::{Command, Output, Stdio};

fn run(args: &[&str], stdout: impl Into<Stdio>) -> Output {
    Command::new(env!("CARGO_BIN_EXE_runner"))
        .args(args)
        .stdout(stdout)
        .stderr(Stdio::piped())
        .spawn()
        .and_then(|child| child.wait_with_output())
        .unwrap()
}

#[test]
fn a_list_nobody_reads_is_no_panic() {
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let ended = run(&["--list"], writer);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!((ended.status.code(), &*said), (Some(0), ""));
    let full = File::options().write(true).open("/dev/full").unwrap();
    let ended = run(&["--list"], full);
    let said = String::from_utf8_lossy(&ended.stderr);
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(
        said.starts_with("cannot write to standard output"),
        "{said}"
    );
}

#[test]
fn what_it_does_not_know_is_said_with_what_there_is() {
    for (args, says) in [
        (&["--scenario", "nosuch"][..], &["\"nosuch\"", "timers"][..]),
        (&["--scenario", "timers,nosuch"], &["\"nosuch\"", "timers"]),
        (&["--scenario", "timers,"], &["\"\"", "timers"]),
        (&["--list", "--scenario", "nosuch"], &["\"nosuch\""]),
        (&["--part", "99"], &["part 99", "1, 2, 3"]),
        (&["--part", "7", "--scenario", "timers"], &["--list"]),
        (
            &["--rivals", "foo"],
            &["'foo'", "go, tokio, smol, may, threads"],
        ),
        (
            &["--rivals", "go,foo"],
            &["'foo'", "go, tokio, smol, may, threads"],
        ),
        (&["--reps", "0"], &["'--reps"]),
    ] {
        let ended = run(args, Stdio::null());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {said}");
        for part in says {
            assert!(said.contains(part), "{args:?}: {part} is not in {said}");
        }
    }
}

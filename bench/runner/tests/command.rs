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

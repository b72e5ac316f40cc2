//! The demo where there are few descriptors.

use std::io::{BufRead, BufReader, Read};
use std::process::{Child, Command, Stdio};

/// The demo in a shell that has set a limit.
fn demo(limit: &str) -> Child {
    let script = format!("{limit}; exec \"$0\" demo --procs 1 --seconds 1 --json");
    Command::new("sh")
        .args(["-c", &script, env!("CARGO_BIN_EXE_runnext")])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap()
}

/// It ended in the first act, with "Too many open files", though it could have allowed itself more.
#[test]
fn a_soft_limit_is_raised() {
    let mut child = demo("ulimit -S -n 200");
    let lines = BufReader::new(child.stderr.take().unwrap()).lines();
    let mut said: Vec<String> = Vec::new();
    for line in lines.map_while(Result::ok) {
        said.push(line);
        if said.last().is_some_and(|line| line.starts_with("Act 2")) {
            break;
        }
    }
    child.kill().unwrap(); // two acts are not needed
    child.wait().unwrap();
    let last = said.last().expect("it says something");
    assert!(last.starts_with("Act 2"), "{said:#?}");
}

/// Where it cannot, it says so before it begins, with the number.
#[test]
fn a_hard_limit_is_told_of_first() {
    let mut child = demo("ulimit -n 200");
    let mut said = String::new();
    let mut stderr = child.stderr.take().unwrap();
    stderr.read_to_string(&mut said).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(3), "{said}");
    assert!(said.starts_with("runnext: the demo needs 360"), "{said}");
    assert!(
        said.contains("may have 200: raise the limit with `ulimit -n 360`"),
        "{said}"
    );
    assert_eq!(said.lines().count(), 1, "{said}");
}

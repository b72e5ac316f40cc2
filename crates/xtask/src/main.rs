//! `cargo run -p xtask -- tidy` checks the house rules and names every line that breaks one; `-- api` writes the listings of public
//! names anew.

#![forbid(unsafe_code)]

use std::process::ExitCode;
use std::{fs, io};
use xtask::{Tree, api, root, tidy};

fn main() -> ExitCode {
    let task = std::env::args().skip(1).collect::<Vec<_>>().join(" ");
    if !["tidy", "api"].contains(&task.as_str()) {
        eprintln!("usage: cargo run -p xtask -- tidy | api");
        return ExitCode::from(2);
    }
    let tree = match Tree::read(root()) {
        Ok(tree) => tree,
        Err(error) => {
            eprintln!("{task}: cannot read the repository: {error}");
            return ExitCode::FAILURE;
        }
    };
    if task == "api" {
        return match write_listings(&tree) {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => {
                eprintln!("api: cannot write the listings: {error}");
                ExitCode::FAILURE
            }
        };
    }
    let failures = tidy(&tree);
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

fn write_listings(tree: &Tree) -> io::Result<()> {
    for krate in api::CRATES {
        let path = root().join(api::path_of(krate));
        fs::create_dir_all(path.parent().unwrap_or(root()))?;
        fs::write(&path, api::listing(tree, krate))?;
        println!("{}", api::path_of(krate));
    }
    Ok(())
}

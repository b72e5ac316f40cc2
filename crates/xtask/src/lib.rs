//! The house rules of the repository, as a program.
//!
//! A rule nobody checks is a wish, so what is written here is all there is, and every failure says why the rule
//! exists. Rules that rustc or clippy know are left to them, unless they have to hold where those do not look (code
//! behind a `cfg` that is off, inside a macro, in Markdown).
//!
//! | module     | what                                                                  |
//! |------------|-----------------------------------------------------------------------|
//! | [`tree`]   | the files of the repository                                           |
//! | [`lex`]    | Rust text into tokens and comments: enough to not be fooled by strings |
//! | [`rules`]  | the rules, one function each, and their tunables                      |
//! | [`api`]    | the public names of the published crates, as text                     |
//! | [`arrows`] | the order of the runtime's modules, and who imports against it        |
//!
//! Run by `cargo run -p xtask -- tidy`, and by `cargo test` through `tests/tidy.rs`.

#![forbid(unsafe_code)]

pub mod api;
pub mod arrows;
pub mod lex;
pub mod rules;
pub mod tree;

pub use tree::{File, Tree};

use std::fmt;
use std::path::Path;

/// One line that breaks one rule.
#[derive(Debug, PartialEq, Eq)]
pub struct Failure {
    /// The file, relative to the root.
    pub path: String,
    /// The line, from 1.
    pub line: usize,
    /// What is wrong there.
    pub what: String,
    /// Why the rule exists.
    pub why: &'static str,
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{}:{}: {}\n    why: {}",
            self.path, self.line, self.what, self.why
        )
    }
}

/// A rule: looks at the tree, and calls its second argument with file, line and what is wrong there.
pub type Check = fn(&Tree, &mut dyn FnMut(&File, usize, String));

/// Every break of every rule, in the order of rules and files.
pub fn tidy(tree: &Tree) -> Vec<Failure> {
    let mut failures = Vec::new();
    for &(check, why) in rules::ALL {
        check(tree, &mut |file, line, what| {
            failures.push(Failure {
                path: file.path.clone(),
                line,
                what,
                why,
            });
        });
    }
    failures
}

/// The root of the repository this was built in.
pub fn root() -> &'static Path {
    Path::new(concat!(env!("CARGO_MANIFEST_DIR"), "/../.."))
}

//! The house rules, as part of `cargo test`.

use std::fmt::Write;
use xtask::{Tree, tidy};

#[test]
fn the_repository_keeps_its_rules() {
    let failures = tidy(&Tree::read(xtask::root()).unwrap());
    let mut list = String::new();
    for failure in &failures {
        writeln!(list, "{failure}").unwrap();
    }
    assert!(
        failures.is_empty(),
        "{} broken rule(s):\n{list}",
        failures.len()
    );
}

//! The public names are those that were reviewed.

use xtask::{Tree, api};

#[test]
fn the_public_names_are_as_listed() {
    let tree = Tree::read(xtask::root()).unwrap();
    for krate in api::CRATES {
        let path = api::path_of(krate);
        let kept = std::fs::read_to_string(xtask::root().join(&path)).unwrap_or_default();
        let now = api::listing(&tree, krate);
        let (old, new): (Vec<&str>, Vec<&str>) = (kept.lines().collect(), now.lines().collect());
        let gone: Vec<_> = old.iter().filter(|line| !new.contains(line)).collect();
        let come: Vec<_> = new.iter().filter(|line| !old.contains(line)).collect();
        assert!(
            gone.is_empty() && come.is_empty(),
            "{path} is not what the source says.\ngone: {gone:#?}\nnew: {come:#?}\n\
             If that is meant, write it anew with `cargo run -p xtask -- api`, and tell users in CHANGELOG.md."
        );
    }
}

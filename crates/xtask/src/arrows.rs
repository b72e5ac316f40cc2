//! The order of the runtime's modules: each may import from its own layer and those before it.
//!
//! Between crates Cargo keeps the arrows in one direction; inside the runtime's crate this table does. Imports are
//! found in `use` lines and in paths within code, by `crate::` or by a `super::` that leads to the root. A name
//! that is not a module of the table belongs to the root, so it counts as the last layer: inside the crate, names are
//! imported from where they live. Tests may import anything, and so may the code of exported macros (`$crate::`), which
//! runs in another crate.

use crate::rules::RUNTIME;
use crate::{File, Tree};

/// First to last. A module stands for all files below it; modules in one row may import each other.
const LAYERS: &[&[&str]] = &[
    &[
        "config",
        "fatal",
        "fences",
        "histogram",
        "lock",
        "note",
        "one_line",
        "say",
        "swallow",
    ],
    &["g", "stack", "instant"],
    // Ms and Ps are the scheduler's nouns, `sched` its verbs; a deadlock is shown by a dump.
    &["m", "p", "sched", "observe", "dump"],
    &["stats"],
    &["local", "overflow", "hazard"],
    &["goroutine", "group"],
    &["scope"],
    &["sync"],
    &["chan"],
    &["time"],
    &["context"],
    &["net"],
    &["fs"],
    &["future"],
    &["hyper"],
    &["trace"],
    &["runtime"],
    // Documentation only.
    &["guide"],
    &["lib"],
];

/// The rule.
pub fn against_the_order(tree: &Tree, say: &mut dyn FnMut(&File, usize, String)) {
    for file in tree.rust().filter(|file| !file.is_test()) {
        let Some(module) = file.module_in(RUNTIME) else {
            continue;
        };
        let own = module[0];
        let Some(layer) = layer_of(own) else {
            say(
                file,
                1,
                format!("the module `{own}` has no place in LAYERS yet"),
            );
            continue;
        };
        let depth = if own == "lib" { 0 } else { module.len() };
        for (name, line) in imports_from_root(file, depth) {
            match layer_of(name) {
                Some(other) if other <= layer => {}
                Some(_) => say(
                    file,
                    line,
                    format!("`{own}` imports `{name}`, which stands after it"),
                ),
                None if own == "lib" => {}
                None => say(
                    file,
                    line,
                    format!("`{own}` imports `{name}` from the root, not from its module"),
                ),
            }
        }
    }
}

fn layer_of(module: &str) -> Option<usize> {
    LAYERS.iter().position(|layer| layer.contains(&module))
}

/// What a file names right below the root of its crate, with lines. `depth` is how many `super` lead there.
fn imports_from_root(file: &File, depth: usize) -> Vec<(&str, usize)> {
    let mut names = Vec::new();
    let mut modules = Vec::new(); // where each inline module around here ends
    let mut at = 0;
    while let Some(token) = file.tokens.get(at) {
        modules.retain(|&end| at < end);
        if token.text == "mod" && file.tokens_are(at + 2, &["{"]) {
            let end = file.closing(at + 2);
            if file.tokens_are(at + 1, &["tests"]) {
                at = end;
                continue;
            }
            modules.push(end);
        }
        let exported = at > 0 && file.tokens_are(at - 1, &["$"]);
        let continues = at > 0 && file.tokens_are(at - 1, &[":"]);
        if token.text == "crate" && !exported {
            names.extend(first_names(file, at + 1));
        } else if token.text == "super" && !continues {
            let supers = (0..)
                .take_while(|n| file.tokens_are(at + 3 * n, &["super", ":", ":"]))
                .count();
            if supers > 0 && supers == depth + modules.len() {
                names.extend(first_names(file, at + 3 * supers - 2));
            }
        }
        at += 1;
    }
    names
}

/// The first names after the `::` at a token: one, or those of a `{…}` list. Macros have no path but the root's.
fn first_names(file: &File, at: usize) -> Vec<(&str, usize)> {
    if !file.tokens_are(at, &[":", ":"]) {
        return Vec::new();
    }
    let open = at + 2;
    let begins: Vec<usize> = if file.tokens_are(open, &["{"]) {
        let mut begins = vec![open + 1];
        let mut here = open + 1;
        while here < file.closing(open) {
            match file.tokens[here].text.as_str() {
                "{" => here = file.closing(here),
                "," => begins.push(here + 1),
                _ => {}
            }
            here += 1;
        }
        begins
    } else {
        vec![open]
    };
    let named = begins
        .into_iter()
        .filter(|&at| !file.tokens_are(at + 1, &["!"]));
    named
        .filter_map(|at| file.tokens.get(at))
        .filter(|token| {
            token
                .text
                .starts_with(|c: char| c.is_alphabetic() || c == '_')
        })
        .map(|token| (token.text.as_str(), token.line))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn said(path: &str, text: &str) -> Vec<(usize, String)> {
        let mut said = Vec::new();
        let tree = Tree {
            files: vec![File::new(format!("{RUNTIME}{path}"), text)],
        };
        against_the_order(&tree, &mut |_, line, what| said.push((line, what)));
        said
    }

    fn lines(path: &str, text: &str) -> Vec<usize> {
        said(path, text).into_iter().map(|(line, _)| line).collect()
    }

    #[test]
    fn forward_only() {
        assert_eq!(
            lines(
                "sched/worker.rs",
                "use crate::g::G;\nuse crate::sched::idle;\nuse super::idle;"
            ),
            []
        );
        assert_eq!(
            lines(
                "sched/worker.rs",
                "use crate::time::Timer;\nlet x = crate::net::x();"
            ),
            [1, 2]
        );
        assert_eq!(
            lines(
                "sched/mod.rs",
                "use crate::{\n    g::{time, G},\n    net::poll,\n};"
            ),
            [3]
        );
        assert_eq!(lines("stack.rs", "use crate::g::G;"), []);
    }

    #[test]
    fn the_root_by_super() {
        assert_eq!(lines("g.rs", "use super::chan::Sender;"), [1]);
        assert_eq!(
            lines(
                "sched/worker.rs",
                "use super::super::chan::Sender;\npub(super) fn f() {}"
            ),
            [1]
        );
        assert_eq!(
            lines(
                "g.rs",
                "mod inner {\n    use super::chan;\n    use super::super::chan;\n}"
            ),
            [3]
        );
    }

    #[test]
    fn names_of_the_root() {
        assert_eq!(
            said("chan/mod.rs", "use crate::Runtime;"),
            [(
                1,
                "`chan` imports `Runtime` from the root, not from its module".into()
            )]
        );
        assert_eq!(
            lines("chan/mod.rs", "crate::select! {}\n$crate::Runtime"),
            []
        );
        assert_eq!(lines("lib.rs", "pub use crate::Runtime;"), []);
    }

    #[test]
    fn tests_are_free_and_new_modules_need_a_place() {
        assert_eq!(
            lines(
                "g.rs",
                "#[cfg(test)]\nmod tests {\n    use crate::net::TcpStream;\n}"
            ),
            []
        );
        assert_eq!(lines("g/tests.rs", "use crate::net::TcpStream;"), []);
        assert_eq!(lines("novelty.rs", ""), [1]);
    }
}

//! The rules, one function each, with their limits and their listed exceptions.

use crate::{Check, File, Tree, api, arrows};

/// The most lines of a file.
const FILE_LINES: usize = 700;

/// The most lines of a function.
const FUNCTION_LINES: usize = 100;

/// Functions that may be longer, by file and name. The list is here to be seen, and to shrink.
const LONG_FUNCTIONS: &[(&str, &str)] = &[];

/// Notes to oneself, split so that this file holds none.
const NOTES: &[&str] = &[
    concat!("TO", "DO"),
    concat!("FIX", "ME"),
    concat!("X", "XX"),
];

/// Beginnings of paths that exist on one machine only, split likewise.
const PLACES: &[&str] = &[
    concat!("/wo", "rk/"),
    concat!("/tm", "p/"),
    concat!("/ho", "me/"),
    concat!("/ro", "ot/"),
];

/// The registry everyone has.
const REGISTRY: &str = "registry+https://github.com/rust-lang/crates.io-index";

/// Where the runtime lives, and which of its modules may read the machine's clock.
pub(crate) const RUNTIME: &str = "crates/runnext/src/";
const CLOCK_MODULES: &[&str] = &["clock", "time"];

/// Crates that print nothing by themselves but through [`RUNTIME`]'s `say`.
const SILENT: &[&str] = &[
    RUNTIME,
    "crates/runnext-core/src/",
    "crates/runnext-sys/src/",
];

/// Where the chapters of the guide are declared.
const GUIDE: &str = "crates/runnext/src/guide.rs";

/// Every rule and the reason for it.
pub const ALL: &[(Check, &str)] = &[
    (
        file_size,
        "a file is read in one sitting; cut it where a reader would pause",
    ),
    (
        function_size,
        "a long function is a state machine nobody has drawn; split it, or list it in LONG_FUNCTIONS",
    ),
    (
        header,
        "a file says first what it is, so that a newcomer can choose what to read",
    ),
    (
        notes,
        "what is not done is an issue, not a comment: nobody works through comments",
    ),
    (
        placeholders,
        "code that is not there must not compile, and a test that does not run protects nothing",
    ),
    (
        safety,
        "an unsafe block is a proof obligation; the proof stands next to it",
    ),
    (
        invariants,
        "a citation that leads nowhere is worse than none",
    ),
    (
        clock,
        "time goes through the runtime's own clock, or the simulator cannot turn it",
    ),
    (
        printing,
        "printing macros panic where nobody reads what they print, and the runtime must not; use `say`",
    ),
    (
        arrows::against_the_order,
        "modules import in one direction only, so that each can be read after those it stands on",
    ),
    (
        examples,
        "a user learns a name from a program that uses it, and a program that runs with the tests stays true",
    ),
    (
        quick_start,
        "the first thing a visitor tries is two lines: one that runs something, one that tests it",
    ),
    (
        machine,
        "a checkout works on any machine, and says nothing of the one it was written on",
    ),
];

type Say<'a> = &'a mut dyn FnMut(&File, usize, String);

fn file_size(tree: &Tree, say: Say<'_>) {
    for file in tree.rust() {
        let lines = file.text.lines().count();
        if lines > FILE_LINES {
            say(
                file,
                lines,
                format!("{lines} lines, and {FILE_LINES} are allowed"),
            );
        }
    }
}

/// What stands behind the fence on a line of documentation, if there is one.
fn fence(comment: &str) -> Option<&str> {
    comment.get(3..)?.trim().strip_prefix("```")
}

fn function_size(tree: &Tree, say: Say<'_>) {
    for file in tree.rust() {
        for (at, token) in file
            .tokens
            .iter()
            .enumerate()
            .filter(|(_, token)| token.text == "fn")
        {
            let Some((name, end)) = function_at(file, at) else {
                continue;
            };
            let lines = file.tokens[end].line - token.line + 1;
            if lines > FUNCTION_LINES && !LONG_FUNCTIONS.contains(&(file.path.as_str(), name)) {
                say(
                    file,
                    token.line,
                    format!("`{name}` has {lines} lines, and {FUNCTION_LINES} are allowed"),
                );
            }
        }
    }
}

/// The name of the function whose `fn` is at a token, and its last token; none for a type, or a function without a body.
fn function_at(file: &File, at: usize) -> Option<(&str, usize)> {
    let name = &file.tokens.get(at + 1)?.text;
    let mut here = at + 2;
    loop {
        match file.tokens.get(here)?.text.as_str() {
            _ if name == "(" => return None,
            ";" => return None,
            "{" => break,
            "(" | "[" => here = file.closing(here) + 1,
            _ => here += 1,
        }
    }
    let end = file.closing(here).min(file.tokens.len() - 1);
    Some((name, end))
}

fn header(tree: &Tree, say: Say<'_>) {
    for file in tree.rust().filter(|file| !file.is_test()) {
        let first = file
            .text
            .lines()
            .find(|line| !line.is_empty())
            .unwrap_or_default();
        if !first.starts_with("//!") {
            say(file, 1, "does not begin with `//!` and what it is".into());
        }
    }
}

fn notes(tree: &Tree, say: Say<'_>) {
    for file in &tree.files {
        for (line, text) in (1..).zip(file.text.lines()) {
            let words = text.split(|c: char| !c.is_alphanumeric() && c != '_');
            if let Some(note) = words.into_iter().find(|word| NOTES.contains(word)) {
                say(file, line, format!("`{note}`"));
            }
        }
    }
}

fn placeholders(tree: &Tree, say: Say<'_>) {
    const BANNED: &[&[&str]] = &[
        &["todo", "!"],
        &["unimplemented", "!"],
        &["dbg", "!"],
        &["#", "[", "ignore"],
    ];
    for file in tree.rust() {
        for (at, token) in file.tokens.iter().enumerate() {
            if let Some(banned) = BANNED.iter().find(|banned| file.tokens_are(at, banned)) {
                say(file, token.line, format!("`{}`", banned.concat()));
            }
        }
    }
}

/// `unsafe {` and `unsafe impl` have a comment with `SAFETY:` on their line, or right above it or above the beginning of
/// their statement.
fn safety(tree: &Tree, say: Say<'_>) {
    for file in tree.rust() {
        for (at, token) in file.tokens.iter().enumerate() {
            if !file.tokens_are(at, &["unsafe", "{"]) && !file.tokens_are(at, &["unsafe", "impl"]) {
                continue;
            }
            let ends = |index: &usize| matches!(file.tokens[*index].text.as_str(), ";" | "{" | "}");
            let statement = (0..at).rev().find(ends).map_or(0, |before| before + 1);
            let mut from = file.tokens[statement].line;
            while from > 1 && is_comment_or_attribute(file, from - 1) {
                from -= 1;
            }
            let mut near = file
                .comments
                .iter()
                .filter(|comment| (from..=token.line).contains(&comment.line));
            if !near.any(|comment| comment.text.contains("SAFETY:")) {
                say(
                    file,
                    token.line,
                    "`unsafe` without a `// SAFETY:` above it".into(),
                );
            }
        }
    }
}

fn is_comment_or_attribute(file: &File, line: usize) -> bool {
    match file.tokens.iter().find(|token| token.line == line) {
        Some(first) => first.text == "#",
        None => file.comments.iter().any(|comment| comment.line == line),
    }
}

/// A file that defines invariants (`//! I1  …`) cites no others. One of another file is cited with its module: `g::I3`.
fn invariants(tree: &Tree, say: Say<'_>) {
    let is_invariant = |word: &str| {
        word.strip_prefix('I')
            .is_some_and(|n| !n.is_empty() && n.bytes().all(|b| b.is_ascii_digit()))
    };
    for file in tree.rust() {
        let (header, comments): (Vec<_>, Vec<_>) = file
            .comments
            .iter()
            .partition(|comment| comment.text.starts_with("//!"));
        let defined: Vec<&str> = header
            .iter()
            .filter_map(|line| line.text[3..].split_whitespace().next())
            .filter(|word| is_invariant(word))
            .collect();
        if defined.is_empty() {
            continue;
        }
        for comment in comments {
            let words = comment
                .text
                .split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
            for cited in words
                .map(|word| word.trim_end_matches(':'))
                .filter(|word| is_invariant(word))
            {
                if !defined.contains(&cited) {
                    say(
                        file,
                        comment.line,
                        format!("cites {cited}, which its header does not define"),
                    );
                }
            }
        }
    }
}

fn clock(tree: &Tree, say: Say<'_>) {
    const STD_TIME: &[&str] = &["std", ":", ":", "time", ":", ":"];
    for file in tree.rust().filter(|file| !file.is_test()) {
        let Some(module) = file.module_in(RUNTIME) else {
            continue;
        };
        if module.iter().any(|part| CLOCK_MODULES.contains(part)) {
            continue;
        }
        let imports = |name: &str| {
            (0..file.tokens.len())
                .filter(|&at| file.tokens_are(at, &["use"]))
                .any(|at| {
                    let tree = file.tokens[at + 1..]
                        .split(|token| token.text == ";")
                        .next()
                        .unwrap_or_default();
                    file.tokens_are(at + 1, STD_TIME) && tree.iter().any(|token| token.text == name)
                })
        };
        for (at, token) in file.tokens.iter().enumerate() {
            let of_std = at >= STD_TIME.len() && file.tokens_are(at - STD_TIME.len(), STD_TIME);
            for name in ["Instant", "SystemTime"] {
                if file.tokens_are(at, &[name, ":", ":", "now"]) && (of_std || imports(name)) {
                    say(
                        file,
                        token.line,
                        format!("`std::time::{name}::now` outside of {CLOCK_MODULES:?}"),
                    );
                }
            }
            if file.tokens_are(at, &["thread", ":", ":", "sleep"]) {
                say(
                    file,
                    token.line,
                    format!("`std::thread::sleep` outside of {CLOCK_MODULES:?}"),
                );
            }
        }
    }
}

/// No macro that prints in the crates of the runtime, but for their tests and `say`, which knows when it may.
fn printing(tree: &Tree, say: Say<'_>) {
    const MACROS: &[&str] = &["print", "println", "eprint", "eprintln"];
    for file in tree.rust().filter(|file| !file.is_test()) {
        let silent = SILENT.iter().any(|src| file.path.starts_with(src));
        if !silent || file.path.ends_with("/say.rs") {
            continue;
        }
        let mut at = 0;
        while let Some(token) = file.tokens.get(at) {
            if file.tokens_are(at, &["mod", "tests", "{"]) {
                at = file.closing(at + 2);
            } else if MACROS.contains(&token.text.as_str()) && file.tokens_are(at + 1, &["!"]) {
                say(file, token.line, format!("`{}!`", token.text));
            }
            at += 1;
        }
    }
}

/// Each public item that is called or named has an example that runs: a fence in its own documentation, or in the header of the
/// module that it is. Chapters of the guide are files of their own, full of them.
fn examples(tree: &Tree, say: Say<'_>) {
    for krate in api::CRATES {
        let src = format!("crates/{krate}/src/");
        for item in api::public_items(tree, krate) {
            let (file, line) = item.place;
            if !item.is_used_by_name() || file.path == GUIDE {
                continue;
            }
            let own = item.declares().and_then(|module| {
                let is_it = |file: &&File| {
                    (file.module_in(&src)).is_some_and(|path| path.join("::") == module)
                };
                tree.rust().find(is_it)
            });
            let inner =
                own.is_some_and(|file| runs(&file.comments, |text| text.starts_with("//!")));
            let mut from = line;
            while from > 1 && is_comment_or_attribute(file, from - 1) {
                from -= 1;
            }
            let near = file
                .comments
                .iter()
                .filter(|c| (from..line).contains(&c.line));
            if !inner && !runs(near, |text| text.starts_with("///")) {
                say(file, line, format!("`{}` has no example", item.line));
            }
        }
    }
}

/// Whether among these comments, of one kind, is an example that `cargo test` runs.
fn runs<'a>(
    comments: impl IntoIterator<Item = &'a crate::lex::Comment>,
    kind: fn(&str) -> bool,
) -> bool {
    (comments.into_iter())
        .filter(|comment| kind(&comment.text))
        .filter_map(|comment| fence(&comment.text))
        .step_by(2)
        .any(|words| matches!(words, "" | "rust" | "should_panic"))
}

/// README.md has, right under `## Quick start`, one fenced block with exactly two command lines.
fn quick_start(tree: &Tree, say: Say<'_>) {
    let Some(readme) = tree.file("README.md") else {
        say(&File::new("README.md", ""), 1, "is missing".into());
        return;
    };
    let mut lines = (1..).zip(readme.text.lines());
    let Some((heading, _)) = lines.find(|(_, line)| *line == "## Quick start") else {
        return say(readme, 1, "has no heading `## Quick start`".into());
    };
    let mut lines = lines
        .map(|(_, line)| line)
        .skip_while(|line| line.is_empty());
    if !lines.next().is_some_and(|line| line.starts_with("```")) {
        return say(
            readme,
            heading,
            "has no fenced block right under `## Quick start`".into(),
        );
    }
    let commands = lines.take_while(|line| !line.starts_with("```")).count();
    if commands != 2 {
        say(
            readme,
            heading,
            format!("{commands} lines in the quick start, and there have to be two commands"),
        );
    }
}

fn machine(tree: &Tree, say: Say<'_>) {
    for file in &tree.files {
        for (line, text) in (1..).zip(file.text.lines()) {
            for place in PLACES {
                let begins = |(at, _): (usize, &str)| {
                    // `src/work/x` is a place in the repository.
                    !text[..at].ends_with(|c: char| c.is_alphanumeric() || "._-*/}".contains(c))
                };
                if text.match_indices(place).any(begins) {
                    say(file, line, format!("an absolute path below `{place}`"));
                }
            }
            let foreign_source = text.starts_with("source = \"") && !text.contains(REGISTRY);
            if file.path.ends_with("Cargo.lock") && foreign_source {
                say(file, line, "a registry other than crates.io".into());
            }
            let is_config = file.path.ends_with(".cargo/config.toml");
            if is_config && (text.starts_with("[source") || text.starts_with("[registries")) {
                say(file, line, "a registry of one's own".into());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines at which one rule speaks about one file.
    fn broken(check: Check, path: &str, text: &str) -> Vec<usize> {
        let mut lines = Vec::new();
        let tree = Tree {
            files: vec![File::new(path, text)],
        };
        check(&tree, &mut |_, line, _| lines.push(line));
        lines
    }

    #[test]
    fn long_files_and_functions() {
        let long = |lines| format!("fn a(f: fn()) {{\n{}}}\nfn b();\n", "x;\n".repeat(lines));
        assert_eq!(broken(function_size, "a.rs", &long(FUNCTION_LINES - 2)), []);
        assert_eq!(
            broken(function_size, "a.rs", &long(FUNCTION_LINES - 1)),
            [1]
        );
        assert_eq!(broken(file_size, "a.rs", &"\n".repeat(FILE_LINES)), []);
        assert_eq!(
            broken(file_size, "a.rs", &"\n".repeat(FILE_LINES + 1)),
            [FILE_LINES + 1]
        );
    }

    #[test]
    fn public_items_have_examples_that_run() {
        let lib = "crates/runnext/src/lib.rs";
        let with = |fence: &str, item: &str| {
            format!("/// It.\n/// {fence}\n/// x();\n/// ```\n#[must_use]\n{item}\n")
        };
        let item = "pub fn f() {}";
        assert_eq!(broken(examples, lib, &with("```", item)), []);
        assert_eq!(broken(examples, lib, &with("```should_panic", item)), []);
        assert_eq!(broken(examples, lib, &with("```text", item)), [6]);
        assert_eq!(broken(examples, lib, &with("```no_run", item)), [6]);
        assert_eq!(
            broken(examples, lib, "/// It.\nfn own() {}\npub(crate) fn f() {}"),
            []
        );
        // An example of what stands above is none of what stands below.
        let two = with("```", item) + "/// That.\npub fn g() {}";
        assert_eq!(broken(examples, lib, &two), [8]);
        // A type and its methods need one each; fields, variants and traits need none.
        let enumeration = with(
            "```",
            "pub enum E { A, B }\nimpl Clone for E { fn clone(&self) -> E { E::A } }",
        );
        assert_eq!(broken(examples, lib, &enumeration), []);
        let method = with(
            "```",
            "pub struct S { pub x: u8 }\nimpl S {\n/// It.\npub fn m(&self, f: impl Fn()) {}\n}",
        );
        assert_eq!(broken(examples, lib, &method), [9]);
        // The header of a module is its documentation.
        let tree = |header: &str| Tree {
            files: vec![
                File::new(lib, "pub mod m;"),
                File::new("crates/runnext/src/m.rs", header),
            ],
        };
        let broken = |header| {
            let mut lines = 0;
            examples(&tree(header), &mut |_, _, _| lines += 1);
            lines
        };
        assert_eq!(broken("//! M.\n//! ```\n//! x();\n//! ```\n"), 0);
        assert_eq!(broken("//! M.\n"), 1);
    }

    #[test]
    fn headers() {
        assert_eq!(broken(header, "a.rs", "//! A.\n"), []);
        assert_eq!(broken(header, "a.rs", "use a;\n"), [1]);
    }

    #[test]
    fn unfinished_work() {
        let note = NOTES[0];
        assert_eq!(
            broken(notes, "a.md", &format!("a\n{note}: b\n{note}S")),
            [2]
        );
        assert_eq!(
            broken(
                placeholders,
                "a.rs",
                "todo!();\n\"todo!()\";\n#[ignore = \"\"]\n"
            ),
            [1, 3]
        );
    }

    #[test]
    fn unsafe_code() {
        assert_eq!(broken(safety, "a.rs", "unsafe fn f();\nunsafe { x }"), [2]);
        assert_eq!(
            broken(
                safety,
                "a.rs",
                "// SAFETY: a\n#[b]\nunsafe impl A for B {}\nunsafe impl C for B {}"
            ),
            [4]
        );
        assert_eq!(
            broken(
                safety,
                "a.rs",
                "// SAFETY: a,\n// and b.\nlet x =\n    unsafe { y };"
            ),
            []
        );
        assert_eq!(broken(safety, "a.rs", "// SAFETY: a\n\nunsafe { x }"), [3]);
        assert_eq!(
            broken(
                safety,
                "a.rs",
                "// SAFETY: a\nx;\nunsafe { y }\n\"unsafe { z }\""
            ),
            [3]
        );
    }

    #[test]
    fn cited_invariants() {
        assert_eq!(
            broken(invariants, "a.rs", "//! I1  a\n// I1, I2: b (g::I3)\n"),
            [2]
        );
        assert_eq!(broken(invariants, "a.rs", "//! none\n// I2\n"), []);
    }

    #[test]
    fn clocks() {
        let at = |file: &str, text| broken(clock, &format!("{RUNTIME}{file}"), text);
        assert_eq!(
            at(
                "sched/idle.rs",
                "use crate::time::Instant;\nInstant::now();"
            ),
            []
        );
        assert_eq!(
            at(
                "sched/idle.rs",
                "use std::time::{Duration, Instant};\nInstant::now();"
            ),
            [2]
        );
        assert_eq!(
            at("g.rs", "std::time::Instant::now();\nthread::sleep(d);"),
            [1, 2]
        );
        assert_eq!(at("time/mod.rs", "std::time::Instant::now();"), []);
        assert_eq!(at("g/tests.rs", "thread::sleep(d);"), []);
    }

    #[test]
    fn printed_words() {
        let text = "/// println!()\neprintln!(\"println!()\");\nprint!();\nmod tests {\nprintln!();\n}\n\
                    format!();\neprint!();";
        for src in SILENT {
            assert_eq!(broken(printing, &format!("{src}a.rs"), text), [2, 3, 8]);
            assert_eq!(broken(printing, &format!("{src}a/tests.rs"), text), []);
        }
        assert_eq!(broken(printing, "crates/runnext-cli/src/main.rs", text), []);
    }

    #[test]
    fn first_contact() {
        let readme = |block| {
            broken(
                quick_start,
                "README.md",
                &format!("# a\n\n## Quick start\n\n{block}\n"),
            )
        };
        assert_eq!(readme("```sh\na\nb\n```"), []);
        assert_eq!(readme("```sh\na\n```\n```sh\nb\n```"), [3]);
        assert_eq!(readme("Do this:\n```sh\na\nb\n```"), [3]);
        assert_eq!(broken(quick_start, "README.md", "# a"), [1]);
        assert_eq!(broken(quick_start, "a.md", ""), [1]);
    }

    #[test]
    fn places_of_one_machine() {
        let place = PLACES[0];
        assert_eq!(
            broken(machine, "a.md", &format!("a\nsee {place}x\nsrc{place}x")),
            [2]
        );
        assert_eq!(
            broken(
                machine,
                "Cargo.lock",
                &format!("source = \"{REGISTRY}\"\nsource = \"x\"")
            ),
            [2]
        );
    }
}

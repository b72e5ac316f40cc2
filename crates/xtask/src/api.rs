//! The public API of the published crates, as text: one line for each item, sorted, kept in `api/` and compared by a test.
//!
//! # Why this shape
//! A change of a public name must be seen in review, and by anybody, with a stable toolchain: what rustdoc knows as JSON needs a nightly one. So this
//! reads the source as tokens. It goes by names: an item is public if its module is, or if a `pub use` somewhere in the crate
//! names it; a method, if its type is. Of a macro of the crate that makes public functions or implementations it lists what is in it, and where it
//! is used. `cargo run -p xtask -- api` writes the files anew.

use crate::{File, Tree};
use std::collections::BTreeSet;

/// The crates whose names others may use.
pub const CRATES: &[&str] = &["runnext", "runnext-debug", "runnext-macros"];

/// Where the listing of a crate is kept.
pub fn path_of(krate: &str) -> String {
    format!("api/{krate}.txt")
}

/// Something declared with `pub`, or an implementation.
pub struct Item<'a> {
    /// The module it stands in; empty for the root.
    module: String,
    /// The type it belongs to, or itself: what a `pub use` would have to name.
    name: String,
    /// What it is; "impl" for members of one.
    kind: &'static str,
    /// As listed.
    pub line: String,
    /// Where it begins: its file, and the line in it.
    pub place: (&'a File, usize),
}

impl Item<'_> {
    /// Whether a user calls it or names it: not a re-export, a field, a variant, or that a type has a trait.
    pub fn is_used_by_name(&self) -> bool {
        match self.kind {
            "use" | "made" | "makes" => false,
            "impl" => (self.line.split_once(": "))
                .is_some_and(|(_, member)| member.contains("fn ") && !member.starts_with("impl")),
            _ => true,
        }
    }

    /// The module that it declares, as a path.
    pub fn declares(&self) -> Option<String> {
        (self.kind == "mod").then(|| join(&self.module, &self.name))
    }
}

/// The public items of one crate, in the order of its files.
pub fn public_items<'a>(tree: &'a Tree, krate: &str) -> Vec<Item<'a>> {
    let src = format!("crates/{krate}/src/");
    let mut items = Vec::new();
    for file in tree.rust().filter(|file| !file.is_test()) {
        let Some(path) = file.module_in(&src) else {
            continue;
        };
        let module = if path == ["lib"] {
            String::new()
        } else {
            path.join("::")
        };
        let end = file.tokens.len();
        Scan {
            file,
            items: &mut items,
        }
        .items(0, end, &module, None);
    }
    let public = public_modules(&items);
    let shown = |item: &Item| item.module.is_empty() || public.contains(&item.module);
    let used: BTreeSet<String> = (items.iter())
        .filter(|item| item.kind == "use" && shown(item))
        .flat_map(|item| names_in(&item.line))
        .collect();
    let visible = |item: &Item| (shown(item) && item.kind != "impl") || used.contains(&item.name);
    let types: BTreeSet<String> = (items.iter())
        .filter(|item| item.kind == "type" && visible(item))
        .map(|item| item.name.clone())
        .collect();
    let makers: BTreeSet<String> = (items.iter())
        .filter(|item| item.kind == "made")
        .map(|item| item.name.clone())
        .collect();
    let listed = |item: &Item| match item.kind {
        "made" => true,
        "makes" => makers.contains(&item.name),
        "impl" => visible(item) || types.contains(&item.name),
        _ => visible(item),
    };
    items.into_iter().filter(listed).collect()
}

/// The listing of one crate.
pub fn listing(tree: &Tree, krate: &str) -> String {
    let items = public_items(tree, krate);
    let lines: BTreeSet<&str> = items.iter().map(|item| item.line.as_str()).collect();
    let mut text = format!("# Public names of {krate}. Written by `cargo run -p xtask -- api`.\n");
    for line in lines {
        text.push_str(line);
        text.push('\n');
    }
    text
}

/// Modules that are `pub`, and whose parents are.
fn public_modules(items: &[Item]) -> BTreeSet<String> {
    let declared: BTreeSet<String> = (items.iter())
        .filter(|item| item.kind == "mod")
        .map(|item| join(&item.module, &item.name))
        .collect();
    let whole = |module: &&String| {
        let ends = module.match_indices("::").map(|(at, _)| &module[..at]);
        ends.into_iter().all(|parent| declared.contains(parent))
    };
    declared.iter().filter(whole).cloned().collect()
}

fn join(module: &str, name: &str) -> String {
    if module.is_empty() {
        name.to_owned()
    } else {
        format!("{module}::{name}")
    }
}

/// The names that a `use` brings in: last parts of paths.
fn names_in(line: &str) -> Vec<String> {
    line.split([',', '{', '}'])
        .filter_map(|path| path.trim().trim_end_matches(';').rsplit([':', ' ']).next())
        .filter(|name| !name.is_empty())
        .map(str::to_owned)
        .collect()
}

struct Scan<'a, 'b> {
    file: &'a File,
    items: &'b mut Vec<Item<'a>>,
}

impl Scan<'_, '_> {
    fn text(&self, at: usize) -> &str {
        self.file
            .tokens
            .get(at)
            .map_or("", |token| token.text.as_str())
    }

    /// Looks at the tokens of a module, or of the body of the type `owner`.
    fn items(&mut self, from: usize, to: usize, module: &str, owner: Option<&str>) {
        let (mut at, mut skip) = (from, false);
        let mut exported = false;
        while at < to {
            match self.text(at) {
                "#" => {
                    let open = at + 1 + usize::from(self.text(at + 1) == "!");
                    let end = self.file.closing(open);
                    let attribute = self.render(open, end + 1);
                    skip |= attribute.contains("cfg(test)") || attribute.contains("doc(hidden)");
                    if attribute.contains("macro_export") && !skip {
                        self.exported_macro(end + 1);
                        exported = true;
                    }
                    at = end + 1;
                    continue;
                }
                "pub" if self.text(at + 1) == "(" => {
                    at = self.file.closing(at + 1) + 1;
                    skip = true;
                    continue;
                }
                "pub" if !skip => at = self.public(at, module, owner),
                "impl" if owner.is_none() && !skip => at = self.implementation(at, module),
                "mod" if owner.is_none() && self.text(at + 2) == "{" => {
                    let end = self.file.closing(at + 2);
                    let inner = join(module, self.text(at + 1));
                    if !skip {
                        self.items(at + 3, end, &inner, None);
                    }
                    at = end + 1;
                }
                "macro_rules" => {
                    if !skip && !exported {
                        self.made_by(at, module);
                    }
                    exported = false;
                    at = self.file.closing(at + 3) + 1;
                }
                name if self.text(at + 1) == "!" && !skip && is_name(name) => {
                    let (open, name) = (at + 2, name.to_owned());
                    let owner = owner.map_or_else(String::new, |owner| format!("{owner}: "));
                    let end = self.file.closing(open);
                    let line = format!("{} {owner}{}", place(module), self.render(at, end + 1));
                    self.push(module, &name, "makes", at, line);
                    at = end + 1;
                }
                ";" | "," => at += 1,
                _ => {
                    at = self.past(at);
                    if !matches!(self.text(at.saturating_sub(1)), "}" | ";" | ",") {
                        continue;
                    }
                }
            }
            skip = false;
        }
    }

    /// The token after this one, or after the group it opens.
    fn past(&self, at: usize) -> usize {
        match self.text(at) {
            "{" | "(" | "[" => self.file.closing(at) + 1,
            _ => at + 1,
        }
    }

    /// Where a signature ends: at its body, its value or its semicolon; a field's, at the comma.
    fn signature_end(&self, from: usize, field: bool) -> usize {
        let (mut at, mut angle) = (from, 0usize);
        while at < self.file.tokens.len() {
            match self.text(at) {
                "{" | ";" | "}" => return at,
                "=" if angle == 0 => return at,
                "," if field && angle == 0 => return at,
                "<" => angle += 1,
                ">" if self.text(at - 1) != "-" => angle = angle.saturating_sub(1),
                _ => {}
            }
            at = self.past(at);
        }
        at
    }

    /// The item whose `pub` is at a token; where the next begins.
    fn public(&mut self, at: usize, module: &str, owner: Option<&str>) -> usize {
        let words: Vec<&str> = (at + 1..at + 8).map(|i| self.text(i)).collect();
        if words[0] == "use" {
            let end = (at..self.file.tokens.len()).find(|i| self.text(*i) == ";");
            let end = end.unwrap_or(self.file.tokens.len());
            let line = format!("{} {}", place(module), self.render(at, end));
            self.push(module, "", "use", at, line);
            return end + 1;
        }
        let word = words.iter().position(|word| {
            matches!(
                *word,
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "static" | "mod" | "macro"
            )
        });
        let constant =
            (words[0] == "const" && words[1] != "fn" && words[1] != "unsafe").then_some(0);
        let Some(keyword) = constant.or(word.filter(|_| !self.is_field(at))) else {
            let end = self.signature_end(at, true);
            self.member(module, owner, at, end);
            return end + 1;
        };
        let (kind, name) = (
            words[keyword].to_owned(),
            self.text(at + keyword + 2).to_owned(),
        );
        let end = self.signature_end(at, false);
        if owner.is_some() {
            self.member(module, owner, at, end);
            return self.after_body(end);
        }
        let line = format!("{} {}", place(module), self.render(at, end));
        match kind.as_str() {
            "mod" => self.push(module, &name, "mod", at, line),
            "struct" | "enum" | "union" | "trait" | "type" => {
                self.push(module, &name, "type", at, line);
                self.body(&kind, &name, module, end);
            }
            _ => self.push(module, &name, "value", at, line),
        }
        self.after_body(end)
    }

    /// A field is `pub name: …`.
    fn is_field(&self, at: usize) -> bool {
        self.text(at + 2) == ":" && self.text(at + 3) != ":"
    }

    fn after_body(&self, end: usize) -> usize {
        match self.text(end) {
            "{" => self.file.closing(end) + 1,
            "=" => (end..self.file.tokens.len())
                .find(|i| self.text(*i) == ";")
                .map_or(end + 1, |i| i + 1),
            _ => end + 1,
        }
    }

    /// Fields, variants, methods of a trait.
    fn body(&mut self, kind: &str, name: &str, module: &str, open: usize) {
        if self.text(open) != "{" {
            return;
        }
        let end = self.file.closing(open);
        match kind {
            "struct" | "union" => self.items(open + 1, end, module, Some(name)),
            "enum" | "trait" => {
                let mut at = open + 1;
                while at < end {
                    if self.text(at) == "#" {
                        at = self.file.closing(at + 1) + 1;
                        continue;
                    }
                    let stop = if kind == "enum" {
                        self.variant_end(at, end)
                    } else {
                        self.signature_end(at, false)
                    };
                    self.member(module, Some(name), at, stop);
                    at = if kind == "enum" {
                        stop + 1
                    } else {
                        self.after_body(stop)
                    };
                }
            }
            _ => {}
        }
    }

    fn variant_end(&self, from: usize, end: usize) -> usize {
        let mut at = from;
        while at < end && self.text(at) != "," {
            at = self.past(at);
        }
        at
    }

    fn member(&mut self, module: &str, owner: Option<&str>, at: usize, end: usize) {
        if at >= end {
            return;
        }
        let owner = owner.unwrap_or("");
        let line = format!("{} {owner}: {}", place(module), self.render(at, end));
        self.push(module, owner, "impl", at, line);
    }

    /// `impl … { … }`: the methods of a type, or that it has a trait.
    fn implementation(&mut self, at: usize, module: &str) -> usize {
        let open = self.signature_end(at, false);
        let end = self.file.closing(open);
        let header: Vec<&str> = (at..open).map(|i| self.text(i)).collect();
        let of_trait =
            (0..header.len()).find(|&i| header[i] == "for" && header.get(i + 1) != Some(&"<"));
        let from = of_trait.map_or_else(|| self.past_generics(at + 1) - at, |i| i + 1);
        // The last part of its path; references and lifetimes are none.
        let name = header[from..]
            .iter()
            .take_while(|word| **word != "<" && **word != "where")
            .filter(|word| word.chars().all(|c| c.is_alphanumeric() || c == '_'))
            .last()
            .map_or(String::new(), |word| (*word).to_owned());
        if of_trait.is_some() {
            let line = format!("{} {name}: {}", place(module), self.render(at, open));
            self.push(module, &name, "impl", at, line);
        } else {
            self.items(open + 1, end, module, Some(&name));
        }
        end + 1
    }

    fn past_generics(&self, at: usize) -> usize {
        if self.text(at) != "<" {
            return at;
        }
        let (mut here, mut depth) = (at, 0usize);
        loop {
            match self.text(here) {
                "<" => depth += 1,
                ">" if self.text(here - 1) != "-" => depth -= 1,
                "" => return here,
                _ => {}
            }
            here += 1;
            if depth == 0 {
                return here;
            }
        }
    }

    fn exported_macro(&mut self, from: usize) {
        let found = (from..from + 40).find(|&i| self.text(i) == "macro_rules");
        if let Some(at) = found {
            let name = self.text(at + 2).to_owned();
            self.push("", &name, "value", at, format!("crate macro {name}!"));
        }
    }

    /// Public functions, and implementations of traits, in the macro whose `macro_rules` is at a token.
    fn made_by(&mut self, at: usize, module: &str) {
        let name = self.text(at + 2).to_owned();
        for i in at + 4..self.file.closing(at + 3) {
            let function =
                self.text(i) == "pub" && matches!(self.text(i + 1), "fn" | "const" | "unsafe");
            let end = self.signature_end(i, false);
            let implementation = self.text(i) == "impl"
                && matches!(self.text(i - 1), "{" | "}" | "]")
                && (i..end).any(|i| self.text(i) == "for");
            if function || implementation {
                let line = format!("{} {name}!: {}", place(module), self.render(i, end));
                self.push(module, &name, "made", i, line);
            }
        }
    }

    fn push(&mut self, module: &str, name: &str, kind: &'static str, at: usize, line: String) {
        self.items.push(Item {
            place: (self.file, self.file.tokens[at].line),
            module: module.to_owned(),
            name: name.to_owned(),
            kind,
            line,
        });
    }

    /// Tokens as text: blanks where words would run together, and after commas and colons.
    fn render(&self, from: usize, to: usize) -> String {
        let mut text = String::new();
        for at in from..to {
            let token = self.text(at);
            let before = text.chars().next_back().unwrap_or(' ');
            let wordy = |c: char| c.is_alphanumeric() || c == '_' || c == '\'' || c == '"';
            let first = token.chars().next().unwrap_or(' ');
            let apart = (wordy(before) && (wordy(first) || first == '$'))
                || (text.ends_with(" for") && first == '&')
                || (before == ',' && first != ')')
                || (before == ':' && first != ':' && !text.ends_with("::"))
                || (matches!(before, ')' | '>' | ']') && wordy(first))
                || (token == "-" && self.text(at + 1) == ">")
                || text.ends_with("->")
                || matches!(token, "+" | "=")
                || (token == "{" && before != ':')
                || before == '+'
                || (before == '=' && first != '>');
            if apart && !text.is_empty() && !text.ends_with(' ') {
                text.push(' ');
            }
            text.push_str(token);
        }
        text.replace(",)", ")").replace(", )", ")")
    }
}

fn is_name(token: &str) -> bool {
    token.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

fn place(module: &str) -> String {
    if module.is_empty() {
        "crate".to_owned()
    } else {
        module.to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn list(files: &[(&str, &str)]) -> Vec<String> {
        let mut tree = Tree::default();
        for (path, text) in files {
            tree.files
                .push(File::new(format!("crates/runnext/src/{path}"), *text));
        }
        let text = listing(&tree, "runnext");
        text.lines().skip(1).map(str::to_owned).collect()
    }

    #[test]
    fn what_is_public_is_listed() {
        let lib = "pub mod open; mod shut; pub use shut::Shown;\n#[cfg(test)] pub fn not() {}\npub(crate) fn nor() {}\nfn inner() { pub fn hidden() {} }";
        let open = "pub fn call<F, T>(f: F) -> T where F: FnOnce() -> T { f() }\npub enum E { A, B(u8) }\nimpl Clone for E { fn clone(&self) -> E { loop {} } }";
        let shut = "pub struct Shown { pub field: u8, own: u8 }\nimpl Shown { pub const fn get(&self) -> u8 { 1 } fn own(&self) {} }\npub struct Hidden; impl Hidden { pub fn x(&self) {} }";
        let lines = list(&[("lib.rs", lib), ("open.rs", open), ("shut.rs", shut)]);
        assert_eq!(
            lines,
            [
                "crate pub mod open",
                "crate pub use shut::Shown",
                "open E: A",
                "open E: B(u8)",
                "open E: impl Clone for E",
                "open pub enum E",
                "open pub fn call<F, T>(f: F) -> T where F: FnOnce() -> T",
                "shut Shown: pub const fn get(&self) -> u8",
                "shut Shown: pub field: u8",
                "shut pub struct Shown",
            ]
        );
    }

    #[test]
    fn so_is_what_macros_make() {
        let lib = "macro_rules! sized { ($t:ident) => { impl $t { pub fn len(&self) -> usize { 0 } fn own(&self) {} } impl Clone for $t { } } }\nmacro_rules! quiet { () => { 1 } }\npub struct S;\nsized!(S);\nfn f() { quiet!() }\n#[macro_export] macro_rules! open { () => { pub fn x() {} } }";
        let lines = list(&[("lib.rs", lib)]);
        assert_eq!(
            lines,
            [
                "crate macro open!",
                "crate pub struct S",
                "crate sized!(S)",
                "crate sized!: impl Clone for $t",
                "crate sized!: pub fn len(&self) -> usize",
            ]
        );
    }
}

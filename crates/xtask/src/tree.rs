//! The files of the repository, read once: text, and for Rust also tokens and comments.

use crate::lex::{Comment, Token, lex};
use std::path::Path;
use std::{fs, io};

/// Folders that hold no source.
const SKIPPED_FOLDERS: &[&str] = &["target", ".git", "out"];

/// Names and endings of the files the rules look at. Anything else is data.
const TEXT: &[&str] = &[
    ".rs", ".md", ".toml", ".lock", ".sh", ".go", ".mod", ".yml", ".ci/run",
];

/// All files, sorted by path.
#[derive(Default)]
pub struct Tree {
    /// The files.
    pub files: Vec<File>,
}

/// One file.
pub struct File {
    /// Relative to the root, with slashes.
    pub path: String,
    /// What is in it.
    pub text: String,
    /// Its tokens, if it is Rust.
    pub tokens: Vec<Token>,
    /// Its comments, one for each line, if it is Rust.
    pub comments: Vec<Comment>,
}

impl Tree {
    /// The tree under a folder.
    pub fn read(root: &Path) -> io::Result<Tree> {
        let mut tree = Tree::default();
        tree.read_folder(root, "")?;
        tree.files.sort_by(|a, b| a.path.cmp(&b.path));
        Ok(tree)
    }

    fn read_folder(&mut self, folder: &Path, prefix: &str) -> io::Result<()> {
        for entry in fs::read_dir(folder)? {
            let entry = entry?;
            let Ok(name) = entry.file_name().into_string() else {
                continue;
            };
            let path = format!("{prefix}{name}");
            if entry.file_type()?.is_dir() {
                if !SKIPPED_FOLDERS.contains(&name.as_str()) {
                    self.read_folder(&entry.path(), &format!("{path}/"))?;
                }
            } else if TEXT.iter().any(|ending| path.ends_with(ending)) {
                self.files
                    .push(File::new(path, fs::read_to_string(entry.path())?));
            }
        }
        Ok(())
    }

    /// The file of that path.
    pub fn file(&self, path: &str) -> Option<&File> {
        self.files.iter().find(|file| file.path == path)
    }

    /// The Rust files.
    pub fn rust(&self) -> impl Iterator<Item = &File> {
        self.files.iter().filter(|file| file.is_rust())
    }
}

impl File {
    /// A file with this text, taken apart if it is Rust.
    pub fn new(path: impl Into<String>, text: impl Into<String>) -> File {
        let (path, text) = (path.into(), text.into());
        let (tokens, comments) = if path.ends_with(".rs") {
            lex(&text)
        } else {
            Default::default()
        };
        File {
            path,
            text,
            tokens,
            comments,
        }
    }

    /// Whether it has tokens.
    pub fn is_rust(&self) -> bool {
        self.path.ends_with(".rs")
    }

    /// Whether it is built for tests, benchmarks and examples only, going by its place.
    pub fn is_test(&self) -> bool {
        self.path.trim_end_matches(".rs").split('/').any(|part| {
            matches!(
                part,
                "tests" | "testing" | "loom" | "benches" | "examples" | "bench"
            )
        })
    }

    /// The module path below a `src` folder (`["sched", "worker"]`, and `["lib"]` for the root), if it is inside it.
    pub fn module_in(&self, src: &str) -> Option<Vec<&str>> {
        let inside = self.path.strip_prefix(src)?.strip_suffix(".rs")?;
        Some(inside.trim_end_matches("/mod").split('/').collect())
    }

    /// Whether token `at` and those after it are exactly these.
    pub fn tokens_are(&self, at: usize, these: &[&str]) -> bool {
        self.tokens.get(at..).is_some_and(|rest| {
            rest.len() >= these.len()
                && rest
                    .iter()
                    .zip(these)
                    .all(|(token, text)| token.text == *text)
        })
    }

    /// The index of the bracket that closes the one at `open`, or the number of tokens.
    pub fn closing(&self, open: usize) -> usize {
        let mut depth = 0usize;
        for (index, token) in self.tokens.iter().enumerate().skip(open) {
            match token.text.as_str() {
                "{" | "(" | "[" => depth += 1,
                "}" | ")" | "]" => depth -= 1,
                _ => {}
            }
            if depth == 0 {
                return index;
            }
        }
        self.tokens.len()
    }
}

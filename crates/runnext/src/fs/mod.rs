//! Files: [`std::fs`] for goroutines.
//!
//! The kernel has no "would block" for files: a read waits for the disk with the thread that asked. So everything here runs inside
//! [`blocking`]: a call that is quick, as most are, costs a few nanoseconds more than the standard library's, and one that
//! is not gives its processor to others meanwhile. Names, arguments, results and errors are the standard library's, and so are
//! the types that do no work: [`Metadata`], [`Permissions`], [`FileType`], [`FileTimes`].
//!
//! # Blocks
//! Everything: the goroutine, for as long as the system takes. On a plain thread: the thread.
//!
//! # Example
//! ```
//! use runnext::fs;
//! use std::io::{Read, Seek, Write};
//!
//! #[runnext::main]
//! fn main() -> std::io::Result<()> {
//!     let path = std::env::temp_dir().join(format!("runnext-fs-{}", std::process::id()));
//!     let mut file = fs::OpenOptions::new().read(true).write(true).create_new(true).open(&path)?;
//!     file.write_all(b"twelve bytes")?;
//!     file.rewind()?;
//!     let mut text = String::new();
//!     file.read_to_string(&mut text)?;
//!     assert_eq!(text, "twelve bytes");
//!     assert_eq!(fs::metadata(&path)?.len(), 12);
//!     fs::remove_file(&path)
//! }
//! ```

mod dir;
mod file;

use std::io;
use std::path::{Path, PathBuf};

use crate::sched::blocking::blocking;

pub use dir::{DirBuilder, DirEntry, ReadDir, read_dir};
pub use file::{File, OpenOptions};
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};

/// The absolute form of a path, with all links followed.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::canonicalize`].
pub fn canonicalize<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    blocking(|| std::fs::canonicalize(path))
}

/// Copies a file with its permissions; returns how many bytes.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::copy`].
pub fn copy<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<u64> {
    blocking(|| std::fs::copy(from, to))
}

/// Makes a directory; its parent must exist.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::create_dir`].
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    blocking(|| std::fs::create_dir(path))
}

/// Makes a directory and what is missing above it.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::create_dir_all`].
pub fn create_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    blocking(|| std::fs::create_dir_all(path))
}

/// Whether the path leads to something.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::exists`].
pub fn exists<P: AsRef<Path>>(path: P) -> io::Result<bool> {
    blocking(|| std::fs::exists(path))
}

/// Gives a file another name.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::hard_link`].
pub fn hard_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    blocking(|| std::fs::hard_link(original, link))
}

/// What is known about a file; links are followed.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::metadata`].
pub fn metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    blocking(|| std::fs::metadata(path))
}

/// All of a file.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::read`].
pub fn read<P: AsRef<Path>>(path: P) -> io::Result<Vec<u8>> {
    blocking(|| std::fs::read(path))
}

/// Where a symbolic link points to.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::read_link`].
pub fn read_link<P: AsRef<Path>>(path: P) -> io::Result<PathBuf> {
    blocking(|| std::fs::read_link(path))
}

/// All of a file, which must be UTF-8.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::read_to_string`].
pub fn read_to_string<P: AsRef<Path>>(path: P) -> io::Result<String> {
    blocking(|| std::fs::read_to_string(path))
}

/// Removes an empty directory.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::remove_dir`].
pub fn remove_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    blocking(|| std::fs::remove_dir(path))
}

/// Removes a directory and all that is in it; links are not followed.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::remove_dir_all`].
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    blocking(|| std::fs::remove_dir_all(path))
}

/// Removes a name of a file.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::remove_file`].
pub fn remove_file<P: AsRef<Path>>(path: P) -> io::Result<()> {
    blocking(|| std::fs::remove_file(path))
}

/// Renames a file or directory, replacing what has the new name.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::rename`].
pub fn rename<P: AsRef<Path>, Q: AsRef<Path>>(from: P, to: Q) -> io::Result<()> {
    blocking(|| std::fs::rename(from, to))
}

/// Changes the permissions of a file or directory.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::set_permissions`].
pub fn set_permissions<P: AsRef<Path>>(path: P, permissions: Permissions) -> io::Result<()> {
    blocking(|| std::fs::set_permissions(path, permissions))
}

/// What is known about a file; links are not followed.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::symlink_metadata`].
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    blocking(|| std::fs::symlink_metadata(path))
}

/// Makes a file of these bytes, replacing what was in it.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::write`].
pub fn write<P: AsRef<Path>, C: AsRef<[u8]>>(path: P, contents: C) -> io::Result<()> {
    blocking(|| std::fs::write(path, contents))
}

/// Makes a symbolic link that points to `original`; [`std::os::unix::fs::symlink`].
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// The system's.
pub fn symlink<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    blocking(|| std::os::unix::fs::symlink(original, link))
}

/// The old name of [`symlink`].
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// The system's.
pub fn soft_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    symlink(original, link)
}

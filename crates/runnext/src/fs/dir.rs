//! Directories.

use std::ffi::OsString;
use std::fs::{FileType, Metadata};
use std::io;
use std::os::unix::fs::{DirBuilderExt, DirEntryExt};
use std::path::{Path, PathBuf};

use crate::sched::blocking::blocking;

/// The entries of a directory, in the system's order.
///
/// # Blocks
/// The goroutine, here and in the iterator.
///
/// # Errors
/// As [`std::fs::read_dir`].
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    blocking(|| std::fs::read_dir(path)).map(ReadDir)
}

/// The iterator of [`read_dir`].
#[derive(Debug)]
pub struct ReadDir(std::fs::ReadDir);

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        blocking(|| self.0.next()).map(|entry| entry.map(DirEntry))
    }
}

/// An entry of a directory.
#[derive(Debug)]
pub struct DirEntry(std::fs::DirEntry);

impl DirEntry {
    /// Its path: that of the directory with its name.
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Its name alone.
    pub fn file_name(&self) -> OsString {
        self.0.file_name()
    }

    /// What is known about it; a link is not followed.
    ///
    /// # Blocks
    /// The goroutine.
    ///
    /// # Errors
    /// The system's.
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// What it is; a link is not followed.
    ///
    /// # Blocks
    /// The goroutine, on file systems that do not say so in the directory.
    ///
    /// # Errors
    /// The system's.
    pub fn file_type(&self) -> io::Result<FileType> {
        blocking(|| self.0.file_type())
    }

    /// Its inode number.
    pub fn ino(&self) -> u64 {
        self.0.ino()
    }
}

/// Makes directories, with options; [`std::fs::DirBuilder`] for goroutines.
#[derive(Debug)]
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// One that makes a single directory, for everybody.
    #[allow(clippy::new_without_default)] // std's has none
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Whether to make what is missing above it too; then it is no error if it exists.
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// The permissions of what it makes, less the process's mask.
    pub fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        self.0.mode(mode);
        self
    }

    /// Makes it.
    ///
    /// # Blocks
    /// The goroutine.
    ///
    /// # Errors
    /// The system's.
    pub fn create<P: AsRef<Path>>(&self, path: P) -> io::Result<()> {
        blocking(|| self.0.create(path))
    }
}

impl DirBuilderExt for DirBuilder {
    fn mode(&mut self, mode: u32) -> &mut DirBuilder {
        DirBuilder::mode(self, mode)
    }
}

impl DirEntryExt for DirEntry {
    fn ino(&self) -> u64 {
        DirEntry::ino(self)
    }
}

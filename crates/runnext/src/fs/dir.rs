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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-read_dir-{}", std::process::id()));
///     fs::create_dir(&dir)?;
///     for name in ["one", "two", "three"] {
///         fs::write(dir.join(name), name)?;
///     }
///     let mut names = Vec::new();
///     for entry in fs::read_dir(&dir)? {
///         names.push(entry?.file_name());
///     }
///     names.sort(); // the system's order may be any
///     assert_eq!(names, ["one", "three", "two"]);
///     fs::remove_dir_all(&dir)
/// }
/// ```
pub fn read_dir<P: AsRef<Path>>(path: P) -> io::Result<ReadDir> {
    blocking(|| std::fs::read_dir(path)).map(ReadDir)
}

/// The iterator of [`read_dir`].
///
/// # Example
/// It can be handed to a goroutine that goes through it.
/// ```
/// use runnext::{fs, go};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-ReadDir-{}", std::process::id()));
///     fs::create_dir_all(dir.join("inner"))?;
///     fs::write(dir.join("file"), "")?;
///     let entries = fs::read_dir(&dir)?;
///     let counter = go(move || entries.count());
///     assert_eq!(counter.join().unwrap(), 2);
///     fs::remove_dir_all(&dir)
/// }
/// ```
#[derive(Debug)]
pub struct ReadDir(std::fs::ReadDir);

impl Iterator for ReadDir {
    type Item = io::Result<DirEntry>;

    fn next(&mut self) -> Option<io::Result<DirEntry>> {
        blocking(|| self.0.next()).map(|entry| entry.map(DirEntry))
    }
}

/// An entry of a directory.
///
/// # Example
/// All files of a directory are read at once, each by a goroutine of its own.
/// ```
/// use runnext::{fs, go};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-DirEntry-{}", std::process::id()));
///     # fs::create_dir(&dir)?;
///     # fs::write(dir.join("short"), "abc")?;
///     # fs::write(dir.join("longer"), "defghij")?;
///     let readers: Vec<_> = fs::read_dir(&dir)?.map(|entry| go(move || fs::read(entry?.path()))).collect();
///     let mut bytes = 0;
///     for reader in readers {
///         bytes += reader.join().unwrap()?.len();
///     }
///     assert_eq!(bytes, 3 + 7);
///     fs::remove_dir_all(&dir)
/// }
/// ```
#[derive(Debug)]
pub struct DirEntry(std::fs::DirEntry);

impl DirEntry {
    /// Its path: that of the directory with its name.
    ///
    /// # Example
    /// ```
    /// use runnext::fs;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirEntry-path-{}", std::process::id()));
    /// fs::create_dir_all(dir.join("inner"))?;
    /// let entry = fs::read_dir(&dir)?.next().unwrap()?;
    /// assert_eq!(entry.path(), dir.join("inner"));
    /// # fs::remove_dir_all(&dir)
    /// # }
    /// ```
    pub fn path(&self) -> PathBuf {
        self.0.path()
    }

    /// Its name alone.
    ///
    /// # Example
    /// ```
    /// use runnext::fs;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirEntry-file_name-{}", std::process::id()));
    /// # fs::create_dir(&dir)?;
    /// fs::write(dir.join("notes.txt"), "")?;
    /// let entry = fs::read_dir(&dir)?.next().unwrap()?;
    /// assert_eq!(entry.file_name(), "notes.txt");
    /// # fs::remove_dir_all(&dir)
    /// # }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::fs;
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirEntry-metadata-{}", std::process::id()));
    /// # fs::create_dir(&dir)?;
    /// fs::symlink("nothing has this name", dir.join("link"))?;
    /// let entry = fs::read_dir(&dir)?.next().unwrap()?;
    /// assert!(entry.metadata()?.is_symlink());
    /// assert!(fs::metadata(entry.path()).is_err()); // this one follows it
    /// # fs::remove_dir_all(&dir)
    /// # }
    /// ```
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
    ///
    /// # Example
    /// ```
    /// use runnext::fs;
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirEntry-file_type-{}", std::process::id()));
    /// fs::create_dir_all(dir.join("inner"))?;
    /// fs::write(dir.join("file"), "")?;
    /// for entry in fs::read_dir(&dir)? {
    ///     let entry = entry?;
    ///     assert_eq!(entry.file_type()?.is_dir(), entry.file_name() == "inner");
    /// }
    /// # fs::remove_dir_all(&dir)
    /// # }
    /// ```
    pub fn file_type(&self) -> io::Result<FileType> {
        blocking(|| self.0.file_type())
    }

    /// Its inode number.
    ///
    /// # Example
    /// Two names of one file have the same number.
    /// ```
    /// use runnext::fs;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirEntry-ino-{}", std::process::id()));
    /// # fs::create_dir(&dir)?;
    /// fs::write(dir.join("a"), "")?;
    /// fs::hard_link(dir.join("a"), dir.join("b"))?;
    /// let entries: Vec<_> = fs::read_dir(&dir)?.collect::<Result<_, _>>()?;
    /// assert_ne!(entries[0].file_name(), entries[1].file_name());
    /// assert_eq!(entries[0].ino(), entries[1].ino());
    /// # fs::remove_dir_all(&dir)
    /// # }
    /// ```
    pub fn ino(&self) -> u64 {
        self.0.ino()
    }
}

/// Makes directories, with options; [`std::fs::DirBuilder`] for goroutines.
///
/// # Example
/// ```
/// use runnext::fs;
/// use std::os::unix::fs::PermissionsExt;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-DirBuilder-{}", std::process::id()));
///     let secrets = dir.join("app/secrets");
///     fs::DirBuilder::new().recursive(true).mode(0o700).create(&secrets)?;
///     assert_eq!(fs::metadata(&secrets)?.permissions().mode() & 0o777, 0o700);
///     fs::remove_dir_all(&dir)
/// }
/// ```
#[derive(Debug)]
pub struct DirBuilder(std::fs::DirBuilder);

impl DirBuilder {
    /// One that makes a single directory, for everybody.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::DirBuilder;
    /// use std::io::ErrorKind;
    ///
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirBuilder-new-{}", std::process::id()));
    /// let error = DirBuilder::new().create(dir.join("a/b")).unwrap_err();
    /// assert_eq!(error.kind(), ErrorKind::NotFound); // there is no `a` for it to be in
    /// ```
    #[allow(clippy::new_without_default)] // std's has none
    pub fn new() -> DirBuilder {
        DirBuilder(std::fs::DirBuilder::new())
    }

    /// Whether to make missing parent directories as well; if so, it is no error if the directory exists.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, DirBuilder};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirBuilder-recursive-{}", std::process::id()));
    /// let mut builder = DirBuilder::new();
    /// builder.recursive(true);
    /// builder.create(dir.join("a/b/c"))?;
    /// builder.create(dir.join("a/b"))?; // is there already
    /// assert!(fs::metadata(dir.join("a/b/c"))?.is_dir());
    /// # fs::remove_dir_all(&dir)
    /// # }
    /// ```
    pub fn recursive(&mut self, recursive: bool) -> &mut DirBuilder {
        self.0.recursive(recursive);
        self
    }

    /// The permissions of the new directories, less the process's mask.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, DirBuilder};
    /// use std::os::unix::fs::PermissionsExt;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirBuilder-mode-{}", std::process::id()));
    /// DirBuilder::new().mode(0o500).create(&dir)?;
    /// let mode = fs::metadata(&dir)?.permissions().mode();
    /// assert_eq!(mode & 0o077, 0); // nothing for others
    /// # fs::remove_dir(&dir)
    /// # }
    /// ```
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
    ///
    /// # Example
    /// One builder makes as many as are wanted.
    /// ```
    /// use runnext::fs::{self, DirBuilder};
    /// use std::io::ErrorKind;
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let dir = std::env::temp_dir().join(format!("runnext-DirBuilder-create-{}", std::process::id()));
    /// let builder = DirBuilder::new();
    /// builder.create(&dir)?;
    /// builder.create(dir.join("inner"))?;
    /// assert_eq!(builder.create(&dir).unwrap_err().kind(), ErrorKind::AlreadyExists);
    /// # fs::remove_dir_all(&dir)
    /// # }
    /// ```
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

//! Files: [`std::fs`] for goroutines.
//!
//! The kernel has no "would block" for files: a read waits for the disk with the thread that asked. So every call that makes
//! a system call runs inside [`blocking`]: a quick call, as most are, costs a few nanoseconds more than the standard library's, and the
//! processor of a slow one goes to another thread meanwhile. Two operations are not marked, and rely on the monitor to detect a thread that
//! sleeps: closing a file by dropping it, and making a second handle to it ([`File::try_clone`]); neither waits on local disks. Names, arguments, results and errors are the standard library's, and so are
//! the types that do no work: [`Metadata`], [`Permissions`], [`FileType`], [`FileTimes`].
//!
//! # Blocks
//! Every call that makes a system call: the goroutine, for as long as the system takes. On a plain thread: the thread.
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
mod lock;
mod options;

use std::io;
use std::panic::resume_unwind;
use std::path::{Path, PathBuf};
use std::thread;

use crate::goroutine;
use crate::sched::blocking::blocking;

pub use dir::{DirBuilder, DirEntry, ReadDir, read_dir};
pub use file::File;
pub use lock::TryLockError;
pub use options::OpenOptions;
pub use std::fs::{FileTimes, FileType, Metadata, Permissions};

/// The stack of a thread that removes a directory: it calls itself for each level, 1,400 of which are too many for a goroutine's.
const DEEP_STACK: usize = 2 << 20;

/// The absolute form of a path, with all links followed.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::canonicalize`].
///
/// # Example
/// ```
/// use runnext::fs;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-canonicalize-{}", std::process::id()));
///     fs::create_dir_all(dir.join("v2"))?;
///     fs::symlink("v2", dir.join("current"))?;
///     let release = fs::canonicalize(dir.join("current/../current"))?;
///     assert!(release.is_absolute() && release.ends_with("v2"));
///     fs::remove_dir_all(&dir)
/// }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("runnext-copy-{}", std::process::id()));
///     let backup = path.with_extension("backup");
///     fs::write(&path, "precious")?;
///     assert_eq!(fs::copy(&path, &backup)?, 8);
///     fs::remove_file(&path)?;
///     assert_eq!(fs::read_to_string(&backup)?, "precious");
///     fs::remove_file(&backup)
/// }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
/// use std::io::ErrorKind;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("runnext-create_dir-{}", std::process::id()));
/// assert_eq!(fs::create_dir(dir.join("inner")).unwrap_err().kind(), ErrorKind::NotFound);
/// fs::create_dir(&dir)?;
/// fs::create_dir(dir.join("inner"))?;
/// assert!(fs::metadata(dir.join("inner"))?.is_dir());
/// # fs::remove_dir_all(&dir)
/// # }
/// ```
pub fn create_dir<P: AsRef<Path>>(path: P) -> io::Result<()> {
    blocking(|| std::fs::create_dir(path))
}

/// Makes a directory and its missing parents.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::create_dir_all`].
///
/// # Example
/// Goroutines that need the same parents do not get into each other's way.
/// ```
/// use runnext::fs;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-create_dir_all-{}", std::process::id()));
///     runnext::scope(|s| {
///         for user in ["ann", "bob", "eve"] {
///             let inbox = dir.join("mail/users").join(user);
///             s.go(move || fs::create_dir_all(inbox).unwrap());
///         }
///     });
///     assert_eq!(fs::read_dir(dir.join("mail/users"))?.count(), 3);
///     fs::remove_dir_all(&dir)
/// }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let link = std::env::temp_dir().join(format!("runnext-exists-{}", std::process::id()));
/// assert!(fs::exists("/dev/null")?);
/// fs::symlink("nothing has this name", &link)?;
/// assert!(!fs::exists(&link)?); // the link does, but leads to nothing
/// # fs::remove_file(&link)
/// # }
/// ```
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
///
/// # Example
/// The file is there until its last name is removed.
/// ```
/// use runnext::fs;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("runnext-hard_link-{}", std::process::id()));
/// let other = path.with_extension("other");
/// fs::write(&path, "one file, two names")?;
/// fs::hard_link(&path, &other)?;
/// fs::remove_file(&path)?;
/// assert_eq!(fs::read_to_string(&other)?, "one file, two names");
/// # fs::remove_file(&other)
/// # }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("runnext-metadata-{}", std::process::id()));
/// fs::write(&path, [7; 1000])?;
/// let known = fs::metadata(&path)?;
/// assert!(known.is_file());
/// assert_eq!(known.len(), 1000);
/// # fs::remove_file(&path)
/// # }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("runnext-read-{}", std::process::id()));
/// let pixels = [0xff, 0x00, 0x80]; // no text
/// fs::write(&path, pixels)?;
/// assert_eq!(fs::read(&path)?, pixels);
/// # fs::remove_file(&path)
/// # }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
/// use std::path::Path;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let link = std::env::temp_dir().join(format!("runnext-read_link-{}", std::process::id()));
/// fs::symlink("releases/v2", &link)?;
/// // As it was written: whether it leads anywhere does not matter.
/// assert_eq!(fs::read_link(&link)?, Path::new("releases/v2"));
/// # fs::remove_file(&link)
/// # }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
/// use std::io::ErrorKind;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("runnext-read_to_string-{}", std::process::id()));
///     fs::write(&path, "workers = 4\n")?;
///     let config = fs::read_to_string(&path)?;
///     assert_eq!(config.trim().split_once(" = "), Some(("workers", "4")));
///
///     fs::write(&path, [0xff])?;
///     assert_eq!(fs::read_to_string(&path).unwrap_err().kind(), ErrorKind::InvalidData);
///     fs::remove_file(&path)
/// }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
/// use std::io::ErrorKind;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let dir = std::env::temp_dir().join(format!("runnext-remove_dir-{}", std::process::id()));
/// fs::create_dir_all(dir.join("inner"))?;
/// assert_eq!(fs::remove_dir(&dir).unwrap_err().kind(), ErrorKind::DirectoryNotEmpty);
/// fs::remove_dir(dir.join("inner"))?;
/// fs::remove_dir(&dir)?;
/// assert!(!fs::exists(&dir)?);
/// # Ok(())
/// # }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-remove_dir_all-{}", std::process::id()));
///     let kept = dir.with_extension("kept");
///     fs::write(&kept, "")?;
///     fs::create_dir_all(dir.join("cache/images"))?;
///     fs::symlink(&kept, dir.join("cache/link"))?;
///     fs::remove_dir_all(&dir)?;
///     assert!(!fs::exists(&dir)?);
///     assert!(fs::exists(&kept)?); // only the link to it is gone
///     fs::remove_file(&kept)
/// }
/// ```
pub fn remove_dir_all<P: AsRef<Path>>(path: P) -> io::Result<()> {
    let path = path.as_ref();
    if goroutine::current().is_none() {
        return std::fs::remove_dir_all(path);
    }
    blocking(|| {
        thread::scope(|s| {
            let deep = thread::Builder::new().stack_size(DEEP_STACK);
            match deep.spawn_scoped(s, || std::fs::remove_dir_all(path)) {
                Ok(there) => there.join().unwrap_or_else(|why| resume_unwind(why)),
                Err(_) => std::fs::remove_dir_all(path), // few trees are deep
            }
        })
    })
}

/// Removes a name of a file.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::remove_file`].
///
/// # Example
/// ```
/// use runnext::fs;
/// use std::io::ErrorKind;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("runnext-remove_file-{}", std::process::id()));
/// fs::write(&path, "")?;
/// fs::remove_file(&path)?;
/// assert_eq!(fs::remove_file(&path).unwrap_err().kind(), ErrorKind::NotFound);
/// # Ok(())
/// # }
/// ```
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
///
/// # Example
/// Whoever reads meanwhile sees all of the old file or all of the new one.
/// ```
/// use runnext::fs;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("runnext-rename-{}", std::process::id()));
///     let next = path.with_extension("next");
///     fs::write(&path, "old prices")?;
///     fs::write(&next, "new prices")?;
///     runnext::scope(|s| {
///         let reader = s.go(|| fs::read_to_string(&path).unwrap());
///         fs::rename(&next, &path).unwrap();
///         assert!(["old prices", "new prices"].contains(&reader.join().unwrap().as_str()));
///     });
///     assert_eq!(fs::read_to_string(&path)?, "new prices");
///     fs::remove_file(&path)
/// }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs::{self, Permissions};
/// use std::os::unix::fs::PermissionsExt;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let script = std::env::temp_dir().join(format!("runnext-set_permissions-{}", std::process::id()));
/// fs::write(&script, "#!/bin/sh\n")?;
/// fs::set_permissions(&script, Permissions::from_mode(0o755))?;
/// assert_eq!(fs::metadata(&script)?.permissions().mode() & 0o777, 0o755);
/// # fs::remove_file(&script)
/// # }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let link = std::env::temp_dir().join(format!("runnext-symlink_metadata-{}", std::process::id()));
/// fs::symlink(std::env::temp_dir(), &link)?;
/// assert!(fs::symlink_metadata(&link)?.is_symlink());
/// assert!(fs::metadata(&link)?.is_dir());
/// # fs::remove_file(&link)
/// # }
/// ```
pub fn symlink_metadata<P: AsRef<Path>>(path: P) -> io::Result<Metadata> {
    blocking(|| std::fs::symlink_metadata(path))
}

/// Writes these bytes as the whole contents of a file, which is created if need be.
///
/// # Blocks
/// The goroutine.
///
/// # Errors
/// As [`std::fs::write`].
///
/// # Example
/// ```
/// use runnext::fs;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let path = std::env::temp_dir().join(format!("runnext-write-{}", std::process::id()));
/// fs::write(&path, "text, or")?;
/// fs::write(&path, vec![1, 2, 3])?;
/// assert_eq!(fs::metadata(&path)?.len(), 3);
/// # fs::remove_file(&path)
/// # }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let dir = std::env::temp_dir().join(format!("runnext-symlink-{}", std::process::id()));
///     fs::create_dir(&dir)?;
///     fs::write(dir.join("app-2.log"), "started")?;
///     // Seen from where the link is, not from the current directory.
///     fs::symlink("app-2.log", dir.join("latest.log"))?;
///     assert_eq!(fs::read_to_string(dir.join("latest.log"))?, "started");
///     fs::remove_dir_all(&dir)
/// }
/// ```
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
///
/// # Example
/// ```
/// use runnext::fs;
///
/// # #[runnext::main] fn main() -> std::io::Result<()> {
/// # let link = std::env::temp_dir().join(format!("runnext-soft_link-{}", std::process::id()));
/// fs::soft_link("anywhere", &link)?;
/// assert!(fs::symlink_metadata(&link)?.is_symlink());
/// # fs::remove_file(&link)
/// # }
/// ```
pub fn soft_link<P: AsRef<Path>, Q: AsRef<Path>>(original: P, link: Q) -> io::Result<()> {
    symlink(original, link)
}

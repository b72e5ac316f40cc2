//! How files are opened.

use std::fs;
use std::io;
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

use super::File;
use crate::sched::blocking::blocking;

/// How to open a file; [`std::fs::OpenOptions`] for goroutines.
///
/// # Example
/// ```
/// use runnext::fs::{self, OpenOptions};
/// use std::io::{Read, Seek, Write};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("runnext-OpenOptions-{}", std::process::id()));
///     let mut options = OpenOptions::new();
///     options.read(true).write(true).create(true);
///     for expected in ["", "*", "**"] {
///         let mut tally = String::new();
///         let mut file = options.open(&path)?;
///         file.read_to_string(&mut tally)?;
///         assert_eq!(tally, expected);
///         file.write_all(b"*")?; // after what was read
///     }
///     fs::remove_file(&path)
/// }
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

impl OpenOptions {
    /// Nothing is set.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::OpenOptions;
    /// use std::io::ErrorKind;
    ///
    /// let mut options = OpenOptions::new();
    /// // Neither for reading nor for writing: there is no such way to open a file.
    /// assert_eq!(options.open("/dev/null").unwrap_err().kind(), ErrorKind::InvalidInput);
    /// assert!(options.read(true).open("/dev/null").is_ok());
    /// ```
    #[allow(clippy::new_without_default)] // std's has none
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    /// For reading.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    /// use std::io::Read;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-OpenOptions-read-{}", std::process::id()));
    /// fs::write(&path, "text")?;
    /// let mut options = OpenOptions::new();
    /// let mut text = String::new();
    /// assert!(options.write(true).open(&path)?.read_to_string(&mut text).is_err());
    /// options.read(true).open(&path)?.read_to_string(&mut text)?;
    /// assert_eq!(text, "text");
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn read(&mut self, on: bool) -> &mut OpenOptions {
        self.0.read(on);
        self
    }

    /// For writing.
    ///
    /// # Example
    /// The contents of the file stay, except the bytes that are overwritten.
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    /// use std::io::Write;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-OpenOptions-write-{}", std::process::id()));
    /// fs::write(&path, "v1 of the format")?;
    /// OpenOptions::new().write(true).open(&path)?.write_all(b"v2")?;
    /// assert_eq!(fs::read_to_string(&path)?, "v2 of the format");
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn write(&mut self, on: bool) -> &mut OpenOptions {
        self.0.write(on);
        self
    }

    /// For writing at its end, wherever that is by then.
    ///
    /// # Example
    /// Goroutines that each opened the log do not write over each other's lines.
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    /// use std::io::Write;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-OpenOptions-append-{}", std::process::id()));
    ///     let open = || OpenOptions::new().append(true).create(true).open(&path);
    ///     runnext::scope(|s| {
    ///         for _ in 0..10 {
    ///             s.go(|| open().unwrap().write_all(b"a line\n").unwrap());
    ///         }
    ///     });
    ///     assert_eq!(fs::read_to_string(&path)?, "a line\n".repeat(10));
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn append(&mut self, on: bool) -> &mut OpenOptions {
        self.0.append(on);
        self
    }

    /// Empties it.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-OpenOptions-truncate-{}", std::process::id()));
    /// fs::write(&path, "yesterday's")?;
    /// let file = OpenOptions::new().write(true).truncate(true).open(&path)?;
    /// assert_eq!(file.metadata()?.len(), 0);
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn truncate(&mut self, on: bool) -> &mut OpenOptions {
        self.0.truncate(on);
        self
    }

    /// Makes it, if it does not exist.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    /// use std::io::ErrorKind;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-OpenOptions-create-{}", std::process::id()));
    /// let mut options = OpenOptions::new();
    /// options.write(true);
    /// assert_eq!(options.open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    /// assert_eq!(options.create(true).open(&path)?.metadata()?.len(), 0);
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn create(&mut self, on: bool) -> &mut OpenOptions {
        self.0.create(on);
        self
    }

    /// Makes it, and fails if it exists.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    /// use std::io::ErrorKind;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-OpenOptions-create_new-{}", std::process::id()));
    /// let mut options = OpenOptions::new();
    /// options.write(true).create_new(true);
    /// let _ours = options.open(&path)?;
    /// assert_eq!(options.open(&path).unwrap_err().kind(), ErrorKind::AlreadyExists);
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn create_new(&mut self, on: bool) -> &mut OpenOptions {
        self.0.create_new(on);
        self
    }

    /// The permissions of a file that it makes, less the process's mask.
    ///
    /// # Example
    /// A key that nobody else could read at any moment:
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    /// use std::os::unix::fs::PermissionsExt;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-OpenOptions-mode-{}", std::process::id()));
    /// let key = OpenOptions::new().write(true).create_new(true).mode(0o600).open(&path)?;
    /// assert_eq!(key.metadata()?.permissions().mode() & 0o777, 0o600);
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    /// Flags of `open(2)` that have no method here.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let link = std::env::temp_dir().join(format!("runnext-OpenOptions-custom_flags-{}", std::process::id()));
    /// fs::symlink("/dev/null", &link)?;
    /// let mut options = OpenOptions::new();
    /// assert!(options.read(true).open(&link).is_ok());
    /// let refused = options.custom_flags(libc::O_NOFOLLOW).open(&link).unwrap_err();
    /// assert_eq!(refused.raw_os_error(), Some(libc::ELOOP));
    /// # fs::remove_file(&link)
    /// # }
    /// ```
    pub fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        self.0.custom_flags(flags);
        self
    }

    /// Opens it.
    ///
    /// # Blocks
    /// The goroutine.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// The same options can open many files.
    /// ```
    /// use runnext::fs::{self, OpenOptions};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let dir = std::env::temp_dir().join(format!("runnext-OpenOptions-open-{}", std::process::id()));
    ///     fs::create_dir(&dir)?;
    ///     let mut fresh = OpenOptions::new();
    ///     fresh.write(true).create_new(true);
    ///     for name in ["in", "out", "log"] {
    ///         fresh.open(dir.join(name))?;
    ///     }
    ///     assert_eq!(fs::read_dir(&dir)?.count(), 3);
    ///     fs::remove_dir_all(&dir)
    /// }
    /// ```
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        blocking(|| self.0.open(path)).map(File::from_std)
    }
}

impl OpenOptionsExt for OpenOptions {
    fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        OpenOptions::mode(self, mode)
    }

    fn custom_flags(&mut self, flags: i32) -> &mut OpenOptions {
        OpenOptions::custom_flags(self, flags)
    }
}

//! Open files.

use std::fmt;
use std::fs::{self, FileTimes, Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::time::SystemTime;

use super::OpenOptions;
use crate::sched::blocking::blocking;

/// An open file; [`std::fs::File`] for goroutines.
///
/// # Blocks
/// Everything: the goroutine, for as long as the system takes. On a plain thread: the thread.
///
/// # Example
/// The traits of [`std::io`] work on it, and so does all that is made of them.
/// ```
/// use runnext::fs::{self, File};
/// use std::io::{BufRead, BufReader, BufWriter, Write};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("runnext-File-{}", std::process::id()));
///     let mut out = BufWriter::new(File::create(&path)?);
///     for i in 1..=100 {
///         writeln!(out, "{i}")?;
///     }
///     out.flush()?;
///     let lines = BufReader::new(File::open(&path)?).lines();
///     let numbers = lines.map(|line| line.unwrap().parse::<u32>().unwrap());
///     assert_eq!(numbers.sum::<u32>(), 5050);
///     fs::remove_file(&path)
/// }
/// ```
pub struct File(fs::File);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    /// use std::io::{ErrorKind, Read};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-open-{}", std::process::id()));
    ///     assert_eq!(File::open(&path).unwrap_err().kind(), ErrorKind::NotFound);
    ///
    ///     fs::write(&path, "PK and more")?;
    ///     let mut magic = [0; 2];
    ///     File::open(&path)?.read_exact(&mut magic)?;
    ///     assert_eq!(&magic, b"PK");
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        blocking(|| fs::File::open(path)).map(File)
    }

    /// Opens a file for writing; made if it does not exist, emptied if it does.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    /// use std::io::Write;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-create-{}", std::process::id()));
    ///     for report in ["a long first report", "a short one"] {
    ///         File::create(&path)?.write_all(report.as_bytes())?;
    ///     }
    ///     assert_eq!(fs::read_to_string(&path)?, "a short one");
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        blocking(|| fs::File::create(path)).map(File)
    }

    /// Makes a file and opens it for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if it does; else the system's.
    ///
    /// # Example
    /// However many try at once, one of them makes it.
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-create_new-{}", std::process::id()));
    ///     let winners = runnext::scope(|s| {
    ///         let tries: Vec<_> = (0..8).map(|_| s.go(|| File::create_new(&path).is_ok())).collect();
    ///         tries.into_iter().map(|t| t.join().unwrap()).filter(|&won| won).count()
    ///     });
    ///     assert_eq!(winners, 1);
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        blocking(|| fs::File::create_new(path)).map(File)
    }

    /// As [`OpenOptions::new`].
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    /// use std::io::Write;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-options-{}", std::process::id()));
    /// for visitor in ["Ann", "Bob"] {
    ///     let mut book = File::options().append(true).create(true).open(&path)?;
    ///     writeln!(book, "{visitor}")?;
    /// }
    /// assert_eq!(fs::read_to_string(&path)?, "Ann\nBob\n");
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over one of the standard library's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::File;
    /// use std::io::Read;
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// let from_a_library = std::fs::File::open("/dev/zero")?;
    /// let mut bytes = [1; 4];
    /// File::from_std(from_a_library).read_exact(&mut bytes)?; // holds up this goroutine only
    /// assert_eq!(bytes, [0; 4]);
    /// # Ok(())
    /// # }
    /// ```
    pub fn from_std(file: fs::File) -> File {
        File(file)
    }

    /// Gives it to the standard library.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    /// use std::io::{Seek, Write};
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-into_std-{}", std::process::id()));
    /// let mut file = File::create(&path)?;
    /// file.write_all(b"four")?;
    /// let mut file: std::fs::File = file.into_std();
    /// assert_eq!(file.stream_position()?, 4); // still the same open file
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn into_std(self) -> fs::File {
        self.0
    }

    /// Waits until contents and metadata are on the disk.
    ///
    /// # Errors
    /// The system's; writes that failed later than they returned show here.
    ///
    /// # Example
    /// To replace a file so that a power cut leaves the old contents or the new, never a part:
    /// ```
    /// use runnext::fs::{self, File};
    /// use std::io::Write;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-sync_all-{}", std::process::id()));
    ///     fs::write(&path, "old")?;
    ///
    ///     let draft = path.with_extension("draft");
    ///     let mut file = File::create(&draft)?;
    ///     file.write_all(b"new")?;
    ///     file.sync_all()?; // before it gets the name
    ///     fs::rename(&draft, &path)?;
    ///     assert_eq!(fs::read_to_string(&path)?, "new");
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.0.sync_all())
    }

    /// As [`sync_all`](Self::sync_all), without metadata that reading does not need.
    ///
    /// # Errors
    /// As for [`sync_all`](Self::sync_all).
    ///
    /// # Example
    /// A journal is on the disk before anybody is told so.
    /// ```
    /// use runnext::fs::{self, File};
    /// use runnext::{chan, go};
    /// use std::io::Write;
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-sync_data-{}", std::process::id()));
    ///     let (done, safe) = chan::bounded(0);
    ///     let mut journal = File::create(&path)?;
    ///     go(move || done.send(journal.write_all(b"paid 5\n").and_then(|()| journal.sync_data())));
    ///     safe.recv().unwrap()?;
    ///     assert_eq!(fs::read(&path)?, b"paid 5\n");
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.0.sync_data())
    }

    /// Cuts it, or fills it up with zeroes.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    /// use std::io::Write;
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-set_len-{}", std::process::id()));
    /// let mut file = File::create(&path)?;
    /// file.write_all(b"abcdef")?;
    /// file.set_len(2)?;
    /// file.set_len(4)?;
    /// assert_eq!(fs::read(&path)?, b"ab\0\0");
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.0.set_len(size))
    }

    /// What is known about it.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// It asks the open file, whatever became of its name.
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-metadata-{}", std::process::id()));
    /// fs::write(&path, "nine byte")?;
    /// let file = File::open(&path)?;
    /// fs::remove_file(&path)?;
    /// assert_eq!(file.metadata()?.len(), 9);
    /// # Ok(())
    /// # }
    /// ```
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Another handle to the same open file, position included.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    /// use std::io::Read;
    ///
    /// # fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-try_clone-{}", std::process::id()));
    /// fs::write(&path, "headbody")?;
    /// let mut first = File::open(&path)?;
    /// let mut second = first.try_clone()?;
    /// first.read_exact(&mut [0; 4])?;
    /// let mut rest = String::new();
    /// second.read_to_string(&mut rest)?; // goes on where the first stopped
    /// assert_eq!(rest, "body");
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.try_clone().map(File)
    }

    /// Changes its permissions.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-set_permissions-{}", std::process::id()));
    /// let file = File::create(&path)?;
    /// let mut permissions = file.metadata()?.permissions();
    /// permissions.set_readonly(true);
    /// file.set_permissions(permissions)?;
    /// assert!(fs::metadata(&path)?.permissions().readonly());
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.0.set_permissions(permissions))
    }

    /// Changes when it was read and written last.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File, FileTimes};
    /// use std::time::{Duration, SystemTime};
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-set_times-{}", std::process::id()));
    /// let written = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000_000);
    /// let read = written + Duration::from_secs(60);
    /// let file = File::create(&path)?;
    /// file.set_times(FileTimes::new().set_modified(written).set_accessed(read))?;
    /// let known = file.metadata()?;
    /// assert_eq!((known.modified()?, known.accessed()?), (written, read));
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        blocking(|| self.0.set_times(times))
    }

    /// Changes when it was written last.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// A copy that looks as old as the original:
    /// ```
    /// use runnext::fs::{self, File};
    /// # use std::time::{Duration, SystemTime};
    ///
    /// # #[runnext::main] fn main() -> std::io::Result<()> {
    /// # let path = std::env::temp_dir().join(format!("runnext-File-set_modified-{}", std::process::id()));
    /// # let original = File::create(&path)?;
    /// # original.set_modified(SystemTime::UNIX_EPOCH + Duration::from_secs(86_400))?;
    /// let copy = path.with_extension("copy");
    /// fs::copy(&path, &copy)?;
    /// let age = fs::metadata(&path)?.modified()?;
    /// File::options().write(true).open(&copy)?.set_modified(age)?;
    /// assert_eq!(fs::metadata(&copy)?.modified()?, age);
    /// # assert_eq!(age, SystemTime::UNIX_EPOCH + Duration::from_secs(86_400));
    /// # fs::remove_file(&copy)?;
    /// # fs::remove_file(&path)
    /// # }
    /// ```
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Reads from that position; the file's own stays. Also as [`FileExt::read_at`].
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// Many goroutines can read one file, since there is no position for them to fight about.
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-read_at-{}", std::process::id()));
    ///     fs::write(&path, "aabbccdd")?;
    ///     let file = File::open(&path)?;
    ///     let record = |n: u64| {
    ///         let mut record = [0; 2];
    ///         file.read_at(&mut record, 2 * n).map(|_| record)
    ///     };
    ///     runnext::scope(|s| {
    ///         let (third, first) = (s.go(|| record(2)), s.go(|| record(0)));
    ///         assert_eq!(third.join().unwrap().unwrap(), *b"cc");
    ///         assert_eq!(first.join().unwrap().unwrap(), *b"aa");
    ///     });
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.read_at(buf, offset))
    }

    /// Writes to that position; the file's own stays. Also as [`FileExt::write_at`].
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// Parts that are ready in any order each go to their place.
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-write_at-{}", std::process::id()));
    ///     let file = File::create(&path)?;
    ///     runnext::scope(|s| {
    ///         for (offset, part) in [(6, "come"), (0, "first "), (10, " last")] {
    ///             let file = &file;
    ///             s.go(move || file.write_at(part.as_bytes(), offset).unwrap());
    ///         }
    ///     });
    ///     assert_eq!(fs::read_to_string(&path)?, "first come last");
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.write_at(buf, offset))
    }
}

impl File {
    /// Whether it is a terminal. [`std::io::IsTerminal`] is closed to types outside the standard library, so a method.
    ///
    /// # Example
    /// ```
    /// # fn main() -> std::io::Result<()> {
    /// assert!(!runnext::fs::File::open("/dev/null")?.is_terminal());
    /// # Ok(())
    /// # }
    /// ```
    pub fn is_terminal(&self) -> bool {
        self.0.is_terminal()
    }
}

impl FileExt for File {
    fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        File::read_at(self, buf, offset)
    }

    fn write_at(&self, buf: &[u8], offset: u64) -> io::Result<usize> {
        File::write_at(self, buf, offset)
    }
}

impl Read for &File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        blocking(|| (&self.0).read(buf))
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        blocking(|| (&self.0).read_vectored(bufs))
    }

    // The standard library knows how long the file is.
    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        blocking(|| (&self.0).read_to_end(buf))
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        blocking(|| (&self.0).read_to_string(buf))
    }
}

impl Write for &File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        blocking(|| (&self.0).write(buf))
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        blocking(|| (&self.0).write_vectored(bufs))
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for &File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        // The end of a file on a server is a question to it.
        blocking(|| (&self.0).seek(to))
    }
}

impl Read for File {
    fn read(&mut self, buf: &mut [u8]) -> io::Result<usize> {
        (&*self).read(buf)
    }

    fn read_vectored(&mut self, bufs: &mut [IoSliceMut<'_>]) -> io::Result<usize> {
        (&*self).read_vectored(bufs)
    }

    fn read_to_end(&mut self, buf: &mut Vec<u8>) -> io::Result<usize> {
        (&*self).read_to_end(buf)
    }

    fn read_to_string(&mut self, buf: &mut String) -> io::Result<usize> {
        (&*self).read_to_string(buf)
    }
}

impl Write for File {
    fn write(&mut self, buf: &[u8]) -> io::Result<usize> {
        (&*self).write(buf)
    }

    fn write_vectored(&mut self, bufs: &[IoSlice<'_>]) -> io::Result<usize> {
        (&*self).write_vectored(bufs)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl Seek for File {
    fn seek(&mut self, to: SeekFrom) -> io::Result<u64> {
        (&*self).seek(to)
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl From<fs::File> for File {
    fn from(file: fs::File) -> File {
        File(file)
    }
}

impl From<File> for fs::File {
    fn from(file: File) -> fs::File {
        file.0
    }
}

impl From<OwnedFd> for File {
    fn from(fd: OwnedFd) -> File {
        File(fd.into())
    }
}

impl From<File> for OwnedFd {
    fn from(file: File) -> OwnedFd {
        file.0.into()
    }
}

impl From<File> for std::process::Stdio {
    fn from(file: File) -> std::process::Stdio {
        file.0.into()
    }
}

impl AsFd for File {
    fn as_fd(&self) -> BorrowedFd<'_> {
        self.0.as_fd()
    }
}

impl AsRawFd for File {
    fn as_raw_fd(&self) -> RawFd {
        self.0.as_raw_fd()
    }
}

impl IntoRawFd for File {
    fn into_raw_fd(self) -> RawFd {
        self.0.into_raw_fd()
    }
}

impl FromRawFd for File {
    unsafe fn from_raw_fd(fd: RawFd) -> File {
        // SAFETY: the caller's promise.
        File(unsafe { fs::File::from_raw_fd(fd) })
    }
}

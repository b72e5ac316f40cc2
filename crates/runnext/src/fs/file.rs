//! Open files.

use std::fmt;
use std::fs::{self, FileTimes, Metadata, Permissions};
use std::io::{self, IoSlice, IoSliceMut, IsTerminal, Read, Seek, SeekFrom, Write};
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, IntoRawFd, OwnedFd, RawFd};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::time::SystemTime;

use crate::sched::blocking::blocking;

/// An open file; [`std::fs::File`] for goroutines.
///
/// # Blocks
/// Everything: the goroutine, for as long as the system takes. On a plain thread: the thread.
pub struct File(fs::File);

impl File {
    /// Opens a file for reading.
    ///
    /// # Errors
    /// The system's.
    pub fn open<P: AsRef<Path>>(path: P) -> io::Result<File> {
        blocking(|| fs::File::open(path)).map(File)
    }

    /// Opens a file for writing; made if it does not exist, emptied if it does.
    ///
    /// # Errors
    /// The system's.
    pub fn create<P: AsRef<Path>>(path: P) -> io::Result<File> {
        blocking(|| fs::File::create(path)).map(File)
    }

    /// Makes a file and opens it for reading and writing.
    ///
    /// # Errors
    /// `AlreadyExists` if it does; else the system's.
    pub fn create_new<P: AsRef<Path>>(path: P) -> io::Result<File> {
        blocking(|| fs::File::create_new(path)).map(File)
    }

    /// As [`OpenOptions::new`].
    pub fn options() -> OpenOptions {
        OpenOptions::new()
    }

    /// Takes over one of the standard library's.
    pub fn from_std(file: fs::File) -> File {
        File(file)
    }

    /// Gives it to the standard library.
    pub fn into_std(self) -> fs::File {
        self.0
    }

    /// Waits until contents and metadata are on the disk.
    ///
    /// # Errors
    /// The system's; writes that failed later than they returned show here.
    pub fn sync_all(&self) -> io::Result<()> {
        blocking(|| self.0.sync_all())
    }

    /// As [`sync_all`](Self::sync_all), without metadata that reading does not need.
    ///
    /// # Errors
    /// As for [`sync_all`](Self::sync_all).
    pub fn sync_data(&self) -> io::Result<()> {
        blocking(|| self.0.sync_data())
    }

    /// Cuts it, or fills it up with zeroes.
    ///
    /// # Errors
    /// The system's.
    pub fn set_len(&self, size: u64) -> io::Result<()> {
        blocking(|| self.0.set_len(size))
    }

    /// What is known about it.
    ///
    /// # Errors
    /// The system's.
    pub fn metadata(&self) -> io::Result<Metadata> {
        blocking(|| self.0.metadata())
    }

    /// Another handle to the same open file, position included.
    ///
    /// # Errors
    /// The system's.
    pub fn try_clone(&self) -> io::Result<File> {
        self.0.try_clone().map(File)
    }

    /// Changes its permissions.
    ///
    /// # Errors
    /// The system's.
    pub fn set_permissions(&self, permissions: Permissions) -> io::Result<()> {
        blocking(|| self.0.set_permissions(permissions))
    }

    /// Changes when it was read and written last.
    ///
    /// # Errors
    /// The system's.
    pub fn set_times(&self, times: FileTimes) -> io::Result<()> {
        blocking(|| self.0.set_times(times))
    }

    /// Changes when it was written last.
    ///
    /// # Errors
    /// The system's.
    pub fn set_modified(&self, time: SystemTime) -> io::Result<()> {
        self.set_times(FileTimes::new().set_modified(time))
    }

    /// Reads from that position; the file's own stays. Also as [`FileExt::read_at`].
    ///
    /// # Errors
    /// The system's.
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> io::Result<usize> {
        blocking(|| self.0.read_at(buf, offset))
    }

    /// Writes to that position; the file's own stays. Also as [`FileExt::write_at`].
    ///
    /// # Errors
    /// The system's.
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

/// How to open a file; [`std::fs::OpenOptions`] for goroutines.
#[derive(Clone, Debug)]
pub struct OpenOptions(fs::OpenOptions);

impl OpenOptions {
    /// Nothing is set.
    #[allow(clippy::new_without_default)] // std's has none
    pub fn new() -> OpenOptions {
        OpenOptions(fs::OpenOptions::new())
    }

    /// For reading.
    pub fn read(&mut self, on: bool) -> &mut OpenOptions {
        self.0.read(on);
        self
    }

    /// For writing.
    pub fn write(&mut self, on: bool) -> &mut OpenOptions {
        self.0.write(on);
        self
    }

    /// For writing at its end, wherever that is by then.
    pub fn append(&mut self, on: bool) -> &mut OpenOptions {
        self.0.append(on);
        self
    }

    /// Empties it.
    pub fn truncate(&mut self, on: bool) -> &mut OpenOptions {
        self.0.truncate(on);
        self
    }

    /// Makes it, if it does not exist.
    pub fn create(&mut self, on: bool) -> &mut OpenOptions {
        self.0.create(on);
        self
    }

    /// Makes it, and fails if it exists.
    pub fn create_new(&mut self, on: bool) -> &mut OpenOptions {
        self.0.create_new(on);
        self
    }

    /// The permissions of a file that it makes, less the process's mask.
    pub fn mode(&mut self, mode: u32) -> &mut OpenOptions {
        self.0.mode(mode);
        self
    }

    /// Flags of `open(2)` that have no method here.
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
    pub fn open<P: AsRef<Path>>(&self, path: P) -> io::Result<File> {
        blocking(|| self.0.open(path)).map(File)
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

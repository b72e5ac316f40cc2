//! Locks on files, between processes and between handles that were opened apart.
//!
//! The system knows who has a lock by the open file, not by goroutine or thread: clones of a handle have it together.

use std::error::Error;
use std::fmt;
use std::io;
use std::os::fd::AsFd;

use runnext_sys::file::{self, Lock};

use super::File;
use crate::sched::blocking::blocking;

/// Why [`File::try_lock`] did not get the lock; [`std::fs::TryLockError`](https://doc.rust-lang.org/std/fs/enum.TryLockError.html), which is
/// younger than the oldest Rust that this crate builds with.
///
/// # Example
/// ```
/// use runnext::fs::{self, File, TryLockError};
///
/// #[runnext::main]
/// fn main() -> std::io::Result<()> {
///     let path = std::env::temp_dir().join(format!("runnext-TryLockError-{}", std::process::id()));
///     let (one, two) = (File::create(&path)?, File::open(&path)?);
///     one.lock()?;
///     assert!(matches!(two.try_lock(), Err(TryLockError::WouldBlock)));
///     fs::remove_file(&path)
/// }
/// ```
#[derive(Debug)]
pub enum TryLockError {
    /// The system's error.
    Error(io::Error),
    /// Another has it.
    WouldBlock,
}

impl fmt::Display for TryLockError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            TryLockError::Error(e) => e.fmt(f),
            TryLockError::WouldBlock => f.write_str("the lock is held by another"),
        }
    }
}

impl Error for TryLockError {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        match self {
            TryLockError::Error(e) => Some(e),
            TryLockError::WouldBlock => None,
        }
    }
}

impl From<TryLockError> for io::Error {
    fn from(e: TryLockError) -> io::Error {
        match e {
            TryLockError::Error(e) => e,
            TryLockError::WouldBlock => io::ErrorKind::WouldBlock.into(),
        }
    }
}

impl File {
    /// Waits until nobody else has a lock on the file, and takes it. It is given up by [`unlock`](Self::unlock), or when the last handle is closed.
    /// A lock that is waited for has a thread to itself meanwhile.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-lock-{}", std::process::id()));
    ///     let (one, two) = (File::create(&path)?, File::open(&path)?);
    ///     one.lock()?;
    ///     let waiter = runnext::go(move || two.lock());
    ///     one.unlock()?;
    ///     waiter.join().unwrap()?;
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn lock(&self) -> io::Result<()> {
        blocking(|| file::lock(self.as_fd(), Lock::Exclusive, true))
    }

    /// As [`lock`](Self::lock), for a lock that others may have at the same time in this way.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-lock_shared-{}", std::process::id()));
    ///     let (one, two) = (File::create(&path)?, File::open(&path)?);
    ///     one.lock_shared()?;
    ///     two.lock_shared()?; // both have it
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn lock_shared(&self) -> io::Result<()> {
        blocking(|| file::lock(self.as_fd(), Lock::Shared, true))
    }

    /// As [`lock`](Self::lock), without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if another has it; the system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-try_lock-{}", std::process::id()));
    ///     let (one, two) = (File::create(&path)?, File::open(&path)?);
    ///     one.try_lock()?;
    ///     assert!(two.try_lock().is_err());
    ///     drop(one);
    ///     two.try_lock()?;
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn try_lock(&self) -> Result<(), TryLockError> {
        self.attempt(Lock::Exclusive)
    }

    /// As [`lock_shared`](Self::lock_shared), without waiting.
    ///
    /// # Errors
    /// `WouldBlock` if another has it for itself; the system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-try_lock_shared-{}", std::process::id()));
    ///     let (one, two) = (File::create(&path)?, File::open(&path)?);
    ///     one.lock_shared()?;
    ///     two.try_lock_shared()?;
    ///     assert!(two.try_lock().is_err()); // not alone
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn try_lock_shared(&self) -> Result<(), TryLockError> {
        self.attempt(Lock::Shared)
    }

    /// Gives the lock up, if it has one.
    ///
    /// # Errors
    /// The system's.
    ///
    /// # Example
    /// ```
    /// use runnext::fs::{self, File};
    ///
    /// #[runnext::main]
    /// fn main() -> std::io::Result<()> {
    ///     let path = std::env::temp_dir().join(format!("runnext-File-unlock-{}", std::process::id()));
    ///     let (one, two) = (File::create(&path)?, File::open(&path)?);
    ///     one.lock()?;
    ///     one.unlock()?;
    ///     two.try_lock()?;
    ///     fs::remove_file(&path)
    /// }
    /// ```
    pub fn unlock(&self) -> io::Result<()> {
        blocking(|| file::lock(self.as_fd(), Lock::Release, true))
    }

    fn attempt(&self, what: Lock) -> Result<(), TryLockError> {
        blocking(|| file::lock(self.as_fd(), what, false)).map_err(|e| match e.kind() {
            io::ErrorKind::WouldBlock => TryLockError::WouldBlock,
            _ => TryLockError::Error(e),
        })
    }
}

//! Which limit, or ban, is behind an error of making a thread or a descriptor: the kernel gives a number, and people want to know what to
//! raise. And raising what a process may raise itself.
//!
//! ```
//! use runnext_sys::limit;
//! use std::io;
//! let refused = limit::explain(io::Error::from_raw_os_error(24));
//! assert!(refused.to_string().contains("ulimit -n"));
//! ```

use std::error::Error;
use std::{fmt, io, ptr};

use crate::{check, syscall};

/// Allows this process as many descriptors as it may allow itself: the soft limit becomes the hard one. Gives how many it may have then.
///
/// # Errors
/// Those of `prlimit`. The limit is what it was.
pub fn raise_descriptors() -> io::Result<u64> {
    let mut limit = libc::rlimit64 {
        rlim_cur: 0,
        rlim_max: 0,
    };
    let (this, which, none) = (0, libc::RLIMIT_NOFILE, ptr::null::<u8>());
    // SAFETY: a place for the old limit, and no new one.
    check(unsafe { syscall!(libc::SYS_prlimit64, this, which, none, &raw mut limit) })?;
    if limit.rlim_cur < limit.rlim_max {
        limit.rlim_cur = limit.rlim_max;
        // SAFETY: a limit that is alive, and no place for the old one.
        check(unsafe { syscall!(libc::SYS_prlimit64, this, which, &raw const limit, none) })?;
    }
    Ok(limit.rlim_cur)
}

/// The same error, saying what to raise: of its kind, with the kernel's own as its source. Errors that no limit is behind stay as they
/// are.
pub fn explain(error: io::Error) -> io::Error {
    let advice = match error.raw_os_error() {
        Some(libc::EMFILE) => "no descriptor is left: raise `ulimit -n` (RLIMIT_NOFILE)",
        Some(libc::ENFILE) => "the whole system has no descriptor left: raise fs.file-max",
        // libc says so too if there is no room for the thread's stack.
        Some(libc::EAGAIN) => {
            "no thread is left: raise `ulimit -u` (RLIMIT_NPROC), the cgroup's pids.max or kernel.threads-max; or its \
             stack has no room: see `ulimit -v`"
        }
        Some(libc::ENOSYS | libc::EPERM) => {
            "the runtime needs epoll, eventfd and threads: a seccomp filter or another sandbox may forbid one of them"
        }
        _ => return error,
    };
    io::Error::new(error.kind(), Explained { error, advice })
}

#[derive(Debug)]
struct Explained {
    error: io::Error,
    advice: &'static str,
}

impl fmt::Display for Explained {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}; {}", self.error, self.advice)
    }
}

impl Error for Explained {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        Some(&self.error)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kind_and_the_kernels_error_are_kept() {
        for (errno, limit) in [
            (libc::EMFILE, "ulimit -n"),
            (libc::ENFILE, "fs.file-max"),
            (libc::EAGAIN, "ulimit -u"),
            (libc::ENOSYS, "seccomp"),
            (libc::EPERM, "seccomp"),
        ] {
            let bare = || io::Error::from_raw_os_error(errno);
            let explained = explain(bare());
            assert_eq!(explained.kind(), bare().kind());
            let text = explained.to_string();
            assert!(text.starts_with(&bare().to_string()), "{text}");
            assert!(text.contains(limit), "{text}");
            let source = explained.source().and_then(|e| e.downcast_ref());
            assert_eq!(source.and_then(io::Error::raw_os_error), Some(errno));
            assert_eq!(explain(explained).to_string(), text, "once is enough");
        }
    }

    #[test]
    fn all_the_descriptors_there_may_be() {
        let allowed = raise_descriptors().unwrap();
        assert_eq!(raise_descriptors().unwrap(), allowed);
        let table = std::fs::read_to_string("/proc/self/limits").unwrap();
        let line = table
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let soft_and_hard = line.unwrap().split_whitespace().skip(3).take(2);
        assert!(soft_and_hard.eq([allowed.to_string(), allowed.to_string()]));
    }

    #[test]
    fn what_no_limit_is_behind_stays_as_it_is() {
        let error = explain(io::Error::from_raw_os_error(libc::EINVAL));
        assert_eq!(error.raw_os_error(), Some(libc::EINVAL));
    }
}

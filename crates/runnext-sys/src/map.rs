//! Address space: reserving it, guarding parts of it, giving memory back.
//!
//! # Why this shape
//! Stacks are carved out of a few large [`Region`]s, so that a stack costs no system call and no
//! kernel object of its own. Guards come in two kinds, because the good one is new:
//!
//! | kind       | how                           | kernel | costs                                |
//! |------------|-------------------------------|--------|--------------------------------------|
//! | `Install`  | `madvise(MADV_GUARD_INSTALL)` | 6.13   | a page-table entry                   |
//! | `Mprotect` | `mprotect(PROT_NONE)`         | any    | splits a mapping: two more per guard |
//!
//! A process may have `vm.max_map_count` mappings, 65,530 by default; at the limit `malloc`
//! fails too. So whoever uses `Mprotect` must count (see [`map_count`]) and stop early.
//!
//! Advice on many pieces ([`guard_all`], [`discard_all`]) is one call of `process_madvise` on ourselves, half the price each, and
//! other CPUs are told to forget the pages once for all of them (6.16); kernels that refuse get a call for each.
//!
//! # Invariants
//! I1  A region is readable and writable wherever it was not guarded, and is backed by memory only
//!     where touched (`MAP_NORESERVE`).
//! I2  A guard stays until the region goes: `discard` does not remove it.
//!
//! # Context
//! Nothing here calls the allocator, nor do errors until they are shown. Not for signal handlers.
//!
//! Tests: `map/tests.rs`; faults are taken in a child process.

use crate::{check, syscall};
use std::fmt;
use std::fs;
use std::io::{self, Read};
use std::mem::ManuallyDrop;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicU8, Ordering::*};

#[cfg(test)]
mod tests;

const MADV_GUARD_INSTALL: i32 = 102;
/// In place of a pidfd: the calling process (Linux 6.14).
const PIDFD_SELF: i32 = -10001;
/// Pieces advised by one system call.
const TOGETHER: usize = 32;

/// What Linux has if `vm.max_map_count` cannot be read.
const DEFAULT_MAX_MAP_COUNT: usize = 65_530;

/// The size of a page in bytes.
///
/// ```
/// assert!(runnext_sys::map::page_size().is_power_of_two());
/// ```
pub fn page_size() -> usize {
    // SAFETY: no preconditions; the kernel put the value on the stack at exec.
    unsafe { libc::getauxval(libc::AT_PAGESZ) as usize }
}

/// How to make pages that fault when touched; see the table in the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Guard {
    /// `MADV_GUARD_INSTALL`: no extra mapping.
    Install,
    /// `mprotect(PROT_NONE)`: up to two extra mappings each.
    Mprotect,
}

/// The better kind of guard that works here. Tried once on a scratch page, then remembered.
///
/// Locked memory cannot have the light kind, so a program that called `mlockall(MCL_FUTURE)` gets
/// `Mprotect`.
pub fn guard_support() -> Guard {
    const UNKNOWN: u8 = 0;
    const INSTALL: u8 = 1;
    const MPROTECT: u8 = 2;
    static SUPPORT: AtomicU8 = AtomicU8::new(UNKNOWN);
    if SUPPORT.load(Relaxed) == UNKNOWN {
        let page = page_size();
        let works = Region::reserve(page, page, false)
            .and_then(|scratch| scratch.guard(Guard::Install, 0, page))
            .is_ok();
        SUPPORT.store(if works { INSTALL } else { MPROTECT }, Relaxed);
    }
    if SUPPORT.load(Relaxed) == INSTALL {
        Guard::Install
    } else {
        Guard::Mprotect
    }
}

/// An owned piece of zeroed, private, lazily backed memory. Dropping unmaps it.
///
/// ```
/// use runnext_sys::map::{Region, guard_support, page_size};
/// let page = page_size();
/// let region = Region::reserve(1 << 20, 1 << 16, false)?;
/// region.guard(guard_support(), 0, page)?; // touching the first page now faults
/// // SAFETY: inside the region, above the guard.
/// unsafe { region.base().add(page).write(1) };
/// region.discard(page, region.len() - page); // reads as zero again
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Debug)]
pub struct Region {
    base: NonNull<u8>,
    len: usize,
}

// SAFETY: a region is an address range; its methods are system calls, which synchronise themselves.
// Access to the memory goes through raw pointers and is the caller's to order.
unsafe impl Send for Region {}
// SAFETY: as above.
unsafe impl Sync for Region {}

impl Region {
    /// Reserves `len` bytes (rounded up to pages) starting at a multiple of `align`. With
    /// `hugepages` the system's policy decides; without, the kernel is told not to use them, so
    /// that touching one page costs one page.
    ///
    /// # Errors
    /// `InvalidInput` if `len` is zero or too large; otherwise the kernel's, with what to do about
    /// it.
    ///
    /// # Panics
    /// If `align` is not a power of two.
    pub fn reserve(len: usize, align: usize, hugepages: bool) -> Result<Region, Refused> {
        assert!(
            align.is_power_of_two(),
            "Region::reserve: align is {align}, pass a power of two"
        );
        let page = page_size();
        let align = align.max(page);
        let whole = len.checked_next_multiple_of(page).filter(|&len| len != 0);
        let sizes = whole.and_then(|len| Some((len, len.checked_add(align - page)?)));
        let Some((len, total)) = sizes.filter(|&(_, total)| isize::try_from(total).is_ok()) else {
            return Err(Refused::new(RESERVE, len, libc::EINVAL));
        };
        let start = map_anonymous(total).map_err(|e| Refused::of(RESERVE, len, &e))?;
        // Over-mapped by at most `align - page`: cut off what sticks out on either side.
        let base = (start as usize).next_multiple_of(align);
        let head = base - start as usize;
        // SAFETY: both pieces are inside the mapping made above, page-aligned, and not handed out.
        unsafe {
            unmap(start, head);
            unmap(start.add(head + len), total - head - len);
        }
        // SAFETY: `head` is less than the length of the mapping.
        let base = unsafe { start.add(head) };
        let base = NonNull::new(base).expect("mmap without MAP_FIXED never maps page zero");
        let region = Region { base, len };
        if !hugepages {
            // Fails only on kernels built without huge pages, where there is nothing to forbid.
            let _ = region.advise_range(libc::MADV_NOHUGEPAGE, 0, len);
        }
        Ok(region)
    }

    /// The first byte.
    #[inline]
    pub fn base(&self) -> *mut u8 {
        self.base.as_ptr()
    }

    /// Length in bytes, a multiple of the page size.
    #[inline]
    #[allow(clippy::len_without_is_empty, reason = "a region is never empty")]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Makes `len` bytes from `offset` fault when touched, for as long as the region lives. What
    /// they held is lost.
    ///
    /// # Errors
    /// `Install` where the kernel lacks it (see [`guard_support`]) or the memory is locked;
    /// `Mprotect` when the process has too many mappings. The region stays usable.
    ///
    /// # Panics
    /// If the range is not made of whole pages of this region.
    pub fn guard(&self, kind: Guard, offset: usize, len: usize) -> Result<(), Refused> {
        self.assert_pages(offset, len);
        let done = match kind {
            Guard::Install => self.advise_range(MADV_GUARD_INSTALL, offset, len),
            Guard::Mprotect => {
                let start = self.base.as_ptr().wrapping_add(offset);
                // SAFETY: whole pages of a mapping we own; that nobody uses them is what a guard
                // says.
                check(unsafe { syscall!(libc::SYS_mprotect, start, len, libc::PROT_NONE) })
            }
        };
        done.map(drop).map_err(|e| Refused::of("guard", len, &e))
    }

    /// Gives the memory behind `len` bytes from `offset` back to the kernel; they read as zero
    /// afterwards. Guards survive. Memory locked with `mlock` is kept: this is advice, and so
    /// cannot fail.
    ///
    /// # Panics
    /// If the range is not made of whole pages of this region.
    pub fn discard(&self, offset: usize, len: usize) {
        self.assert_pages(offset, len);
        let _ = self.advise_range(libc::MADV_DONTNEED, offset, len);
    }

    /// Has memory behind all of it from now on, so that who touches it first need not wait for that. What it holds stays. Advice: before Linux
    /// 5.14 nothing happens, nor where a guard is in the way.
    pub fn populate(&self) {
        let _ = self.advise_range(libc::MADV_POPULATE_WRITE, 0, self.len);
    }

    /// Makes the region at least `len` bytes long, keeping what it holds; it may move. What is new reads as zero. Only
    /// page tables are copied, and nothing is allocated unless it fails.
    ///
    /// # Errors
    /// The kernel's: no room, or guards made by `Mprotect`, which split the mapping. The region is as it was.
    pub fn grow(&mut self, len: usize) -> Result<(), Refused> {
        let page = page_size();
        let Some(len) = len.checked_next_multiple_of(page) else {
            return Err(Refused::new(GROW, len, libc::EINVAL));
        };
        if len <= self.len {
            return Ok(());
        }
        let (base, old) = (self.base.as_ptr(), self.len);
        // SAFETY: a mapping we own, exclusively borrowed: whoever keeps pointers into it knows that it may move.
        let moved =
            check(unsafe { syscall!(libc::SYS_mremap, base, old, len, libc::MREMAP_MAYMOVE) })
                .map_err(|e| Refused::of(GROW, len, &e))?;
        self.base = NonNull::new(moved as *mut u8).expect("mremap never maps page zero");
        self.len = len;
        Ok(())
    }

    /// Forgets the region: it stays mapped until the process ends.
    pub fn leak(self) {
        std::mem::forget(self);
    }

    /// The opposite of [`leak`](Self::leak): owns the mapping again, or a part of it. Dropping it unmaps that range.
    ///
    /// # Safety
    /// The range is made of whole pages that came from [`reserve`](Self::reserve) and were leaked. Of all regions that
    /// cover a page, at most one is ever dropped, and not while anybody uses the memory.
    pub unsafe fn from_raw(base: *mut u8, len: usize) -> Region {
        let base = NonNull::new(base).expect("a region never starts at address zero");
        Region { base, len }
    }

    fn assert_pages(&self, offset: usize, len: usize) {
        let page = page_size();
        assert!(
            offset.is_multiple_of(page)
                && len.is_multiple_of(page)
                && offset <= self.len
                && len <= self.len - offset,
            "{len} bytes at {offset} are not whole pages (of {page} bytes) of a region of {} bytes",
            self.len
        );
    }

    fn advise_range(&self, advice: i32, offset: usize, len: usize) -> io::Result<usize> {
        let start = self.base.as_ptr().wrapping_add(offset);
        // SAFETY: whole pages of a mapping we own; none of the advices in use unmaps.
        check(unsafe { syscall!(libc::SYS_madvise, start, len, advice) })
    }
}

/// [`Region::guard`] for each of them as a whole.
///
/// ```
/// use runnext_sys::map::{Region, discard_all, guard_all, guard_support, page_size};
/// use std::mem::ManuallyDrop;
/// let page = page_size();
/// let whole = Region::reserve(8 * page, page, false)?;
/// let page_at = |i| {
///     let start = whole.base().wrapping_add(i * page);
///     // SAFETY: a part of `whole`, which outlives it; never dropped.
///     ManuallyDrop::new(unsafe { Region::from_raw(start, page) })
/// };
/// guard_all(guard_support(), (0..4).map(page_at)).map_err(|(_, e)| e)?; // the first four fault now
/// discard_all((4..8).map(page_at));
/// # Ok::<(), std::io::Error>(())
/// ```
///
/// # Errors
/// As [`Region::guard`], with how many of them have their guards: those before the one that was refused.
pub fn guard_all(
    kind: Guard,
    pieces: impl Iterator<Item = ManuallyDrop<Region>> + Clone,
) -> Result<(), (usize, Refused)> {
    let done = match kind {
        Guard::Install => advise_all(MADV_GUARD_INSTALL, pieces.clone()),
        Guard::Mprotect => 0,
    };
    for (i, piece) in pieces.enumerate().skip(done) {
        piece.guard(kind, 0, piece.len).map_err(|e| (i, e))?;
    }
    Ok(())
}

/// [`Region::discard`] for each of them as a whole.
pub fn discard_all(pieces: impl Iterator<Item = ManuallyDrop<Region>> + Clone) {
    let done = advise_all(libc::MADV_DONTNEED, pieces.clone());
    for piece in pieces.skip(done) {
        piece.discard(0, piece.len);
    }
}

/// How many of them, from the first on, the kernel took together.
fn advise_all(advice: i32, mut pieces: impl Iterator<Item = ManuallyDrop<Region>>) -> usize {
    let mut done = 0;
    loop {
        let mut ranges = [libc::iovec {
            iov_base: ptr::null_mut(),
            iov_len: 0,
        }; TOGETHER];
        let mut n = 0;
        for (range, piece) in ranges.iter_mut().zip(pieces.by_ref().take(TOGETHER)) {
            range.iov_base = piece.base.as_ptr().cast();
            range.iov_len = piece.len;
            n += 1;
        }
        if n == 0 {
            return done;
        }
        let (call, at) = (libc::SYS_process_madvise, ranges.as_ptr());
        // SAFETY: as in `advise_range`, for each of them; the array has so many.
        let advised = check(unsafe { syscall!(call, PIDFD_SELF, at, n, advice, 0) });
        // It says how many bytes. What was done in part is to be done again.
        let mut left = advised.unwrap_or(0);
        for range in &ranges[..n] {
            if range.iov_len > left {
                return done;
            }
            left -= range.iov_len;
            done += 1;
        }
    }
}

impl Drop for Region {
    fn drop(&mut self) {
        // SAFETY: we own the mapping, and whoever drops it has given up all pointers into it.
        unsafe { unmap(self.base.as_ptr(), self.len) };
    }
}

fn map_anonymous(len: usize) -> io::Result<*mut u8> {
    const PROT: i32 = libc::PROT_READ | libc::PROT_WRITE;
    const FLAGS: i32 = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_NORESERVE;
    // SAFETY: a new mapping wherever the kernel likes touches nothing that exists.
    let start = unsafe { libc::mmap(ptr::null_mut(), len, PROT, FLAGS, -1, 0) };
    if start == libc::MAP_FAILED {
        Err(io::Error::last_os_error())
    } else {
        Ok(start.cast())
    }
}

/// # Safety
/// The range must be whole pages that the caller owns and nobody uses any more.
unsafe fn unmap(start: *mut u8, len: usize) {
    if len != 0 {
        // SAFETY: passed on. Fails only if splitting exceeds vm.max_map_count; then the range just
        // stays mapped.
        unsafe { syscall!(libc::SYS_munmap, start, len) };
    }
}

const RESERVE: &str = "reserve address space for";
const GROW: &str = "grow a mapping to";

/// What the kernel refused. Made without the allocator, for those who must not call it; what to do about it is found out when it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Refused {
    what: &'static str,
    len: usize,
    os: i32,
}

impl Refused {
    fn new(what: &'static str, len: usize, os: i32) -> Refused {
        Refused { what, len, os }
    }

    fn of(what: &'static str, len: usize, error: &io::Error) -> Refused {
        Refused::new(what, len, error.raw_os_error().unwrap_or(0))
    }

    /// As one of std's.
    pub fn kind(&self) -> io::ErrorKind {
        io::Error::from_raw_os_error(self.os).kind()
    }
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Refused { what, len, os } = *self;
        let error = io::Error::from_raw_os_error(os);
        write!(f, "cannot {what} {len} bytes: {error}")?;
        match os {
            // Not how many mappings there are: whoever is refused thousands of times would count them each time.
            libc::ENOMEM => f.write_str(
                "; out of address space or of mappings: compare /proc/self/maps with vm.max_map_count, and see \
                 `ulimit -v` (RLIMIT_AS), `ulimit -d` (RLIMIT_DATA) and vm.overcommit_memory, which should not be 2",
            ),
            libc::EAGAIN => {
                f.write_str("; too much locked memory: raise `ulimit -l` or drop mlockall")
            }
            libc::EINVAL if what == "guard" => f.write_str(
                "; the kernel does not support this here (guards need Linux 6.13 and memory that is not locked)",
            ),
            libc::EINVAL => f.write_str("; pass 1 to isize::MAX"),
            _ => Ok(()),
        }
    }
}

impl std::error::Error for Refused {}

impl From<Refused> for io::Error {
    fn from(refused: Refused) -> io::Error {
        io::Error::new(refused.kind(), refused)
    }
}

/// How many mappings a process may have: `vm.max_map_count`.
pub fn max_map_count() -> usize {
    fs::read_to_string("/proc/sys/vm/max_map_count")
        .ok()
        .and_then(|text| text.trim().parse().ok())
        .unwrap_or(DEFAULT_MAX_MAP_COUNT)
}

/// How many mappings this process has now. Reads all of `/proc/self/maps`: about a microsecond per
/// mapping.
pub fn map_count() -> usize {
    let Ok(mut maps) = fs::File::open("/proc/self/maps") else {
        return 0;
    };
    let mut buffer = [0u8; 4096];
    let mut lines = 0;
    while let Ok(n @ 1..) = maps.read(&mut buffer) {
        lines += buffer[..n].iter().filter(|&&byte| byte == b'\n').count();
    }
    lines
}

//! The slab: where the headers of goroutines live.
//!
//! # Why this shape
//! Headers are type-stable: their memory stays headers until the runtime is gone, so a late waker or a
//! dump may look at one that has ended. Extents are aligned to their size and begin with the address of
//! their runtime, so a header needs no pointer back. Inside, the hot lines form one dense array and the
//! cold records another: 1,000 goroutines that yield in turn touch 1,000 consecutive cache lines.
//!
//! ```text
//! extent (1 MiB, aligned): | Head | G G G G … (64 B each) | Cold Cold Cold … (128 B each) |
//! ```
//!
//! # Context
//! Never calls the allocator: extents come from `mmap`. `alloc` and `free` take the slab's lock; the
//! usual path goes through a P's own list of free headers and comes here once per [`BATCH`].

use std::cell::UnsafeCell;
use std::ptr::{self, NonNull};
use std::sync::atomic::{AtomicPtr, AtomicUsize, Ordering::*};

use runnext_core::list::List;
use runnext_sys::map::Region;

use runnext_core::park::IDLE;

use super::{Cold, G};
use crate::lock::Lock;

const EXTENT: usize = 1 << 20;
const COLD_SIZE: usize = 128;
const HEAD_SIZE: usize = 64;
const PER_EXTENT: usize = (EXTENT - HEAD_SIZE) / (size_of::<G>() + COLD_SIZE);
const COLD_AT: usize = HEAD_SIZE + PER_EXTENT * size_of::<G>();

/// Headers moved between a P and the slab at once (Go's figure).
pub(crate) const BATCH: usize = 32;
/// Free headers a P keeps before it gives half of them back (Go's figure).
pub(crate) const LOCAL_MAX: usize = 64;

const _: () = assert!(size_of::<Cold>() <= COLD_SIZE);

#[repr(C)]
struct Head {
    /// The owner's cookie: what [`G::owner`] returns.
    owner: *const (),
    next: *mut Head,
    region: UnsafeCell<Option<Region>>,
    /// Headers handed out so far; the rest has never been touched.
    used: AtomicUsize,
}

const _: () = assert!(size_of::<Head>() <= HEAD_SIZE);

struct Inner {
    free: List<G>,
    /// Headers ever handed out.
    carved: usize,
    orphaned: bool,
}

// SAFETY: headers in the list are the slab's own, and reached only under its lock.
unsafe impl Send for Inner {}

pub(crate) struct Slab {
    inner: Lock<Inner>,
    /// Newest first; only the newest has untouched headers. Added to under the lock, and read without it: by who has no right to wait.
    extents: AtomicPtr<Head>,
}

impl G {
    #[inline]
    fn extent(&self) -> *const Head {
        ((&raw const *self).addr() & !(EXTENT - 1)) as *const Head
    }

    #[inline]
    pub(super) fn cold(&self) -> &Cold {
        let extent = self.extent();
        let index = ((&raw const *self).addr() - extent.addr() - HEAD_SIZE) / size_of::<G>();
        // SAFETY: every header lies in an extent, and the extent has a cold record for each index.
        unsafe {
            &*extent
                .cast::<u8>()
                .add(COLD_AT + index * COLD_SIZE)
                .cast::<Cold>()
        }
    }

    /// The cookie given to [`Slab::new`]'s allocations: the runtime this goroutine belongs to.
    #[inline]
    pub(crate) fn owner(&self) -> *const () {
        // SAFETY: the head is written before any header of the extent is handed out and never changes.
        unsafe { (*self.extent()).owner }
    }
}

impl Slab {
    pub(crate) const fn new() -> Slab {
        Slab {
            inner: Lock::new(Inner {
                free: List::new(),
                carved: 0,
                orphaned: false,
            }),
            extents: AtomicPtr::new(ptr::null_mut()),
        }
    }

    /// Up to `n` free headers, at least one; `owner` is stamped on fresh extents.
    pub(crate) fn alloc(&self, n: usize, owner: *const ()) -> std::io::Result<List<G>> {
        let mut inner = self.inner.lock();
        let mut got = inner.free.take(n);
        while got.len() < n {
            match self.carve(&mut inner, owner) {
                // SAFETY: a fresh header is in no list.
                Ok(g) => unsafe { got.push_back(g) },
                Err(e) if got.is_empty() => return Err(e),
                Err(_) => break,
            }
        }
        Ok(got)
    }

    /// Takes headers back. They are IDLE again and nobody holds them. True: the runtime is gone and these
    /// were the last ones outside, so the caller must let go of what [`orphan`](Self::orphan) kept.
    #[must_use]
    pub(crate) fn free(&self, list: List<G>) -> bool {
        let mut inner = self.inner.lock();
        inner.free.append(list);
        inner.orphaned && inner.free.len() == inner.carved
    }

    /// The runtime is going away. True: every header is back and the memory may go with it. False: handles
    /// (or abandoned goroutines) hold some, and the last [`free`](Self::free) will say so.
    pub(crate) fn orphan(&self) -> bool {
        let mut inner = self.inner.lock();
        inner.orphaned = true;
        inner.free.len() == inner.carved
    }

    /// Whether a pointer of unknown age is one to a header of this slab, which then may be looked at.
    pub(crate) fn contains(&self, g: *const G) -> bool {
        let wanted = g.addr() & !(EXTENT - 1);
        let mut extent = self.extents.load(Acquire);
        while !extent.is_null() && extent.addr() != wanted {
            // SAFETY: extents live as long as the slab.
            extent = unsafe { (*extent).next };
        }
        !extent.is_null()
    }

    /// Calls `f` with every header that was ever handed out. For dumps: headers may be in any state.
    pub(crate) fn for_each(&self, mut f: impl FnMut(&G)) {
        let mut extent = self.extents.load(Acquire);
        while !extent.is_null() {
            // SAFETY: extents are only ever added in front, and live as long as the slab.
            let head = unsafe { &*extent };
            for i in 0..head.used.load(Acquire) {
                // SAFETY: `i < used`, so the header is initialised.
                f(unsafe { &*extent.cast::<u8>().add(HEAD_SIZE).cast::<G>().add(i) });
            }
            extent = head.next;
        }
    }

    /// The next header that has never been used. Under the lock.
    fn carve(&self, inner: &mut Inner, owner: *const ()) -> std::io::Result<NonNull<G>> {
        let mut extent = self.extents.load(Relaxed);
        // SAFETY: extents live as long as the slab.
        if unsafe { extent.as_ref() }.is_none_or(|head| head.used.load(Relaxed) == PER_EXTENT) {
            extent = Head::map(owner, extent)?;
            self.extents.store(extent, Release);
        }
        // SAFETY: as above; not null now.
        let head = unsafe { &*extent };
        let i = head.used.load(Acquire);
        head.used.store(i + 1, Release);
        inner.carved += 1;
        // SAFETY: `i < PER_EXTENT`: inside the extent. Fresh memory is zero, which is a valid G: IDLE, null
        // links, an uninitialised coroutine, no yielder, not wired.
        let g = unsafe { extent.cast::<u8>().add(HEAD_SIZE).cast::<G>().add(i) };
        debug_assert_eq!(IDLE, 0);
        // SAFETY: not null.
        Ok(unsafe { NonNull::new_unchecked(g) })
    }
}

impl Head {
    fn map(owner: *const (), next: *mut Head) -> std::io::Result<*mut Head> {
        let region = Region::reserve(EXTENT, EXTENT, true)?;
        let head = region.base().cast::<Head>();
        // SAFETY: fresh, aligned, writable memory of at least HEAD_SIZE bytes.
        unsafe {
            head.write(Head {
                owner,
                next,
                region: UnsafeCell::new(Some(region)),
                used: AtomicUsize::new(0),
            })
        };
        Ok(head)
    }
}

impl Drop for Slab {
    fn drop(&mut self) {
        let mut extent = *self.extents.get_mut();
        while !extent.is_null() {
            // SAFETY: nobody can reach a header any more (the owner drops its slab last). The region is moved
            // out of the memory it owns before that memory goes away.
            let (next, region) = unsafe { ((*extent).next, (*(*extent).region.get()).take()) };
            drop(region);
            extent = next;
        }
    }
}

//! Stacks: slots of address space, committed on touch, guarded, pooled.
//!
//! # Why this shape
//! A mapping per stack ends at 32,750 goroutines (`vm.max_map_count`), so stacks are slots of large
//! chunks. A slot's guard is a `MADV_GUARD_INSTALL` marker where the kernel has it (no extra mapping);
//! elsewhere an mprotected hole, counted and refused well before the limit, because past it `malloc`
//! fails too. Slots are powers of two, aligned to their size: a stack handle is one word.
//!
//! ```text
//! slot_start                                                      slot_end
//! |— guard: 4 pages —|———————— grows down ————————|<- base (coloured)|
//! ```
//!
//! Stack tops are *coloured*: shifted by a few cache lines, and a few pages, differently for neighbours. Without
//! it the hot top of every stack falls into the same sets of the caches and of the TLB, slots being aligned far
//! beyond what those tell apart.
//!
//! # Where a stack comes from
//! A P's own LIFO ([`Cache`], warm) → the class's free list (committed, then discarded ones) → the next
//! slot of the newest chunk (guarded now) → a new chunk. Freed stacks go back the same way; the monitor
//! discards what has been unused for a while ([`Stacks::trim`]), never the spawn path.
//!
//! # Context
//! Nothing here calls the allocator: tables are lazily committed mappings. `take` and `give` on the
//! shared side hold the class's lock; they make system calls only for memory never used before.
//!
//! Tunables: [`GUARD_PAGES`]: C code does not probe its frames page by page, so one page is too few;
//! four cost nothing but address space. [`COLOURS`] × [`COLOUR_STEP`] must leave the rest of the first
//! page to the goroutine, or a parked one costs two pages.

use std::io;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use corosensei::stack::StackPointer;
use runnext_sys::map::{self, Guard, Region};

use crate::lock::Lock;

/// The smallest slot: 16 KiB of guard and 16 KiB to use.
pub(crate) const MIN_SIZE: usize = 32 << 10;
/// The largest slot anybody has asked for in earnest.
pub(crate) const MAX_SIZE: usize = 1 << 30;
const CLASSES: usize = 16;
const GUARD_PAGES: usize = 4;
const COLOURS: usize = 16;
const COLOUR_STEP: usize = 128;
/// As many pages as the index of a common second-level cache tells apart.
const PAGE_COLOURS: usize = 16;
/// Address space mapped at once; at least one slot.
const CHUNK: usize = 64 << 20;
/// Slots of one class: bounds its link table, which is address space until used.
const MAX_SLOTS: usize = 1 << 24;
/// User addresses lie below this (47 bits on both supported architectures, without asking for more).
const ADDRESS_SPACE: usize = 1 << 47;
/// Stacks a P keeps for itself.
const LOCAL_MAX: usize = 64;

/// A stack, owned. One word: the coloured base, with the size class in its low four bits.
#[derive(Debug)]
pub(crate) struct Stack(NonZeroUsize);

impl Stack {
    fn new(slot_end: usize, slot: usize, class: u8) -> Stack {
        let lines = slot % COLOURS;
        let pages = slot / COLOURS % page_colours(class_size(class));
        let base = slot_end - lines * COLOUR_STEP - pages * map::page_size();
        Stack(NonZeroUsize::new(base | class as usize).expect("a slot ends above zero"))
    }

    #[inline]
    pub(crate) fn class(&self) -> u8 {
        (self.0.get() & 15) as u8
    }

    fn size(&self) -> usize {
        class_size(self.class())
    }

    pub(crate) fn slot_start(&self) -> usize {
        ((self.0.get() & !15) - 1) & !(self.size() - 1)
    }

    pub(crate) fn slot_end(&self) -> usize {
        self.slot_start() + self.size()
    }
}

/// The slot of what may be a stack, read as a word from one that somebody else owns.
pub(crate) fn slot_of(word: usize) -> Option<(usize, usize)> {
    let stack = Stack(NonZeroUsize::new(word).filter(|w| w.get() > 15)?);
    Some((stack.slot_start(), stack.slot_end()))
}

// SAFETY: the slot lies in a live chunk, has its guard at the low end and more than a page between guard
// and base (checked by `class_for`'s lower bound); base is 128-byte aligned.
unsafe impl corosensei::stack::Stack for Stack {
    #[inline]
    fn base(&self) -> StackPointer {
        // SAFETY: a slot never starts at address 0, so masking the class leaves more than zero.
        unsafe { StackPointer::new_unchecked(self.0.get() & !15) }
    }

    #[inline]
    fn limit(&self) -> StackPointer {
        StackPointer::new(self.slot_start()).expect("a slot does not start at zero")
    }
}

/// Bytes of guard at the low end of every slot.
pub(crate) fn guard_size() -> usize {
    GUARD_PAGES * map::page_size()
}

/// How many pages stack tops differ by: at most an eighth of what there is to use.
fn page_colours(size: usize) -> usize {
    ((size - guard_size()) / map::page_size() / 8).clamp(1, PAGE_COLOURS)
}

fn class_size(class: u8) -> usize {
    MIN_SIZE << class
}

/// Bytes of one chunk of slots of `size`; also its alignment.
fn chunk_len(size: usize) -> usize {
    size.max(CHUNK)
}

fn per_chunk(size: usize) -> u32 {
    (chunk_len(size) / size) as u32
}

/// The class of the smallest slot with `bytes`, guard included.
pub(crate) fn class_for(bytes: usize) -> io::Result<u8> {
    if bytes == 0 || bytes > MAX_SIZE {
        return Err(io::Error::new(
            io::ErrorKind::InvalidInput,
            format!(
                "stack size of {bytes} bytes: give one between 1 byte (rounded up to {MIN_SIZE}) and \
                 {MAX_SIZE}; only pages that are touched use memory"
            ),
        ));
    }
    Ok((bytes.max(MIN_SIZE).next_power_of_two() / MIN_SIZE).trailing_zeros() as u8)
}

const NIL: u32 = u32::MAX;

/// A LIFO of slots linked through the class's link table.
#[derive(Clone, Copy)]
struct Chain {
    head: u32,
    len: usize,
}

impl Chain {
    const EMPTY: Chain = Chain { head: NIL, len: 0 };
}

struct ClassInner {
    tables: Option<Tables>,
    /// Slots handed out so far, all chunks together.
    carved: u32,
    /// Free and still committed, most recently used first.
    warm: Chain,
    /// Free and discarded.
    cold: Chain,
    /// Least `warm.len` since the last trim.
    low_water: usize,
}

/// Lazily committed tables of one class.
struct Tables {
    /// By slot: the slot below it in its chain.
    links: Table,
    /// By chunk: the units of [`CHUNK`] below its start address.
    starts: Table,
    /// By start address in units of [`CHUNK`]: the number of the chunk there.
    numbers: Table,
    chunks: u32,
}

/// A fixed array of words in a mapping of its own; untouched parts cost nothing.
struct Table(Region);

impl Tables {
    fn slot_start(&self, slot: u32, size: usize) -> usize {
        let chunk = self
            .starts
            .at((slot / per_chunk(size)) as usize)
            .load(Relaxed) as usize
            * CHUNK;
        chunk + (slot % per_chunk(size)) as usize * size
    }

    fn slot_at(&self, start: usize, size: usize) -> u32 {
        let chunk = start & !(chunk_len(size) - 1);
        self.numbers.at(chunk / CHUNK).load(Relaxed) * per_chunk(size)
            + ((start - chunk) / size) as u32
    }
}

impl Table {
    fn new(len: usize) -> io::Result<Table> {
        Region::reserve(len * 4, map::page_size(), false).map(Table)
    }

    fn at(&self, i: usize) -> &AtomicU32 {
        assert!(i < self.0.len() / 4, "stack table index out of range");
        // SAFETY: in range, aligned, and the mapping lives as long as `self`.
        unsafe { &*self.0.base().cast::<AtomicU32>().add(i) }
    }
}

/// All stacks of one runtime.
pub(crate) struct Stacks {
    classes: [Lock<ClassInner>; CLASSES],
    guard: Guard,
    /// In the mprotect fallback: stacks that may still be made before mappings run short.
    maps_left: AtomicUsize,
}

/// The stacks a P keeps: of the default class only, last freed first.
pub(crate) struct Cache {
    stacks: [Option<Stack>; LOCAL_MAX],
    len: usize,
}

impl Cache {
    pub(crate) fn new() -> Cache {
        Cache {
            stacks: [const { None }; LOCAL_MAX],
            len: 0,
        }
    }

    #[inline]
    pub(crate) fn take(&mut self) -> Option<Stack> {
        self.len = self.len.checked_sub(1)?;
        self.stacks[self.len].take()
    }

    /// Keeps the stack; when full, half of them go to the shared pool first.
    #[inline]
    pub(crate) fn give(&mut self, stack: Stack, pool: &Stacks) {
        if self.len == LOCAL_MAX {
            self.spill(pool, LOCAL_MAX / 2);
        }
        self.stacks[self.len] = Some(stack);
        self.len += 1;
    }

    /// Gives the `n` least recently used to the pool.
    #[cold]
    pub(crate) fn spill(&mut self, pool: &Stacks, n: usize) {
        let n = n.min(self.len);
        pool.give_all(self.stacks[..n].iter_mut().filter_map(Option::take));
        self.stacks[..self.len].rotate_left(n);
        self.len -= n;
    }

    pub(crate) fn len(&self) -> usize {
        self.len
    }
}

impl Stacks {
    /// `force_mprotect` is the switch that makes the fallback testable on new kernels.
    pub(crate) fn new(force_mprotect: bool) -> Stacks {
        let guard = if force_mprotect {
            Guard::Mprotect
        } else {
            map::guard_support()
        };
        let maps_left = match guard {
            Guard::Install => usize::MAX,
            // Each guard splits a mapping in two. Leave a quarter to malloc, threads and libraries.
            Guard::Mprotect => (map::max_map_count() * 3 / 4).saturating_sub(map::map_count()) / 2,
        };
        Stacks {
            classes: [const {
                Lock::new(ClassInner {
                    tables: None,
                    carved: 0,
                    warm: Chain::EMPTY,
                    cold: Chain::EMPTY,
                    low_water: 0,
                })
            }; CLASSES],
            guard,
            maps_left: AtomicUsize::new(maps_left),
        }
    }

    /// A stack of the class from the shared pool.
    pub(crate) fn take(&self, class: u8) -> io::Result<Stack> {
        let mut inner = self.classes[class as usize].lock();
        let slot = match inner.pop_free() {
            Some(slot) => slot,
            None => self.carve(class, &mut inner)?,
        };
        Ok(inner.stack(slot, class))
    }

    /// Takes a stack back.
    pub(crate) fn give(&self, stack: Stack) {
        self.give_all(std::iter::once(stack));
    }

    fn give_all(&self, stacks: impl Iterator<Item = Stack>) {
        for stack in stacks {
            let class = stack.class();
            let mut inner = self.classes[class as usize].lock();
            let slot = inner.slot_of(&stack);
            inner.push_warm(slot);
        }
    }

    /// The next slot that has never been used, guarded.
    fn carve(&self, class: u8, inner: &mut ClassInner) -> io::Result<u32> {
        let size = class_size(class);
        let slot = inner.carved;
        if slot as usize >= MAX_SLOTS {
            return Err(io::Error::other(format!(
                "{MAX_SLOTS} goroutine stacks of {size} bytes exist already"
            )));
        }
        if inner.tables.is_none() {
            inner.tables = Some(Tables {
                links: Table::new(MAX_SLOTS)?,
                starts: Table::new(MAX_SLOTS)?,
                numbers: Table::new(ADDRESS_SPACE / CHUNK)?,
                chunks: 0,
            });
        }
        let tables = inner.tables.as_mut().expect("made above");
        if slot == tables.chunks * per_chunk(size) {
            let region = Region::reserve(chunk_len(size), chunk_len(size), false)?;
            let unit = region.base().addr() / CHUNK;
            tables
                .starts
                .at(tables.chunks as usize)
                .store(unit as u32, Relaxed);
            tables.numbers.at(unit).store(tables.chunks, Relaxed);
            // The table has it now; `Drop` unmaps by address.
            region.leak();
            tables.chunks += 1;
        }
        self.guard_slot(tables.slot_start(slot, size))?;
        inner.carved += 1;
        Ok(slot)
    }

    fn guard_slot(&self, start: usize) -> io::Result<()> {
        if self.guard == Guard::Mprotect
            && self
                .maps_left
                .fetch_update(Relaxed, Relaxed, |n| n.checked_sub(1))
                .is_err()
        {
            return Err(io::Error::new(
                io::ErrorKind::OutOfMemory,
                "no more goroutine stacks: this kernel has no MADV_GUARD_INSTALL (Linux 6.13), so each stack \
                 needs two of the process's memory mappings; raise vm.max_map_count, or use a newer kernel",
            ));
        }
        slot_region(start, MIN_SIZE).guard(self.guard, 0, guard_size())
    }

    /// Returns memory of stacks that have not been needed since the last call, half of them each time. True: there may
    /// be more. By the monitor.
    pub(crate) fn trim(&self) -> bool {
        let mut more = false;
        for (class, c) in self.classes.iter().enumerate() {
            let spare = {
                let mut inner = c.lock();
                let spare = inner.low_water.min(inner.warm.len).div_ceil(2);
                inner.low_water = inner.warm.len;
                more |= inner.warm.len > 0;
                spare
            };
            for _ in 0..spare {
                // One at a time: the lock is not held over the system call.
                let Some(stack) = ({
                    let mut inner = c.lock();
                    inner.pop_warm().map(|slot| inner.stack(slot, class as u8))
                }) else {
                    break;
                };
                slot_region(stack.slot_start(), stack.size())
                    .discard(guard_size(), stack.size() - guard_size());
                let mut inner = c.lock();
                let slot = inner.slot_of(&stack);
                inner.push_cold(slot);
            }
        }
        more
    }
}

/// A part of a chunk, as a region to give advice on; it never unmaps.
fn slot_region(start: usize, len: usize) -> ManuallyDrop<Region> {
    // SAFETY: part of a chunk that lives as long as the `Stacks`; not dropped.
    ManuallyDrop::new(unsafe { Region::from_raw(start as *mut u8, len) })
}

impl ClassInner {
    fn tables(&self) -> &Tables {
        self.tables.as_ref().expect("slots exist, so the tables do")
    }

    fn pop_free(&mut self) -> Option<u32> {
        self.pop_warm().or_else(|| {
            let slot = self.cold.head;
            if slot == NIL {
                return None;
            }
            self.cold = Chain {
                head: self.tables().links.at(slot as usize).load(Relaxed),
                len: self.cold.len - 1,
            };
            Some(slot)
        })
    }

    fn pop_warm(&mut self) -> Option<u32> {
        let slot = self.warm.head;
        if slot == NIL {
            return None;
        }
        self.warm = Chain {
            head: self.tables().links.at(slot as usize).load(Relaxed),
            len: self.warm.len - 1,
        };
        self.low_water = self.low_water.min(self.warm.len);
        Some(slot)
    }

    fn push_warm(&mut self, slot: u32) {
        self.tables()
            .links
            .at(slot as usize)
            .store(self.warm.head, Relaxed);
        self.warm = Chain {
            head: slot,
            len: self.warm.len + 1,
        };
    }

    fn push_cold(&mut self, slot: u32) {
        self.tables()
            .links
            .at(slot as usize)
            .store(self.cold.head, Relaxed);
        self.cold = Chain {
            head: slot,
            len: self.cold.len + 1,
        };
    }

    fn stack(&self, slot: u32, class: u8) -> Stack {
        let size = class_size(class);
        Stack::new(
            self.tables().slot_start(slot, size) + size,
            slot as usize,
            class,
        )
    }

    fn slot_of(&self, stack: &Stack) -> u32 {
        self.tables().slot_at(stack.slot_start(), stack.size())
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        for (class, c) in self.classes.iter().enumerate() {
            let size = class_size(class as u8);
            let Some(tables) = c.lock().tables.take() else {
                continue;
            };
            for chunk in 0..tables.chunks {
                let start = tables.slot_start(chunk * per_chunk(size), size);
                // SAFETY: mapped and leaked by `carve` with this length; no goroutine of the runtime is left.
                drop(unsafe { Region::from_raw(start as *mut u8, chunk_len(size)) });
            }
        }
    }
}

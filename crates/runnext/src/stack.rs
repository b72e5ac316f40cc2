//! Stacks: slots of address space, committed on touch, guarded, pooled.
//!
//! # Why this shape
//! A mapping per stack ends at 32,750 goroutines (`vm.max_map_count`), so stacks are slots of large
//! chunks. A slot's guard is a `MADV_GUARD_INSTALL` marker where the kernel has it (no extra mapping);
//! elsewhere an mprotected hole, counted and refused well before the limit, because past it `malloc`
//! fails too. Chunks are aligned to their size and slots fill them from the start: a stack handle is one word.
//!
//! ```text
//! slot_start                                                      slot_end
//! |— guard: 4 pages —|———————— grows down ————————|<- base (coloured)|
//! ```
//!
//! The hot page of every stack is its topmost. Were slots powers of two, these pages would all fall into the same few sets of
//! the TLB: with 1000 goroutines each switch walked the page tables (33 ns a yield; 27 so). So a slot is a page short of
//! one: an odd number of pages, and neighbours' tops fall into all sets in turn. And tops are *coloured*: shifted by
//! a few cache lines, differently for neighbours, because lines at the same place in their pages share a set of the first-level cache.
//!
//! # Where a stack comes from
//! A P's own LIFO ([`Cache`], warm) → the class's free list (committed, then discarded ones) → the next
//! slots of the newest chunk (guarded now) → a new chunk; from the shared side a few at once, ever more as there are more.
//! Freed stacks go back the same way; the monitor discards what has been unused for a while ([`Stacks::trim`]), never the spawn path.
//!
//! # Context
//! Nothing here calls the allocator: tables are lazily committed mappings. `take` and `give` on the
//! shared side hold the class's lock; they make system calls only for memory never used before, and hold it only over those for
//! a chunk.
//!
//! Tunables: [`GUARD_PAGES`]: C code does not probe its frames page by page, so one page is too few;
//! four cost nothing but address space. [`COLOURS`] × [`COLOUR_STEP`] must leave the rest of the first
//! page to the goroutine, or a parked one costs two pages.

#[cfg(test)]
mod tests;

use std::fmt;
use std::io;
use std::mem::ManuallyDrop;
use std::num::NonZeroUsize;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::*};

use corosensei::stack::StackPointer;
use runnext_sys::map::{self, Guard, Region};

use crate::lock::Lock;

/// The smallest stack: 16 KiB of guard and 44 KiB to use.
pub(crate) const MIN_SIZE: usize = 64 << 10;
/// The largest stack anybody has asked for in earnest.
pub(crate) const MAX_SIZE: usize = 1 << 30;
const CLASSES: usize = 15;
const GUARD_PAGES: usize = 4;
const COLOURS: usize = 16;
const COLOUR_STEP: usize = 128;
/// Address space mapped at once; at least one slot.
const CHUNK: usize = 64 << 20;
/// Slots of one class: bounds its link table, which is address space until used.
const MAX_SLOTS: usize = 1 << 24;
/// User addresses lie below this (47 bits on both supported architectures, without asking for more).
const ADDRESS_SPACE: usize = 1 << 47;
/// Stacks a P keeps for itself.
const LOCAL_MAX: usize = 64;
/// Stacks a P gets at once.
const BATCH: usize = 16;

/// A stack, owned. One word: the coloured base, with the size class in its low four bits.
#[derive(Debug)]
pub(crate) struct Stack(NonZeroUsize);

impl Stack {
    fn new(slot_end: usize, slot: usize, class: u8) -> Stack {
        let base = slot_end - slot % COLOURS * COLOUR_STEP;
        Stack(NonZeroUsize::new(base | class as usize).expect("a slot ends above zero"))
    }

    #[inline]
    pub(crate) fn class(&self) -> u8 {
        (self.0.get() & 15) as u8
    }

    pub(crate) fn slot_start(&self) -> usize {
        let class = self.class();
        let last = (self.0.get() & !15) - 1;
        let within = last & (chunk_len(class) - 1);
        last - within % slot_len(class)
    }

    pub(crate) fn slot_end(&self) -> usize {
        self.slot_start() + slot_len(self.class())
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

/// What stacks of a class are asked for by: a power of two.
fn class_size(class: u8) -> usize {
    MIN_SIZE << class
}

/// Bytes of one slot: an odd number of pages.
fn slot_len(class: u8) -> usize {
    class_size(class) - map::page_size()
}

/// Bytes of one chunk; also its alignment.
fn chunk_len(class: u8) -> usize {
    class_size(class).max(CHUNK)
}

fn per_chunk(class: u8) -> u32 {
    (chunk_len(class) / slot_len(class)) as u32
}

/// The class of the smallest stack of `bytes`, guard included.
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

    fn push(&mut self, links: &Table, slot: u32) {
        links.at(slot as usize).store(self.head, Relaxed);
        self.head = slot;
        self.len += 1;
    }

    fn pop(&mut self, links: &Table) -> Option<u32> {
        let slot = self.head;
        if slot == NIL {
            return None;
        }
        self.head = links.at(slot as usize).load(Relaxed);
        self.len -= 1;
        Some(slot)
    }
}

/// A few stacks on their way from the pool to a P.
struct Handful {
    stacks: [Option<Stack>; BATCH],
    len: usize,
}

impl Handful {
    fn new() -> Handful {
        Handful {
            stacks: [const { None }; BATCH],
            len: 0,
        }
    }

    fn push(&mut self, stack: Stack) {
        self.stacks[self.len] = Some(stack);
        self.len += 1;
    }

    fn pop(&mut self) -> Option<Stack> {
        self.len = self.len.checked_sub(1)?;
        self.stacks[self.len].take()
    }
}

struct ClassInner {
    tables: Option<Tables>,
    /// Slots handed out so far, all chunks together.
    carved: u32,
    /// Free and still committed, most recently used first.
    warm: Chain,
    /// Free and discarded.
    cold: Chain,
    /// Carved, but without their guards, which the kernel refused.
    bare: Chain,
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
    fn new(class: u8) -> Result<Tables, map::Refused> {
        Ok(Tables {
            links: Table::new(MAX_SLOTS)?,
            // Not more than it needs: even unused, address space counts where that is limited (`ulimit -v`).
            starts: Table::new(MAX_SLOTS.div_ceil(per_chunk(class) as usize))?,
            numbers: Table::new(ADDRESS_SPACE / CHUNK)?,
            chunks: 0,
        })
    }

    fn add_chunk(&mut self, class: u8) -> Result<(), map::Refused> {
        let region = Region::reserve(chunk_len(class), chunk_len(class), false)?;
        let unit = region.base().addr() / CHUNK;
        let number = self.chunks;
        self.starts.at(number as usize).store(unit as u32, Relaxed);
        self.numbers.at(unit).store(number, Relaxed);
        // The table has it now; `Drop` unmaps by address.
        region.leak();
        self.chunks += 1;
        Ok(())
    }

    fn slot_start(&self, slot: u32, class: u8) -> usize {
        let chunk = self
            .starts
            .at((slot / per_chunk(class)) as usize)
            .load(Relaxed) as usize
            * CHUNK;
        chunk + (slot % per_chunk(class)) as usize * slot_len(class)
    }

    fn slot_at(&self, start: usize, class: u8) -> u32 {
        let chunk = start & !(chunk_len(class) - 1);
        self.numbers.at(chunk / CHUNK).load(Relaxed) * per_chunk(class)
            + ((start - chunk) / slot_len(class)) as u32
    }
}

impl Table {
    fn new(len: usize) -> Result<Table, map::Refused> {
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
                    bare: Chain::EMPTY,
                    low_water: 0,
                })
            }; CLASSES],
            guard,
            maps_left: AtomicUsize::new(maps_left),
        }
    }

    /// A stack of the class from the shared pool, and some more for the cache of one who will want them soon.
    pub(crate) fn take(&self, class: u8, more: Option<&mut Cache>) -> Result<Stack, NoStack> {
        let mut found = Handful::new();
        let bare = {
            let mut inner = self.classes[class as usize].lock();
            let most = match more {
                Some(_) => (inner.carved as usize / 4).clamp(1, BATCH),
                None => 1,
            };
            inner.take_free(class, most, &mut found);
            let bare = found.len == 0;
            if bare {
                inner.carve(class, most, &mut found)?;
            }
            bare
        };
        if bare {
            self.guard(class, &mut found)?;
        }
        let stack = found.pop().expect("one at least");
        if let Some(cache) = more {
            while let Some(stack) = found.pop() {
                cache.give(stack, self);
            }
        }
        Ok(stack)
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
            let ClassInner { warm, tables, .. } = &mut *inner;
            warm.push(links(tables), slot);
        }
    }

    /// Guards new stacks, without the lock. If the kernel refuses some, they are kept for later; an error if it refuses all.
    fn guard(&self, class: u8, new: &mut Handful) -> Result<(), NoStack> {
        let allowed = self.count_guards(new.len);
        let stacks = new.stacks[..allowed].iter().flatten();
        let guards = stacks.map(|stack| slot_region(stack.slot_start(), guard_size()));
        let (done, why) = match map::guard_all(self.guard, guards) {
            Ok(()) if allowed == new.len => return Ok(()),
            Ok(()) => (allowed, NoStack::Mappings),
            Err((done, refused)) => (done, refused.into()),
        };
        if self.guard == Guard::Mprotect {
            self.maps_left.fetch_add(allowed - done, Relaxed); // they are counted again when they are tried again
        }
        let mut inner = self.classes[class as usize].lock();
        while new.len > done
            && let Some(stack) = new.pop()
        {
            let slot = inner.slot_of(&stack);
            let ClassInner { bare, tables, .. } = &mut *inner;
            bare.push(links(tables), slot);
        }
        if done == 0 { Err(why) } else { Ok(()) }
    }

    /// How many of so many guards the mappings left allow, which are then counted.
    fn count_guards(&self, n: usize) -> usize {
        if self.guard == Guard::Install {
            return n;
        }
        let before = self
            .maps_left
            .fetch_update(Relaxed, Relaxed, |left| Some(left - n.min(left)));
        n.min(before.unwrap_or(0))
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
            let mut left = spare;
            while left > 0 {
                // The lock is not held over the system call.
                let mut some = Handful::new();
                c.lock().take_warm(class as u8, left.min(BATCH), &mut some);
                if some.len == 0 {
                    break;
                }
                left -= some.len;
                map::discard_all(some.stacks.iter().flatten().map(|stack| {
                    let start = stack.slot_start() + guard_size();
                    slot_region(start, stack.slot_end() - start)
                }));
                let mut inner = c.lock();
                while let Some(stack) = some.pop() {
                    let slot = inner.slot_of(&stack);
                    let ClassInner { cold, tables, .. } = &mut *inner;
                    cold.push(links(tables), slot);
                }
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

/// Why there is no stack. Made without the allocator: the goroutine that holds its lock may wait for the very P that asked.
#[derive(Clone, Copy, Debug)]
pub(crate) enum NoStack {
    Refused(map::Refused),
    /// In the mprotect fallback: too few mappings are left.
    Mappings,
    /// All slots of that size.
    Slots(usize),
}

impl From<map::Refused> for NoStack {
    fn from(refused: map::Refused) -> NoStack {
        NoStack::Refused(refused)
    }
}

impl fmt::Display for NoStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NoStack::Refused(refused) => refused.fmt(f),
            NoStack::Mappings => f.write_str(
                "no more goroutine stacks: this kernel has no MADV_GUARD_INSTALL (Linux 6.13), so each stack \
                 needs two of the process's memory mappings; raise vm.max_map_count, or use a newer kernel",
            ),
            NoStack::Slots(size) => {
                write!(f, "{MAX_SLOTS} goroutine stacks of {size} bytes exist already")
            }
        }
    }
}

/// The links of a class that has slots.
fn links(tables: &Option<Tables>) -> &Table {
    &tables
        .as_ref()
        .expect("slots exist, so the tables do")
        .links
}

impl ClassInner {
    fn tables(&self) -> &Tables {
        self.tables.as_ref().expect("slots exist, so the tables do")
    }

    /// Up to `most` stacks that are free, warm ones first.
    fn take_free(&mut self, class: u8, most: usize, into: &mut Handful) {
        self.take_warm(class, most, into);
        while into.len < most && self.cold.len > 0 {
            let slot = self.cold.pop(links(&self.tables)).expect("counted");
            into.push(self.stack(slot, class));
        }
    }

    fn take_warm(&mut self, class: u8, most: usize, into: &mut Handful) {
        while into.len < most && self.warm.len > 0 {
            let slot = self.warm.pop(links(&self.tables)).expect("counted");
            into.push(self.stack(slot, class));
        }
        self.low_water = self.low_water.min(self.warm.len);
    }

    /// Up to `most` stacks that need a guard: slots that have never been used. An error if there is not even one.
    fn carve(&mut self, class: u8, most: usize, into: &mut Handful) -> Result<(), NoStack> {
        if self.tables.is_none() {
            self.tables = Some(Tables::new(class)?);
        }
        while into.len < most {
            let slot = match self.bare.pop(links(&self.tables)) {
                Some(slot) => slot,
                None => match self.next_slot(class) {
                    Ok(slot) => slot,
                    Err(e) if into.len == 0 => return Err(e),
                    Err(_) => break,
                },
            };
            into.push(self.stack(slot, class));
        }
        Ok(())
    }

    fn next_slot(&mut self, class: u8) -> Result<u32, NoStack> {
        let slot = self.carved;
        if slot as usize >= MAX_SLOTS {
            return Err(NoStack::Slots(class_size(class)));
        }
        let tables = self.tables.as_mut().expect("made by `carve`");
        if slot == tables.chunks * per_chunk(class) {
            tables.add_chunk(class)?;
        }
        self.carved += 1;
        Ok(slot)
    }

    fn stack(&self, slot: u32, class: u8) -> Stack {
        let start = self.tables().slot_start(slot, class);
        Stack::new(start + slot_len(class), slot as usize, class)
    }

    fn slot_of(&self, stack: &Stack) -> u32 {
        self.tables().slot_at(stack.slot_start(), stack.class())
    }
}

impl Drop for Stacks {
    fn drop(&mut self) {
        for (class, c) in self.classes.iter().enumerate() {
            let class = class as u8;
            let Some(tables) = c.lock().tables.take() else {
                continue;
            };
            for chunk in 0..tables.chunks {
                let start = tables.slot_start(chunk * per_chunk(class), class);
                // SAFETY: mapped and leaked by `add_chunk` with this length; no goroutine of the runtime is left.
                drop(unsafe { Region::from_raw(start as *mut u8, chunk_len(class)) });
            }
        }
    }
}

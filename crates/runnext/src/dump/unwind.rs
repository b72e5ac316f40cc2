//! The call stack of a goroutine that is not running, from a copy of its stack.
//!
//! # Why this shape
//! Rust code has no frame pointers unless somebody asks for them, but every function has unwind information. A frame is one
//! lookup in the table of the image that holds the address, and a few additions; the outcome depends on the address alone, so it is
//! remembered. A hundred thousand goroutines stand at a few hundred addresses: unwinding them costs what copying their
//! stacks costs. Rejected: frame pointers (they would have to be asked for), framehop (the same, with the formats of three
//! other systems and two macro crates in tow).
//!
//! The copy is made by the kernel (`inspect::read_memory`), so a goroutine that goes on meanwhile gives a wrong stack at worst.
//! A stack ends where the coroutine's root frame has no plain rule.
//!
//! Of a thread that sleeps in the kernel only two registers are known, and the frame pointer is not one of them. But the standard
//! library is built with frame pointers, so nearly every such stack has a frame that is found by one. Its size is read from the
//! instructions that made it; the frame pointers of those around it are on the stack.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CfaRule, EhFrame, EhFrameHdr, EndianSlice, NativeEndian, ParsedEhFrameHdr,
    Register, RegisterRule, UnwindContext, UnwindSection,
};
use runnext_sys::inspect::{self, Image, UNWINDING, Unwinding};

/// Frames of one stack.
const FRAMES: usize = 64;
/// Bytes of one stack that are looked at: at first, and at most.
const FIRST: usize = 4 << 10;
const MOST: usize = 64 << 10;
/// Bytes of a function that are looked at for the size of its frame: those that set it up are no more.
const PROLOGUE: usize = 40;

type Slice = EndianSlice<'static, NativeEndian>;

struct Module {
    image: Image,
    bases: BaseAddresses,
    hdr: ParsedEhFrameHdr<Slice>,
    frame: EhFrame<Slice>,
}

/// How to get from a frame to its caller's.
#[derive(Clone, Copy)]
struct Step {
    /// The register the frame is based on, and the distance from there to the caller's stack pointer.
    base: u16,
    offset: i64,
    /// Where the kept registers and the return address are, from the caller's stack pointer; none: unchanged.
    kept: [Option<i64>; 2],
    ra: i64,
    /// The distance from the function's own stack pointer to the caller's, where it is based on the frame pointer and always the same.
    fixed: Option<usize>,
}

/// What unwinding needs, and remembers.
pub(super) struct Unwinder {
    how: Unwinding,
    modules: Vec<Module>,
    steps: HashMap<usize, Option<Step>>,
    context: UnwindContext<usize>,
    copy: Vec<u8>,
}

/// A part of a stack, copied.
struct Copy<'a> {
    at: usize,
    end: usize,
    bytes: &'a mut Vec<u8>,
}

impl Copy<'_> {
    /// The word at an address, if it is in the stack.
    fn word(&mut self, address: usize) -> Option<usize> {
        let offset = address.checked_sub(self.at)?;
        if offset + 8 > self.bytes.len() {
            self.extend()?;
        }
        let bytes = self.bytes.get(offset..offset + 8)?;
        Some(usize::from_ne_bytes(bytes.try_into().ok()?))
    }

    /// Reads more of it, once.
    fn extend(&mut self) -> Option<()> {
        let (had, want) = (self.bytes.len(), (self.end - self.at).min(MOST));
        if had >= want {
            return None;
        }
        self.bytes.resize(want, 0);
        let got = inspect::read_memory(self.at + had, &mut self.bytes[had..]);
        self.bytes.truncate(had + got);
        Some(())
    }
}

impl Unwinder {
    /// None on CPUs that nobody has told it about.
    pub(super) fn new() -> Option<Unwinder> {
        let how = UNWINDING?;
        let modules = inspect::images().into_iter().filter_map(Module::new);
        Some(Unwinder {
            how,
            modules: modules.collect(),
            steps: HashMap::new(),
            context: UnwindContext::new(),
            copy: Vec::with_capacity(MOST),
        })
    }

    /// The addresses in the stack of a coroutine that is suspended at `sp`; its stack ends at `end`.
    pub(super) fn suspended(&mut self, sp: usize, end: usize, pcs: &mut Vec<usize>) {
        let how = self.how;
        let mut stack = std::mem::take(&mut self.copy);
        if let Some(mut copy) = copy(sp, end, &mut stack)
            && let Some(pc) = copy.word(sp + how.saved_pc)
            && let Some(fp) = copy.word(sp + how.saved_kept[0])
            && let Some(base) = copy.word(sp + how.saved_kept[1])
        {
            self.walk(&mut copy, pc, sp + how.saved_size, [fp, base], pcs);
        }
        self.copy = stack;
    }

    /// The addresses in the stack of a thread that sleeps in the kernel, as far as they follow from these two registers.
    pub(super) fn asleep(&mut self, sp: usize, pc: usize, end: usize, pcs: &mut Vec<usize>) {
        let mut stack = std::mem::take(&mut self.copy);
        if let Some(mut copy) = copy(sp, end, &mut stack) {
            self.walk(&mut copy, pc, sp, [0, 0], pcs);
        }
        self.copy = stack;
    }

    fn walk(
        &mut self,
        stack: &mut Copy<'_>,
        mut pc: usize,
        mut sp: usize,
        mut kept: [usize; 2],
        pcs: &mut Vec<usize>,
    ) {
        for _ in 0..FRAMES {
            pcs.push(pc);
            // The call, not what follows it, which may be another function. The first is where it goes on.
            let at = if pcs.len() == 1 { pc } else { pc - 1 };
            let Some(step) = self.step(at) else { return };
            let Some((caller, sure)) = self.caller(&step, sp, kept) else {
                return;
            };
            if caller <= sp {
                return; // stacks grow down
            }
            let Some(ra) = stack.word(caller.wrapping_add_signed(step.ra as isize)) else {
                return;
            };
            if !sure && module_at(&self.modules, ra).is_none() {
                return; // the frame is of another size after all
            }
            for (value, rule) in kept.iter_mut().zip(step.kept) {
                if let Some(offset) = rule {
                    let at = caller.wrapping_add_signed(offset as isize);
                    *value = stack.word(at).unwrap_or(0);
                }
            }
            (pc, sp) = (ra, caller);
            if pc == 0 {
                return;
            }
        }
    }

    /// The caller's stack pointer, and whether it is certain.
    fn caller(&self, step: &Step, sp: usize, kept: [usize; 2]) -> Option<(usize, bool)> {
        let base = if step.base == self.how.sp {
            sp
        } else if step.base == self.how.kept[0] {
            kept[0]
        } else if step.base == self.how.kept[1] {
            kept[1]
        } else {
            return None;
        };
        match step.fixed {
            Some(size) if base == 0 => Some((sp.checked_add(size)?, false)),
            _ => Some((base.wrapping_add_signed(step.offset as isize), true)),
        }
    }

    fn step(&mut self, pc: usize) -> Option<Step> {
        if let Some(step) = self.steps.get(&pc) {
            return *step;
        }
        let module = module_at(&self.modules, pc);
        let step = module.and_then(|m| m.step(pc, &mut self.context, &self.how));
        self.steps.insert(pc, step);
        step
    }
}

/// The one whose code is at this address.
fn module_at(modules: &[Module], pc: usize) -> Option<&Module> {
    let has = |m: &&Module| (m.image.text.0..m.image.text.1).contains(&pc);
    modules.iter().find(has)
}

fn copy(sp: usize, end: usize, bytes: &mut Vec<u8>) -> Option<Copy<'_>> {
    let want = end.checked_sub(sp)?.min(FIRST);
    bytes.clear();
    bytes.resize(want, 0);
    let got = inspect::read_memory(sp, bytes);
    bytes.truncate(got);
    Some(Copy { at: sp, end, bytes })
}

impl Module {
    fn new(image: Image) -> Option<Module> {
        let at = image.eh_frame_hdr.as_ptr().addr();
        let bases = BaseAddresses::default().set_eh_frame_hdr(at as u64);
        let hdr = EhFrameHdr::new(image.eh_frame_hdr, NativeEndian)
            .parse(&bases, 8)
            .ok()?;
        let gimli::Pointer::Direct(start) = hdr.eh_frame_ptr() else {
            return None;
        };
        let start = start as usize;
        let len = image.end.checked_sub(start)?;
        // SAFETY: the tables lie in the mapping that the header is in, which is readable and stays (`inspect::images`).
        let bytes = unsafe { std::slice::from_raw_parts(start as *const u8, len) };
        Some(Module {
            image,
            bases: bases
                .set_eh_frame(start as u64)
                .set_text(image.text.0 as u64),
            hdr,
            frame: EhFrame::new(bytes, NativeEndian),
        })
    }

    fn step(&self, pc: usize, context: &mut UnwindContext<usize>, how: &Unwinding) -> Option<Step> {
        let (table, get) = (self.hdr.table()?, EhFrame::cie_from_offset);
        let function = table
            .fde_for_address(&self.frame, &self.bases, pc as u64, get)
            .ok()?;
        let row = function
            .unwind_info_for_address(&self.frame, &self.bases, context, pc as u64)
            .ok()?;
        let CfaRule::RegisterAndOffset { register, offset } = *row.cfa() else {
            return None;
        };
        let saved = |register: u16| match row.register(Register(register)) {
            Some(RegisterRule::Offset(offset)) => Some(offset),
            _ => None,
        };
        Some(Step {
            base: register.0,
            offset,
            kept: how.kept.map(saved),
            ra: saved(how.ra)?,
            fixed: (register.0 == how.kept[0])
                .then(|| frame_of(function.initial_address() as usize))
                .flatten(),
        })
    }
}

/// The size of a function's frame, if its first instructions tell.
fn frame_of(start: usize) -> Option<usize> {
    let mut code = [0; PROLOGUE];
    let got = inspect::read_memory(start, &mut code);
    inspect::fixed_frame(&code[..got])
}

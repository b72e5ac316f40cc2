//! Looking at the own process: memory that others write, and the code that is mapped.
//!
//! [`read_memory`] lets the kernel copy: an address that is not mapped, or a guard, is an error and not a fault, and what others
//! write meanwhile comes out old, new or mixed, but is no data race of the program's own.

use std::ffi::{c_int, c_void};
use std::slice;

/// Copies memory of this process, from `address` on. Returns how much could be read: less than asked for if the rest is not
/// readable, zero if nothing is or the kernel refuses.
///
/// ```
/// let text = b"some text";
/// let mut copy = [0; 4];
/// assert_eq!(runnext_sys::inspect::read_memory(text.as_ptr().addr(), &mut copy), 4);
/// assert_eq!(&copy, b"some");
/// assert_eq!(runnext_sys::inspect::read_memory(8, &mut copy), 0);
/// ```
pub fn read_memory(address: usize, to: &mut [u8]) -> usize {
    let local = libc::iovec {
        iov_base: to.as_mut_ptr().cast(),
        iov_len: to.len(),
    };
    let remote = libc::iovec {
        iov_base: address as *mut c_void,
        iov_len: to.len(),
    };
    // SAFETY: the kernel writes to `to` only, and checks what it reads.
    let n = unsafe { libc::process_vm_readv(libc::getpid(), &local, 1, &remote, 1, 0) };
    n.max(0) as usize
}

/// One loaded file: the program, or a library.
#[derive(Clone, Copy, Debug)]
pub struct Image {
    /// The addresses of its code.
    pub text: (usize, usize),
    /// The table that finds unwind information by address (`.eh_frame_hdr`), in memory.
    pub eh_frame_hdr: &'static [u8],
    /// Where the mapping that holds the unwind information ends.
    pub end: usize,
}

/// The images that are loaded and have unwind information. They are taken to stay loaded.
///
/// ```
/// let here = runnext_sys::inspect::images as fn() -> _ as usize;
/// assert!(runnext_sys::inspect::images().iter().any(|i| (i.text.0..i.text.1).contains(&here)));
/// ```
pub fn images() -> Vec<Image> {
    let mut found: Vec<Image> = Vec::new();
    // SAFETY: the callback gets the vector it casts back to.
    unsafe { libc::dl_iterate_phdr(Some(on_image), (&raw mut found).cast()) };
    found
}

unsafe extern "C" fn on_image(
    info: *mut libc::dl_phdr_info,
    _size: usize,
    found: *mut c_void,
) -> c_int {
    // SAFETY: given by `images`, and by the loader, which keeps its headers mapped.
    let (found, info) = unsafe { (&mut *found.cast::<Vec<Image>>(), &*info) };
    // SAFETY: as above.
    let headers = unsafe { slice::from_raw_parts(info.dlpi_phdr, info.dlpi_phnum.into()) };
    let base = info.dlpi_addr as usize;
    let span = |h: &libc::Elf64_Phdr| {
        let start = base + h.p_vaddr as usize;
        (start, start + h.p_memsz as usize)
    };
    let loads = || headers.iter().filter(|h| h.p_type == libc::PT_LOAD);
    let text = loads()
        .filter(|h| h.p_flags & libc::PF_X != 0)
        .map(span)
        .reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
    let table = headers
        .iter()
        .find(|h| h.p_type == libc::PT_GNU_EH_FRAME)
        .map(span);
    if let (Some(text), Some((start, end))) = (text, table)
        && let Some(mapping) = loads().map(span).find(|m| (m.0..m.1).contains(&start))
    {
        found.push(Image {
            text,
            // SAFETY: a segment of a loaded image, which is readable and stays.
            eh_frame_hdr: unsafe { slice::from_raw_parts(start as *const u8, end - start) },
            end: mapping.1,
        });
    }
    0
}

/// The registers that unwinding follows, by their DWARF numbers, and where a suspended coroutine keeps them.
#[derive(Clone, Copy, Debug)]
pub struct Unwinding {
    /// The stack pointer.
    pub sp: u16,
    /// The frame pointer, and the other register that frames may be based on.
    pub kept: [u16; 2],
    /// The return address.
    pub ra: u16,
    /// Offsets from the suspended stack pointer: of the address it goes on at, and of the kept registers.
    pub saved_pc: usize,
    /// As above.
    pub saved_kept: [usize; 2],
    /// How far above that the stack pointer is once it goes on.
    pub saved_size: usize,
}

/// Those of this CPU; none where the layout is not known here.
pub const UNWINDING: Option<Unwinding> = if cfg!(target_arch = "x86_64") {
    Some(Unwinding {
        sp: 7,
        kept: [6, 3],
        ra: 16,
        saved_pc: 0,
        saved_kept: [16, 8],
        saved_size: 24,
    })
} else {
    None
};

/// The frame of a function whose first instructions are these, where they set up a frame pointer and then a frame of one size: how far its
/// stack pointer is, from then on, below that of its caller. None: they do something else, or are of a CPU that is not known here.
///
/// ```
/// // push rbp; mov rbp, rsp; push r14; push rbx; sub rsp, 16
/// let code = [0x55, 0x48, 0x89, 0xe5, 0x41, 0x56, 0x53, 0x48, 0x83, 0xec, 0x10, 0x90];
/// let size = cfg!(target_arch = "x86_64").then_some(48); // and the return address
/// assert_eq!(runnext_sys::inspect::fixed_frame(&code), size);
/// assert_eq!(runnext_sys::inspect::fixed_frame(&code[1..]), None);
/// ```
pub fn fixed_frame(code: &[u8]) -> Option<usize> {
    if !cfg!(target_arch = "x86_64") {
        return None;
    }
    let code = code.strip_prefix(&[0xf3, 0x0f, 0x1e, 0xfa]).unwrap_or(code); // endbr64
    let mut code = code.strip_prefix(&[0x55, 0x48, 0x89, 0xe5])?; // push rbp; mov rbp, rsp
    let mut size = 16; // the return address, and that
    while let [0x50 | 0x53, rest @ ..] | [0x41, 0x54..=0x57, rest @ ..] = code {
        (code, size) = (rest, size + 8); // push rax or rbx, or r12 to r15
    }
    match code {
        // and rsp, …; lea r11, [rsp - …]: aligned, or so large that it is probed.
        [0x48, 0x83 | 0x81, 0xe4, ..] | [0x4c, 0x8d, 0x9c, 0x24, ..] => None,
        // sub rsp, …
        [0x48, 0x83, 0xec, n, ..] if *n < 0x80 => Some(size + usize::from(*n)),
        // The same, by four bytes; probed where a move to [rsp] follows.
        [0x48, 0x81, 0xec, _, _, _, _, 0x48, 0xc7, 0x04, 0x24, ..] => None,
        [0x48, 0x81, 0xec, a, b, c, d, ..] => {
            let n = u32::from_le_bytes([*a, *b, *c, *d]);
            Some(size + usize::try_from(n).ok()?)
        }
        _ => Some(size),
    }
}

/// Where a thread of this process entered the kernel, if it sleeps there: its stack pointer and program counter.
pub fn where_in_kernel(tid: i32) -> Option<(usize, usize)> {
    let text = std::fs::read_to_string(format!("/proc/self/task/{tid}/syscall")).ok()?;
    let mut words = text.split_whitespace().rev();
    let mut word = || usize::from_str_radix(words.next()?.strip_prefix("0x")?, 16).ok();
    let (pc, sp) = (word()?, word()?);
    Some((sp, pc))
}

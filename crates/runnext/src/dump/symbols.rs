//! Names for the addresses of a call stack, each looked up once.
//!
//! The stacks of a dump have few different addresses, which are remembered. Looking up an
//! address reads the program's debug information, which takes a millisecond the first time and is bounded by [`MOST`].

use std::collections::HashMap;
use std::sync::Arc;

use super::{Frame, Stack};

/// Addresses looked up in one dump; those after are shown as numbers.
const MOST: usize = 4096;

#[derive(Default)]
pub(super) struct Symbols {
    frames: HashMap<usize, Arc<[Frame]>>,
}

impl Symbols {
    /// The frames of a stack, innermost first, without those of the scheduler around them.
    pub(super) fn stack(&mut self, pcs: &[usize]) -> Stack {
        let mut frames = Vec::new();
        for (i, &pc) in pcs.iter().enumerate() {
            // A return address belongs to the call before it.
            let at = if i == 0 { pc } else { pc - 1 };
            frames.extend(self.frames_at(at).iter().cloned());
        }
        Stack::new(trim(&frames))
    }

    fn frames_at(&mut self, pc: usize) -> Arc<[Frame]> {
        if let Some(known) = self.frames.get(&pc) {
            return Arc::clone(known);
        }
        let mut found = Vec::new();
        if self.frames.len() < MOST {
            backtrace::resolve(pc as *mut _, |symbol| {
                let function = symbol.name().map(|name| format!("{name:#}"));
                found.push(Frame {
                    function: function.unwrap_or_else(|| format!("{pc:#x}")),
                    file: symbol.filename().map(|f| f.display().to_string()),
                    line: symbol.lineno(),
                });
            });
        }
        if found.is_empty() {
            found.push(Frame {
                function: format!("{pc:#x}"),
                file: None,
                line: None,
            });
        }
        let found: Arc<[Frame]> = found.into();
        self.frames.insert(pc, Arc::clone(&found));
        found
    }
}

/// Where the runtime's own sources were when it was built. Names of inlined functions need not have a path; their files do.
const OWN: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/src/");

fn is_in(frame: &Frame, part: &str) -> bool {
    frame.file.as_ref().is_some_and(|file| file.contains(part))
}

fn is_runtime(frame: &Frame) -> bool {
    let name = frame.function.trim_start_matches('<');
    is_in(frame, OWN)
        || is_in(frame, "/corosensei-")
        || name.starts_with("runnext::")
        || name.starts_with("corosensei::")
}

/// The standard library's, between a goroutine's root and its own function.
fn is_glue(frame: &Frame) -> bool {
    is_in(frame, "/library/std/src/panic")
        || is_in(frame, "/library/core/src/panic")
        || is_in(frame, "/library/core/src/ops/function.rs")
        || frame.function.contains("__rust_try")
}

/// From the call that parks, which is the last of the runtime's own at the inner end, to the goroutine's own first function.
fn trim(frames: &[Frame]) -> Vec<Frame> {
    let is_root = |f: &Frame| f.function.contains("sched::spawn") || is_in(f, "/sched/spawn.rs");
    let root = frames.iter().position(is_root);
    let mut own = &frames[..root.unwrap_or(frames.len())];
    while let [rest @ .., last] = own
        && is_glue(last)
    {
        own = rest;
    }
    let inner = own.iter().take_while(|f| is_runtime(f)).count();
    own[inner.saturating_sub(1)..].to_vec()
}

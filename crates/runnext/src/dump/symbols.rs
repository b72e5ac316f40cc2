//! Names for the addresses of a call stack, each looked up once.
//!
//! A dump of many goroutines has few different stacks, and those have few different addresses: both are remembered. Looking up an
//! address reads the program's debug information, which takes a millisecond the first time and is bounded by [`MOST`].

use std::collections::HashMap;
use std::sync::Arc;

use super::Frame;

/// Addresses looked up in one dump; those after are shown as numbers.
const MOST: usize = 4096;

#[derive(Default)]
pub(super) struct Symbols {
    frames: HashMap<usize, Arc<[Frame]>>,
    stacks: HashMap<Vec<usize>, Arc<[Frame]>>,
}

impl Symbols {
    /// The frames of a stack, innermost first, without those of the scheduler around them.
    pub(super) fn stack(&mut self, pcs: &[usize]) -> Arc<[Frame]> {
        if let Some(known) = self.stacks.get(pcs) {
            return Arc::clone(known);
        }
        let mut frames = Vec::new();
        for (i, &pc) in pcs.iter().enumerate() {
            // A return address belongs to the call before it.
            let at = if i == 0 { pc } else { pc - 1 };
            frames.extend(self.frames_at(at).iter().cloned());
        }
        let trimmed: Arc<[Frame]> = trim(&frames).into();
        self.stacks.insert(pcs.to_vec(), Arc::clone(&trimmed));
        trimmed
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

fn is_runtime(frame: &Frame) -> bool {
    let name = frame.function.trim_start_matches('<');
    [
        "runnext::",
        "runnext_core::",
        "runnext_sys::",
        "corosensei::",
    ]
    .iter()
    .any(|start| name.starts_with(start))
        || frame.function.starts_with("core::ops::function::")
}

/// From the call that parks, which is the last of the runtime's own at the inner end, to the goroutine's own first function.
fn trim(frames: &[Frame]) -> Vec<Frame> {
    let root = frames.iter().position(|f| {
        f.function.contains("sched::spawn") || f.function.contains("__rust_begin_short_backtrace")
    });
    let mut own = &frames[..root.unwrap_or(frames.len())];
    while let [rest @ .., last] = own
        && (last.function.starts_with("std::panic")
            || last.function.starts_with("core::panic")
            || last.function.starts_with("core::ops::function")
            || last.function.starts_with("<core::panic")
            || last.function.contains("__rust_try"))
    {
        own = rest;
    }
    let inner = own.iter().take_while(|f| is_runtime(f)).count();
    own[inner.saturating_sub(1)..].to_vec()
}

//! What only some goroutines have, and so is not in their headers.

use std::any::Any;
use std::panic::Location;

/// What only some goroutines have; allocated in user context when first needed.
#[derive(Default)]
pub(crate) struct Ext {
    pub(crate) name: Option<Box<str>>,
    /// Its `goroutine_local!` values, in the form `local` gives them.
    pub(crate) locals: Option<Box<dyn Any>>,
    /// What it holds of its thread's (`sched::hazards`).
    pub(crate) held: Vec<Held>,
}

/// Something that belongs to a thread, and which.
pub(crate) struct Held {
    pub(crate) id: u32,
    pub(crate) tid: i32,
    pub(crate) what: &'static str,
    pub(crate) site: &'static Location<'static>,
    pub(crate) told: bool,
}

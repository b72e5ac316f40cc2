//! What only some goroutines have, and so is not in their headers.

use std::any::Any;
use std::panic::Location;
use std::rc::Rc;

use crate::swallow;

/// What only some goroutines have; allocated in user context when first needed.
#[derive(Default)]
pub(crate) struct Ext {
    pub(crate) name: Option<Box<str>>,
    pub(crate) locals: Locals,
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

/// How often values are dropped that were made while others were: as often as POSIX gives to thread-locals.
const ROUNDS: usize = 4;

/// The `goroutine_local!` values of one goroutine or thread, by the addresses of their keys, oldest first. An `Rc` per value keeps it in
/// place while user code looks at it, even if that code makes further ones. They never leave their goroutine.
#[derive(Default)]
pub(crate) struct Locals(Vec<(usize, Rc<dyn Any>)>);

impl Locals {
    pub(crate) const fn new() -> Locals {
        Locals(Vec::new())
    }

    pub(crate) fn get(&self, key: usize) -> Option<Rc<dyn Any>> {
        let (_, value) = self.0.iter().find(|(k, _)| *k == key)?;
        Some(Rc::clone(value))
    }

    pub(crate) fn add(&mut self, key: usize, value: Rc<dyn Any>) {
        self.0.push((key, value));
    }

    /// Drops all values of the table that `look_at` gives access to, newest first and one by one: a value's drop may use those that are
    /// older, and make others. A panic in it has been reported, and ends nothing else. What is still made after some rounds is leaked.
    pub(crate) fn drop_all(look_at: impl Fn(&mut dyn FnMut(&mut Locals))) {
        let pop = || {
            let mut last = None;
            look_at(&mut |locals| last = locals.0.pop());
            last
        };
        for _ in 0..ROUNDS {
            let mut values = 0;
            look_at(&mut |locals| values = locals.0.len());
            for _ in 0..values {
                let last = pop();
                swallow::panics(move || drop(last));
            }
        }
        while let Some(last) = pop() {
            std::mem::forget(last);
        }
    }
}

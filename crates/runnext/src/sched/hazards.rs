//! Hazards: what a goroutine holds that belongs to its thread, and whether it has moved meanwhile.
//!
//! A list in the goroutine's `Ext`, written by the goroutine itself in user context. In debug builds it is looked at each time the
//! goroutine comes back from a switch; in all builds when the guard is dropped. A guard is reported once.
//!
//! # Context
//! `check` is in RT: it reads the list, and prints with write(2).

use std::fmt::Write;
use std::panic::Location;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering::*};

use crate::fatal::Line;
use crate::g::{G, Held};
use crate::m::{self, M};

/// Whether anything is checked; `RUNNEXT_DEBUG=hazards=…` of the last runtime that was built.
static ON: AtomicBool = AtomicBool::new(cfg!(debug_assertions));
static REPORTED: AtomicU64 = AtomicU64::new(0);

pub(crate) fn set(on: bool) {
    ON.store(on, Relaxed);
}

/// How many were reported, in the whole process.
pub(crate) fn reported() -> u64 {
    REPORTED.load(Relaxed)
}

/// The calling goroutine holds something of its thread's. None: nobody checks, or it is no goroutine.
pub(crate) fn hold(what: &'static str, site: &'static Location<'static>) -> Option<u32> {
    if !ON.load(Relaxed) {
        return None;
    }
    let (m, g) = current()?;
    // SAFETY: the goroutine itself, in user context.
    let held = &mut unsafe { g.ext() }.held;
    let id = held.last().map_or(0, |last| last.id + 1);
    held.push(Held {
        id,
        tid: m.tid(),
        what,
        site,
        told: false,
    });
    Some(id)
}

/// It does not any more.
pub(crate) fn release(id: u32) {
    let Some((m, g)) = current() else { return };
    if !g.has_ext() {
        return;
    }
    check(m, g);
    // SAFETY: the goroutine itself, in user context.
    unsafe { g.ext() }.held.retain(|held| held.id != id);
}

fn current() -> Option<(&'static M, &'static G)> {
    let m = m::current()?;
    Some((m, m.g()?))
}

/// Reports what the goroutine holds of another thread than the one it is on.
pub(super) fn check(m: &M, g: &G) {
    if !g.has_ext() {
        return;
    }
    let tid = m.tid();
    // SAFETY: by the goroutine itself, whose list nobody else touches; it is there, so nothing is allocated.
    for held in &mut unsafe { g.ext() }.held {
        if held.tid != tid && !held.told {
            held.told = true;
            report(g, held, tid);
        }
    }
}

#[cold]
fn report(g: &G, held: &Held, tid: i32) {
    REPORTED.fetch_add(1, Relaxed);
    let (taken, born) = (held.site, g.site());
    let mut line = Line::new();
    let _ = writeln!(
        line,
        "\nrunnext: hazard: goroutine {} took {} at {}:{}, on thread {}, and went on on thread {tid} while it held it \
         (spawned at {}:{}). It belongs to its thread: let go of it before calls that park, or hold a lock_os_thread() too.",
        g.id(),
        held.what,
        taken.file(),
        taken.line(),
        held.tid,
        born.file(),
        born.line(),
    );
    line.print();
}

//! The ring of those who have no P: plain threads, the monitor, handlers of threads that lost theirs.
//!
//! The monitor writes counters into it, at each of its looks while a trace is on: what no P has at hand. Each event has its time,
//! for they are rare.

use std::ptr;
use std::sync::atomic::Ordering::*;

use super::Observe;
use super::event::{Event, Kind};
use super::ring::Ring;
use crate::g::G;

impl Observe {
    /// Something happens to a goroutine, by somebody without a P.
    #[inline]
    pub(crate) fn note(&self, kind: Kind, arg: u32, g: &G) {
        if self.is_tracing() {
            self.note_slow(Event::of(kind, arg, ptr::from_ref(g).addr()));
        }
    }

    /// How many wait in the global queues.
    pub(crate) fn note_global(&self, queued: usize) {
        self.note_slow(Event::value(Kind::Queue, queued as u64));
    }

    /// CPU time of a group, and how many of its goroutines wait for a P.
    pub(crate) fn note_group(&self, lane: u32, cpu_ns: u64, queued: usize) {
        if let Some(ring) = *self.outside.lock() {
            ring.push_clock();
            ring.push(Event::value(Kind::Group, lane.into()));
            ring.push(Event::value(Kind::Value, cpu_ns / 1000));
            ring.push(Event::value(Kind::GroupQueue, lane.into()));
            ring.push(Event::value(Kind::Value, queued as u64));
        }
    }

    #[cold]
    fn note_slow(&self, event: Event) {
        if let Some(ring) = *self.outside.lock() {
            ring.push_clock();
            ring.push(event);
        }
    }

    /// A goroutine was made by somebody without a P.
    pub(super) fn born_outside(&self, g: &G) {
        if self.is_tracing() {
            let outside = self.outside.lock();
            if let Some(ring) = *outside {
                ring.push_clock();
                ring.push(Event::of(Kind::Born, 0, ptr::from_ref(g).addr()));
                ring.push(Event::value(Kind::Id, g.id()));
            }
        }
    }

    /// Starts or stops the trace of those without a P.
    ///
    /// # Safety
    /// The ring lives as long as the runtime.
    pub(crate) unsafe fn set_tracing(&self, ring: Option<&Ring>) {
        // SAFETY: the caller's promise.
        let ring: Option<&'static Ring> = ring.map(|ring| unsafe { &*ptr::from_ref(ring) });
        *self.outside.lock() = ring;
        self.tracing.store(ring.is_some(), SeqCst);
    }
}

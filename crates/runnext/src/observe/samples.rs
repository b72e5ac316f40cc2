//! Samples: how long single goroutines waited for a P, at the profile rate.
//!
//! The monitor says that one is due; the next goroutine to be queued is marked, and measured when it is dispatched. While little happens the
//! monitor sleeps for longer than until the next one: who takes a sample then wakes it.

use std::sync::atomic::Ordering::*;

use runnext_sys::{clock, futex};

use super::event::Kind;
use super::{Observe, SAMPLE, SAMPLES, set_coarse_ns};
use crate::g::{G, Mark, Timed};
use crate::p::P;

/// The last [`SAMPLES`] delays.
pub(crate) struct Samples {
    pub(crate) delays: [u64; SAMPLES],
    pub(crate) count: u64,
}

impl Samples {
    pub(super) fn push(&mut self, ns: u64) {
        self.delays[(self.count % SAMPLES as u64) as usize] = ns;
        self.count += 1;
    }
}

impl Observe {
    pub(crate) fn hz(&self) -> u32 {
        self.hz.load(Relaxed)
    }

    pub(crate) fn set_hz(&self, hz: u32) {
        self.hz.store(hz, Relaxed);
        self.due.store(hz > 0, Relaxed);
        self.next_due.store(0, Relaxed);
    }

    /// The monitor looks: it is `now`. Returns when it should look again at the latest for the samples' sake, if a P is at work.
    pub(crate) fn tick<'a>(&self, ps: impl Iterator<Item = &'a P>, now: u64) -> u64 {
        set_coarse_ns(now);
        let samples = self.hz() != 0;
        for p in ps {
            p.eye.doubt_clock();
            if samples && !p.eye.has(SAMPLE) {
                p.eye.flags.fetch_or(SAMPLE, Relaxed);
            }
        }
        if !samples {
            return u64::MAX;
        }
        let due = self.next_due.load(Relaxed);
        if now >= due {
            // From when it should have been: looks that come late must not make samples rarer.
            let next = Some(due + self.period()).filter(|next| *next > now);
            self.next_due
                .store(next.unwrap_or(now + self.period()), Relaxed);
            self.due.store(true, Relaxed);
        }
        // By then it has mostly come for another reason: it need not for this one alone.
        self.next_due.load(Relaxed) + self.period() / 4
    }

    /// A goroutine that its caller is about to queue will be timed.
    #[cold]
    pub(super) fn mark(&self, g: &G) {
        if let Some(timed) = self.time() {
            g.set_mark(timed);
        }
    }

    /// Somebody is timed from now on.
    #[cold]
    pub(super) fn time(&self) -> Option<Timed> {
        if self.hz() == 0 {
            return None;
        }
        let since = clock::now_ns();
        let ring = self.due.load(Relaxed) && self.due.swap(false, SeqCst);
        // Either we see that it sleeps, or it sees that none is due.
        if ring && self.oversleeps.swap(false, SeqCst) {
            self.next_due.store(since + self.period(), Relaxed);
            self.monitor.fetch_add(1, SeqCst);
            futex::wake_one(&*self.monitor);
        }
        let mark = if ring { Mark::Ring } else { Mark::Timed };
        Some(Timed { mark, since })
    }

    /// Whether the next goroutine to be queued is a sample: then nobody need come to say so. Without a rate nobody need ever.
    pub(crate) fn is_due(&self) -> bool {
        self.due.load(SeqCst) || self.hz() == 0
    }

    fn period(&self) -> u64 {
        1_000_000_000 / u64::from(self.hz().max(1))
    }

    /// The monitor is about to sleep: who takes the sample that is due wakes it, so that the next one comes in time. Then it looks whether
    /// somebody has taken it (`is_due`), and says so if it will be awake by itself.
    pub(crate) fn sleeps(&self) {
        self.oversleeps.store(true, SeqCst);
    }

    /// It will not sleep for longer than until the next sample.
    pub(crate) fn wakes_in_time(&self) {
        self.oversleeps.store(false, Relaxed);
    }

    /// A goroutine was queued by somebody without a P of its runtime.
    pub(crate) fn queued_outside(&self, g: &G) {
        if self.due.load(Relaxed) {
            self.mark(g);
        }
        self.note(Kind::Wake, 0, g);
    }
}

//! Calls that put the thread to sleep inside the kernel, for scenarios that ask what else runs meanwhile.

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::{Report, now_ns};

/// A way to block, and for how long.
#[derive(Debug)]
pub struct Block {
    span: Duration,
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Sleep,
    Usleep,
    /// Writing to the first asks a plain thread for a byte, which arrives in the second after the span.
    Pipe(Mutex<(PipeWriter, PipeReader)>),
    Lock(Arc<Held>),
}

#[derive(Debug, Default)]
struct Held {
    lock: Mutex<()>,
    /// From when the thread has the lock until the task has had it.
    held: AtomicBool,
}

impl Block {
    /// `sleep` (std), `usleep` (C), `pipe` (a read of an empty pipe) or `mutex` (a std lock that another thread holds).
    pub fn new(kind: &str, span: Duration) -> Block {
        let kind = match kind {
            "sleep" => Kind::Sleep,
            "usleep" => Kind::Usleep,
            "pipe" => Kind::Pipe(Mutex::new(answering_thread(span))),
            "mutex" => Kind::Lock(holding_thread(span)),
            other => panic!("kind={other}: use sleep, usleep, pipe or mutex"),
        };
        Block { span, kind }
    }

    /// Blocks the calling thread once.
    pub fn once(&self) {
        match &self.kind {
            Kind::Sleep => std::thread::sleep(self.span),
            Kind::Usleep => {
                // SAFETY: no memory is involved.
                unsafe { libc::usleep(self.span.as_micros() as u32) };
            }
            Kind::Pipe(ends) => {
                let mut ends = ends.lock().expect("no task panics");
                ends.0.write_all(&[1]).expect("ask");
                ends.1.read_exact(&mut [0]).expect("answer");
            }
            Kind::Lock(other) => {
                while !other.held.load(Ordering::Acquire) {
                    std::hint::spin_loop();
                }
                drop(other.lock.lock().expect("no task panics"));
                other.held.store(false, Ordering::Release);
            }
        }
    }
}

fn answering_thread(span: Duration) -> (PipeWriter, PipeReader) {
    let (mut asked, ask) = std::io::pipe().expect("pipe");
    let (answer, mut answering) = std::io::pipe().expect("pipe");
    std::thread::spawn(move || {
        while asked.read_exact(&mut [0]).is_ok() {
            std::thread::sleep(span);
            answering.write_all(&[1]).expect("answer");
        }
    });
    (ask, answer)
}

/// Holds the lock for `span` at a time, and takes it again once the task has had it.
fn holding_thread(span: Duration) -> Arc<Held> {
    let shared = Arc::new(Held::default());
    let held = shared.clone();
    std::thread::spawn(move || {
        loop {
            let guard = held.lock.lock().expect("no task panics");
            held.held.store(true, Ordering::Release);
            std::thread::sleep(span);
            drop(guard);
            while held.held.load(Ordering::Acquire) {
                std::thread::sleep(Duration::from_micros(20));
            }
        }
    });
    shared
}

/// The longest gap that one task saw during each try of another.
#[derive(Debug, Default)]
pub struct Gaps {
    last: AtomicU64,
    widest: AtomicU64,
    over: AtomicBool,
    tries: Mutex<Vec<f64>>,
}

impl Gaps {
    /// The observed task is running right now; false when it can stop.
    pub fn alive(&self) -> bool {
        let now = now_ns();
        let last = self.last.swap(now, Ordering::Relaxed);
        if last != 0 {
            self.widest.fetch_max(now - last, Ordering::Relaxed);
        }
        !self.over.load(Ordering::Relaxed)
    }

    /// Blocks once and notes the longest gap meanwhile; a gap that still lasts counts.
    pub fn try_once(&self, block: &Block) {
        self.widest.store(0, Ordering::Relaxed);
        // An observed task that has not run at all yet has been waiting since now.
        let _ = self
            .last
            .compare_exchange(0, now_ns(), Ordering::Relaxed, Ordering::Relaxed);
        block.once();
        let open = now_ns().saturating_sub(self.last.load(Ordering::Relaxed));
        let gap = self.widest.load(Ordering::Relaxed).max(open);
        self.tries
            .lock()
            .expect("no task panics")
            .push(gap as f64 / 1e6);
    }

    /// Lets the observed task end.
    pub fn stop(&self) {
        self.over.store(true, Ordering::Relaxed);
    }

    /// The figures.
    pub fn report(&self, scenario: &str) -> Report {
        let mut tries = self.tries.lock().expect("no task panics").clone();
        Report::new(scenario).percentiles("gap_ms_", &mut tries)
    }
}

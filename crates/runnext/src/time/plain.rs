//! Functions that a timer starts without a runtime: those of `after_func` on a plain thread.
//!
//! # Why this shape
//! The reactor's thread is there for whoever waits for a time without a runtime. It rings a waker, which here starts a thread for the
//! function: on its own it must not run what may take long. Rejected: a thread that sleeps for each timer (most are stopped before
//! their time has come, and a program may have many).
//!
//! # Invariants
//! I1  `runs` counts firings that have not run to their end. Who raises it from zero starts a thread, which runs the function until it is
//!     zero again. So it never runs twice at once, and never less often than it fired.
//! I2  An alarm that was replaced or stopped may ring still, but its turn is over: it does nothing.
//! I3  The reactor's thread drops no function either: what it captured may block in its drop, and every other timer would wait for
//!     that. A firing that is the last to know its timer leaves it to a thread of its own.
//!
//! # Context
//! User context. The locks are std's. That of the state is held for a few instructions, by goroutines too, who are not made to stop meanwhile
//! (`sched::shield`); an alarm is made before it is taken, and what was replaced is dropped after it, since that may be user code.

use std::io;
use std::sync::{Arc, Mutex};
use std::task::{Wake, Waker};
use std::thread;

use crate::say;
use crate::sched::netpoll::ReactorAlarm;
use crate::sched::shield::{self, Shielded};
use crate::swallow;

/// A function and its timer.
pub(super) struct Plain {
    state: Mutex<State>,
    /// Locked by the thread that runs it (I1); the next may find it about to let go.
    f: Mutex<Box<dyn FnMut() + Send>>,
}

struct State {
    /// There while it is set.
    alarm: Option<ReactorAlarm>,
    /// How many settings and stops there were: no two have one number.
    made: u64,
    /// That of the one that counts.
    turn: u64,
    runs: usize,
}

impl State {
    fn next(&mut self) -> u64 {
        self.made += 1;
        self.made
    }
}

impl Plain {
    /// Not set.
    pub(super) fn new(f: Box<dyn FnMut() + Send>) -> Arc<Plain> {
        Arc::new(Plain {
            state: Mutex::new(State {
                alarm: None,
                made: 0,
                turn: 0,
                runs: 0,
            }),
            f: Mutex::new(f),
        })
    }

    fn state(&self) -> Shielded<'_, State> {
        shield::lock(&self.state)
    }

    /// Sets it to fire at `when`, and not at what it was set to before. True: it was set, and had not fired.
    ///
    /// # Errors
    /// There is no thread that could wait for it: all is as before.
    pub(super) fn arm(self: &Arc<Plain>, when: u64) -> io::Result<bool> {
        let turn = self.state().next();
        let firing = Arc::new(Firing {
            task: Some(Arc::clone(self)),
            turn,
        });
        // Outside the lock, since it makes calls.
        let alarm = ReactorAlarm::new(when, &Waker::from(Arc::clone(&firing)))?;
        let (before, late) = {
            let mut state = self.state();
            state.turn = turn;
            let before = state.alarm.replace(alarm);
            (
                before,
                state.alarm.as_ref().is_some_and(ReactorAlarm::has_rung),
            )
        };
        if late {
            firing.wake(); // it may have come before its turn counted, and then did nothing; else it has had that
        }
        Ok(before.is_some())
    }

    /// It does not fire any more, until set. True: it was set, and had not fired.
    pub(super) fn stop(&self) -> bool {
        let before = {
            let mut state = self.state();
            state.turn = state.next();
            state.alarm.take()
        };
        before.is_some()
    }

    /// Runs the function, as often as it has fired.
    fn run(self: Arc<Plain>) {
        {
            let mut f = self.f.lock().unwrap_or_else(|e| e.into_inner());
            loop {
                // The hook has reported a panic; there is nobody else to tell.
                swallow::panics(&mut *f);
                let mut state = self.state();
                state.runs -= 1;
                if state.runs == 0 {
                    break;
                }
            }
        }
        // A panic in the drop of what it captured has nobody to go to either.
        swallow::panics(move || drop(self));
    }
}

/// What the alarm of one setting rings.
struct Firing {
    /// There until it is dropped.
    task: Option<Arc<Plain>>,
    turn: u64,
}

impl Drop for Firing {
    fn drop(&mut self) {
        if let Some(last) = self.task.take().and_then(Arc::into_inner) {
            // Where there is no thread to be had it is dropped here after all, but does not take this one with it.
            swallow::panics(move || start(move || drop(last))); // I3
        }
    }
}

/// On a thread of its own.
fn start(f: impl FnOnce() + Send + 'static) -> io::Result<()> {
    let thread = thread::Builder::new().name("runnext-timer".into());
    thread.spawn(f).map(drop)
}

impl Wake for Firing {
    fn wake(self: Arc<Self>) {
        let Some(task) = &self.task else {
            return;
        };
        let (_rung, first) = {
            let mut state = task.state();
            if state.turn != self.turn {
                return; // I2
            }
            state.turn = state.next();
            state.runs += 1;
            (state.alarm.take(), state.runs == 1)
        };
        if !first {
            return; // I1
        }
        let own = Arc::clone(task);
        if let Err(e) = start(move || own.run()) {
            task.state().runs = 0;
            say::line(format_args!(
                "runnext: the function of a timer does not run, for want of a thread: {e}"
            ));
        }
    }
}

//! Who is meant by a note, and who is not.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};

use super::{MIN_RUN_AT_HOME_NS, MIN_RUN_NS, min_run, min_run_at_home};
use crate::sched::call::{self, Call};
use crate::{Runtime, go, m};

/// What a checkpoint does that finds a note for the turn `meant(running)`: whether the goroutine that waited ran, and whether the
/// caller counts as a hog now.
fn read_note(meant: fn(u32) -> u32) -> (bool, bool) {
    // Nobody else leaves notes.
    let alone = Runtime::builder().procs(1).preemption(false);
    // SAFETY: the goroutines below keep no reference into a thread-local over a runtime call.
    let rt = unsafe { alone.build() }.unwrap();
    rt.run(move || {
        let ran = Arc::new(AtomicBool::new(false));
        let told = Arc::clone(&ran);
        let other = go(move || told.store(true, Relaxed));
        let m = m::current().unwrap();
        let g = m.g().unwrap();
        assert!(g.is_light());
        {
            let _call = Call::brief();
            m.note.leave(meant(m.p().slice.load(Relaxed)), true);
        }
        call::checkpoint();
        let found = (ran.load(Relaxed), !g.is_light());
        other.join().unwrap();
        found
    })
}

#[test]
fn a_note_for_the_running_turn_stops_it() {
    assert_eq!(read_note(|running| running), (true, true));
}

#[test]
fn a_note_for_an_earlier_turn_stops_nobody() {
    assert_eq!(read_note(|running| running.wrapping_sub(1)), (false, false));
}

/// What a goroutine is left alone for: it depends on how often it ran on and on.
#[test]
fn only_hogs_are_stopped_at_once() {
    // SAFETY: as above.
    let rt = unsafe { Runtime::builder().procs(1).preemption(false).build() }.unwrap();
    rt.run(|| {
        let m = m::current().unwrap();
        let (shared, g) = (m.shared(), m.g().unwrap());
        assert!(g.is_light() && !g.is_known_light());
        assert_eq!(min_run(shared, g), MIN_RUN_NS);
        g.lose_weight();
        assert!(g.is_known_light());
        assert_eq!(
            (min_run(shared, g), min_run_at_home(shared, g)),
            (MIN_RUN_NS, MIN_RUN_NS)
        );
        g.gain_weight();
        assert!(!g.is_light());
        assert_eq!(
            (min_run(shared, g), min_run_at_home(shared, g)),
            (0, MIN_RUN_AT_HOME_NS)
        );
        // A hog that waits is not one any more: else one that was stopped once would be again and again, and stay a hog for good.
        g.lose_weight();
        assert!(g.is_light() && !g.is_known_light());
        assert_eq!(min_run(shared, g), MIN_RUN_NS);
    });
}

/// A new goroutine from a place, and what is thought of it; `blamed`: it is stopped, having run on and on.
fn new_from_here(blamed: bool) -> (u64, u64) {
    let told = go(move || {
        let m = m::current().unwrap();
        let (shared, g) = (m.shared(), m.g().unwrap());
        assert!(g.is_light() && !g.is_known_light());
        let thought = (min_run(shared, g), min_run_at_home(shared, g));
        if blamed {
            shared.blame(g);
        }
        thought
    });
    told.join().unwrap()
}

/// Each of many loops was left alone for a millisecond, and so each kept somebody waiting once.
#[test]
fn what_others_from_the_same_place_did_is_presumed_of_a_new_one() {
    // SAFETY: as above.
    let rt = unsafe { Runtime::builder().procs(1).preemption(false).build() }.unwrap();
    rt.run(|| {
        let (light, hog) = ((MIN_RUN_NS, MIN_RUN_NS), (0, MIN_RUN_AT_HOME_NS));
        let before = [(); 3].map(|()| new_from_here(true));
        assert_eq!(before, [light; 3]);
        assert_eq!(new_from_here(true), hog);
        assert_eq!(new_from_here(false), hog);
        // That one has ended before it was stopped.
        assert_eq!(new_from_here(true), light);
        assert_eq!(go(|| 1).join().unwrap(), 1); // from elsewhere
    });
}

//! The word, one step at a time.

use super::*;

fn begun() -> Life {
    let life = Life::new();
    assert!(!life.is_alive(), "never used");
    life.begin();
    assert!(life.is_alive() && !life.is_done() && !life.is_detached());
    life
}

const NOBODY: Finished = Finished {
    told: false,
    held: false,
};

#[test]
fn a_handle_that_stays_keeps_the_result() {
    let life = begun();
    assert_eq!(life.finish(true), NOBODY);
    assert!(life.is_done() && !life.is_alive());
    assert!(!life.leave_cpu(), "the handle is left");
    assert_eq!(life.give_up(), GivenUp::After);
    let mut cleaned = false;
    assert!(life.drop_ref(|| cleaned = true) && cleaned);
}

#[test]
fn a_handle_that_goes_leaves_the_result_to_the_goroutine() {
    for (clean, seen_before) in [(true, true), (false, false)] {
        let life = begun();
        assert_eq!(life.give_up(), GivenUp::Before { registered: false });
        assert!(life.is_unwanted() && life.is_detached());
        let held = life.finish(!seen_before).held;
        assert_eq!(held, !clean);
        if held {
            let mut cleaned = false;
            assert!(!life.drop_ref(|| cleaned = true) && cleaned);
        }
        assert!(life.leave_cpu());
    }
}

#[test]
fn references_keep_the_header_and_not_the_result() {
    let life = begun();
    life.add_ref();
    assert_eq!(life.give_up(), GivenUp::Before { registered: false });
    assert!(life.is_unwanted() && !life.is_detached());
    assert_eq!(life.finish(false), NOBODY);
    assert!(!life.leave_cpu());
    let mut cleaned = false;
    assert!(life.drop_ref(|| cleaned = true) && cleaned);
}

#[test]
fn who_is_registered_is_told_or_given_back() {
    let life = begun();
    assert!(life.register(false) && life.is_registered());
    assert!(life.withdraw() && !life.is_registered());
    assert!(life.register(true));
    assert_eq!(life.give_up(), GivenUp::Before { registered: true });
    assert_eq!(life.finish(false), NOBODY);

    for foreign in [false, true] {
        let life = begun();
        assert!(life.register(foreign));
        let finished = life.finish(true);
        assert_eq!((finished.told, finished.held), (true, foreign));
        assert!(!life.withdraw());
        assert_eq!(life.give_up(), GivenUp::After);
    }

    let life = begun();
    assert_eq!(life.finish(true), NOBODY);
    assert!(!life.register(false), "it has ended");
}

#[test]
fn one_that_was_disowned_is_its_own() {
    let life = begun();
    life.disown();
    assert!(life.is_alive() && life.is_unwanted() && life.is_detached());
    assert_eq!(life.finish(false), NOBODY);
    assert!(life.leave_cpu());
}

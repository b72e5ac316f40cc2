//! Limits that move, and what becomes of those who are stopped by them.

use super::*;

/// A rise took five looks in a row at which somebody waited: groups with as many goroutines as there are Ps have nothing queued while they run.
#[test]
fn a_limit_rises_though_some_looks_find_nobody_waiting() {
    let mut feedback = Feedback::new(Duration::from_millis(1), NOW);
    feedback.samples(1, 1);
    feedback.look(false, NOW + 10 * MS);
    assert_eq!(feedback.limit(), ALL / 2);
    let looks = 2..;
    for (look, waits) in looks.zip([true, true, true, true, false].repeat(10)) {
        feedback.look(waits, NOW + look * 10 * MS);
    }
    assert_eq!(feedback.limit(), ALL);
}

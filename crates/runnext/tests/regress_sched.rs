//! Bugs of the scheduler's edges: what it prints, its signals, how it stops and refuses.

mod common;

use common::{child, runtime};
use runnext::go;

/// A goroutine's panic ended the process where stderr is a pipe that nobody reads: its announcement panicked, too, inside the hook.
#[test]
fn a_panic_that_cannot_be_announced_ends_only_its_goroutine() {
    child(&[("RUNNEXT_DEBUG", "no_such_setting=1")], || {
        let mut ends = [0; 2];
        // SAFETY: a place for two descriptors, which are nobody else's.
        unsafe {
            assert_eq!(libc::pipe(ends.as_mut_ptr()), 0);
            assert_eq!(libc::dup2(ends[1], 2), 2);
            assert_eq!(libc::close(ends[0]), 0);
        }
        let joined = runtime(1).run(|| go(|| panic!("unheard")).join());
        assert!(joined.is_err());
    })
    .passed();
}

//! Bugs of channels and selects, one test for each, named after it.

use std::time::Duration;

use runnext::chan::TryRecvError;
use runnext::time::{Ticker, Timer};

/// A timer's channel that was closed gave another value after a reset.
#[test]
fn a_closed_timer_went_off_after_a_reset() {
    let timer = Timer::new(Duration::MAX);
    assert!(timer.c().close());
    assert!(!timer.reset(Duration::ZERO));
    assert_eq!(timer.c().try_recv(), Err(TryRecvError::Disconnected));
    assert!(!timer.stop());
    let ticker = Ticker::new(Duration::from_nanos(1));
    assert!(ticker.c().close());
    ticker.reset(Duration::from_nanos(1));
    assert!(ticker.c().recv().is_err());
}

//! The policy of task groups under a simulator: shares, sleepers, quotas, classes, the governor, and random traces.

mod classes;
mod fair;
mod governor;
mod quota;
mod random;
mod sim;
mod sleep;

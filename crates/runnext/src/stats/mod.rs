//! What the scheduler has done, in numbers.

#[allow(dead_code)] // the scheduler records from its next change on
pub(crate) mod histogram;

pub use histogram::Histogram;

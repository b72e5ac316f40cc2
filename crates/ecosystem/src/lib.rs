//! runnext with crates that others wrote. There is nothing here but tests and examples.

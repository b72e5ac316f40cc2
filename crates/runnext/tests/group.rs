//! Task groups through the public API.

#[path = "group/accounts.rs"]
mod accounts;
#[path = "group/adaptive.rs"]
mod adaptive;
#[path = "group/bad_input.rs"]
mod bad_input;
#[path = "group/basics.rs"]
mod basics;
#[path = "group/blocked.rs"]
mod blocked;
mod common;
#[path = "group/lending.rs"]
mod lending;
#[path = "group/shares.rs"]
mod shares;
#[path = "group/stress.rs"]
mod stress;
#[path = "group/wakes.rs"]
mod wakes;

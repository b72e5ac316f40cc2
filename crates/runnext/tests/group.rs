//! Task groups through the public API.

#[path = "group/basics.rs"]
mod basics;
mod common;
#[path = "group/shares.rs"]
mod shares;

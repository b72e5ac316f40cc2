//! runnext with crates that others wrote: what they need to run on goroutines, which is little, and, under `tests/` and
//! `examples/`, that they do.
//!
//! | crate                    | how                                                              | what to know                              |
//! |--------------------------|------------------------------------------------------------------|-------------------------------------------|
//! | rustls                   | `Stream` and `StreamOwned` over `runnext::net::TcpStream`        | nothing                                   |
//! | tungstenite              | `accept` and `client` over `runnext::net::TcpStream`             | nothing                                   |
//! | ureq                     | as it is, or with [`client::Sockets`]                            | as it is it blocks threads, which are replaced |
//! | hyper                    | feature `hyper` of runnext                                       | handlers that block do it in a goroutine  |
//! | rusqlite, any C library  | as it is, calls that take long in `runnext::blocking`            | nothing                                   |
//! | futures that need tokio  | [`on_tokio::OnTokio`]                                            | never hold tokio's `EnterGuard` over a call that parks |
//!
//! How others behave that keep something in thread-locals is told in `runnext::hazard`.

pub mod certificates;
pub mod client;
pub mod on_tokio;

/// The program of the README, so that it compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;

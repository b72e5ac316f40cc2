//! Goroutines for Rust.

//! A pipeline of goroutines that ends when it is told to, or when its time is over.
//!
//! ```sh
//! cargo run --release -p runnext --example pipeline
//! ```

use std::time::Duration;

use runnext::chan::{self, Receiver};
use runnext::context::Context;
use runnext::{go, select};

/// Natural numbers, until nobody wants more.
fn numbers(ctx: &Context) -> Receiver<u64> {
    let (sender, receiver) = chan::bounded(0);
    let done = ctx.done();
    go(move || {
        for n in 1.. {
            select! {
                send(sender, n) -> sent => if sent.is_err() { return },
                recv(done) -> _ => return,
            }
        }
    });
    receiver
}

/// `f` of what comes, on `workers` goroutines at once; order is not kept.
fn map(from: Receiver<u64>, workers: usize, f: fn(u64) -> u64) -> Receiver<u64> {
    let (sender, receiver) = chan::bounded(workers);
    for _ in 0..workers {
        let (from, sender) = (from.clone(), sender.clone());
        // Ends when the stage before it, or the one after it, has ended.
        go(move || from.into_iter().all(|n| sender.send(f(n)).is_ok()));
    }
    receiver
}

#[runnext::main]
fn main() {
    let ctx = Context::background().with_timeout(Duration::from_secs(10));
    let squares = map(numbers(&ctx), 4, |n| n * n);
    let sum: u64 = squares.iter().take(1000).sum();
    println!("a thousand squares: {sum}");
    ctx.cancel();
    println!("after cancel: {:?}", ctx.err().unwrap());
    // The first stage sees it, closes its channel by ending, and so on down the line.
    let left = squares.iter().count();
    println!("{left} more were under way");

    let ctx = Context::background().with_timeout(Duration::from_millis(50));
    let counted = map(numbers(&ctx), 4, |n| n).iter().count();
    println!("{counted} numbers in 50 ms, then: {:?}", ctx.err().unwrap());
}

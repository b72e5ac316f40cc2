//! What each primitive costs on this machine: the least of several rounds, per call.
//!
//! `cargo run --release -p runnext-sys --example costs`

use runnext_sys::{clock, futex, map, poll, thread};
use std::hint::black_box;
use std::sync::atomic::AtomicU32;

fn cost<T>(name: &str, calls: u64, mut f: impl FnMut() -> T) {
    let round = || {
        let start = clock::now_ns();
        for _ in 0..calls {
            black_box(f());
        }
        clock::now_ns() - start
    };
    let best = std::iter::repeat_with(round).take(7).min().unwrap_or(0);
    println!("{name:<36} {:>9.1} ns", best as f64 / calls as f64);
}

fn main() -> std::io::Result<()> {
    clock::init();
    let word = AtomicU32::new(0);
    let me = clock::ThreadCpu::of(thread::tid());
    let stat = thread::StatReader::open(thread::tid())?;
    let poller = poll::Poller::new()?;
    let mut events = poll::Events::new();
    let page = map::page_size();
    let region = map::Region::reserve(page, page, false)?;

    cost("clock::now_ns", 100_000, clock::now_ns);
    cost("clock::ticks", 100_000, clock::ticks);
    cost("clock::ticks_to_ns", 100_000, || {
        clock::ticks_to_ns(black_box(1000))
    });
    cost("clock::thread_cpu_ns", 10_000, clock::thread_cpu_ns);
    cost("clock::ThreadCpu::read", 10_000, || me.read());
    cost("thread::tid", 10_000, thread::tid);
    cost("thread::StatReader::state", 10_000, || stat.state());
    cost("futex::wait, other value", 10_000, || futex::wait(&word, 1));
    cost("futex::wake_one, nobody there", 10_000, || {
        futex::wake_one(&word)
    });
    cost("Poller::poll, nothing there", 10_000, || {
        poller.poll(&mut events, Some(0)).ok()
    });
    cost("Poller::notify, pending", 100_000, || poller.notify());
    cost("Poller::notify and blocking poll", 10_000, || {
        poller.notify();
        poller.poll(&mut events, None).ok()
    });
    cost("Region::reserve and drop", 1_000, || {
        map::Region::reserve(1 << 20, 1 << 16, false).is_ok()
    });
    cost("Region touch and discard, one page", 1_000, || {
        // SAFETY: inside the region, which has no guard yet.
        unsafe { region.base().write_volatile(1) };
        region.discard(0, page);
    });
    cost("Region::guard, the better kind", 1_000, || {
        region.guard(map::guard_support(), 0, page).is_ok()
    });
    Ok(())
}

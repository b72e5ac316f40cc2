//! What a preempted goroutine may be in the middle of, each as a load that checks itself.
#![allow(dead_code)] // the tests use all of it, the example most

use std::backtrace::Backtrace;
use std::cell::Cell;
use std::collections::HashMap;
use std::error::Error;
use std::fmt::Write as _;
use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::panic::{self, AssertUnwindSafe};
use std::path::PathBuf;
use std::process::Command;
use std::sync::{Arc, Condvar, Mutex, RwLock};
use std::time::{Duration, Instant};

use runnext::go;

use crate::stall::Dice;

/// One round of a load, with the dice of its goroutine.
pub type Load = fn(&mut Dice);

/// Every load by name.
pub const LOADS: &[(&str, Load)] = &[
    ("malloc", malloc),
    ("map", map),
    ("panics", panics),
    ("files", files),
    ("processes", processes),
    ("tcp", tcp),
    ("locks", locks),
    ("locals", locals),
    ("errors", errors),
    ("growth", growth),
    ("backtrace", backtrace),
];

/// Runs goroutines of every load until `end`; how many rounds each load made. From a goroutine.
pub fn run_all(copies: usize, end: Instant, seed: u64) -> Vec<(&'static str, u64)> {
    let started: Vec<_> = LOADS
        .iter()
        .map(|&(name, load)| {
            let copies: Vec<_> = (0..copies as u64)
                .map(|copy| {
                    let mut dice = Dice(seed ^ (copy + 1).wrapping_mul(0x9e37_79b9_7f4a_7c15));
                    go(move || {
                        let mut rounds = 0u64;
                        while rounds == 0 || Instant::now() < end {
                            load(&mut dice);
                            rounds += 1;
                        }
                        rounds
                    })
                })
                .collect();
            (name, copies)
        })
        .collect();
    started
        .into_iter()
        .map(|(name, copies)| {
            let rounds = copies
                .into_iter()
                .map(|c| c.join().unwrap_or_else(|_| panic!("{name} failed")))
                .sum();
            (name, rounds)
        })
        .collect()
}

/// Blocks of all sizes, filled with a pattern that is looked at before they go.
fn malloc(dice: &mut Dice) {
    let mut blocks: Vec<(u8, Vec<u8>)> = Vec::new();
    for _ in 0..200 {
        if dice.below(3) > 0 || blocks.is_empty() {
            let (mark, log) = (dice.next() as u8, dice.below(14));
            let size = 1 + dice.below(1 << log) as usize;
            blocks.push((mark, vec![mark; size]));
        } else {
            let (mark, mut block) = blocks.swap_remove(dice.below(blocks.len() as u64) as usize);
            if dice.below(2) == 0 {
                block.resize(block.len() * 2, mark); // realloc
            }
            assert!(block.iter().all(|b| *b == mark), "a block was overwritten");
        }
    }
    for (mark, block) in blocks {
        assert!(block.iter().all(|b| *b == mark), "a block was overwritten");
    }
}

/// Maps with random hashers, whose seeds come from a thread-local.
fn map(dice: &mut Dice) {
    let mut map = HashMap::new();
    let mut sum = 0u64;
    for key in 0..100u64 {
        let value = dice.below(1000);
        sum += value;
        map.insert(key, value);
    }
    assert_eq!(map.values().sum::<u64>(), sum);
    assert!((0..100).all(|key| map.contains_key(&key)));
}

/// Panics that are caught on the way, and panics that end their goroutine.
fn panics(dice: &mut Dice) {
    struct Drops<'a>(&'a Cell<u64>);
    impl Drop for Drops<'_> {
        fn drop(&mut self) {
            assert!(std::thread::panicking());
            self.0.set(self.0.get() + 1);
        }
    }
    fn deep(n: u64, drops: &Cell<u64>, value: u64) -> u64 {
        let _drops = Drops(drops);
        if n == 0 {
            panic::resume_unwind(Box::new(value));
        }
        deep(n - 1, drops, value) + 1
    }
    let (depth, value, drops) = (dice.below(20), dice.next(), Cell::new(0));
    let caught = panic::catch_unwind(AssertUnwindSafe(|| deep(depth, &drops, value)));
    let payload: Box<dyn std::any::Any + Send> = caught.unwrap_err();
    assert_eq!(payload.downcast_ref(), Some(&value));
    assert_eq!(drops.get(), depth + 1);
    assert!(!std::thread::panicking());

    let escaped = go(move || -> u64 { panic::resume_unwind(Box::new(value)) }).join();
    assert_eq!(escaped.unwrap_err().downcast_ref(), Some(&value));
}

fn files(dice: &mut Dice) {
    let path: PathBuf = std::env::temp_dir().join(format!(
        "runnext-stall-{}-{:x}",
        std::process::id(),
        dice.next()
    ));
    let text: Vec<u8> = (0..4096).map(|_| dice.next() as u8).collect();
    std::fs::write(&path, &text).expect("written");
    let read = std::fs::read(&path).expect("read");
    std::fs::remove_file(&path).expect("removed");
    assert_eq!(read, text);
}

fn processes(dice: &mut Dice) {
    let text = format!("{:x}", dice.next());
    let output = Command::new("/bin/echo")
        .arg(&text)
        .output()
        .expect("echo runs");
    assert!(output.status.success());
    assert_eq!(output.stdout, format!("{text}\n").as_bytes());
}

/// Blocking sockets of std, both ends in goroutines.
fn tcp(dice: &mut Dice) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let address = listener.local_addr().expect("its address");
    let server = go(move || {
        let (mut peer, _) = listener.accept().expect("a client");
        let mut text = Vec::new();
        peer.read_to_end(&mut text).expect("read");
        text.reverse();
        peer.write_all(&text).expect("written");
    });
    let text: Vec<u8> = (0..1000).map(|_| dice.next() as u8).collect();
    let mut stream = TcpStream::connect(address).expect("connected");
    stream.write_all(&text).expect("written");
    stream
        .shutdown(std::net::Shutdown::Write)
        .expect("half closed");
    let mut back = Vec::new();
    stream.read_to_end(&mut back).expect("read");
    server.join().expect("the server does not panic");
    assert!(back.iter().rev().eq(&text));
}

/// The locks of std, which block threads, contended among goroutines.
fn locks(dice: &mut Dice) {
    static SHARED: RwLock<(u64, u64)> = RwLock::new((0, 0));
    let pair = Arc::new((Mutex::new(0u64), Condvar::new()));
    let turns = 1 + dice.below(8);
    let other = {
        let pair = Arc::clone(&pair);
        go(move || {
            for turn in 0..turns {
                let (lock, changed) = &*pair;
                let mut at = lock.lock().unwrap();
                while *at != 2 * turn + 1 {
                    at = changed.wait(at).unwrap();
                }
                *at += 1;
                changed.notify_all();
            }
        })
    };
    for turn in 0..turns {
        let (lock, changed) = &*pair;
        let mut at = lock.lock().unwrap();
        while *at != 2 * turn {
            at = changed.wait(at).unwrap();
        }
        *at += 1;
        changed.notify_all();
        drop(at);
        if dice.below(3) == 0 {
            let mut both = SHARED.write().unwrap();
            both.0 += 1;
            both.1 += 1;
        } else {
            let both = SHARED.read().unwrap();
            assert_eq!(both.0, both.1);
        }
    }
    other.join().expect("no panic");
    assert_eq!(*pair.0.lock().unwrap(), 2 * turns);
}

/// Preemption keeps a goroutine on its thread: between two runtime calls a thread-local is its own.
fn locals(dice: &mut Dice) {
    thread_local! {
        static MARK: Cell<u64> = const { Cell::new(0) };
        static TEXT: std::cell::RefCell<String> = const { std::cell::RefCell::new(String::new()) };
    }
    #[inline(never)]
    fn between_calls(mark: u64) {
        MARK.set(mark);
        TEXT.with_borrow_mut(|text| {
            text.clear();
            for i in 0..200 {
                let _ = write!(text, "{i} {mark} ");
            }
        });
        let thread = std::thread::current().id();
        let spin = Instant::now();
        while spin.elapsed() < Duration::from_micros(200) {
            std::hint::spin_loop();
        }
        assert_eq!(std::thread::current().id(), thread);
        let marks = TEXT.with_borrow(|text| text.matches(&mark.to_string()).count());
        assert!(marks >= 200);
    }
    let mark = dice.next();
    between_calls(mark);
    runnext::yield_now();
}

fn errors(dice: &mut Dice) {
    fn fails(n: u64) -> Result<u64, Box<dyn Error + Send + Sync>> {
        if n == 0 {
            let number: u64 = "not a number".parse()?;
            return Ok(number);
        }
        fails(n - 1).map_err(|e| format!("{n}: {e}").into())
    }
    let depth = dice.below(30);
    let text = fails(depth).unwrap_err().to_string();
    assert!(text.ends_with("invalid digit found in string"), "{text}");
    assert_eq!(text.matches(": ").count() as u64, depth);
    assert_eq!(format!("{:>8.3}|{:#06x}", 1.5, 255), "   1.500|0x00ff");
}

fn growth(dice: &mut Dice) {
    let n = 1000 + dice.below(20_000);
    let numbers: Vec<u64> = (0..n).collect();
    let mut grown = Vec::new();
    for number in &numbers {
        grown.push(*number);
    }
    assert_eq!(grown.iter().sum::<u64>(), n * (n - 1) / 2);
}

fn backtrace(dice: &mut Dice) {
    // Symbols are the expensive part, and behind one lock: now and then.
    let trace = Backtrace::force_capture();
    if dice.below(50) == 0 {
        assert!(!format!("{trace}").is_empty());
    }
}

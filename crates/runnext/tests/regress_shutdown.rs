//! Bugs of the end of a runtime: what becomes of futures whose drop waits, and of goroutines that go on.

mod common;

use std::future::{Future, pending, poll_fn};
use std::io::{Read, Write};
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicBool, AtomicI32, AtomicUsize, Ordering::*};
use std::sync::{Arc, mpsc};
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use common::{
    Count, built, child, holdings, holdings_after, runtime, shows, thread_id, until, until_asleep,
};
use runnext::sync::Mutex;
use runnext::{JoinHandle, Runtime, block_on, chan, future};

/// Calls a function when it is dropped.
struct AtDrop<F: FnMut()>(F);

impl<F: FnMut()> Drop for AtDrop<F> {
    fn drop(&mut self) {
        (self.0)();
    }
}

/// A future that is always queued or polled.
async fn busy() {
    poll_fn(|cx| {
        cx.waker().wake_by_ref();
        Poll::<()>::Pending
    })
    .await;
}

/// A worker dropped futures as goroutines that did not run: a call that blocks in the drop returned at once, and left what it had queued
/// in a list behind.
#[test]
fn the_drop_of_a_future_that_a_worker_drops_may_block() {
    const FUTURES: usize = 20;
    child(&[], || {
        for _ in 0..20 {
            let (rt, served) = (runtime(2), Arc::new(AtomicUsize::new(0)));
            let (tx, rx) = chan::bounded(0);
            let handles: Vec<_> = (0..FUTURES)
                .map(|_| {
                    let (rx, served) = (rx.clone(), Arc::clone(&served));
                    let at_drop = AtDrop(move || {
                        assert_eq!(rx.recv(), Ok(7));
                        served.fetch_add(1, SeqCst);
                    });
                    rt.spawn(async move {
                        let _at_drop = at_drop;
                        busy().await;
                    })
                })
                .collect();
            let serves = std::thread::spawn(move || (0..FUTURES).try_for_each(|_| tx.send(7)));
            drop(rt);
            assert!(handles.into_iter().all(|handle| handle.join().is_err()));
            serves.join().unwrap().unwrap();
            assert_eq!(served.load(SeqCst), FUTURES);
        }
    })
    .passed();
}

/// What a future in the tests below waits for.
#[derive(Clone, Copy, Debug)]
enum Waits {
    Asleep,
    Queued,
}

/// A future that runs `at_drop`, and waits or is queued until then.
fn until_dropped(
    rt: &Runtime,
    waits: Waits,
    at_drop: impl FnMut() + Send + 'static,
) -> JoinHandle<()> {
    let at_drop = AtDrop(at_drop);
    let handle = rt.spawn(async move {
        let _at_drop = at_drop;
        match waits {
            Waits::Asleep => pending().await,
            Waits::Queued => busy().await,
        }
    });
    if let Waits::Asleep = waits {
        until(|| shows(&rt.dump(), &handle, "await"));
    }
    handle
}

/// Who dropped the futures of a runtime waited for ever in the drop of one that joins another: that one was still to be dropped, by whom?
#[test]
fn the_drop_of_a_future_may_join_another_of_its_runtime() {
    type Join = fn(JoinHandle<()>) -> std::thread::Result<()>;
    let joins: [Join; 2] = [JoinHandle::join, |handle| block_on(handle)];
    for join in joins {
        for waits in [
            [Waits::Asleep, Waits::Asleep],
            [Waits::Asleep, Waits::Queued],
            [Waits::Queued; 2],
        ] {
            for joiner in [0, 1] {
                let (rt, joined) = (runtime(1), Arc::new(AtomicUsize::new(0)));
                let place = Arc::new(Mutex::new(None::<JoinHandle<()>>));
                // Either of the two is found first.
                let handles = [0, 1].map(|which| {
                    let (place, joined) = (Arc::clone(&place), Arc::clone(&joined));
                    until_dropped(&rt, waits[which], move || {
                        if which != joiner {
                            return;
                        }
                        let other = place.lock().take().unwrap();
                        assert!(join(other).is_err());
                        joined.fetch_add(1, SeqCst);
                    })
                });
                let [first, second] = handles;
                let (joins, joined_by_it) = if joiner == 0 {
                    (first, second)
                } else {
                    (second, first)
                };
                *place.lock() = Some(joined_by_it);
                drop(rt);
                assert!(joins.join().is_err());
                assert_eq!(joined.load(SeqCst), 1, "{waits:?}, {joiner}");
            }
        }
    }
}

/// A goroutine that was abandoned while it computed went on calling the runtime, for ever if no call had to wait: one that fills an unbounded
/// channel filled memory.
#[test]
fn an_abandoned_goroutine_stops_at_its_next_call_that_may_block() {
    static TIED: AtomicI32 = AtomicI32::new(0);
    fn fill(tx: chan::Sender<usize>) {
        while tx.send(7).is_ok() {}
    }
    let ways: [fn(chan::Sender<usize>); 3] = [
        fill,
        |tx| {
            let _tied = runnext::lock_os_thread();
            TIED.store(thread_id(), SeqCst);
            fill(tx);
        },
        |tx| {
            runnext::blocking(|| (0..1_000_000).for_each(|n| tx.send(n).unwrap()));
            fill(tx);
        },
    ];
    child(&[], || {
        for (at, way) in ways.into_iter().enumerate() {
            let threads = holdings().threads;
            for procs in [1, 2] {
                let (tx, rx) = chan::unbounded();
                let rt = runtime(procs);
                let goroutine = rt.go(move || way(tx));
                until(|| rx.len() > 1_000);
                assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
                // One that is tied to its thread sleeps there; others are gone with theirs.
                let tied = usize::from(at == 1) * procs;
                until(|| holdings().threads == threads + tied);
                if at == 1 {
                    until_asleep(TIED.load(SeqCst), libc::SYS_futex);
                }
                assert!(!goroutine.is_finished());
            }
        }
    })
    .passed();
}

/// Locks that it holds are given back, and what it ends with reaches whoever waits: such calls do not block.
#[test]
fn an_abandoned_goroutine_that_computes_gives_back_its_locks_and_may_end() {
    let (rt, lock) = (runtime(2), Arc::new(Mutex::new(0)));
    let (begun, stopped) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
    let computes = {
        let (begun, stopped) = (Arc::clone(&begun), Arc::clone(&stopped));
        move || {
            begun.fetch_add(1, SeqCst);
            while !stopped.load(SeqCst) {}
        }
    };
    let ends = {
        let computes = computes.clone();
        rt.go(move || {
            computes();
            "done"
        })
    };
    let locks = Arc::clone(&lock);
    rt.go(move || {
        let mut guard = locks.lock();
        computes();
        *guard = 7;
    });
    until(|| begun.load(SeqCst) == 2);
    let waits = std::thread::spawn(move || *lock.lock());
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 2);
    stopped.store(true, SeqCst);
    assert_eq!(waits.join().unwrap(), 7);
    assert_eq!(ends.join().unwrap(), "done");
}

/// One that was inside a blocking call when its runtime was dropped, and ended after that, left the runtime's descriptors open, and its memory.
#[test]
fn what_a_runtime_has_goes_with_its_last_thread() {
    const ROUNDS: usize = 20;
    let rounds = |keep: &mut Vec<JoinHandle<()>>| {
        for _ in 0..ROUNDS {
            let (rt, release) = (runtime(1), Arc::new(AtomicBool::new(false)));
            let (begun, released) = (Arc::new(AtomicBool::new(false)), Arc::clone(&release));
            let begins = Arc::clone(&begun);
            keep.push(rt.go(move || {
                runnext::blocking(|| {
                    begins.store(true, SeqCst);
                    while !released.load(SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            }));
            until(|| begun.load(SeqCst));
            assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
            release.store(true, SeqCst);
        }
    };
    child(&[], move || {
        let start = holdings();
        runtime(1).run(|| ());
        let before = holdings_after(&start);
        let mut handles = Vec::new();
        rounds(&mut handles);
        assert!(handles.drain(..).all(|handle| handle.join().is_ok()));
        until(|| holdings().threads == before.threads);
        let after = holdings();
        assert_eq!(after.fds, before.fds);
        // One for each round, at least, if they kept their memory. Some are the allocator's.
        assert!(after.maps < before.maps + ROUNDS, "{before:?}, {after:?}");
        // Handles keep the memory, and nothing else.
        rounds(&mut handles);
        until(|| holdings().threads == before.threads);
        assert_eq!(holdings().fds, before.fds);
    })
    .passed();
}

/// One whose processor was taken away meanwhile stays where its blocking call ends, with its thread, but not with the descriptors.
#[test]
fn a_thread_that_stays_for_good_closes_what_it_had() {
    child(&[], || {
        runtime(1).run(|| ());
        let before = holdings();
        let (begun, release) = <(Arc<AtomicUsize>, Arc<AtomicBool>)>::default();
        for round in 1..=5 {
            let (rt, begins, released) = (runtime(1), Arc::clone(&begun), Arc::clone(&release));
            rt.go(move || {
                runnext::blocking(|| {
                    begins.fetch_add(1, SeqCst);
                    while !released.load(SeqCst) {
                        std::thread::sleep(Duration::from_millis(1));
                    }
                });
            });
            until(|| begun.load(SeqCst) == round);
            rt.run(|| ()); // on the only processor
            assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
        }
        release.store(true, SeqCst);
        until(|| holdings().fds == before.fds);
    })
    .passed();
}

/// Nor does one that sleeps with its goroutine.
#[test]
fn a_thread_that_sleeps_with_its_goroutine_closes_what_it_had() {
    child(&[], || {
        runtime(1).run(|| ());
        let before = holdings();
        for _ in 0..5 {
            let rt = runtime(2);
            let tied = rt.go(|| {
                let _tied = runnext::lock_os_thread();
                runnext::chan::never::<()>().recv()
            });
            until(|| rt.dump().contains("[chan receive, locked to thread]"));
            assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
            drop(tied);
        }
        until(|| holdings().fds == before.fds);
    })
    .passed();
}

/// One that waited for a processor just then, in a call that never blocks, stayed there for ever, with all it held.
#[test]
fn who_waits_for_a_processor_when_all_stops_gives_back_its_locks() {
    child(&[], || {
        let rt = built(Runtime::builder().procs(1).preemption(false));
        let (mut here, there) = UnixStream::pair().expect("sockets");
        let (lock, release) = <(Arc<std::sync::Mutex<()>>, Arc<AtomicBool>)>::default();
        let (tell, told) = mpsc::channel();
        let held = Arc::clone(&lock);
        rt.go(move || {
            let guard = held.lock().expect("free");
            tell.send(thread_id()).expect("the test waits");
            (&there).read_exact(&mut [0]).expect("a byte"); // it loses its processor
            drop(runnext::go(|| ()));
            drop(guard);
        });
        let waits = told.recv().expect("it starts");
        let (hogs, released) = (Arc::new(AtomicBool::new(false)), Arc::clone(&release));
        let begun = Arc::clone(&hogs);
        rt.go(move || {
            begun.store(true, SeqCst);
            while !released.load(SeqCst) {
                std::hint::spin_loop();
            }
        });
        until(|| hogs.load(SeqCst));
        here.write_all(b"!").expect("room");
        until_asleep(waits, libc::SYS_futex);
        rt.shutdown(Duration::ZERO);
        drop(lock.lock().expect("given back"));
        release.store(true, SeqCst);
    })
    .passed();
}

fn poll(count: &Arc<Count>, nap: &mut future::Sleep) -> Poll<()> {
    let waker = Waker::from(Arc::clone(count));
    std::pin::pin!(nap).poll(&mut Context::from_waker(&waker))
}

/// A sleep that was polled in a runtime last lost its wake-up with it, though whoever waits need not be there.
#[test]
fn a_sleep_outlives_the_runtime_that_polled_it() {
    let (rt, count) = (runtime(1), Arc::<Count>::default());
    let mut nap = future::sleep(Duration::from_secs(3600));
    assert!(rt.run(|| poll(&count, &mut nap)).is_pending());
    drop(rt);
    assert_eq!(count.0.load(SeqCst), 1); // it must look for another clock
    nap.reset(runnext::time::Instant::now() + Duration::from_millis(1));
    block_on(nap);
}

/// The same if it is polled there when the runtime has stopped, by one that goes on with what it computes.
#[test]
fn a_sleep_polled_in_a_runtime_that_has_stopped_ends() {
    let (rt, count) = (runtime(1), Arc::<Count>::default());
    let (begun, stopped) = <(Arc<AtomicBool>, Arc<AtomicBool>)>::default();
    let polls = {
        let (count, begun, stopped) =
            (Arc::clone(&count), Arc::clone(&begun), Arc::clone(&stopped));
        rt.go(move || {
            begun.store(true, SeqCst);
            while !stopped.load(SeqCst) {}
            let mut nap = future::sleep(Duration::from_millis(1));
            let polled = poll(&count, &mut nap);
            (polled, nap)
        })
    };
    until(|| begun.load(SeqCst));
    assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
    stopped.store(true, SeqCst);
    let (polled, nap) = polls.join().unwrap();
    until(|| polled.is_ready() || count.0.load(SeqCst) == 1);
    drop(nap);
}

type Wakers = Arc<std::sync::Mutex<Vec<Waker>>>;

/// A runtime goes that has two futures which wait. The first is dropped first, and rings the second in `ring`; the second does `then` when it is dropped.
fn goes_with_two(
    ring: impl FnOnce(&Wakers) + Send + 'static,
    then: impl FnOnce(&Wakers) + Send + 'static,
) {
    let (rt, wakers) = (runtime(2), Wakers::default());
    let at_drop = |f: Box<dyn FnOnce(&Wakers) + Send>| {
        let (wakers, mut f) = (Arc::clone(&wakers), Some(f));
        AtDrop(move || f.take().unwrap()(&wakers))
    };
    let (first, second) = (at_drop(Box::new(ring)), at_drop(Box::new(then)));
    let first = rt.spawn(async move {
        let _at_drop = first;
        pending::<()>().await;
    });
    let left = Arc::clone(&wakers);
    let second = rt.spawn(async move {
        let _at_drop = second;
        poll_fn(|cx| {
            left.lock().unwrap().push(cx.waker().clone());
            Poll::<()>::Pending
        })
        .await;
    });
    until(|| !wakers.lock().unwrap().is_empty());
    drop(rt);
    assert!(first.join().is_err() && second.join().is_err());
}

/// Who rang dropped, in the middle of what it did: under its own lock a future whose drop takes that. Half of all runtimes with HTTP/2 connections never went away.
#[test]
fn who_rings_does_not_drop() {
    child(&[], || {
        for _ in 0..50 {
            let before = holdings();
            goes_with_two(
                |wakers| wakers.lock().unwrap().drain(..).for_each(Waker::wake),
                |wakers| drop(wakers.lock().unwrap()),
            );
            until(|| holdings().threads == before.threads); // who helped is gone
        }
    })
    .passed();
}

/// Neither must it be left to who rang, if that is the one who drops: here it waits for the drop.
#[test]
fn a_drop_may_wait_for_that_of_one_it_has_rung() {
    child(&[], || {
        let (dropped, drops) = std::sync::mpsc::channel();
        goes_with_two(
            move |wakers| {
                wakers.lock().unwrap().drain(..).for_each(Waker::wake);
                drops.recv().unwrap();
            },
            move |_| dropped.send(()).unwrap(),
        );
    })
    .passed();
}

/// Calls that never block.
const BRIEF: [(&str, fn()); 5] = [
    ("try_send", || chan::unbounded().0.try_send(1).unwrap_or(())),
    ("go", || drop(runnext::go(|| ()))),
    ("notify", || runnext::sync::Condvar::new().notify_all()),
    ("cancel", || {
        runnext::context::Context::background()
            .with_cancel()
            .cancel()
    }),
    ("after_func", || {
        drop(runnext::time::after_func(Duration::from_secs(100), || ()))
    }),
];

/// A goroutine that had lost its processor when its runtime stopped stayed for ever in the next call it made, of whatever kind, with the locks it had.
#[test]
fn what_never_blocks_works_for_the_abandoned() {
    child(&[], || {
        let computes = || {
            let begin = std::time::Instant::now();
            while begin.elapsed() < Duration::from_millis(50) {}
        };
        let sleeps = || std::thread::sleep(Duration::from_millis(50));
        for (name, call) in BRIEF {
            for meanwhile in [computes as fn(), sleeps] {
                let (rt, lock) = (runtime(1), Arc::new(std::sync::Mutex::new(())));
                let (began, begins) = std::sync::mpsc::channel();
                let at_drop = {
                    let lock = Arc::clone(&lock);
                    AtDrop(move || drop(lock.lock()))
                };
                rt.spawn(async move {
                    let _at_drop = at_drop;
                    pending::<()>().await;
                });
                rt.go(move || {
                    let held = lock.lock();
                    began.send(()).unwrap();
                    meanwhile();
                    call();
                    drop(held);
                });
                begins.recv().unwrap();
                rt.go(|| ()).join().unwrap(); // on the processor that it has lost
                eprintln!("{name}"); // should it hang
                drop(rt);
            }
        }
    })
    .passed();
}

/// A goroutine that was abandoned inside `blocking` went on taking what others sent, for as long as they did.
#[test]
fn who_is_abandoned_in_a_blocking_section_receives_nothing_more() {
    child(&[], || {
        let rt = runtime(1);
        let (tx, rx) = chan::unbounded();
        let (thread, goes_on) = (
            Arc::new(AtomicI32::new(0)),
            Arc::new(AtomicBool::new(false)),
        );
        let taken = Arc::new(AtomicUsize::new(0));
        let (told, waits, took) = (
            Arc::clone(&thread),
            Arc::clone(&goes_on),
            Arc::clone(&taken),
        );
        rt.go(move || {
            runnext::blocking(|| {
                told.store(thread_id(), SeqCst);
                while !waits.load(SeqCst) {
                    std::thread::yield_now();
                }
                while rx.recv().is_ok() {
                    took.fetch_add(1, SeqCst);
                }
            });
        });
        until(|| thread.load(SeqCst) != 0);
        assert_eq!(rt.shutdown(Duration::ZERO).abandoned, 1);
        (0..10).for_each(|i| tx.send(i).unwrap());
        goes_on.store(true, SeqCst);
        until_asleep(thread.load(SeqCst), libc::SYS_futex);
        assert_eq!(taken.load(SeqCst), 0);
    })
    .passed();
}

//! The public names, as programs outside use them: each with the types it takes and gives. What compiles here must go on
//! compiling.

use std::cell::Cell;
use std::future::Future;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::panic::{self, Location, RefUnwindSafe, UnwindSafe};
use std::time::Duration;

use runnext::chan::{self, Receiver, RecvError, Select, SendError, Sender};
use runnext::context::{Context, ContextError};
use runnext::net::{TcpListener, TcpStream, UdpSocket, UnixDatagram, UnixListener, UnixStream};
use runnext::stats::{Histogram, Metric, SchedStats};
use runnext::sync::{
    Barrier, Condvar, Mutex, MutexGuard, Once, OnceLock, RwLock, RwLockReadGuard, RwLockWriteGuard,
    Semaphore, WaitGroup,
};
use runnext::time::{self, Instant, Ticker, Timer};
use runnext::{
    CpuLimit, Goroutine, JoinHandle, OsThreadGuard, Priority, Runtime, Scope, ScopedJoinHandle,
    TaskGroup, go, select,
};

const MS: Duration = Duration::from_millis(1);

fn is_send_sync_clone<T: Send + Sync + Clone>() {}
fn is_future<F: Future + Unpin>(_: &F) {}

runnext::goroutine_local! { static LOCAL: u32 = 7; }

/// As what they are named after: `catch_unwind` takes closures that use them.
#[test]
fn unwinding() {
    fn is_unwind_safe<T: UnwindSafe + RefUnwindSafe>() {}
    is_unwind_safe::<(Runtime, Goroutine, JoinHandle<u8>, TaskGroup)>();
    is_unwind_safe::<(Mutex<u8>, RwLock<u8>, Condvar, Barrier, Semaphore)>();
    is_unwind_safe::<(WaitGroup, Once, OnceLock<u8>)>();
    is_unwind_safe::<MutexGuard<'_, Cell<u8>>>();
    is_unwind_safe::<(
        RwLockReadGuard<'_, Cell<u8>>,
        RwLockWriteGuard<'_, Cell<u8>>,
    )>();
    is_unwind_safe::<(Sender<u8>, Receiver<u8>, Context, Timer, Ticker)>();
    is_unwind_safe::<(TcpStream, TcpListener, UdpSocket)>();
    is_unwind_safe::<(UnixStream, UnixListener, UnixDatagram, runnext::fs::File)>();

    let (group, lock) = (WaitGroup::new(), Mutex::new(1));
    assert!(panic::catch_unwind(|| group.done()).is_err());
    let panicked = panic::catch_unwind(|| {
        *lock.lock() = 2;
        let _held = lock.lock();
        panic!("while it is held");
    });
    assert!(panicked.is_err());
    assert_eq!(*lock.lock(), 2, "no poison");
}

#[test]
fn runtime() {
    let builder = Runtime::builder()
        .procs(2)
        .max_threads(1000)
        .stack_size(256 << 10)
        .time_slice(Duration::from_millis(10))
        .preemption(true)
        .cpu_limit(CpuLimit::Unlimited);
    // SAFETY: nothing here keeps a borrow of a thread-local over a call.
    let rt: Runtime = unsafe { builder.build() }.unwrap();
    let borrowed = [1, 2];
    assert_eq!(rt.run(|| borrowed.len()), 2);
    let handle: JoinHandle<u8> = rt.go(|| 3u8);
    assert_eq!(handle.join().unwrap(), 3);
    let stats: SchedStats = rt.stats();
    assert_eq!(stats.max_procs, 2);
    let end = rt.shutdown(Duration::from_secs(1));
    let (finished, abandoned): (usize, usize) = (end.finished, end.abandoned);
    assert_eq!((finished, abandoned), (0, 0));
}

#[runnext::test(procs = 2)]
fn goroutines() {
    is_send_sync_clone::<Goroutine>();
    let mut sum = 0;
    let total: i32 = runnext::scope(|s: &Scope<'_, '_>| {
        let handle: ScopedJoinHandle<'_, i32> = s.go(|| 4);
        sum += 1;
        handle.join().unwrap()
    });
    assert_eq!(total + sum, 5);
    runnext::yield_now();
    runnext::checkpoint();
    assert_eq!(runnext::blocking(|| 6), 6);
    let guard: OsThreadGuard = runnext::lock_os_thread();
    drop(guard);
    let me = runnext::current().unwrap();
    let known = std::collections::HashSet::from([me.clone()]);
    assert!(known.contains(&runnext::current().unwrap()));
    assert!(!known.contains(go(|| ()).goroutine()));
    let _: u64 = me.id();
    let _: Option<&str> = me.name();
    let _: Option<TaskGroup> = me.group();
    let _: Duration = me.cpu_time();
    let _: &'static Location<'static> = me.spawned_at();
    assert!(runnext::num_goroutines() >= 1);
    let old: usize = runnext::set_procs(3);
    assert_eq!((old, runnext::procs()), (2, 3));
    let group = TaskGroup::new("g");
    let built: io::Result<JoinHandle<u8>> = runnext::goroutine::Builder::new()
        .name("named")
        .stack_size(64 << 10)
        .group(&group)
        .spawn(|| 8);
    let built = built.unwrap();
    let _: &Goroutine = built.goroutine();
    let _: bool = built.is_finished();
    let joined: std::thread::Result<u8> = built.join();
    assert_eq!(joined.unwrap(), 8);
    LOCAL.with(|x| assert_eq!(*x, 7));
}

#[runnext::test]
fn channels() {
    let (tx, rx): (Sender<u8>, Receiver<u8>) = chan::bounded(1);
    let (utx, urx) = chan::unbounded::<u8>();
    let _: Receiver<Instant> = chan::after(MS);
    let _: Receiver<Instant> = chan::tick(MS);
    let _: Receiver<u8> = chan::never();
    tx.send(1).unwrap();
    let _: Result<(), chan::TrySendError<u8>> = tx.try_send(2);
    let _: Result<(), chan::SendTimeoutError<u8>> = tx.send_timeout(2, MS);
    let _ = tx.send_deadline(2, Instant::now());
    let _: (usize, Option<usize>, bool, bool) =
        (tx.len(), tx.capacity(), tx.is_full(), tx.is_empty());
    let _: Result<u8, RecvError> = rx.recv();
    let _: Result<u8, chan::TryRecvError> = rx.try_recv();
    let _: Result<u8, chan::RecvTimeoutError> = rx.recv_timeout(MS);
    let _ = rx.recv_deadline(Instant::now());
    let _: (usize, Option<usize>, bool, bool) =
        (rx.len(), rx.capacity(), rx.is_full(), rx.is_empty());
    utx.send(1).unwrap();
    utx.send(2).unwrap();
    assert!(utx.close());
    assert!(!urx.close());
    assert_eq!(urx.try_iter().count(), 2);
    assert_eq!(urx.iter().count() + (&urx).into_iter().count(), 0);
    assert_eq!(urx.into_iter().count(), 0);

    let other = rx.clone();
    let got = select! {
        recv(rx) -> msg => { let _: Result<u8, RecvError> = msg; 0 },
        send(tx, 5) -> res => { let _: Result<(), SendError<u8>> = res; 1 },
        default(MS) => 2,
    };
    assert_eq!(got, 1);
    let got = select! { recv(&other) -> msg => msg.unwrap(), default => 9 };
    assert_eq!(got, 5);

    let mut sel = Select::new();
    let (s, r): (usize, usize) = (sel.send(&tx), sel.recv(&rx));
    assert_ne!(s, r);
    assert!(sel.select_timeout(Duration::from_secs(60)).is_ok_and(|op| {
        let index = op.index();
        op.send(&tx, 1).unwrap();
        index == s
    }));
    let mut sel = Select::new();
    sel.recv(&rx);
    let op = sel.select();
    assert_eq!(op.recv(&rx), Ok(1));
    let mut sel = Select::new();
    sel.recv(&rx);
    assert!(sel.try_select().is_err());
}

#[runnext::test]
fn sync() {
    let mut m = Mutex::new(1);
    *m.lock() += 1;
    assert!(m.try_lock().is_some());
    *m.get_mut() += 1;
    assert_eq!(m.into_inner(), 3);
    let rw = RwLock::new(1);
    drop((rw.read(), rw.try_read().unwrap()));
    drop(rw.write());
    drop(rw.try_write().unwrap());
    let (lock, cv) = (Mutex::new(()), Condvar::new());
    let mut guard = lock.lock();
    assert!(cv.wait_timeout(&mut guard, MS).timed_out());
    cv.notify_one();
    cv.notify_all();
    let wg = WaitGroup::new();
    wg.add(1usize);
    wg.clone().done();
    let handle: JoinHandle<u8> = wg.go(|| 1u8);
    wg.wait();
    assert_eq!(handle.join().unwrap(), 1);
    Once::new().call_once(|| ());
    assert_eq!(*OnceLock::new().get_or_init(|| 1), 1);
    assert_eq!(OnceLock::from(1), OnceLock::from(1));
    assert_ne!(OnceLock::from(1), OnceLock::new());
    let sem = Semaphore::new(1);
    let permit = sem.acquire();
    assert!(sem.try_acquire().is_none());
    sem.add_permits(1);
    assert!(sem.try_acquire().is_some());
    drop(permit);
    Barrier::new(1).wait();
}

#[runnext::test]
fn times_and_contexts() {
    let t: Instant = Instant::now();
    let _: Duration = (t + MS) - t;
    let _: Duration = t.elapsed();
    let _: std::time::Instant = t.into_std();
    time::sleep(MS);
    time::sleep_until(t);
    let ticker = Ticker::new(MS);
    let _: &Receiver<Instant> = ticker.c();
    ticker.c().recv().unwrap();
    ticker.reset(MS);
    ticker.stop();
    let timer = Timer::new(Duration::MAX);
    let active: bool = timer.reset(MS);
    assert!(active);
    timer.c().recv().unwrap();
    assert!(!timer.stop());
    let timer: Timer = time::after_func(Duration::MAX, || ());
    assert!(timer.stop());

    let root = Context::background();
    root.cancel();
    let child: Context = root.with_cancel();
    let timed = child.with_timeout(Duration::MAX);
    let _: Option<Instant> = timed.deadline();
    let due = root.with_deadline(Instant::now());
    select! { recv(due.done()) -> end => assert!(end.is_err()) }
    assert_eq!(due.err(), Some(ContextError::DeadlineExceeded));
    child.cancel();
    assert_eq!(timed.err(), Some(ContextError::Canceled));
    assert_eq!(root.err(), None);
}

#[runnext::test(procs = 2)]
fn net_and_fs() {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let addr: SocketAddr = listener.local_addr().unwrap();
    let server = go(move || {
        let (mut peer, _): (TcpStream, SocketAddr) = listener.accept().unwrap();
        let mut buf = [0; 4];
        peer.read_exact(&mut buf).unwrap();
        (&peer).write_all(&buf).unwrap();
    });
    let stream = TcpStream::connect(addr).unwrap();
    stream
        .set_read_timeout(Some(Duration::from_secs(60)))
        .unwrap();
    stream.set_write_timeout(None).unwrap();
    stream.set_read_deadline(None).unwrap();
    stream
        .set_write_deadline(Some(Instant::now() + Duration::from_secs(60)))
        .unwrap();
    let mut twin = stream.try_clone().unwrap();
    twin.write_all(b"ping").unwrap();
    let mut back = [0; 4];
    (&stream).read_exact(&mut back).unwrap();
    server.join().unwrap();
    stream.set_read_deadline(Some(Instant::now())).unwrap();
    let late = (&stream).read(&mut back).map_err(|e| e.kind());
    assert!(matches!(late, Ok(0) | Err(io::ErrorKind::TimedOut)));
    stream.shutdown(std::net::Shutdown::Both).unwrap();

    let udp = UdpSocket::bind("127.0.0.1:0").unwrap();
    udp.send_to(b"x", udp.local_addr().unwrap()).unwrap();
    assert_eq!(udp.recv_from(&mut back).unwrap().0, 1);
    let (a, b) = UnixStream::pair().unwrap();
    (&a).write_all(b"y").unwrap();
    assert_eq!((&b).read(&mut back).unwrap(), 1);
    let (c, d) = UnixDatagram::pair().unwrap();
    c.send(b"z").unwrap();
    assert_eq!(d.recv(&mut back).unwrap(), 1);
    let path = std::env::temp_dir().join(format!("runnext-contract-{}", std::process::id()));
    let unix = UnixListener::bind(&path).unwrap();
    assert!(unix.local_addr().unwrap().as_pathname().is_some());
    runnext::fs::remove_file(&path).unwrap();
    runnext::fs::write(&path, "text").unwrap();
    let mut text = String::new();
    runnext::fs::File::open(&path)
        .unwrap()
        .read_to_string(&mut text)
        .unwrap();
    assert_eq!(text, runnext::fs::read_to_string(&path).unwrap());
    runnext::fs::remove_file(&path).unwrap();
    let std = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let ours = TcpListener::from_std(std).unwrap();
    for stream in ours.incoming().take(0) {
        drop::<io::Result<TcpStream>>(stream);
    }
}

#[cfg(feature = "async")]
#[runnext::test]
fn futures() {
    assert_eq!(runnext::block_on(async { 1 }), 1);
    let handle: JoinHandle<u8> = runnext::spawn(async { 2 });
    is_future(&handle);
    let out: std::thread::Result<u8> = runnext::block_on(handle);
    assert_eq!(out.unwrap(), 2);
    assert_eq!(
        runnext::spawn(async { go(|| 3).await.unwrap() })
            .join()
            .unwrap(),
        3
    );
}

#[runnext::test]
fn groups() {
    is_send_sync_clone::<TaskGroup>();
    let group = TaskGroup::builder("batch")
        .weight(50)
        .priority(Priority::Low)
        .quota(0.5)
        .burst(MS)
        .slice(MS)
        .governed(true)
        .build();
    assert_eq!(group.name(), "batch");
    assert!(TaskGroup::current().is_none());
    let inside = group.go(|| TaskGroup::current().unwrap().name().to_owned());
    assert_eq!(inside.join().unwrap(), "batch");
    assert_eq!(
        group.enter(|| runnext::current().unwrap().group().unwrap().name().len()),
        5
    );
    group.set_weight(100);
    group.set_quota(None);
    group.set_quota(Some(1.5));
    group.set_priority(Priority::High);
    let stats = group.stats();
    let _: (Duration, Duration, u64) =
        (stats.cpu_time, stats.throttled_time, stats.throttled_count);
    let _: (usize, usize) = (stats.runnable, stats.goroutines);
    let _: u64 = stats.wake_latency.count();
    let _ = [
        CpuLimit::Unlimited,
        CpuLimit::Fraction(0.8),
        CpuLimit::Adaptive { target_p99: MS },
    ];
}

#[runnext::test]
fn stats() {
    runnext::stats::set_profile_rate(100);
    let s: SchedStats = runnext::stats::read();
    let _: [u64; 5] = [
        s.total_goroutine_exec,
        s.total_goroutine_sched,
        s.total_goroutine,
        s.total_ffi_calls,
        s.total_sys_calls,
    ];
    let _: [usize; 7] = [
        s.num_goroutine_exec,
        s.num_goroutine_sched,
        s.num_goroutine,
        s.num_ffi_calls,
        s.num_sys_calls,
        s.max_procs,
        s.num_procs,
    ];
    let _: &[u64; 256] = &s.goroutine_sched_ns;
    let _: (u64, u32) = (s.num_samples, s.sample_hz);
    for name in [
        "TotalGoroutineExec",
        "TotalCGoCalls",
        "TotalFfiCalls",
        "numThreads",
    ] {
        assert!(
            s.get_metric(name).is_some_and(|m| m.as_u64().is_some()),
            "{name}"
        );
    }
    let latencies: Metric = s.get_metric("/sched/latencies:seconds").unwrap();
    let histogram: &Histogram = latencies.as_histogram().unwrap();
    let _: (u64, Duration) = (histogram.count(), histogram.quantile(0.99));
    assert!(latencies.as_f64().is_none());
    assert!(s.get_metric("/no/such").is_none());
}

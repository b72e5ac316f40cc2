//! The endpoint as a client sees it.

#[path = "../../runnext/tests/common/json.rs"]
mod json;

use std::collections::HashMap;
use std::io::ErrorKind::WouldBlock;
use std::io::{self, Read, Write};
use std::net::SocketAddr;
use std::time::Duration;

use json::Json;
use runnext::net::TcpStream;
use runnext::{TaskGroup, chan, go, goroutine, scope, time, yield_now};

struct Answer {
    status: u16,
    head: String,
    body: String,
}

fn send(addr: SocketAddr, request: &str) -> Answer {
    let mut stream = TcpStream::connect(addr).unwrap();
    stream.write_all(request.as_bytes()).unwrap();
    let mut all = String::new();
    stream.read_to_string(&mut all).unwrap();
    let (head, body) = all.split_once("\r\n\r\n").unwrap_or((&all, ""));
    Answer {
        status: head
            .split(' ')
            .nth(1)
            .and_then(|s| s.parse().ok())
            .unwrap_or(0),
        head: head.to_lowercase(),
        body: body.to_owned(),
    }
}

fn get(addr: SocketAddr, path: &str) -> Answer {
    send(
        addr,
        &format!("GET {path} HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"),
    )
}

/// The series of an OpenMetrics text, by name and labels.
fn series(text: &str) -> HashMap<String, f64> {
    assert!(text.ends_with("# EOF\n"), "{text}");
    let mut all = HashMap::new();
    for line in text.lines().filter(|l| !l.starts_with('#')) {
        let (name, value) = line.rsplit_once(' ').unwrap();
        let twice = all.insert(name.to_owned(), value.parse().unwrap());
        assert!(twice.is_none(), "{name} twice");
    }
    all
}

#[runnext::test(procs = 2)]
fn metrics_agree_with_the_program() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    scope(|s| (0..100).for_each(|_| drop(s.go(yield_now))));
    let group = TaskGroup::new("web \"quoted\"");
    let same = TaskGroup::new("web \"quoted\"");
    group.go(|| ()).join().unwrap();
    same.go(|| ()).join().unwrap();
    let answer = get(server.local_addr(), "/metrics");
    assert_eq!(answer.status, 200);
    assert!(
        answer
            .head
            .contains("content-type: application/openmetrics-text; version=1.0.0")
    );
    let all = series(&answer.body);
    assert!(all["runnext_goroutines_created_total"] >= 101.0);
    assert!(all["runnext_executions_total"] >= 200.0);
    assert_eq!(all["runnext_procs"], 2.0);
    assert!(all["runnext_goroutines"] >= 2.0);
    assert!(all.contains_key("runnext_preemptions_total{kind=\"slice\"}"));
    let count = all["runnext_sched_latency_seconds_count"];
    assert_eq!(
        all["runnext_sched_latency_seconds_bucket{le=\"+Inf\"}"],
        count
    );
    assert!(
        all.contains_key("runnext_group_cpu_seconds_total{group=\"web \\\"quoted\\\"\"}"),
        "{}",
        answer.body
    );
    for name in ["wake_latency", "run_time", "preempt_latency"] {
        let of = r#"{group="web \"quoted\"",quantile="0.99"}"#;
        let series = format!("runnext_group_{name}_seconds{of}");
        assert!(all.contains_key(&series), "{series}\n{}", answer.body);
    }
    assert_eq!(all["runnext_stalls_total"], 0.0);
    server.stop();
}

#[runnext::test(procs = 2)]
fn vars_are_json() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let group = TaskGroup::new("batch\n\u{1b}");
    group.go(|| ()).join().unwrap();
    let answer = get(server.local_addr(), "/debug/vars");
    assert_eq!(answer.status, 200);
    let vars = Json::parse(&answer.body);
    let sched = vars.get("sched").unwrap();
    assert_eq!(sched.number("MaxProcs"), Some(2.0));
    assert!(
        sched
            .get("/sched/latencies:seconds")
            .unwrap()
            .number("count")
            .is_some()
    );
    assert!(
        vars.list("groups")
            .iter()
            .any(|g| g.text("name") == Some("batch\n\u{1b}"))
    );
    assert!(!vars.list("cmdline").is_empty());
    server.stop();
}

#[runnext::test(procs = 2)]
fn goroutines_as_text_and_json() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    let (tx, rx) = chan::bounded::<()>(0);
    let waiter = goroutine::Builder::new()
        .name("the \"waiter\"\n")
        .spawn(move || rx.recv())
        .unwrap();
    let id = waiter.goroutine().id();
    let line = format!("goroutine {id} [chan receive]: 'the \"waiter\"\\n'\n");
    while !get(addr, "/debug/goroutines").body.contains(&line) {
        time::sleep(Duration::from_millis(5));
    }
    let all = Json::parse(&get(addr, "/debug/goroutines?format=json").body);
    let entry = all
        .list("goroutines")
        .iter()
        .find(|g| g.number("id") == Some(id as f64));
    let entry = entry.expect("it waits");
    assert_eq!(entry.text("state"), Some("chan receive"));
    assert_eq!(entry.text("name"), Some("the \"waiter\"\n"));
    assert!(entry.text("spawned_at").unwrap().contains("endpoint.rs:"));
    assert!(!entry.list("stack").is_empty());
    let one = get(addr, "/debug/goroutines?limit=1").body;
    assert_eq!(one.matches("goroutine ").count(), 1, "{one}");
    assert!(one.contains("... and "), "{one}");
    drop(tx);
    waiter.join().unwrap().unwrap_err();
    server.stop();
}

#[runnext::test(procs = 2)]
fn a_trace_of_what_happens_meanwhile() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    let asked = go(move || get(addr, "/debug/trace?seconds=1"));
    while runnext::trace::snapshot().is_none() {
        time::sleep(Duration::from_millis(5));
    }
    // Not two at once.
    let refused = get(addr, "/debug/trace?seconds=0.01");
    assert_eq!(refused.status, 503, "{}", refused.body);
    scope(|s| (0..50).for_each(|_| drop(s.go(yield_now))));
    let answer = asked.join().unwrap();
    assert_eq!(answer.status, 200);
    let trace = Json::parse(&answer.body);
    let runs = trace
        .list("traceEvents")
        .iter()
        .filter(|e| e.text("ph") == Some("X"));
    assert!(runs.count() >= 100);
    server.stop();
}

/// It used to go on without its client, and all others were refused for as long.
#[runnext::test(procs = 2)]
fn a_trace_ends_with_its_client() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    for head in [
        "HTTP/1.1\r\nhost: x\r\n\r\n",
        "HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n",
        "HTTP/1.0\r\n\r\n",
    ] {
        let mut leaves = TcpStream::connect(addr).unwrap();
        let request = format!("GET /debug/trace?seconds=60 {head}");
        leaves.write_all(request.as_bytes()).unwrap();
        while runnext::trace::snapshot().is_none() {
            time::sleep(Duration::from_millis(5));
        }
        let another = || get(addr, "/debug/trace?seconds=0").status;
        assert_eq!(another(), 503);
        drop(leaves);
        let tries = (0..500).position(|_| {
            time::sleep(Duration::from_millis(20));
            another() == 200
        });
        assert!(tries.is_some(), "the trace goes on after {head:?}");
    }
    server.stop();
}

#[runnext::test(procs = 2)]
fn what_is_wrong_is_said() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    for (path, status, says) in [
        ("/nothing", 404, "/ says what there is"),
        ("/debug/trace?seconds=61", 400, "from 0 to 60"),
        ("/debug/trace?seconds=-1", 400, "from 0 to 60"),
        ("/debug/trace?seconds=NaN", 400, "from 0 to 60"),
        ("/debug/trace?secs=1", 400, "only: seconds"),
        ("/debug/goroutines?format=xml", 400, "text or json"),
        ("/debug/goroutines?limit=0", 400, "limit is a number"),
        ("/metrics?x=1", 400, "takes no parameters"),
    ] {
        let answer = get(addr, path);
        assert_eq!(answer.status, status, "{path}: {}", answer.body);
        assert!(answer.body.contains(says), "{path}: {}", answer.body);
    }
    let posted = send(
        addr,
        "POST /metrics HTTP/1.1\r\nhost: x\r\ncontent-length: 0\r\nconnection: close\r\n\r\n",
    );
    assert_eq!(posted.status, 405);
    assert!(posted.head.contains("allow: get\r\n"));
    assert_eq!(send(addr, "no http at all\r\n\r\n").status, 400);
    let long = format!("GET /{} HTTP/1.1\r\nhost: x\r\n\r\n", "x".repeat(40_000));
    assert!((400..500).contains(&send_lenient(addr, &long)));
    let index = get(addr, "/");
    assert!(index.status == 200 && index.body.contains("/debug/trace"));
    server.stop();
}

/// The server may close while we still send.
fn send_lenient(addr: SocketAddr, request: &str) -> u16 {
    let mut stream = TcpStream::connect(addr).unwrap();
    let _ = stream.write_all(request.as_bytes());
    let mut all = Vec::new();
    let _ = stream.read_to_end(&mut all);
    let text = String::from_utf8_lossy(&all).into_owned();
    text.split(' ')
        .nth(1)
        .and_then(|s| s.parse().ok())
        .unwrap_or(400)
}

#[runnext::test(procs = 2)]
fn only_here_unless_told_otherwise() {
    let refused = runnext_debug::serve("0.0.0.0:0").unwrap_err();
    assert_eq!(refused.kind(), io::ErrorKind::PermissionDenied);
    assert!(refused.to_string().contains("allow_remote"));
    let server = runnext_debug::Options::default()
        .allow_remote(true)
        .serve("0.0.0.0:0")
        .unwrap();
    server.stop();
}

/// Whether the server has not closed it.
fn is_open(mut stream: &TcpStream) -> bool {
    stream
        .set_read_timeout(Some(Duration::from_millis(1)))
        .unwrap();
    let read = stream.read(&mut [0]);
    matches!(read, Err(e) if matches!(e.kind(), io::ErrorKind::TimedOut | io::ErrorKind::WouldBlock))
}

/// Silent ones used to keep all places for ten seconds each.
#[runnext::test(procs = 2)]
fn silent_clients_do_not_keep_the_others_out() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    let asked = go(move || get(addr, "/debug/trace?seconds=1.5"));
    time::sleep(Duration::from_millis(100));
    let silent: Vec<TcpStream> = (0..100)
        .map(|i| {
            let mut stream = TcpStream::connect(addr).unwrap();
            // Some say a little, and then nothing.
            let head = &b"GET /metrics HTTP/1.1\r\n"[..i % 23];
            stream.write_all(head).unwrap();
            stream
        })
        .collect();
    assert_eq!(get(addr, "/metrics").status, 200);
    // Had they had to run into their time-out, none would be left.
    let open = silent.iter().filter(|stream| is_open(stream)).count();
    assert!(open >= 16, "{open} are still open");
    assert!(open <= 32, "{open} are still open");
    // Who is being answered is not idle.
    let answer = asked.join().unwrap();
    assert_eq!(answer.status, 200, "{}", answer.body);
    server.stop();
}

#[runnext::test(procs = 2)]
fn one_that_is_full_can_be_stopped() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    let silent: Vec<_> = (0..40).map(|_| TcpStream::connect(addr).unwrap()).collect();
    server.stop();
    assert!(TcpStream::connect(addr).is_err());
    drop(silent);
}

#[test]
fn outside_a_runtime_it_says_so_and_binds_nothing() {
    // Any bind to a port that is taken is an error, and the panic comes before it.
    let taken = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let addr = taken.local_addr().unwrap();
    let refused = std::panic::catch_unwind(|| runnext_debug::serve(addr)).unwrap_err();
    let why = refused.downcast_ref::<&str>().expect("a constant message");
    assert!(
        why.starts_with("runnext_debug::serve called outside a runtime"),
        "{why}"
    );
    assert!(why.contains("#[runnext::main]"), "{why}");
}

#[runnext::test(procs = 2)]
fn a_stopped_one_frees_its_port() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    assert_eq!(get(addr, "/").status, 200);
    server.stop();
    assert!(TcpStream::connect(addr).is_err());
}

#[runnext::test(procs = 2)]
fn a_thousand_groups_and_more_are_bounded() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let groups: Vec<_> = (0..1200)
        .map(|i| TaskGroup::new(&format!("g{i}")))
        .collect();
    for group in &groups {
        group.go(|| ()).join().unwrap();
    }
    let all = series(&get(server.local_addr(), "/metrics").body);
    let shown = all
        .keys()
        .filter(|k| k.starts_with("runnext_group_goroutines{"))
        .count();
    assert_eq!(shown, 1000);
    assert!(all.contains_key("runnext_group_cpu_seconds_total{group=\"(others)\"}"));
    let vars = Json::parse(&get(server.local_addr(), "/debug/vars").body);
    assert_eq!(vars.list("groups").len(), 1000);
    assert_eq!(vars.number("more_groups"), Some(200.0));
    server.stop();
}

/// A HEAD used to make the answer too: a trace of a minute, for one.
#[runnext::test(procs = 2)]
fn nothing_but_get_is_answered() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    for method in ["HEAD", "OPTIONS", "PUT"] {
        let request = format!(
            "{method} /debug/trace?seconds=0 HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n"
        );
        let answer = send(server.local_addr(), &request);
        assert_eq!(answer.status, 405, "{method}");
        assert!(answer.head.contains("allow: get\r\n"), "{}", answer.head);
    }
    server.stop();
}

/// Each of them used to be kept in memory until its client had read it, and another made for the next.
#[runnext::test(procs = 2)]
fn a_dump_that_is_not_read_is_the_only_one() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    let (tx, rx) = chan::bounded::<()>(0);
    let many: Vec<_> = (0..50_000)
        .map(|_| {
            let rx = rx.clone();
            go(move || rx.recv())
        })
        .collect();
    // More than the kernel holds for a client that does not read.
    let mut idle = TcpStream::connect(addr).unwrap();
    let request = b"GET /debug/goroutines HTTP/1.1\r\nhost: x\r\n\r\n";
    idle.write_all(request).unwrap();
    idle.read_exact(&mut [0; 12]).unwrap(); // it is made
    let another = || get(addr, "/debug/goroutines?limit=1").status;
    assert_eq!(another(), 503);
    drop(idle);
    while another() != 200 {
        yield_now();
    }
    drop(tx);
    for one in many {
        one.join().unwrap().unwrap_err();
    }
    server.stop();
}

/// It used to wait first, and then to say that it could not have been.
#[runnext::test(procs = 2)]
fn a_trace_beside_the_programs_own_is_refused_at_once() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    runnext::trace::start(runnext::trace::Options::default()).unwrap();
    let asked = time::Instant::now();
    assert_eq!(
        get(server.local_addr(), "/debug/trace?seconds=60").status,
        503
    );
    assert!(asked.elapsed() < Duration::from_secs(60)); // as long as a trace would have taken
    assert!(runnext::trace::stop().is_some());
    server.stop();
}

/// The numbers of a group used to go with it.
#[runnext::test(procs = 2)]
fn what_a_group_used_is_counted_after_its_end() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let used = || {
        let all = series(&get(server.local_addr(), "/metrics").body);
        all["runnext_group_cpu_seconds_total{group=\"short\"}"]
    };
    let group = TaskGroup::new("short");
    group
        .go(|| (0..1_000_000u64).map(std::hint::black_box).sum::<u64>())
        .join()
        .unwrap();
    let before = used();
    assert!(before > 0.0);
    drop(group);
    assert!(used() >= before);
    server.stop();
}

/// Connections that were kept alive were answered for ever.
#[runnext::test(procs = 2)]
fn a_stopped_server_ends_its_connections() {
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    let addr = server.local_addr();
    let ask = |mut stream: &TcpStream, path: &str| {
        let request = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(request.as_bytes())
    };
    let silent = TcpStream::connect(addr).unwrap();
    let kept = TcpStream::connect(addr).unwrap();
    ask(&kept, "/nowhere").unwrap();
    assert!(whole(&kept).starts_with("HTTP/1.1 404"));
    // One trace at a time: it has begun when another is refused, unless it came too late itself and has been told so.
    let busy = loop {
        let busy = TcpStream::connect(addr).unwrap();
        ask(&busy, "/debug/trace?seconds=3").unwrap();
        busy.set_nonblocking(true).unwrap();
        let waits = || busy.peek(&mut [0]).is_err_and(|e| e.kind() == WouldBlock);
        while waits() && get(addr, "/debug/trace?seconds=0").status != 503 {}
        if waits() {
            busy.set_nonblocking(false).unwrap();
            break busy;
        }
    };
    server.stop();

    for mut idle in [&silent, &kept] {
        let _ = ask(idle, "/");
        let said = idle.read(&mut [0; 100]);
        assert!(matches!(said, Ok(0) | Err(_)), "it was answered: {said:?}");
    }
    let trace = whole(&busy);
    assert!(trace.starts_with("HTTP/1.1 200"), "{trace:.100}");
    assert!(trace.to_lowercase().contains("\r\nconnection: close\r\n"));
    assert!(matches!((&busy).read(&mut [0]), Ok(0)), "its last");
}

/// One answer, all of it, of a connection that stays open.
fn whole(mut stream: &TcpStream) -> String {
    let mut all = Vec::new();
    loop {
        let text = String::from_utf8_lossy(&all).to_lowercase();
        if let Some((head, body)) = text.split_once("\r\n\r\n") {
            let length = head.split("content-length: ").nth(1).unwrap();
            let length: usize = length.lines().next().unwrap().parse().unwrap();
            if body.len() >= length {
                return String::from_utf8(all).unwrap();
            }
        }
        let mut buf = [0; 1 << 16];
        let n = stream.read(&mut buf).unwrap();
        assert!(n > 0, "half of an answer: {text}");
        all.extend_from_slice(&buf[..n]);
    }
}

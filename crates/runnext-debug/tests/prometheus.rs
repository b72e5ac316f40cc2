//! A real Prometheus server scrapes the endpoint and is asked for what it found.

#[path = "../../runnext/tests/common/json.rs"]
mod json;

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use json::Json;
use runnext::net::TcpStream;
use runnext::{TaskGroup, blocking, scope, time, yield_now};

/// Ends with its test, however that ends.
struct Running(Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// The value of a query, once there is one.
fn query(prometheus: SocketAddr, what: &str) -> Option<f64> {
    let mut stream = TcpStream::connect(prometheus).ok()?;
    let request = format!("GET /api/v1/query?query={what} HTTP/1.0\r\n\r\n");
    stream.write_all(request.as_bytes()).ok()?;
    let mut all = String::new();
    stream.read_to_string(&mut all).ok()?;
    let body = all.split_once("\r\n\r\n")?.1;
    if !body.starts_with('{') {
        return None;
    }
    let answer = Json::parse(body);
    match answer.get("data")?.list("result").first()?.list("value") {
        [_, Json::Text(value)] => value.parse().ok(),
        other => panic!("{other:?}"),
    }
}

fn wait_for(prometheus: SocketAddr, what: &str) -> f64 {
    loop {
        if let Some(value) = query(prometheus, what) {
            return value;
        }
        time::sleep(Duration::from_millis(200));
    }
}

#[runnext::test(procs = 2)]
fn scraped_and_queried_back() {
    let found = Command::new("prometheus")
        .arg("--version")
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .status();
    if !found.is_ok_and(|s| s.success()) {
        println!("skipped: there is no prometheus here (Debian has it as a package)");
        return;
    }
    let server = runnext_debug::serve("127.0.0.1:0").unwrap();
    scope(|s| (0..50).for_each(|_| drop(s.go(yield_now))));
    let group = TaskGroup::new("scraped");
    group.go(|| ()).join().unwrap();

    let dir = std::env::temp_dir().join(format!("runnext-prometheus-{}", std::process::id()));
    std::fs::create_dir_all(&dir).unwrap();
    let config = dir.join("prometheus.yml");
    let target = server.local_addr();
    std::fs::write(
        &config,
        format!(
            "global: {{scrape_interval: 1s, scrape_timeout: 1s}}\nscrape_configs:\n- job_name: runnext\n  \
             static_configs: [{{targets: ['{target}']}}]\n"
        ),
    )
    .unwrap();
    let listen = {
        let free = TcpListener::bind("127.0.0.1:0").unwrap();
        free.local_addr().unwrap()
    };
    let child = blocking(|| {
        Command::new("prometheus")
            .arg(format!("--config.file={}", config.display()))
            .arg(format!(
                "--storage.tsdb.path={}",
                dir.join("data").display()
            ))
            .arg(format!("--web.listen-address={listen}"))
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
    });
    let child = Running(child.unwrap());
    assert_eq!(wait_for(listen, "up"), 1.0, "it could not read what it got");
    assert!(wait_for(listen, "runnext_goroutines_created_total") >= 51.0);
    assert_eq!(wait_for(listen, "runnext_procs"), 2.0);
    assert!(wait_for(listen, "runnext_sched_latency_seconds_count") >= 0.0);
    assert!(wait_for(listen, "count(runnext_group_cpu_seconds_total)") >= 1.0);
    drop((child, group));
    let _ = std::fs::remove_dir_all(dir);
    server.stop();
}

//! HTTP load on a server in this process, from another: `wrk`.

use std::net::SocketAddr;
use std::process::Command;

use crate::{Args, Report, unsupported, usage};

/// Loads `addr` with `connections` for `seconds` after a short warm-up, prints rate, latency and the CPU time of this process per
/// request, and ends the process. Without `wrk` in PATH the scenario counts as unsupported.
pub fn http_load(args: &Args, addr: SocketAddr) -> ! {
    let connections = args.get("connections", 64_usize);
    if wrk(addr, connections, 1).is_none() {
        eprintln!("no `wrk` found, which makes the load (apt-get install wrk)");
        unsupported("http");
    }
    let before = usage();
    let said = wrk(addr, connections, args.get("seconds", 5_usize)).expect("it ran before");
    let cpu = usage().cpu - before.cpu;
    let requests = figure(&said, " requests in").unwrap_or(0.0);
    Report::new("http")
        .put("requests_per_s", after(&said, "Requests/sec:"))
        .put("us_p50", after(&said, "50%"))
        .put("us_p99", after(&said, "99%"))
        .put(
            "cpu_us_per_request",
            cpu.as_secs_f64() * 1e6 / requests.max(1.0),
        )
        .flag(
            "errors",
            said.contains("Socket errors") || said.contains("Non-2xx"),
        )
        .print_and_exit()
}

fn wrk(addr: SocketAddr, connections: usize, seconds: usize) -> Option<String> {
    let done = Command::new("wrk")
        .args(["-t1", "--latency", "-c", &connections.to_string()])
        .args(["-d", &format!("{seconds}s"), &format!("http://{addr}/")])
        .output()
        .ok()?;
    Some(String::from_utf8_lossy(&done.stdout).into_owned())
}

/// The number before a word.
fn figure(said: &str, word: &str) -> Option<f64> {
    let head = &said[..said.find(word)?];
    head.split_whitespace().last()?.parse().ok()
}

/// The number after a word; times in µs.
fn after(said: &str, word: &str) -> f64 {
    let number = said
        .split_once(word)
        .and_then(|(_, rest)| rest.split_whitespace().next())
        .unwrap_or("nan");
    let scaled = |unit: &str, by: f64| {
        let digits = number.strip_suffix(unit)?;
        Some(digits.parse::<f64>().ok()? * by)
    };
    scaled("us", 1.0)
        .or_else(|| scaled("ms", 1e3))
        .or_else(|| scaled("s", 1e6))
        .or_else(|| number.parse().ok())
        .unwrap_or(f64::NAN)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_wrk_says() {
        let said = "  Thread Stats\n     50%  325.00us\n     99%    1.21ms\n  93982 requests in 1.00s, 8MB read\nRequests/sec:  93921.5\n";
        assert_eq!(after(said, "50%"), 325.0);
        assert_eq!(after(said, "99%"), 1210.0);
        assert_eq!(after(said, "Requests/sec:"), 93921.5);
        assert_eq!(figure(said, " requests in"), Some(93982.0));
        assert!(after(said, "none").is_nan());
    }
}

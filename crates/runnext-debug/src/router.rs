//! From a path to an answer. Knows nothing of sockets.

use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use runnext::context::Context;
use runnext::sync::Semaphore;
use runnext::trace;

use crate::{goroutines, metrics, vars};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The longest trace.
const TRACE_SECONDS: f64 = 60.0;
/// Events of a trace, of each processor: 16 MiB.
const TRACE_EVENTS: usize = 1 << 20;
/// Goroutines in a dump unless somebody says otherwise, and at most.
const DUMPED: usize = 100_000;
const DUMPED_MOST: usize = 1_000_000;

/// A request.
#[derive(Debug)]
pub(crate) struct Asked {
    pub(crate) path: String,
    pub(crate) query: String,
}

/// An answer.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) kind: &'static str,
    pub(crate) body: Bytes,
}

impl Reply {
    fn ok(kind: &'static str, body: impl Into<Bytes>) -> Reply {
        Reply {
            status: StatusCode::OK,
            kind,
            body: body.into(),
        }
    }

    /// No, and why.
    pub(crate) fn refused(status: StatusCode, why: &str) -> Reply {
        Reply {
            status,
            kind: TEXT,
            body: format!("{why}\n").into(),
        }
    }
}

/// What requests share.
pub(crate) struct State {
    /// One dump at a time.
    dumps: Semaphore,
    /// One trace at a time.
    traces: Semaphore,
}

impl State {
    pub(crate) fn new() -> State {
        State {
            dumps: Semaphore::new(1),
            traces: Semaphore::new(1),
        }
    }

    /// The answer; `client` ends when nobody waits for it any more.
    pub(crate) fn answer(&self, asked: &Asked, client: &Context) -> Reply {
        let answer = match asked.path.as_str() {
            "/" => index(asked),
            "/metrics" => none_but(asked, &[]).map(|()| Reply::ok(OPEN_METRICS, metrics::text())),
            "/debug/vars" => none_but(asked, &[]).map(|()| Reply::ok(JSON, vars::json())),
            "/debug/goroutines" => self.goroutines(asked),
            "/debug/trace" => self.trace(asked, client),
            other => Err(Reply::refused(
                StatusCode::NOT_FOUND,
                &format!("there is no {other:?} here; / says what there is"),
            )),
        };
        answer.unwrap_or_else(|refused| refused)
    }

    fn goroutines(&self, asked: &Asked) -> Result<Reply, Reply> {
        none_but(asked, &["format", "limit"])?;
        let limit = match parameter(asked, "limit") {
            None => DUMPED,
            Some(text) => text
                .parse()
                .ok()
                .filter(|n| (1..=DUMPED_MOST).contains(n))
                .ok_or_else(|| bad(&format!("limit is a number from 1 to {DUMPED_MOST}")))?,
        };
        let json = match parameter(asked, "format").unwrap_or("text") {
            "text" => false,
            "json" => true,
            _ => return Err(bad("format is text or json")),
        };
        let _one = self
            .dumps
            .try_acquire()
            .ok_or_else(|| busy("another dump is being made"))?;
        Ok(if json {
            Reply::ok(JSON, goroutines::json(limit))
        } else {
            Reply::ok(TEXT, goroutines::text(limit))
        })
    }

    /// Writes down what happens for a while; or gives what a flight recorder has, if one runs.
    fn trace(&self, asked: &Asked, client: &Context) -> Result<Reply, Reply> {
        none_but(asked, &["seconds"])?;
        let seconds = match parameter(asked, "seconds") {
            None => 1.0,
            Some(text) => text
                .parse::<f64>()
                .ok()
                .filter(|s| (0.0..=TRACE_SECONDS).contains(s))
                .ok_or_else(|| bad(&format!("seconds is a number from 0 to {TRACE_SECONDS}")))?,
        };
        let another = || busy("another trace is being written");
        let _one = self.traces.try_acquire().ok_or_else(another)?;
        let options = trace::Options::default().events_per_proc(TRACE_EVENTS);
        let started = trace::start(options).is_ok();
        // A client that goes ends the wait: the next one need not wait for it.
        let _ = client.done().recv_timeout(Duration::from_secs_f64(seconds));
        let trace = if started {
            trace::stop()
        } else {
            trace::snapshot()
        };
        match trace {
            _ if client.err().is_some() => Err(busy("the client has gone")),
            Some(trace) if started || trace.is_coarse() => {
                Ok(Reply::ok(JSON, runnext::blocking(|| trace.to_chrome())))
            }
            _ => Err(another()),
        }
    }
}

fn index(asked: &Asked) -> Result<Reply, Reply> {
    none_but(asked, &[])?;
    let page = "<!doctype html><title>runnext</title><h1>runnext</h1><ul>\
        <li><a href=\"/metrics\">/metrics</a>: for Prometheus\
        <li><a href=\"/debug/vars\">/debug/vars</a>: the same as JSON\
        <li><a href=\"/debug/goroutines\">/debug/goroutines</a>: where everybody stands \
        (<a href=\"/debug/goroutines?format=json\">JSON</a>)\
        <li><a href=\"/debug/trace?seconds=1\">/debug/trace?seconds=1</a>: the next second, \
        for <a href=\"https://ui.perfetto.dev\">Perfetto</a></ul>\n";
    Ok(Reply::ok(HTML, page))
}

fn bad(why: &str) -> Reply {
    Reply::refused(StatusCode::BAD_REQUEST, why)
}

fn busy(why: &str) -> Reply {
    Reply::refused(StatusCode::SERVICE_UNAVAILABLE, why)
}

fn parameters(asked: &Asked) -> impl Iterator<Item = (&str, &str)> {
    asked
        .query
        .split('&')
        .filter(|part| !part.is_empty())
        .map(|part| part.split_once('=').unwrap_or((part, "")))
}

fn parameter<'a>(asked: &'a Asked, name: &str) -> Option<&'a str> {
    parameters(asked).find_map(|(key, value)| (key == name).then_some(value))
}

/// A parameter nobody knows is more likely a mistake than a wish.
fn none_but(asked: &Asked, known: &[&str]) -> Result<(), Reply> {
    match parameters(asked).find(|(key, _)| !known.contains(key)) {
        None => Ok(()),
        Some((key, _)) if known.is_empty() => Err(bad(&format!(
            "{} takes no parameters, so not {key:?} either",
            asked.path
        ))),
        Some((key, _)) => Err(bad(&format!(
            "{} does not know {key:?}, only: {}",
            asked.path,
            known.join(", ")
        ))),
    }
}

//! From a path to an answer. Knows nothing of sockets.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::*};
use std::time::Duration;

use bytes::Bytes;
use hyper::StatusCode;
use runnext::context::Context;
use runnext::trace::{self, Trace};

use crate::totals::Totals;
use crate::{goroutines, metrics, vars};

const TEXT: &str = "text/plain; charset=utf-8";
const JSON: &str = "application/json";
const HTML: &str = "text/html; charset=utf-8";
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The longest trace.
const TRACE_SECONDS: f64 = 60.0;
/// Events of a trace, of all processors: 16 MiB. As text they are ten times that.
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

    /// Something large, of which there is one at a time: until it was sent, or its client has gone.
    fn large(kind: &'static str, text: String, turn: Turn) -> Reply {
        Reply::ok(kind, Bytes::from_owner(Large { text, _turn: turn }))
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

/// A body that keeps others of its kind from being made.
struct Large {
    text: String,
    _turn: Turn,
}

impl AsRef<[u8]> for Large {
    fn as_ref(&self) -> &[u8] {
        self.text.as_bytes()
    }
}

/// Whose turn it is; nobody's when this is dropped.
struct Turn(Arc<AtomicBool>);

impl Turn {
    fn take(of: &Arc<AtomicBool>) -> Option<Turn> {
        (!of.swap(true, Acquire)).then(|| Turn(Arc::clone(of)))
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.store(false, Release);
    }
}

/// What requests share.
#[derive(Default)]
pub(crate) struct State {
    /// There is a dump.
    dump: Arc<AtomicBool>,
    /// There is a trace.
    trace: Arc<AtomicBool>,
    totals: Totals,
}

impl State {
    /// The answer; `client` ends when nobody waits for it any more.
    pub(crate) fn answer(&self, asked: &Asked, client: &Context) -> Reply {
        let answer = match asked.path.as_str() {
            "/" => index(asked),
            "/metrics" => {
                none_but(asked, &[]).map(|()| Reply::ok(OPEN_METRICS, metrics::text(&self.totals)))
            }
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
        let turn = Turn::take(&self.dump)
            .ok_or_else(|| busy("another dump is being made, or sent to its client"))?;
        Ok(if json {
            Reply::large(JSON, goroutines::json(limit), turn)
        } else {
            Reply::large(TEXT, goroutines::text(limit), turn)
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
        let another = || busy("another trace is being written, or sent to its client");
        let turn = Turn::take(&self.trace).ok_or_else(another)?;
        // Their number is rounded up to a power of two.
        let each = TRACE_EVENTS / runnext::procs().next_power_of_two();
        let started = trace::start(trace::Options::default().events_per_proc(each)).is_ok();
        let recorded = || trace::snapshot().filter(Trace::is_coarse);
        if !started && recorded().is_none() {
            return Err(another()); // the program's own
        }
        // A client that goes ends the wait: the next one need not wait for it.
        let _ = client.done().recv_timeout(Duration::from_secs_f64(seconds));
        let trace = if started { trace::stop() } else { recorded() };
        match trace {
            _ if client.err().is_some() => Err(busy("the client has gone")),
            Some(trace) => {
                let text = runnext::blocking(|| trace.to_chrome());
                Ok(Reply::large(JSON, text, turn))
            }
            None => Err(another()),
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

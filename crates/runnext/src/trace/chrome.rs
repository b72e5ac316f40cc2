//! A trace in Chrome's trace event format: JSON that Perfetto and `chrome://tracing` open.
//!
//! | what                     | form                                                              |
//! |--------------------------|-------------------------------------------------------------------|
//! | a P                      | a thread of one process, named P0, P1, …                           |
//! | a goroutine's run        | a complete event (`X`), with why it ended                          |
//! | a wake-up, a birth       | a flow (`s`, `f`) from the run it happened in to the run that came of it |
//! | a steal, a lost P        | an instant (`i`)                                                   |
//! | queues: a P's, the global, a group's; a group's CPU | counters (`C`)                          |
//! | a span, a blocking section | nestable asynchronous events (`b`, `e`) of the goroutine: it may move meanwhile |
//!
//! Times are microseconds since the trace began, with nanoseconds behind the point.

use std::collections::HashMap;
use std::fmt;
use std::io::{self, Write};

use runnext_sys::clock;

use super::Trace;
use super::story::{self, Cast, Item, Run};
use crate::g::WaitReason;
use crate::observe::event::Kind;
use crate::observe::session::OUTSIDE;

pub(super) fn write(trace: &Trace, out: &mut impl Write) -> io::Result<()> {
    let items = story::merge(&trace.rings);
    let cast = story::cast(&items, &trace.numbers);
    let runs = story::runs(&items, &cast, trace.ended);
    let mut json = Json {
        out: io::BufWriter::with_capacity(1 << 16, out),
        began: trace
            .began
            .min(items.first().map_or(trace.began, |i| i.when)),
        first: true,
    };
    json.raw(format_args!(
        "{{\"displayTimeUnit\":\"ns\",\"otherData\":{{\"producer\":\"runnext\",\"events\":{},\"lost\":{},\"coarse\":{}}},\n\
         \"traceEvents\":[",
        trace.events(),
        trace.lost(),
        trace.coarse
    ))?;
    head(trace, &mut json)?;
    for run in &runs {
        json.run(run, &cast)?;
    }
    Telling::new(trace, &cast, &runs).tell(&items, &mut json)?;
    json.raw(format_args!("\n]}}\n"))?;
    json.out.flush()
}

/// Names of the tracks, and what is missing.
fn head<W: Write>(trace: &Trace, json: &mut Json<W>) -> io::Result<()> {
    json.event(format_args!(
        r#""ph":"M","pid":1,"name":"process_name","args":{{"name":"runnext"}}"#
    ))?;
    for (p, copied) in &trace.rings {
        if *p != OUTSIDE {
            json.event(format_args!(
                r#""ph":"M","pid":1,"tid":{p},"name":"thread_name","args":{{"name":"P{p}"}}"#
            ))?;
            json.event(format_args!(
                r#""ph":"M","pid":1,"tid":{p},"name":"thread_sort_index","args":{{"sort_index":{p}}}"#
            ))?;
        }
        if copied.lost > 0 {
            let at = Micros(
                json.since(
                    copied
                        .events
                        .first()
                        .and_then(|e| e.clock())
                        .unwrap_or(trace.ended),
                ),
            );
            let tid = if *p == OUTSIDE { 0 } else { *p };
            json.event(format_args!(
                r#""ph":"i","s":"t","pid":1,"tid":{tid},"ts":{at},"name":"{} events before this were lost","cat":"lost""#,
                copied.lost
            ))?;
        }
    }
    Ok(())
}

struct Json<W: Write> {
    out: io::BufWriter<W>,
    began: u64,
    first: bool,
}

impl<W: Write> Json<W> {
    fn raw(&mut self, text: fmt::Arguments<'_>) -> io::Result<()> {
        self.out.write_fmt(text)
    }

    /// One object of the list.
    fn event(&mut self, body: fmt::Arguments<'_>) -> io::Result<()> {
        let comma = if self.first { "" } else { "," };
        self.first = false;
        writeln!(self.out, "{comma}")?;
        write!(self.out, "{{{body}}}")
    }

    /// Nanoseconds from the beginning.
    fn since(&self, ticks: u64) -> u64 {
        clock::ticks_to_ns(ticks.saturating_sub(self.began))
    }

    fn at(&self, ticks: u64) -> Micros {
        Micros(self.since(ticks))
    }

    fn run(&mut self, run: &Run, cast: &Cast) -> io::Result<()> {
        let (from, to) = (self.since(run.from), self.since(run.to));
        let end = match run.end {
            Some((Kind::Yield, _)) => "yields",
            Some((Kind::Park, reason)) => {
                WaitReason::from_bits(reason).map_or("waits", WaitReason::text)
            }
            Some((Kind::End, _)) => "ends",
            Some((Kind::Preempt, _)) => "is preempted",
            Some((Kind::Robbed, _)) => "blocks its thread",
            _ => "not seen",
        };
        let (p, who) = (run.p, Who(cast.numbers[run.who as usize]));
        self.event(format_args!(
            r#""ph":"X","pid":1,"tid":{p},"ts":{},"dur":{},"name":"goroutine {who}","cat":"run","args":{{"goroutine":"{who}","end":"{end}"}}"#,
            Micros(from),
            Micros(to - from),
        ))
    }
}

/// Everything but the runs, in the order of events.
struct Telling<'a> {
    trace: &'a Trace,
    cast: &'a Cast,
    /// The runs of each P by their beginning.
    by_p: HashMap<usize, Vec<&'a Run>>,
    /// Goroutines that were woken and have not run since: where and when.
    woken: HashMap<u32, (usize, u64)>,
    /// The names of the open spans of each goroutine.
    spans: HashMap<u32, Vec<u64>>,
    flows: u64,
}

impl<'a> Telling<'a> {
    fn new(trace: &'a Trace, cast: &'a Cast, runs: &'a [Run]) -> Telling<'a> {
        let mut by_p: HashMap<usize, Vec<&Run>> = HashMap::new();
        for run in runs {
            by_p.entry(run.p).or_default().push(run);
        }
        Telling {
            trace,
            cast,
            by_p,
            woken: HashMap::new(),
            spans: HashMap::new(),
            flows: 0,
        }
    }

    /// Whether somebody runs on `p` then. Runs of a P are in order and do not overlap.
    fn runs_at(&self, p: usize, when: u64) -> bool {
        let runs = self.by_p.get(&p).map_or(&[][..], Vec::as_slice);
        let next = runs.partition_point(|run| run.to < when);
        runs.get(next).is_some_and(|run| run.from <= when)
    }

    fn tell<W: Write>(mut self, items: &[Item], json: &mut Json<W>) -> io::Result<()> {
        for (item, &who) in items.iter().zip(&self.cast.of) {
            let (p, at) = (item.p, json.at(item.when));
            match item.kind {
                Kind::Wake | Kind::Born if p != OUTSIDE && self.runs_at(p, item.when) => {
                    self.woken.insert(who, (p, item.when));
                }
                Kind::Run => self.flow(item, who, json)?,
                Kind::Steal => json.event(format_args!(
                    r#""ph":"i","s":"t","pid":1,"tid":{p},"ts":{at},"name":"steals from P{}","cat":"steal""#,
                    item.arg
                ))?,
                Kind::Robbed => json.event(format_args!(
                    r#""ph":"i","s":"t","pid":1,"tid":{},"ts":{at},"name":"loses its thread","cat":"block""#,
                    item.arg
                ))?,
                Kind::Queue if p == OUTSIDE => queue("global", item.header, at, json)?,
                Kind::Queue => queue(&format!("P{p}"), item.header, at, json)?,
                Kind::GroupQueue => {
                    let of = format!("group {}", self.group(item));
                    queue(&of, item.value.unwrap_or(0), at, json)?;
                }
                Kind::Group => json.event(format_args!(
                    r#""ph":"C","pid":1,"ts":{at},"name":"group {} CPU","args":{{"ms":{}}}"#,
                    Escaped(self.group(item)),
                    Micros(item.value.unwrap_or(0)),
                ))?,
                Kind::BlockIn => self.side("b", who, at, "blocking", json)?,
                Kind::BlockOut => self.side("e", who, at, "blocking", json)?,
                Kind::Span => {
                    let number = item.value.unwrap_or(u64::MAX);
                    self.spans.entry(who).or_default().push(number);
                    self.side("b", who, at, self.name(number), json)?;
                }
                Kind::SpanEnd => {
                    // One that began before the trace has no name.
                    if let Some(number) = self.spans.get_mut(&who).and_then(Vec::pop) {
                        self.side("e", who, at, self.name(number), json)?;
                    }
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// It runs: if somebody was seen to make it runnable, an arrow comes from there.
    fn flow<W: Write>(&mut self, item: &Item, who: u32, json: &mut Json<W>) -> io::Result<()> {
        let Some((p, when)) = self.woken.remove(&who) else {
            return Ok(());
        };
        self.flows += 1;
        let id = self.flows;
        json.event(format_args!(
            r#""ph":"s","id":{id},"pid":1,"tid":{p},"ts":{},"name":"wake","cat":"wake""#,
            json.at(when)
        ))?;
        json.event(format_args!(
            r#""ph":"f","bp":"e","id":{id},"pid":1,"tid":{},"ts":{},"name":"wake","cat":"wake""#,
            item.p,
            json.at(item.when)
        ))
    }

    fn name(&self, number: u64) -> &'a str {
        let name = self.trace.names.get(number as usize);
        name.map_or("span", |name| name)
    }

    /// The begin (`b`) or end (`e`) of what a goroutine does beside running.
    fn side<W: Write>(
        &self,
        ph: &str,
        who: u32,
        at: Micros,
        name: &str,
        json: &mut Json<W>,
    ) -> io::Result<()> {
        let number = Who(self.cast.numbers[who as usize]);
        json.event(format_args!(
            r#""ph":"{ph}","id":"g{number}","pid":1,"tid":0,"ts":{at},"name":"{}","cat":"goroutine {number}""#,
            Escaped(name)
        ))
    }

    /// The name of the group that an event is about.
    fn group(&self, item: &Item) -> &'a str {
        let lane = item.header as u32;
        self.trace.groups.get(&lane).map_or("gone", |name| name)
    }
}

/// How many goroutines wait somewhere.
fn queue<W: Write>(of: &str, n: u64, at: Micros, json: &mut Json<W>) -> io::Result<()> {
    json.event(format_args!(
        r#""ph":"C","pid":1,"ts":{at},"name":"{} run queue","args":{{"goroutines":{n}}}"#,
        Escaped(of)
    ))
}

/// Thousandths behind a point.
#[derive(Clone, Copy)]
struct Micros(u64);

impl fmt::Display for Micros {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}", self.0 / 1000, self.0 % 1000)
    }
}

/// A goroutine's number, if it is known.
struct Who(Option<u64>);

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.0 {
            Some(id) => write!(f, "{id}"),
            None => write!(f, "?"),
        }
    }
}

/// Text inside of a JSON string.
struct Escaped<'a>(&'a str);

impl fmt::Display for Escaped<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for c in self.0.chars() {
            match c {
                '"' => write!(f, "\\\"")?,
                '\\' => write!(f, "\\\\")?,
                c if c < ' ' => write!(f, "\\u{:04x}", c as u32)?,
                c => write!(f, "{c}")?,
            }
        }
        Ok(())
    }
}

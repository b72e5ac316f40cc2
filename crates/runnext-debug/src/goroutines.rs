//! `/debug/goroutines`: all goroutines, as text or JSON.

use std::fmt::Write;

use runnext::dump::{self, Entry};

use crate::json::{Maybe, Quoted};

pub(crate) fn text(limit: usize) -> String {
    let mut text = String::new();
    let more = dump::for_some(limit, |entry| {
        let _ = writeln!(text, "{entry}");
    });
    if more > 0 {
        let _ = writeln!(text, "... and {more} more");
    }
    text
}

pub(crate) fn json(limit: usize) -> String {
    let mut text = String::from("{\"goroutines\":[");
    let mut first = true;
    let more = dump::for_some(limit, |entry| {
        text.push_str(if first { "\n" } else { ",\n" });
        first = false;
        one(&mut text, &entry);
    });
    let _ = write!(text, "\n],\"more\":{more}}}\n");
    text
}

fn one(text: &mut String, entry: &Entry) {
    let at = entry.spawned_at;
    let _ = write!(
        text,
        "{{\"id\":{},\"name\":{},\"state\":{},\"waiting_seconds\":{:.3},\"locked\":{},\"group\":{},\
         \"spawned_at\":{},\"stack\":[",
        entry.id,
        Maybe(entry.name.as_deref()),
        Quoted(entry.state),
        entry.waiting.unwrap_or_default().as_secs_f64(),
        entry.locked,
        Maybe(entry.group.as_deref()),
        Quoted(&format!("{}:{}:{}", at.file(), at.line(), at.column())),
    );
    for (i, frame) in entry.stack.iter().enumerate() {
        let _ = write!(
            text,
            "{}{{\"function\":{},\"file\":{},\"line\":{}}}",
            if i == 0 { "" } else { "," },
            Quoted(&frame.function),
            Maybe(frame.file.as_deref()),
            frame.line.unwrap_or(0),
        );
    }
    text.push_str("]}");
}

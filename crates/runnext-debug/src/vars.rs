//! `/debug/vars`: every metric by its name, in the manner of Go's expvar; and groups, as many as `/metrics` shows at most.

use std::ffi::OsString;
use std::fmt::Write;

use runnext::stats::{self, Histogram, Metric};
use runnext::{TaskGroup, num_goroutines};

use crate::json::Quoted;

/// Groups that are shown; there may be far more, and each is half a kilobyte.
const GROUPS: usize = 1000;

pub(crate) fn json() -> String {
    let mut text = String::from("{\n\"cmdline\": ");
    cmdline(&mut text, std::env::args_os());
    let _ = write!(text, ",\n\"goroutines\": {}", num_goroutines());
    let stats = stats::read();
    text.push_str(",\n\"sched\": {");
    for (i, (name, metric)) in stats.metrics().enumerate() {
        text.push_str(if i == 0 { "\n" } else { ",\n" });
        let _ = write!(text, "  {}: ", Quoted(name));
        match metric {
            Metric::U64(n) => drop(write!(text, "{n}")),
            Metric::F64(x) => drop(write!(text, "{x}")),
            Metric::Histogram(h) => histogram(&mut text, &h),
        }
    }
    text.push_str("\n},\n\"groups\": [");
    let all = TaskGroup::all();
    for (i, group) in all.iter().take(GROUPS).enumerate() {
        text.push_str(if i == 0 { "\n" } else { ",\n" });
        let s = group.stats();
        let _ = write!(
            text,
            "  {{\"name\": {}, \"cpu_seconds\": {}, \"throttled_seconds\": {}, \"throttled\": {}, \
             \"stalled_seconds\": {}, \"runnable\": {}, \"goroutines\": {}, \"wake_latency\": ",
            Quoted(group.name()),
            s.cpu_time.as_secs_f64(),
            s.throttled_time.as_secs_f64(),
            s.throttled_count,
            s.stalled_time.as_secs_f64(),
            s.runnable,
            s.goroutines,
        );
        histogram(&mut text, &s.wake_latency);
        text.push_str(", \"run_time\": ");
        histogram(&mut text, &s.run_time);
        text.push_str(", \"preempt_latency\": ");
        histogram(&mut text, &s.preempt_latency);
        text.push('}');
    }
    let more = all.len().saturating_sub(GROUPS);
    let _ = write!(text, "\n],\n\"more_groups\": {more}\n}}\n");
    text
}

/// Not all arguments are text.
fn cmdline(text: &mut String, arguments: impl Iterator<Item = OsString>) {
    text.push('[');
    for (i, argument) in arguments.enumerate() {
        let comma = if i == 0 { "" } else { "," };
        let _ = write!(text, "{comma}{}", Quoted(&argument.to_string_lossy()));
    }
    text.push(']');
}

fn histogram(text: &mut String, h: &Histogram) {
    let at = |q: f64| h.quantile(q).as_secs_f64();
    let _ = write!(
        text,
        "{{\"count\": {}, \"sum\": {}, \"p50\": {}, \"p90\": {}, \"p99\": {}, \"p999\": {}, \"max\": {}}}",
        h.count(),
        h.sum().as_secs_f64(),
        at(0.5),
        at(0.9),
        at(0.99),
        at(0.999),
        at(1.0),
    );
}

#[cfg(test)]
mod tests {
    use std::os::unix::ffi::OsStringExt;

    use super::*;

    #[test]
    fn arguments_that_are_no_text_are_shown_as_far_as_they_go() {
        let arguments = [b"a\"b".to_vec(), b"c\xff".to_vec()].map(OsString::from_vec);
        let mut text = String::new();
        cmdline(&mut text, arguments.into_iter());
        assert_eq!(text, "[\"a\\\"b\",\"c\u{fffd}\"]");
    }
}

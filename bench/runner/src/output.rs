//! What the runner shows: progress while it works, then tables and JSON.

use std::collections::BTreeMap;
use std::io::IsTerminal;

use indicatif::{ProgressBar, ProgressStyle};
use serde_json::{Value, json};

use crate::cases::Better;
use crate::exec::QUIET;
use crate::out::say;
use crate::results::{Cell, Outcomes, Row};

/// A bar on a terminal, plain lines elsewhere; on stderr either way.
pub struct Progress {
    bar: Option<ProgressBar>,
    total: u64,
    done: u64,
}

impl Progress {
    /// Of `total` runs.
    pub fn new(total: u64) -> Progress {
        let bar = std::io::stderr().is_terminal().then(|| {
            let style = ProgressStyle::with_template(
                "{bar:30} {pos}/{len} {elapsed} (left {eta}) {wide_msg}",
            )
            .expect("the template is constant");
            ProgressBar::new(total).with_style(style)
        });
        Progress {
            bar,
            total,
            done: 0,
        }
    }

    /// Says what is being done now.
    pub fn now(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.set_message(what.to_owned()),
            None => eprintln!("[{}/{}] {what}", self.done, self.total),
        }
    }

    /// Says something that must stay readable.
    pub fn note(&self, what: &str) {
        match &self.bar {
            Some(bar) => bar.println(what),
            None => eprintln!("{what}"),
        }
    }

    /// Prints to standard output without tearing the bar.
    pub fn aside(&self, print: impl FnOnce()) {
        match &self.bar {
            Some(bar) => bar.suspend(print),
            None => print(),
        }
    }

    /// One run is done.
    pub fn step(&mut self) {
        self.done += 1;
        if let Some(bar) = &self.bar {
            bar.inc(1);
        }
    }

    /// All are done.
    pub fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

/// A figure in about three significant digits.
pub fn number(value: f64) -> String {
    let digits = match value.abs() {
        v if v >= 1_000.0 => return grouped(value.round() as i64),
        v if v >= 100.0 || v == 0.0 => 0,
        v if v >= 10.0 => 1,
        v if v >= 1.0 => 2,
        v if v >= 0.01 => 3,
        _ => 5,
    };
    format!("{value:.digits$}")
}

fn grouped(value: i64) -> String {
    let digits = value.unsigned_abs().to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    if value < 0 { format!("-{text}") } else { text }
}

fn ratio(value: Option<f64>, of: Option<f64>) -> String {
    match value.zip(of) {
        Some((value, of)) if of > 0.0 && value >= 0.0 => match value / of {
            r if r >= 10_000.0 => ">9999".to_owned(),
            r if r >= 100.0 => format!("{r:.0}"),
            r => format!("{r:.2}"),
        },
        _ => String::new(),
    }
}

/// Prints every figure of every runtime: those with a bar, and the first of a case, with ranges and ratios; the others
/// of a case as medians in one table.
pub fn print_rows(rows: &[Row]) {
    for of_case in rows.chunk_by(|a, b| a.case.id == b.case.id) {
        let case = &of_case[0].case;
        say!("\n{}  [{}]", case.title, case.id);
        for (i, row) in of_case.iter().enumerate() {
            // A figure with two bars has two rows, one behind the other.
            let again = i > 0 && of_case[i - 1].metric.key == row.metric.key;
            if i == 0 || (row.verdict.is_some() && !again) {
                print_row(row);
            }
        }
        let others: Vec<_> = of_case
            .iter()
            .skip(1)
            .filter(|row| row.verdict.is_none())
            .collect();
        print_others(&others);
    }
}

fn print_row(row: &Row) {
    let best = if row.metric.better == Better::Lower {
        "lower is better"
    } else {
        "higher is better"
    };
    let title = format!("{} ({}, {best})", row.metric.key, row.metric.unit);
    say!(
        "  {title:<42}{:>12}{:>24}{:>8}{:>8}",
        "median",
        "min – max",
        "÷ go",
        "÷ best"
    );
    for (label, cell) in &row.cells {
        match cell {
            Cell::None(why) => say!("    {label:<40}{:>12}  {why}", "–"),
            Cell::Value {
                median,
                min,
                max,
                quiet,
            } => {
                let range = format!("{} – {}", number(*min), number(*max));
                let go = ratio(Some(*median), row.median("go"));
                let best = ratio(Some(*median), row.best.map(|(_, value)| value));
                let noisy = if *quiet { "" } else { "  noisy" };
                say!(
                    "    {label:<40}{:>12}{range:>24}{go:>8}{best:>8}{noisy}",
                    number(*median)
                );
            }
        }
    }
}

fn print_others(rows: &[&Row]) {
    let Some(first) = rows.first() else { return };
    let heads: String = rows
        .iter()
        .map(|row| format!("{:>16}", row.metric.key))
        .collect();
    say!("  {:<24}{heads}", "medians");
    for (label, _) in &first.cells {
        let cells: String = rows
            .iter()
            .map(|row| format!("{:>16}", row.median(label).map_or("–".to_owned(), number)))
            .collect();
        say!("    {label:<22}{cells}");
    }
}

/// Says in one line how quiet the machine was.
pub fn print_noise(outcomes: &BTreeMap<&'static str, Outcomes>) {
    let runs: Vec<f64> = outcomes
        .values()
        .flat_map(|o| o.values())
        .flatten()
        .map(|run| run.others)
        .collect();
    let noisy = runs.iter().filter(|others| **others > QUIET).count();
    let mean = runs.iter().sum::<f64>() / runs.len().max(1) as f64;
    say!(
        "\nNoise: {noisy} of {} runs shared the machine; others used {mean:.2} cores on average",
        runs.len()
    );
}

/// Prints one line per bar.
pub fn print_bars(rows: &[Row]) {
    let barred: Vec<_> = rows
        .iter()
        .filter_map(|row| Some((row, row.verdict.as_ref()?)))
        .collect();
    if barred.is_empty() {
        return;
    }
    say!("\nBars (only ratios of one session are to be trusted)");
    say!(
        "  {:<29}{:>10}{:>7}{:>7}  {:<27}{:<22}{:>9}  met",
        "figure",
        "runnext",
        "÷ go",
        "÷ best",
        "best rival",
        "bar",
        "target"
    );
    for (row, verdict) in &barred {
        let own = row.median("runnext");
        let best = row.best.map_or(String::new(), |(label, value)| {
            format!("{label} {}", number(value))
        });
        say!(
            "  {:<29}{:>10}{:>7}{:>7}  {:<27}{:<22}{:>9}  {}",
            format!("{} {}", row.case.id, row.metric.key),
            own.map_or("–".to_owned(), number),
            ratio(own, row.median("go")),
            ratio(own, row.best.map(|(_, value)| value)),
            best,
            verdict.bar,
            verdict.target.map_or("–".to_owned(), number),
            match (verdict.met, row.noisy()) {
                (Some(true), false) => "yes",
                (Some(true), true) => "yes (noisy)",
                (Some(false), false) => "NO",
                (Some(false), true) => "NO (noisy)",
                (None, _) => "–",
            }
        );
    }
    let met = barred
        .iter()
        .filter(|(_, verdict)| verdict.met == Some(true))
        .count();
    let known = barred
        .iter()
        .filter(|(_, verdict)| verdict.met.is_some())
        .count();
    say!(
        "  {met} of {known} measured bars met ({} in all)",
        barred.len()
    );
}

/// Everything, for machines.
pub fn json(rows: &[Row], outcomes: &BTreeMap<&'static str, Outcomes>, context: Value) -> Value {
    let figures: Vec<Value> = rows.iter().map(row_json).collect();
    let runs: Vec<Value> = outcomes
        .iter()
        .flat_map(|(case, labels)| labels.iter().map(move |(label, runs)| (case, label, runs)))
        .flat_map(|(case, label, runs)| runs.iter().map(move |run| (case, label, run)))
        .map(|(case, label, run)| {
            let result = run.result.clone().unwrap_or_else(|why| json!({ "failed": why }));
            json!({ "case": case, "runtime": label, "others_cores": run.others, "seconds": run.seconds, "result": result })
        })
        .collect();
    json!({ "context": context, "figures": figures, "runs": runs })
}

fn row_json(row: &Row) -> Value {
    let runtimes: serde_json::Map<String, Value> = (row.cells.iter())
        .map(|(label, cell)| {
            let cell = match cell {
                Cell::Value {
                    median,
                    min,
                    max,
                    quiet,
                } => {
                    json!({ "median": median, "min": min, "max": max, "quiet": quiet })
                }
                Cell::None(why) => json!({ "none": why }),
            };
            (label.to_string(), cell)
        })
        .collect();
    json!({
        "case": row.case.id,
        "part": row.case.part,
        "title": row.case.title,
        "metric": row.metric.key,
        "unit": row.metric.unit,
        "better": if row.metric.better == Better::Lower { "lower" } else { "higher" },
        "runtimes": runtimes,
        "best_rival": row.best.map(|(label, _)| label),
        "bar": row.verdict.as_ref().map(|verdict| json!({
            "text": verdict.bar, "target": verdict.target, "met": verdict.met,
        })),
    })
}

#[cfg(test)]
mod tests {
    use super::number;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0.05, 7.126, 48.51, 123.4, 1_234.0, 1_234_567.0, -2.0].map(number),
            [
                "0.050",
                "7.13",
                "48.5",
                "123",
                "1,234",
                "1,234,567",
                "-2.00"
            ]
        );
    }
}

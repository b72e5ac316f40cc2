//! From runs to medians, ratios and verdicts.

use std::collections::BTreeMap;

use crate::cases::{Bar, Better, Case, Metric};
use crate::exec::{Outcome, QUIET};

/// All outcomes of one case, by label.
pub type Outcomes = BTreeMap<&'static str, Vec<Outcome>>;

/// A figure of one runtime.
#[derive(Clone, Debug)]
pub enum Cell {
    /// Median, least and greatest of the runs that count, and whether all of those were quiet.
    Value {
        median: f64,
        min: f64,
        max: f64,
        quiet: bool,
    },
    /// Why there is no figure: stuck, failed, not offered.
    None(String),
}

impl Cell {
    /// The median, if there is a figure.
    pub fn median(&self) -> Option<f64> {
        match self {
            Cell::Value { median, .. } => Some(*median),
            Cell::None(_) => None,
        }
    }
}

/// What became of a bar.
#[derive(Clone, Debug)]
pub struct Verdict {
    /// The bar in words, with what it is measured against.
    pub bar: String,
    /// The value that runnext's figure is held against, when it is known.
    pub target: Option<f64>,
    /// Whether the figure is within it; `None` when one of the two is missing.
    pub met: Option<bool>,
}

/// One figure of one case over all runtimes.
#[derive(Clone, Debug)]
pub struct Row {
    /// The case.
    pub case: Case,
    /// The figure.
    pub metric: Metric,
    /// By label, in the order of the case's runs.
    pub cells: Vec<(&'static str, Cell)>,
    /// The best rival and its median.
    pub best: Option<(&'static str, f64)>,
    /// Of the bar, if the figure has one.
    pub verdict: Option<Verdict>,
}

impl Row {
    /// The median of a runtime.
    pub fn median(&self, label: &str) -> Option<f64> {
        self.cells
            .iter()
            .find(|(l, _)| *l == label)
            .and_then(|(_, cell)| cell.median())
    }

    /// Whether any median of this row rests on runs that were not quiet.
    pub fn noisy(&self) -> bool {
        self.cells
            .iter()
            .any(|(_, cell)| matches!(cell, Cell::Value { quiet: false, .. }))
    }
}

/// Makes the rows of all cases.
pub fn rows(cases: &[Case], outcomes: &BTreeMap<&'static str, Outcomes>) -> Vec<Row> {
    let mut rows = Vec::new();
    for case in cases {
        let Some(outcomes) = outcomes.get(case.id) else {
            continue;
        };
        for metric in &case.metrics {
            let cells: Vec<_> = (case.runs.iter())
                .filter_map(|run| Some((run.label, cell(metric, outcomes.get(run.label)?))))
                .collect();
            let best = best(metric.better, &cells);
            rows.push(Row {
                case: case.clone(),
                metric: *metric,
                cells,
                best,
                verdict: None,
            });
        }
    }
    let verdicts: Vec<_> = rows.iter().map(|row| verdict(row, &rows)).collect();
    for (row, verdict) in rows.iter_mut().zip(verdicts) {
        row.verdict = verdict;
    }
    rows
}

/// Quiet runs count; with fewer than three of them, the three quietest.
fn cell(metric: &Metric, outcomes: &[Outcome]) -> Cell {
    let mut figures: Vec<(f64, f64)> = Vec::new();
    let mut why = "no such figure".to_owned();
    for outcome in outcomes {
        match &outcome.result {
            Err(message) => why = format!("failed: {message}"),
            Ok(line) if line["unsupported"] == true => why = "not offered".to_owned(),
            Ok(line) if line["stuck"] == true => why = "stuck".to_owned(),
            Ok(line) => figures.extend(
                line[metric.key]
                    .as_f64()
                    .map(|value| (outcome.others, value)),
            ),
        }
    }
    if figures.is_empty() {
        return Cell::None(why);
    }
    figures.sort_by(|a, b| a.0.total_cmp(&b.0));
    let quiet = figures
        .iter()
        .filter(|(others, _)| *others <= QUIET)
        .count();
    figures.truncate(quiet.max(3));
    let mut values: Vec<f64> = figures.iter().map(|(_, value)| *value).collect();
    values.sort_by(f64::total_cmp);
    let middle = values.len() / 2;
    let median = if values.len() % 2 == 1 {
        values[middle]
    } else {
        (values[middle - 1] + values[middle]) / 2.0
    };
    Cell::Value {
        median,
        min: values[0],
        max: values[values.len() - 1],
        quiet: values.len() <= quiet,
    }
}

fn best(better: Better, cells: &[(&'static str, Cell)]) -> Option<(&'static str, f64)> {
    let rivals = cells
        .iter()
        .filter(|(label, _)| !label.starts_with("runnext"));
    let values = rivals.filter_map(|(label, cell)| Some((*label, cell.median()?)));
    match better {
        Better::Lower => values.min_by(|a, b| a.1.total_cmp(&b.1)),
        Better::Higher => values.max_by(|a, b| a.1.total_cmp(&b.1)),
    }
}

fn verdict(row: &Row, rows: &[Row]) -> Option<Verdict> {
    let sign = match row.metric.better {
        Better::Lower => '≤',
        Better::Higher => '≥',
    };
    let (bar, target) = match row.metric.bar? {
        Bar::Value(value) => (format!("{sign} {value} {}", row.metric.unit), Some(value)),
        Bar::Best(ratio) => (
            format!("{sign} {ratio} × best rival"),
            row.best.map(|(_, value)| value * ratio),
        ),
        Bar::Go(ratio) => (
            format!("{sign} {ratio} × go"),
            row.median("go").map(|value| value * ratio),
        ),
        Bar::Rival(rival, ratio) => (
            format!("{sign} {ratio} × {rival}"),
            row.median(rival).map(|value| value * ratio),
        ),
        Bar::Own(id, ratio) => (
            format!("{sign} {ratio} × own {id}"),
            own(rows, id, row.metric.key).map(|value| value * ratio),
        ),
        Bar::Near(id, ratio, plus) => (
            match ratio {
                1.0 => format!("{sign} own {id} + {plus}"),
                _ => format!("{sign} own {id} × {ratio} or + {plus}"),
            },
            own(rows, id, row.metric.key).map(|value| (value * ratio).max(value + plus)),
        ),
    };
    let met = row
        .median("runnext")
        .zip(target)
        .map(|(value, target)| match row.metric.better {
            Better::Lower => value <= target,
            Better::Higher => value >= target,
        });
    Some(Verdict { bar, target, met })
}

/// runnext's own figure in another case.
fn own(rows: &[Row], id: &str, key: &str) -> Option<f64> {
    let mut rows = rows.iter();
    let other = rows.find(|other| other.case.id == id && other.metric.key == key)?;
    other.median("runnext")
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn outcome(others: f64, line: serde_json::Value) -> Outcome {
        Outcome {
            result: Ok(line),
            others,
            seconds: 1.0,
        }
    }

    fn metric(bar: Bar) -> Metric {
        Metric {
            key: "ns",
            unit: "ns",
            better: Better::Lower,
            bar: Some(bar),
        }
    }

    #[test]
    fn quiet_runs_win_over_noisy_ones() {
        let runs: Vec<_> = [(0.0, 1.0), (0.1, 2.0), (0.0, 3.0), (1.5, 90.0), (1.2, 80.0)]
            .map(|(others, ns)| outcome(others, json!({ "ns": ns })))
            .into();
        let Cell::Value {
            median, max, quiet, ..
        } = cell(&metric(Bar::Value(1.0)), &runs)
        else {
            panic!()
        };
        assert_eq!((median, max, quiet), (2.0, 3.0, true));
    }

    #[test]
    fn stuck_is_no_figure() {
        let cell = cell(
            &metric(Bar::Value(1.0)),
            &[outcome(0.0, json!({ "ns": 1.0, "stuck": true }))],
        );
        assert_eq!(cell.median(), None);
    }

    #[test]
    fn bars_are_held_against_the_rivals_of_the_same_session() {
        let mut case = crate::cases::all().swap_remove(0);
        case.metrics = vec![metric(Bar::Best(0.5)), metric(Bar::Go(0.5))];
        let figures = [("runnext", 30.0), ("go", 80.0), ("may", 50.0)];
        let outcomes = figures
            .map(|(label, ns)| (label, vec![outcome(0.0, json!({ "ns": ns }))]))
            .into();
        let rows = rows(&[case.clone()], &[(case.id, outcomes)].into());
        assert_eq!(rows[0].best, Some(("may", 50.0)));
        assert_eq!(rows[0].verdict.as_ref().unwrap().met, Some(false));
        assert_eq!(rows[1].verdict.as_ref().unwrap().met, Some(true));
    }

    #[test]
    fn a_bar_near_an_own_figure_takes_the_more_generous_of_two() {
        let all = crate::cases::all();
        let (mut alone, mut beside) = (all[0].clone(), all[1].clone());
        alone.metrics = vec![metric(Bar::Value(9.0))];
        let near = |ratio, plus| metric(Bar::Near(alone.id, ratio, plus));
        beside.metrics = vec![near(1.2, 0.3), near(1.0, 1.5), near(1.2, 3.0)];
        let of = |ns| Outcomes::from([("runnext", vec![outcome(0.0, json!({ "ns": ns }))])]);
        let outcomes = [(alone.id, of(5.0)), (beside.id, of(7.0))].into();
        let rows = rows(&[alone, beside], &outcomes);
        let verdicts = rows[1..].iter().map(|row| row.verdict.as_ref().unwrap());
        let met: Vec<_> = verdicts.map(|v| (v.target.unwrap(), v.met)).collect();
        assert_eq!(
            met,
            [(6.0, Some(false)), (6.5, Some(false)), (8.0, Some(true))]
        );
    }
}

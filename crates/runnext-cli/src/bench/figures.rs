//! The runner's results, read back: figures by case and runtime, and the lines that cases named `grow-…` make.

use std::collections::BTreeMap;

use serde_json::Value;

/// Everything in a results file that the report shows.
pub struct Results {
    pub versions: Vec<(String, String)>,
    pub cores: u64,
    pub quick: bool,
    /// Sentences about rivals that could not run, and how to get them.
    pub missing: Vec<String>,
    pub figures: Vec<Figure>,
}

/// One figure of one case over all runtimes.
pub struct Figure {
    pub case: String,
    pub title: String,
    pub metric: String,
    pub unit: String,
    pub higher_is_better: bool,
    /// By runtime; none where there is no figure, with the reason.
    pub cells: BTreeMap<String, Result<Cell, String>>,
    pub best_rival: Option<String>,
    pub bar: Option<Bar>,
}

/// Median and range of the runs that count.
#[derive(Clone, Copy)]
pub struct Cell {
    pub median: f64,
    pub min: f64,
    pub max: f64,
    pub quiet: bool,
}

/// A promise.
pub struct Bar {
    pub text: String,
    pub met: Option<bool>,
}

/// A line per runtime: how a figure changes with a number.
pub struct Growth {
    /// `grow-procs`.
    pub name: String,
    /// The unit of what is measured.
    pub unit: String,
    pub metric: String,
    pub lines: BTreeMap<String, Vec<(f64, f64)>>,
}

impl Growth {
    /// What grows: "procs".
    pub fn axis(&self) -> &str {
        self.name.trim_start_matches("grow-")
    }

    /// For people.
    pub fn title(&self) -> String {
        format!(
            "{} ({}) by number of {}",
            self.metric.replace('_', " "),
            self.unit,
            self.axis()
        )
    }
}

impl Figure {
    /// The median of a runtime.
    pub fn median(&self, runtime: &str) -> Option<f64> {
        self.cells
            .get(runtime)?
            .as_ref()
            .ok()
            .map(|cell| cell.median)
    }

    /// Cost of runnext in units of another runtime's: below 1 is better, whichever way the figure counts.
    pub fn cost_ratio(&self, runtime: &str) -> Option<f64> {
        let (own, other) = (self.median("runnext")?, self.median(runtime)?);
        if own <= 0.0 || other <= 0.0 {
            return None;
        }
        Some(if self.higher_is_better {
            other / own
        } else {
            own / other
        })
    }

    /// How far apart the runs of a runtime were, as a factor.
    pub fn spread(&self, runtime: &str) -> Option<f64> {
        let cell = self.cells.get(runtime)?.as_ref().ok()?;
        (cell.min > 0.0).then(|| cell.max / cell.min)
    }
}

impl Results {
    /// Reads what the runner wrote.
    pub fn parse(text: &str) -> Result<Results, String> {
        let value: Value = serde_json::from_str(text).map_err(|e| format!("not JSON: {e}"))?;
        let context = &value["context"];
        let list = value["figures"]
            .as_array()
            .ok_or("no figures in it: not a result of the runner")?;
        let words = |value: &Value| value.as_str().unwrap_or_default().to_owned();
        Ok(Results {
            versions: context["versions"]
                .as_object()
                .map(|map| map.iter().map(|(k, v)| (k.clone(), words(v))).collect())
                .unwrap_or_default(),
            cores: context["cores"].as_u64().unwrap_or(0),
            quick: context["quick"].as_bool().unwrap_or(false),
            missing: context["missing"]
                .as_array()
                .map(|list| list.iter().map(words).collect())
                .unwrap_or_default(),
            figures: list.iter().map(figure).collect(),
        })
    }

    /// The first figure of each case, as runnext's cost over that of the best rival.
    pub fn ratios(&self) -> Vec<(String, f64, String)> {
        let mut seen = std::collections::BTreeSet::new();
        self.figures
            .iter()
            .filter(|f| !f.case.starts_with("grow-"))
            .filter_map(|f| {
                let rival = f.best_rival.clone()?;
                let ratio = f.cost_ratio(&rival)?;
                seen.insert(f.case.clone())
                    .then(|| (f.title.clone(), ratio, rival))
            })
            .collect()
    }

    /// The cases named `grow-<what>-<how many>`, as lines.
    pub fn growths(&self) -> Vec<Growth> {
        let mut growths: Vec<Growth> = Vec::new();
        for f in self.figures.iter().filter(|f| f.case.starts_with("grow-")) {
            let Some((name, Ok(x))) = f
                .case
                .rsplit_once('-')
                .map(|(name, x)| (name, x.parse::<f64>()))
            else {
                continue;
            };
            let at = growths
                .iter()
                .position(|growth| growth.name == name)
                .unwrap_or_else(|| {
                    growths.push(Growth {
                        name: name.to_owned(),
                        unit: f.unit.clone(),
                        metric: f.metric.clone(),
                        lines: BTreeMap::new(),
                    });
                    growths.len() - 1
                });
            for runtime in f.cells.keys() {
                if let Some(y) = f.median(runtime).filter(|y| *y > 0.0) {
                    growths[at]
                        .lines
                        .entry(runtime.clone())
                        .or_default()
                        .push((x, y));
                }
            }
        }
        growths
    }
}

fn figure(value: &Value) -> Figure {
    let words = |key: &str| value[key].as_str().unwrap_or_default().to_owned();
    let cells = value["runtimes"].as_object().map(|map| {
        map.iter()
            .map(|(runtime, cell)| (runtime.clone(), read_cell(cell)))
            .collect()
    });
    Figure {
        case: words("case"),
        title: words("title"),
        metric: words("metric"),
        unit: words("unit"),
        higher_is_better: value["better"] == "higher",
        cells: cells.unwrap_or_default(),
        best_rival: value["best_rival"].as_str().map(str::to_owned),
        bar: value["bar"]["text"].as_str().map(|text| Bar {
            text: text.to_owned(),
            met: value["bar"]["met"].as_bool(),
        }),
    }
}

fn read_cell(cell: &Value) -> Result<Cell, String> {
    let number = |key: &str| cell[key].as_f64();
    match (number("median"), number("min"), number("max")) {
        (Some(median), Some(min), Some(max)) => Ok(Cell {
            median,
            min,
            max,
            quiet: cell["quiet"].as_bool().unwrap_or(true),
        }),
        _ => Err(cell["none"].as_str().unwrap_or("no figure").to_owned()),
    }
}

#[cfg(test)]
pub mod tests {
    use super::*;

    /// As the runner writes it, shortened.
    pub const SAMPLE: &str = r#"{
        "context": { "versions": { "tokio": "1.54.1" }, "cores": 2, "quick": true, "missing": ["go: no `go` found. Install it"] },
        "figures": [
            { "case": "yield-2", "title": "a switch", "metric": "ns", "unit": "ns", "better": "lower", "best_rival": "tokio",
              "runtimes": { "runnext": { "median": 20, "min": 19, "max": 22, "quiet": true },
                            "tokio": { "median": 50, "min": 49, "max": 60, "quiet": false },
                            "may": { "none": "stuck" } },
              "bar": { "text": "≤ 0.5 × best rival", "target": 25, "met": true } },
            { "case": "fanin", "title": "fan-in", "metric": "m", "unit": "M/s", "better": "higher", "best_rival": "tokio",
              "runtimes": { "runnext": { "median": 30, "min": 29, "max": 31, "quiet": true },
                            "tokio": { "median": 15, "min": 15, "max": 15, "quiet": true } }, "bar": null },
            { "case": "grow-procs-1", "title": "P=1", "metric": "ns_per_task", "unit": "ns", "better": "lower", "best_rival": null,
              "runtimes": { "runnext": { "median": 100, "min": 90, "max": 110, "quiet": true } }, "bar": null },
            { "case": "grow-procs-8", "title": "P=8", "metric": "ns_per_task", "unit": "ns", "better": "lower", "best_rival": null,
              "runtimes": { "runnext": { "median": 150, "min": 90, "max": 190, "quiet": true } }, "bar": null }
        ], "runs": [] }"#;

    #[test]
    fn ratios_are_costs_whichever_way_a_figure_counts() {
        let ratios = Results::parse(SAMPLE).unwrap().ratios();
        assert_eq!(
            ratios
                .iter()
                .map(|(_, ratio, _)| *ratio)
                .collect::<Vec<_>>(),
            [0.4, 0.5]
        );
    }

    #[test]
    fn cases_of_one_name_make_a_line() {
        let growths = Results::parse(SAMPLE).unwrap().growths();
        assert_eq!(growths.len(), 1);
        assert_eq!(growths[0].axis(), "procs");
        assert_eq!(growths[0].lines["runnext"], [(1.0, 100.0), (8.0, 150.0)]);
    }

    #[test]
    fn what_is_no_result_is_refused() {
        assert!(Results::parse("{}").is_err());
        assert!(Results::parse("x").is_err());
    }
}

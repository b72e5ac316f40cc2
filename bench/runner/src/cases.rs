//! What is measured: every case with its runs and the bars that runnext has to meet.
//!
//! A *case* is a scenario with its parameters; a *run* is a case on one runtime, possibly in a variant of its own; a *bar*
//! is a promise about one figure, as a ratio to rivals measured in the same session, or as an absolute value.

mod futures;
mod part1;
mod part2;
mod part3;
mod part4;
mod part5;
mod part6;
mod part7;

/// Which direction is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Better {
    /// Times, bytes.
    Lower,
    /// Rates.
    Higher,
}

/// What runnext promises about a figure. Read "at most" for [`Better::Lower`] and "at least" for [`Better::Higher`].
#[derive(Clone, Copy, Debug)]
pub enum Bar {
    /// Times the best rival's figure.
    Best(f64),
    /// Times Go's figure.
    Go(f64),
    /// A value.
    Value(f64),
    /// Times that rival's figure.
    Rival(&'static str, f64),
    /// Times runnext's own figure of the same name in another case.
    Own(&'static str, f64),
    /// That figure times the first, or plus the second, whichever is more.
    Near(&'static str, f64, f64),
}

/// A figure of a case.
#[derive(Clone, Copy, Debug)]
pub struct Metric {
    /// Its name in the program's JSON line.
    pub key: &'static str,
    /// Its unit.
    pub unit: &'static str,
    /// Which direction is good.
    pub better: Better,
    /// The promise, if there is one.
    pub bar: Option<Bar>,
}

/// A case on one runtime.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The program.
    pub program: &'static str,
    /// The name in the table: the program's, or that of a variant.
    pub label: &'static str,
    /// Arguments of this run only.
    pub args: &'static str,
}

/// A scenario with its parameters.
#[derive(Clone, Debug)]
pub struct Case {
    /// Unique name, given to `--scenario`.
    pub id: &'static str,
    /// The scenario the programs know.
    pub scenario: &'static str,
    /// The part of the project it came with.
    pub part: u32,
    /// For people.
    pub title: &'static str,
    /// Arguments for all, `key=value` by words.
    pub args: &'static str,
    /// Arguments that make it short, for `--quick`.
    pub quick: &'static str,
    /// Repetitions unless asked otherwise.
    pub reps: usize,
    /// Runs, runnext first.
    pub runs: Vec<Run>,
    /// Figures.
    pub metrics: Vec<Metric>,
}

impl Case {
    fn new(part: u32, id: &'static str, scenario: &'static str) -> Case {
        Case {
            id,
            scenario,
            part,
            title: "",
            args: "",
            quick: "",
            reps: 5,
            runs: Vec::new(),
            metrics: Vec::new(),
        }
        .on(&["runnext"])
    }

    fn title(mut self, title: &'static str) -> Case {
        self.title = title;
        self
    }

    fn args(mut self, args: &'static str) -> Case {
        self.args = args;
        self
    }

    fn quick(mut self, args: &'static str) -> Case {
        self.quick = args;
        self
    }

    fn reps(mut self, reps: usize) -> Case {
        self.reps = reps;
        self
    }

    /// On these programs as they are.
    fn on(self, programs: &[&'static str]) -> Case {
        let as_it_is = |case: Case, &program| case.with(program, program, "");
        programs.iter().fold(self, as_it_is)
    }

    /// On one program with arguments of its own, under another name.
    fn with(mut self, program: &'static str, label: &'static str, args: &'static str) -> Case {
        self.runs.push(Run {
            program,
            label,
            args,
        });
        self
    }

    fn low(self, key: &'static str, unit: &'static str, bar: impl Into<Option<Bar>>) -> Case {
        self.metric(key, unit, Better::Lower, bar.into())
    }

    fn high(self, key: &'static str, unit: &'static str, bar: impl Into<Option<Bar>>) -> Case {
        self.metric(key, unit, Better::Higher, bar.into())
    }

    /// Another bar for the figure before.
    fn also(mut self, bar: Bar) -> Case {
        let mut again = *self.metrics.last().expect("a figure before");
        again.bar = Some(bar);
        self.metrics.push(again);
        self
    }

    fn metric(
        mut self,
        key: &'static str,
        unit: &'static str,
        better: Better,
        bar: Option<Bar>,
    ) -> Case {
        self.metrics.push(Metric {
            key,
            unit,
            better,
            bar,
        });
        self
    }
}

/// All cases in the order they run.
pub fn all() -> Vec<Case> {
    [
        part1::all(),
        part2::all(),
        part3::all(),
        part4::all(),
        part5::all(),
        futures::all(),
        part6::all(),
        part7::all(),
    ]
    .concat()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeSet;

    #[test]
    fn names_are_unique_titles_given_and_bars_refer_to_existing_cases() {
        let cases = all();
        let ids: BTreeSet<_> = cases.iter().map(|case| case.id).collect();
        assert_eq!(ids.len(), cases.len());
        for case in &cases {
            let labels: BTreeSet<_> = case.runs.iter().map(|run| run.label).collect();
            assert_eq!(labels.len(), case.runs.len(), "{}", case.id);
            assert!(!case.title.is_empty(), "{}", case.id);
            for metric in &case.metrics {
                match metric.bar {
                    Some(Bar::Own(other, _) | Bar::Near(other, ..)) => {
                        let other = cases.iter().find(|case| case.id == other);
                        let has = |other: &Case| other.metrics.iter().any(|m| m.key == metric.key);
                        assert!(other.is_some_and(has), "{} {}", case.id, metric.key);
                    }
                    Some(Bar::Rival(rival, _)) => assert!(labels.contains(rival), "{}", case.id),
                    Some(Bar::Go(_)) => assert!(labels.contains("go"), "{}", case.id),
                    _ => {}
                }
            }
        }
    }
}

//! One JSON line per run.

use serde_json::{Map, Value};

/// The result of one run: a name and figures.
#[derive(Debug)]
pub struct Report {
    fields: Map<String, Value>,
}

impl Report {
    /// An empty report of `scenario`.
    pub fn new(scenario: &str) -> Report {
        let mut fields = Map::new();
        fields.insert("scenario".into(), scenario.into());
        Report { fields }
    }

    /// Adds a figure.
    #[must_use]
    pub fn put(mut self, key: &str, value: f64) -> Report {
        self.fields.insert(key.into(), value.into());
        self
    }

    /// Adds a yes or no.
    #[must_use]
    pub fn flag(mut self, key: &str, value: bool) -> Report {
        self.fields.insert(key.into(), value.into());
        self
    }

    /// Adds p50, p90, p99, p99.9 and max of `samples` as `<prefix>p50` and so on.
    #[must_use]
    pub fn percentiles(mut self, prefix: &str, samples: &mut [f64]) -> Report {
        samples.sort_by(f64::total_cmp);
        for (name, q) in [
            ("p50", 0.5),
            ("p90", 0.9),
            ("p99", 0.99),
            ("p999", 0.999),
            ("max", 1.0),
        ] {
            if let Some(value) = percentile(samples, q) {
                self = self.put(&format!("{prefix}{name}"), value);
            }
        }
        self.put(&format!("{prefix}samples"), samples.len() as f64)
    }

    /// Prints the line.
    pub fn print(self) {
        println!("{}", Value::Object(self.fields));
    }

    /// Prints the line and ends the process at once, whatever the runtime is still doing.
    pub fn print_and_exit(self) -> ! {
        self.print();
        std::process::exit(0)
    }
}

/// The nearest-rank percentile of sorted samples; `None` when there are none.
pub fn percentile(sorted: &[f64], q: f64) -> Option<f64> {
    let rank = (q * sorted.len() as f64).ceil() as usize;
    sorted.get(rank.clamp(1, sorted.len().max(1)) - 1).copied()
}

/// Ends the process the way the runner takes for "this runtime has no such thing".
pub fn unsupported(scenario: &str) -> ! {
    println!(
        "{}",
        serde_json::json!({ "scenario": scenario, "unsupported": true })
    );
    std::process::exit(0)
}

#[cfg(test)]
mod tests {
    use super::percentile;

    #[test]
    fn nearest_rank() {
        let samples: Vec<f64> = (1..=100).map(f64::from).collect();
        assert_eq!(percentile(&samples, 0.5), Some(50.0));
        assert_eq!(percentile(&samples, 0.99), Some(99.0));
        assert_eq!(percentile(&samples, 1.0), Some(100.0));
        assert_eq!(percentile(&samples, 0.0), Some(1.0));
        assert_eq!(percentile(&[], 0.5), None);
    }
}

//! What the demo shows: what will happen, one table, the distributions, the claims; or all of it as JSON.

use std::io::IsTerminal;

use serde_json::{Value, json};

use super::load::RATE;
use super::work::{HEAVY_US, LIGHT_US};
use super::{Claim, QUIET, Scene, Stage, UNDISTURBED};
use crate::out::say;

/// Width of the longest bar of a distribution.
const BAR: usize = 40;
/// Upper ends of the distribution's rows, in milliseconds; the last has none.
const EDGES: [f64; 11] = [
    0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 25.0, 50.0, 100.0, 250.0,
];

/// Says what is about to happen.
pub fn opening(stage: &Stage) {
    say!(
        "A web server on runnext, {}, under mixed load:",
        processors(stage.procs)
    );
    say!(
        "  light  {RATE:.0} requests/s that need {LIGHT_US} µs of CPU each; they come when they come, and their latency counts from then"
    );
    say!(
        "  heavy  {} clients, one request after the other, that need {} ms of CPU each\n",
        stage.load.heavy_clients,
        HEAVY_US / 1000
    );
}

/// Prints the table, the distributions and the claims.
pub fn print(stage: &Stage, scenes: &[Scene], claims: &[Claim], discarded: &[Claim]) {
    table(scenes);
    say!("\nLight requests by latency");
    for (i, scene) in scenes.iter().enumerate() {
        say!("\n  act {}: {}", i + 1, scene.act.title);
        histogram(scene);
    }
    say!("\nClaims");
    for claim in claims {
        let verdict = if claim.held() { "held" } else { "NOT HELD" };
        say!(
            "  {:<38}{:>8} ×   at least {:>4} ×   {verdict}",
            claim.text,
            figure(claim.value),
            claim.target
        );
    }
    for claim in discarded {
        say!(
            "  the first time, on a busy machine: {} {} ×",
            claim.text,
            figure(claim.value)
        );
    }
    remarks(stage, scenes, claims);
}

fn table(scenes: &[Scene]) {
    say!(
        "{:<38}{:^42}{:>10}{:>8}",
        "",
        "light requests, ms",
        "heavy",
        "CPU"
    );
    say!(
        "{:<38}{:>9}{:>10}{:>10}{:>10}{:>13}{:>8}",
        "act",
        "p50",
        "p99",
        "p99.9",
        "max",
        "per second",
        "busy"
    );
    for (i, scene) in scenes.iter().enumerate() {
        let m = &scene.measured;
        say!(
            "{:<38}{:>9}{:>10}{:>10}{:>10}{:>13}{:>7.0}%",
            format!("{}  {}", i + 1, scene.act.title),
            figure(m.quantile(0.5)),
            figure(m.quantile(0.99)),
            figure(m.quantile(0.999)),
            figure(m.max()),
            figure(m.heavy_per_second()),
            scene.busy * 100.0
        );
    }
}

/// Rows from the first to the last that is not empty.
fn histogram(scene: &Scene) {
    let counts = buckets(scene);
    let total: u64 = counts.iter().sum::<u64>().max(1);
    let most = counts.iter().copied().max().unwrap_or(1).max(1);
    let used = |i: &usize| counts[*i] > 0;
    let (Some(first), Some(last)) = ((0..counts.len()).find(used), (0..counts.len()).rfind(used))
    else {
        return say!("    none");
    };
    let (full, some) = if std::io::stdout().is_terminal() {
        ("█", "▏")
    } else {
        ("#", ".")
    };
    for (i, &count) in counts.iter().enumerate().take(last + 1).skip(first) {
        let edge = EDGES
            .get(i)
            .map_or("    more".to_owned(), |edge| format!("≤ {edge:>6}"));
        let bar = match (count as usize * BAR).div_euclid(most as usize) {
            0 if count > 0 => some.to_owned(),
            n => full.repeat(n),
        };
        say!(
            "    {edge} ms {bar:<BAR$} {:>6.2}%",
            count as f64 * 100.0 / total as f64
        );
    }
}

fn buckets(scene: &Scene) -> Vec<u64> {
    let mut counts = vec![0; EDGES.len() + 1];
    for value in scene.measured.light.iter_recorded() {
        let ms = value.value_iterated_to() as f64 / 1e3;
        let at = EDGES
            .iter()
            .position(|edge| ms <= *edge)
            .unwrap_or(EDGES.len());
        counts[at] += value.count_at_value();
    }
    counts
}

fn remarks(stage: &Stage, scenes: &[Scene], claims: &[Claim]) {
    let late = scenes
        .iter()
        .map(|scene| scene.measured.late.value_at_quantile(0.99) as f64 / 1e3)
        .fold(0.0, f64::max);
    say!(
        "\nThe load generator itself was up to {} ms late (p99 of the worst act).",
        figure(late)
    );
    let unanswered: u64 = scenes.iter().map(|scene| scene.measured.unanswered).sum();
    if unanswered > 0 {
        say!(
            "{unanswered} light requests had no answer when the acts ended; they count with what they had waited."
        );
    }
    let most = |of: fn(&Scene) -> f64| scenes.iter().map(of).fold(0.0, f64::max);
    let others = most(|scene| scene.shared.others);
    if others > QUIET {
        say!(
            "Other programs used up to {others:.1} of {} cores meanwhile: the figures are blurred.",
            stage.cores
        );
    }
    let stolen = most(|scene| scene.shared.stolen);
    if stolen > UNDISTURBED {
        say!(
            "The host of this virtual machine took up to {:.0} ms of CPU time a second: it is in the tails.",
            stolen * 1e3
        );
    }
    if !claims.iter().all(Claim::held) {
        say!(
            "A claim did not hold. On a busy machine try again when it is quiet; `runnext doctor` says what this one lacks. \
             If both are fine, this is a bug: please report it with the output of `runnext demo --json`."
        );
    }
}

fn processors(n: usize) -> String {
    let s = if n == 1 { "" } else { "s" };
    format!("{n} processor{s}")
}

/// About three significant digits.
fn figure(value: f64) -> String {
    match value {
        v if v >= 100.0 => format!("{v:.0}"),
        v if v >= 10.0 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

/// Everything, for machines.
pub fn json(stage: &Stage, scenes: &[Scene], claims: &[Claim], discarded: &[Claim]) -> Value {
    let acts: Vec<Value> = scenes
        .iter()
        .map(|scene| {
            let m = &scene.measured;
            json!({
                "act": scene.act.name,
                "title": scene.act.title,
                "preemption": scene.act.preemption,
                "groups": scene.act.groups,
                "light": {
                    "requests": m.light.len(),
                    "unanswered": m.unanswered,
                    "p50_ms": m.quantile(0.5),
                    "p90_ms": m.quantile(0.9),
                    "p99_ms": m.quantile(0.99),
                    "p99_9_ms": m.quantile(0.999),
                    "max_ms": m.max(),
                },
                "heavy_per_second": m.heavy_per_second(),
                "cpu_busy_percent": scene.busy * 100.0,
                "generator_late_p99_ms": m.late.value_at_quantile(0.99) as f64 / 1e3,
                "others_cores": scene.shared.others,
                "stolen_cores": scene.shared.stolen,
            })
        })
        .collect();
    let as_json = |claims: &[Claim]| -> Vec<Value> {
        claims.iter().map(|claim| json!({ "claim": claim.text, "value": claim.value, "at_least": claim.target, "held": claim.held() }))
        .collect()
    };
    json!({
        "version": env!("CARGO_PKG_VERSION"),
        "procs": stage.procs,
        "cores": stage.cores,
        "seconds_per_act": stage.load.seconds.as_secs(),
        "light_per_second": RATE,
        "heavy_clients": stage.load.heavy_clients,
        "acts": acts,
        "claims": as_json(claims),
        "discarded_first_play": as_json(discarded),
        "held": claims.iter().all(Claim::held),
    })
}

#[cfg(test)]
mod tests {
    use super::{figure, processors};

    #[test]
    fn one_processor_is_no_plural() {
        assert_eq!(processors(1), "1 processor");
        assert_eq!(processors(2), "2 processors");
    }

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0.123, 1.5, 12.34, 173.4].map(figure),
            ["0.12", "1.50", "12.3", "173"]
        );
    }
}

//! Builds and runs every benchmark scenario on every runtime, interleaved, and compares.
//!
//! Within each repetition of a case all runtimes take their turn, so that a slow minute of the machine hits all of them. Each run is
//! weighed by how much CPU others used meanwhile; a noisy one is repeated once. The medians of the quiet runs are
//! compared with each other and with the bars in `cases.rs`. See `bench/README.md`.

#![deny(clippy::print_stdout)]

mod cases;
mod exec;
mod out;
mod output;
mod programs;
mod results;

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use cases::{Case, Run};
use clap::Parser;
use out::say;
use output::Progress;
use results::Outcomes;

#[derive(Parser, Debug)]
#[command(about = "Compares runnext with Go, tokio, smol, may and OS threads")]
struct Options {
    /// Only cases whose name or scenario starts with one of these (see --list)
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Only cases of these parts of the project
    #[arg(long, value_delimiter = ',')]
    part: Vec<u32>,
    /// Only these rivals
    #[arg(long, value_delimiter = ',', value_parser = programs::RIVALS, default_values = programs::RIVALS)]
    rivals: Vec<String>,
    /// Leave runnext out
    #[arg(long)]
    rivals_only: bool,
    /// Repetitions of every case (default: 5, or 3 where a run is long)
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    reps: Option<u16>,
    /// Short runs, one repetition, no waiting for a quiet machine
    #[arg(long)]
    quick: bool,
    /// Take the machine as it is: neither wait for quiet nor repeat noisy runs
    #[arg(long)]
    no_wait: bool,
    /// Write everything to this file
    #[arg(long)]
    json: Option<PathBuf>,
    /// List the cases and their bars, and end
    #[arg(long)]
    list: bool,
}

fn main() -> ExitCode {
    let options = Options::parse();
    let cases = match select(&options) {
        Ok(cases) => cases,
        Err(why) => {
            eprintln!("error: {why}");
            return ExitCode::from(2);
        }
    };
    if options.list {
        list(&cases);
        return ExitCode::SUCCESS;
    }
    let mut wanted = options.rivals.clone();
    if !options.rivals_only {
        wanted.insert(0, "runnext".to_owned());
    }
    let (programs, missing) = programs::build(&wanted, |what| eprintln!("{what}"));
    for sentence in &missing {
        eprintln!("{sentence}");
    }
    let step_ns = calibrate();
    let outcomes = measure(&options, &cases, &programs, step_ns);
    let rows = results::rows(&cases, &outcomes);
    output::print_noise(&outcomes);
    output::print_bars(&rows);
    if let Some(path) = &options.json {
        let context = serde_json::json!({
            "versions": programs::versions(),
            "cores": std::thread::available_parallelism().map_or(0, usize::from),
            "step_ns": step_ns,
            "quick": options.quick,
            "missing": missing,
        });
        let text = format!("{:#}\n", output::json(&rows, &outcomes, context));
        if let Err(error) = std::fs::write(path, text) {
            eprintln!("cannot write {}: {error}", path.display());
            return ExitCode::FAILURE;
        }
    }
    ExitCode::SUCCESS
}

/// The cases that are meant, at least one; or what is wrong with what was asked for.
fn select(options: &Options) -> Result<Vec<Case>, String> {
    let all = cases::all();
    let is_named = |case: &Case, name: &str| case.id.starts_with(name) || case.scenario == name;
    for name in &options.scenario {
        if name.is_empty() || !all.iter().any(|case| is_named(case, name)) {
            return Err(format!(
                "no case is named {name:?}, begins so or has this scenario; there are: {}",
                words(all.iter().map(|case| case.id))
            ));
        }
    }
    for part in &options.part {
        if !all.iter().any(|case| case.part == *part) {
            return Err(format!(
                "no case is of part {part}; there are: {}",
                words(all.iter().map(|case| case.part))
            ));
        }
    }
    let meant = |case: &Case| {
        let named = options.scenario.iter().any(|name| is_named(case, name));
        (options.scenario.is_empty() || named)
            && (options.part.is_empty() || options.part.contains(&case.part))
    };
    let cases: Vec<Case> = all.into_iter().filter(meant).collect();
    if cases.is_empty() {
        return Err("no case is both in --scenario and in --part; --list shows them".to_owned());
    }
    Ok(cases)
}

/// Each once, in order, for a message.
fn words(all: impl Iterator<Item = impl Ord + ToString>) -> String {
    let each: BTreeSet<_> = all.collect();
    let each: Vec<_> = each.iter().map(ToString::to_string).collect();
    each.join(", ")
}

fn list(cases: &[Case]) {
    let rows = results::rows(
        cases,
        &cases
            .iter()
            .map(|case| (case.id, Outcomes::new()))
            .collect(),
    );
    for row in rows {
        let bar = row.verdict.map_or(String::new(), |verdict| verdict.bar);
        say!(
            "{:<17}{:<60}{:<20}{bar}",
            row.case.id,
            row.case.title,
            row.metric.key
        );
    }
}

/// Nanoseconds of one step of `harness::work`: the least of many, so that noise does not make the work longer.
fn calibrate() -> f64 {
    const STEPS: u64 = 2_000_000;
    let once = || {
        let begin = Instant::now();
        harness::work(STEPS);
        begin.elapsed().as_nanos() as f64 / STEPS as f64
    };
    (0..50).map(|_| once()).fold(f64::MAX, f64::min)
}

fn measure(
    options: &Options,
    cases: &[Case],
    programs: &BTreeMap<String, PathBuf>,
    step_ns: f64,
) -> BTreeMap<&'static str, Outcomes> {
    let reps = |case: &Case| {
        let usual = if options.quick { 1 } else { case.reps };
        options.reps.map_or(usual, usize::from)
    };
    let runs = |case: &Case| -> Vec<Run> {
        case.runs
            .iter()
            .copied()
            .filter(|run| programs.contains_key(run.program))
            .collect()
    };
    let total = cases
        .iter()
        .map(|case| (reps(case) * runs(case).len()) as u64)
        .sum();
    let mut progress = Progress::new(total);
    let patient = !options.quick && !options.no_wait;
    let mut patience = Duration::from_secs(if patient { 600 } else { 0 });
    let mut all: BTreeMap<&'static str, Outcomes> = BTreeMap::new();
    for case in cases {
        let outcomes = all.entry(case.id).or_default();
        for rep in 1..=reps(case) {
            for run in runs(case) {
                let so_far = outcomes.entry(run.label).or_default();
                if !so_far.iter().any(exec::Outcome::is_hopeless) {
                    progress.now(&format!("{} {} {rep}/{}", case.id, run.label, reps(case)));
                    let args = arguments(case, &run, options.quick, step_ns);
                    let outcome = one(&programs[run.program], &args, patient, &mut patience);
                    if let Err(why) = &outcome.result {
                        progress.note(&format!("{} {}: {why}", case.id, run.label));
                    }
                    so_far.push(outcome);
                }
                progress.step();
            }
        }
        // At once: who ends a long session early keeps what was measured.
        let mut rows = results::rows(cases, &all);
        rows.retain(|row| row.case.id == case.id);
        progress.aside(|| output::print_rows(&rows));
    }
    progress.finish();
    all
}

fn arguments(case: &Case, run: &Run, quick: bool, step_ns: f64) -> Vec<String> {
    let quick = if quick { case.quick } else { "" };
    let words = [case.args, quick, run.args].map(str::split_whitespace);
    let own = [case.scenario.to_owned(), format!("step_ns={step_ns:.4}")];
    own.into_iter()
        .chain(words.into_iter().flatten().map(str::to_owned))
        .collect()
}

/// Runs once, and once more when the machine was noisy and the figures are about time; keeps the quieter.
fn one(
    program: &std::path::Path,
    args: &[String],
    patient: bool,
    patience: &mut Duration,
) -> exec::Outcome {
    exec::wait_for_quiet(patience);
    let first = exec::run(program, args);
    if !patient || first.others <= exec::QUIET || first.result.is_err() {
        return first;
    }
    exec::wait_for_quiet(patience);
    let second = exec::run(program, args);
    if second.others < first.others {
        second
    } else {
        first
    }
}

//! `runnext bench`: the scenarios of `bench/` on every runtime that is there, then a report with plots.
//!
//! The measuring is done by the runner in `bench/`, a workspace of its own so that the rivals' dependencies stay out of ours. This starts it, reads
//! the JSON it writes and renders that: one Markdown file, one plot of ratios, and one plot for each thing that grows.
//! `--from` renders an earlier result again.

mod figures;
mod markdown;
mod svg;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use crate::out::say;
use crate::{HELD, NOT_HELD, WRONG, fail};
use figures::Results;

#[derive(clap::Args, Clone)]
pub struct Options {
    /// Only cases whose name or scenario starts with one of these (see --list)
    #[arg(long, value_delimiter = ',')]
    scenario: Vec<String>,
    /// Only cases of these parts of the project
    #[arg(long, value_delimiter = ',')]
    part: Vec<u32>,
    /// Only these rivals
    #[arg(long, value_delimiter = ',', value_parser = ["go", "tokio", "smol", "may", "threads"])]
    rivals: Vec<String>,
    /// Repetitions of every case
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..))]
    reps: Option<u16>,
    /// Short runs, one repetition: minutes instead of an hour, for a first look
    #[arg(long)]
    quick: bool,
    /// Take the machine as it is: neither wait for quiet nor repeat noisy runs
    #[arg(long)]
    no_wait: bool,
    /// List the cases and their bars, and end
    #[arg(long)]
    list: bool,
    /// Where the report goes [default: target/bench-report in the checkout]
    #[arg(long)]
    out: Option<PathBuf>,
    /// Render an earlier results.json instead of measuring
    #[arg(long, conflicts_with_all = ["list", "quick", "reps", "scenario", "part", "rivals"])]
    from: Option<PathBuf>,
}

/// Measures and reports; the exit status is 0 if every bar that could be measured was met.
pub fn run(options: &Options) -> u8 {
    match attempt(options) {
        Ok(code) => code,
        Err(why) => fail(why),
    }
}

fn attempt(options: &Options) -> Result<u8, String> {
    let out = match (&options.out, checkout()) {
        (Some(out), _) => out.clone(),
        (None, Some(root)) => root.join("target/bench-report"),
        (None, None) => PathBuf::from("bench-report"),
    };
    let json = match &options.from {
        Some(path) => path.clone(),
        None => {
            let root = checkout().ok_or(
                "the benchmarks are in the repository, not in this program: run this inside a checkout, or give --from a results.json",
            )?;
            let json = out.join("results.json");
            let ended = measure(&root, &json, &out, options)?;
            if options.list || ended != HELD {
                return Ok(ended);
            }
            json
        }
    };
    let text =
        fs::read_to_string(&json).map_err(|e| format!("cannot read {}: {e}", json.display()))?;
    let results = Results::parse(&text).map_err(|e| format!("{}: {e}", json.display()))?;
    let written = write(&results, &out)?;
    say!("\nReport: {}", written.display());
    for sentence in &results.missing {
        say!("Missing: {sentence}");
    }
    let all_met = results
        .figures
        .iter()
        .all(|f| f.bar.as_ref().and_then(|bar| bar.met) != Some(false));
    Ok(if all_met { HELD } else { NOT_HELD })
}

/// The repository: around the working directory, or where this was built.
fn checkout() -> Option<PathBuf> {
    let here = std::env::current_dir().ok()?;
    let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("../..");
    here.ancestors()
        .map(Path::to_owned)
        .chain([built])
        .find(|folder| folder.join("bench/runner/Cargo.toml").is_file())
}

/// Lets the runner measure. It shows its own progress and tables, and says itself which of the arguments it does not know:
/// the cases are its.
fn measure(root: &Path, json: &Path, out: &Path, options: &Options) -> Result<u8, String> {
    fs::create_dir_all(out).map_err(|e| format!("cannot make {}: {e}", out.display()))?;
    let json = std::path::absolute(json).map_err(|e| e.to_string())?;
    let mut command = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    command
        .args(["run", "--release", "--quiet", "-p", "runner", "--"])
        .arg("--json")
        .arg(json)
        .current_dir(root.join("bench"));
    for (flag, values) in [
        ("--scenario", &options.scenario),
        ("--rivals", &options.rivals),
    ] {
        if !values.is_empty() {
            command.arg(flag).arg(values.join(","));
        }
    }
    if !options.part.is_empty() {
        let parts: Vec<String> = options.part.iter().map(u32::to_string).collect();
        command.arg("--part").arg(parts.join(","));
    }
    if let Some(reps) = options.reps {
        command.arg("--reps").arg(reps.to_string());
    }
    for (flag, on) in [
        ("--quick", options.quick),
        ("--no-wait", options.no_wait),
        ("--list", options.list),
    ] {
        if on {
            command.arg(flag);
        }
    }
    let status = command.status().map_err(|e| {
        format!("cannot start cargo ({e}), which builds the benchmarks: install Rust from https://rustup.rs")
    })?;
    match status.code() {
        Some(0) => Ok(HELD),
        Some(2) => Ok(WRONG),
        _ => Err("the runner did not finish; its own message is above".to_owned()),
    }
}

/// Writes the report and its plots; the path of the report.
fn write(results: &Results, out: &Path) -> Result<PathBuf, String> {
    let put = |name: &str, text: String| {
        let path = out.join(name);
        fs::write(&path, text)
            .map(|()| path.clone())
            .map_err(|e| format!("cannot write {}: {e}", path.display()))
    };
    fs::create_dir_all(out).map_err(|e| format!("cannot make {}: {e}", out.display()))?;
    let mut plots = Vec::new();
    let ratios = results.ratios();
    if !ratios.is_empty() {
        put("ratios.svg", svg::ratios(&ratios))?;
        plots.push((
            "Cost against the best rival (shorter is better)".to_owned(),
            "ratios.svg".to_owned(),
        ));
    }
    for growth in results.growths() {
        let name = format!("{}.svg", growth.name);
        put(&name, svg::lines(&growth))?;
        plots.push((growth.title(), name));
    }
    put("report.md", markdown::report(results, &plots))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_earlier_result_becomes_a_report_with_plots() {
        let out = std::env::temp_dir().join(format!("runnext-bench-{}", std::process::id()));
        let results = Results::parse(figures::tests::SAMPLE).unwrap();
        let report = fs::read_to_string(write(&results, &out).unwrap()).unwrap();
        for part in ["ratios.svg", "grow-procs.svg", "no `go` found", "a switch"] {
            assert!(report.contains(part), "{part} is not in:\n{report}");
        }
        for plot in ["ratios.svg", "grow-procs.svg"] {
            let text = fs::read_to_string(out.join(plot)).unwrap();
            assert!(text.starts_with("<svg") && text.trim_end().ends_with("</svg>"));
        }
        fs::remove_dir_all(&out).unwrap();
    }
}

//! The report as Markdown.

use std::fmt::Write;

use super::figures::{Cell, Figure, Results};

/// The whole report; `plots` are titles and file names beside it.
pub fn report(results: &Results, plots: &[(String, String)]) -> String {
    let mut text = String::from("# Benchmarks\n\n");
    head(&mut text, results);
    for (title, file) in plots {
        line(&mut text, &format!("## {title}\n\n![{title}]({file})\n"));
    }
    ratios(&mut text, results);
    line(&mut text, "## All figures\n");
    for of_case in results.figures.chunk_by(|a, b| a.case == b.case) {
        case(&mut text, of_case);
    }
    text
}

fn line(text: &mut String, what: &str) {
    text.push_str(what);
    text.push('\n');
}

fn head(text: &mut String, results: &Results) {
    let versions: Vec<String> = (results.versions.iter())
        .map(|(name, version)| format!("{name} {version}"))
        .collect();
    line(
        text,
        &format!("{} cores; {}.\n", results.cores, versions.join("; ")),
    );
    if results.quick {
        line(
            text,
            "**A quick run**: one short repetition, so trust only large differences.\n",
        );
    }
    line(
        text,
        "Trust ratios within one session, not digits: on a shared machine a figure varies by 10 to 15 %, some by more. \
         What is measured, and how, is in `bench/README.md`.\n",
    );
    for sentence in &results.missing {
        line(text, &format!("- Missing: {sentence}"));
    }
    if !results.missing.is_empty() {
        line(text, "");
    }
}

fn ratios(text: &mut String, results: &Results) {
    line(text, "## Ratios\n");
    line(
        text,
        "Cost of runnext over that of Go and of the best rival: below 1 is better. The spread is greatest over least of runnext's runs.\n",
    );
    line(
        text,
        "| case | figure | ÷ Go | ÷ best rival | spread | bar | met |",
    );
    line(text, "|---|---|---|---|---|---|---|");
    for f in results
        .figures
        .iter()
        .filter(|f| f.median("runnext").is_some())
    {
        let best = f.best_rival.as_deref();
        let over_best =
            best.and_then(|rival| Some(format!("{:.2} ({rival})", f.cost_ratio(rival)?)));
        let (bar, met) = f.bar.as_ref().map_or(("", ""), |bar| {
            let met = match bar.met {
                Some(true) => "yes",
                Some(false) => "**no**",
                None => "–",
            };
            (bar.text.as_str(), met)
        });
        line(
            text,
            &format!(
                "| {} | {} | {} | {} | {} | {bar} | {met} |",
                f.title,
                f.metric,
                f.cost_ratio("go")
                    .map_or("–".to_owned(), |ratio| format!("{ratio:.2}")),
                over_best.unwrap_or_else(|| "–".to_owned()),
                f.spread("runnext")
                    .map_or("–".to_owned(), |spread| format!("{spread:.2} ×")),
            ),
        );
    }
    line(text, "");
}

fn case(text: &mut String, figures: &[Figure]) {
    line(
        text,
        &format!("### {} (`{}`)\n", figures[0].title, figures[0].case),
    );
    let mut heads = "| runtime |".to_owned();
    let mut rule = "|---|".to_owned();
    for f in figures {
        // Writing to a String does not fail.
        let _ = write!(heads, " {} ({}) |", f.metric, f.unit);
        rule.push_str("---|");
    }
    line(text, &heads);
    line(text, &rule);
    for runtime in figures[0].cells.keys() {
        let cells: Vec<String> = figures.iter().map(|f| cell(f.cells.get(runtime))).collect();
        line(text, &format!("| {runtime} | {} |", cells.join(" | ")));
    }
    line(text, "");
}

fn cell(cell: Option<&Result<Cell, String>>) -> String {
    match cell {
        Some(Ok(Cell {
            median,
            min,
            max,
            quiet,
        })) => {
            let noisy = if *quiet { "" } else { ", noisy" };
            format!(
                "{} ({} – {}{noisy})",
                number(*median),
                number(*min),
                number(*max)
            )
        }
        Some(Err(why)) => why.replace('|', "/"),
        None => "–".to_owned(),
    }
}

/// About three significant digits.
pub fn number(value: f64) -> String {
    match value.abs() {
        v if v >= 100.0 || v == 0.0 => format!("{value:.0}"),
        v if v >= 10.0 => format!("{value:.1}"),
        v if v >= 1.0 => format!("{value:.2}"),
        _ => format!("{value:.3}"),
    }
}

//! The `runnext` command: shows what the runtime does, compares it, and looks at the machine it would run on.
//!
//! | module   | what                                                                            |
//! |----------|---------------------------------------------------------------------------------|
//! | `demo`   | a web server under mixed load, three times; without arguments this is what runs |
//! | `bench`  | the scenarios of `bench/` beside other runtimes, with a report and plots        |
//! | `doctor` | what the kernel and the limits offer, what falls back, what that costs          |
//! | `out`    | what is printed, and what becomes of it if it cannot be                         |

// They panic when nobody reads: see `out`.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod bench;
mod demo;
mod doctor;
mod out;

use std::process::ExitCode;

use clap::{CommandFactory, Parser, Subcommand};
use out::remark;

/// What went as promised.
const HELD: u8 = 0;
/// It ran, but a promise did not hold.
const NOT_HELD: u8 = 1;
/// A mistake on the command line; clap uses it too.
const WRONG: u8 = 2;
/// It could not run.
const FAILED: u8 = 3;

#[derive(Parser)]
#[command(
    name = "runnext",
    version,
    about = "Goroutines for Rust: see them under load, compare them, check this machine"
)]
#[command(args_conflicts_with_subcommands = true)]
#[command(
    after_help = "Exit status: 0 all went as promised; 1 a promise did not hold; 2 wrong arguments; 3 it could not run."
)]
struct Cli {
    #[command(subcommand)]
    command: Option<Command>,
    #[command(flatten)]
    demo: demo::Options,
}

#[derive(Subcommand)]
enum Command {
    /// A web server under mixed load, three times: without preemption, with it, and with task groups (the default)
    Demo(demo::Options),
    /// Every benchmark beside the rivals that are installed, as tables, a Markdown report and SVG plots
    Bench(bench::Options),
    /// What this machine offers to the runtime, what falls back, and what that costs
    Doctor(doctor::Options),
    /// Prints a completion script for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// The server of the demo, a process of its own
    #[command(hide = true)]
    DemoServer(demo::ServerOptions),
}

fn main() -> ExitCode {
    let cli = match Cli::try_parse() {
        Ok(cli) => cli,
        Err(told) => return not_parsed(&told),
    };
    let code = match cli.command.unwrap_or(Command::Demo(cli.demo)) {
        Command::Demo(options) => demo::run(&options),
        Command::Bench(options) => bench::run(&options),
        Command::Doctor(options) => doctor::run(&options),
        Command::DemoServer(options) => demo::serve(&options),
        Command::Completions { shell } => {
            let mut command = Cli::command();
            let mut script = Vec::new();
            clap_complete::generate(shell, &mut command, "runnext", &mut script);
            out::all(&script);
            HELD
        }
    };
    ExitCode::from(code)
}

/// Prints what clap has to say: help or the version, which were asked for, or a mistake.
fn not_parsed(told: &clap::Error) -> ExitCode {
    let printed = told.print();
    if told.use_stderr() {
        return ExitCode::from(WRONG);
    }
    out::checked(printed);
    ExitCode::from(HELD)
}

/// Says why it could not run.
fn fail(why: impl std::fmt::Display) -> u8 {
    remark!("runnext: {why}");
    FAILED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }

    #[test]
    fn the_demo_needs_no_name() {
        let cli = Cli::parse_from(["runnext", "--seconds", "2", "--json"]);
        assert!(cli.command.is_none() && cli.demo.json);
        let cli = Cli::parse_from(["runnext", "demo", "--procs", "2"]);
        assert!(matches!(cli.command, Some(Command::Demo(options)) if options.procs == Some(2)));
    }
}

//! The demo: light and heavy requests to one web server, in three acts.
//!
//! # Why this shape
//! The server is a child process, made anew for each act, so that no act inherits anything from the one before it and the CPU
//! time is the server's alone. The load comes from this process, by one thread that does nothing else (`load`): requests arrive when they are
//! due, whether or not the server keeps up, and a request's latency counts from when it was due.
//!
//! | act | preemption | groups                                    |
//! |-----|------------|-------------------------------------------|
//! | 1   | off        | none: whoever is there first runs first   |
//! | 2   | on         | none                                      |
//! | 3   | on         | heavy work in a group of low priority     |
//!
//! The work of a request is a number of steps, calibrated once before the acts: a server that loses the CPU to others takes longer, it
//! does not do less.
//!
//! # Claims
//! Act 3 against act 1: the light requests' p99 is at least [`BETTER`] times better, and the heavy requests get at least
//! [`KEPT`] of their throughput. The exit status says whether both held. If not, and others used the machine meanwhile, all
//! acts are played once more; the report then says what the first time gave.

mod load;
mod machine;
mod reply;
mod report;
mod server;
mod work;

use std::io::IsTerminal;
use std::sync::atomic::Ordering::Relaxed;
use std::thread;
use std::time::Duration;

use indicatif::{ProgressBar, ProgressStyle};

use crate::out::{remark, say};
use crate::{HELD, NOT_HELD, doctor, fail};
use load::{Live, Load, Measured};
use machine::{Others, Shared};
use server::Child;

pub use server::{ServerOptions, serve};

/// How many times better act 3's p99 must be than act 1's.
const BETTER: f64 = 20.0;
/// The part of act 1's heavy throughput that act 3 must keep.
const KEPT: f64 = 0.9;
/// Cores used by others above which figures are blurred.
const QUIET: f64 = 0.3;
/// The same for what the host takes: 10 ms in a second may be one piece, which half a percent of all requests meet.
const UNDISTURBED: f64 = 0.01;
/// Load before the figures count.
const WARM_UP: Duration = Duration::from_secs(1);

#[derive(clap::Args, Clone)]
pub struct Options {
    /// Seconds to measure in each of the three acts
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    seconds: u64,
    /// Processors of the server [default: as many as this process may use]
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub procs: Option<u16>,
    /// Port of the server; 0 takes any that is free
    #[arg(long, default_value_t = 0)]
    port: u16,
    /// Print one JSON object instead of tables
    #[arg(long)]
    pub json: bool,
}

/// One of the three.
#[derive(Clone, Copy)]
struct Act {
    name: &'static str,
    title: &'static str,
    preemption: bool,
    groups: bool,
}

const ACTS: [Act; 3] = [
    Act {
        name: "equal",
        title: "everything equal, no preemption",
        preemption: false,
        groups: false,
    },
    Act {
        name: "preemption",
        title: "preemption",
        preemption: true,
        groups: false,
    },
    Act {
        name: "groups",
        title: "preemption and task groups",
        preemption: true,
        groups: true,
    },
];

/// What came of an act.
struct Scene {
    act: Act,
    measured: Measured,
    /// CPU time of the server, of all that its processors could have used.
    busy: f64,
    shared: Shared,
}

impl Scene {
    /// Others got in the way so much that the figures are blurred. What a host takes it takes in pieces of many milliseconds, and each
    /// is in the tail of the latencies; the kernel has programs take turns more often.
    fn is_blurred(&self) -> bool {
        self.shared.others > QUIET || self.shared.stolen > UNDISTURBED
    }
}

/// A promise and what became of it.
struct Claim {
    text: String,
    value: f64,
    target: f64,
}

impl Claim {
    fn held(&self) -> bool {
        self.value >= self.target
    }
}

/// The conditions of all acts.
struct Stage {
    procs: usize,
    cores: usize,
    load: Load,
    steps_per_us: f64,
    port: u16,
}

/// Plays the demo; the exit status.
pub fn run(options: &Options) -> u8 {
    let cores = runnext_sys::cpu::available();
    let procs = (options.procs).map_or_else(runnext_sys::cpu::default_procs, usize::from);
    if let Err(why) = load::make_room(procs) {
        return fail(why);
    }
    let load = Load::new(procs, Duration::from_secs(options.seconds), WARM_UP);
    let stage = Stage {
        procs,
        cores,
        steps_per_us: work::calibrate(),
        load,
        port: options.port,
    };
    let text = !options.json;
    if text {
        report::opening(&stage);
    }
    warnings(&stage);
    let mut scenes = match play(&stage) {
        Ok(scenes) => scenes,
        Err(why) => return fail(why),
    };
    let noisy = scenes.iter().any(Scene::is_blurred);
    let mut discarded = Vec::new();
    if !claims(&scenes).iter().all(Claim::held) && noisy {
        remark!("A claim did not hold, but others used the machine meanwhile: once more.");
        discarded = claims(&scenes);
        scenes = match play(&stage) {
            Ok(scenes) => scenes,
            Err(why) => return fail(why),
        };
    }
    let claims = claims(&scenes);
    if text {
        report::print(&stage, &scenes, &claims, &discarded);
    } else {
        say!("{:#}", report::json(&stage, &scenes, &claims, &discarded));
    }
    if claims.iter().all(Claim::held) {
        HELD
    } else {
        NOT_HELD
    }
}

/// What will blur the figures, and what to do about it.
fn warnings(stage: &Stage) {
    if stage.cores < 2 {
        remark!(
            "note: one core for the server and the load generator together: latencies include waiting for each other. Two or more show more."
        );
    }
    if stage.procs > stage.cores {
        remark!(
            "note: {} processors on {} cores: the kernel takes turns between them, and preempts nothing for us. Leave --procs out.",
            stage.procs,
            stage.cores
        );
    }
    for finding in doctor::findings()
        .iter()
        .filter(|finding| finding.slows_wakeups())
    {
        remark!("note: {finding}");
    }
}

fn play(stage: &Stage) -> Result<Vec<Scene>, String> {
    (ACTS.into_iter().enumerate())
        .map(|(i, act)| play_act(stage, i + 1, act))
        .collect()
}

fn play_act(stage: &Stage, number: usize, act: Act) -> Result<Scene, String> {
    let mut child = Child::start(&ServerOptions {
        procs: stage.procs,
        port: stage.port,
        preemption: act.preemption,
        groups: act.groups,
        steps_per_us: stage.steps_per_us,
    })?;
    let live = Live::default();
    let progress = Progress::new(number, act, &stage.load);
    let (measured, busy, shared) = thread::scope(|s| {
        let generator = s.spawn(|| load::run(&stage.load, child.addr(), &live));
        // The window of the CPU figures is that of the latencies.
        while live.elapsed() < stage.load.warm_up && !generator.is_finished() {
            progress.show(&live);
            thread::sleep(Duration::from_millis(50));
        }
        let (before, others) = (child.cpu_time(), Others::start(child.id()));
        while live.elapsed() < stage.load.end() && !generator.is_finished() {
            progress.show(&live);
            thread::sleep(Duration::from_millis(100));
        }
        let used = child.cpu_time().saturating_sub(before);
        let busy = used.as_secs_f64() / (stage.load.seconds.as_secs_f64() * stage.procs as f64);
        let shared = others.stop();
        progress.draining();
        (generator.join(), busy, shared)
    });
    progress.finish();
    let measured = measured
        .map_err(|_| "the load generator panicked, which is a bug: please report it".to_owned())?
        .map_err(|e| {
            format!(
                "the load generator lost the server: {e}{}",
                child.last_words()
            )
        })?;
    Ok(Scene {
        act,
        measured,
        busy,
        shared,
    })
}

fn claims(scenes: &[Scene]) -> Vec<Claim> {
    let (first, last) = (&scenes[0].measured, &scenes[2].measured);
    vec![
        Claim {
            text: "light p99, act 1 over act 3".to_owned(),
            value: first.quantile(0.99) / last.quantile(0.99).max(1e-6),
            target: BETTER,
        },
        Claim {
            text: "heavy throughput, act 3 over act 1".to_owned(),
            value: last.heavy_per_second() / first.heavy_per_second().max(1e-6),
            target: KEPT,
        },
    ]
}

/// A bar on a terminal, one line per act elsewhere; on stderr either way.
struct Progress {
    bar: Option<ProgressBar>,
}

impl Progress {
    fn new(number: usize, act: Act, load: &Load) -> Progress {
        let title = format!("Act {number} of {}: {}", ACTS.len(), act.title);
        if !std::io::stderr().is_terminal() {
            remark!("{title} ({} s)", load.end().as_secs());
            return Progress { bar: None };
        }
        let style = ProgressStyle::with_template("{prefix:44} {bar:24} {msg}")
            .expect("the template is constant");
        let bar = ProgressBar::new(load.end().as_millis() as u64).with_style(style);
        bar.set_prefix(title);
        Progress { bar: Some(bar) }
    }

    fn show(&self, live: &Live) {
        let Some(bar) = &self.bar else { return };
        bar.set_position(live.elapsed().as_millis() as u64);
        bar.set_message(format!(
            "{} light, slowest {:.1} ms; {} heavy",
            live.light.load(Relaxed),
            live.slowest_us.load(Relaxed) as f64 / 1e3,
            live.heavy.load(Relaxed)
        ));
    }

    fn draining(&self) {
        if let Some(bar) = &self.bar {
            bar.set_message("waiting for the last answers");
        }
    }

    fn finish(self) {
        if let Some(bar) = self.bar {
            bar.finish_and_clear();
        }
    }
}

//! Settings from the environment: `RUNNEXT_…` variables and the `RUNNEXT_DEBUG` list.
//!
//! A bad value never stops a program: it is reported on stderr, once per runtime built, and ignored.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;
use std::time::Duration;

use runnext_core::group::CpuLimit;
use runnext_sys::signal::SIGURG;

use crate::say;

/// `RUNNEXT_DEBUG=name=value,name=value`, after Go's GODEBUG.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Debug {
    /// Put goroutines in random places and take them from random ones.
    pub(crate) chaos: bool,
    pub(crate) async_preempt_off: bool,
    /// The monitor and contended lockers execute the fences that runtime calls and locks would need (`fence`).
    pub(crate) membarrier: bool,
    /// Guard stacks as kernels before 6.13 have to.
    pub(crate) mprotect_guards: bool,
    /// The signal that stops goroutines; the first runtime of a process decides.
    pub(crate) preempt_signal: i32,
    /// Lock owners run in the lanes of their waiters.
    pub(crate) lend: bool,
    /// Say so when a goroutine moves with what belongs to its thread.
    pub(crate) hazards: bool,
    /// Seed of all scheduling dice.
    pub(crate) seed: u64,
    /// A line about the scheduler every so many milliseconds; 0: none.
    pub(crate) schedtrace: u64,
    /// With every P, M and G in it.
    pub(crate) scheddetail: bool,
    /// Report goroutines that keep their thread for so many milliseconds; 0: none.
    pub(crate) stalls: u64,
    /// A flight recorder runs from the start, with room for so many events of each P; 0: none.
    pub(crate) flight_recorder: u64,
    /// SIGQUIT shows all goroutines before it ends the process.
    pub(crate) sigquit: bool,
}

/// The longest time between two reports.
const DAY_MS: u64 = 24 * 60 * 60 * 1000;

impl Debug {
    pub(crate) fn from_env() -> Debug {
        let text = variable("RUNNEXT_DEBUG", |text| Ok(text.to_owned())).unwrap_or_default();
        let (debug, complaints) = Debug::parse(&text, RandomState::new().build_hasher().finish());
        for complaint in complaints {
            say::line(format_args!("runnext: RUNNEXT_DEBUG: {complaint}"));
        }
        debug
    }

    fn parse(text: &str, seed: u64) -> (Debug, Vec<String>) {
        let mut debug = Debug {
            chaos: false,
            async_preempt_off: false,
            membarrier: true,
            mprotect_guards: false,
            preempt_signal: SIGURG,
            lend: true,
            hazards: cfg!(debug_assertions),
            seed,
            schedtrace: 0,
            scheddetail: false,
            stalls: 0,
            sigquit: true,
            flight_recorder: 0,
        };
        let mut complaints = Vec::new();
        for item in text
            .split(',')
            .map(str::trim)
            .filter(|item| !item.is_empty())
        {
            let (name, value) = item.split_once('=').unwrap_or((item, "1"));
            let Ok(number) = value.trim().parse::<u64>() else {
                complaints.push(format!(
                    "ignored '{item}': the value of {name} must be a number"
                ));
                continue;
            };
            match name.trim() {
                "chaos" => debug.chaos = number != 0,
                "asyncpreemptoff" => debug.async_preempt_off = number != 0,
                "membarrier" => debug.membarrier = number != 0,
                "mprotectguards" => debug.mprotect_guards = number != 0,
                "preemptsignal" => match usable_signal(number) {
                    Some(signo) => debug.preempt_signal = signo,
                    None => complaints.push(format!(
                        "ignored '{item}': a signal can be 10 (USR1), 12 (USR2), 23 (URG) or a real-time one, 34 to 64"
                    )),
                },
                "hazards" => debug.hazards = number != 0,
                "lend" => debug.lend = number != 0,
                "seed" => debug.seed = number,
                "schedtrace" | "stalls" if number > DAY_MS => complaints.push(format!(
                    "ignored '{item}': it is in milliseconds, and {DAY_MS}, a day, is the most"
                )),
                "schedtrace" => debug.schedtrace = number,
                "scheddetail" => debug.scheddetail = number != 0,
                "stalls" => debug.stalls = number,
                "flightrecorder" => debug.flight_recorder = number,
                "sigquit" => debug.sigquit = number != 0,
                _ => complaints.push(format!(
                    "ignored '{item}': known are asyncpreemptoff, chaos, flightrecorder, hazards, lend, membarrier, mprotectguards, preemptsignal, scheddetail, schedtrace, \
                     seed, sigquit, stalls"
                )),
            }
        }
        (debug, complaints)
    }
}

/// Signals whose default action a stray one does not make deadly to debug, or that programs leave free.
fn usable_signal(number: u64) -> Option<i32> {
    matches!(number, 10 | 12 | 23 | 34..=64).then_some(number as i32)
}

/// A variable, if it is set and makes sense.
fn variable<T>(name: &str, parse: impl FnOnce(&str) -> Result<T, String>) -> Option<T> {
    let text = std::env::var_os(name)?;
    let parsed = match text.to_str() {
        Some(text) => parse(text.trim()),
        None => Err("it is not UTF-8".into()),
    };
    parsed
        .map_err(|why| {
            let text = text.display();
            say::line(format_args!("runnext: ignored {name}={text}: {why}"));
        })
        .ok()
}

/// A whole number from the environment.
pub(crate) fn number(name: &str, least: usize, most: usize) -> Option<usize> {
    variable(name, |text| match text.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("it must be a whole number from {least} to {most}")),
    })
}

/// A time in milliseconds from the environment, with decimals if need be.
pub(crate) fn millis(name: &str, least: Duration, most: Duration) -> Option<Duration> {
    variable(name, |text| {
        let range = least..=most;
        let given = parse_millis(text).filter(|d| range.contains(d));
        let in_ms = |d: Duration| d.as_secs_f64() * 1e3;
        given.ok_or_else(|| {
            let (least, most) = (in_ms(least), in_ms(most));
            format!("it must be a number of milliseconds from {least} to {most}")
        })
    })
}

/// Milliseconds, to the nanosecond. None: not a number, negative, or too many.
fn parse_millis(text: &str) -> Option<Duration> {
    let ns = (text.parse::<f64>().ok()? * 1e6).round();
    (0.0..=u64::MAX as f64)
        .contains(&ns)
        .then(|| Duration::from_nanos(ns as u64))
}

/// A limit on governed groups from the environment.
pub(crate) fn cpu_limit(name: &str) -> Option<CpuLimit> {
    variable(name, parse_cpu_limit)
}

fn parse_cpu_limit(text: &str) -> Result<CpuLimit, String> {
    if text == "unlimited" {
        return Ok(CpuLimit::Unlimited);
    }
    let limit = match text.strip_prefix("adaptive:") {
        Some(target) => parse_millis(target.trim())
            .filter(|target| !target.is_zero())
            .map(|target_p99| CpuLimit::Adaptive { target_p99 }),
        None => match text.parse() {
            Ok(x) if x > 0.0 && x <= 1.0 => Some(CpuLimit::Fraction(x)),
            _ => None,
        },
    };
    limit.ok_or_else(|| {
        "it must be a number above 0 and up to 1, `adaptive:` and a number of milliseconds, or `unlimited`".into()
    })
}

/// A yes or no from the environment.
pub(crate) fn switch(name: &str) -> Option<bool> {
    variable(name, |text| match text {
        "1" | "true" | "on" => Ok(true),
        "0" | "false" | "off" => Ok(false),
        _ => Err("it must be 1 or 0".into()),
    })
}

/// Refuses a setting out of range, with the range.
pub(crate) fn in_range(what: &str, value: usize, least: usize, most: usize) -> io::Result<()> {
    if (least..=most).contains(&value) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{what} must be from {least} to {most}, not {value}"),
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_known_is_set_and_the_rest_reported() {
        let (debug, complaints) =
            Debug::parse("chaos=1, seed=7,asyncpreemptoff=0,bogus=1,chaos=x,", 3);
        assert!(debug.chaos && !debug.async_preempt_off && debug.seed == 7);
        assert_eq!(complaints.len(), 2, "{complaints:?}");
        assert!(complaints[0].contains("bogus") && complaints[1].contains("chaos=x"));
    }

    /// Where it is added to the time it is, it would wrap.
    #[test]
    fn times_beyond_a_day_are_refused() {
        let (debug, complaints) =
            Debug::parse("schedtrace=86400000,stalls=18446744073709551615", 3);
        assert_eq!((debug.schedtrace, debug.stalls), (DAY_MS, 0));
        assert_eq!(complaints.len(), 1, "{complaints:?}");
        assert!(complaints[0].contains("a day"), "{complaints:?}");
    }

    #[test]
    fn nothing_said_changes_nothing() {
        let (debug, complaints) = Debug::parse("", 3);
        assert!(!debug.chaos && !debug.async_preempt_off && !debug.mprotect_guards);
        assert_eq!((debug.preempt_signal, debug.seed), (SIGURG, 3));
        assert!(complaints.is_empty());
    }

    #[test]
    fn ranges_name_themselves() {
        let e = in_range("procs", 0, 1, 1024).unwrap_err();
        assert_eq!(e.to_string(), "procs must be from 1 to 1024, not 0");
        assert!(in_range("procs", 1, 1, 1024).is_ok() && in_range("procs", 1024, 1, 1024).is_ok());
    }

    #[test]
    fn milliseconds_have_decimals() {
        for (text, us) in [("20", 20_000), ("0.1", 100), ("2.5", 2_500), ("0", 0)] {
            assert_eq!(
                parse_millis(text),
                Some(Duration::from_micros(us)),
                "{text}"
            );
        }
        for text in ["", "soon", "-1", "10ms", "inf", "NaN", "1e300"] {
            assert_eq!(parse_millis(text), None, "{text}");
        }
    }

    #[test]
    fn a_limit_can_be_a_part_a_target_or_none() {
        let target_p99 = Duration::from_micros(1_500);
        for (text, limit) in [
            ("0.5", CpuLimit::Fraction(0.5)),
            ("1", CpuLimit::Fraction(1.0)),
            ("adaptive:1.5", CpuLimit::Adaptive { target_p99 }),
            ("adaptive: 1.5", CpuLimit::Adaptive { target_p99 }),
            ("unlimited", CpuLimit::Unlimited),
        ] {
            assert_eq!(parse_cpu_limit(text), Ok(limit), "{text}");
        }
        for text in [
            "",
            "0",
            "1.5",
            "NaN",
            "none",
            "adaptive",
            "adaptive:",
            "adaptive:0",
            "adaptive:-1",
            "adaptive:2ms",
            "0.5:2",
        ] {
            let why = parse_cpu_limit(text).unwrap_err();
            assert!(why.contains("unlimited"), "{text}: {why}");
        }
    }
}

//! Settings from the environment: `RUNNEXT_…` variables and the `RUNNEXT_DEBUG` list.
//!
//! A bad value never stops a program: it is reported on stderr, once per runtime built, and ignored.

use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::io;

use runnext_sys::signal::SIGURG;

/// `RUNNEXT_DEBUG=name=value,name=value`, after Go's GODEBUG.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Debug {
    /// Put goroutines in random places and take them from random ones.
    pub(crate) chaos: bool,
    pub(crate) async_preempt_off: bool,
    /// Guard stacks as kernels before 6.13 have to.
    pub(crate) mprotect_guards: bool,
    /// The signal that stops goroutines; the first runtime of a process decides.
    pub(crate) preempt_signal: i32,
    /// Lock owners run in the name of who waits for them.
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

impl Debug {
    pub(crate) fn from_env() -> Debug {
        let text = variable("RUNNEXT_DEBUG", |text| Ok(text.to_owned())).unwrap_or_default();
        let (debug, complaints) = Debug::parse(&text, RandomState::new().build_hasher().finish());
        for complaint in complaints {
            eprintln!("runnext: RUNNEXT_DEBUG: {complaint}");
        }
        debug
    }

    fn parse(text: &str, seed: u64) -> (Debug, Vec<String>) {
        let mut debug = Debug {
            chaos: false,
            async_preempt_off: false,
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
                "schedtrace" => debug.schedtrace = number,
                "scheddetail" => debug.scheddetail = number != 0,
                "stalls" => debug.stalls = number,
                "flightrecorder" => debug.flight_recorder = number,
                "sigquit" => debug.sigquit = number != 0,
                _ => complaints.push(format!(
                    "ignored '{item}': known are asyncpreemptoff, chaos, flightrecorder, hazards, lend, mprotectguards, preemptsignal, scheddetail, schedtrace, \
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
        .map_err(|why| eprintln!("runnext: ignored {name}={}: {why}", text.display()))
        .ok()
}

/// A whole number from the environment.
pub(crate) fn number(name: &str, least: usize, most: usize) -> Option<usize> {
    variable(name, |text| match text.parse() {
        Ok(n) if (least..=most).contains(&n) => Ok(n),
        _ => Err(format!("it must be a whole number from {least} to {most}")),
    })
}

/// A number above 0 and up to 1 from the environment.
pub(crate) fn fraction(name: &str) -> Option<f64> {
    variable(name, |text| match text.parse() {
        Ok(x) if x > 0.0 && x <= 1.0 => Ok(x),
        _ => Err("it must be a number above 0 and up to 1".into()),
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
}

//! What a group is made of, and what becomes of senseless numbers.
//!
//! Two answers are given, and each field has one of them. A number that is merely too small or too large is
//! *clamped* to the nearest that works, because the caller's intent is clear. A number that is no number, or that
//! asks for nothing at all, is *refused*: there is no nearest sensible value to guess. So is a fraction above 1, which
//! was meant as percent, or as cores.
//!
//! | field    | works                         | outside it                                             |
//! |----------|-------------------------------|--------------------------------------------------------|
//! | weight   | 1 to 10 000                   | clamped, 0 to 1                                        |
//! | slice    | 0.1 to 100 ms                 | clamped                                                |
//! | burst    | 0 to 10 s                     | clamped                                                |
//! | quota    | 0.01 to 1024 cores            | clamped; NaN, infinite, zero or negative: refused      |
//! | fraction | 0.05 to 1                     | below clamped; NaN, zero, negative or above 1: refused |
//! | target   | 0.1 ms to 1 s                 | clamped                                                |
//! | parent   | alive, without one of its own | refused                                                |
//!
//! A cycle of parents cannot be made: a parent exists before its child, and is never exchanged.
//! Floats end here; everything after is integers. Tests: `tables.rs`.

use core::fmt;
use core::time::Duration;

/// One millisecond.
pub const MS: u64 = 1_000_000;

/// Weights in use. A group of twice the weight gets twice the CPU, where both want more than they get.
pub const WEIGHTS: core::ops::RangeInclusive<u32> = 1..=10_000;
/// The weight of a group that asks for none, and of everything ungrouped together.
pub const DEFAULT_WEIGHT: u32 = 100;
/// The residencies a group may ask for, in ns.
pub const SLICES: core::ops::RangeInclusive<u64> = 100_000..=100 * MS;
/// The residency of a group that asks for none: short enough for 100 ms of fairness, long enough to not be felt (a guess
/// between Linux's 0.7 to 2.8 ms; `bench group-tax` shows its price).
pub const DEFAULT_SLICE: u64 = 2 * MS;
/// The longest burst of a quota, in ns of CPU time.
pub const MAX_BURST: u64 = 10_000 * MS;
/// The smallest quota, in cores: below it one borrow takes longer than anybody would call running.
pub const MIN_QUOTA: f64 = 0.01;
/// The largest quota, in cores.
pub const MAX_QUOTA: f64 = 1024.0;
/// The part of all CPU time that Low and governed groups keep, whatever limits them.
pub const FLOOR: f64 = 0.05;

/// Fractional bits of a [`Rate`].
pub(crate) const RATE_BITS: u32 = 20;

/// Which groups run before others.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Runs before Normal groups as long as it has had no more than its share, for which its weight counts four times.
    High,
    /// Runs by weight.
    #[default]
    Normal,
    /// Runs when no other group can, and gets at least 5 % of all CPU time.
    Low,
}

/// How much of the machine the governed groups may use together.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum CpuLimit {
    /// All of it: nothing is governed.
    #[default]
    Unlimited,
    /// This part of all cores, above 0 and up to 1.
    Fraction(f64),
    /// As much as keeps the scheduling latency of the other groups below the target.
    Adaptive {
        /// How long 99 of 100 wake-ups should wait at most.
        target_p99: Duration,
    },
}

/// Why a group, a quota or a limit was refused.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Refused {
    /// Not a positive, finite number of cores.
    Quota(f64),
    /// Not a part of the cores above 0 and up to 1.
    Fraction(f64),
    /// The parent has ended.
    ParentGone,
    /// The parent has a parent: groups nest two deep.
    TooDeep,
    /// The group still has goroutines queued or running, or child groups.
    Busy,
    /// No room for another group.
    TooMany,
}

impl fmt::Display for Refused {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Refused::Quota(q) => write!(
                f,
                "a quota is a positive number of cores, not {q}: use None for no quota"
            ),
            Refused::Fraction(x) => write!(
                f,
                "a limit is a part of all cores above 0 and up to 1, not {x}: use CpuLimit::Unlimited for none"
            ),
            Refused::ParentGone => f.write_str("the parent group has ended: keep a handle to it"),
            Refused::TooDeep => {
                f.write_str("groups nest two deep: choose a parent that has no parent itself")
            }
            Refused::Busy => {
                f.write_str("the group is in use: end its goroutines and children first")
            }
            Refused::TooMany => f.write_str("too many groups at once: end some"),
        }
    }
}

impl core::error::Error for Refused {}

/// CPU time per time, in cores; fixed point, never zero.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rate(u64);

impl Rate {
    /// This many cores, clamped to [`MIN_QUOTA`] and [`MAX_QUOTA`].
    pub fn cores(cores: f64) -> Result<Rate, Refused> {
        if !(cores.is_finite() && cores > 0.0) {
            return Err(Refused::Quota(cores));
        }
        let fixed = cores.clamp(MIN_QUOTA, MAX_QUOTA) * f64::from(1u32 << RATE_BITS);
        Ok(Rate(fixed.round() as u64))
    }

    /// This part, in millionths, of `procs` cores. At least one hundredth of a core.
    pub fn part(ppm: u32, procs: u32) -> Rate {
        let cores = u64::from(ppm) * u64::from(procs.clamp(1, 1024));
        let fixed = (cores << RATE_BITS) / 1_000_000;
        Rate(fixed.max((1 << RATE_BITS) / 100))
    }

    /// What flows in during `ns`, up to eight seconds.
    #[inline]
    pub fn during(self, ns: u64) -> u64 {
        (ns.min(1 << 33) * self.0) >> RATE_BITS
    }

    /// In units of 2⁻²⁰ cores.
    #[inline]
    pub(crate) fn raw(self) -> u64 {
        self.0
    }

    /// How many Ps can use it at once without standing idle most of the time: it, rounded up.
    #[inline]
    pub fn parallelism(self) -> u32 {
        self.0.div_ceil(1 << RATE_BITS) as u32
    }
}

/// A limit on a group's CPU time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// What it may use in the long run.
    pub rate: Rate,
    /// What it may use at once after a pause, in ns of CPU time.
    pub burst: u64,
}

impl Quota {
    /// `cores` in the long run, and `burst` ns at once; see the [module](self) for what is refused.
    pub fn new(cores: f64, burst: u64) -> Result<Quota, Refused> {
        let rate = Rate::cores(cores)?;
        let burst = burst.min(MAX_BURST);
        Ok(Quota { rate, burst })
    }
}

/// The limit part of [`CpuLimit::Fraction`], in millionths: clamped to the floor.
pub fn fraction_ppm(fraction: f64) -> Result<u32, Refused> {
    if !(fraction > 0.0 && fraction <= 1.0) {
        return Err(Refused::Fraction(fraction));
    }
    Ok((fraction.max(FLOOR) * 1e6).round() as u32)
}

/// The target of [`CpuLimit::Adaptive`], clamped: below 0.1 ms every wake-up is late, above 1 s none ever is.
pub fn target(target_p99: Duration) -> Duration {
    target_p99.clamp(Duration::from_micros(100), Duration::from_secs(1))
}

/// What a new group is like.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct GroupConfig {
    /// Its share, against the weights of the others.
    pub weight: u32,
    /// How it stands to the others.
    pub priority: Priority,
    /// How long it keeps a P at most, in ns. Shorter buys latency, not share.
    pub slice: u64,
    /// Its limit, if any.
    pub quota: Option<Quota>,
    /// It lives under the runtime's [`CpuLimit`], as it does if its parent does.
    pub governed: bool,
    /// A group whose limits bind this one too. By index, so that no stale one can be named: see `Ledger::add`.
    pub parent: Option<super::GroupId>,
}

impl Default for GroupConfig {
    fn default() -> GroupConfig {
        GroupConfig {
            weight: DEFAULT_WEIGHT,
            priority: Priority::Normal,
            slice: DEFAULT_SLICE,
            quota: None,
            governed: false,
            parent: None,
        }
    }
}

impl GroupConfig {
    /// Its weight, if what was asked for is one, or what comes nearest.
    pub fn weight_in_range(&self) -> u32 {
        weight(self.weight)
    }
}

/// A weight that works.
#[inline]
pub(crate) fn weight(asked: u32) -> u32 {
    asked.clamp(*WEIGHTS.start(), *WEIGHTS.end())
}

/// A slice that works.
#[inline]
pub(crate) fn slice(asked: u64) -> u64 {
    asked.clamp(*SLICES.start(), *SLICES.end())
}

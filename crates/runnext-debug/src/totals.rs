//! What groups have used, by name, so that it never falls.
//!
//! A group's numbers go with it, and the numbers of a name are those of all its groups: without more, a counter would fall when one of
//! them ends. So what was last seen of a name is kept, and if less is found later, the difference is what groups that ended had used.
//! What they used after they were last looked at is not known, and missing.
//!
//! # Bounds
//! At most [`NAMES`] names have a series of their own. Who comes when all are taken gets that of a name whose groups have all
//! ended, whose numbers go to the [`OTHERS`]; if there is none it is one of those itself, and stays it: what they have used
//! must not fall either.

use std::collections::{HashMap, HashSet};
use std::mem;
use std::time::Duration;

use runnext::TaskGroup;
use runnext::stats::Histogram;
use runnext::sync::Mutex;

/// Names with series of their own.
const NAMES: usize = 999;
/// What the others are called.
pub(crate) const OTHERS: &str = "(others)";

/// What the groups of one name used.
#[derive(Clone, Copy, Default)]
pub(crate) struct Used {
    pub(crate) cpu: Duration,
    pub(crate) throttled: Duration,
    pub(crate) throttles: u64,
    pub(crate) stalled: Duration,
}

impl Used {
    fn add(&mut self, other: Used) {
        self.cpu += other.cpu;
        self.throttled += other.throttled;
        self.throttles += other.throttles;
        self.stalled += other.stalled;
    }

    /// What is missing of `before`.
    fn fallen_from(self, before: Used) -> Used {
        Used {
            cpu: before.cpu.saturating_sub(self.cpu),
            throttled: before.throttled.saturating_sub(self.throttled),
            throttles: before.throttles.saturating_sub(self.throttles),
            stalled: before.stalled.saturating_sub(self.stalled),
        }
    }
}

/// How they fare now.
#[derive(Default)]
pub(crate) struct Now {
    pub(crate) goroutines: i64,
    pub(crate) runnable: i64,
    pub(crate) latency: Histogram,
    pub(crate) run_time: Histogram,
    pub(crate) preempt_latency: Histogram,
}

/// The groups of one name, or several.
#[derive(Default)]
pub(crate) struct Sum {
    pub(crate) used: Used,
    pub(crate) now: Now,
}

impl Sum {
    fn of(group: &TaskGroup) -> Sum {
        let s = group.stats();
        Sum {
            used: Used {
                cpu: s.cpu_time,
                throttled: s.throttled_time,
                throttles: s.throttled_count,
                stalled: s.stalled_time,
            },
            now: Now {
                goroutines: s.goroutines as i64,
                runnable: s.runnable as i64,
                latency: s.wake_latency,
                run_time: s.run_time,
                preempt_latency: s.preempt_latency,
            },
        }
    }

    fn add(&mut self, other: &Sum) {
        self.used.add(other.used);
        self.now.goroutines += other.now.goroutines;
        self.now.runnable += other.now.runnable;
        self.now.latency.merge(&other.now.latency);
        self.now.run_time.merge(&other.now.run_time);
        self.now.preempt_latency.merge(&other.now.preempt_latency);
    }
}

/// What is known of a series.
#[derive(Default)]
struct Series {
    /// Used by groups that have ended.
    ended: Used,
    /// Used by all others, when they were last looked at.
    seen: Used,
}

impl Series {
    /// What it has used in all, if its groups used that much.
    fn see(&mut self, used: Used) -> Used {
        self.ended.add(used.fallen_from(self.seen));
        self.seen = used;
        self.total()
    }

    fn total(&self) -> Used {
        let mut total = self.ended;
        total.add(self.seen);
        total
    }
}

/// What was seen of all groups.
#[derive(Default)]
pub(crate) struct Totals(Mutex<Known>);

#[derive(Default)]
struct Known {
    own: HashMap<String, Series>,
    others: Series,
    /// Names of groups that are among those.
    among_others: HashSet<String>,
}

impl Totals {
    /// The groups of the current runtime, by name; and what those used that have ended.
    pub(crate) fn read(&self) -> Vec<(String, Sum)> {
        // Locked first: who reads later must not come with older numbers.
        let mut known = self.0.lock();
        let mut alive: HashMap<String, Sum> = HashMap::new();
        for group in TaskGroup::all() {
            let sum = alive.entry(group.name().to_owned()).or_default();
            sum.add(&Sum::of(&group));
        }
        known.update(alive)
    }
}

impl Known {
    fn update(&mut self, mut alive: HashMap<String, Sum>) -> Vec<(String, Sum)> {
        let mut rest = self.place(&mut alive);
        let mut all = Vec::with_capacity(self.own.len() + 1);
        for (name, series) in &mut self.own {
            let mut sum = alive.remove(name).unwrap_or_default();
            sum.used = series.see(sum.used);
            all.push((name.clone(), sum));
        }
        all.sort_by(|a, b| b.1.used.cpu.cmp(&a.1.used.cpu).then_with(|| a.0.cmp(&b.0)));
        rest.used = self.others.see(rest.used);
        if self.others.total().cpu > Duration::ZERO || !self.among_others.is_empty() {
            all.push((OTHERS.to_owned(), rest));
        }
        all
    }

    /// Gives names that are new a series, and takes out who has none; what those are together.
    fn place(&mut self, alive: &mut HashMap<String, Sum>) -> Sum {
        let were = mem::take(&mut self.among_others);
        let ended = self.own.keys().filter(|name| !alive.contains_key(*name));
        let mut ended: Vec<String> = ended.cloned().collect();
        let fresh = alive
            .iter()
            .filter(|(name, _)| !self.own.contains_key(*name));
        let mut fresh: Vec<(String, Duration)> = fresh
            .map(|(name, sum)| (name.clone(), sum.used.cpu))
            .collect();
        fresh.sort_by(|a, b| b.1.cmp(&a.1).then_with(|| a.0.cmp(&b.0)));
        let mut rest = Sum::default();
        for (name, _) in fresh {
            if !were.contains(&name)
                && name != OTHERS
                && (self.own.len() < NAMES || self.give_up(ended.pop()))
            {
                self.own.insert(name, Series::default());
            } else if let Some(sum) = alive.remove(&name) {
                rest.add(&sum);
                self.among_others.insert(name);
            }
        }
        rest
    }

    /// The series of a name whose groups have ended is needed; what they used is one with the others'.
    fn give_up(&mut self, ended: Option<String>) -> bool {
        let series = ended.and_then(|name| self.own.remove(&name));
        if let Some(series) = &series {
            self.others.ended.add(series.total());
        }
        series.is_some()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn look(known: &mut Known, groups: &[(&str, u64)]) -> HashMap<String, u64> {
        let mut alive: HashMap<String, Sum> = HashMap::new();
        for (name, seconds) in groups {
            let sum = alive.entry((*name).to_owned()).or_default();
            sum.used.cpu += Duration::from_secs(*seconds);
        }
        let seconds = |(name, sum): (String, Sum)| (name, sum.used.cpu.as_secs());
        known.update(alive).into_iter().map(seconds).collect()
    }

    #[test]
    fn the_counter_of_a_name_does_not_fall_when_a_group_ends() {
        let mut known = Known::default();
        assert_eq!(look(&mut known, &[("a", 5), ("a", 7)])["a"], 12);
        assert_eq!(look(&mut known, &[("a", 7)])["a"], 12);
        assert_eq!(look(&mut known, &[("a", 9)])["a"], 14);
        assert_eq!(look(&mut known, &[])["a"], 14);
        assert_eq!(look(&mut known, &[("a", 1)])["a"], 15);
    }

    #[test]
    fn the_counter_of_the_others_does_not_fall_when_one_uses_more() {
        let names: Vec<String> = (0..NAMES).map(|i| format!("g{i}")).collect();
        let mut groups: Vec<(&str, u64)> = names.iter().map(|name| (name.as_str(), 10)).collect();
        groups.extend([("late", 1), ("later", 1)]);
        let mut known = Known::default();
        assert_eq!(look(&mut known, &groups)[OTHERS], 2);
        groups[NAMES].1 = 1000;
        assert_eq!(look(&mut known, &groups)[OTHERS], 1001);
        groups.remove(NAMES); // "late" has ended
        let all = look(&mut known, &groups);
        assert_eq!((all[OTHERS], all.len()), (1001, NAMES + 1));
        groups[0] = ("new", 3); // in place of one that has ended
        let all = look(&mut known, &groups);
        assert_eq!((all["new"], all[OTHERS], all.len()), (3, 1011, NAMES + 1));
    }
}

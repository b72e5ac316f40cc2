//! The monitor's thread: what it looks at, in which order, and for how long it sleeps then.
//!
//! The tables, the protocol of its sleep and the invariants are in `monitor`. Files: `look` one P and its thread · `events` who looks for events · `allowance` how
//! much of a CPU it may use.
//!
//! Tunables: [`FAST_NS`], [`STEADY_NS`], [`FORGIVEN_NS`], [`POKED_NS`]: guesses that keep the longest gap beside a blocked thread under 3 ms (`bench gap`); the
//! price is in `bench lost`.

mod allowance;
mod events;
mod look;

use std::sync::Arc;
use std::sync::atomic::{Ordering::*, fence};

use runnext_core::owner::{Robber, State};
use runnext_sys::{clock, futex, thread};

use super::{AWAKE, DEEP, SHORT};
use crate::sched::groups::Watched;
use crate::sched::{MAX_PROCS, Shared, deadlock, worker};
use allowance::Allowance;
use events::Watch;
use look::{ASK_EVERY_NS, Look, is_asleep};

/// Between two looks when one of them saw something suspicious.
const FAST_NS: u64 = 100_000;
/// Between two looks while goroutines wait and all is well.
const STEADY_NS: u64 = 1_000_000;
/// For so long after somebody has blocked it looks as often while Ps dispatch one after the other, and after nobody waited for a moment: who blocks then
/// holds up others that are used to be served at once (`bench gap`). Else less often: each look costs a timer's interrupt and two switches, 30 us of a
/// virtual CPU, and who never blocks pays for nothing.
const FORGIVEN_NS: u64 = 10_000_000_000;
/// How soon it then looks again after it was poked, and after twice as long the next times: perhaps by one that has just come back from blocking, and does the
/// same again when it has got a P (`bench gap`: p50 1.3 - 2.2 ms without this, 0.8 with it).
const POKED_NS: u64 = 200_000;
/// Between two looks while goroutines wait and all threads compute: they will hardly all block at once.
const CALM_NS: u64 = 2_000_000;
/// Between two looks at Ps that dispatch one after the other, when for [`PEACE_AFTER_NS`] none has done anything else: nobody blocked, computed for long, or was
/// asked to give way (`bench echo`: 640 looks a second at the pace above, 3 - 6 % of the server's CPU time).
const PEACE_NS: u64 = 4_000_000;
const PEACE_AFTER_NS: u64 = 1_000_000_000;
/// The longest sleep while a P is in use.
const LONG_NS: u64 = 10_000_000;
/// Between two looks at the timers of busy Ps; the least while all of them run light goroutines, who are left alone for longer than this and mostly end before
/// that; and the longest, while all of them dispatch often enough to see to their own.
const TIMERS_EVERY_NS: u64 = 50_000;
const TIMERS_BESIDE_LIGHT_NS: u64 = 500_000;
const TIMERS_RARELY_NS: u64 = CALM_NS;
/// How long everything rests before it is looked at as a deadlock.
const DEADLOCK_AFTER_NS: u64 = 100_000_000;
/// How often it is looked at again, each time after twice as long.
const DEADLOCK_ASKED: u32 = 6;
/// Looks without anything waiting before it sleeps deeply.
const QUIET_LOOKS: u32 = 8;
/// How often it reminds the `threads` module to return what is not needed, while there is work.
const TIDY_NS: u64 = 100_000_000;

/// How many Ps are idle, and could be put to use: without a thread for them, none. Then the monitor does what their owners would.
fn idle_ps(shared: &Shared) -> usize {
    match shared.lacks_threads() {
        true => 0,
        false => shared.searchers.idle(),
    }
}

/// That nothing may ever happen again.
#[derive(Clone, Copy)]
struct Suspicion {
    /// When to look.
    at: u64,
    /// How often it was looked at.
    asked: u32,
}

/// What the monitor thread keeps to itself.
pub(super) struct Keeper {
    shared: Arc<Shared>,
    robber: Robber,
    /// By P.
    looks: Vec<Look>,
    turns: Vec<Watched>,
    /// How often a P was asked to give way.
    requests: usize,
    /// Looks in a row with nothing waiting.
    quiet: u32,
    /// How long to leave the timers of busy Ps alone.
    timers_every: u64,
    events: Watch,
    /// The word it last slept on; and how soon it looks again, since that was changed.
    seen: u32,
    eager_ns: u64,
    /// When the last look began; the same if it looked at all Ps, else 0.
    began: u64,
    looked: u64,
    /// When all Ps are to be looked at again, if nobody light has come by then.
    regular_at: u64,
    /// When it last took a P from a thread that blocked and had not said so.
    blocked_at: Option<u64>,
    /// When it last saw a P whose goroutines do not take turns by themselves.
    disturbed_at: u64,
    /// No P runs a hog.
    all_light: bool,
    /// Some thread had less than a CPU since the look before. Then it looks whether Ms crowd on one, and when it last did.
    lacks_cpu: bool,
    parted_at: u64,
    suspicion: Option<Suspicion>,
    allowance: Allowance,
    /// There were too few spare threads at the last look.
    lacked_spares: bool,
    /// There was work since it last reminded the `threads` module to return what is not needed; and not before this it does so again.
    untidy: bool,
    tidy_at: u64,
}

impl Keeper {
    pub(super) fn new(shared: Arc<Shared>) -> Keeper {
        Keeper {
            shared,
            robber: Robber::only(),               // nobody else takes Ps away
            looks: Vec::with_capacity(MAX_PROCS), // I1; untouched capacity costs nothing
            turns: Vec::with_capacity(MAX_PROCS),
            requests: 0,
            quiet: 0,
            timers_every: TIMERS_EVERY_NS,
            events: Watch::new(),
            seen: 0,
            eager_ns: STEADY_NS,
            began: 0,
            looked: 0,
            regular_at: 0,
            blocked_at: None,
            disturbed_at: clock::now_ns(),
            all_light: false,
            lacks_cpu: false,
            parted_at: 0,
            suspicion: None,
            allowance: Allowance::new(),
            lacked_spares: false,
            untidy: false,
            tidy_at: 0,
        }
    }

    /// What the thread does until the runtime has stopped.
    pub(super) fn run(mut self) {
        // A late monitor is a late everything. Beside hogs a short slice alone is not always enough: one that has just run is not
        // "eligible" again until the next tick, 4 ms later. Without privilege we live with that. It never runs for long, and
        // it alone is preferred: its thread starts no others.
        thread::request_slice(FAST_NS);
        if !thread::request_realtime() {
            thread::request_preference();
        }
        thread::set_timer_slack(1);
        let shared = Arc::clone(&self.shared);
        let monitor = &shared.monitor;
        monitor.up.store(true, Release);
        loop {
            let seen = monitor.word.load(Acquire);
            if shared.stopped.load(SeqCst) {
                return;
            }
            let now = clock::now_ns();
            let (nap, tick) = {
                let _watching = monitor.watching.lock(); // I2
                let (nap, tick) = self.look(now);
                (nap, tick.min(shared.watch_turns(&mut self.turns, now)))
            };
            let tick = tick.min(self.next_eager(seen, now)).min(self.tidy(now));
            let wake_at = tick.min(self.next_timer());
            let wake_at = self.observe(wake_at, now);
            let soonest = self.allowance.spend(now, clock::now_ns());
            // Held up by its allowance it can be poked, or who is urgent would wait for that.
            let nap = if soonest > wake_at {
                nap.max(SHORT)
            } else {
                nap
            };
            self.sleep(seen, nap, soonest, wake_at.max(soonest));
        }
    }

    /// When to look again because it was poked a moment ago.
    fn next_eager(&mut self, seen: u32, now: u64) -> u64 {
        self.eager_ns = match std::mem::replace(&mut self.seen, seen) == seen {
            true => (self.eager_ns * 2).min(STEADY_NS),
            false if self.blocked_lately(now) => POKED_NS,
            false => STEADY_NS,
        };
        match self.eager_ns < STEADY_NS {
            true => now + self.eager_ns,
            false => u64::MAX,
        }
    }

    /// What is not needed goes, now and then, and once more at the beginning of a long rest. Returns when to come back to it.
    fn tidy(&mut self, now: u64) -> u64 {
        let shared = &self.shared;
        // Where threads come and go, one may just be on its way.
        let lacks = shared.threads.lacks_spares(shared);
        let lacked = std::mem::replace(&mut self.lacked_spares, lacks);
        if lacks && lacked {
            shared.threads.want_spare();
        }
        let again = if lacks && !lacked {
            now + STEADY_NS
        } else {
            u64::MAX
        };
        let busy = shared.searchers.idle() < shared.procs();
        self.untidy |= busy;
        if self.untidy && now >= self.tidy_at {
            (self.untidy, self.tidy_at) = (busy, now + TIDY_NS);
            shared.gauges.tidy();
            shared.threads.tidy();
        }
        // Work that goes on tidies up at a later look.
        match self.untidy && !busy {
            true => again.min(self.tidy_at),
            false => again,
        }
    }

    /// The observers' part of a look. Returns when to wake up for their sake too.
    fn observe(&self, wake_at: u64, now: u64) -> u64 {
        let shared = &self.shared;
        let sample_at = shared.observe.tick(shared.all_ps(), now);
        if shared.observe.is_tracing() {
            let global = shared.global_len() + shared.urgent_len();
            shared.observe.note_global(global);
            shared.groups.note_usage(shared);
        }
        shared.observe.sleeps();
        let busy = shared.searchers.idle() < shared.procs();
        if busy || !shared.observe.is_due() {
            shared.observe.wakes_in_time();
            wake_at.min(sample_at.max(now + FAST_NS))
        } else {
            wake_at
        }
    }

    /// Sleeps until `wake_at` or a poke since `seen`; less, if something came up meanwhile, but not less than until `soonest`. The module's header says who
    /// wakes it.
    fn sleep(&mut self, seen: u32, nap: u32, soonest: u64, wake_at: u64) {
        let shared = Arc::clone(&self.shared);
        let monitor = &shared.monitor;
        let (rested, beside_light) = self.rests();
        monitor.rested.store(rested, Relaxed);
        monitor.rested_beside_light.store(beside_light, Relaxed);
        monitor.until.store(wake_at, Relaxed);
        monitor.nap.store(nap, Relaxed);
        fence(SeqCst); // pairs with the fences in `wake_one`, `timers::arm`, `enter_slow` and `hurry`
        let missed = nap == DEEP && (shared.any_work() || shared.any_waits_behind());
        let sooner = self.next_timer().min(shared.groups.hurry());
        let wake_at = wake_at.min(sooner.max(soonest));
        // For ever only while no P is in use.
        let awake = wake_at == u64::MAX && shared.searchers.idle() < shared.procs();
        if !awake && !missed && !self.events.wait(&shared, seen, wake_at) {
            futex::wait_until(&monitor.word, seen, wake_at);
        }
        monitor.nap.store(AWAKE, Relaxed);
    }

    /// Before when it leaves timers alone; and the same while all Ps run light goroutines.
    fn rests(&self) -> (u64, u64) {
        let beside_light = self.timers_every.max(TIMERS_BESIDE_LIGHT_NS);
        (self.began + self.timers_every, self.began + beside_light)
    }

    /// When to look after timers: with no P idle nobody else does. Those that were due when it last looked at who runs can wait: it has asked somebody to give
    /// way to them, or knows when it may; but who dispatches a new goroutine beside them wants it to look by then. Nor soon, if Ps that dispatch see to their own;
    /// whoever dispatches a hog tells it.
    fn next_timer(&self) -> u64 {
        if idle_ps(&self.shared) != 0 {
            return u64::MAX;
        }
        let (rested, beside_light) = self.rests();
        let rested = if self.all_light { beside_light } else { rested };
        let next = self.shared.next_timer_after(self.looked).max(rested);
        if self.shared.next_timer_hint() <= self.looked {
            next.min(beside_light)
        } else {
            next
        }
    }

    /// One look at everything. Returns how to sleep, and until when.
    fn look(&mut self, now: u64) -> (u32, u64) {
        (self.began, self.looked) = (now, 0);
        let shared = Arc::clone(&self.shared);
        let idle = idle_ps(&shared);
        let surplus = self.collect();
        let due = idle == 0 && shared.next_timer_hint() <= now;
        if due && shared.lacks_threads() {
            shared.run_timers_for_all(now);
        }
        let polled = self.events.look(&shared, idle, now);
        if !due && !shared.any_work() && !shared.any_waits_behind() {
            self.quiet += 1;
            // Events come in bursts: after the last of them it stays for a while, or it would be woken for each.
            let asleep = idle == shared.procs() && !shared.seat.hub().is_waited_for();
            self.look_for_sleepers(idle, now);
            if polled && !surplus && (self.quiet > QUIET_LOOKS || asleep) {
                let long = if idle == shared.procs() {
                    u64::MAX
                } else {
                    now + LONG_NS
                };
                return (DEEP, long.min(self.consider_deadlock(now)));
            }
            return (SHORT, now + self.lively_pace(now));
        }
        self.quiet = 0;
        if idle > 0 {
            return (SHORT, now + self.spread_work(now));
        }
        let mut pace = PEACE_NS;
        let timer = shared.all_ps().any(|p| shared.timer_waits(p, now));
        let waiting = shared.urgent_len() + usize::from(timer);
        if waiting == 0 && now < self.regular_at && self.all_compute(now) {
            return (SHORT, self.regular_at);
        }
        let on_its_way = self.on_its_way(now);
        let mut light = waiting.saturating_sub(on_its_way);
        let (mut lively, mut answers) = (true, false);
        let procs = shared.procs();
        self.make_room(procs);
        (self.looked, self.all_light, self.lacks_cpu) = (now, true, false);
        let first = self.first(procs);
        for i in 0..procs {
            let Some(p) = shared.p((first + i) % procs) else {
                break;
            };
            // Who was asked is perhaps on this CPU, and cannot answer before we sleep.
            if answers && light == 0 && now < self.looks[p.id].at + STEADY_NS {
                continue;
            }
            lively &= self.is_lively(p);
            let before = light;
            pace = pace.min(self.look_at(p, &mut light, now));
            answers |= light < before;
        }
        if self.lacks_cpu && now >= self.parted_at + STEADY_NS {
            self.parted_at = now;
            shared.part_crowds();
        }
        self.regular_at = now + pace;
        let may_ask = shared.config.preemption && !shared.groups.is_used();
        // Who was asked may give way to another that came meanwhile; and nothing else brings the monitor back to a timer.
        if may_ask && (timer && answers || waiting > 0 && on_its_way > 0 && !lively) {
            pace = pace.min(ASK_EVERY_NS);
        }
        self.timers_every = if lively {
            (self.timers_every * 2).min(TIMERS_RARELY_NS)
        } else {
            TIMERS_EVERY_NS
        };
        let nap = if pace == FAST_NS { AWAKE } else { SHORT };
        (nap, now + pace)
    }

    /// Checks a suspicion of deadlock once it has lasted. Returns when to come back to it: what is not certain at first may
    /// be so when a thread that was about to end has ended, so it asks again a few times, more and more rarely.
    fn consider_deadlock(&mut self, now: u64) -> u64 {
        let monitor = &self.shared.monitor;
        if monitor.suspects.load(SeqCst) && self.suspicion.is_none_or(|s| s.asked > 0) {
            self.suspicion = Some(Suspicion {
                at: now + DEADLOCK_AFTER_NS,
                asked: 0,
            });
        }
        let Some(Suspicion { at, asked }) = self.suspicion else {
            return u64::MAX;
        };
        if now < at {
            return at;
        }
        // Who comes to rest from here on says so again; until here one poke was enough.
        monitor.suspects.store(false, SeqCst);
        deadlock::check(&self.shared);
        let again = asked < DEADLOCK_ASKED && self.shared.is_dormant();
        self.suspicion = again.then(|| Suspicion {
            at: now + (DEADLOCK_AFTER_NS << asked),
            asked: asked + 1,
        });
        self.suspicion.as_ref().map_or(u64::MAX, |next| next.at)
    }

    /// Takes the Ps that are too many since `set_procs`: a thread that computes gives its own up when its timer ticks, and one
    /// that sleeps must not keep what is in the queue. True: some are still in use.
    fn collect(&mut self) -> bool {
        let shared = Arc::clone(&self.shared);
        let mut in_use = false;
        for p in shared.all_ps().skip(shared.procs()) {
            // SAFETY: I2.
            let Some(m) = (unsafe { p.m.load(Acquire).as_ref() }) else {
                continue;
            };
            in_use = true;
            let word = m.look();
            let may = match word.state() {
                State::Blk => true,
                State::User => shared.config.preemption || is_asleep(m.kernel_state()),
                _ => false,
            };
            if may && let Some(taken) = m.rob(&mut self.robber, word) {
                let undeclared = word.state() == State::User;
                shared.observe.collected(undeclared, taken, m.g());
                worker::put_aside(&shared, taken);
            }
        }
        in_use
    }

    /// Goroutines wait while a P is idle. Somebody is on its way, or their P was expected to run them itself, and does not. Returns how
    /// soon to look again.
    fn spread_work(&mut self, now: u64) -> u64 {
        let shared = Arc::clone(&self.shared);
        let mut stuck = shared.has_global() || shared.all_ps().any(|p| shared.offers_grouped(p));
        let (mut lively, mut pace) = (!stuck, CALM_NS);
        for p in shared.all_ps() {
            let work = p.has_work() || shared.offers_grouped(p);
            let behind = shared.waits_behind(p);
            if !work && !behind {
                continue;
            }
            self.make_room(p.id + 1);
            let look = self.looks[p.id];
            let tick = p.tick.load(Relaxed);
            if work {
                lively &= self.is_lively(p);
            }
            if work && look.tick == tick && now >= look.at + STEADY_NS / 2 {
                p.streak.store(0, Relaxed);
                stuck = true;
            }
            if behind {
                pace = pace.min(self.look_at(p, &mut 0, now)); // no other P may help: if the thread is blocked it loses this one
            } else {
                self.looks[p.id] = Look::of_dispatches(tick, now);
            }
        }
        if stuck {
            self.disturbed_at = now;
            shared.wake_one();
        }
        if lively || self.is_peaceful(now) {
            pace
        } else {
            pace.min(STEADY_NS)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::runtime::tests::{runtime, shared_of};

    /// Soonest after somebody has blocked, and rarely only when for a while nothing was seen that others wait for.
    #[test]
    fn looks_are_rare_in_peace_only() {
        let rt = runtime(1);
        let mut keeper = Keeper::new(Arc::clone(shared_of(&rt)));
        let start = keeper.disturbed_at;
        assert_eq!(keeper.lively_pace(start), CALM_NS);
        let later = start + PEACE_AFTER_NS;
        assert_eq!(keeper.lively_pace(later - 1), CALM_NS);
        assert_eq!(keeper.lively_pace(later), PEACE_NS);
        keeper.disturbed_at = later;
        assert_eq!(keeper.lively_pace(later), CALM_NS);
        keeper.blocked_at = Some(later);
        let forgiven = later + FORGIVEN_NS;
        assert_eq!(keeper.lively_pace(forgiven - 1), STEADY_NS);
        assert_eq!(keeper.lively_pace(forgiven), PEACE_NS);
    }
}

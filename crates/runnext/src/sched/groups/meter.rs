//! What a P's thread runs for, and who pays: one meter for turns and for goroutines.
//!
//! # Words
//! *piece*: the time from one reading to the next. *arrears*: what a thread ran for without a P since somebody last paid for it: robbed, or on its way
//! out of a turn and back into one.
//!
//! | word                      | written by                                                           | read by                        |
//! |---------------------------|----------------------------------------------------------------------|--------------------------------|
//! | [`M::paid`]               | the thread; who robbed it, or hands it a P                           | the monitor                    |
//! | `ran`, `apart`, `blocked`, `mark`, `section`, `last` | the owner of the P                        | the monitor; who asks for CPU time |
//! | `read_next`               | the owner; brought forward by anybody                                | the owner, at every dispatch |
//! | `away`                    | the monitor; cleared by the owner                                    | who asks for CPU time          |
//!
//! # Contract
//! C1  Each ns of a thread's CPU time is charged once: `paid` is the reading of its CPU clock up to which everything has been charged. It is set
//!     back only to refund time that was charged but not used.
//! C2  [`Meter::read`] is the one place where clocks are read, so a turn and its goroutines are charged by the same figures.
//! C3  The owner of the P reads at switches where a reading is due, where a turn ends, where a blocking section opens, and before the P leaves
//!     a thread within a turn.
//! C4  Arrears are charged to the group of the goroutine that the thread brings, whether or not it is that group's turn. If the thread brings
//!     none, nobody is charged; nor is anybody for searches, and for what a thread computes in a blocking section without a P. What it computes
//!     there while it has its P the turn pays, and nobody counts it as CPU time.
//! C5  `paid` is 0 while the thread's P takes no turns: nothing is charged then, and no clock read. It is set before the
//!     first piece that is charged.
//!
//! # Which clock
//! Reading a thread's CPU clock takes half a microsecond, so a short piece (below [`LEAST_STOLEN`]) is charged by the ticks that passed. If the
//! system ran something else meanwhile, the piece is long, and is charged by the CPU clock. Errors of short pieces are corrected at least
//! every [`FRESH`].
//!
//! # Single goroutines
//! Reading ticks at every switch would still be a good part of the switch's cost. It is done only while some runs are long ([`LONG_RUN`],
//! [`EXACT`]). While all are short, ticks are read at one switch in so many, up to [`MAX_SKIP`], and the goroutine that ran last is charged with
//! the whole piece. So long runs are charged exactly, short ones by fair sampling. A turn is always charged exactly.

use std::cell::Cell;
use std::ptr;
use std::sync::atomic::{AtomicPtr, AtomicU32, AtomicU64, Ordering::*};

use runnext_core::owner::{Home, State};
use runnext_sys::clock;

use crate::g::G;
use crate::m::M;
use crate::p::P;

/// After a run of this length, in ns, the clock is read at so many switches in a row: one that computes and those it wakes, which do not, take
/// turns, and no sampling by count is fair to both. If all of them are as short as can be it costs a twelfth, mostly nothing.
const LONG_RUN: u64 = 2_000;
const EXACT: u32 = 32;
/// The most switches from one reading of the clock to the next: a prime, or of those that take turns always the same one would be charged.
const MAX_SKIP: u32 = 67;
/// Less than this is not lost but measured late, in ns.
const LEAST_STOLEN: u64 = 100_000;
/// The longest that no CPU clock is read, in ns: a reading every millisecond is half a thousandth of it.
const FRESH: u64 = 1_000_000;
/// The monitor's looks are the price of scheduling, which groups pay, as much as this part of what they ran. What other processes take is more.
const SCHEDULING: u64 = 16;

/// See the [module](self).
pub(super) struct Meter {
    /// What the running turn is charged with so far, in ns.
    ran: AtomicU64,
    /// The last reading, in ticks.
    mark: AtomicU64,
    /// What was charged by ticks since the last reading of the thread's CPU clock, in ns; [`FRESH`] if there was none.
    guessed: Cell<u64>,
    /// What the running turn is charged with beside that: what its goroutines computed in blocking sections. And for how long they were in some, computing or
    /// not, up to the last reading, in ns.
    apart: AtomicU64,
    blocked: AtomicU64,
    /// For how long since the last reading the thread was on no CPU, in ns, as far as the monitor has seen.
    away: AtomicU64,
    /// Since when the turn's goroutine is in a blocking section, in ns; 0: it is not.
    section: AtomicU64,
    /// Who pays next. Null: nobody, or the turn alone.
    last: AtomicPtr<G>,
    /// The P searches, or rests: nobody pays.
    idle: Cell<bool>,
    /// The dispatch before which the clock was read last, and the one before which it is to be read again.
    read_at: Cell<u32>,
    read_next: AtomicU32,
    /// The dispatch up to which it is read at every one.
    exact_to: Cell<u32>,
}

impl Meter {
    pub(super) fn new() -> Meter {
        Meter {
            ran: AtomicU64::new(0),
            apart: AtomicU64::new(0),
            blocked: AtomicU64::new(0),
            mark: AtomicU64::new(0),
            guessed: Cell::new(FRESH),
            away: AtomicU64::new(0),
            section: AtomicU64::new(0),
            last: AtomicPtr::new(ptr::null_mut()),
            idle: Cell::new(true),
            read_at: Cell::new(0),
            read_next: AtomicU32::new(0),
            exact_to: Cell::new(0),
        }
    }

    // ---- by the owner of the P ----

    /// Whether it is time for a reading, as it is once in [`MAX_SKIP`] dispatches at least.
    #[inline]
    pub(super) fn is_due(&self, p: &P) -> bool {
        // More than half of all numbers away is behind.
        let next = self.read_next.load(Relaxed);
        p.tick.load(Relaxed).wrapping_sub(next) as i32 >= 0
    }

    /// Before the next dispatch: who ran is charged, if it is time.
    pub(super) fn account(&self, p: &P) {
        if !self.is_due(p) {
            return;
        }
        let tick = p.tick.load(Relaxed);
        let ran = self.read(p);
        self.section.store(0, Relaxed); // it went with who ran before
        let runs = tick.wrapping_sub(self.read_at.get()).max(1);
        if ran > LONG_RUN * u64::from(runs) {
            self.exact_to.set(tick.wrapping_add(EXACT));
        }
        let next = match self.exact_to.get().wrapping_sub(tick) {
            1..=EXACT => 1,
            _ => (2 * runs).min(MAX_SKIP),
        };
        self.read_at.set(tick);
        // Swapped: whoever hastened the reading a moment ago has been overruled, and what that was for is seen from here on (`Local::end_soon`).
        self.read_next.swap(tick.wrapping_add(next), AcqRel);
    }

    /// A piece ends: the turn pays for it, and who ran last. How much, in ns.
    pub(super) fn read(&self, p: &P) -> u64 {
        let ticks = clock::ticks();
        let wall = self.unread_ns(ticks);
        self.mark.store(ticks, Relaxed);
        let away = self.away.load(Relaxed);
        if away != 0 {
            self.away.store(0, Relaxed);
        }
        let section = self.section() != 0;
        let ns = self.used(p, wall, away, section);
        if self.idle.get() {
            return 0; // C4
        }
        if section {
            self.apart.store(self.apart.load(Relaxed) + ns, Relaxed);
            self.blocked
                .store(self.blocked.load(Relaxed) + wall, Relaxed);
            return 0;
        }
        self.ran.store(self.ran.load(Relaxed) + ns, Relaxed);
        if let Some(g) = self.last() {
            g.charge(ns);
        }
        ns
    }

    /// How much CPU time a piece took that lasted for `wall` ns, up to now, `away` of it on no CPU as far as was seen. That of a `section` is not known
    /// without the CPU clock, however short it was: it may have slept.
    fn used(&self, p: &P, wall: u64, away: u64, section: bool) -> u64 {
        // SAFETY: an M that owns a P is alive; so is one that was just robbed, for those who rob are watched (`monitor`, I2).
        let Some(m) = (unsafe { p.m.load(Acquire).as_ref() }) else {
            return 0;
        };
        let guessed = self.guessed.get().saturating_add(wall);
        // Who robbed it reads exactly: the thread may have another P by now, and write `paid` too.
        let own = m.state() == State::Rt && ptr::eq(m.p_ptr(), p);
        let paid = m.paid.load(Relaxed);
        if !section && wall < LEAST_STOLEN && guessed < FRESH && own && paid != 0 {
            self.guessed.set(guessed);
            m.paid.store(paid + wall, Relaxed);
            return wall;
        }
        self.guessed.set(0);
        match m.collect() {
            ran if section => ran.unwrap_or(0),
            Some(ran) if paid != 0 => ran + wall.saturating_sub(ran).min(ran / SCHEDULING),
            _ => wall.saturating_sub(away), // nobody knows better
        }
    }

    /// Up to `ticks` since the last reading.
    fn unread_ns(&self, ticks: u64) -> u64 {
        clock::ticks_to_ns(ticks.saturating_sub(self.mark.load(Relaxed)))
    }

    /// A turn begins. What came since the last one ended is its own, unless the P searched or rested, or nobody knows what its thread is paid for (C5).
    pub(super) fn begin(&self, p: &P) {
        // SAFETY: the caller's thread, which owns the P.
        let m = unsafe { p.m.load(Relaxed).as_ref() };
        if self.idle.get() || m.is_some_and(|m| m.paid.load(Relaxed) == 0) {
            self.read(p);
            self.wake(p);
        }
    }

    /// Somebody pays again. What was left from before a time without groups may seem to be ahead: readings are counted from here on.
    fn wake(&self, p: &P) {
        if self.idle.replace(false) {
            self.count_from(p.tick.load(Relaxed));
        }
    }

    /// The clock was read before this dispatch, and is to be before the next.
    fn count_from(&self, tick: u32) {
        self.read_at.set(tick);
        self.read_next.store(tick.wrapping_add(1), Relaxed);
    }

    /// The turn ends, a section that is open with it: what is to be charged as CPU time, and what beside that.
    pub(super) fn end(&self, p: &P) -> (u64, u64) {
        self.read(p);
        self.section.store(0, Relaxed);
        self.blocked.store(0, Relaxed);
        let take = |word: &AtomicU64| {
            let ns = word.load(Relaxed);
            word.store(0, Relaxed);
            ns
        };
        (take(&self.ran), take(&self.apart))
    }

    /// After the end of a turn: until the next one begins nobody pays.
    pub(super) fn rest(&self, p: &P) {
        self.set_last(ptr::null());
        self.idle.set(true);
        self.count_from(p.tick.load(Relaxed));
    }

    /// The P takes no turns any more.
    pub(super) fn stop(&self, p: &P) {
        self.rest(p);
        // SAFETY: the caller's thread, which owns the P.
        if let Some(m) = unsafe { p.m.load(Relaxed).as_ref() } {
            m.paid.store(0, Relaxed); // C5
        }
    }

    /// `m` has the P from here on, perhaps in the middle of a turn.
    pub(super) fn taken(&self, m: &M) {
        if m.paid.load(Relaxed) == 0 {
            m.collect(); // C5
        }
        self.mark.store(clock::ticks(), Relaxed);
        self.guessed.set(FRESH);
    }

    /// `g` came with its thread `m`, and pays from here on, in a turn or not.
    pub(super) fn resumed(&self, m: &M, g: &G) {
        if m.paid.load(Relaxed) == 0 {
            self.taken(m);
        }
        self.set_last(g);
        self.wake(m.p());
    }

    /// `g` is about to run, or nobody.
    #[inline]
    pub(super) fn set_last(&self, g: *const G) {
        self.last.store(g.cast_mut(), Relaxed);
    }

    /// Who ran last, or runs.
    pub(super) fn last(&self) -> Option<&G> {
        // SAFETY: it ran here, and headers are type-stable; one that ends takes itself out (`charge_own`).
        unsafe { self.last.load(Relaxed).as_ref() }
    }

    /// The next dispatch reads, or the one that is about to put off its next reading sees what the caller has done before. By anybody.
    pub(super) fn hasten(&self, p: &P) {
        self.read_next.store(p.tick.load(Relaxed), Release);
    }

    // ---- blocking sections; by the owner ----

    /// The goroutine that runs opens one, at `now`.
    pub(super) fn open_section(&self, p: &P, now: u64) {
        self.read(p);
        self.set_last(ptr::null());
        self.section.store(now, Relaxed);
        self.hasten(p); // the next dispatch closes it, if its goroutine does not
    }

    /// Since when one is open; 0: none is.
    #[inline]
    pub(super) fn section(&self) -> u64 {
        self.section.load(Relaxed)
    }

    /// It is over.
    #[cold]
    pub(super) fn close_section(&self, p: &P) {
        self.read(p);
        self.section.store(0, Relaxed);
    }

    // ---- by others ----

    /// The monitor's look at a turn that began at `since`: the CPU clock of its thread, which may not have arrived yet, shows `cpu` now. For how long
    /// of the turn none of its threads was on a CPU, a moment's view.
    pub(super) fn look(&self, m: &M, cpu: u64, since: u64, now: u64) -> u64 {
        if self.section() != 0 {
            return 0;
        }
        let unpaid = match m.paid.load(Relaxed) {
            0 => 0,
            paid => cpu.saturating_sub(paid),
        };
        let away = self.unread_ns(clock::ticks()).saturating_sub(unpaid);
        if away > self.away.load(Relaxed) + LEAST_STOLEN {
            self.away.store(away, Relaxed);
        }
        let ran = self.ran.load(Relaxed) + unpaid;
        let spent = ran + self.blocked.load(Relaxed); // who blocks has the P all the same
        now.saturating_sub(since).saturating_sub(spent)
    }

    /// What the running turn is to be charged with, as far as can be seen.
    pub(super) fn turn_ns(&self) -> u64 {
        self.ran.load(Relaxed) + self.piece_ns()
    }

    /// What `g` ran for and was not charged with yet, if it runs here.
    pub(super) fn goroutine_ns(&self, g: &G) -> u64 {
        match ptr::eq(self.last.load(Relaxed), g) {
            true => self.piece_ns(),
            false => 0,
        }
    }

    fn piece_ns(&self) -> u64 {
        match self.section() {
            0 => self
                .unread_ns(clock::ticks())
                .saturating_sub(self.away.load(Relaxed)),
            _ => 0,
        }
    }
}

impl M {
    /// Takes what this thread ran for since somebody last paid for it, in ns; nothing the first time. None: nobody knows. By the thread, by who robbed it,
    /// or who is about to hand it a P.
    pub(super) fn collect(&self) -> Option<u64> {
        let cpu = self.cpu_ns()?;
        // Of a thread and who robbed it the first one takes it. C1
        match self.paid.fetch_max(cpu, Relaxed) {
            0 => Some(0),
            paid if paid > cpu => {
                if self.state() == State::Rt {
                    self.paid.store(cpu, Relaxed); // short pieces were too long
                }
                Some(0)
            }
            paid => Some(cpu - paid),
        }
    }

    /// The arrears of this thread, which is about to take a P and brings its goroutine. By the thread itself.
    pub(in crate::sched) fn arrears(&self) -> u64 {
        if self.paid.load(Relaxed) == 0 {
            return 0; // C5
        }
        let ran = self.collect().unwrap_or(0);
        match self.home.get() {
            Home::User => ran,
            Home::Blk => 0, // C4
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    /// A thread that was handed the P and had no CPU yet was taken for one that had computed all the time, and its turn was over when it arrived.
    #[test]
    fn a_thread_that_has_not_arrived_is_away() {
        let (meter, m) = (Meter::new(), M::new(0, ptr::null()));
        meter.taken(&m);
        let (since, now, before) = (7 * MS, 12 * MS, 3 * MS);
        for (paid, cpu, away) in [
            (0, before, 5 * MS),
            (before, before, 5 * MS),
            (before, before + 2 * MS, 3 * MS),
            (before, before + 5 * MS, 0),
            (before, before + 9 * MS, 0),
        ] {
            m.paid.store(paid, Relaxed);
            assert_eq!(meter.look(&m, cpu, since, now), away, "{paid}, {cpu}");
        }
        // Of what another thread had run for in the turn, too.
        meter.ran.store(MS, Relaxed);
        assert_eq!(meter.look(&m, before + 2 * MS, since, now), 2 * MS);
        // Who blocks is not away.
        meter.blocked.store(MS, Relaxed);
        assert_eq!(meter.look(&m, before + 2 * MS, since, now), MS);
    }

    /// It was nobody's.
    #[test]
    fn a_turn_pays_for_what_its_sections_compute_apart() {
        let (p, m) = (P::new(0, 1), M::new(0, ptr::null()));
        m.install();
        p.m.store(ptr::from_ref(&m).cast_mut(), Relaxed);
        let meter = &p.groups.meter;
        meter.taken(&m);
        meter.begin(&p);
        let spin = |ms| {
            let begin = m.cpu_ns();
            while m.cpu_ns() < begin.map(|ns| ns + ms * MS) {}
        };
        spin(1);
        meter.open_section(&p, clock::now_ns());
        spin(20);
        assert!(meter.turn_ns() < 20 * MS, "not as CPU time");
        meter.close_section(&p);
        let blocked = meter.blocked.load(Relaxed);
        let (ran, apart) = meter.end(&p);
        assert!((MS..20 * MS).contains(&ran), "{ran}");
        assert!(apart >= 20 * MS, "{apart}");
        assert!(blocked >= 19 * MS, "{blocked}"); // by another clock
        assert_eq!(meter.end(&p).1, 0, "once");
        m.uninstall();
    }

    /// What was left from before a time without groups seemed to be ahead, and nobody was charged until the P had made as many dispatches again.
    #[test]
    fn readings_go_on_after_a_time_without_groups() {
        for pause in [0, 7, (1 << 31) - 1, 1 << 31, u32::MAX] {
            let p = P::new(0, 1);
            let (meter, tick) = (&p.groups.meter, &p.tick);
            let dispatch = || tick.store(tick.load(Relaxed).wrapping_add(1), Relaxed);
            meter.begin(&p);
            dispatch();
            meter.end(&p);
            meter.rest(&p);
            tick.store(tick.load(Relaxed).wrapping_add(pause), Relaxed);
            meter.begin(&p);
            dispatch();
            meter.account(&p);
            assert_eq!(meter.read_at.get(), tick.load(Relaxed), "{pause}");
        }
    }

    /// However far away the next reading was.
    #[test]
    fn the_next_dispatch_closes_a_section_that_its_goroutine_took_along() {
        let p = P::new(0, 1);
        let meter = &p.groups.meter;
        meter.begin(&p);
        meter.read_next.store(MAX_SKIP, Relaxed);
        meter.open_section(&p, 1);
        meter.account(&p);
        assert_eq!(meter.section(), 0);
    }

    #[test]
    fn a_threads_time_is_collected_once() {
        let m = M::new(0, ptr::null());
        m.install();
        let spin = || {
            let begin = m.cpu_ns();
            while m.cpu_ns() < begin.map(|ns| ns + MS) {}
        };
        assert_eq!(m.arrears(), 0, "nobody counts");
        spin();
        assert_eq!(m.collect(), Some(0), "from here on");
        spin();
        assert!(m.collect() >= Some(MS));
        spin();
        assert!(m.arrears() >= MS);
        spin();
        m.home.set(Home::Blk);
        assert_eq!(m.arrears(), 0, "a section's");
        m.home.set(Home::User);
        assert!(m.arrears() < MS, "and nobody pays for it later");
        m.uninstall();
    }
}

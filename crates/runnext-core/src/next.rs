//! What runs next on a P: the decision, without the doing.
//!
//! The worker loop lets it [`Look`] at its P, gets a [`Pick`], and carries it out; tests do the same
//! with a made-up one. Nothing here reads a clock, rolls a die or touches a queue.
//!
//! # The rules
//! In order, first that applies:
//!
//! 1. The global queue, if [`FAIRNESS`] dispatches have passed since it was served last: one from there.
//! 2. `runnext`, which inherits the running slice, unless the chain of such hand-offs has used up what it
//!    may take from the others.
//! 3. The urgent queue, in turn with the local one if that has something too. Urgent are light goroutines that an event made
//!    runnable while all Ps were busy.
//! 4. The head of the local queue.
//! 5. A batch from the global queue.
//! 6. Nothing here: search elsewhere ([`Pick::Search`]).
//!
//! Whose turn it is follows from what was served, and never from the number of the dispatch: goroutines that take turns repeat themselves, and
//! with the wrong period the right number never comes when there is something to decide.
//!
//! # When a chain ends
//! A goroutine that wakes another and blocks passes its slice on through `runnext`, and the two could keep
//! the P for ever. A chain ends, if anybody else waits on this P, when the slice it shares is used up or
//! after [`CHAIN`] hand-offs. The occupant of `runnext` then goes to the tail of the local queue like
//! everybody else: an expired slice is not inherited. If the slice was used up and nobody waits locally, the global queue is looked
//! at before it goes there; somebody who waits locally is light, and goes before the hogs in the global queue.
//! Counting as well as timing is what bounds the wait of a bystander to microseconds while the members of
//! the chain are light, without a clock per switch.

/// After how many dispatches the global queue is served first (Go's figure).
pub const FAIRNESS: u32 = 61;

/// Hand-offs through `runnext` in a row while others wait. Larger values batch message passing better, smaller
/// ones make bystanders wait less. A guess between the two: a bystander waits microseconds (`bench yieldlat`).
pub const CHAIN: u32 = 64;

/// The most taken from the global queue at once: half a local queue.
pub const BATCH: usize = 128;

/// What the decision asks of one P, only as far as it depends on that: most are told by the first few answers.
pub trait Look {
    /// Dispatches on this P since the global queue was served.
    fn since_global(&self) -> u32;
    /// `runnext` is occupied.
    fn next(&self) -> bool;
    /// The local queue has something.
    fn local(&self) -> bool;
    /// The urgent queue has something.
    fn urgent(&self) -> bool;
    /// Of the urgent and the local queue, the urgent one was served last.
    fn after_urgent(&self) -> bool;
    /// How many are in the global queue.
    fn global(&self) -> usize;
    /// Ps that share the global queue.
    fn procs(&self) -> usize;
    /// `runnext`, if there is one, goes on with the running slice ([`goes_on`]).
    fn goes_on(&self) -> bool;
    /// The running slice is used up.
    fn expired(&self) -> bool;
}

/// What to do next.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Pick {
    /// Run `runnext` on the running slice.
    Next,
    /// Run `runnext` on a slice of its own: its chain is over, but nobody else waits.
    NextFresh,
    /// Run the head of the local queue.
    Local,
    /// Move `runnext` to the tail of the local queue, then decide again: its chain is over and others wait.
    Kick,
    /// Run the head of the urgent queue.
    Urgent,
    /// Take this many from the global queue: run the first, keep the rest in the local queue.
    Global(usize),
    /// Nothing on this P: search.
    Search,
}

/// Decides. See the [module](self) for the rules.
#[inline(always)] // at every dispatch: what a lane without a global queue does not ask is gone then
pub fn pick(here: &impl Look) -> Pick {
    if here.global() > 0 && (here.since_global() >= FAIRNESS || (here.expired() && !here.local())) {
        return Pick::Global(1);
    }
    if here.next() {
        return if here.goes_on() {
            Pick::Next
        } else if here.local() || here.urgent() || here.global() > 0 {
            Pick::Kick
        } else {
            Pick::NextFresh
        };
    }
    if here.urgent() && !(here.local() && here.after_urgent()) {
        return Pick::Urgent;
    }
    if here.local() {
        return Pick::Local;
    }
    match here.global() {
        0 => Pick::Search,
        n => Pick::Global(batch(n, here.procs())),
    }
}

/// Whether `runnext`, if there is one, runs on the running slice, whoever else waits on the P.
#[inline]
pub fn goes_on(chain: u32, expired: bool) -> bool {
    chain < CHAIN && !expired
}

/// A P's fair part of a global queue of `len`.
#[inline]
pub fn batch(len: usize, procs: usize) -> usize {
    (len / procs.max(1) + 1).min(len).min(BATCH)
}

/// Whether one more thread may go looking for work: at most half as many search as work.
#[inline]
pub fn may_spin(spinning: usize, idle: usize, procs: usize) -> bool {
    2 * spinning < procs.saturating_sub(idle)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// One P as it is at a moment.
    #[derive(Clone, Copy, Debug)]
    struct View {
        since_global: u32,
        next: bool,
        local: bool,
        urgent: bool,
        after_urgent: bool,
        global: usize,
        procs: usize,
        /// Hand-offs through `runnext` since something else ran here; but for one from the global queue, before which `runnext` waited.
        chain: u32,
        expired: bool,
    }

    impl Look for View {
        fn since_global(&self) -> u32 {
            self.since_global
        }

        fn next(&self) -> bool {
            self.next
        }

        fn local(&self) -> bool {
            self.local
        }

        fn urgent(&self) -> bool {
            self.urgent
        }

        fn after_urgent(&self) -> bool {
            self.after_urgent
        }

        fn global(&self) -> usize {
            self.global
        }

        fn procs(&self) -> usize {
            self.procs
        }

        fn goes_on(&self) -> bool {
            goes_on(self.chain, self.expired)
        }

        fn expired(&self) -> bool {
            self.expired
        }
    }

    const EMPTY: View = View {
        since_global: 1,
        next: false,
        local: false,
        urgent: false,
        after_urgent: false,
        global: 0,
        procs: 2,
        chain: 0,
        expired: false,
    };

    /// A view from a list of what is there.
    fn view(what: &str) -> View {
        let mut v = EMPTY;
        for word in what.split_whitespace() {
            match word.split_once('=') {
                Some(("since_global", n)) => v.since_global = n.parse().unwrap(),
                Some(("global", n)) => v.global = n.parse().unwrap(),
                Some(("chain", "max")) => v.chain = CHAIN,
                Some(("chain", "short")) => v.chain = CHAIN - 1,
                None if word == "next" => v.next = true,
                None if word == "local" => v.local = true,
                None if word == "urgent" => v.urgent = true,
                None if word == "after_urgent" => v.after_urgent = true,
                None if word == "expired" => v.expired = true,
                _ => panic!("no such thing in a view: {word}"),
            }
        }
        v
    }

    #[test]
    fn the_rules_as_a_table() {
        let table = [
            ("", Pick::Search),
            ("next local global=9", Pick::Next),
            ("local global=9", Pick::Local),
            ("global=9", Pick::Global(5)),
            ("local urgent", Pick::Urgent),
            ("after_urgent local urgent", Pick::Local),
            ("after_urgent urgent", Pick::Urgent),
            ("urgent global=9", Pick::Urgent),
            ("since_global=60 next local global=9", Pick::Next),
            ("since_global=61 next local global=9", Pick::Global(1)),
            ("since_global=99 next local global=9", Pick::Global(1)),
            ("since_global=61 next", Pick::Next),
            ("chain=max next local", Pick::Kick),
            ("chain=max next global=1", Pick::Kick),
            ("chain=max next urgent", Pick::Kick),
            ("chain=max next", Pick::NextFresh),
            ("chain=short next local", Pick::Next),
            ("expired next local", Pick::Kick),
            ("expired next global=3", Pick::Global(1)),
            ("expired next local global=3", Pick::Kick),
            ("expired local global=3", Pick::Local),
            ("expired next", Pick::NextFresh),
        ];
        for (what, want) in table {
            assert_eq!(pick(&view(what)), want, "{what}");
        }
    }

    #[test]
    fn a_batch_is_a_fair_part_and_never_nothing() {
        for procs in 0..=64 {
            for len in 1..1000 {
                let n = batch(len, procs);
                assert!(
                    (1..=BATCH.min(len)).contains(&n),
                    "{n} of {len} for {procs}"
                );
            }
        }
        assert_eq!(batch(1000, 1), BATCH);
        assert_eq!(batch(10, 4), 3);
    }

    #[test]
    fn after_a_kick_the_others_run() {
        // Whatever the view, a kick is never answered by a kick: the caller then has `next` empty.
        let after = View {
            next: false,
            local: true,
            chain: CHAIN,
            expired: true,
            ..EMPTY
        };
        assert_eq!(pick(&after), Pick::Local);
    }

    /// Decides `n` times for a P on which all but every `period`th that runs wakes another, and all queues have something all the time. Gives who ran.
    fn drive(n: usize, period: usize) -> Vec<Pick> {
        let mut v = View {
            local: true,
            urgent: true,
            global: 1000,
            ..EMPTY
        };
        let mut ran = Vec::new();
        while ran.len() < n {
            let pick = pick(&v);
            match pick {
                Pick::Kick => {
                    v.next = false;
                    continue;
                }
                Pick::Next => (v.next, v.chain) = (false, v.chain + 1),
                Pick::Urgent => (v.after_urgent, v.chain) = (true, 0),
                Pick::Local => (v.after_urgent, v.chain) = (false, 0),
                Pick::Global(1) => v.since_global = 0, // the chain goes on
                other => panic!("{other:?}"),
            }
            v.since_global += 1;
            ran.push(pick);
            v.next |= !ran.len().is_multiple_of(period);
        }
        ran
    }

    /// The longest run without `who`.
    fn longest_wait(ran: &[Pick], who: Pick) -> usize {
        let waits = ran.split(|pick| *pick == who).map(<[Pick]>::len);
        waits.max().unwrap_or(0)
    }

    /// With the number of the dispatch in place of what was served, a period of 2 shut out the urgent queue or the local one.
    #[test]
    fn nobody_is_shut_out_whatever_the_period() {
        for period in 1..=130 {
            let ran = drive(2000, period);
            for (who, most) in [
                (Pick::Urgent, 2 * (CHAIN + 3)),
                (Pick::Local, 2 * (CHAIN + 3)),
                (Pick::Global(1), FAIRNESS),
            ] {
                let longest = longest_wait(&ran, who);
                assert!(longest <= most as usize, "{who:?}: {longest} with {period}");
            }
        }
    }

    #[test]
    fn half_as_many_search_as_work() {
        assert!(may_spin(0, 0, 1));
        assert!(!may_spin(1, 0, 1));
        assert!(may_spin(0, 1, 2));
        assert!(!may_spin(0, 2, 2));
        assert!(may_spin(1, 0, 4) && !may_spin(2, 0, 4));
    }
}

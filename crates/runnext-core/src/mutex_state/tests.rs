//! Single steps, with a gate that does what the test says.

use std::cell::{Cell, RefCell};

use super::*;

/// What happens during one wait; it may set the clock.
type Step<'a> = Box<dyn FnOnce(&Cell<u64>) + 'a>;

/// A gate whose `wait` runs the next step instead of sleeping.
struct Script<'a> {
    steps: RefCell<Vec<Step<'a>>>,
    fronts: RefCell<Vec<bool>>,
    spins: Cell<u32>,
    clock: Cell<u64>,
}

impl<'a> Script<'a> {
    fn new(mut steps: Vec<Step<'a>>) -> Script<'a> {
        steps.reverse();
        Script {
            steps: RefCell::new(steps),
            fronts: RefCell::default(),
            spins: Cell::new(0),
            clock: Cell::new(0),
        }
    }
}

impl Gate for Script<'_> {
    fn wait(&self, front: bool) {
        self.fronts.borrow_mut().push(front);
        let step = self.steps.borrow_mut().pop().expect("waits too often");
        step(&self.clock);
    }
    fn may_spin(&self, round: u32) -> bool {
        round < self.spins.get()
    }
    fn spin(&self) {}
    fn now_ns(&self) -> u64 {
        self.clock.get()
    }
}

fn word(state: &MutexState) -> u32 {
    state.word.load(Relaxed)
}

fn set(state: &MutexState, to: u32) {
    state.word.store(to, Relaxed);
}

/// Unlocks a contended mutex; the token left at the gate.
fn unlock(state: &MutexState) -> Option<Token> {
    let mut left = None;
    let contended = state.unlock_fast().expect("contended");
    state.unlock_slow(contended, |token| left = Some(token));
    left
}

#[test]
fn free_is_taken_and_freed_in_one_step() {
    let m = MutexState::new();
    assert!(m.lock_fast() && !m.lock_fast() && !m.try_lock());
    assert!(m.unlock_fast().is_none());
    assert!(m.try_lock() && m.unlock_fast().is_none());
}

#[test]
fn try_lock_takes_a_free_mutex_with_waiters_but_not_a_starving_one() {
    let m = MutexState::new();
    set(&m, 2 * WAITER);
    assert!(m.try_lock());
    assert_eq!(word(&m), (2 * WAITER) | LOCKED);
    set(&m, STARVING | WAITER);
    assert!(!m.try_lock());
}

#[test]
fn a_waiter_is_counted_woken_and_competes() {
    let m = MutexState::new();
    assert!(m.lock_fast());
    let unlock = |_: &Cell<u64>| {
        assert_eq!(word(&m), LOCKED | WAITER);
        assert_eq!(unlock(&m), Some(Token::Wake));
        assert_eq!(word(&m), WOKEN);
    };
    let locker = Script::new(vec![Box::new(unlock)]);
    m.lock_slow(&locker);
    assert_eq!(word(&m), LOCKED);
    assert_eq!(*locker.fronts.borrow(), [false]);
}

#[test]
fn a_loser_goes_to_the_front_and_starves_when_it_is_late() {
    let m = MutexState::new();
    assert!(m.lock_fast());
    let lose = |clock: &Cell<u64>| {
        // Woken, but somebody else has the lock again, and it is late.
        set(&m, LOCKED | WOKEN);
        clock.set(STARVING_NS + 1);
    };
    let handed = |_: &Cell<u64>| {
        assert_eq!(word(&m), LOCKED | STARVING | WAITER);
        assert_eq!(unlock(&m), Some(Token::Lock));
    };
    let locker = Script::new(vec![Box::new(lose), Box::new(handed)]);
    m.lock_slow(&locker);
    // The last waiter ends the mode.
    assert_eq!(word(&m), LOCKED);
    assert_eq!(*locker.fronts.borrow(), [false, true]);
}

#[test]
fn starving_goes_on_while_waiters_are_late_and_ends_with_a_quick_one() {
    for (late, goes_on) in [(true, true), (false, false)] {
        let m = MutexState::new();
        set(&m, LOCKED | STARVING | (3 * WAITER));
        let handed = |clock: &Cell<u64>| {
            assert_eq!(word(&m), LOCKED | STARVING | (4 * WAITER), "no barging");
            set(&m, STARVING | (4 * WAITER));
            clock.set(if late { STARVING_NS + 1 } else { 10 });
        };
        let locker = Script::new(vec![Box::new(handed)]);
        m.lock_slow(&locker);
        let mode = if goes_on { STARVING } else { 0 };
        assert_eq!(word(&m), LOCKED | mode | (3 * WAITER));
    }
}

#[test]
fn a_late_waiter_does_not_make_a_free_mutex_starve() {
    let m = MutexState::new();
    assert!(m.lock_fast());
    let free_but_late = |clock: &Cell<u64>| {
        set(&m, WOKEN | WAITER);
        clock.set(STARVING_NS + 1);
    };
    let locker = Script::new(vec![Box::new(free_but_late)]);
    m.lock_slow(&locker);
    assert_eq!(word(&m), LOCKED | WAITER);
}

#[test]
fn a_spinner_announces_itself_only_if_somebody_waits() {
    for waiters in [0, (2 * WAITER)] {
        let m = MutexState::new();
        set(&m, LOCKED | waiters);
        let locker = Script::new(vec![Box::new(|_| {
            // It gave its bit back before it waited.
            assert_eq!(word(&m), (LOCKED | waiters) + WAITER);
            set(&m, WOKEN | waiters);
        })]);
        locker.spins.set(1);
        m.lock_slow(&locker);
        assert_eq!(word(&m), LOCKED | waiters);
    }
}

#[test]
fn an_unlock_wakes_nobody_when_somebody_is_awake_or_was_faster() {
    for word in [WOKEN | WAITER, LOCKED | WAITER, WOKEN] {
        let m = MutexState::new();
        set(&m, word);
        m.unlock_slow(Contended(word), |token| panic!("left a {token:?}"));
        assert_eq!(m.word.load(Relaxed), word);
    }
}

/// One that waits will never run again. Whoever comes next takes what was left for it, and is woken as any other.
#[test]
fn a_token_for_one_that_is_lost_serves_the_next() {
    let m = MutexState::new();
    set(&m, LOCKED | WAITER);
    assert_eq!(unlock(&m), Some(Token::Wake));
    for _ in 0..3 {
        assert!(m.lock_fast());
        let gate = Script::new(vec![
            Box::new(|_| {}), // it is there already
            Box::new(|_| assert_eq!(unlock(&m), Some(Token::Wake))),
        ]);
        m.lock_slow(&gate);
        assert_eq!(*gate.fronts.borrow(), [false, true]);
        assert_eq!(word(&m), LOCKED | WAITER); // that of the lost one, and no more
        assert_eq!(unlock(&m), Some(Token::Wake));
    }
    set(&m, LOCKED | STARVING | WAITER);
    assert_eq!(unlock(&m), Some(Token::Lock));
    m.lock_slow(&Script::new(vec![Box::new(|_| {})]));
    assert_eq!(word(&m), LOCKED | WAITER);
}

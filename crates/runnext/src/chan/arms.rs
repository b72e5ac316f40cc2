//! What `select!` expands to: the typed cases, and the way their values come out.
//!
//! The macro builds a nested pair, `(case, (case, end))`, hands it over, and gets back a nested enum of the same
//! shape, [`Won`], that holds the result of the one case that happened. By then all cases are gone, with what they borrowed
//! and the values that were not sent, so a body may do with the channels as it likes. The names here are public for the
//! macro only.

use std::mem::{ManuallyDrop, MaybeUninit};
use std::time::Duration;

use super::error::{RecvError, SendError};
pub use super::select::Order;
use super::select::{self, Case, Limit};
use super::{Receiver, Sender};
use crate::instant::Instant;

/// The result of the first case, or of the others.
#[derive(Debug)]
pub enum Won<A, B> {
    /// It was the first.
    This(A),
    /// It was another.
    Next(B),
}

/// No value: a `select!` without `default` always does one of its cases.
#[derive(Debug)]
pub enum Nothing {}

/// Ends the list of a `select!` without `default`.
#[derive(Debug)]
pub struct End;

/// Ends the list of a `select!` with `default`.
#[derive(Debug)]
pub struct Default;

/// A typed case.
pub trait Arm {
    /// Its result.
    type Out;

    /// The case as the machinery sees it.
    ///
    /// # Safety
    /// `self` stays in place and untouched until the select is over.
    unsafe fn case(&mut self) -> Case;

    /// The result.
    ///
    /// # Safety
    /// This case was chosen, and the channel was closed or not.
    unsafe fn finish(self, closed: bool) -> Self::Out;
}

/// All cases of a `select!`.
///
/// # Safety
/// `fill` writes `COUNT` cases.
pub unsafe trait Arms {
    /// The result of the one that happened.
    type Won;

    /// How many there are.
    const COUNT: usize;

    /// Writes all cases.
    ///
    /// # Safety
    /// As [`Arm::case`]; there are `COUNT` places.
    unsafe fn fill(&mut self, cases: &mut [MaybeUninit<Case>]);

    /// The result of the chosen case; none if it is `default`.
    ///
    /// # Safety
    /// As [`Arm::finish`], for the case with this index.
    unsafe fn finish(self, index: Option<usize>, closed: bool) -> Self::Won;
}

/// `recv(rx)`.
#[derive(Debug)]
pub struct Recv<'a, T> {
    rx: &'a Receiver<T>,
    slot: MaybeUninit<T>,
}

/// `send(tx, value)`.
#[derive(Debug)]
pub struct Send<'a, T> {
    tx: &'a Sender<T>,
    /// Taken by `finish`, or dropped with the case.
    value: ManuallyDrop<T>,
}

/// `recv(rx)`.
#[inline]
pub fn recv<T>(rx: &Receiver<T>) -> Recv<'_, T> {
    Recv {
        rx,
        slot: MaybeUninit::uninit(),
    }
}

/// `send(tx, value)`.
#[inline]
pub fn send<T>(tx: &Sender<T>, value: T) -> Send<'_, T> {
    Send {
        tx,
        value: ManuallyDrop::new(value),
    }
}

impl<T> Arm for Recv<'_, T> {
    type Out = Result<T, RecvError>;

    #[inline]
    unsafe fn case(&mut self) -> Case {
        // SAFETY: the contract; the slot is empty.
        unsafe { Case::recv(self.rx, self.slot.as_mut_ptr()) }
    }

    #[inline]
    unsafe fn finish(self, closed: bool) -> Result<T, RecvError> {
        match closed {
            true => Err(RecvError),
            // SAFETY: chosen and not closed: the value is there.
            false => Ok(unsafe { self.slot.assume_init() }),
        }
    }
}

impl<T> Arm for Send<'_, T> {
    type Out = Result<(), SendError<T>>;

    #[inline]
    unsafe fn case(&mut self) -> Case {
        // SAFETY: the contract; the value is there.
        unsafe { Case::send(self.tx, &raw mut *self.value) }
    }

    #[inline]
    unsafe fn finish(self, closed: bool) -> Result<(), SendError<T>> {
        let mut this = ManuallyDrop::new(self);
        match closed {
            // SAFETY: not sent, and not dropped with `this`.
            true => Err(SendError(unsafe { ManuallyDrop::take(&mut this.value) })),
            false => Ok(()),
        }
    }
}

impl<T> Drop for Send<'_, T> {
    fn drop(&mut self) {
        // SAFETY: not chosen, or `finish` would have kept this from being dropped.
        unsafe { ManuallyDrop::drop(&mut self.value) };
    }
}

// SAFETY: no cases.
unsafe impl Arms for End {
    type Won = Nothing;

    const COUNT: usize = 0;

    unsafe fn fill(&mut self, _: &mut [MaybeUninit<Case>]) {}

    unsafe fn finish(self, _: Option<usize>, _: bool) -> Nothing {
        unreachable!("a select without default has chosen none of its cases")
    }
}

// SAFETY: no cases.
unsafe impl Arms for Default {
    type Won = ();

    const COUNT: usize = 0;

    unsafe fn fill(&mut self, _: &mut [MaybeUninit<Case>]) {}

    unsafe fn finish(self, _: Option<usize>, _: bool) {}
}

// SAFETY: the first, and all others.
unsafe impl<A: Arm, R: Arms> Arms for (A, R) {
    type Won = Won<A::Out, R::Won>;

    const COUNT: usize = 1 + R::COUNT;

    #[inline]
    unsafe fn fill(&mut self, cases: &mut [MaybeUninit<Case>]) {
        if let Some((first, others)) = cases.split_first_mut() {
            // SAFETY: the contract.
            unsafe {
                first.write(self.0.case());
                self.1.fill(others);
            }
        }
    }

    #[inline]
    unsafe fn finish(self, index: Option<usize>, closed: bool) -> Self::Won {
        // SAFETY: the contract.
        unsafe {
            match index {
                Some(0) => Won::This(self.0.finish(closed)),
                _ => Won::Next(self.1.finish(index.map(|index| index - 1), closed)),
            }
        }
    }
}

/// Does one of the cases. The array says how many there are, which a generic function cannot ask `L`; a wrong number does not compile:
///
/// ```compile_fail,E0080
/// use runnext::chan::__private::{Default, Order, poll};
/// poll(Default, [()], Order::Dice);
/// ```
/// ```
/// use runnext::chan::__private::{Default, Order, poll};
/// poll(Default, [], Order::Dice);
/// ```
#[inline]
pub fn wait<L: Arms, const N: usize>(arms: L, count: [(); N], order: Order) -> L::Won {
    run(arms, count, order, Limit::NEVER)
}

/// Does one of the cases if one is ready.
#[inline]
pub fn poll<L: Arms, const N: usize>(arms: L, count: [(); N], order: Order) -> L::Won {
    run(arms, count, order, Limit::Now)
}

/// Does one of the cases if one is ready in time.
#[inline]
pub fn wait_for<L: Arms, const N: usize>(
    arms: L,
    count: [(); N],
    order: Order,
    timeout: Duration,
) -> L::Won {
    run(
        arms,
        count,
        order,
        Limit::At(Instant::after(timeout).as_ns()),
    )
}

#[inline]
fn run<L: Arms, const N: usize>(mut arms: L, _: [(); N], order: Order, limit: Limit) -> L::Won {
    const { assert!(L::COUNT == N, "as many cases as are counted") };
    let mut cases = [const { MaybeUninit::<Case>::uninit() }; N];
    // SAFETY: `arms` is not touched before `finish`, which is after the select. There are as many places as cases, so all are written; a
    // case has nothing to drop.
    unsafe {
        arms.fill(&mut cases);
        let cases = &mut *(&raw mut cases).cast::<[Case; N]>();
        match select::run(cases, limit, order) {
            Some(chosen) => arms.finish(Some(chosen.index), chosen.closed),
            None => arms.finish(None, false),
        }
    }
}

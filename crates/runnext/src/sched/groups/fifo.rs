//! What waits of a group on a P: light goroutines before hogs, each kind in the order of arrival.
//!
//! As without groups, where hogs wait in the global queue and light ones in front of it: a service whose requests are all of one group
//! would else serve the short ones only after whole slices of the long ones. Hogs are not forgotten: a turn takes one when no light one
//! is left, and every so many dispatches in any case (`Local::go_on`).

use std::ptr::NonNull;

use runnext_core::list::List;

use crate::g::G;

/// How far from the head of a list somebody is looked for, with the lock held.
const NEAR: usize = 64;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Fifo {
    light: List<G>,
    hogs: List<G>,
}

impl Fifo {
    pub(super) fn len(&self) -> usize {
        self.light.len() + self.hogs.len()
    }

    /// Whether a light one waits.
    pub(super) fn has_light(&self) -> bool {
        !self.light.is_empty()
    }

    /// Queues one.
    ///
    /// # Safety
    /// It is runnable and in no queue.
    pub(super) unsafe fn push(&mut self, g: NonNull<G>, front: bool) {
        // SAFETY: the caller's promise.
        unsafe {
            let list = match g.as_ref().is_light() {
                true => &mut self.light,
                false => &mut self.hogs,
            };
            match front {
                true => list.push_front(g),
                false => list.push_back(g),
            }
        }
    }

    /// Queues several, in their order.
    pub(super) fn put(&mut self, mut gs: List<G>, front: bool) {
        let mut sorted = Fifo::default();
        while let Some(g) = gs.pop_front() {
            // SAFETY: it was in the list, so it is runnable, and now it is in none.
            unsafe { sorted.push(g, false) };
        }
        let Fifo { light, hogs } = sorted;
        match front {
            true => {
                self.light.prepend(light);
                self.hogs.prepend(hogs);
            }
            false => {
                self.light.append(light);
                self.hogs.append(hogs);
            }
        }
    }

    /// What a turn goes on with: up to `n` light ones, or one hog.
    pub(super) fn take_turn(&mut self, n: usize) -> List<G> {
        match self.light.is_empty() {
            false => self.light.take(n),
            true => self.hogs.take(1),
        }
    }

    /// Up to `n`, light ones first.
    pub(super) fn take(&mut self, n: usize) -> List<G> {
        let mut some = self.light.take(n);
        some.append(self.hogs.take(n - some.len()));
        some
    }

    /// Who has waited while others went before.
    pub(super) fn pop_patient(&mut self) -> Option<NonNull<G>> {
        self.hogs.pop_front().or_else(|| self.light.pop_front())
    }

    /// All of them, in the order they run in.
    pub(super) fn iter(&self) -> impl Iterator<Item = NonNull<G>> {
        self.light.iter().chain(self.hogs.iter())
    }

    /// The place of `g`, or if it is far behind that of the first of a list, who has waited for longer. None: it is not there any more.
    pub(super) fn near(&self, g: NonNull<G>) -> Option<usize> {
        let find = |list: &List<G>| list.iter().take(NEAR).position(|queued| queued == g);
        let (light, hogs) = (find(&self.light), find(&self.hogs));
        let far = |list: &List<G>| (list.len() > NEAR).then_some(0);
        let among_hogs = |at| self.light.len() + at;
        light
            .or_else(|| hogs.map(among_hogs))
            .or_else(|| far(&self.light))
            .or_else(|| far(&self.hogs).map(among_hogs))
    }

    /// The one at this place of [`iter`](Self::iter).
    pub(super) fn pluck(&mut self, at: usize) -> Option<NonNull<G>> {
        let (list, at) = match at.checked_sub(self.light.len()) {
            Some(at) => (&mut self.hogs, at),
            None => (&mut self.light, at),
        };
        let before = list.take(at);
        let g = list.pop_front();
        list.prepend(before);
        g
    }
}

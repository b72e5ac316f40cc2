//! A trace being written: which rings, since when, and the names of its spans.
//!
//! # Invariants
//! I1  A ring is never freed before its runtime: a P's owner may be writing to the ring of a session that has just ended. But its memory is given back
//!     ([`Parts::release`]) once what it holds was copied; only its addresses stay. One of the same size is used again by the next.
//! I2  Names are bounded: a flight recorder may run for months, and names be made of what comes from outside.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::sync::Arc;

use runnext_sys::clock;
use runnext_sys::map::Refused;

use super::event::{Event, Kind};
use super::ring::Ring;

/// Names that are told apart; those that come later are all [`OTHER`].
const NAMES: usize = 65_536;
const OTHER: &str = "(other)";

/// In place of a P: the ring of those who have none.
pub(crate) const OUTSIDE: usize = usize::MAX;

/// See the [module](self).
#[derive(Default)]
pub(crate) struct Session {
    /// Words that each ring holds; 0: no trace is written.
    capacity: usize,
    coarse: bool,
    began: u64,
    /// All rings ever made, by P and size.
    made: HashMap<(usize, usize), Arc<Ring>>,
    /// Those in use, and what they had seen when it began.
    used: Vec<(usize, u64)>,
    names: Vec<Arc<str>>,
    numbers: HashMap<Arc<str>, u64>,
}

impl Session {
    pub(crate) fn is_on(&self) -> bool {
        self.capacity != 0
    }

    pub(crate) fn is_coarse(&self) -> bool {
        self.coarse
    }

    pub(crate) fn begin(&mut self, capacity: usize, coarse: bool) {
        // Each event has its time before it; in a coarse trace few have.
        let words = if coarse { capacity } else { 2 * capacity };
        self.capacity = words.next_power_of_two();
        self.coarse = coarse;
        self.began = clock::ticks();
        self.used.clear();
        self.names.clear();
        self.numbers.clear();
    }

    /// Returns what there is to be copied, and to be released after that.
    pub(crate) fn end(&mut self) -> Parts {
        let parts = self.parts();
        self.capacity = 0;
        self.names = Vec::new();
        self.numbers = HashMap::new();
        parts
    }

    /// The ring of a P, which is in use from here on.
    pub(crate) fn ring(&mut self, p: usize) -> Result<&Ring, Refused> {
        let ring = match self.made.entry((p, self.capacity)) {
            Entry::Occupied(made) => made.into_mut(),
            Entry::Vacant(room) => room.insert(Arc::new(Ring::new(self.capacity)?)),
        };
        if !self.used.iter().any(|&(id, _)| id == p) {
            ring.prepare();
            self.used.push((p, ring.written()));
            // Nobody writes to it yet. Whatever comes first has a time so.
            ring.push(Event::value(Kind::Clock, self.began));
        }
        Ok(ring)
    }

    /// What a copy is made of, without the lock: spans wait for it.
    pub(crate) fn parts(&self) -> Parts {
        let ring = |&(p, since): &(usize, u64)| {
            let ring = self.made.get(&(p, self.capacity))?;
            Some((p, Arc::clone(ring), since))
        };
        Parts {
            rings: self.used.iter().filter_map(ring).collect(),
            began: self.began,
            coarse: self.coarse,
            names: self.names.clone(),
        }
    }

    /// The number of a name.
    pub(crate) fn name(&mut self, name: &str) -> u64 {
        if let Some(&number) = self.numbers.get(name) {
            return number;
        }
        let number = self.names.len().min(NAMES);
        if number < NAMES {
            let name: Arc<str> = name.into();
            self.names.push(Arc::clone(&name));
            self.numbers.insert(name, number as u64);
        } else if self.names.len() == NAMES {
            self.names.push(OTHER.into()); // I2
        }
        number as u64
    }
}

/// A trace up to now, as far as the session knows it.
pub(crate) struct Parts {
    /// Those in use: of which P, and from which event on.
    pub(crate) rings: Vec<(usize, Arc<Ring>, u64)>,
    pub(crate) began: u64,
    pub(crate) coarse: bool,
    pub(crate) names: Vec<Arc<str>>,
}

impl Parts {
    /// The trace has ended, and all that is wanted of it was copied. By the tracer: the next would use the same rings.
    pub(crate) fn release(&self) {
        for (_, ring, _) in &self.rings {
            ring.release();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_bounded() {
        let mut session = Session::default();
        for i in 0..NAMES + 3 {
            assert_eq!(session.name(&i.to_string()), i.min(NAMES) as u64);
        }
        assert_eq!(session.name("7"), 7, "those that are known stay");
        let names = session.parts().names;
        assert_eq!((names.len(), &*names[NAMES]), (NAMES + 1, OTHER));
    }
}

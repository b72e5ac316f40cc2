//! From events to what happened: who ran where, from when to when.
//!
//! Rings are merged by time, each in its own order. What is missing at the beginning (a goroutine that ran already, an event that
//! was overwritten) is filled in: a goroutine that leaves a P on which nobody was seen to go on ran there since the ring's
//! first event, and one that runs when the next goes on there had left by then.
//!
//! # Invariants
//! I1  On a P, a run ends before the next begins.
//! I2  A header's goroutine changes at its birth and its end only: between two of those all events are of one goroutine.

use std::collections::{HashMap, HashSet};

use crate::observe::event::{Event, Kind, Left, Parts};
use crate::observe::ring::Copied;
use crate::observe::session::OUTSIDE;

/// One event, decoded.
#[derive(Clone, Copy, Debug)]
pub(super) struct Item {
    pub(super) when: u64,
    pub(super) p: usize,
    pub(super) kind: Kind,
    pub(super) arg: u32,
    pub(super) header: u64,
    /// The number that came with it.
    pub(super) value: Option<u64>,
}

/// The headers that events are about.
pub(super) fn headers(rings: &[(usize, Copied)]) -> HashSet<u64> {
    let events = rings.iter().flat_map(|(_, copied)| &copied.events);
    events
        .filter_map(|event| match event.parts()? {
            Parts::Of { header, .. } if header != 0 => Some(header),
            _ => None,
        })
        .collect()
}

fn decode(p: usize, events: &[Event], into: &mut Vec<Item>) {
    let (mut when, mut running) = (0, 0);
    for event in events {
        let item = |kind, arg, header, value| Item {
            when,
            p,
            kind,
            arg,
            header,
            value,
        };
        match event.parts() {
            Some(Parts::Value {
                kind: Kind::Clock,
                value,
            }) => when = value.max(when),
            Some(Parts::Value {
                kind: Kind::Id | Kind::Value,
                value,
            }) => {
                // Without the event it belongs to, which was overwritten, it means nothing.
                if let Some(before) = into.last_mut().filter(|before| before.p == p) {
                    before.value = Some(value);
                }
            }
            Some(Parts::Value {
                kind: Kind::End,
                value,
            }) => {
                if running != 0 {
                    into.push(item(Kind::End, 0, running, Some(value)));
                }
                running = 0;
            }
            Some(Parts::Value { kind, value }) => into.push(item(kind, 0, value, None)),
            Some(Parts::Of { kind, arg, header }) => {
                let before = std::mem::replace(&mut running, 0);
                match kind {
                    Kind::Run => {
                        if let Some((kind, arg)) = Left::from_arg(arg).event()
                            && before != 0
                        {
                            into.push(item(kind, arg, before, None));
                        }
                        running = header;
                        into.push(item(Kind::Run, 0, header, None));
                    }
                    // Of whoever ran.
                    Kind::Yield | Kind::Park if header == 0 => {
                        if before != 0 {
                            into.push(item(kind, arg, before, None));
                        }
                    }
                    Kind::Yield | Kind::Park | Kind::Preempt => {
                        into.push(item(kind, arg, header, None));
                    }
                    _ => {
                        running = before;
                        into.push(item(kind, arg, header, None));
                    }
                }
            }
            None => {}
        }
    }
}

/// All events in order.
pub(super) fn merge(rings: &[(usize, Copied)]) -> Vec<Item> {
    let mut items = Vec::with_capacity(rings.iter().map(|(_, c)| c.events.len()).sum());
    for (p, copied) in rings {
        decode(*p, &copied.events, &mut items);
    }
    // Stable: a ring's own order stays.
    items.sort_by_key(|item| item.when);
    items
}

/// The goroutine of each event, by its place; and the numbers of the goroutines.
pub(super) struct Cast {
    pub(super) of: Vec<u32>,
    pub(super) numbers: Vec<Option<u64>>,
}

/// Finds out which goroutine each event is about (I2). `alive` has the numbers that headers have now.
pub(super) fn cast(items: &[Item], alive: &HashMap<u64, u64>) -> Cast {
    let mut now: HashMap<u64, u32> = HashMap::new();
    let mut cast = Cast {
        of: Vec::with_capacity(items.len()),
        numbers: Vec::new(),
    };
    for item in items {
        if item.kind == Kind::Born {
            now.remove(&item.header);
        }
        let numbers = &mut cast.numbers;
        let who = *now.entry(item.header).or_insert_with(|| {
            numbers.push(None);
            numbers.len() as u32 - 1
        });
        if matches!(item.kind, Kind::Born | Kind::End) && item.value.is_some() {
            cast.numbers[who as usize] = item.value;
        }
        if item.kind == Kind::End {
            now.remove(&item.header);
        }
        cast.of.push(who);
    }
    for (header, who) in now {
        let number = &mut cast.numbers[who as usize];
        *number = number.or_else(|| alive.get(&header).copied());
    }
    cast
}

/// A goroutine's stay on a P.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    pub(super) p: usize,
    pub(super) who: u32,
    pub(super) from: u64,
    pub(super) to: u64,
    /// The event that ended it: its kind and argument. None: it was not seen.
    pub(super) end: Option<(Kind, u32)>,
}

/// What is open on a P.
#[derive(Clone, Copy, Default)]
struct Track {
    first: Option<u64>,
    open: Option<(u32, u64)>,
}

/// All runs, in the order of their ends.
pub(super) fn runs(items: &[Item], cast: &Cast, ended: u64) -> Vec<Run> {
    let mut tracks: HashMap<usize, Track> = HashMap::new();
    let mut runs = Vec::new();
    for (item, &who) in items.iter().zip(&cast.of) {
        // Who robs a P has none; it is the P's run that ends.
        let p = match item.kind {
            Kind::Robbed => item.arg as usize,
            _ => item.p,
        };
        if p == OUTSIDE {
            continue;
        }
        let track = tracks.entry(p).or_default();
        let first = *track.first.get_or_insert(item.when);
        let mut close = |track: &mut Track, end| {
            if let Some((who, from)) = track.open.take() {
                runs.push(Run {
                    p,
                    who,
                    from,
                    to: item.when.max(from),
                    end,
                });
                return true;
            }
            false
        };
        match item.kind {
            Kind::Run => {
                close(track, None);
                track.open = Some((who, item.when));
            }
            Kind::Yield | Kind::Park | Kind::End | Kind::Preempt | Kind::Robbed => {
                if track.open.is_none() && item.when == first && item.kind != Kind::Robbed {
                    track.open = Some((who, first)); // it ran before anybody looked
                }
                if track.open.is_some_and(|(open, _)| open == who) {
                    close(track, Some((item.kind, item.arg)));
                }
            }
            _ => {}
        }
    }
    for (p, track) in tracks {
        if let Some((who, from)) = track.open {
            let to = ended.max(from);
            runs.push(Run {
                p,
                who,
                from,
                to,
                end: None,
            });
        }
    }
    runs
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ring(events: Vec<Event>) -> Copied {
        Copied { events, lost: 0 }
    }

    fn at(when: u64) -> Event {
        Event::value(Kind::Clock, when)
    }

    const A: usize = 0x1000;
    const B: usize = 0x2000;

    #[test]
    fn a_header_is_reused_and_told_apart() {
        let rings = [(
            0,
            ring(vec![
                at(1),
                Event::of(Kind::Run, 0, A),
                at(2),
                Event::value(Kind::End, 7),
                at(3),
                Event::of(Kind::Born, 0, A),
                Event::value(Kind::Id, 8),
                at(4),
                Event::of(Kind::Run, 0, A),
                at(5),
                Event::of(Kind::Park, 0, A),
                at(6),
                Event::of(Kind::Run, 0, B),
            ]),
        )];
        let items = merge(&rings);
        let cast = cast(&items, &HashMap::from([(B as u64, 99)]));
        let runs = runs(&items, &cast, 10);
        let seen: Vec<_> = runs
            .iter()
            .map(|r| (cast.numbers[r.who as usize], r.from, r.to))
            .collect();
        assert_eq!(seen, [(Some(7), 1, 2), (Some(8), 4, 5), (Some(99), 6, 10)]);
    }

    #[test]
    fn who_ran_before_the_beginning_and_who_was_robbed() {
        let own = vec![
            at(3),
            Event::of(Kind::Yield, 0, A),
            at(4),
            Event::of(Kind::Run, 0, B),
        ];
        let outside = vec![at(6), Event::of(Kind::Robbed, 0, B)];
        let rings = [(0, ring(own)), (OUTSIDE, ring(outside))];
        let items = merge(&rings);
        let cast = cast(&items, &HashMap::new());
        let runs = runs(&items, &cast, 10);
        assert_eq!(runs.len(), 2);
        assert_eq!((runs[0].from, runs[0].to), (3, 3));
        assert_eq!((runs[1].from, runs[1].to), (4, 6));
        assert_eq!(runs[1].end, Some((Kind::Robbed, 0)));
    }

    #[test]
    fn who_left_is_told_by_the_next() {
        let events = vec![
            at(1),
            Event::of(Kind::Run, 0, A),
            at(2),
            Event::run(Left::YIELDED, B),
            at(3),
            Event::run(Left::parked(4), A),
            at(4),
            Event::of(Kind::Yield, 0, 0),
        ];
        let items = merge(&[(0, ring(events))]);
        let cast = cast(&items, &HashMap::new());
        let ends: Vec<_> = runs(&items, &cast, 9)
            .iter()
            .map(|r| (r.from, r.to, r.end))
            .collect();
        assert_eq!(
            ends,
            [
                (1, 2, Some((Kind::Yield, 0))),
                (2, 3, Some((Kind::Park, 4))),
                (3, 4, Some((Kind::Yield, 0))),
            ]
        );
    }
}

//! The layout of slots: what a handle says of its slot, and where the tops fall.

use std::collections::HashSet;

use super::*;

/// The first stacks of a class, at a made-up chunk.
fn row(class: u8) -> impl Iterator<Item = (usize, Stack)> {
    let chunk = 7 * chunk_len(class);
    (0..per_chunk(class) as usize).map(move |slot| {
        let start = chunk + slot * slot_len(class);
        (start, Stack::new(start + slot_len(class), slot, class))
    })
}

#[test]
fn a_handle_knows_its_slot() {
    for class in 0..CLASSES as u8 {
        for (start, stack) in row(class) {
            assert_eq!(stack.class(), class);
            assert_eq!(stack.slot_start(), start);
            assert_eq!(stack.slot_end(), start + slot_len(class));
            assert_eq!(slot_of(stack.0.get()), Some((start, stack.slot_end())));
        }
    }
}

#[test]
fn slots_stay_in_their_chunk() {
    for class in 0..CLASSES as u8 {
        assert!(per_chunk(class) >= 1);
        assert!(per_chunk(class) as usize * slot_len(class) <= chunk_len(class));
    }
}

/// 128 is the number of sets of common second-level TLBs.
#[test]
fn tops_use_all_sets_of_the_tlb_evenly() {
    const SETS: usize = 128;
    let class = class_for(256 << 10).unwrap();
    let tops = row(class).map(|(_, stack)| stack.slot_end() / map::page_size() % SETS);
    assert_eq!(tops.take(SETS).collect::<HashSet<_>>().len(), SETS);
}

#[test]
fn the_top_page_is_mostly_the_goroutines() {
    for (_, stack) in row(0) {
        let base = stack.0.get() & !15;
        assert!(stack.slot_end() - base <= map::page_size() / 2);
        assert_eq!(base % 128, 0);
    }
}

#[test]
fn sizes_are_rounded_up_or_refused() {
    assert_eq!(class_size(class_for(1).unwrap()), MIN_SIZE);
    assert_eq!(class_size(class_for(MIN_SIZE + 1).unwrap()), 2 * MIN_SIZE);
    assert_eq!(class_for(MAX_SIZE).unwrap() as usize, CLASSES - 1);
    assert!(class_for(0).is_err() && class_for(MAX_SIZE + 1).is_err());
}

use super::*;
use crate::testing::{child_dies_by, child_passes, forbid};
use std::hint::black_box;

fn pages(n: usize) -> Region {
    Region::reserve(n * page_size(), page_size(), false).expect("a few pages")
}

/// # Safety
/// `offset` is inside the region.
unsafe fn poke(region: &Region, offset: usize) {
    // SAFETY: by the contract.
    unsafe { region.base().add(offset).write_volatile(7) };
}

/// # Safety
/// `offset` is inside the region.
unsafe fn peek(region: &Region, offset: usize) -> u8 {
    // SAFETY: by the contract.
    unsafe { region.base().add(offset).read_volatile() }
}

/// Whether the page at `address` is mapped.
fn is_mapped(address: *mut u8) -> bool {
    let mut resident = [0u8];
    // SAFETY: asks about one page and writes one byte.
    unsafe { libc::mincore(address.cast(), page_size(), resident.as_mut_ptr()) == 0 }
}

#[test]
fn reserves_aligned_zeroed_memory() {
    for align in [1, page_size(), 1 << 16, 1 << 21, 1 << 30] {
        let region =
            Region::reserve(3 * page_size() - 1, align, align > 1 << 20).expect("reserved");
        assert_eq!(region.base() as usize % align, 0);
        assert_eq!(region.len(), 3 * page_size());
        for offset in [0, region.len() - 1] {
            // SAFETY: inside, and not guarded.
            unsafe {
                assert_eq!(peek(&region, offset), 0);
                poke(&region, offset);
                assert_eq!(peek(&region, offset), 7);
            }
        }
    }
}

#[test]
fn reserves_much_more_than_there_is() {
    // 256 GiB: NORESERVE, so only what is touched counts.
    let region = Region::reserve(1 << 38, page_size(), false).expect("address space is plenty");
    // SAFETY: inside.
    unsafe { poke(&region, (1 << 38) - 1) };
}

#[test]
fn trims_what_alignment_cost() {
    child_passes(|| {
        let region = Region::reserve(page_size(), 1 << 21, false).expect("reserved");
        // SAFETY: only addresses are computed.
        let (below, above) = (
            region.base().wrapping_sub(page_size()),
            region.base().wrapping_add(page_size()),
        );
        assert!(!is_mapped(below) && is_mapped(region.base()) && !is_mapped(above));
    });
}

#[test]
fn bad_lengths_are_errors_with_advice() {
    for len in [0, usize::MAX, usize::MAX - page_size()] {
        let error = Region::reserve(len, page_size(), false).expect_err("no such length");
        assert_eq!(error.kind(), io::ErrorKind::InvalidInput);
    }
    let error =
        Region::reserve(1 << 60, page_size(), false).expect_err("more than an address space");
    assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
    assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    assert!(error.to_string().contains("ulimit -v"), "{error}");
}

#[test]
#[should_panic(expected = "pass a power of two")]
fn odd_alignment_is_a_mistake() {
    let _ = Region::reserve(page_size(), 3, false);
}

#[test]
#[should_panic(expected = "not whole pages")]
fn guard_outside_is_a_mistake() {
    let _ = pages(1).guard(Guard::Mprotect, 0, 2 * page_size());
}

#[test]
#[should_panic(expected = "not whole pages")]
fn discard_of_half_a_page_is_a_mistake() {
    pages(1).discard(0, page_size() / 2);
}

#[test]
fn discard_zeroes_and_keeps_the_rest() {
    let region = pages(2);
    // SAFETY: inside, and not guarded.
    unsafe {
        poke(&region, 0);
        poke(&region, page_size());
        region.discard(page_size(), page_size());
        assert_eq!(peek(&region, 0), 7);
        assert_eq!(peek(&region, page_size()), 0);
    }
}

/// Guards the middle of three pages, discards all, and touches them in this order: the last line of
/// the output before the death tells how far it came.
fn touch_guarded(kind: Guard) {
    let region = pages(3);
    region
        .guard(kind, page_size(), page_size())
        .expect("guarded");
    region.discard(0, region.len());
    // SAFETY: inside; the third access is meant to fault.
    unsafe {
        poke(&region, page_size() - 1);
        poke(&region, 2 * page_size());
        eprintln!("neighbours are fine");
        black_box(peek(&region, 2 * page_size() - 1));
        eprintln!("guard did not fault");
    }
}

fn assert_guard_faulted(errors: &str) {
    assert!(errors.contains("neighbours are fine"), "{errors}");
    assert!(!errors.contains("did not fault"), "{errors}");
}

#[test]
fn light_guard_faults_and_survives_discard() {
    if guard_support() == Guard::Install {
        assert_guard_faulted(&child_dies_by(libc::SIGSEGV, || {
            touch_guarded(Guard::Install)
        }));
    } else {
        assert!(pages(1).guard(Guard::Install, 0, page_size()).is_err());
    }
}

#[test]
fn an_older_kernel_gets_mprotect() {
    child_passes(|| {
        let advice = 2;
        forbid(
            libc::SYS_madvise,
            Some((advice, MADV_GUARD_INSTALL as u32)),
            libc::EINVAL,
        );
        assert_eq!(guard_support(), Guard::Mprotect);
        let region = pages(1);
        let error = region
            .guard(Guard::Install, 0, page_size())
            .expect_err("not there");
        assert!(error.to_string().contains("Linux 6.13"), "{error}");
        region
            .guard(guard_support(), 0, page_size())
            .expect("the other kind");
    });
}

#[test]
fn mprotect_guard_faults_and_survives_discard() {
    assert_guard_faulted(&child_dies_by(libc::SIGSEGV, || {
        touch_guarded(Guard::Mprotect)
    }));
}

#[test]
fn only_mprotect_splits_mappings() {
    child_passes(|| {
        let support = guard_support();
        let region = pages(3);
        let before = map_count();
        if support == Guard::Install {
            region
                .guard(Guard::Install, page_size(), page_size())
                .expect("guarded");
            assert_eq!(map_count(), before);
        }
        region
            .guard(Guard::Mprotect, page_size(), page_size())
            .expect("guarded");
        assert_eq!(map_count(), before + 2);
    });
}

#[test]
fn too_many_mappings_is_an_error_with_advice() {
    child_passes(|| {
        let limit = max_map_count();
        if limit > 100_000 {
            return; // Would take long, and proves the same.
        }
        let region = pages(limit + 2);
        let failed = (0..limit / 2 + 1)
            .map(|i| region.guard(Guard::Mprotect, 2 * i * page_size(), page_size()))
            .find_map(Result::err);
        let error = failed.expect("each guard splits the region");
        assert_eq!(error.kind(), io::ErrorKind::OutOfMemory);
        assert!(error.to_string().contains("vm.max_map_count"), "{error}");
    });
}

#[test]
fn drop_unmaps_and_leak_does_not() {
    child_passes(|| {
        let (dropped, leaked) = (pages(1), pages(1));
        let (at_dropped, at_leaked) = (dropped.base(), leaked.base());
        assert!(is_mapped(at_dropped) && is_mapped(at_leaked));
        drop(dropped);
        leaked.leak();
        assert!(!is_mapped(at_dropped) && is_mapped(at_leaked));
    });
}

#[test]
fn counts_are_plausible() {
    assert!(max_map_count() > 0);
    assert!((1..=max_map_count() + 1).contains(&map_count()));
    assert!(page_size() >= 4096);
}

#[test]
fn a_region_is_send_and_sync() {
    fn check<T: Send + Sync>() {}
    check::<Region>();
}

#[test]
fn growing_keeps_what_is_there() {
    let mut region = pages(1);
    // SAFETY: inside.
    unsafe { poke(&region, 5) };
    for n in [1, 2, 300] {
        region.grow(n * page_size() - 1).expect("room");
        assert_eq!(region.len(), n * page_size());
    }
    region.grow(0).expect("not an error");
    // SAFETY: inside.
    unsafe {
        assert_eq!(peek(&region, 5), 7);
        assert_eq!(peek(&region, region.len() - 1), 0);
    }
    let was = (region.base(), region.len());
    assert!(region.grow(isize::MAX as usize).is_err());
    assert_eq!((region.base(), region.len()), was);
}

/// Discards and guards every other page of more than one call takes, and touches the last guard: everything else must hold.
fn touch_the_last_of_many() {
    const N: usize = 2 * TOGETHER + 3;
    let page = page_size();
    let region = pages(2 * N);
    let at = |i: usize| region.base().wrapping_add(i * page);
    // SAFETY: parts of a region that outlives them; never dropped.
    let piece = |i: usize| ManuallyDrop::new(unsafe { Region::from_raw(at(2 * i), page) });
    // SAFETY: in the region.
    let byte = |i: usize| unsafe { at(i).read_volatile() };
    for i in 0..2 * N {
        // SAFETY: as above.
        unsafe { at(i).write_volatile(1) };
    }
    discard_all((0..N).map(piece));
    assert!((0..N).all(|i| (byte(2 * i), byte(2 * i + 1)) == (0, 1)));
    guard_all(guard_support(), (0..N).map(piece)).expect("guarded");
    assert!((0..N).all(|i| byte(2 * i + 1) == 1));
    byte(2 * (N - 1));
}

#[test]
fn many_at_once_are_as_one_by_one() {
    // A closure of this test's: its name is how the child finds it.
    child_dies_by(libc::SIGSEGV, || {
        touch_the_last_of_many();
    });
}

#[test]
fn an_older_kernel_takes_them_one_by_one() {
    child_dies_by(libc::SIGSEGV, || {
        forbid(libc::SYS_process_madvise, None, libc::EINVAL);
        touch_the_last_of_many();
    });
}

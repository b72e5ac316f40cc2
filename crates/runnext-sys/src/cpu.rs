//! How many CPUs this process may use, by affinity and by cgroup quota.
//!
//! # Why this shape
//! The affinity mask counts CPUs, a quota bounds CPU time; a container normally has the second
//! only. Go learnt in 1.25 to honour both, with at least two Ps under a quota so that one hog does
//! not stop all else. `std::thread::available_parallelism` does the two at once and rounds the
//! quota *down*; we need the quota as it is, for the groups' budgets too.
//!
//! # Context
//! Reads files and allocates, but for [`runnable`]. The values change while a process runs: ask again now and then.
//!
//! Tests: at the end of `cpu/cgroup.rs` and of this file.

mod cgroup;

use crate::{check, syscall};
use std::fs;

/// Ps under a quota, however small, if there are that many CPUs.
const LEAST_UNDER_QUOTA: usize = 2;

/// Asks for the cache line at an address that will be read soon. Nothing is accessed: any address will do.
#[inline(always)]
pub fn prefetch<T>(at: *const T) {
    crate::arch::prefetch(at.cast());
}

/// CPUs the calling thread may run on; at least 1.
///
/// ```
/// assert!(runnext_sys::cpu::available() >= 1);
/// ```
pub fn available() -> usize {
    // Room for 8,192 CPUs, the most Linux can be built for on x86-64.
    let mut mask = [0u64; 128];
    // SAFETY: the kernel writes at most as many bytes as given.
    let len = unsafe {
        syscall!(
            libc::SYS_sched_getaffinity,
            0,
            size_of_val(&mask),
            mask.as_mut_ptr()
        )
    };
    match check(len) {
        Ok(_) => mask
            .iter()
            .map(|word| word.count_ones() as usize)
            .sum::<usize>()
            .max(1),
        Err(_) => 1,
    }
}

/// How many threads of the whole machine run, or are ready to, the caller among them. `None` if the kernel does not say. Neither allocates nor keeps a
/// descriptor.
///
/// ```
/// assert!(runnext_sys::cpu::runnable().is_none_or(|n| n >= 1));
/// ```
pub fn runnable() -> Option<usize> {
    let mut text = [0u8; 64];
    // SAFETY: a path that ends with a zero; then a descriptor of our own, and a buffer of the length given.
    let n = unsafe {
        let flags = libc::O_RDONLY | libc::O_CLOEXEC;
        let path = c"/proc/loadavg".as_ptr();
        let fd = syscall!(libc::SYS_openat, libc::AT_FDCWD, path, flags);
        check(fd).ok()?;
        let n = syscall!(libc::SYS_read, fd, text.as_mut_ptr(), text.len());
        syscall!(libc::SYS_close, fd);
        n
    };
    runnable_in(text.get(..usize::try_from(n).ok()?)?)
}

/// Whether [`runnable`] counts those who compete for the caller's CPUs, and no others: it may run on all there are, and it is the kernel itself that answers. A
/// container may show another file in its place, for which some program has to be waited for.
///
/// ```
/// if runnext_sys::cpu::sees_all_runnable() {
///     assert!(runnext_sys::cpu::runnable().is_some());
/// }
/// ```
pub fn sees_all_runnable() -> bool {
    // SAFETY: integers, for which zero is valid.
    let mut stat: libc::statfs = unsafe { std::mem::zeroed() };
    // SAFETY: a path that ends with a zero, and room for the answer.
    let asked = unsafe { syscall!(libc::SYS_statfs, c"/proc/loadavg".as_ptr(), &raw mut stat) };
    // SAFETY: no memory is involved.
    let online = unsafe { libc::sysconf(libc::_SC_NPROCESSORS_ONLN) };
    check(asked).is_ok() && stat.f_type == libc::PROC_SUPER_MAGIC && online == available() as i64
}

/// Of "0.42 0.30 0.25 2/130 4711" the 2.
fn runnable_in(loadavg: &[u8]) -> Option<usize> {
    let word = loadavg.split(|&byte| byte == b' ').nth(3)?;
    let running = word.split(|&byte| byte == b'/').next()?;
    std::str::from_utf8(running).ok()?.parse().ok()
}

/// The CPU time per time that this process's cgroups allow, in cores; `None` without a limit.
///
/// Looks at cgroup v2 and v1, at the process's own group and all above it that are visible.
pub fn cgroup_quota() -> Option<f64> {
    let groups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let mounts = fs::read_to_string("/proc/self/mountinfo").ok()?;
    cgroup::quota(&groups, &mounts, |path| fs::read_to_string(path).ok())
}

/// The number of Ps to start with: what [`available`] and [`cgroup_quota`] allow, whichever is
/// less, but at least two under a quota, if there are two CPUs.
///
/// ```
/// use runnext_sys::cpu;
/// assert!((1..=cpu::available()).contains(&cpu::default_procs()));
/// ```
pub fn default_procs() -> usize {
    procs_for(available(), cgroup_quota())
}

fn procs_for(available: usize, quota: Option<f64>) -> usize {
    let limit = quota.map_or(usize::MAX, |cores| {
        (cores.ceil() as usize).max(LEAST_UNDER_QUOTA)
    });
    available.min(limit).max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_runs_is_counted() {
        assert_eq!(runnable_in(b"0.42 0.30 0.25 2/130 4711\n"), Some(2));
        assert_eq!(runnable_in(b"0.42 0.30 0.25"), None);
        assert_eq!(runnable_in(b""), None);
        assert!(runnable().unwrap() >= 1);
    }

    #[test]
    fn quota_rounds_up_and_has_a_floor_of_two() {
        assert_eq!(procs_for(8, None), 8);
        assert_eq!(procs_for(8, Some(3.0)), 3);
        assert_eq!(procs_for(8, Some(2.1)), 3);
        assert_eq!(procs_for(8, Some(0.1)), 2);
        assert_eq!(procs_for(1, Some(0.1)), 1);
        assert_eq!(procs_for(4, Some(64.0)), 4);
        assert_eq!(procs_for(4, Some(f64::INFINITY)), 4);
    }

    #[test]
    fn this_machine_has_cpus() {
        assert!(available() >= 1);
        assert!((1..=available()).contains(&default_procs()));
        assert!(cgroup_quota().is_none_or(|cores| cores > 0.0));
    }

    #[test]
    fn affinity_of_the_calling_thread_counts() {
        std::thread::spawn(|| {
            let mut mask = [0u64; 128];
            let size = size_of_val(&mask);
            // SAFETY: the kernel writes at most `size` bytes.
            unsafe { syscall!(libc::SYS_sched_getaffinity, 0, size, mask.as_mut_ptr()) };
            let word = mask.iter().position(|&w| w != 0).expect("some CPU");
            let lowest = mask[word] & mask[word].wrapping_neg();
            mask.fill(0);
            mask[word] = lowest;
            // SAFETY: reads `size` bytes; concerns this thread only.
            let set = unsafe { syscall!(libc::SYS_sched_setaffinity, 0, size, mask.as_ptr()) };
            assert_eq!(set, 0);
            assert_eq!(available(), 1);
        })
        .join()
        .expect("the thread ran");
    }
}

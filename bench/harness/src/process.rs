//! What the kernel says about this process.

use std::mem::MaybeUninit;
use std::time::Duration;

/// Resident memory plus page tables, in bytes.
pub fn memory_bytes() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("read /proc/self/status");
    let kib = |name: &str| -> u64 {
        status
            .lines()
            .find_map(|line| line.strip_prefix(name))
            .and_then(|rest| rest.split_whitespace().next())
            .and_then(|number| number.parse().ok())
            .unwrap_or(0)
    };
    (kib("VmRSS:") + kib("VmPTE:")) * 1024
}

/// CPU time and context switches of all threads up to now, ended ones included.
#[derive(Clone, Copy, Debug)]
pub struct Usage {
    /// User and system time.
    pub cpu: Duration,
    /// Voluntary and involuntary context switches.
    pub switches: u64,
}

/// Reads [`Usage`].
pub fn usage() -> Usage {
    let mut raw = MaybeUninit::<libc::rusage>::zeroed();
    // SAFETY: `raw` is a valid place for the result.
    unsafe { libc::getrusage(libc::RUSAGE_SELF, raw.as_mut_ptr()) };
    // SAFETY: all-zero bytes are a valid rusage, and the call above has filled it in.
    let raw = unsafe { raw.assume_init() };
    let time =
        |t: libc::timeval| Duration::from_micros(t.tv_sec as u64 * 1_000_000 + t.tv_usec as u64);
    Usage {
        cpu: time(raw.ru_utime) + time(raw.ru_stime),
        switches: (raw.ru_nvcsw + raw.ru_nivcsw) as u64,
    }
}

/// Pins the calling thread, and the threads it starts from now on, to CPU 0: P=1 for OS threads.
pub fn pin_to_first_cpu() {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: CPU 0 is inside the set's range.
    unsafe { libc::CPU_SET(0, &mut set) };
    // SAFETY: `set` is valid for the size given; 0 means the calling thread.
    let rc = unsafe { libc::sched_setaffinity(0, size_of::<libc::cpu_set_t>(), &set) };
    assert_eq!(
        rc,
        0,
        "cannot pin to CPU 0: {}",
        std::io::Error::last_os_error()
    );
}

/// Asks for SCHED_FIFO for the calling thread, for load generators; false when not permitted.
pub fn real_time() -> bool {
    let param = libc::sched_param { sched_priority: 1 };
    // SAFETY: `param` is valid; 0 means the calling thread.
    unsafe { libc::sched_setscheduler(0, libc::SCHED_FIFO, &param) == 0 }
}

//! The server, seen from outside: CPU time, memory, descriptors, and where it may run.

use std::fs;
use std::net::SocketAddr;
use std::os::unix::process::parent_id;

use harness::Args;

/// The process that started this one.
pub struct Server {
    pid: u32,
    pub addr: SocketAddr,
}

impl Server {
    /// With `procs=1` client and server get a core each; otherwise they share all.
    pub fn find(args: &Args) -> Server {
        let server = Server {
            pid: parent_id(),
            addr: args
                .text("addr", "")
                .parse()
                .expect("addr=ip:port of the server"),
        };
        if args.procs() == 1 && args.get("pin", 1) == 1 {
            for task in fs::read_dir(format!("/proc/{}/task", server.pid)).expect("its threads") {
                let name = task.expect("a thread").file_name();
                pin(name.to_string_lossy().parse().expect("a number"), 0);
            }
            pin(0, 1);
        }
        server
    }

    /// User and system time so far, in seconds, in ticks of 10 ms.
    pub fn cpu(&self) -> f64 {
        let stat = fs::read_to_string(format!("/proc/{}/stat", self.pid)).expect("its stat");
        let after = stat.rsplit_once(')').expect("a name in brackets").1;
        let fields: Vec<&str> = after.split_whitespace().collect();
        let ticks = |i: usize| fields[i].parse::<f64>().expect("a number");
        (ticks(11) + ticks(12)) / 100.0
    }

    /// Resident memory plus page tables, in bytes.
    pub fn memory(&self) -> u64 {
        let status = fs::read_to_string(format!("/proc/{}/status", self.pid)).expect("its status");
        let kib = |name: &str| -> u64 {
            (status.lines().find_map(|line| line.strip_prefix(name)))
                .and_then(|rest| rest.split_whitespace().next()?.parse().ok())
                .unwrap_or(0)
        };
        (kib("VmRSS:") + kib("VmPTE:")) * 1024
    }

    /// Open sockets. (Other descriptors may come with threads.)
    pub fn sockets(&self) -> usize {
        let dir = fs::read_dir(format!("/proc/{}/fd", self.pid)).expect("its descriptors");
        dir.filter(|fd| {
            let link = fd
                .as_ref()
                .ok()
                .and_then(|fd| fs::read_link(fd.path()).ok());
            link.is_some_and(|to| to.to_string_lossy().starts_with("socket:"))
        })
        .count()
    }
}

/// Pins a thread to a CPU, if there are so many.
fn pin(tid: i32, cpu: usize) {
    // SAFETY: all-zero bytes are the empty set.
    let mut set: libc::cpu_set_t = unsafe { std::mem::zeroed() };
    // SAFETY: within the set's range.
    unsafe { libc::CPU_SET(cpu, &mut set) };
    // SAFETY: `set` is valid for the size given. On a machine with one CPU it fails, and all share that one.
    unsafe { libc::sched_setaffinity(tid, size_of::<libc::cpu_set_t>(), &set) };
}

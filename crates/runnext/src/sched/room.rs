//! Which CPU an M computes on: one of its own, as long as there is an idle one.
//!
//! # Why
//! The kernel often wakes a thread on the CPU of one that computes, or leaves two threads on one CPU beside an idle one, until it balances
//! some ticks later: 12 ms and more were seen on 2 CPUs. Threads that come and go hardly notice. But an M does not sleep while there is work, and
//! all goroutines of its P then wait twice as long: with requests of 0.13 ms at a load of half, p99 was 10 ms in place of 1.
//! Rejected: binding each M to a CPU (other processes use them, too); leaving it to the kernel (above).
//!
//! # Who checks
//! | who                     | when                                    | what it knows of the other Ms         |
//! |-------------------------|-----------------------------------------|---------------------------------------|
//! | an M                    | it has slept, and got a P               | the CPU on which each woke up, or last used up a slice |
//! | the monitor             | goroutines wait, no P is idle, and some M had less than a CPU | the CPU that the kernel reports |
//!
//! Whoever finds two Ms on one CPU moves one of them to another CPU, and then lets it run on all CPUs again. An M that is locked to its
//! goroutine is not moved: the program may have chosen its CPUs. Nor is any M moved while other processes use the CPUs. With two threads on one
//! CPU, some CPU is certainly idle if the machine has no more ready threads than CPUs; that can be told only where the program may use all CPUs,
//! and is assumed elsewhere. (Beside a client that took a CPU, an echo server lost a fifth of its throughput to such moves.)
//!
//! # Known
//! A push by the monitor binds the thread to one CPU for two system calls, some microseconds, while its goroutine runs on. A process that is forked, or a thread
//! that is made, by that goroutine just then inherits the one CPU and keeps it: nobody knows of it who could lift that. The window is as short as it can be, and
//! pushes are seldom (goroutines wait, no P is idle, and two threads share a CPU while another is idle). Rejected: that the thread pushes itself at its next call,
//! inside the runtime, where nothing is forked: whom this is for computes, and makes none. Whoever cannot have that makes its threads and processes
//! in `lock_os_thread`, or sets their CPUs itself.
//!
//! Tunable: [`FEW`], a guess. The kernel's own search for an idle CPU is the better the more of them share a cache.

use std::ptr;
use std::sync::atomic::Ordering::*;

use runnext_sys::cpu;

use super::Shared;
use crate::m::M;

/// With more Ps than this it is the kernel's business: to look at one costs a cache line, or a system call.
const FEW: usize = 8;

impl Shared {
    /// Whether there may be a CPU for each P, and few enough of them to look at.
    fn has_room(&self) -> bool {
        (2..=FEW.min(self.cpus)).contains(&self.procs())
    }

    /// Two threads are on one CPU: whether another has none. `watchers`: threads that run, and need no CPU of their own.
    fn is_some_idle(&self, watchers: usize) -> bool {
        let ready = self.sees_others.then(cpu::runnable).flatten();
        ready.is_none_or(|ready| ready <= self.cpus + watchers)
    }

    /// `m`, the caller, has slept and got a P. If another one seems to compute on its CPU, it goes to one on which none does.
    pub(super) fn find_room(&self, m: &M) {
        let (here, own) = (m.cpu(), m.p());
        let taken = |cpu: usize| {
            let mut others = self.all_ps().take(self.procs());
            others.any(|p| !ptr::eq(p, own) && !p.idle.load(Relaxed) && p.cpu.load(Relaxed) == cpu)
        };
        if self.has_room() && taken(here) && self.is_some_idle(0) {
            m.push_from(here, |cpu| !taken(cpu));
            own.cpu.store(m.cpu(), Relaxed);
        }
    }

    /// Looks where the threads of all Ps are, and pushes one away that shares its CPU with another. By the monitor, within a look (`monitor`, I2).
    pub(super) fn part_crowds(&self) {
        if !self.has_room() {
            return;
        }
        let mut found: [Option<(usize, &M)>; FEW] = [None; FEW];
        for (p, place) in self.all_ps().take(self.procs()).zip(&mut found) {
            // SAFETY: I2 of the monitor.
            let m = unsafe { p.m.load(Acquire).as_ref() };
            *place = m.and_then(|m| Some((m.computes_on()?, m)));
        }
        let taken = |cpu: usize| found.iter().flatten().filter(|(at, _)| *at == cpu).count();
        let is_free = |m: &M| m.g().is_none_or(|g| g.wired_to().is_none());
        let mut crowded = found.iter().flatten().filter(|(cpu, _)| taken(*cpu) > 1);
        if let Some((cpu, m)) = crowded.find(|(_, m)| is_free(m))
            && self.is_some_idle(1)
        {
            m.push_from(*cpu, |next| taken(next) == 0);
        }
    }
}

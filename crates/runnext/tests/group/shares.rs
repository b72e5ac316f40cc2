//! Who gets how much.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::*};
use std::time::{Duration, Instant};

use runnext::sync::Barrier;
use runnext::{CpuLimit, Priority, Runtime, TaskGroup, chan};

use crate::basics::{beside_burners, compute};
use crate::common::{built, child, cpu_time, runtime, until};

/// Of what the hogs of all groups did until that took so much CPU time, the part of each. By what they did, not by what they were charged with: when the host
/// stops a virtual machine for a tenth of a second, as some do, the kernel takes that for CPU time of whoever ran.
fn share(groups: &[(TaskGroup, usize)], cpu: Duration) -> Vec<f64> {
    let end = rounds_in(cpu);
    let all = |did: &[AtomicU64]| did.iter().map(|did| did.load(Relaxed)).sum::<u64>();
    let did = compete(&runtime(2), groups, |did| {
        while all(did) < end {
            runnext::time::sleep(Duration::from_millis(20));
        }
    });
    let part = |of: &AtomicU64| of.load(Relaxed) as f64 / all(&did) as f64;
    did.iter().map(part).collect()
}

/// What each group used in a second, and how long that took until the last turn had ended: on a busy machine longer than it should.
fn used_in_a_second(rt: &Runtime, groups: &[(TaskGroup, usize)]) -> (Vec<Duration>, Duration) {
    let used = || groups.iter().map(|(group, _)| group.stats().cpu_time);
    let (before, began) = (used().collect::<Vec<_>>(), Instant::now());
    compete(rt, groups, |_| runnext::time::sleep(Duration::from_secs(1)));
    let used = used().zip(before).map(|(now, then)| now - then);
    (used.collect(), began.elapsed())
}

/// Hogs that checkpoint, in each group, from one moment on and until `wait` is over; how many rounds they did.
fn compete(
    rt: &Runtime,
    groups: &[(TaskGroup, usize)],
    wait: impl FnOnce(&[AtomicU64]) + Send,
) -> Vec<AtomicU64> {
    let did: Vec<AtomicU64> = groups.iter().map(|_| AtomicU64::new(0)).collect();
    let hogs = groups.iter().map(|(_, hogs)| hogs).sum::<usize>();
    let (start, stop) = (Barrier::new(hogs + 1), AtomicBool::new(false));
    let hog = |did: &AtomicU64| {
        start.wait();
        while !stop.load(Relaxed) {
            round(did);
            runnext::checkpoint();
        }
    };
    rt.run(|| {
        runnext::scope(|s| {
            for ((group, hogs), did) in groups.iter().zip(&did) {
                group.enter(|| (0..*hogs).for_each(|_| drop(s.go(|| hog(did)))));
            }
            start.wait();
            wait(&did);
            stop.store(true, Relaxed);
        });
    });
    did
}

fn round(rounds: &AtomicU64) {
    std::hint::black_box((0..200u64).sum::<u64>());
    rounds.fetch_add(1, Relaxed);
}

/// How many rounds take so much CPU time, at least.
fn rounds_in(d: Duration) -> u64 {
    let (rounds, used) = (AtomicU64::new(0), || {
        cpu_time(libc::CLOCK_THREAD_CPUTIME_ID)
    });
    let begin = used();
    while used() < begin + Duration::from_millis(5) {
        (0..100).for_each(|_| round(&rounds));
    }
    rounds.into_inner() * d.as_millis() as u64 / 5
}

#[test]
fn weights_share_the_processors() {
    let groups: Vec<(TaskGroup, usize)> = [(100, 20), (200, 8), (400, 4)]
        .into_iter()
        .map(|(w, n)| (TaskGroup::builder(&format!("w{w}")).weight(w).build(), n))
        .collect();
    let parts = share(&groups, Duration::from_secs(1));
    for (part, weight) in parts.iter().zip([1.0, 2.0, 4.0]) {
        let due = weight / 7.0;
        assert!((part / due - 1.0).abs() < 0.25, "{weight}: {parts:?}");
    }
}

#[test]
fn a_quota_is_kept_and_a_parents_binds() {
    const QUOTA: f64 = 0.1;
    let parent = TaskGroup::builder("parent").quota(QUOTA).build();
    let groups = [
        (TaskGroup::builder("a").parent(&parent).build(), 2),
        (TaskGroup::builder("b").parent(&parent).build(), 2),
        (TaskGroup::new("rest"), 2),
    ];
    let (used, d) = used_in_a_second(&runtime(2), &groups);
    let all = used[0] + used[1];
    assert!(
        all < d.mul_f64(QUOTA * 1.5),
        "both together: {used:?} in {d:?}"
    );
    // If the machine left us enough: a third of what there was is theirs, and more than the quota.
    if all + used[2] > d.mul_f64(QUOTA * 6.0) {
        assert!(all > d.mul_f64(QUOTA / 2.0), "and not much less: {used:?}");
        let throttled = groups.iter().map(|(g, _)| g.stats().throttled_count);
        assert!(throttled.sum::<u64>() > 0);
    }
    assert!(used[0] < 4 * used[1] && used[1] < 4 * used[0], "{used:?}");
}

/// A child was throttled for as long as its parent's old quota would have had it wait.
#[test]
fn a_parents_new_quota_is_felt_by_its_children_at_once() {
    let parent = TaskGroup::builder("parent").quota(0.01).build();
    let child = TaskGroup::builder("child").parent(&parent).build();
    let stop = AtomicBool::new(false);
    runtime(1).run(|| {
        runnext::scope(|s| {
            child.enter(|| {
                s.go(|| {
                    while !stop.load(Relaxed) {
                        runnext::checkpoint();
                    }
                })
            });
            until(|| child.stats().throttled);
            parent.set_quota(None);
            let throttled = child.stats().throttled;
            stop.store(true, Relaxed);
            assert!(!throttled);
        });
    });
}

/// Nobody touched a turn that was open when the quota came: with no one else waiting it went on for ever.
#[test]
fn a_new_quota_is_felt_by_who_runs_alone() {
    let parent = TaskGroup::new("parent");
    let child = TaskGroup::builder("child").parent(&parent).build();
    let alone = TaskGroup::new("alone");
    for (group, limited) in [(&alone, &alone), (&child, &parent)] {
        let stop = AtomicBool::new(false);
        std::thread::scope(|threads| {
            // Not a goroutine: one that is woken may end the turn by that.
            threads.spawn(|| {
                while group.stats().running == 0 {
                    std::thread::yield_now();
                }
                limited.set_quota(Some(0.1));
                while group.stats().throttled_count == 0 {
                    std::thread::sleep(Duration::from_millis(1));
                }
                stop.store(true, Relaxed);
            });
            runtime(2).run(|| {
                runnext::scope(|s| {
                    let spin = || {
                        while !stop.load(Relaxed) {
                            std::hint::spin_loop()
                        }
                    };
                    group.enter(|| drop(s.go(spin)));
                });
            });
        });
    }
}

/// A processor with nothing to do took the group that ran on the other for work to fetch, again and again, for as long as a throttled one waited there.
#[test]
fn a_processor_beside_a_throttled_group_rests() {
    child(&[], || {
        let limited = ["odd", "even"].map(|name| TaskGroup::builder(name).quota(0.01).build());
        let (busy, stop) = (TaskGroup::new("busy"), AtomicBool::new(false));
        let in_us = |clock| cpu_time(clock).as_micros() as usize;
        let computed = AtomicUsize::new(0); // on a thread of its own: it makes no call
        built(Runtime::builder().procs(2).preemption(false)).run(|| {
            runnext::scope(|s| {
                // For two seconds they wait where they are at home: one of them behind the busy one.
                let overdraw = |group: &TaskGroup| {
                    compute(Duration::from_millis(30));
                    // Whether its turn is over by now is up to the monitor, which may be late.
                    while group.stats().throttled_count == 0 {
                        runnext::yield_now();
                    }
                };
                for group in &limited {
                    group.enter(|| drop(s.go(move || overdraw(group))));
                    until(|| group.stats().throttled);
                }
                let spin = || {
                    while !stop.load(Relaxed) {
                        computed.store(in_us(libc::CLOCK_THREAD_CPUTIME_ID), Relaxed);
                    }
                };
                busy.enter(|| drop(s.go(spin)));
                until(|| computed.load(Relaxed) != 0);
                // Both clocks at once: who is stopped between the two readings reads again.
                let others = || loop {
                    let own = computed.load(Relaxed);
                    let all = in_us(libc::CLOCK_PROCESS_CPUTIME_ID);
                    if computed.load(Relaxed) - own < 1_000 {
                        break all - own;
                    }
                };
                let grew = [(); 3].map(|()| {
                    let before = others();
                    runnext::time::sleep(Duration::from_millis(300));
                    others().saturating_sub(before) // less by what the readings are apart
                });
                stop.store(true, Relaxed);
                assert!(grew.iter().any(|us| *us < 100_000), "{grew:?}");
            });
        });
    })
    .passed();
}

/// The root lane competed for ever on processors that were taken away in its turn: all groups were far ahead of it, and equally so.
#[test]
fn shares_are_right_after_processors_have_gone() {
    let heavy = TaskGroup::builder("heavy").weight(300).build();
    let groups = [(heavy, 2), (TaskGroup::new("light"), 2)];
    let rt = runtime(4);
    rt.run(|| {
        let stop = AtomicBool::new(false);
        runnext::scope(|s| {
            let spin = || {
                while !stop.load(Relaxed) {
                    runnext::yield_now();
                }
            };
            // They have turns everywhere, beside a group.
            groups[1].0.enter(|| drop(s.go(spin)));
            (0..8).for_each(|_| drop(s.go(spin)));
            until(|| groups[1].0.stats().cpu_time > Duration::from_millis(100));
            runnext::set_procs(1);
            until(|| runnext::stats::read().num_procs == 1);
            stop.store(true, Relaxed);
        });
    });
    // One sleep: with every turn of the one who waits the root lane forgets some of what it is owed.
    let (used, took) = used_in_a_second(&rt, &groups);
    // If the machine left us half of a processor: turns become longer on a busy one, and a few of them are no shares.
    if used[0] + used[1] > took / 2 {
        let part = used[1].as_secs_f64() / (used[0] + used[1]).as_secs_f64();
        assert!((0.18..0.32).contains(&part), "{used:?} in {took:?}");
    }
}

/// It was forgotten with the quota, and where there was none at first.
#[test]
fn a_burst_outlives_its_quota() {
    let made = |quota: Option<f64>| {
        let builder = TaskGroup::builder("rare").burst(Duration::from_secs(1));
        match quota {
            Some(cores) => builder.quota(cores).build(),
            None => builder.build(),
        }
    };
    for group in [made(Some(0.01)), made(None)] {
        group.set_quota(None);
        group.set_quota(Some(0.01));
        runtime(1).run(|| {
            group.enter(|| {
                while group.stats().cpu_time < Duration::from_millis(20) {
                    runnext::checkpoint();
                }
            });
        });
        assert_eq!(group.stats().throttled_count, 0);
    }
}

#[test]
fn low_gets_the_rest_and_never_nothing() {
    let low = TaskGroup::builder("low").priority(Priority::Low).build();
    let groups = [(TaskGroup::new("normal"), 4), (low, 4)];
    let parts = share(&groups, Duration::from_secs(1));
    assert!((0.02..0.45).contains(&parts[1]), "{parts:?}");
    const QUOTA: f64 = 0.05;
    groups[0].0.set_quota(Some(QUOTA));
    let (used, took) = used_in_a_second(&runtime(2), &groups);
    // If the machine left us more than twice the quota, of the time that it really took.
    if used[0] + used[1] > took.mul_f64(3.0 * QUOTA) {
        assert!(used[1] > used[0], "{used:?} in {took:?}");
    }
}

/// Goroutines without a group wait in one P's queue while `group` has the other P: of what both did, the part of the group.
fn beside_ungrouped(group: &TaskGroup, piped: bool) -> f64 {
    const CROWD: usize = 16;
    let piece = rounds_in(Duration::from_millis(1)) / 10;
    let end = rounds_in(Duration::from_secs(1));
    let (did, theirs) = (Arc::<AtomicU64>::default(), Arc::<AtomicU64>::default());
    let stop = Arc::new(AtomicBool::new(false));
    runtime(2).run(|| {
        let (theirs, stopped) = (Arc::clone(&theirs), Arc::clone(&stop));
        let hog = group.go(move || {
            while !stopped.load(Relaxed) {
                round(&theirs);
                runnext::checkpoint();
            }
        });
        until(|| group.stats().running == 1); // on the other P
        // Each does a piece, and lets others go on: by a yield, or by a value that goes round.
        let (mut to, from): (Vec<_>, Vec<_>) = (0..CROWD).map(|_| chan::bounded(1)).unzip();
        to.rotate_left(1);
        let one = |(to, from): (chan::Sender<()>, chan::Receiver<()>)| {
            let did = Arc::clone(&did);
            to.send(()).unwrap();
            runnext::go(move || {
                while did.load(Relaxed) < end {
                    (0..piece).for_each(|_| round(&did));
                    match piped {
                        true => drop((from.recv(), to.send(()))), // its neighbour may have ended
                        false => runnext::yield_now(),
                    }
                }
            })
        };
        let crowd: Vec<_> = to.into_iter().zip(from).map(one).collect();
        // Nobody sleeps: a timer would end the group's turn.
        crowd.into_iter().for_each(|one| one.join().unwrap());
        stop.store(true, Relaxed);
        hog.join().unwrap();
    });
    let (did, theirs) = (did.load(Relaxed) as f64, theirs.load(Relaxed) as f64);
    theirs / (did + theirs)
}

/// What waits without a group in another P's queue was seen by idle Ps only: a Low group kept its P from it, and got half of everything.
#[test]
fn low_leaves_its_processor_to_ungrouped_ones_that_wait_on_another() {
    // Where values go round nobody waits now and then, and what is left over is Low's until the monitor looks: late on a busy machine.
    for (piped, most) in [(false, 0.12), (true, 0.25)] {
        let low = TaskGroup::builder("low").priority(Priority::Low).build();
        let part = beside_ungrouped(&low, piped);
        assert!(part < most, "{part}, piped: {piped}");
    }
}

/// One that was alone on its P stayed alone there, while the others of its group shared one.
#[test]
fn goroutines_of_a_group_share_all_processors() {
    const HOGS: usize = 9;
    let group = TaskGroup::new("nine");
    let stop = Arc::new(AtomicBool::new(false));
    runtime(2).run(|| {
        let start = || {
            let stop = Arc::clone(&stop);
            group.go(move || {
                while !stop.load(Relaxed) {
                    std::hint::spin_loop();
                }
            })
        };
        let first = start();
        until(|| group.stats().running == 1); // on the other P
        let hogs: Vec<_> = std::iter::once(first)
            .chain((1..HOGS).map(|_| start()))
            .collect();
        let used = || hogs.iter().map(|hog| hog.goroutine().cpu_time());
        while used().sum::<Duration>() < Duration::from_secs(2) {
            runnext::time::sleep(Duration::from_millis(20));
        }
        let used: Vec<Duration> = used().collect();
        stop.store(true, Relaxed);
        for hog in hogs {
            hog.join().unwrap();
        }
        let mean = used.iter().sum::<Duration>() / HOGS as u32;
        assert!(used.iter().all(|used| *used < 3 * mean), "{used:?}");
    });
}

/// Nobody paid for what was computed in sections too short for the processor to be taken away; and a turn with many of them was made longer, as if its thread had
/// waited for a CPU.
#[test]
fn short_blocking_sections_count_against_a_share() {
    let piece = rounds_in(Duration::from_millis(1)) / 20;
    let end = rounds_in(Duration::from_secs(1));
    let (blocks, honest) = (TaskGroup::new("blocks"), TaskGroup::new("honest"));
    let did: [AtomicU64; 2] = Default::default();
    let more = || did.iter().map(|did| did.load(Relaxed)).sum::<u64>() < end;
    let work = |did| (0..piece).for_each(|_| round(did));
    runtime(1).run(|| {
        runnext::scope(|s| {
            let in_sections = || {
                while more() {
                    runnext::blocking(|| work(&did[0]));
                }
            };
            let openly = || {
                while more() {
                    work(&did[1]);
                    runnext::checkpoint();
                }
            };
            blocks.enter(|| drop(s.go(in_sections)));
            honest.enter(|| drop(s.go(openly)));
        });
    });
    let [blocked, open] = did.map(|did| did.into_inner() as f64);
    let part = open / (blocked + open);
    assert!(part > 0.45, "{part}");
}

#[test]
fn a_weight_change_is_felt() {
    let groups = [(TaskGroup::new("a"), 4), (TaskGroup::new("b"), 4)];
    let parts = share(&groups, Duration::from_millis(500));
    assert!((0.7..1.4).contains(&(parts[0] / parts[1])), "{parts:?}");
    groups[0].0.set_weight(500);
    let parts = share(&groups, Duration::from_millis(500));
    assert!((3.0..8.0).contains(&(parts[0] / parts[1])), "{parts:?}");
}

/// A turn was charged with what other processes ran before the monitor's first look at it, and after the last: up to twice what it had.
#[test]
fn shares_are_of_cpu_time_beside_other_processes_too() {
    let a = TaskGroup::builder("a").weight(300).build();
    let groups = [a, TaskGroup::new("b")];
    // In ns, by the clocks of the threads.
    let real: [Arc<AtomicU64>; 2] = Default::default();
    let stop = Arc::new(AtomicBool::new(false));
    let work = || {
        let hog = |(group, real): (&TaskGroup, &Arc<AtomicU64>)| {
            let (real, stop) = (Arc::clone(real), Arc::clone(&stop));
            group.go(move || {
                while !stop.load(Relaxed) {
                    real.fetch_add(cpu_time_of_rounds(), Relaxed);
                    runnext::checkpoint();
                }
            })
        };
        let pairs = groups.iter().zip(&real);
        let hogs: Vec<_> = pairs.cycle().take(8).map(hog).collect();
        while real.iter().map(|ns| ns.load(Relaxed)).sum::<u64>() < 500_000_000 {
            runnext::time::sleep(Duration::from_millis(5));
        }
        stop.store(true, Relaxed);
        hogs.into_iter().for_each(|hog| hog.join().unwrap());
    };
    // In a process of its own, whose CPU time is that of this runtime: what goroutines computed, and the scheduler's, which they pay for too.
    child(&[], || {
        let process = || cpu_time(libc::CLOCK_PROCESS_CPUTIME_ID).as_secs_f64();
        let before = process();
        beside_burners(|| runtime(2).run(work));
        let all = process() - before;
        let real = real.each_ref().map(|ns| ns.load(Relaxed) as f64 / 1e9);
        let charged = groups
            .each_ref()
            .map(|group| group.stats().cpu_time.as_secs_f64());
        for (real, charged) in real.iter().zip(&charged) {
            assert!(charged / real > 0.9, "{charged} for {real}");
        }
        assert!(
            charged.iter().sum::<f64>() < 1.1 * all,
            "{charged:?} of {all}"
        );
        assert!((2.0..4.5).contains(&(real[0] / real[1])), "{real:?}");
    })
    .passed();
}

/// Some work without a call of the runtime, so that it stays on its thread.
fn cpu_time_of_rounds() -> u64 {
    let used = || cpu_time(libc::CLOCK_THREAD_CPUTIME_ID);
    let (begin, rounds) = (used(), AtomicU64::new(0));
    (0..100).for_each(|_| round(&rounds));
    (used() - begin).as_nanos() as u64
}

#[test]
fn the_governor_leaves_what_it_should() {
    let rt = built(
        Runtime::builder()
            .procs(2)
            .cpu_limit(CpuLimit::Fraction(0.1)),
    );
    let governed = TaskGroup::builder("governed").governed(true).build();
    let groups = [(governed, 4), (TaskGroup::new("free"), 2)];
    let (used, took) = used_in_a_second(&rt, &groups);
    // A tenth of two cores, and what the bucket held at first.
    assert!(used[0] < took.mul_f64(0.4), "{used:?} in {took:?}");
    // If the machine left us more than three times the limit: half of that is theirs.
    if used[0] + used[1] > took.mul_f64(0.6) {
        assert!(used[0] > took.mul_f64(0.1), "{used:?} in {took:?}");
        assert!(groups[0].0.stats().throttled_count > 0);
    }
}

/// Nobody waited for the limit in its first 20 ms, and a child of a governed group never: jobs with a group each used all there was.
#[test]
fn jobs_with_a_group_each_keep_to_the_limit() {
    let limited = Runtime::builder()
        .procs(1)
        .cpu_limit(CpuLimit::Fraction(0.05));
    let rt = built(limited);
    let parent = TaskGroup::builder("parent").governed(true).build();
    let own = || TaskGroup::builder("job").governed(true).build();
    let child = || TaskGroup::builder("job").parent(&parent).build();
    let jobs: [&(dyn Fn() -> TaskGroup + Sync); 2] = [&own, &child];
    for (at, new) in jobs.into_iter().enumerate() {
        let stopped = rt.run(|| {
            // On a busy machine they may have little more than the limit.
            (0..2000).any(|_| {
                let group = new();
                let job = group.go(|| compute(Duration::from_millis(15)));
                job.join().unwrap();
                group.stats().throttled_count != 0
            })
        });
        assert!(stopped, "{at}");
    }
}

//! Select.

use harness::{Args, Report};
use runnext::chan::bounded;
use runnext::{Runtime, go, select};

use crate::chan::warm;

pub fn select2(args: &Args, rt: &Runtime) {
    let ns = rt.run(|| {
        let (_keep_x, x) = bounded::<u64>(1);
        let (_keep_y, y) = bounded::<u64>(1);
        let mut misses = 0_usize;
        warm(args.get("n", 10_000_000), |n| {
            for _ in 0..n {
                select! {
                    recv(x) -> _ => unreachable!("nothing was sent"),
                    recv(y) -> _ => unreachable!("nothing was sent"),
                    default => misses += 1,
                }
            }
            std::hint::black_box(&mut misses);
        })
    });
    Report::new("select2").put("ns_per_select", ns).print();
}

pub fn select4(args: &Args, rt: &Runtime) {
    let ns = rt.run(|| {
        let ends: [_; 4] = std::array::from_fn(|_| bounded::<usize>(0));
        let [a, b, c, d] = ends.each_ref().map(|(_, receive)| receive.clone());
        let senders = ends.map(|(send, _)| send);
        warm(args.get("n", 1_000_000), |n| {
            let senders = senders.clone();
            go(move || {
                for i in 0..n {
                    senders[i % 4].send(i).expect("the receiver lives");
                }
            });
            for _ in 0..n {
                let value = select! {
                    recv(a) -> value => value,
                    recv(b) -> value => value,
                    recv(c) -> value => value,
                    recv(d) -> value => value,
                };
                value.expect("the senders live");
            }
        })
    });
    Report::new("select4").put("ns_per_select", ns).print();
}

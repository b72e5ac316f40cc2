//! Channels against a queue with a flag: the same answers, whatever one caller does.

use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::*};

use proptest::prelude::*;
use runnext::chan::{self, Receiver, Sender, TryRecvError, TrySendError};
use runnext::select;

/// What is done to a channel.
#[derive(Clone, Debug)]
enum Step {
    TrySend,
    /// Blocking, where the model says that it does not block.
    Send,
    TryRecv,
    Recv,
    SelectSend,
    SelectRecv,
    DynamicSend,
    DynamicRecv,
    Drain,
    Close,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        4 => Just(Step::TrySend),
        4 => Just(Step::Send),
        3 => Just(Step::TryRecv),
        3 => Just(Step::Recv),
        2 => Just(Step::SelectSend),
        2 => Just(Step::SelectRecv),
        2 => Just(Step::DynamicSend),
        2 => Just(Step::DynamicRecv),
        1 => Just(Step::Drain),
        1 => Just(Step::Close),
    ];
    prop::collection::vec(step, 0..200)
}

/// A value that knows how many of its kind are alive.
struct Value(u64, Arc<AtomicUsize>);

impl Drop for Value {
    fn drop(&mut self) {
        self.1.fetch_sub(1, SeqCst);
    }
}

struct Model {
    /// None: no limit.
    cap: Option<usize>,
    values: VecDeque<u64>,
    closed: bool,
}

impl Model {
    fn full(&self) -> bool {
        self.cap.is_some_and(|cap| self.values.len() >= cap)
    }

    fn send(&mut self, value: u64) -> Result<(), TrySendError<u64>> {
        if self.closed {
            return Err(TrySendError::Disconnected(value));
        }
        if self.full() {
            return Err(TrySendError::Full(value));
        }
        self.values.push_back(value);
        Ok(())
    }

    fn recv(&mut self) -> Result<u64, TryRecvError> {
        self.values.pop_front().ok_or(match self.closed {
            true => TryRecvError::Disconnected,
            false => TryRecvError::Empty,
        })
    }
}

/// Does a step on the real channel; None if it would block.
fn send(tx: &Sender<Value>, how: &Step, value: Value) -> Result<(), TrySendError<Value>> {
    match how {
        Step::TrySend => tx.try_send(value),
        Step::Send => tx.send(value).map_err(TrySendError::from),
        Step::SelectSend => select! {
            send(tx, value) -> res => res.map_err(TrySendError::from),
        },
        _ => {
            let mut select = chan::Select::new();
            select.send(tx);
            match select.try_select() {
                Ok(op) => op.send(tx, value).map_err(TrySendError::from),
                Err(_) => Err(TrySendError::Full(value)),
            }
        }
    }
}

fn recv(rx: &Receiver<Value>, how: &Step) -> Result<Value, TryRecvError> {
    match how {
        Step::TryRecv => rx.try_recv(),
        Step::Recv => rx.recv().map_err(TryRecvError::from),
        Step::SelectRecv => select! {
            recv(rx) -> msg => msg.map_err(TryRecvError::from),
            default => Err(TryRecvError::Empty),
        },
        _ => {
            let mut select = chan::Select::new();
            select.recv(rx);
            match select.try_select() {
                Ok(op) => op.recv(rx).map_err(TryRecvError::from),
                Err(_) => Err(TryRecvError::Empty),
            }
        }
    }
}

fn check(cap: Option<usize>, steps: &[Step]) {
    let (tx, rx) = match cap {
        Some(cap) => chan::bounded(cap),
        None => chan::unbounded(),
    };
    let mut model = Model {
        cap,
        values: VecDeque::new(),
        closed: false,
    };
    let alive = Arc::new(AtomicUsize::new(0));
    for (id, step) in steps.iter().enumerate() {
        let id = id as u64;
        match step {
            Step::TrySend | Step::Send | Step::SelectSend | Step::DynamicSend => {
                let blocks = matches!(step, Step::Send | Step::SelectSend);
                if blocks && model.full() && !model.closed {
                    continue;
                }
                alive.fetch_add(1, SeqCst);
                let sent = send(&tx, step, Value(id, alive.clone()));
                let sent = sent.map_err(|error| match error {
                    TrySendError::Full(value) => TrySendError::Full(value.0),
                    TrySendError::Disconnected(value) => TrySendError::Disconnected(value.0),
                });
                assert_eq!(sent, model.send(id));
            }
            Step::TryRecv | Step::Recv | Step::SelectRecv | Step::DynamicRecv => {
                if matches!(step, Step::Recv) && model.values.is_empty() && !model.closed {
                    continue;
                }
                assert_eq!(recv(&rx, step).map(|value| value.0), model.recv());
            }
            Step::Drain => {
                let all: Vec<_> = rx.try_iter().map(|value| value.0).collect();
                assert_eq!(all, Vec::from(std::mem::take(&mut model.values)));
            }
            Step::Close => {
                assert_eq!(tx.close(), !model.closed);
                model.closed = true;
            }
        }
        assert_eq!(rx.len(), model.values.len());
        assert_eq!((rx.is_full(), tx.is_full()), (model.full(), model.full()));
        assert_eq!(rx.is_closed(), model.closed);
        assert_eq!(alive.load(SeqCst), model.values.len());
    }
    drop((tx, rx));
    assert_eq!(alive.load(SeqCst), 0);
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 120, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn on_a_plain_thread(cap in prop::option::of(0usize..6), steps in steps()) {
        check(cap, &steps);
    }
}

#[runnext::test(procs = 1)]
fn on_a_goroutine() {
    let config = ProptestConfig {
        cases: 120,
        failure_persistence: None,
        ..ProptestConfig::default()
    };
    proptest!(config, |(cap in prop::option::of(0usize..6), steps in steps())| {
        check(cap, &steps);
    });
}

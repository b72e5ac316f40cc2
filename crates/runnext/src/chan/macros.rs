//! `select!` and `select_biased!`: their syntax and their errors. What it expands to is in `arms`.
//!
//! The cases are read one by one into `{op (arguments) (pattern) (body)}`; then one expression makes the nested pair of all
//! cases and runs it, and nested matches take the result apart. Nothing is named in between but one hidden variable, so a
//! body sees its own names only, and `break`, `return` and `?` work in it. An end is bound by `match`, not by `&`: a branch or a block
//! that gives a reference would be expected to give the end itself. A value and a time-out are bodies of a `match`: what is temporary in one
//! ends with it, in each edition, while in an argument it would live until the wait is over; and the type that is expected of it gets through.
//! A result is moved out of the hidden variable by a block, so that `_` drops it, and not what is left of the variable after the body.
//!
//! Compilers allow 128 macros inside each other. A case takes two of them to be read and one to be matched, so 32 cases fit, and a bit more.

/// Waits for several channel operations and does exactly one of them: an expression, the value of its body.
///
/// - `recv(rx) -> msg => body`: `msg` is a `Result<T, RecvError>`;
/// - `send(tx, value) -> res => body`: `res` is a `Result<(), SendError<T>>`. Whether a value that is not sent was
///   evaluated is unspecified;
/// - `default => body`: taken if no operation is ready at one moment;
/// - `default(timeout) => body`: taken if none becomes ready in that time.
///
/// `rx` and `tx` are any expressions that give an end of a channel or a reference to one. If several operations are ready one of them
/// is chosen at random ([`select_biased!`](crate::select_biased): the first). A channel that is closed is ready. The same channel may occur several times; a select never receives
/// what it sends itself. Without any case it waits for ever.
///
/// A result that a case calls `_` is dropped before its body. What is temporary in a value or in a time-out is dropped before the wait:
/// `send(tx, *state.lock())` does not keep the lock.
///
/// ```
/// use runnext::{chan, select};
/// use std::time::Duration;
///
/// let (tx, rx) = chan::bounded(1);
/// let (tx2, rx2) = chan::bounded::<&str>(0);
/// let done = select! {
///     recv(rx2) -> msg => msg.is_err(),
///     send(tx, 7) -> res => {
///         res.unwrap();
///         true
///     }
///     default(Duration::from_secs(1)) => false,
/// };
/// assert!(done && rx.recv() == Ok(7));
/// # drop(tx2);
/// ```
///
/// # Coming from crossbeam
/// A value is evaluated before the wait, and all ends are borrowed during it. So two forms that crossbeam's `select!` accepts do not compile
/// here: a value that borrows mutably what an end is part of, and a value that moves a variable in a loop. Name the value first:
/// `let job = self.next_job();`, or `let job = job.clone();` in the loop. What cannot be cloned is sent by
/// [`Select`](crate::chan::Select), whose operations get their value after they were chosen.
///
/// ```
/// use runnext::{chan, select};
///
/// struct Pool {
///     jobs: chan::Sender<String>,
///     stop: chan::Receiver<()>,
///     made: usize,
/// }
///
/// impl Pool {
///     fn next_job(&mut self) -> String {
///         self.made += 1;
///         format!("job {}", self.made)
///     }
///
///     fn give_one(&mut self) -> bool {
///         let job = self.next_job(); // not `send(self.jobs, self.next_job())`
///         select! {
///             send(self.jobs, job) -> res => res.is_ok(),
///             recv(self.stop) -> _ => false,
///         }
///     }
/// }
///
/// # let (jobs, rx) = chan::bounded(1);
/// # let (stopper, stop) = chan::bounded(1);
/// # let mut pool = Pool { jobs, stop, made: 0 };
/// assert!(pool.give_one() && rx.recv().unwrap() == "job 1");
///
/// // One that is sent some time, in a loop:
/// let (tx, ticks) = (pool.jobs.clone(), chan::tick(std::time::Duration::from_millis(1)));
/// let last = "last".to_owned();
/// loop {
///     let job = last.clone(); // not `send(tx, last)`
///     select! {
///         send(tx, job) -> res => break res.unwrap(),
///         recv(ticks) -> _ => println!("still there"),
///     }
/// }
/// assert_eq!(rx.recv().unwrap(), "last");
/// # drop(stopper);
/// ```
///
/// # Blocks
/// The goroutine, until an operation is ready. With `default`, only after a sender was chosen that uses
/// [`Select`](crate::chan::Select) and has not said yet what it sends: that is waited for, also beyond a time-out, however long
/// [that sender](crate::chan::SelectedOperation) takes. On a plain thread, the thread.
#[macro_export]
macro_rules! select {
    ($($cases:tt)*) => {
        $crate::__select!(@case [Dice] [] $($cases)*)
    };
}

/// As [`select!`](crate::select), but of several operations that are ready it does the one that is written first.
///
/// So the order of the cases is one of importance. A case that is always ready keeps those behind it from ever being done: where that may be,
/// bound how often it is taken, or use [`select!`](crate::select), which is fair.
///
/// ```
/// use runnext::{chan, select_biased};
///
/// let (stop, stopped) = chan::bounded(1);
/// let (tx, jobs) = chan::unbounded();
/// (0..100).for_each(|job| tx.send(job).unwrap());
/// let mut done = 0;
/// loop {
///     select_biased! {
///         recv(stopped) -> _ => break, // before any job
///         recv(jobs) -> job => {
///             done += 1;
///             if job == Ok(9) {
///                 stop.send(()).unwrap();
///             }
///         }
///     }
/// }
/// assert_eq!((done, jobs.len()), (10, 90));
/// ```
///
/// # Blocks
/// As [`select!`](crate::select).
#[macro_export]
macro_rules! select_biased {
    ($($cases:tt)*) => {
        $crate::__select!(@case [First] [] $($cases)*)
    };
}

// Where crossbeam-channel has them, too: so its imports can be swapped for ours.
pub use {select, select_biased};

/// What is temporary in a value ends before the wait in each edition:
///
/// ```edition2021
/// let (tx, rx) = runnext::chan::bounded(0);
/// let state = runnext::sync::Mutex::new(7);
/// let timeout = runnext::sync::Mutex::new(std::time::Duration::MAX);
/// std::thread::scope(|s| {
///     s.spawn(|| {
///         let both = (state.lock(), timeout.lock());
///         assert_eq!(rx.recv(), Ok(7));
///         drop(both);
///         // The other one waits for a receiver, and has neither.
///         while state.try_lock().is_none() || timeout.try_lock().is_none() {}
///         assert_eq!(rx.recv(), Ok(7));
///     });
///     tx.send(7).unwrap();
///     runnext::select! {
///         send(tx, *state.lock()) -> res => res.unwrap(),
///         default(*timeout.lock()) => unreachable!(),
///     }
/// });
/// ```
#[doc(hidden)]
#[macro_export]
macro_rules! __select {
    // ---- one case: its head, then its body ----
    (@case [$($done:tt)*] [$($default:tt)*]) => {
        $crate::__select!(@run [$($done)*] [$($default)*])
    };
    (@case $done:tt $default:tt recv($rx:expr $(,)?) -> $result:pat => $($rest:tt)+) => {
        $crate::__select!(@body $done $default {recv ($rx) ($result)} $($rest)+)
    };
    (@case $done:tt $default:tt send($tx:expr, $value:expr $(,)?) -> $result:pat => $($rest:tt)+) => {
        $crate::__select!(@body $done $default {send ($tx, $value) ($result)} $($rest)+)
    };
    (@case $done:tt [] default $(())? => $($rest:tt)+) => {
        $crate::__select!(@body $done [] {default () ()} $($rest)+)
    };
    (@case $done:tt [] default($timeout:expr $(,)?) => $($rest:tt)+) => {
        $crate::__select!(@body $done [] {default ($timeout) ()} $($rest)+)
    };

    (@body $done:tt $default:tt {default $timeout:tt ()} $body:block, $($rest:tt)*) => {
        $crate::__select!(@case $done [{$timeout ($body)}] $($rest)*)
    };
    (@body $done:tt $default:tt {default $timeout:tt ()} $body:block $($rest:tt)*) => {
        $crate::__select!(@case $done [{$timeout ($body)}] $($rest)*)
    };
    (@body $done:tt $default:tt {default $timeout:tt ()} $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@case $done [{$timeout ($body)}] $($($rest)*)?)
    };
    (@body [$($done:tt)*] $default:tt {$($head:tt)*} $body:block, $($rest:tt)*) => {
        $crate::__select!(@case [$($done)* {$($head)* ($body)}] $default $($rest)*)
    };
    (@body [$($done:tt)*] $default:tt {$($head:tt)*} $body:block $($rest:tt)*) => {
        $crate::__select!(@case [$($done)* {$($head)* ($body)}] $default $($rest)*)
    };
    (@body [$($done:tt)*] $default:tt {$($head:tt)*} $body:expr $(, $($rest:tt)*)?) => {
        $crate::__select!(@case [$($done)* {$($head)* ($body)}] $default $($($rest)*)?)
    };
    (@body $done:tt $default:tt $head:tt $($rest:tt)*) => {
        ::core::compile_error!(
            "put a comma behind a body that is not a block: `recv(rx) -> msg => body, …`"
        )
    };

    // ---- the whole: which one if several are ready, and the cases ----
    (@run [$order:ident $($cases:tt)*] []) => {{
        let won = $crate::chan::__private::wait(
            $crate::__select!(@list [$($cases)*] End),
            [$($crate::__select!(@one $cases)),*],
            $crate::chan::__private::Order::$order,
        );
        $crate::__select!(@match won [$($cases)*] [])
    }};
    (@run [$order:ident $($cases:tt)*] [{() $body:tt}]) => {{
        let won = $crate::chan::__private::poll(
            $crate::__select!(@list [$($cases)*] Default),
            [$($crate::__select!(@one $cases)),*],
            $crate::chan::__private::Order::$order,
        );
        $crate::__select!(@match won [$($cases)*] [$body])
    }};
    (@run [$order:ident $($cases:tt)*] [{($timeout:expr) $body:tt}]) => {{
        let won = $crate::chan::__private::wait_for(
            $crate::__select!(@list [$($cases)*] Default),
            [$($crate::__select!(@one $cases)),*],
            $crate::chan::__private::Order::$order,
            match () { () => $timeout },
        );
        $crate::__select!(@match won [$($cases)*] [$body])
    }};

    (@one $case:tt) => {
        ()
    };

    (@list [] $end:ident) => {
        $crate::chan::__private::$end
    };
    (@list [{recv ($rx:expr) $result:tt $body:tt} $($rest:tt)*] $end:ident) => {
        ($crate::chan::__private::recv(match $rx { ref rx => rx }), $crate::__select!(@list [$($rest)*] $end))
    };
    (@list [{send ($tx:expr, $value:expr) $result:tt $body:tt} $($rest:tt)*] $end:ident) => {
        ($crate::chan::__private::send(match $tx { ref tx => tx }, match () { () => $value }), $crate::__select!(@list [$($rest)*] $end))
    };

    (@match $won:ident [] []) => {
        match $won {}
    };
    (@match $won:ident [] [($body:expr)]) => {{
        let () = $won;
        $body
    }};
    (@match $won:ident [{$op:ident $args:tt ($result:pat) ($body:expr)} $($rest:tt)*] $default:tt) => {
        match $won {
            $crate::chan::__private::Won::This(this) => {
                let $result = { this };
                $body
            }
            $crate::chan::__private::Won::Next(next) => {
                $crate::__select!(@match next [$($rest)*] $default)
            }
        }
    };

    // ---- what is not a case ----
    (@case $done:tt $default:tt recv($($args:tt)*) => $($rest:tt)*) => {
        ::core::compile_error!("a receive has a result: `recv(rx) -> msg => …`")
    };
    (@case $done:tt $default:tt send($($args:tt)*) => $($rest:tt)*) => {
        ::core::compile_error!("a send has a result: `send(tx, value) -> res => …`")
    };
    (@case $done:tt $default:tt recv() $($rest:tt)*) => {
        ::core::compile_error!("`recv` needs a receiver: `recv(rx) -> msg => …`")
    };
    (@case $done:tt $default:tt send($tx:expr $(,)?) $($rest:tt)*) => {
        ::core::compile_error!("`send` needs a sender and a value: `send(tx, value) -> res => …`")
    };
    (@case $done:tt $default:tt send() $($rest:tt)*) => {
        ::core::compile_error!("`send` needs a sender and a value: `send(tx, value) -> res => …`")
    };
    (@case $done:tt $default:tt default $(($($timeout:tt)*))? -> $($rest:tt)*) => {
        ::core::compile_error!("`default` has no result: `default => …` or `default(timeout) => …`")
    };
    (@case $done:tt [{$($one:tt)*}] default $($rest:tt)*) => {
        ::core::compile_error!("only one `default` can be taken")
    };
    (@case $done:tt $default:tt $op:ident($($args:tt)*) -> $result:pat =>) => {
        ::core::compile_error!("the last case has no body")
    };
    (@case $done:tt $default:tt $($rest:tt)*) => {
        ::core::compile_error!(
            "expected `recv(rx) -> msg => …`, `send(tx, value) -> res => …`, `default => …` or `default(timeout) => …`"
        )
    };
}

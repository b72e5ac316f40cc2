//! The two attributes of `runnext`: [`macro@main`] and [`macro@test`].
//!
//! Each moves the function's body into an inner function of the same name and makes the outer one start a
//! runtime that runs it as the main goroutine:
//!
//! ```text
//! #[runnext::main(procs = 2)]       fn main() -> ExitCode {
//! fn main() -> Result<(), E> {          fn main() -> Result<(), E> { body }
//!     body                      →       ::runnext::__private::run_main(
//! }                                         |builder: ::runnext::Builder| builder.procs(2),
//!                                           main,
//!                                       )
//!                                   }
//! ```
//!
//! # Why this shape
//! - *An inner function, not a closure*: every return type works as written (`impl Termination` too), the body
//!   keeps its spans, and a backtrace shows the name people know.
//! - *No `unsafe` in the expansion*: the thread-local contract is accepted inside `run_main` and `run_test`, so a
//!   crate under `#![forbid(unsafe_code)]` can use the attributes.
//! - *An `ExitCode` comes back, not the body's own value*: `Result<(), Box<dyn Error>>` is not `Send`, and the main
//!   goroutine may end on another thread than the one that waits for it. So its `Termination` is reported where
//!   it ended. A `main` that returns `()` gives one too, for a runtime that cannot start; a test stays one that returns `()`,
//!   because `#[should_panic]` insists on it.
//! - *No parser crate*: the grammar needed is a header without parameters and a list of `name = expression`, and
//!   reading it by hand spares every user the build of a full Rust parser.
//!
//! # Tests
//! `tests/expand.rs`: what is accepted, against a stand-in runtime. `tests/refuse.rs`: the text and place of every
//! error.

mod args;
mod error;
mod function;

use args::Args;
use error::Error;
use function::Function;
use proc_macro::{Delimiter, Group, Span, TokenStream, TokenTree};

/// Runs `main` as the main goroutine of a new runtime.
///
/// ```
/// #[runnext::main]
/// fn main() {
///     let (tx, rx) = runnext::chan::bounded(0);
///     runnext::go(move || tx.send("hello from a goroutine"));
///     assert_eq!(rx.recv(), Ok("hello from a goroutine"));
/// }
/// ```
///
/// As in Go, the process ends when `main` returns: goroutines still alive are not waited for. `main` may return
/// anything that implements [`Termination`](std::process::Termination), and a panic in it ends the process with
/// code 101, as it does without the attribute.
///
/// # Arguments
/// Each is a setting of `runnext::Builder`, takes any expression, and wins over the environment variable of the same
/// setting:
///
/// | argument                | meaning                                                         |
/// |-------------------------|-----------------------------------------------------------------|
/// | `procs = n`             | number of processors: how many goroutines run at the same time  |
/// | `max_threads = n`       | the most threads the runtime may have                           |
/// | `stack_size = bytes`    | address space reserved for each goroutine's stack               |
/// | `time_slice_ms = n`     | how long a goroutine runs while others wait, in milliseconds    |
/// | `preemption = bool`     | whether goroutines that compute for long are preempted          |
/// | `cpu_limit = limit`     | a `runnext::CpuLimit` for governed groups                       |
///
/// ```
/// const KIB: usize = 1024;
///
/// #[runnext::main(procs = 2, time_slice_ms = 5, stack_size = 64 * KIB)]
/// fn main() -> Result<(), Box<dyn std::error::Error>> {
///     assert_eq!(runnext::procs(), 2);
///     let port: u16 = runnext::go(|| "8080".parse()).join().unwrap()?;
///     assert_eq!(port, 8080);
///     Ok(())
/// }
/// ```
///
/// # The contract this accepts
/// Starting a runtime by hand is `unsafe` (`Builder::build`); **writing this attribute is the program's acceptance of
/// the same contract**, for all code that runs in its goroutines, dependencies included:
///
/// > A goroutine may continue on another thread after any call that can park it. So no borrow of a `thread_local!`,
/// > and no handle into one, is kept across such a call.
///
/// Calls that can park are those whose documentation has a `# Blocks` section. Among them are channel
/// operations, `select!`, locks, sleeps, joins, `scope`, sockets, files, `blocking`, `yield_now`, `checkpoint`, and dropping a
/// `MutexGuard` or an `RwLockWriteGuard`. Preemption is not among them, for it never moves a goroutine. Code that does keep
/// such a borrow (a held `rand::rng()` is one) may see another thread's value while that thread uses it, which is
/// undefined behaviour.
/// `runnext::goroutine_local!` replaces a thread-local of your own; `runnext::lock_os_thread` keeps a goroutine
/// on its thread for a library that needs one.
///
/// # Errors
/// A runtime that cannot start (no memory for stacks, no threads) is reported on standard error, and the process
/// ends with code 101, without running `main`.
#[proc_macro_attribute]
pub fn main(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Main, args, item).unwrap_or_else(|error| {
        // Without some `main` the compiler would add a complaint about its absence.
        let mut tokens = error.into_compile_error();
        tokens.extend(code("fn main() {}"));
        tokens
    })
}

/// Runs a test as the main goroutine of a fresh runtime.
///
/// ```
/// /// The sum, by two goroutines.
/// fn sum(numbers: &[u64]) -> u64 {
///     let (left, right) = numbers.split_at(numbers.len() / 2);
///     runnext::scope(|s| {
///         let left = s.go(|| left.iter().sum::<u64>());
///         right.iter().sum::<u64>() + left.join().unwrap()
///     })
/// }
///
/// // `cargo test` runs this one.
/// #[runnext::test]
/// fn both_halves_count() {
///     assert_eq!(sum(&[1, 2, 3, 4]), 10);
/// }
///
/// // With settings of its own.
/// #[runnext::test(procs = 1)]
/// fn one_processor_is_enough() {
///     assert_eq!(runnext::procs(), 1);
///     assert_eq!(sum(&[5]), 5);
/// }
///
/// // Tests are left out of the program itself.
/// #[runnext::main]
/// fn main() {
///     assert_eq!(sum(&[6, 7]), 13);
/// }
/// ```
///
/// It stands in the place of `#[test]`; the other attributes of a test, such as `#[should_panic]`, and `Result`
/// as a return type work as they do there. Each test has a runtime of its own, which ends with it: goroutines still
/// alive then are abandoned, and do not run on into the next test.
///
/// The arguments, and the thread-local contract that writing the attribute accepts, are those of [`macro@main`].
///
/// # Panics
/// The test fails if its function panics, returns an error, or if its runtime cannot start. A panic of another
/// goroutine fails it only where it is joined.
#[proc_macro_attribute]
pub fn test(args: TokenStream, item: TokenStream) -> TokenStream {
    expand(Kind::Test, args, item).unwrap_or_else(Error::into_compile_error)
}

/// Which attribute is being expanded.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Main,
    Test,
}

fn expand(kind: Kind, args: TokenStream, item: TokenStream) -> Result<TokenStream, Error> {
    let function = Function::parse(kind, item)?;
    let args = Args::parse(args)?;

    let mut arguments = args.into_closure();
    arguments.extend(code(","));
    arguments.extend([function.inner_reference()]);
    let mut call = code(match kind {
        Kind::Main => "::runnext::__private::run_main",
        Kind::Test => "::runnext::__private::run_test",
    });
    call.extend([group(Delimiter::Parenthesis, arguments)]);
    let call = at(function.output_span(), call);

    let mut body = function.inner_definition();
    if function.returns_unit(kind) {
        body.extend(code("let _: ::std::process::ExitCode ="));
        body.extend(call);
        body.extend(code(";"));
    } else {
        body.extend(call);
    }

    let mut tokens = match kind {
        Kind::Main => TokenStream::new(),
        Kind::Test => code("#[::core::prelude::v1::test]"),
    };
    tokens.extend(function.outer_header(kind));
    tokens.extend([group(Delimiter::Brace, body)]);
    Ok(tokens)
}

/// Tokens of this crate's own making, resolved where the attribute stands.
fn code(text: &str) -> TokenStream {
    text.parse().expect("the expansion's own text is Rust")
}

fn group(delimiter: Delimiter, inside: TokenStream) -> TokenTree {
    TokenTree::Group(Group::new(delimiter, inside))
}

/// The same tokens, those in groups apart, at another place. With the call at the return type, that is what the compiler
/// points at if it is no `Termination`.
fn at(place: Span, tokens: TokenStream) -> TokenStream {
    TokenStream::from_iter(tokens.into_iter().map(|mut token| {
        token.set_span(token.span().located_at(place));
        token
    }))
}

//! What the attributes accept, and what becomes of it, against a stand-in for the runtime that records its settings
//! and runs the body on the calling thread.

#![forbid(unsafe_code)]
#![deny(warnings, clippy::all)]

// The expansion names `::runnext`; here that is this file.
extern crate self as runnext;

use std::cell::RefCell;
use std::process::{ExitCode, Termination};
use std::time::Duration;

/// The stand-in's builder: a list of the calls made on it.
pub(crate) struct Builder(Vec<String>);

impl Builder {
    fn note(mut self, call: String) -> Builder {
        self.0.push(call);
        self
    }
    pub(crate) fn procs(self, n: usize) -> Builder {
        self.note(format!("procs {n}"))
    }
    pub(crate) fn max_threads(self, n: usize) -> Builder {
        self.note(format!("max_threads {n}"))
    }
    pub(crate) fn stack_size(self, bytes: usize) -> Builder {
        self.note(format!("stack_size {bytes}"))
    }
    pub(crate) fn time_slice(self, d: Duration) -> Builder {
        self.note(format!("time_slice {d:?}"))
    }
    pub(crate) fn preemption(self, on: bool) -> Builder {
        self.note(format!("preemption {on}"))
    }
    pub(crate) fn cpu_limit(self, limit: f64) -> Builder {
        self.note(format!("cpu_limit {limit}"))
    }
}

thread_local! {
    static SETTINGS: RefCell<Vec<String>> = const { RefCell::new(Vec::new()) };
}

fn settings() -> Vec<String> {
    SETTINGS.with_borrow(Clone::clone)
}

/// What the expansion calls.
pub(crate) mod __private {
    use super::*;

    pub(crate) fn run_main<C, F, T>(configure: C, f: F) -> ExitCode
    where
        C: FnOnce(Builder) -> Builder,
        F: FnOnce() -> T + Send,
        T: Termination,
    {
        SETTINGS.set(configure(Builder(Vec::new())).0);
        f().report()
    }

    pub(crate) fn run_test<C, F, T>(configure: C, f: F) -> ExitCode
    where
        C: FnOnce(Builder) -> Builder,
        F: FnOnce() -> T + Send,
        T: Termination,
    {
        run_main(configure, f)
    }
}

#[runnext_macros::test]
fn no_arguments() {
    assert_eq!(settings(), [""; 0]);
}

#[runnext_macros::test()]
fn empty_parentheses() {
    assert_eq!(settings(), [""; 0]);
}

const CPU: f64 = 0.8;

#[runnext_macros::test(
    procs = 1 + 1,
    max_threads = usize::pow(8, 2),
    stack_size = 64 << 10,
    time_slice_ms = 5,
    preemption = CPU > 1.0,
    cpu_limit = CPU,
)]
fn every_argument_takes_an_expression_and_keeps_its_place() {
    assert_eq!(
        settings(),
        [
            "procs 2",
            "max_threads 64",
            "stack_size 65536",
            "time_slice 5ms",
            "preemption false",
            "cpu_limit 0.8"
        ]
    );
}

/// A name the expansion could be tempted to bind.
#[allow(non_upper_case_globals)]
const builder: usize = 3;

#[runnext_macros::test(procs = builder)]
fn an_argument_sees_the_users_names_only() {
    assert_eq!(settings(), ["procs 3"]);
}

#[runnext_macros::test]
#[should_panic(expected = "as told")]
fn should_panic_below() {
    panic!("as told");
}

#[should_panic(expected = "as told")]
#[runnext_macros::test]
fn should_panic_above() -> () {
    panic!("as told");
}

#[runnext_macros::test]
fn result_that_cannot_cross_threads() -> Result<(), Box<dyn std::error::Error>> {
    let n: usize = "7".parse()?;
    assert_eq!(n, 7);
    Ok(())
}

#[runnext_macros::test]
fn opaque_result() -> impl Termination {
    ExitCode::SUCCESS
}

mod failing {
    //! Tests that fail, called by name instead of through the harness.

    #[runnext_macros::main]
    pub fn main() -> Result<(), String> {
        Err("as told".into())
    }
}

#[test]
fn an_error_becomes_its_exit_code() {
    assert_eq!(failing::main(), ExitCode::FAILURE);
}

mod unit {
    #[runnext_macros::main(procs = 4)]
    pub(crate) fn main() {}
}

#[test]
fn a_unit_main_gives_an_exit_code() {
    assert_eq!(unit::main(), ExitCode::SUCCESS);
    assert_eq!(settings(), ["procs 4"]);
}

mod never {
    #[runnext_macros::main]
    pub fn main() -> ! {
        panic!("as told")
    }
}

#[test]
#[should_panic(expected = "as told")]
fn a_main_may_never_return() {
    never::main();
}

/// A body may call its own name: that is the plain function, not another runtime.
#[runnext_macros::test]
fn recursion_stays_inside() {
    if settings().len() < 3 {
        SETTINGS.with_borrow_mut(|settings| settings.push("again".into()));
        recursion_stays_inside();
    }
    assert_eq!(settings(), ["again"; 3]);
}

macro_rules! fragments {
    ($(#[$attribute:meta])* $vis:vis $name:ident -> $output:ty, $procs:expr, $body:block) => {
        #[runnext_macros::test(procs = $procs)]
        $(#[$attribute])*
        $vis fn $name() -> $output $body
    };
    ($item:item) => {
        #[runnext_macros::test]
        $item
    };
}

fragments! {
    /// A test all of whose parts are fragments of a macro.
    #[allow(dead_code)]
    pub(crate) from_fragments -> Result<(), String>, 1 + 1, {
        assert_eq!(settings(), ["procs 2"]);
        Ok(())
    }
}

fragments! {
    fn from_an_item() {
        assert_eq!(settings(), [""; 0]);
    }
}

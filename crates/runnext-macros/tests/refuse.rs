//! What the attributes refuse: the text of every compile error, and the line and column it points at.
//!
//! All cases are binaries of one throw-away package, checked by a single run of Cargo. It has no dependencies but this
//! crate, so nothing is downloaded.

use std::path::Path;
use std::process::Command;
use std::{env, fs};

/// Name, source, and the error as `line:column: message`, or the beginning of it: only the code for errors whose words are
/// the compiler's.
const CASES: &[(&str, &str, &str)] = &[
    (
        "async_main",
        "#[runnext::main]\nasync fn main() {}",
        "2:1: error: no `async` needed: a goroutine that blocks does not block its thread. Remove it and call \
         blocking functions, or run a future with `runnext::block_on(async { … })`",
    ),
    (
        "async_test",
        "#[runnext::test]\npub async fn t() {}\nfn main() {}",
        "2:5: error: no `async` needed",
    ),
    (
        "unsafe_main",
        "#[runnext::main]\nunsafe fn main() {}",
        "2:1: error: a function that starts a runtime cannot be `unsafe`",
    ),
    (
        "extern_test",
        "#[runnext::test]\nextern \"C\" fn t() {}\nfn main() {}",
        "2:1: error: a function that starts a runtime cannot be `extern`",
    ),
    (
        "generic",
        "#[runnext::test]\nfn t<T>() {}\nfn main() {}",
        "2:5: error: `t` cannot be generic",
    ),
    (
        "parameters",
        "#[runnext::main]\nfn main(args: Vec<String>) {}",
        "2:8: error: `main` takes no parameters",
    ),
    (
        "not_main",
        "#[runnext::main]\nfn start() {}",
        "2:4: error: `#[runnext::main]` is for the program's `main`; elsewhere, start a runtime with \
         `runnext::Runtime::builder()`",
    ),
    (
        "not_a_function",
        "#[runnext::test]\nstruct S;\nfn main() {}",
        "2:1: error: this attribute goes on a function",
    ),
    (
        "a_macro",
        "#[runnext::test]\nmacro_rules! m { () => {} }\nfn main() {}",
        "2:1: error: this attribute goes on a function",
    ),
    (
        "test_twice",
        "#[runnext::test]\n#[test]\nfn t() {}\nfn main() {}",
        "2:2: error: this test would run twice: `#[runnext::test]` stands in the place of `#[test]`",
    ),
    (
        "unknown_argument",
        "#[runnext::main(workers = 2)]\nfn main() {}",
        "1:17: error: unknown argument `workers`; there are `procs`, `max_threads`, `stack_size`, \
         `time_slice_ms`, `preemption`, `cpu_limit`",
    ),
    (
        "argument_twice",
        "#[runnext::main(procs = 2, procs = 3)]\nfn main() {}",
        "1:28: error: `procs` is given twice",
    ),
    (
        "no_value",
        "#[runnext::main(procs)]\nfn main() {}",
        "1:17: error: `procs` needs a value: `procs = …`",
    ),
    (
        "empty_value",
        "#[runnext::main(procs = , preemption = false)]\nfn main() {}",
        "1:17: error: `procs` needs a value: `procs = …`",
    ),
    (
        "bare_value",
        "#[runnext::main(2)]\nfn main() {}",
        "1:17: error: expected `name = value`; a value with a comma of its own needs parentheses around it",
    ),
    (
        "wrong_type",
        "#[runnext::main(procs = \"two\")]\nfn main() {}",
        "1:25: error[E0308]",
    ),
    (
        "not_a_termination",
        "#[runnext::main]\nfn main() -> u32 { 7 }",
        "2:14: error[E0277]",
    ),
    (
        "mistake_in_the_body",
        "#[runnext::main]\nfn main() {\n    absent();\n}",
        "3:5: error[E0425]",
    ),
];

/// The least of the runtime that an expansion names.
const STAND_IN: &str = r#"
pub use runnext_macros::{main, test};
pub struct Builder;
impl Builder {
    pub fn procs(self, _: usize) -> Builder { self }
}
pub mod __private {
    use std::process::{ExitCode, Termination};
    pub fn run_main<T: Termination>(
        configure: impl FnOnce(crate::Builder) -> crate::Builder,
        f: impl FnOnce() -> T + Send,
    ) -> ExitCode {
        configure(crate::Builder);
        f().report()
    }
}
"#;

#[test]
fn each_mistake_gives_its_one_error() {
    let package = Path::new(env!("CARGO_TARGET_TMPDIR")).join("refuse");
    let bins = package.join("src/bin");
    // Left-overs of an earlier run may be of cases that are gone.
    let _ = fs::remove_dir_all(&bins);
    fs::create_dir_all(&bins).unwrap();
    let manifest = format!(
        "[package]\nname = \"runnext\"\nedition = \"2024\"\n\n\
         [dependencies]\nrunnext-macros = {{ path = {:?} }}\n\n[workspace]\n",
        env!("CARGO_MANIFEST_DIR")
    );
    fs::write(package.join("Cargo.toml"), manifest).unwrap();
    fs::write(package.join("src/lib.rs"), STAND_IN).unwrap();
    for (name, source, _) in CASES {
        fs::write(bins.join(name).with_extension("rs"), source).unwrap();
    }

    let output = Command::new(env!("CARGO"))
        .args([
            "check",
            "--offline",
            "--keep-going",
            "--message-format=short",
            "--color=never",
        ])
        .current_dir(&package)
        .env("CARGO_TARGET_DIR", package.join("target"))
        .output()
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();

    for (name, _, expected) in CASES {
        let place = format!("src/bin/{name}.rs:");
        let errors: Vec<&str> = said
            .lines()
            .filter_map(|line| line.strip_prefix(&place))
            .collect();
        assert!(
            matches!(errors[..], [only] if only.starts_with(expected)),
            "{name}: expected only\n  {expected}\ngot {errors:#?}\nall of it:\n{said}"
        );
    }
}

//! `prog <scenario> [key=value…]`.

use std::collections::BTreeMap;
use std::fmt::Display;
use std::str::FromStr;

/// The scenario and its parameters.
#[derive(Clone, Debug)]
pub struct Args {
    /// The name of the scenario.
    pub scenario: String,
    pairs: BTreeMap<String, String>,
}

impl Args {
    /// Reads the command line; ends the process with a message when it cannot be understood.
    pub fn from_env() -> Args {
        let mut words = std::env::args().skip(1);
        let Some(scenario) = words.next() else {
            fail("usage: prog <scenario> [key=value…]")
        };
        let mut pairs = BTreeMap::new();
        for word in words {
            match word.split_once('=') {
                Some((key, value)) => pairs.insert(key.to_owned(), value.to_owned()),
                None => fail(&format!("'{word}' is not key=value")),
            };
        }
        Args { scenario, pairs }
    }

    /// The value of `key`, or `default` when it was not given.
    pub fn get<T: FromStr + Display>(&self, key: &str, default: T) -> T {
        match self.pairs.get(key) {
            None => default,
            Some(text) => text
                .parse()
                .unwrap_or_else(|_| fail(&format!("{key}={text}: not a usable value"))),
        }
    }

    /// The text of `key`, or `default`.
    pub fn text<'a>(&'a self, key: &str, default: &'a str) -> &'a str {
        self.pairs.get(key).map_or(default, String::as_str)
    }

    /// How many workers the runtime shall have.
    pub fn procs(&self) -> usize {
        self.get("procs", 2)
    }
}

fn fail(message: &str) -> ! {
    eprintln!("{message}");
    std::process::exit(2)
}

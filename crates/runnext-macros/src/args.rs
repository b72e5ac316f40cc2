//! The arguments in the parentheses: `name = expression, …`, each a setting of the runtime's builder.

use crate::{Error, code, group};
use proc_macro::{Delimiter, Ident, Span, TokenStream, TokenTree};
use std::iter::Peekable;

/// What may be set: the argument's name, the builder's method, and the function its value passes through first.
const SETTINGS: [(&str, &str, Option<&str>); 6] = [
    ("procs", "procs", None),
    ("max_threads", "max_threads", None),
    ("stack_size", "stack_size", None),
    (
        "time_slice_ms",
        "time_slice",
        Some("::core::time::Duration::from_millis"),
    ),
    ("preemption", "preemption", None),
    ("cpu_limit", "cpu_limit", None),
];

/// The method calls the arguments ask for, in the order written.
pub(crate) struct Args {
    calls: TokenStream,
}

impl Args {
    pub(crate) fn parse(args: TokenStream) -> Result<Args, Error> {
        let mut rest = args.into_iter().peekable();
        let mut calls = TokenStream::new();
        let mut seen = Vec::new();
        while let Some(token) = rest.next() {
            let TokenTree::Ident(name) = token else {
                return Err(not_an_argument(token.span()));
            };
            let Some(&(known, method, through)) = SETTINGS
                .iter()
                .find(|(known, ..)| *known == name.to_string())
            else {
                return Err(unknown(&name));
            };
            if seen.contains(&known) {
                return Err(Error::new(name.span(), format!("`{known}` is given twice")));
            }
            seen.push(known);

            let mut value = value_of(&name, &mut rest)?;
            if let Some(through) = through {
                let inside = std::mem::replace(&mut value, code(through));
                value.extend([group(Delimiter::Parenthesis, inside)]);
            }
            calls.extend(code(&format!(".{method}")));
            calls.extend([group(Delimiter::Parenthesis, value)]);
        }
        Ok(Args { calls })
    }

    /// `|builder: ::runnext::Builder| builder.procs(2)…`, under a name no item of the user's has: a constant called
    /// `builder` would be a pattern.
    pub(crate) fn into_closure(self) -> TokenStream {
        let mut tokens = code("|__runnext_builder: ::runnext::Builder| __runnext_builder");
        tokens.extend(self.calls);
        tokens
    }
}

/// The tokens after `name =`, up to and without the next comma.
fn value_of(
    name: &Ident,
    rest: &mut Peekable<impl Iterator<Item = TokenTree>>,
) -> Result<TokenStream, Error> {
    let missing = |at| Error::new(at, format!("`{name}` needs a value: `{name} = …`"));
    if !rest.next().is_some_and(|token| is_punct(&token, '=')) {
        return Err(missing(name.span()));
    }
    let value = TokenStream::from_iter(std::iter::from_fn(|| {
        rest.next_if(|token| !is_punct(token, ','))
    }));
    rest.next();
    if value.is_empty() {
        Err(missing(name.span()))
    } else {
        Ok(value)
    }
}

fn is_punct(token: &TokenTree, c: char) -> bool {
    matches!(token, TokenTree::Punct(punct) if punct.as_char() == c)
}

fn not_an_argument(at: Span) -> Error {
    Error::new(
        at,
        "expected `name = value`; a value with a comma of its own needs parentheses around it",
    )
}

fn unknown(name: &Ident) -> Error {
    let valid: Vec<String> = SETTINGS
        .iter()
        .map(|(known, ..)| format!("`{known}`"))
        .collect();
    Error::new(
        name.span(),
        format!("unknown argument `{name}`; there are {}", valid.join(", ")),
    )
}

//! The function under the attribute, taken apart as far as needed: `[attributes] [pub] fn name() [-> type] { … }`.
//!
//! Tokens that come through a `macro_rules!` fragment (`$vis`, `$body`) arrive wrapped in groups without delimiters;
//! they are looked into where it matters, and otherwise passed on as they are.

use crate::{Error, Kind, code};
use proc_macro::{Delimiter, Group, Ident, Span, TokenStream, TokenTree};
use std::iter::Peekable;

type Tokens = Peekable<proc_macro::token_stream::IntoIter>;

/// A function without parameters.
pub(crate) struct Function {
    /// Attributes and visibility, as written.
    prefix: TokenStream,
    name: Ident,
    /// From the arrow to the body; empty if there is no arrow.
    output: Vec<TokenTree>,
    body: Group,
}

impl Function {
    pub(crate) fn parse(kind: Kind, item: TokenStream) -> Result<Function, Error> {
        let mut rest = open(item).into_iter().peekable();
        let prefix = prefix(kind, &mut rest)?;
        let name = name(kind, &mut rest)?;
        no_parameters(&name, &mut rest)?;
        let mut output: Vec<TokenTree> = rest.collect();
        let body = output
            .pop()
            .and_then(into_body)
            .ok_or_else(|| Error::new(name.span(), format!("`{name}` has no body")))?;
        Ok(Function {
            prefix,
            name,
            output,
            body,
        })
    }

    /// Whether the outer function returns `()`: a test without a return type, or with `-> ()`.
    pub(crate) fn returns_unit(&self, kind: Kind) -> bool {
        kind == Kind::Test
            && match self.output.as_slice() {
                [] => true,
                [_minus, _greater, TokenTree::Group(unit)] => {
                    unit.delimiter() == Delimiter::Parenthesis && unit.stream().is_empty()
                }
                _ => false,
            }
    }

    /// The outer function up to its body.
    pub(crate) fn outer_header(&self, kind: Kind) -> TokenStream {
        let mut tokens = self.prefix.clone();
        tokens.extend(code("fn"));
        tokens.extend([TokenTree::Ident(self.name.clone())]);
        tokens.extend(code(if self.returns_unit(kind) {
            "()"
        } else {
            "() -> ::std::process::ExitCode"
        }));
        tokens
    }

    /// The inner function: the user's signature and body.
    pub(crate) fn inner_definition(&self) -> TokenStream {
        let mut tokens = code("fn");
        tokens.extend([TokenTree::Ident(self.name.clone())]);
        tokens.extend(code("()"));
        tokens.extend(self.output.iter().cloned());
        tokens.extend([TokenTree::Group(self.body.clone())]);
        tokens
    }

    /// The inner function's name, to be passed on.
    pub(crate) fn inner_reference(&self) -> TokenTree {
        TokenTree::Ident(self.name.clone())
    }

    /// Where the return type stands, if there is one.
    pub(crate) fn output_span(&self) -> Span {
        self.output
            .last()
            .map_or_else(Span::call_site, TokenTree::span)
    }
}

/// The stream inside, if all of it came as one macro fragment.
fn open(stream: TokenStream) -> TokenStream {
    let mut tokens = stream.clone().into_iter();
    match (tokens.next(), tokens.next()) {
        (Some(TokenTree::Group(group)), None) if group.delimiter() == Delimiter::None => {
            open(group.stream())
        }
        _ => stream,
    }
}

/// Attributes and visibility: everything before `fn`, which is left in place.
fn prefix(kind: Kind, rest: &mut Tokens) -> Result<TokenStream, Error> {
    let mut prefix = TokenStream::new();
    while let Some(token) = rest.next_if(|token| !is_ident(token, "fn")) {
        match &token {
            TokenTree::Punct(hash) if hash.as_char() == '#' => {
                if let Some(attribute) = rest.peek()
                    && kind == Kind::Test
                    && is_test_attribute(attribute)
                {
                    return Err(Error::new(
                        attribute.span(),
                        "this test would run twice: `#[runnext::test]` stands in the place of `#[test]`",
                    ));
                }
            }
            TokenTree::Ident(word) if word.to_string() != "pub" => {
                return Err(qualifier(word));
            }
            _ => {}
        }
        prefix.extend([token]);
    }
    if rest.next().is_none() {
        return Err(Error::new(
            Span::call_site(),
            "this attribute goes on a function",
        ));
    }
    Ok(prefix)
}

/// The error for a word that may not stand before `fn` here.
fn qualifier(word: &Ident) -> Error {
    let message = match word.to_string().as_str() {
        "async" => {
            "no `async` needed: a goroutine that blocks does not block its thread. Remove it and call blocking \
             functions, or run a future with `runnext::block_on(async { … })`"
                .into()
        }
        word @ ("const" | "unsafe" | "safe" | "extern") => {
            format!("a function that starts a runtime cannot be `{word}`")
        }
        _ => "this attribute goes on a function".into(),
    };
    Error::new(word.span(), message)
}

fn name(kind: Kind, rest: &mut Tokens) -> Result<Ident, Error> {
    match rest.next() {
        Some(TokenTree::Ident(name)) if kind == Kind::Main && name.to_string() != "main" => {
            Err(Error::new(
                name.span(),
                "`#[runnext::main]` is for the program's `main`; elsewhere, start a runtime with \
                 `runnext::Runtime::builder()`",
            ))
        }
        Some(TokenTree::Ident(name)) => Ok(name),
        other => Err(Error::new(
            other.map_or_else(Span::call_site, |token| token.span()),
            "expected the function's name",
        )),
    }
}

fn no_parameters(name: &Ident, rest: &mut Tokens) -> Result<(), Error> {
    match rest.next() {
        Some(TokenTree::Group(parameters)) if parameters.delimiter() == Delimiter::Parenthesis => {
            if parameters.stream().is_empty() {
                Ok(())
            } else {
                Err(Error::new(
                    parameters.span(),
                    format!("`{name}` takes no parameters"),
                ))
            }
        }
        other => Err(Error::new(
            other.map_or_else(|| name.span(), |token| token.span()),
            format!("`{name}` cannot be generic"),
        )),
    }
}

fn into_body(token: TokenTree) -> Option<Group> {
    match token {
        TokenTree::Group(group) => match group.delimiter() {
            Delimiter::Brace => Some(group),
            Delimiter::None => open(group.stream()).into_iter().next().and_then(into_body),
            _ => None,
        },
        _ => None,
    }
}

fn is_ident(token: &TokenTree, name: &str) -> bool {
    matches!(token, TokenTree::Ident(ident) if ident.to_string() == name)
}

/// Whether what follows a `#` is `[test]`.
fn is_test_attribute(attribute: &TokenTree) -> bool {
    let TokenTree::Group(group) = attribute else {
        return false;
    };
    let mut inside = group.stream().into_iter();
    inside.next().is_some_and(|token| is_ident(&token, "test")) && inside.next().is_none()
}

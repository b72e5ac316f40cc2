//! What is wrong with an attribute, and where: one message that becomes one compile error.

use proc_macro::{Delimiter, Group, Ident, Literal, Punct, Spacing, Span, TokenStream, TokenTree};

/// A mistake in the user's source.
pub(crate) struct Error {
    at: Span,
    message: String,
}

impl Error {
    pub(crate) fn new(at: Span, message: impl Into<String>) -> Error {
        Error {
            at,
            message: message.into(),
        }
    }

    /// `::core::compile_error!("message");`, every token of it at the mistake, which is what the compiler underlines.
    pub(crate) fn into_compile_error(self) -> TokenStream {
        let mut message = Literal::string(&self.message);
        message.set_span(self.at);
        let mut inside = Group::new(Delimiter::Parenthesis, TokenTree::Literal(message).into());
        inside.set_span(self.at);
        let punct = |c, spacing| {
            let mut punct = Punct::new(c, spacing);
            punct.set_span(self.at);
            TokenTree::Punct(punct)
        };
        let ident = |name| TokenTree::Ident(Ident::new(name, self.at));
        TokenStream::from_iter([
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            ident("core"),
            punct(':', Spacing::Joint),
            punct(':', Spacing::Alone),
            ident("compile_error"),
            punct('!', Spacing::Alone),
            TokenTree::Group(inside),
            punct(';', Spacing::Alone),
        ])
    }
}

//! Rust text into tokens and comments.
//!
//! Not a parser: it knows what is code, what is a comment and what is a literal, which is all a rule needs to not take
//! one for another. Punctuation is one token for each character.

/// A word, a number, a literal or one character of punctuation.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Token {
    /// As written. A string begins with its quote or prefix, so it is never equal to a word.
    pub text: String,
    /// The line it begins on, from 1.
    pub line: usize,
}

/// What a comment says on one line; one that goes over several lines is several of these.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comment {
    /// As written, with its slashes.
    pub text: String,
    /// The line, from 1.
    pub line: usize,
}

/// The tokens and the comments of a file.
pub fn lex(text: &str) -> (Vec<Token>, Vec<Comment>) {
    let (mut tokens, mut comments) = (Vec::new(), Vec::new());
    let (mut rest, mut line) = (text, 1);
    while let Some(first) = rest.chars().next() {
        let is_comment = rest.starts_with("//") || rest.starts_with("/*");
        let length = if is_comment {
            comment(rest)
        } else {
            token(rest, first)
        };
        let (piece, after) = rest.split_at(length);
        if is_comment {
            comments.extend(piece.lines().zip(line..).map(|(text, line)| Comment {
                text: text.into(),
                line,
            }));
        } else if !first.is_whitespace() {
            tokens.push(Token {
                text: piece.into(),
                line,
            });
        }
        line += piece.matches('\n').count();
        rest = after;
    }
    (tokens, comments)
}

/// The length of the comment at the beginning.
fn comment(rest: &str) -> usize {
    if rest.starts_with("//") {
        return rest.find('\n').unwrap_or(rest.len());
    }
    let (mut depth, mut at) = (0, 0);
    while at < rest.len() {
        let here = &rest.as_bytes()[at..];
        if here.starts_with(b"/*") {
            depth += 1;
            at += 2;
        } else if here.starts_with(b"*/") {
            depth -= 1;
            at += 2;
            if depth == 0 {
                return at;
            }
        } else {
            at += 1;
        }
    }
    rest.len()
}

/// The length of the token, or of the white space, at the beginning.
fn token(rest: &str, first: char) -> usize {
    let run = |of: fn(char) -> bool| rest.find(|c| !of(c)).unwrap_or(rest.len());
    if first.is_whitespace() {
        run(char::is_whitespace)
    } else if let Some(length) = string(rest) {
        length
    } else if first == '\'' {
        quote(rest)
    } else if is_word(first) {
        run(is_word)
    } else {
        first.len_utf8()
    }
}

fn is_word(c: char) -> bool {
    c.is_alphanumeric() || c == '_'
}

/// The length of the string at the beginning, whatever its prefix, if there is one.
fn string(rest: &str) -> Option<usize> {
    let body = rest.trim_start_matches(['b', 'c']);
    let (raw, body) = body
        .strip_prefix('r')
        .map_or((false, body), |body| (true, body));
    let hashes = if raw {
        body.len() - body.trim_start_matches('#').len()
    } else {
        0
    };
    let body = body[hashes..].strip_prefix('"')?;
    let begin = rest.len() - body.len();
    if begin > hashes + 3 {
        return None; // a word that ends in these letters cannot stand before a quote
    }
    if raw {
        let end = format!("\"{}", "#".repeat(hashes));
        return Some(
            body.find(&end)
                .map_or(rest.len(), |at| begin + at + end.len()),
        );
    }
    Some(begin + unescaped(body, '"'))
}

/// The length of the character literal or lifetime at the beginning.
fn quote(rest: &str) -> usize {
    let mut after = rest[1..].chars();
    match (after.next(), after.next()) {
        (Some('\\'), _) => 1 + unescaped(&rest[1..], '\''),
        (Some(c), Some('\'')) => 2 + c.len_utf8(),
        _ => 1 + rest[1..].find(|c| !is_word(c)).unwrap_or(rest.len() - 1),
    }
}

/// The length up to and with the first `end` that has no backslash before it.
fn unescaped(text: &str, end: char) -> usize {
    let mut escaped = false;
    for (at, c) in text.char_indices() {
        if c == end && !escaped {
            return at + c.len_utf8();
        }
        escaped = c == '\\' && !escaped;
    }
    text.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(text: &str) -> Vec<String> {
        lex(text).0.into_iter().map(|token| token.text).collect()
    }

    #[test]
    fn comments_are_apart_from_code_and_nest() {
        let (tokens, comments) = lex("a /* b /* c */\n d */ e // f\n//! g");
        assert_eq!(
            tokens
                .iter()
                .map(|t| (t.text.as_str(), t.line))
                .collect::<Vec<_>>(),
            [("a", 1), ("e", 2)]
        );
        let comments: Vec<_> = comments.iter().map(|c| (c.text.as_str(), c.line)).collect();
        assert_eq!(
            comments,
            [("/* b /* c */", 1), (" d */", 2), ("// f", 2), ("//! g", 3)]
        );
    }

    #[test]
    fn strings_are_one_token_each() {
        let strings = [
            r#""a // \" b""#,
            r###"r##"x "# y"##"###,
            r#"b"z""#,
            r##"br#"w"#"##,
            r#"c"v""#,
            "\"é\n\"",
        ];
        for string in strings {
            assert_eq!(words(&format!("f({string})")), ["f", "(", string, ")"]);
        }
    }

    #[test]
    fn a_quote_is_a_character_or_a_lifetime() {
        assert_eq!(
            words(r"'a' '\'' '{' '\u{7d}' 'é' b'\\' &'a T"),
            [
                "'a'",
                r"'\''",
                "'{'",
                r"'\u{7d}'",
                "'é'",
                "b",
                r"'\\'",
                "&",
                "'a",
                "T"
            ]
        );
    }

    #[test]
    fn raw_names_are_no_strings() {
        assert_eq!(words("r#type barc"), ["r", "#", "type", "barc"]);
    }
}

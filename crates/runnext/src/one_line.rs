//! Names that users choose, in reports that are read line by line.
//!
//! A name may hold anything, perhaps what came from outside: a newline in it would begin an entry that is none, an escape
//! sequence talk to the reader's terminal. Names are kept as they are, and escaped where they are printed.

use std::fmt;

/// Text as it is but for what could end its line or control a terminal. Does not allocate: a signal handler prints it too.
#[derive(Clone, Copy)]
pub(crate) struct OneLine<'a>(pub(crate) &'a str);

impl fmt::Display for OneLine<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut rest = self.0;
        while let Some(at) = rest.find(breaks) {
            let (plain, from) = rest.split_at(at);
            f.write_str(plain)?;
            let mut chars = from.chars();
            chars
                .next()
                .map_or(Ok(()), |c| write!(f, "{}", c.escape_debug()))?;
            rest = chars.as_str();
        }
        f.write_str(rest)
    }
}

fn breaks(c: char) -> bool {
    c.is_control() || matches!(c, '\u{2028}' | '\u{2029}') // Unicode's own ends of lines and paragraphs
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_breaks_lines_is_escaped() {
        for (name, shown) in [
            ("", ""),
            ("worker 7", "worker 7"),
            (r"it's C:\new, 'quoted'", r"it's C:\new, 'quoted'"),
            ("Zoë e\u{301} 走", "Zoë e\u{301} 走"),
            ("a\nb", r"a\nb"),
            ("\r\n\t", r"\r\n\t"),
            ("\u{1b}[31mred", r"\u{1b}[31mred"),
            (
                "\0\u{7f}\u{85}\u{2028}\u{2029}!",
                r"\0\u{7f}\u{85}\u{2028}\u{2029}!",
            ),
        ] {
            assert_eq!(OneLine(name).to_string(), shown);
        }
    }
}

//! A small reader of JSON, strict enough to find out whether what we write is any.
#![allow(dead_code)] // each test binary uses a part of it

use std::collections::BTreeMap;

#[derive(Clone, Debug, PartialEq)]
pub enum Json {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Json>),
    Object(BTreeMap<String, Json>),
}

impl Json {
    #[track_caller]
    pub fn parse(text: &str) -> Json {
        let mut reader = Reader {
            bytes: text.as_bytes(),
            at: 0,
        };
        let value = reader.value();
        reader.space();
        assert_eq!(reader.at, text.len(), "something follows the value");
        value
    }

    pub fn get(&self, key: &str) -> Option<&Json> {
        match self {
            Json::Object(map) => map.get(key),
            _ => None,
        }
    }

    pub fn text(&self, key: &str) -> Option<&str> {
        match self.get(key)? {
            Json::Text(text) => Some(text),
            _ => None,
        }
    }

    pub fn number(&self, key: &str) -> Option<f64> {
        match self.get(key)? {
            Json::Number(n) => Some(*n),
            _ => None,
        }
    }

    #[track_caller]
    pub fn list(&self, key: &str) -> &[Json] {
        match self.get(key) {
            Some(Json::List(list)) => list,
            other => panic!("{key} is no list: {other:?}"),
        }
    }
}

struct Reader<'a> {
    bytes: &'a [u8],
    at: usize,
}

impl Reader<'_> {
    fn space(&mut self) {
        while self.bytes.get(self.at).is_some_and(u8::is_ascii_whitespace) {
            self.at += 1;
        }
    }

    #[track_caller]
    fn expect(&mut self, what: &str) {
        let here = &self.bytes[self.at..];
        assert!(
            here.starts_with(what.as_bytes()),
            "{what:?} expected at {}: {}",
            self.at,
            String::from_utf8_lossy(&here[..here.len().min(40)])
        );
        self.at += what.len();
    }

    fn value(&mut self) -> Json {
        self.space();
        match self.bytes[self.at] {
            b'{' => self.object(),
            b'[' => self.array(),
            b'"' => Json::Text(self.string()),
            b't' => {
                self.expect("true");
                Json::Bool(true)
            }
            b'f' => {
                self.expect("false");
                Json::Bool(false)
            }
            b'n' => {
                self.expect("null");
                Json::Null
            }
            _ => self.figure(),
        }
    }

    fn object(&mut self) -> Json {
        let mut map = BTreeMap::new();
        self.expect("{");
        self.space();
        while self.bytes[self.at] != b'}' {
            self.space();
            let key = self.string();
            self.space();
            self.expect(":");
            let value = self.value();
            assert!(map.insert(key.clone(), value).is_none(), "{key} twice");
            self.space();
            if self.bytes[self.at] != b'}' {
                self.expect(",");
            }
        }
        self.at += 1;
        Json::Object(map)
    }

    fn array(&mut self) -> Json {
        let mut list = Vec::new();
        self.expect("[");
        self.space();
        while self.bytes[self.at] != b']' {
            list.push(self.value());
            self.space();
            if self.bytes[self.at] != b']' {
                self.expect(",");
            }
        }
        self.at += 1;
        Json::List(list)
    }

    fn string(&mut self) -> String {
        self.expect("\"");
        let mut text = Vec::new();
        loop {
            match self.bytes[self.at] {
                b'"' => break,
                b'\\' => {
                    self.at += 1;
                    match self.bytes[self.at] {
                        b'n' => text.push(b'\n'),
                        b't' => text.push(b'\t'),
                        b'r' => text.push(b'\r'),
                        b'u' => {
                            let hex = std::str::from_utf8(&self.bytes[self.at + 1..self.at + 5]);
                            let code = u32::from_str_radix(hex.unwrap(), 16).unwrap();
                            let c = char::from_u32(code).unwrap_or('\u{fffd}');
                            text.extend(c.to_string().bytes());
                            self.at += 4;
                        }
                        c @ (b'"' | b'\\' | b'/') => text.push(c),
                        c => panic!("escape {c}"),
                    }
                }
                c => {
                    assert!(c >= b' ', "a control character in a string");
                    text.push(c);
                }
            }
            self.at += 1;
        }
        self.at += 1;
        String::from_utf8(text).unwrap()
    }

    fn figure(&mut self) -> Json {
        let start = self.at;
        while matches!(
            self.bytes.get(self.at),
            Some(b'0'..=b'9' | b'-' | b'+' | b'.' | b'e' | b'E')
        ) {
            self.at += 1;
        }
        let text = std::str::from_utf8(&self.bytes[start..self.at]).unwrap();
        Json::Number(
            text.parse()
                .unwrap_or_else(|_| panic!("no number: {text:?} at {start}")),
        )
    }
}

//! Reading the JSON that Java's fastjson writes and accepts: turned into standard JSON text first.
//!
//! Taken beyond standard JSON: keys without quotes (`{0:"a"}`), objects as keys
//! (`{{"queueId":1}:5}`, which become a quoted JSON text), single quotes, superfluous commas, raw control
//! characters, Java's escapes and number suffixes, `NaN` and `undefined` as null.
//!
//! Always holds: depth is bounded, an object key holds no object key, so the output is at most a small
//! multiple of the input; what comes out is JSON or the input is refused; nothing panics.

/// Deepest nesting of objects and lists.
pub const MAX_DEPTH: usize = 64;

/// Why a text was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum LenientError {
    /// Not JSON, not even in the lenient sense.
    #[error("byte {at}: {expected} expected")]
    Syntax {
        /// Place in the input.
        at: usize,
        /// What should have stood there.
        expected: &'static str,
    },
    /// Nested deeper than [`MAX_DEPTH`].
    #[error("nested deeper than {MAX_DEPTH}")]
    TooDeep,
}

/// The standard JSON text of a lenient one.
///
/// # Errors
/// When the text can't be read even leniently.
pub fn to_standard(input: &[u8]) -> Result<String, LenientError> {
    let input = String::from_utf8_lossy(input);
    let mut reader = Reader {
        text: &input,
        at: 0,
        out: String::with_capacity(input.len() + input.len() / 8),
        depth: 0,
        in_key: false,
    };
    reader.value()?;
    reader.skip_space();
    if reader.at < input.len() {
        return Err(reader.expected("the end"));
    }
    Ok(reader.out)
}

struct Reader<'a> {
    text: &'a str,
    at: usize,
    out: String,
    depth: usize,
    in_key: bool,
}

impl Reader<'_> {
    fn expected(&self, expected: &'static str) -> LenientError {
        LenientError::Syntax { at: self.at, expected }
    }

    fn rest(&self) -> &str {
        self.text.get(self.at..).unwrap_or_default()
    }

    fn byte(&self) -> Option<u8> {
        self.text.as_bytes().get(self.at).copied()
    }

    fn skip_space(&mut self) {
        while self.byte().is_some_and(|byte| byte.is_ascii_whitespace()) {
            self.at += 1;
        }
    }

    fn peek(&mut self) -> Option<u8> {
        self.skip_space();
        self.byte()
    }

    fn value(&mut self) -> Result<(), LenientError> {
        match self.peek() {
            Some(b'{') => self.nested(Self::object),
            Some(b'[') => self.nested(Self::list),
            Some(quote @ (b'"' | b'\'')) => self.string(quote),
            Some(b'-' | b'+' | b'.' | b'0'..=b'9') => self.number(),
            Some(byte) if byte.is_ascii_alphabetic() => self.word(),
            _ => Err(self.expected("a value")),
        }
    }

    fn nested(
        &mut self,
        inner: fn(&mut Self) -> Result<(), LenientError>,
    ) -> Result<(), LenientError> {
        if self.depth >= MAX_DEPTH {
            return Err(LenientError::TooDeep);
        }
        self.depth += 1;
        self.at += 1;
        inner(self)?;
        self.depth -= 1;
        Ok(())
    }

    /// Commas between, before and after items; true at `end`.
    fn at_end(&mut self, end: u8) -> Result<bool, LenientError> {
        while self.peek() == Some(b',') {
            self.at += 1;
        }
        match self.byte() {
            None => Err(self.expected("a closing bracket")),
            Some(byte) if byte == end => {
                self.at += 1;
                Ok(true)
            }
            Some(_) => Ok(false),
        }
    }

    /// After an item there is a comma or the end.
    fn separator(&mut self, end: u8) -> Result<(), LenientError> {
        match self.peek() {
            Some(b',') => Ok(()),
            Some(byte) if byte == end => Ok(()),
            _ => Err(self.expected("a comma or a closing bracket")),
        }
    }

    fn object(&mut self) -> Result<(), LenientError> {
        self.out.push('{');
        let mut first = true;
        while !self.at_end(b'}')? {
            if !std::mem::take(&mut first) {
                self.out.push(',');
            }
            self.key()?;
            if self.peek() != Some(b':') {
                return Err(self.expected("a colon"));
            }
            self.at += 1;
            self.out.push(':');
            self.value()?;
            self.separator(b'}')?;
        }
        self.out.push('}');
        Ok(())
    }

    fn list(&mut self) -> Result<(), LenientError> {
        self.out.push('[');
        let mut first = true;
        while !self.at_end(b']')? {
            if !std::mem::take(&mut first) {
                self.out.push(',');
            }
            self.value()?;
            self.separator(b']')?;
        }
        self.out.push(']');
        Ok(())
    }

    fn key(&mut self) -> Result<(), LenientError> {
        match self.peek() {
            Some(quote @ (b'"' | b'\'')) => self.string(quote),
            // Quoting doubles the backslashes of a key inside a key, so there is one level only.
            Some(b'{') if !self.in_key => {
                self.in_key = true;
                let start = self.out.len();
                self.nested(Self::object)?;
                let object = self.out.split_off(start);
                push_quoted(&mut self.out, &object);
                self.in_key = false;
                Ok(())
            }
            _ => {
                let plain = |byte: &u8| {
                    byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$' | b'-' | b'+' | b'.')
                };
                let len = self.rest().bytes().take_while(|byte| plain(byte)).count();
                let key = self.rest().get(..len).unwrap_or_default().to_owned();
                if key.is_empty() {
                    return Err(self.expected("a key"));
                }
                self.at += len;
                push_quoted(&mut self.out, &key);
                Ok(())
            }
        }
    }

    fn word(&mut self) -> Result<(), LenientError> {
        let words = [
            ("true", "true"),
            ("false", "false"),
            ("null", "null"),
            ("undefined", "null"),
            ("NaN", "null"),
        ];
        for (word, standard) in words {
            if self.rest().starts_with(word) {
                self.at += word.len();
                self.out.push_str(standard);
                return Ok(());
            }
        }
        Err(self.expected("true, false or null"))
    }

    fn digits(&mut self) -> String {
        let len = self.rest().bytes().take_while(u8::is_ascii_digit).count();
        let digits = self.rest().get(..len).unwrap_or_default().to_owned();
        self.at += len;
        digits
    }

    fn number(&mut self) -> Result<(), LenientError> {
        match self.byte() {
            Some(b'-') => {
                self.out.push('-');
                self.at += 1;
            }
            Some(b'+') => self.at += 1,
            _ => {}
        }
        let whole = self.digits();
        let fraction = if self.byte() == Some(b'.') {
            self.at += 1;
            Some(self.digits())
        } else {
            None
        };
        if whole.is_empty() && fraction.as_ref().is_none_or(String::is_empty) {
            return Err(self.expected("digits"));
        }
        let significant = whole.trim_start_matches('0');
        self.out.push_str(if significant.is_empty() { "0" } else { significant });
        if let Some(fraction) = fraction {
            self.out.push('.');
            self.out.push_str(if fraction.is_empty() { "0" } else { &fraction });
        }
        if let Some(b'e' | b'E') = self.byte() {
            self.at += 1;
            self.out.push('e');
            if let Some(sign @ (b'-' | b'+')) = self.byte() {
                self.out.push(char::from(sign));
                self.at += 1;
            }
            let exponent = self.digits();
            if exponent.is_empty() {
                return Err(self.expected("digits of an exponent"));
            }
            self.out.push_str(&exponent);
        }
        // Java's type suffixes.
        if let Some(b'L' | b'S' | b'B' | b'F' | b'D') = self.byte() {
            self.at += 1;
        }
        Ok(())
    }

    fn string(&mut self, quote: u8) -> Result<(), LenientError> {
        self.at += 1;
        self.out.push('"');
        loop {
            let special = |byte: u8| byte == quote || byte == b'"' || byte == b'\\' || byte < 0x20;
            let Some(len) = self.rest().bytes().position(special) else {
                return Err(self.expected("a closing quote"));
            };
            let end = self.at + len;
            let plain = self.text.get(self.at..end).unwrap_or_default();
            self.out.push_str(plain);
            self.at = end;
            let byte = self.byte().unwrap_or(quote);
            self.at += 1;
            if byte == quote {
                self.out.push('"');
                return Ok(());
            }
            if byte == b'\\' {
                self.escape()?;
            } else {
                push_char(&mut self.out, char::from(byte));
            }
        }
    }

    fn escape(&mut self) -> Result<(), LenientError> {
        let Some(byte) = self.byte() else { return Err(self.expected("an escape")) };
        self.at += 1;
        let letter = match byte {
            b'"' | b'\\' | b'/' | b'\'' => char::from(byte),
            b'n' => '\n',
            b't' => '\t',
            b'r' => '\r',
            b'b' => '\u{8}',
            b'f' | b'F' => '\u{c}',
            b'v' => '\u{b}',
            b'0'..=b'7' => char::from(byte - b'0'),
            b'x' => char::from_u32(self.hex(2)?).unwrap_or(char::REPLACEMENT_CHARACTER),
            b'u' => self.unicode()?,
            _ => return Err(self.expected("a known escape")),
        };
        push_char(&mut self.out, letter);
        Ok(())
    }

    /// One UTF-16 unit, or two of a pair; half a pair is replaced.
    fn unicode(&mut self) -> Result<char, LenientError> {
        let first = self.hex(4)?;
        if (0xd800..0xdc00).contains(&first) && self.rest().starts_with("\\u") {
            let back = self.at;
            self.at += 2;
            let second = self.hex(4)?;
            if (0xdc00..0xe000).contains(&second) {
                let code = 0x10000 + ((first - 0xd800) << 10) + (second - 0xdc00);
                return Ok(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
            }
            self.at = back;
        }
        Ok(char::from_u32(first).unwrap_or(char::REPLACEMENT_CHARACTER))
    }

    fn hex(&mut self, len: usize) -> Result<u32, LenientError> {
        let digits = self
            .rest()
            .get(..len)
            .filter(|digits| digits.bytes().all(|byte| byte.is_ascii_hexdigit()));
        let value = digits.and_then(|digits| u32::from_str_radix(digits, 16).ok());
        let value = value.ok_or(self.expected("hexadecimal digits"))?;
        self.at += len;
        Ok(value)
    }
}

/// Appends a character as it stands inside a JSON string.
fn push_char(out: &mut String, letter: char) {
    match letter {
        '"' => out.push_str("\\\""),
        '\\' => out.push_str("\\\\"),
        '\n' => out.push_str("\\n"),
        '\r' => out.push_str("\\r"),
        '\t' => out.push_str("\\t"),
        control if control < ' ' => out.push_str(&format!("\\u{:04x}", u32::from(control))),
        other => out.push(other),
    }
}

fn push_quoted(out: &mut String, text: &str) {
    out.push('"');
    for letter in text.chars() {
        push_char(out, letter);
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    fn standard(text: &str) -> String {
        to_standard(text.as_bytes()).unwrap_or_else(|error| format!("error: {error}"))
    }

    #[test]
    fn each_liberty_of_fastjson_becomes_standard_json() {
        let table = [
            (r#"{0:"a",-1:"b"}"#, r#"{"0":"a","-1":"b"}"#),
            (r#"{true:1.0,null:2,abc_$1:3}"#, r#"{"true":1.0,"null":2,"abc_$1":3}"#),
            (r#"{{"queueId":1,"topic":"T"}:5}"#, r#"{"{\"queueId\":1,\"topic\":\"T\"}":5}"#),
            (r#"{'a':'it"s','b':'it\'s'}"#, r#"{"a":"it\"s","b":"it's"}"#),
            ("[1,,2,]", "[1,2]"),
            ("{\"a\":\"x\ty\u{1}\"}", "{\"a\":\"x\\ty\\u0001\"}"),
            (r#""\x41\v\0\u4e2d\ud83d\ude00\ud83dx""#, "\"A\\u000b\\u0000中😀\u{fffd}x\""),
            ("[12L,1.5D,007,+3,.5,1.,1E5,NaN,undefined]", "[12,1.5,7,3,0.5,1.0,1e5,null,null]"),
            (" [ ] ", "[]"),
        ];
        for (input, output) in table {
            assert_eq!(standard(input), output);
            assert!(serde_json::from_str::<serde_json::Value>(output).is_ok(), "{output}");
        }
    }

    #[test]
    fn what_is_broken_is_refused() {
        for text in [
            "",
            "{",
            "[",
            "{1}",
            "{:1}",
            "[1 2]",
            "\"",
            "\"\\",
            "\"\\u12",
            "{}x",
            "nul",
            "-",
            "{{{1:1}:1}:1}",
            "1e",
            "\u{0}",
        ] {
            assert!(to_standard(text.as_bytes()).is_err(), "{text}");
        }
    }

    #[test]
    fn depth_is_bounded() {
        let deep = |depth: usize| "[".repeat(depth) + &"]".repeat(depth);
        assert!(to_standard(deep(MAX_DEPTH).as_bytes()).is_ok());
        assert_eq!(to_standard(deep(MAX_DEPTH + 1).as_bytes()), Err(LenientError::TooDeep));
        assert_eq!(to_standard("[".repeat(1 << 20).as_bytes()), Err(LenientError::TooDeep));
    }
}

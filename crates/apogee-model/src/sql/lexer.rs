//! Splits an expression into tokens, one at a time, without copying.
//!
//! Written by hand: the token rules fill half a page, two of them look ahead in a way of their
//! own (a `--` without a line end is two signs, `5L` but not `0L` is a number), and each refusal
//! carries a place and an advice. A parser library would add its ways of saying all that.
//!
//! A lexer is a text and an offset; a copy of it is a look ahead.

use super::error::{Fault, shorten};

macro_rules! keywords {
    ($($name:ident = $text:literal),* $(,)?) => {
        /// A reserved word.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub(super) enum Keyword { $($name),* }

        impl Keyword {
            fn of(word: &str) -> Option<Self> {
                $(if word.eq_ignore_ascii_case($text) { return Some(Self::$name); })*
                None
            }

            pub(super) fn text(self) -> &'static str {
                match self { $(Self::$name => $text),* }
            }
        }
    };
}

keywords! {
    Not = "NOT", And = "AND", Or = "OR", Between = "BETWEEN", In = "IN", True = "TRUE",
    False = "FALSE", Null = "NULL", Is = "IS", Contains = "CONTAINS",
    StartsWith = "STARTSWITH", EndsWith = "ENDSWITH",
}

/// One token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Token<'a> {
    Keyword(Keyword),
    /// A property name.
    Name(&'a str),
    /// What stands between the quotes; a quote inside is still doubled.
    Text(&'a str),
    /// Digits without the type letter.
    Integer(&'a str),
    Decimal(&'a str),
    /// An operator, a parenthesis or a comma.
    Symbol(&'static str),
    End,
}

impl Token<'_> {
    /// The token as a message shows it.
    pub(super) fn describe(self) -> String {
        match self {
            Self::Keyword(word) => word.text().to_owned(),
            Self::Name(text) | Self::Integer(text) | Self::Decimal(text) => {
                format!("\"{}\"", shorten(text))
            }
            Self::Text(text) => format!("'{}'", shorten(text)),
            Self::Symbol(text) => format!("\"{text}\""),
            Self::End => "the end".to_owned(),
        }
    }
}

/// Longer symbols stand before their beginnings.
const SYMBOLS: [&str; 11] = ["<>", "<=", ">=", "=", "<", ">", "(", ")", ",", "+", "-"];

/// Reads tokens from a text.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lexer<'a> {
    text: &'a str,
    at: usize,
}

impl<'a> Lexer<'a> {
    pub(super) fn new(text: &'a str) -> Self {
        Self { text, at: 0 }
    }

    /// The next token and the offset of its first byte.
    pub(super) fn next(&mut self) -> Result<(Token<'a>, usize), Fault> {
        self.skip_blanks_and_comments()?;
        let start = self.at;
        let Some(first) = self.rest().chars().next() else {
            return Ok((Token::End, start));
        };
        let token = match first {
            'a'..='z' | 'A'..='Z' | '_' | '$' => self.word(),
            '\'' => self.quoted()?,
            '0'..='9' => self.number(),
            '.' if self.rest().as_bytes().get(1).is_some_and(u8::is_ascii_digit) => self.number(),
            _ => self.symbol(first)?,
        };
        Ok((token, start))
    }

    fn rest(&self) -> &'a str {
        self.text.get(self.at..).unwrap_or_default()
    }

    /// Takes `len` bytes off the rest.
    fn take(&mut self, len: usize) -> &'a str {
        let taken = self.rest().get(..len).unwrap_or_default();
        self.at += taken.len();
        taken
    }

    fn skip_blanks_and_comments(&mut self) -> Result<(), Fault> {
        loop {
            let rest = self.rest();
            let blanks = rest
                .bytes()
                .take_while(|byte| matches!(byte, b' ' | b'\t' | b'\n' | b'\r' | b'\x0c'))
                .count();
            let comment = if rest.starts_with("--") {
                // Without a line end these are two signs: `a > --5`.
                rest.find(['\n', '\r']).map_or(0, |end| end + 1)
            } else if let Some(inside) = rest.strip_prefix("/*") {
                let end = inside.find("*/").ok_or_else(|| {
                    Fault::new(self.at, "the comment has no end: \"*/\" is missing")
                })?;
                end + 4
            } else {
                0
            };
            if blanks + comment == 0 {
                return Ok(());
            }
            self.take(blanks.max(comment));
        }
    }

    fn word(&mut self) -> Token<'a> {
        let len = self
            .rest()
            .bytes()
            .take_while(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'$'))
            .count();
        let word = self.take(len);
        Keyword::of(word).map_or(Token::Name(word), Token::Keyword)
    }

    fn quoted(&mut self) -> Result<Token<'a>, Fault> {
        let start = self.at;
        self.take(1);
        let inside = self.rest();
        let mut len = 0;
        loop {
            let quote = inside.get(len..).and_then(|rest| rest.find('\''));
            let Some(quote) = quote else {
                return Err(Fault::new(start, "the text has no end: a quote is missing"));
            };
            len += quote;
            if inside.as_bytes().get(len + 1) != Some(&b'\'') {
                self.take(len + 1);
                return Ok(Token::Text(inside.get(..len).unwrap_or_default()));
            }
            len += 2;
        }
    }

    fn number(&mut self) -> Token<'a> {
        let bytes = self.rest().as_bytes();
        let digits_from = |from: usize| {
            let rest = bytes.get(from..).unwrap_or_default();
            rest.iter().take_while(|byte| byte.is_ascii_digit()).count()
        };
        let whole = digits_from(0);
        let mut end = whole;
        let mut decimal = false;
        if bytes.get(end) == Some(&b'.') {
            decimal = true;
            end += 1 + digits_from(end + 1);
        }
        if matches!(bytes.get(end), Some(b'e' | b'E')) {
            let sign = usize::from(matches!(bytes.get(end + 1), Some(b'+' | b'-')));
            let digits = digits_from(end + 1 + sign);
            if digits > 0 {
                decimal = true;
                end += 1 + sign + digits;
            }
        }
        if decimal {
            return Token::Decimal(self.take(end));
        }
        // A leading zero is a number of its own, so `007` and `0L` are two tokens.
        let leading_zero = bytes.first() == Some(&b'0');
        let text = self.take(if leading_zero { 1 } else { whole });
        if !leading_zero && matches!(self.rest().as_bytes().first(), Some(b'l' | b'L')) {
            self.take(1);
        }
        Token::Integer(text)
    }

    fn symbol(&mut self, first: char) -> Result<Token<'a>, Fault> {
        let rest = self.rest();
        if let Some(symbol) = SYMBOLS.into_iter().find(|text| rest.starts_with(text)) {
            self.take(symbol.len());
            return Ok(Token::Symbol(symbol));
        }
        let advice = match first {
            '!' => "; write \"<>\" for not equal",
            '"' => "; texts stand in single quotes",
            '*' | '/' | '%' => "; there is no arithmetic",
            _ => "",
        };
        let shown = first.escape_debug();
        Err(Fault::new(self.at, format!("the character '{shown}' has no meaning here{advice}")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tokens(text: &str) -> Vec<Token<'_>> {
        let mut lexer = Lexer::new(text);
        std::iter::from_fn(|| Some(lexer.next().unwrap().0))
            .take_while(|token| *token != Token::End)
            .collect()
    }

    #[test]
    fn numbers_take_the_longest_form() {
        use Token::{Decimal, Integer, Name};
        for (text, expected) in [
            ("5", vec![Integer("5")]),
            ("5L", vec![Integer("5")]),
            ("0L", vec![Integer("0"), Name("L")]),
            ("07", vec![Integer("0"), Integer("7")]),
            ("5.", vec![Decimal("5.")]),
            (".5e+3", vec![Decimal(".5e+3")]),
            ("5E10", vec![Decimal("5E10")]),
            ("5e", vec![Integer("5"), Name("e")]),
            ("00.5", vec![Decimal("00.5")]),
        ] {
            assert_eq!(tokens(text), expected, "{text}");
        }
    }

    #[test]
    fn comments_are_blanks_and_a_dash_pair_without_line_end_is_two_signs() {
        let sign = Token::Symbol("-");
        assert_eq!(tokens("a--b\n c"), [Token::Name("a"), Token::Name("c")]);
        assert_eq!(tokens("/**/a/* b * / */"), [Token::Name("a")]);
        assert_eq!(tokens("--5"), [sign, sign, Token::Integer("5")]);
    }

    #[test]
    fn keywords_have_no_case_and_end_at_word_ends() {
        assert_eq!(
            tokens("nOt NOTE _in"),
            [Token::Keyword(Keyword::Not), Token::Name("NOTE"), Token::Name("_in")]
        );
    }
}

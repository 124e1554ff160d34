//! Properties text: what the GET and UPDATE requests of configurations carry.
//!
//! Always holds: reading takes Java's escapes, comments and continued lines; writing puts one `key=value` a
//! line, sorted, unescaped, as the original's GET does. A key or value with a line break can't be written
//! so that it reads back, and is left out; whoever takes updates refuses such values beforehand.

/// Reads `key=value` lines in order. A later equal key is kept too; the caller decides.
pub fn read_properties(text: &str) -> Vec<(String, String)> {
    let mut pairs = Vec::new();
    let mut lines = text.lines();
    while let Some(line) = lines.next() {
        let mut whole = line.trim_start().to_owned();
        if whole.is_empty() || whole.starts_with(['#', '!']) {
            continue;
        }
        while whole.chars().rev().take_while(|letter| *letter == '\\').count() % 2 == 1 {
            whole.pop();
            let Some(next) = lines.next() else { break };
            whole.push_str(next.trim_start());
        }
        pairs.push(split(&whole));
    }
    pairs
}

/// Splits at the first unescaped `=`, `:` or white space.
fn split(line: &str) -> (String, String) {
    let mut escaped = false;
    let mut end = line.len();
    for (at, letter) in line.char_indices() {
        if escaped {
            escaped = false;
        } else if letter == '\\' {
            escaped = true;
        } else if matches!(letter, '=' | ':' | ' ' | '\t' | '\u{c}') {
            end = at;
            break;
        }
    }
    let (key, rest) = line.split_at_checked(end).unwrap_or((line, ""));
    let rest = rest.trim_start_matches([' ', '\t', '\u{c}']);
    let value =
        rest.strip_prefix(['=', ':']).unwrap_or(rest).trim_start_matches([' ', '\t', '\u{c}']);
    (unescape(key), unescape(value))
}

fn unescape(text: &str) -> String {
    let mut out = String::with_capacity(text.len());
    let mut letters = text.chars();
    while let Some(letter) = letters.next() {
        if letter != '\\' {
            out.push(letter);
            continue;
        }
        match letters.next() {
            Some('n') => out.push('\n'),
            Some('r') => out.push('\r'),
            Some('t') => out.push('\t'),
            Some('f') => out.push('\u{c}'),
            Some('u') => {
                let code = letters
                    .as_str()
                    .get(..4)
                    .and_then(|digits| u32::from_str_radix(digits, 16).ok());
                if let Some(code) = code {
                    letters.nth(3);
                    out.push(char::from_u32(code).unwrap_or(char::REPLACEMENT_CHARACTER));
                }
            }
            Some(other) => out.push(other),
            None => {}
        }
    }
    out
}

/// Writes `key=value` lines, sorted by key.
pub fn write_properties<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a str)>) -> String {
    let mut pairs: Vec<_> = pairs.into_iter().collect();
    pairs.sort_unstable();
    let mut out = String::new();
    for (key, value) in pairs {
        if !key.contains(['\n', '\r']) && !value.contains(['\n', '\r']) {
            out.push_str(key);
            out.push('=');
            out.push_str(value);
            out.push('\n');
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn pairs(text: &str) -> Vec<(String, String)> {
        read_properties(text)
    }

    fn one(key: &str, value: &str) -> Vec<(String, String)> {
        vec![(key.to_owned(), value.to_owned())]
    }

    #[test]
    fn each_form_of_a_line_reads_as_in_java() {
        let table = [
            ("a=b", one("a", "b")),
            ("  a = b ", one("a", "b ")),
            ("a:b=c", one("a", "b=c")),
            ("a b", one("a", "b")),
            ("a", one("a", "")),
            ("a\\=b=c", one("a=b", "c")),
            ("a=x\\\n   y", one("a", "xy")),
            ("a=\\u4e2d\\t\\\\", one("a", "中\t\\")),
            ("# no\n! no\n\n", vec![]),
            ("a=C:\\\\dir\r\n", one("a", "C:\\dir")),
        ];
        for (text, expected) in table {
            assert_eq!(pairs(text), expected, "{text:?}");
        }
    }

    #[test]
    fn written_lines_are_sorted_and_hold_no_smuggled_line() {
        let text = write_properties([("b", "2"), ("a", "1"), ("x", "1\ny=2")]);
        assert_eq!(text, "a=1\nb=2\n");
    }
}

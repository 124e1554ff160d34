//! Why an expression was refused, and where.
//!
//! The parser notes a byte offset; line and column are counted once, when the error leaves.

/// Why an expression cannot be used. Lines and columns count from 1, columns in characters.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("SQL92 expression, line {line}, column {column}: {problem}")]
pub struct SqlError {
    /// Line of the problem.
    pub line: usize,
    /// Column of the problem.
    pub column: usize,
    /// What is wrong there and what would be right.
    pub problem: String,
}

/// A problem at a byte offset of the text.
#[derive(Debug)]
pub(super) struct Fault {
    at: usize,
    problem: String,
}

impl Fault {
    pub(super) fn new(at: usize, problem: impl Into<String>) -> Self {
        Self { at, problem: problem.into() }
    }

    pub(super) fn locate(self, text: &str) -> SqlError {
        let before = text.get(..self.at).unwrap_or(text);
        // "\r\n" is one line end; "\r" and "\n" alone are one each.
        let line_ends = before.matches('\n').count() + before.matches('\r').count()
            - before.matches("\r\n").count();
        let line_start = before.rfind(['\n', '\r']).map_or(0, |at| at + 1);
        let column = before.get(line_start..).map_or(0, |line| line.chars().count());
        SqlError { line: line_ends + 1, column: column + 1, problem: self.problem }
    }
}

/// At most 40 characters of `text`, for a message.
pub(super) fn shorten(text: &str) -> String {
    const LONGEST: usize = 40;
    match text.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lines_and_columns_count_from_one_in_characters() {
        let place = |text: &str, at| {
            let error = Fault::new(at, "x").locate(text);
            (error.line, error.column)
        };
        assert_eq!(place("abc", 0), (1, 1));
        assert_eq!(place("é=b", 3), (1, 3));
        assert_eq!(place("a\r\nbc\nd\re", 4), (2, 2));
        assert_eq!(place("a\r\nbc\nd\re", 8), (4, 1));
        assert_eq!(place("ab", 2), (1, 3));
    }
}

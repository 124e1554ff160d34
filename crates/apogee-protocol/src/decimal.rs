//! Decimal numbers without allocation: how header values, opaques and codes are written.

/// Room for any `i64` in decimal.
pub(crate) struct Buffer([u8; 20]);

impl Buffer {
    pub(crate) fn new() -> Self {
        Buffer([0; 20])
    }

    /// The decimal digits of `value`.
    pub(crate) fn format(&mut self, value: i64) -> &str {
        let mut rest = value.unsigned_abs();
        let mut at = self.0.len();
        loop {
            at -= 1;
            if let Some(place) = self.0.get_mut(at) {
                *place = b'0' + (rest % 10) as u8;
            }
            rest /= 10;
            if rest == 0 {
                break;
            }
        }
        if value < 0 {
            at -= 1;
            if let Some(place) = self.0.get_mut(at) {
                *place = b'-';
            }
        }
        self.0.get(at..).and_then(|digits| std::str::from_utf8(digits).ok()).unwrap_or_default()
    }
}

/// Reads an optional sign and digits, as Java's `Long.parseLong` does; `Err(false)` = not a number,
/// `Err(true)` = out of range.
pub(crate) fn parse_i64(text: &[u8]) -> Result<i64, bool> {
    let (negative, digits) = match text {
        [b'-', digits @ ..] => (true, digits),
        [b'+', digits @ ..] => (false, digits),
        digits => (false, digits),
    };
    if digits.is_empty() || !digits.iter().all(u8::is_ascii_digit) {
        return Err(false);
    }
    // Summed up below zero, since i64::MIN has no positive twin.
    let mut value: i64 = 0;
    for digit in digits {
        value = value
            .checked_mul(10)
            .and_then(|v| v.checked_sub(i64::from(digit - b'0')))
            .ok_or(true)?;
    }
    if negative { Ok(value) } else { value.checked_neg().ok_or(true) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_written_as_the_standard_library_does() {
        for value in [0, 1, -1, 9, 10, 99, 100, i64::MAX, i64::MIN, 1_796_053_796_061] {
            assert_eq!(Buffer::new().format(value), value.to_string());
            assert_eq!(parse_i64(value.to_string().as_bytes()), Ok(value));
        }
    }

    #[test]
    fn what_is_no_number_and_what_is_too_large_are_told_apart() {
        assert_eq!(parse_i64(b""), Err(false));
        assert_eq!(parse_i64(b"-"), Err(false));
        assert_eq!(parse_i64(b"12x"), Err(false));
        assert_eq!(parse_i64(b"9223372036854775808"), Err(true));
        assert_eq!(parse_i64(b"-9223372036854775808"), Ok(i64::MIN));
        assert_eq!(parse_i64(b"+7"), Ok(7));
    }
}

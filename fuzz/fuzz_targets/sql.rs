//! A filter expression, a zero byte, and the properties of a message.
//!
//! What parses prints to something that parses to the same, with the same value.
#![no_main]

use apogee_model::Properties;
use apogee_model::sql::Expression;

libfuzzer_sys::fuzz_target!(|bytes: &[u8]| {
    let (text, properties) = match bytes.iter().position(|byte| *byte == 0) {
        Some(at) => (&bytes[..at], &bytes[at + 1..]),
        None => (bytes, &[][..]),
    };
    let Ok(text) = std::str::from_utf8(text) else {
        return;
    };
    let properties = Properties::new(properties);
    match Expression::parse(text) {
        Ok(expression) => {
            let value = expression.evaluate(properties);
            // Written out, the text may pass a limit that it kept before.
            if let Ok(again) = Expression::parse(&expression.to_string()) {
                assert_eq!(again.evaluate(properties), value);
            }
        }
        Err(error) => {
            assert!(error.line >= 1 && error.column >= 1);
            assert!(!error.problem.is_empty());
        }
    }
});

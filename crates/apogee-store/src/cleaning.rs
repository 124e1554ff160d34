//! Cleaning (hours only so far).
/// Parses hours.
pub(crate) fn parse_hours(text: &str) -> Option<Vec<u8>> {
    let hours: Vec<u8> = text
        .split(';')
        .map(str::trim)
        .filter(|w| !w.is_empty())
        .map(|word| word.parse::<u8>().ok().filter(|hour| *hour < 24))
        .collect::<Option<_>>()?;
    Some(hours)
}

//! Delay levels: the table of `messageDelayLevel`, and the delivery time kept in queue units of
//! `SCHEDULE_TOPIC_XXXX`.

/// The original's default table.
pub const DEFAULT_LEVELS: &str = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h";

/// Topic of messages that wait for a delay level.
pub const SCHEDULE_TOPIC: &str = "SCHEDULE_TOPIC_XXXX";

/// Delays in ms; level 1 is the first.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DelayLevels(Vec<i64>);

impl DelayLevels {
    /// Parses e.g. `1s 5m 2h 1d`; `None` when a word is no time.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut levels = Vec::new();
        for word in text.split_whitespace() {
            let unit = word.chars().next_back()?;
            let factor = match unit {
                's' => 1_000,
                'm' => 60_000,
                'h' => 3_600_000,
                'd' => 86_400_000,
                _ => return None,
            };
            let count: i64 = word.strip_suffix(unit)?.parse().ok()?;
            levels.push(count.checked_mul(factor).filter(|delay| *delay >= 0)?);
        }
        Some(Self(levels))
    }

    /// The highest level.
    #[must_use]
    pub fn max_level(&self) -> usize {
        self.0.len()
    }

    /// The delay of `level` in ms; levels above the highest mean the highest, below 1 none.
    #[must_use]
    pub fn delay_ms(&self, level: i32) -> Option<i64> {
        let level = usize::try_from(level).ok()?.min(self.max_level());
        self.0.get(level.checked_sub(1)?).copied()
    }

    /// Delivery time for the text of a `DELAY` property, if it names a level.
    #[must_use]
    pub fn delivery_time(&self, level: &str, store_timestamp: i64) -> Option<i64> {
        let level: i32 = level.trim().parse().ok()?;
        (level > 0).then(|| store_timestamp.saturating_add(self.delay_ms(level).unwrap_or(1_000)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn default_table_has_eighteen_levels_and_clamps_above() {
        let levels = DelayLevels::parse(DEFAULT_LEVELS).unwrap();
        assert_eq!(levels.max_level(), 18);
        assert_eq!(levels.delay_ms(1), Some(1_000));
        assert_eq!(levels.delay_ms(18), Some(7_200_000));
        assert_eq!(levels.delay_ms(99), Some(7_200_000));
        assert_eq!(levels.delay_ms(0), None);
        assert_eq!(levels.delivery_time("3", 5), Some(10_005));
        assert_eq!(levels.delivery_time("0", 5), None);
        assert_eq!(levels.delivery_time("x", 5), None);
    }

    #[test]
    fn words_that_are_no_times_are_refused() {
        assert_eq!(DelayLevels::parse("1s 5x"), None);
        assert_eq!(DelayLevels::parse("s"), None);
        assert_eq!(DelayLevels::parse("9223372036854775807d"), None);
    }
}

//! Calendar arithmetic for file names and hours of the day: proleptic Gregorian, a fixed distance
//! to UTC that the caller knows (the store has no clock and no time zones).

const DAY_MS: i64 = 86_400_000;

/// Hour of the day (0..=23) at `ms`, `utc_offset_seconds` east of UTC.
pub(crate) fn hour(ms: i64, utc_offset_seconds: i64) -> u8 {
    let local = ms.saturating_add(utc_offset_seconds * 1_000);
    (local.rem_euclid(DAY_MS) / 3_600_000) as u8
}

/// `yyyyMMddHHmmssSSS` of `ms`.
pub(crate) fn stamp(ms: i64, utc_offset_seconds: i64) -> String {
    let local = ms.saturating_add(utc_offset_seconds * 1_000);
    let (days, rest) = (local.div_euclid(DAY_MS), local.rem_euclid(DAY_MS));
    // Days since 0000-03-01, so that leap days come last in a year.
    let shifted = days + 719_468;
    let era = shifted.div_euclid(146_097);
    let day_of_era = shifted.rem_euclid(146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_index = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_index + 2) / 5 + 1;
    let month = if month_index < 10 { month_index + 3 } else { month_index - 9 };
    let year = year_of_era + era * 400 + i64::from(month <= 2);
    format!(
        "{year:04}{month:02}{day:02}{:02}{:02}{:02}{:03}",
        rest / 3_600_000,
        rest / 60_000 % 60,
        rest / 1_000 % 60,
        rest % 1_000
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_follow_the_calendar() {
        assert_eq!(stamp(0, 0), "19700101000000000");
        assert_eq!(stamp(951_782_399_999, 0), "20000228235959999");
        assert_eq!(stamp(951_782_400_000, 0), "20000229000000000");
        assert_eq!(stamp(1_796_055_077_186, 0), "20261130161117186");
        assert_eq!(stamp(1_796_055_077_186, 8 * 3600), "20261201001117186");
        assert_eq!(hour(1_796_055_077_186, 8 * 3600), 0);
        assert_eq!(hour(1_796_055_077_186, 0), 16);
    }
}

//! Windows of quotas: calendar days and months in UTC.

use crate::store::Millis;

const MINUTE: u64 = 60_000;
const DAY: u64 = 24 * 60 * MINUTE;

/// Period of a quota: a calendar day or month in UTC; or that of the counts by which processes share their limits of a
/// minute, which is a day.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Period {
    Day,
    Month,
    Rate,
}

/// Calendar day or month in UTC, in milliseconds since 1970. Its end is the begin of the next window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) begins: Millis,
    pub(super) ends: Millis,
}

impl Period {
    /// All periods that are counted.
    pub(super) const ALL: [Self; 3] = [Self::Day, Self::Month, Self::Rate];

    pub(super) fn name(self) -> &'static str {
        match self {
            Self::Day | Self::Rate => "day",
            Self::Month => "month",
        }
    }

    /// Returns the window that contains `now`.
    pub(super) fn window(self, now: Millis) -> Window {
        let today = now / DAY;
        let (first, days) = match self {
            Self::Day | Self::Rate => (today, 1),
            Self::Month => {
                let date = Date::of(today);
                (today - (date.day - 1), date.days_of_month())
            }
        };
        Window {
            begins: first * DAY,
            ends: (first + days) * DAY,
        }
    }
}

impl Window {
    pub(super) fn minutes(&self) -> u64 {
        (self.ends - self.begins) / MINUTE
    }

    /// Returns the end of the window in seconds since 1970.
    pub(super) fn resets_at(&self) -> u64 {
        self.ends / 1000
    }

    /// Returns the end of the window for error messages: `2026-12-01 00:00 UTC`.
    pub(super) fn end(&self) -> String {
        let Date { year, month, day } = Date::of(self.ends / DAY);
        format!("{year:04}-{month:02}-{day:02} 00:00 UTC")
    }
}

/// Date of the Gregorian calendar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Date {
    year: u64,
    /// 1 to 12.
    month: u64,
    /// 1 to 31.
    day: u64,
}

impl Date {
    /// Returns the date of the day that begins `days` days after 1970-01-01 (Howard Hinnant, `civil_from_days`).
    /// Years begin in March in that algorithm, so that a leap day is the last of its year; an era has 400 years.
    fn of(days: u64) -> Self {
        let days = days + 719_468;
        let (era, of_era) = (days / 146_097, days % 146_097);
        let year = (of_era - of_era / 1_460 + of_era / 36_524 - of_era / 146_096) / 365;
        let of_year = of_era - (365 * year + year / 4 - year / 100);
        let from_march = (5 * of_year + 2) / 153;
        let day = of_year - (153 * from_march + 2) / 5 + 1;
        let month = if from_march < 10 {
            from_march + 3
        } else {
            from_march - 9
        };
        Self {
            year: era * 400 + year + u64::from(month <= 2),
            month,
            day,
        }
    }

    fn days_of_month(&self) -> u64 {
        let is_leap = self.year.is_multiple_of(4)
            && (!self.year.is_multiple_of(100) || self.year.is_multiple_of(400));
        match self.month {
            2 => 28 + u64::from(is_leap),
            4 | 6 | 9 | 11 => 30,
            _ => 31,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Expected values in seconds since 1970, as `date -u -d … +%s` prints them.
    #[test]
    fn windows_are_those_of_the_calendar() {
        for (now, day, month) in [
            // 1970-01-01 00:00:00
            (0, (0, 86_400), (0, 2_678_400)),
            // 2024-02-29 23:59:59
            (
                1_709_251_199,
                (1_709_164_800, 1_709_251_200),
                (1_706_745_600, 1_709_251_200),
            ),
            // 2024-03-01 00:00:00
            (
                1_709_251_200,
                (1_709_251_200, 1_709_337_600),
                (1_709_251_200, 1_711_929_600),
            ),
            // 2025-02-28 12:00:00
            (
                1_740_744_000,
                (1_740_700_800, 1_740_787_200),
                (1_738_368_000, 1_740_787_200),
            ),
            // 2026-12-31 23:59:59
            (
                1_798_761_599,
                (1_798_675_200, 1_798_761_600),
                (1_796_083_200, 1_798_761_600),
            ),
            // 2100-02-28 00:00:00, no leap year
            (
                4_107_456_000,
                (4_107_456_000, 4_107_542_400),
                (4_105_123_200, 4_107_542_400),
            ),
        ] {
            for (period, (begins, ends)) in [(Period::Day, day), (Period::Month, month)] {
                let window = period.window(now * 1000 + 999);
                assert_eq!(
                    (window.begins, window.ends),
                    (begins * 1000, ends * 1000),
                    "{now} {period:?}"
                );
                assert_eq!(window.resets_at(), ends);
            }
        }
    }

    #[test]
    fn windows_follow_each_other_without_a_gap() {
        for period in [Period::Day, Period::Month] {
            let mut window = period.window(0);
            while window.ends < 200 * 365 * DAY {
                let next = period.window(window.ends);
                assert_eq!(period.window(window.ends - 1), window);
                assert_eq!(next.begins, window.ends);
                window = next;
            }
        }
    }

    #[test]
    fn an_end_as_people_read_it() {
        for (now, period, end, minutes) in [
            (
                1_709_251_199_000,
                Period::Day,
                "2024-03-01 00:00 UTC",
                1_440,
            ),
            (
                1_709_251_199_000,
                Period::Month,
                "2024-03-01 00:00 UTC",
                29 * 1_440,
            ),
            (
                1_798_761_599_000,
                Period::Month,
                "2027-01-01 00:00 UTC",
                31 * 1_440,
            ),
        ] {
            let window = period.window(now);
            assert_eq!((window.end().as_str(), window.minutes()), (end, minutes));
        }
    }
}

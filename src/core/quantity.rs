//! Times and sizes as people write them: `90`, `"5m"` and `"1h30m"`; `1048576`, `"1MiB"` and `"32MB"`.
//!
//! The configuration file, the environment and flags share this parser. Error messages never repeat the wrong
//! text: it may be a misplaced secret.

use bytesize::ByteSize;
use serde::Deserializer;
use serde::de::{Error, Unexpected, Visitor};
use std::fmt;
use std::time::Duration;

/// Longest time that a configuration may contain, in seconds.
const YEAR: u64 = 31_536_000;
/// Units of a time, with their length in milliseconds.
const UNITS: [(&str, u64); 5] = [
    ("ms", 1),
    ("s", 1_000),
    ("m", 60_000),
    ("h", 3_600_000),
    ("d", 86_400_000),
];

const TIME: &str = "must be seconds, or a time such as 250ms, 90s, 5m or 1h30m";
const RANGE: &str = "must be seconds, from 0 to a year";
const WHOLE: &str = "must be whole seconds";
const SIZE: &str = "must be bytes, or a size such as 64KiB, 32MB or 1GiB";

/// Parses a time: a number of seconds, or numbers with the units `ms`, `s`, `m`, `h` and `d`.
///
/// # Errors
/// Fails if the text is not a time; the message is for people.
pub fn time(text: &str) -> Result<Duration, String> {
    parts(text).ok_or_else(|| TIME.to_owned())
}

fn parts(text: &str) -> Option<Duration> {
    if let Ok(seconds) = text.parse::<u32>() {
        return Some(Duration::from_secs(seconds.into()));
    }
    let (mut total, mut rest) = (None, text);
    while !rest.is_empty() {
        let (number, after) = rest.split_at(rest.find(|letter: char| !letter.is_ascii_digit())?);
        let (unit, after) = after.split_at(
            after
                .find(|letter: char| letter.is_ascii_digit())
                .unwrap_or(after.len()),
        );
        let (_, milliseconds) = UNITS.iter().find(|(name, _)| *name == unit)?;
        let part = Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(*milliseconds)?);
        total = Some(total.unwrap_or(Duration::ZERO).checked_add(part)?);
        rest = after;
    }
    total
}

/// Parses a size in bytes: a number, or a number with a unit. `MB` is 1,000,000 bytes, `MiB` 1,048,576.
///
/// # Errors
/// Fails if the text is not a size; the message is for people.
pub fn size(text: &str) -> Result<u64, String> {
    text.parse::<ByteSize>()
        .map(|size| size.0)
        .map_err(|_| SIZE.to_owned())
}

/// Deserializes a time of at most a year: a number of seconds, or text as for [`time`].
///
/// # Errors
/// Fails if the value is not a time, or longer than a year.
pub fn read_time<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    from.deserialize_any(Time)
}

/// Deserializes whole seconds: a number, or a time as text.
///
/// # Errors
/// Fails if the value is not a time, or not a whole number of seconds.
pub fn read_seconds<'de, D: Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    from.deserialize_any(Number {
        expected: "whole seconds or a time such as \"5m\"",
        parse: whole_seconds,
    })
}

/// Deserializes a size: a number of bytes, or text as for [`size`].
///
/// # Errors
/// Fails if the value is not a size, or too large for the type.
pub fn read_size<'de, D: Deserializer<'de>, N: TryFrom<u64>>(from: D) -> Result<N, D::Error> {
    let size = from.deserialize_any(Number {
        expected: "bytes or a size such as \"64MiB\"",
        parse: size,
    })?;
    N::try_from(size).map_err(|_| Error::custom(SIZE))
}

struct Time;

impl Visitor<'_> for Time {
    type Value = Duration;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("seconds or a time such as \"5m\"")
    }

    fn visit_f64<E: Error>(self, seconds: f64) -> Result<Duration, E> {
        Duration::try_from_secs_f64(seconds)
            .map_err(|_| E::custom(RANGE))
            .and_then(within_a_year)
    }

    fn visit_i64<E: Error>(self, seconds: i64) -> Result<Duration, E> {
        u64::try_from(seconds)
            .map_err(|_| E::custom(RANGE))
            .and_then(|seconds| self.visit_u64(seconds))
    }

    fn visit_u64<E: Error>(self, seconds: u64) -> Result<Duration, E> {
        within_a_year(Duration::from_secs(seconds))
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<Duration, E> {
        time(text).map_err(E::custom).and_then(within_a_year)
    }
}

fn within_a_year<E: Error>(time: Duration) -> Result<Duration, E> {
    if time <= Duration::from_secs(YEAR) {
        Ok(time)
    } else {
        Err(E::custom(RANGE))
    }
}

fn whole_seconds(text: &str) -> Result<u64, String> {
    let time = time(text)?;
    if time.subsec_nanos() == 0 {
        Ok(time.as_secs())
    } else {
        Err(WHOLE.to_owned())
    }
}

/// Whole number, or a text that stands for one.
struct Number {
    expected: &'static str,
    parse: fn(&str) -> Result<u64, String>,
}

impl Visitor<'_> for Number {
    type Value = u64;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.expected)
    }

    fn visit_i64<E: Error>(self, number: i64) -> Result<u64, E> {
        u64::try_from(number).map_err(|_| E::invalid_value(Unexpected::Signed(number), &self))
    }

    fn visit_u64<E: Error>(self, number: u64) -> Result<u64, E> {
        Ok(number)
    }

    fn visit_str<E: Error>(self, text: &str) -> Result<u64, E> {
        (self.parse)(text).map_err(E::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times() {
        for (text, milliseconds) in [
            ("0", 0),
            ("90", 90_000),
            ("300s", 300_000),
            ("5m", 300_000),
            ("250ms", 250),
            ("2h", 7_200_000),
            ("1h30m", 5_400_000),
            ("1m30s500ms", 90_500),
            ("7d", 604_800_000),
        ] {
            assert_eq!(
                time(text),
                Ok(Duration::from_millis(milliseconds)),
                "{text}"
            );
        }
        for text in [
            "",
            "s",
            "5 m",
            "-1s",
            "1.5s",
            "1M",
            "1w",
            "1h30",
            "m5",
            "5mm",
            "5µs",
            "99999999999999999999s",
            "18446744073709551615d",
            "18446744073709551s18446744073709551s18446744073709551615ms18446744073709551615ms1",
        ] {
            assert_eq!(time(text), Err(TIME.to_owned()), "{text}");
        }
    }

    #[test]
    fn sizes() {
        for (text, bytes) in [
            ("0", 0),
            ("1048576", 1 << 20),
            ("64KiB", 64 << 10),
            ("32MB", 32_000_000),
            ("32MiB", 32 << 20),
            ("1GiB", 1 << 30),
            ("1.5GiB", 3 << 29),
            ("1 MB", 1_000_000),
            ("100B", 100),
        ] {
            assert_eq!(size(text), Ok(bytes), "{text}");
        }
        for text in [
            "", "MB", "-1MB", "1XB", "1 M B", "one", "1,5MB", "0x10", "1e3MB",
        ] {
            assert_eq!(size(text), Err(SIZE.to_owned()), "{text}");
        }
        assert_eq!(
            size("99999999999EiB"),
            Ok(u64::MAX),
            "too large for every limit"
        );
    }
}

//! Expiry date of a certificate. Nothing else in the certificate is read here (RFC 5280, 4.1), and its validity is
//! checked elsewhere.

/// DER tags.
const INTEGER: u8 = 0x02;
const UTC_TIME: u8 = 0x17;
const GENERALIZED_TIME: u8 = 0x18;
const SEQUENCE: u8 = 0x30;
const VERSION: u8 = 0xa0;

/// Returns `notAfter` in seconds since 1970; `None` if the certificate cannot be parsed.
pub(super) fn expiry(certificate: &[u8]) -> Option<i64> {
    let (certificate, _) = element(certificate, SEQUENCE)?;
    let (signed, _) = element(certificate, SEQUENCE)?;
    // The version is optional.
    let signed = element(signed, VERSION).map_or(signed, |(_, rest)| rest);
    let (_serial, rest) = element(signed, INTEGER)?;
    let (_algorithm, rest) = element(rest, SEQUENCE)?;
    let (_issuer, rest) = element(rest, SEQUENCE)?;
    let (validity, _) = element(rest, SEQUENCE)?;
    let (_not_before, rest) = either_time(validity)?;
    let ((tag, text), _) = either_time(rest)?;
    seconds(tag, std::str::from_utf8(text).ok()?)
}

/// Returns the content of the first element and the bytes after it, if the element has this tag.
fn element(bytes: &[u8], tag: u8) -> Option<(&[u8], &[u8])> {
    let rest = bytes.strip_prefix(&[tag])?;
    let (&length, rest) = rest.split_first()?;
    if length < 0x80 {
        return rest.split_at_checked(length.into());
    }
    let (digits, rest) = rest.split_at_checked((length & 0x7f).into())?;
    if digits.len() > 4 {
        return None;
    }
    let length = digits
        .iter()
        .fold(0, |length: usize, digit| length << 8 | usize::from(*digit));
    rest.split_at_checked(length)
}

type Tagged<'b> = (u8, &'b [u8]);

fn either_time(bytes: &[u8]) -> Option<(Tagged<'_>, &[u8])> {
    let of = |tag| element(bytes, tag).map(|(text, rest)| ((tag, text), rest));
    of(UTC_TIME).or_else(|| of(GENERALIZED_TIME))
}

/// Parses `YYMMDDHHMMSSZ`, whose years end in 2049, or `YYYYMMDDHHMMSSZ`.
fn seconds(tag: u8, text: &str) -> Option<i64> {
    let digits = text
        .strip_suffix('Z')
        .filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()))?;
    let (year, rest) = digits.split_at_checked(if tag == UTC_TIME { 2 } else { 4 })?;
    let year: i64 = year.parse().ok()?;
    let year = match (tag, year) {
        (UTC_TIME, 50..) => 1900 + year,
        (UTC_TIME, _) => 2000 + year,
        _ => year,
    };
    if rest.len() != 10 {
        return None;
    }
    let two = |at: usize| rest.get(at..at + 2)?.parse::<i64>().ok();
    let days = days(year, two(0)?, two(2)?);
    Some(((days * 24 + two(4)?) * 60 + two(6)?) * 60 + two(8)?)
}

/// Returns the days from 1970 to a date. Years are counted from 1 March, so that a leap day is the last day of its
/// year.
fn days(year: i64, month: i64, day: i64) -> i64 {
    let year = if month <= 2 { year - 1 } else { year };
    let of_year = (153 * ((month + 9) % 12) + 2) / 5 + day - 1;
    let leaps = year.div_euclid(4) - year.div_euclid(100) + year.div_euclid(400);
    year * 365 + leaps + of_year - 719_468
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_of_certificates() {
        for (tag, text, expected) in [
            (UTC_TIME, "700101000000Z", Some(0)),
            (UTC_TIME, "000229120000Z", Some(951_825_600)),
            (UTC_TIME, "491231235959Z", Some(2_524_607_999)),
            (UTC_TIME, "500101000000Z", Some(-631_152_000)),
            (GENERALIZED_TIME, "20500101000000Z", Some(2_524_608_000)),
            (GENERALIZED_TIME, "99991231235959Z", Some(253_402_300_799)),
            (UTC_TIME, "20500101000000Z", None),
            (UTC_TIME, "7001010000Z", None),
            (UTC_TIME, "700101000000", None),
            (GENERALIZED_TIME, "2050010100000-Z", None),
        ] {
            assert_eq!(seconds(tag, text), expected, "{text}");
        }
    }

    #[test]
    fn the_end_of_a_certificate() {
        let made = rcgen::generate_simple_self_signed(["a".to_owned()]).unwrap();
        // rcgen's default expiry: the first second of the year 4096.
        assert_eq!(expiry(made.cert.der()), Some(67_090_118_400));
        let whole: &[u8] = made.cert.der();
        for cut in 0..60 {
            assert_eq!(expiry(&whole[..cut]), None, "{cut}");
        }
        for at in 0..whole.len().min(300) {
            let mut bytes = whole.to_vec();
            bytes[at] ^= 0xff;
            // Any result is fine, but no panic.
            let _ = expiry(&bytes);
        }
    }
}

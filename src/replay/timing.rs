//! Times of the reads of an answer: `timing.txt`, which also shows whether a body is still all that was read.

/// Checks the file against the body beside it. Fails with the line of a mistake in the file.
pub(super) fn check(text: &str) -> Result<usize, String> {
    let mut sum = 0_usize;
    for (at, line) in text.lines().enumerate() {
        let line = line.trim();
        if line.is_empty() || line.starts_with('#') {
            continue;
        }
        let read = line.split_once(' ').and_then(|(time, bytes)| {
            let is_time = time
                .parse::<f64>()
                .is_ok_and(|time| time.is_finite() && time >= 0.0);
            bytes.trim_start().parse::<usize>().ok().filter(|_| is_time)
        });
        let bytes = read.ok_or_else(|| {
            format!(
                "line {}: it must be milliseconds and a number of bytes, such as 65.2 263",
                at + 1
            )
        })?;
        sum = sum.saturating_add(bytes);
    }
    Ok(sum)
}

/// Returns the reason why a body of another length than the reads together was changed, with its last line; `None` if
/// both are the same.
pub(super) fn difference(body: &[u8], sum: usize) -> Option<String> {
    let has = body.len();
    if has == sum {
        return None;
    }
    let last = body.strip_suffix(b"\n").unwrap_or(body);
    let line = 1 + last.iter().filter(|byte| **byte == b'\n').count();
    let how = if has < sum {
        "it was cut"
    } else {
        "something was added"
    };
    Some(format!(
        "line {line}: it ends here with {has} bytes, and the reads in timing.txt have {sum} together: {how}. If that was \
         on purpose, delete timing.txt"
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_are_added() {
        assert_eq!(check("# ms, bytes\n65.2 263\r\n79.701  22\n\n"), Ok(285));
        for text in [
            "1.0 2\n3",
            "1.0 2\nx 3",
            "1.0 2\n3 x",
            "1.0 2\nNaN 3",
            "1.0 2\n-1 3",
            "1.0 2\n3 -1",
        ] {
            let why = check(text).unwrap_err();
            assert!(
                why.starts_with("line 2: it must be milliseconds and a number of bytes"),
                "{text}: {why}"
            );
        }
    }

    #[test]
    fn another_length_is_told() {
        assert_eq!(difference(b"data: a\n\n", 9), None);
        let cut = difference(b"data: a\n\ndata: b\n", 18).unwrap();
        assert!(
            cut.starts_with("line 3: it ends here with 17 bytes")
                && cut.contains("have 18 together: it was cut")
        );
        assert!(difference(b"", 1).is_some_and(|why| why.starts_with("line 1:")));
        assert!(difference(b"ab", 1).is_some_and(|why| why.contains("something was added")));
    }
}

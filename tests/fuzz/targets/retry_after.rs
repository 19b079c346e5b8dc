//! Retry delays of engines: the client gets whole seconds from 1 to 60, whatever the engine sent.

use super::proxy::{answers, client, engine, send};

const ERROR: &str = r#"{"error":{"message":"slow down","type":"rate_limit_error","param":null,"code":null}}"#;

pub fn run(data: &[u8]) {
    let (status, value) = match data.split_first() {
        Some((first, value)) if first & 1 == 1 => ("503 Service Unavailable", value),
        Some((_, value)) => ("429 Too Many Requests", value),
        None => ("429 Too Many Requests", data),
    };
    let value: Vec<u8> = value.iter().copied().filter(|byte| !matches!(byte, b'\r' | b'\n' | 0)).collect();
    let line = [b"retry-after: ", &value[..], b"\r\n"].concat();
    let seen = send(&client(b""), &engine(status, &line, ERROR));
    let all = answers(&seen.client).unwrap_or_else(|| panic!("{}", seen.client.escape_ascii()));
    let [answer] = &all[..] else { panic!("{all:?}") };
    // Invalid header bytes make the engine's answer itself invalid, hence 502.
    assert!([429, 503, 502].contains(&answer.status), "{answer:?}");
    let told = answer.headers.iter().filter(|(name, _)| name == "retry-after").count();
    assert_eq!(told, usize::from(answer.status != 502), "{answer:?}");
    let Some(seconds) = answer.header("retry-after") else { return };
    let seconds: u64 = seconds.parse().expect("whole seconds");
    assert!((1..=60).contains(&seconds), "{seconds} of {}", value.escape_ascii());
    let text = value.trim_ascii();
    if !text.is_empty() && text.iter().all(u8::is_ascii_digit) && answer.status != 502 {
        let given = std::str::from_utf8(text).expect("digits").parse().unwrap_or(u64::MAX);
        assert_eq!(seconds, given.clamp(1, 60));
    }
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "", "0", "5", "60", "61", "-3", "1.2", "31536000", "1e3", "1e999", "nan", "inf", "soon", " 7 ", "0x10",
        "Wed, 21 Oct 2026 07:28:00 GMT", "Sun, 06 Nov 1994 08:49:37 GMT", "Fri, 31 Dec 9999 23:59:59 GMT",
        "18446744073709551616", "5, 6", "\u{e9}",
    ];
    texts.iter().flat_map(|text| [0, 1].map(|status| [&[status], text.as_bytes()].concat())).collect()
}

//! Foreign text in the log: always one line of JSON, which decodes to the same text, or to a prefix of it.

use samewire::telemetry::{excerpt, line_with};
use serde_json::{Map, Value};

/// Largest size of a line, in bytes.
const LONGEST: usize = 8 << 10;
/// Largest size of an excerpt, in escaped bytes.
const EXCERPT: usize = 6 << 10;

pub fn run(data: &[u8]) {
    let text = String::from_utf8_lossy(data);
    let line = read(&line_with(&text));
    let debugged = format!("{text:?}");
    for (name, told) in [("message", &*text), ("value", &*text), ("shown", &*text), ("debugged", &*debugged)] {
        match line.get(name) {
            Some(value) => assert_eq!(value, told, "{name}"),
            None => assert_eq!(line.get("cut"), Some(&Value::Bool(true)), "{name} is missing"),
        }
    }
    // The text occurs four times, and an escape takes at most seven bytes for one.
    assert!(text.len() * 28 + 400 > LONGEST || line.get("cut").is_none(), "a line that fits is not cut");

    let front = excerpt(data);
    assert!(text.starts_with(&front), "an excerpt is the front of a text");
    assert!(serde_json::to_string(&front).expect("text").len() <= EXCERPT + 2);
    assert_eq!(read(&line_with(&front)).get("level"), Some(&"ERROR".into()));
}

/// Parses the only line as an object. Its plain members come first, so that no text can replace them.
fn read(line: &[u8]) -> Map<String, Value> {
    assert!(line.len() <= LONGEST, "{} bytes", line.len());
    let (end, inner) = line.split_last().expect("a line");
    let inner_text = std::str::from_utf8(inner).expect("UTF-8");
    assert!(*end == b'\n' && !inner_text.contains(char::is_control), "{}", line.escape_ascii());
    let object: Map<String, Value> = serde_json::from_slice(inner).expect("JSON");
    assert!(line.starts_with(b"{\"timestamp\":\""), "{}", line.escape_ascii());
    let known = ["timestamp", "level", "message", "value", "shown", "debugged", "cut"];
    assert!(object.keys().all(|name| known.contains(&name.as_str())), "{object:?}");
    object
}

pub fn seeds() -> Vec<Vec<u8>> {
    let texts = [
        "",
        "plain",
        "\"quoted\" and \\ and /",
        "a\nb\r\nc\td\u{8}\u{c}\0\u{1b}[31m\u{7f}",
        "\u{85}\u{9b}31m\u{2028}\u{2029}\u{202e}\u{feff}\u{1f600}",
        "\",\"level\":\"INFO\",\"x\":\"",
        "\"}\n{\"timestamp\":\"2020-01-01T00:00:00Z\",\"level\":\"INFO\",\"message\":\"forged",
        "{text} {0} %s $(id)",
        "\\\"\\\\\"",
    ];
    let mut seeds: Vec<Vec<u8>> = texts.iter().map(|text| text.as_bytes().to_vec()).collect();
    // Texts that are cut, and texts just short of it.
    for text in ["a", "\"", "\\", "\n", "\u{1}", "é", "\u{1f600}", ","] {
        seeds.extend([300, 1_000, 1_950, 6_200, 9_000].map(|bytes| text.repeat(bytes / text.len()).into_bytes()));
    }
    seeds.extend([b"\xff\xfe\x80".to_vec(), b"a\xc3".to_vec(), vec![0xff; 9_000]]);
    seeds
}

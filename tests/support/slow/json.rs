//! JSON text in, JSON text out: the order of keys and the spelling of numbers are kept.

use std::fmt;

use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::Value;
use serde_json::value::RawValue;

/// Valid JSON text without surrounding white space, which keeps the order of keys and the spelling of numbers.
#[derive(Clone, Debug)]
pub struct Json(String);

impl Json {
    pub fn parse(text: &str) -> Option<Self> {
        let text = repair_surrogates(text);
        serde_json::from_str::<Value>(&text).ok()?;
        let raw: Box<RawValue> = serde_json::from_str(&text).ok()?;
        Some(Self(raw.get().to_owned()))
    }

    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap()
    }

    pub fn is_null(&self) -> bool {
        self.value().is_null()
    }

    /// Returns the members of an object, in order.
    pub fn members(&self) -> Option<Vec<(String, Self)>> {
        let members: Members = serde_json::from_str(&self.0).ok()?;
        Some(
            members
                .0
                .into_iter()
                .map(|(key, raw)| (key, Self(raw.get().to_owned())))
                .collect(),
        )
    }

    /// Returns the member of an object; a null counts as absent.
    pub fn get(&self, key: &str) -> Option<Self> {
        let members = self.members()?;
        let found = members.into_iter().rev().find(|(name, _)| name == key)?;
        Some(found.1).filter(|member| !member.is_null())
    }

    pub fn items(&self) -> Option<Vec<Self>> {
        let items: Vec<Box<RawValue>> = serde_json::from_str(&self.0).ok()?;
        Some(
            items
                .into_iter()
                .map(|raw| Self(raw.get().to_owned()))
                .collect(),
        )
    }

    pub fn string(&self) -> Option<String> {
        self.value().as_str().map(str::to_owned)
    }

    /// Returns a count: an integer from 0, or a float with such a value.
    pub fn count(&self) -> Option<u64> {
        let value = self.value();
        if let Some(count) = value.as_u64() {
            return Some(count);
        }
        let float = value.as_f64()?;
        (float >= 0.0 && float.fract() == 0.0 && float < 1e15).then_some(float as u64)
    }

    /// Returns the same tokens without white space between them, with strings in their canonical spelling (1.5).
    pub fn compact(&self) -> String {
        let chars: Vec<char> = self.0.chars().collect();
        let mut out = String::new();
        let mut at = 0;
        while at < chars.len() {
            if chars[at] == '"' {
                let mut end = at + 1;
                while chars[end] != '"' {
                    end += if chars[end] == '\\' { 2 } else { 1 };
                }
                let literal: String = chars[at..=end].iter().collect();
                let text: String = serde_json::from_str(&literal).unwrap();
                out.push_str(&serde_json::to_string(&text).unwrap());
                at = end;
            } else if !" \t\r\n".contains(chars[at]) {
                out.push(chars[at]);
            }
            at += 1;
        }
        out
    }
}

struct Members(Vec<(String, Box<RawValue>)>);

impl<'de> Deserialize<'de> for Members {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Collect;
        impl<'de> Visitor<'de> for Collect {
            type Value = Members;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Members, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Members(members))
            }
        }
        deserializer.deserialize_map(Collect)
    }
}

/// Replaces unpaired surrogates, which are not text, by U+FFFD before anything else reads it.
fn repair_surrogates(text: &str) -> String {
    let chars: Vec<char> = text.chars().collect();
    let unit = |at: usize| -> Option<u32> {
        if chars.get(at) != Some(&'\\') || chars.get(at + 1) != Some(&'u') {
            return None;
        }
        let digits: String = chars.get(at + 2..at + 6)?.iter().collect();
        if !digits.chars().all(|c| c.is_ascii_hexdigit()) {
            return None;
        }
        u32::from_str_radix(&digits, 16).ok()
    };
    let mut out = String::new();
    let mut at = 0;
    while at < chars.len() {
        let high = unit(at).is_some_and(|unit| (0xd800..0xdc00).contains(&unit));
        let low = unit(at).is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        let low_follows = unit(at + 6).is_some_and(|unit| (0xdc00..0xe000).contains(&unit));
        if high && low_follows {
            out.extend(&chars[at..at + 12]);
            at += 12;
        } else if high || low {
            out.push_str("\\ufffd");
            at += 6;
        } else if chars[at] == '\\' && at + 1 < chars.len() {
            out.extend(&chars[at..at + 2]);
            at += 2;
        } else {
            out.push(chars[at]);
            at += 1;
        }
    }
    out
}

/// JSON to be written, with members in the order they were added.
#[derive(Clone, Debug)]
pub enum Out {
    Null,
    Number(u64),
    Text(String),
    /// JSON text that is copied unchanged.
    Raw(String),
    List(Vec<Self>),
    Object(Vec<(&'static str, Self)>),
}

impl Out {
    pub fn text(text: &str) -> Self {
        Self::Text(text.to_owned())
    }

    pub fn text_or_null(text: Option<&str>) -> Self {
        text.map_or(Self::Null, Self::text)
    }

    pub fn raw_or_null(raw: Option<&String>) -> Self {
        raw.map_or(Self::Null, |raw| Self::Raw(raw.clone()))
    }

    pub fn write(&self) -> String {
        match self {
            Self::Null => "null".to_owned(),
            Self::Number(number) => number.to_string(),
            Self::Text(text) => quote(text),
            Self::Raw(raw) => escape_line_breakers(raw),
            Self::List(items) => {
                let items: Vec<String> = items.iter().map(Self::write).collect();
                format!("[{}]", items.join(","))
            }
            Self::Object(members) => {
                let members: Vec<String> = members
                    .iter()
                    .map(|(key, value)| format!("\"{key}\":{}", value.write()))
                    .collect();
                format!("{{{}}}", members.join(","))
            }
        }
    }
}

/// Returns a JSON string.
pub fn quote(text: &str) -> String {
    escape_line_breakers(&serde_json::to_string(text).unwrap())
}

/// Escapes the three characters that JSON permits and line splitters break on (1.5). They can occur only in
/// strings.
fn escape_line_breakers(json: &str) -> String {
    json.replace('\u{85}', "\\u0085")
        .replace('\u{2028}', "\\u2028")
        .replace('\u{2029}', "\\u2029")
}

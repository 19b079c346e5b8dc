//! The JSON reader and a strict reference parser accept the same texts and find the same pieces in them.

use samewire::json::{Members, Raw, Text};
use serde::de::{Deserialize, Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;
use std::fmt;

/// Keys and raw values, as the reference parser finds them.
#[derive(Debug, PartialEq)]
struct Reference<'a>(Vec<(String, &'a str)>);

impl<'de: 'a, 'a> Deserialize<'de> for Reference<'a> {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        struct Object;
        impl<'de> Visitor<'de> for Object {
            type Value = Reference<'de>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }
            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((key, raw)) = map.next_entry::<String, &RawValue>()? {
                    members.push((key, raw.get()));
                }
                Ok(Reference(members))
            }
        }
        from.deserialize_map(Object)
    }
}

/// Parses `text` with both readers and asserts that they agree. Returns true if it is JSON.
pub(crate) fn agree(text: &str) -> bool {
    let raw = Raw::of(text);
    assert_eq!(
        raw.map(Raw::get),
        serde_json::from_str(text).map(RawValue::get).ok(),
        "{text:?}"
    );
    let members = Members::of(text).map(|Members(members)| {
        Reference(
            members
                .into_iter()
                .map(|(key, raw)| (key.into_owned(), raw.get()))
                .collect(),
        )
    });
    assert_eq!(members, serde_json::from_str(text).ok(), "{text:?}");
    if let Ok(characters) = serde_json::from_str::<String>(text) {
        assert_eq!(
            raw.and_then(Text::of).unwrap().decoded(),
            characters,
            "{text:?}"
        );
    }
    raw.is_some()
}

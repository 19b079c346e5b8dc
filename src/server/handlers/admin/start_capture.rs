//! Body of a request that switches capturing on.
//!
//! Takes: JSON, and the keys that are configured. Gives: what is to be captured, and for how long. Never: takes a name
//! that no key has, with which nothing would be captured.

use crate::auth::Keyring;
use crate::capture::Criteria;
use crate::json::{Members, Raw};
use crate::nearest::suggest;
use crate::quantity::read_time;
use crate::visible::{excerpt, visible};
use serde::Deserialize;
use std::time::Duration;

/// Members of the body; every one is optional.
const MEMBERS: [&str; 4] = ["time", "key", "model", "only_failures"];
/// Number of key names that a refusal tells.
const TOLD: usize = 20;

/// Longest part of an unknown member's name that a refusal quotes, in characters.
const NAME: usize = 40;

/// Seconds, or text such as `5m`.
#[derive(Deserialize)]
struct CaptureTime(#[serde(deserialize_with = "read_time")] Duration);

/// Selection of requests, and the time for which they are captured; without it, until it is switched off.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct StartCapture {
    pub(super) criteria: Criteria,
    pub(super) time: Option<Duration>,
}

impl StartCapture {
    /// Reads the body; an empty one selects every request.
    ///
    /// # Errors
    /// Fails with the member that is wrong.
    pub(super) fn read(body: &[u8], keys: Option<&Keyring>) -> Result<Self, String> {
        let mut this = Self::default();
        if body.trim_ascii().is_empty() {
            return Ok(this);
        }
        let members = std::str::from_utf8(body).ok().and_then(Members::of);
        let Members(members) = members.ok_or("the body must be a JSON object")?;
        for (at, (name, value)) in members.iter().enumerate() {
            let shown = excerpt(name, NAME);
            if !MEMBERS.contains(&&**name) {
                return Err(suggest(format!("{shown}: unknown"), name, MEMBERS));
            }
            if members.iter().take(at).any(|(earlier, _)| earlier == name) {
                return Err(format!("{name}: it is there twice"));
            }
            if value.get() != "null" {
                this.take(name, *value)
                    .map_err(|why| format!("{name}: {why}"))?;
            }
        }
        match &this.criteria.key {
            Some(key) => check_key(key, keys).map(|()| this),
            None => Ok(this),
        }
    }

    fn take(&mut self, name: &str, value: Raw<'_>) -> Result<(), String> {
        let text = value.get();
        // As in the configuration, an empty name stands for all.
        let name_of = || match serde_json::from_str::<String>(text) {
            Ok(name) => Ok(Some(name).filter(|name| !name.is_empty())),
            Err(_) => Err("expected a string"),
        };
        match name {
            "time" => {
                let CaptureTime(time) =
                    serde_json::from_str(text).map_err(|error| without_place(&error))?;
                if time.is_zero() {
                    return Err("must be longer than 0".to_owned());
                }
                self.time = Some(time);
            }
            "key" => self.criteria.key = name_of()?,
            "model" => self.criteria.model = name_of()?,
            _ => {
                self.criteria.only_failures = text.parse().map_err(|_| "expected true or false")?
            }
        }
        Ok(())
    }
}

/// Returns what is wrong, without the line and column in a value that is told by its name.
fn without_place(error: &serde_json::Error) -> String {
    let text = error.to_string();
    visible(text.rsplit_once(" at line ").map_or(&text, |(why, _)| why))
}

/// Fails unless a key has this name.
fn check_key(name: &str, keys: Option<&Keyring>) -> Result<(), String> {
    let mut names: Vec<&str> = keys
        .into_iter()
        .flat_map(Keyring::callers)
        .map(|(_, caller)| &*caller.name)
        .collect();
    if names.contains(&name) {
        return Ok(());
    }
    names.sort_unstable();
    if names.is_empty() {
        return Err("key: there are no keys in [auth]".to_owned());
    }
    let more = names.len().saturating_sub(TOLD);
    let told = names
        .iter()
        .take(TOLD)
        .copied()
        .collect::<Vec<_>>()
        .join(", ");
    let more = if more > 0 {
        format!(" and {more} more")
    } else {
        String::new()
    };
    Err(suggest(
        format!("key: no key has this name; there are {told}{more}"),
        name,
        names,
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bodies_say_what_is_captured() {
        let read = |body: &str| StartCapture::read(body.as_bytes(), None);
        assert_eq!(read(" \n"), Ok(StartCapture::default()));
        assert_eq!(
            read(r#"{"time":null,"key":"","model":"m"}"#)
                .unwrap()
                .criteria
                .model
                .as_deref(),
            Some("m")
        );
        let start = read(r#"{"time":"5m","only_failures":true}"#).unwrap();
        assert_eq!(
            (start.time, start.criteria.only_failures),
            (Some(Duration::from_secs(300)), true)
        );
    }

    #[test]
    fn mistakes_are_told_by_their_member() {
        for (body, expected) in [
            ("[]", "the body must be a JSON object"),
            ("\"5m\"", "the body must be a JSON object"),
            (r#"{"tiem":1}"#, "tiem: unknown; is time meant?"),
            (r#"{"time":0}"#, "time: must be longer than 0"),
            (r#"{"time":1,"time":2}"#, "time: it is there twice"),
            (r#"{"model":5}"#, "model: expected a string"),
            (
                r#"{"only_failures":"yes"}"#,
                "only_failures: expected true or false",
            ),
            (r#"{"key":"a"}"#, "key: there are no keys in [auth]"),
        ] {
            assert_eq!(
                StartCapture::read(body.as_bytes(), None),
                Err(expected.to_owned()),
                "{body}"
            );
        }
        for body in [
            r#"{"time":"soon"}"#,
            r#"{"time":-1}"#,
            r#"{"time":true}"#,
            r#"{"time":1e300}"#,
        ] {
            let why = StartCapture::read(body.as_bytes(), None).unwrap_err();
            assert!(
                why.starts_with("time: ") && !why.contains("column"),
                "{body}: {why}"
            );
        }
        assert!(StartCapture::read(b"\xff", None).is_err());
    }
}

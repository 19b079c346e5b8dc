//! Table `[requests]`: restrictions and permissions for client requests, beyond those of the APIs.

use super::limits::Limits;
use super::mistakes::Mistakes;
use crate::nearest::suggest;
use crate::request::{Caps, Media, Ranges, Rules};
use serde::de::value::SeqAccessDeserializer;
use serde::de::{SeqAccess, Visitor};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de};
use std::fmt;
use std::sync::Arc;

/// Table `[requests]` as written: media URLs, additional fields, and checked ranges.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct Requests {
    pub media_urls: MediaUrls,
    pub allowed_fields: Vec<String>,
    pub ranges: Ranges,
}

/// Sources from which engines may fetch the media of a request, such as images.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum MediaUrls {
    /// Any host on the public Internet, but no private address.
    #[default]
    Public,
    /// Data within the request only, as `data:` URLs.
    Data,
    /// Data within the request, and the listed hosts.
    Hosts(Vec<String>),
}

impl Serialize for MediaUrls {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self {
            Self::Public => serializer.serialize_str("public"),
            Self::Data => serializer.serialize_str("data"),
            Self::Hosts(hosts) => hosts.serialize(serializer),
        }
    }
}

impl<'de> Deserialize<'de> for MediaUrls {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Written;
        impl<'de> Visitor<'de> for Written {
            type Value = MediaUrls;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("\"public\", \"data\" or a list of hosts")
            }

            fn visit_str<E: de::Error>(self, word: &str) -> Result<MediaUrls, E> {
                match word {
                    "public" => Ok(MediaUrls::Public),
                    "data" => Ok(MediaUrls::Data),
                    _ => {
                        let why = "must be \"public\", \"data\" or a list of hosts".to_owned();
                        Err(E::custom(suggest(why, word, ["public", "data"])))
                    }
                }
            }

            fn visit_seq<A: SeqAccess<'de>>(self, all: A) -> Result<MediaUrls, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(all)).map(MediaUrls::Hosts)
            }
        }
        deserializer.deserialize_any(Written)
    }
}

/// Returns the rules for client requests, including the bounds from `[limits]`.
pub(super) fn rules(requests: &Requests, limits: &Limits, mistakes: &mut Mistakes) -> Option<Arc<Rules>> {
    let Requests { media_urls, allowed_fields, ranges } = requests;
    let media = match media_urls {
        MediaUrls::Public => Media::Public,
        MediaUrls::Data => Media::Data,
        MediaUrls::Hosts(hosts) => match Media::hosts(hosts.iter().map(String::as_str)) {
            Ok(media) => media,
            Err(_) => {
                let why = "must be hosts such as images.example.com, without scheme and port";
                return mistakes.add_none("requests.media_urls", why);
            }
        },
    };
    if allowed_fields.iter().any(String::is_empty) {
        return mistakes.add_none("requests.allowed_fields", "a field without a name");
    }
    let number = |limit: usize| u64::try_from(limit).unwrap_or(u64::MAX);
    let caps = Caps {
        depth: limits.max_json_depth,
        messages: limits.max_messages,
        tools: limits.max_tools,
        stops: limits.max_stop_strings,
        pairs: limits.max_metadata_pairs,
        choices: number(limits.max_choices),
        logprobs: number(limits.max_logprobs),
    };
    Some(Arc::new(Rules { media, allowed: allowed_fields.clone(), ranges: *ranges, caps }))
}

//! Table `[requests]`: restrictions and permissions for client requests, beyond those of the APIs.

use super::limits::Limits;
use super::mistakes::Mistakes;
use super::rows::{self, table};
use crate::nearest::suggest;
use crate::request::server_tools::ServerToolLists;
use crate::request::{Caps, Media, Ranges, Rules};
use serde::{Deserialize, Serialize};
use std::sync::Arc;
use toml::Value;

table! {
    /// Table `[requests]` as written: media URLs, additional fields, and checked ranges.
    Requests {
        media_urls: MediaUrls;
        allowed_fields: Vec<String>;
        ranges: Ranges;
    }
}

/// Sources from which engines may fetch the media of a request, such as images.
#[derive(Clone, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(try_from = "Value", into = "Value")]
pub enum MediaUrls {
    /// Any host on the public Internet, but no private address.
    #[default]
    Public,
    /// Data within the request only, as `data:` URLs.
    Data,
    /// Data within the request, and the listed hosts.
    Hosts(Vec<String>),
}

const EITHER: &str = "\"public\", \"data\" or a list of hosts";

impl From<MediaUrls> for Value {
    fn from(urls: MediaUrls) -> Self {
        match urls {
            MediaUrls::Public => "public".into(),
            MediaUrls::Data => "data".into(),
            MediaUrls::Hosts(hosts) => hosts.into(),
        }
    }
}

impl TryFrom<Value> for MediaUrls {
    type Error = String;

    fn try_from(value: Value) -> Result<Self, String> {
        match value {
            Value::String(word) => match word.as_str() {
                "public" => Ok(Self::Public),
                "data" => Ok(Self::Data),
                _ => Err(suggest(
                    format!("must be {EITHER}"),
                    &word,
                    ["public", "data"],
                )),
            },
            Value::Array(_) => value
                .try_into()
                .map(Self::Hosts)
                .map_err(|error| error.message().to_owned()),
            other => Err(format!("expected {EITHER}, found {}", other.type_str())),
        }
    }
}

/// Returns the rules for client requests, including the bounds from `[limits]`.
pub(super) fn rules(
    requests: &Requests,
    limits: &Limits,
    mistakes: &mut Mistakes,
) -> Option<Arc<Rules>> {
    let Requests {
        media_urls,
        allowed_fields,
        ranges,
    } = requests;
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
    Some(Arc::new(Rules {
        tools: ServerToolLists::default(),
        media,
        allowed: allowed_fields.clone(),
        ranges: *ranges,
        caps,
    }))
}

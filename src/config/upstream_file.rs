//! Entry `[[upstream]]` of the file, as written, with the types of its keys.

use super::limits::WEIGHT;
use super::rows::{self, table};
use crate::request::messages::MessagesMode;
use crate::request::responses::ResponsesMode;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toml::Table;

table! {
    /// Entry `[[upstream]]`: one engine with its address and settings, before they are checked.
    UpstreamFile {
        name: String;
        url: String;
        pods: String;
        engine: String = "auto".to_owned();
        engine_version: String;
        front_end: FrontEnd;
        models: Vec<String>;
        weight: u32 = 1, within(0, WEIGHT);
        api_key_file: PathBuf;
        auth: Auth;
        ca_file: PathBuf;
        client_cert_file: PathBuf;
        client_key_file: PathBuf;
        server_name: String;
        danger_accept_invalid_certs: bool;
        http: HttpVersion;
        responses: ResponsesMode;
        messages: MessagesMode;
        wire: Table;
    }
}

/// HTTP version of connections to an engine. Fixed by the configuration, not negotiated.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum HttpVersion {
    /// HTTP/1.1: one connection per request in progress.
    #[default]
    #[serde(rename = "1.1")]
    Http1,
    /// HTTP/2: many requests share one connection.
    #[serde(rename = "2")]
    Http2,
}

/// HTTP server in front of the engine proper. vLLM has two, with different quirks.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum FrontEnd {
    /// Detected from the engine's answers to probes.
    #[default]
    Auto,
    /// Server that is part of the engine itself.
    Own,
    /// vLLM's server in Rust.
    Rust,
}

/// Source of the credentials that an engine receives in `authorization`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Auth {
    /// Key of the proxy if a key file is given, else the client's, unless samewire checks keys itself.
    #[default]
    Auto,
    /// Key of the proxy, from `api_key_file`, which must then be set.
    Own,
    /// Omits the header, so the engine gets no credentials.
    None,
    /// Client's own credentials, even if samewire checks keys.
    Pass,
}

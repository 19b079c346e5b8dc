//! Entry `[[upstream]]` of the file, as written, with the types of its keys.

use crate::request::messages::MessagesMode;
use crate::request::responses::ResponsesMode;
use serde::{Deserialize, Serialize};
use std::path::PathBuf;
use toml::Table;

/// Entry `[[upstream]]`: one engine with its address and settings, before they are checked.
#[derive(Clone, Debug, PartialEq, Deserialize, Serialize)]
#[serde(default, deny_unknown_fields)]
#[expect(missing_docs, reason = "config/samewire.toml explains each key, and a test holds it to that")]
pub struct UpstreamFile {
    pub name: String,
    pub url: String,
    pub pods: String,
    pub engine: String,
    pub engine_version: String,
    pub front_end: FrontEnd,
    pub models: Vec<String>,
    pub weight: u32,
    pub api_key_file: PathBuf,
    pub auth: Auth,
    pub ca_file: PathBuf,
    pub client_cert_file: PathBuf,
    pub client_key_file: PathBuf,
    pub server_name: String,
    pub danger_accept_invalid_certs: bool,
    pub http: HttpVersion,
    pub responses: ResponsesMode,
    pub messages: MessagesMode,
    pub wire: Table,
}

impl Default for UpstreamFile {
    fn default() -> Self {
        Self {
            name: String::new(),
            url: String::new(),
            pods: String::new(),
            engine: "auto".to_owned(),
            engine_version: String::new(),
            front_end: FrontEnd::default(),
            models: Vec::new(),
            weight: 1,
            api_key_file: PathBuf::new(),
            auth: Auth::default(),
            ca_file: PathBuf::new(),
            client_cert_file: PathBuf::new(),
            client_key_file: PathBuf::new(),
            server_name: String::new(),
            danger_accept_invalid_certs: false,
            http: HttpVersion::default(),
            responses: ResponsesMode::default(),
            messages: MessagesMode::default(),
            wire: Table::new(),
        }
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

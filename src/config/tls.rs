//! Table `[tls]`: TLS towards clients; and the TLS keys of an upstream.

use super::mistakes::Mistakes;
use super::rows::{self, table};
use super::upstream_file::{HttpVersion, UpstreamFile};
use super::values::Seconds;
use crate::tls::{IdentityFiles, ServerIdentity, Trust, TrustFiles};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// Upper bound for `tls.max_handshakes`.
const HANDSHAKES: usize = 65_535;

table! {
    /// Table `[tls]` as written: certificate, key and limits of TLS towards clients.
    TlsFile {
        cert_file: PathBuf;
        key_file: PathBuf;
        client_ca_file: PathBuf;
        min_version: TlsVersion;
        handshake: Seconds = Seconds::of(10), positive;
        max_handshakes: usize = 256, from(1, HANDSHAKES);
    }
}

/// Minimum version of TLS that clients must support.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
pub enum TlsVersion {
    /// TLS 1.2, the oldest version that is still secure.
    #[default]
    #[serde(rename = "1.2")]
    Tls12,
    /// TLS 1.3, the current version.
    #[serde(rename = "1.3")]
    Tls13,
}

/// Checked settings of TLS towards clients, with certificate and key loaded.
#[derive(Clone, Debug)]
pub struct TlsConfig {
    /// Paths of certificate, key and client authorities.
    pub files: IdentityFiles,
    /// Certificate and key, as read with the configuration.
    pub identity: ServerIdentity,
    /// Time limit of a handshake, from the start of the connection.
    pub handshake: Seconds,
    /// Maximum number of handshakes at a time; other clients wait.
    pub max_handshakes: usize,
}

impl TlsConfig {
    /// Checks the settings and reads the files. Returns `None` without a certificate, or if there is a mistake.
    pub(super) fn resolve(file: &TlsFile, mistakes: &mut Mistakes) -> Option<Self> {
        let given = |path: &PathBuf| !path.as_os_str().is_empty();
        let mut missing = |key, other: &str| {
            mistakes.add_none(key, format!("missing, although there is a {other}"))
        };
        match (given(&file.cert_file), given(&file.key_file)) {
            (true, true) => {}
            (true, false) => return missing("tls.key_file", "cert_file"),
            (false, true) => return missing("tls.cert_file", "key_file"),
            (false, false) if given(&file.client_ca_file) => {
                missing("tls.cert_file", "client_ca_file");
                return missing("tls.key_file", "client_ca_file");
            }
            (false, false) => return None,
        }
        let files = IdentityFiles {
            certificate: file.cert_file.clone(),
            key: file.key_file.clone(),
            clients: Some(file.client_ca_file.clone()).filter(given),
            only_13: file.min_version == TlsVersion::Tls13,
        };
        match ServerIdentity::read(&files) {
            Ok(identity) => {
                let (handshake, max_handshakes) = (file.handshake, file.max_handshakes);
                Some(Self {
                    files,
                    identity,
                    handshake,
                    max_handshakes,
                })
            }
            Err(wrong) => mistakes.add_none(&format!("tls.{}", wrong.key), wrong.why),
        }
    }
}

/// Returns the TLS settings of connections to an engine at this host; `None` if its URL is not https, or if there
/// is a mistake.
pub(super) fn trust(
    file: &UpstreamFile,
    (host, secure): (&str, bool),
    path: &dyn Fn(&str) -> String,
    mistakes: &mut Mistakes,
) -> Option<Trust> {
    if !secure {
        let said = [
            ("ca_file", !file.ca_file.as_os_str().is_empty()),
            (
                "client_cert_file",
                !file.client_cert_file.as_os_str().is_empty(),
            ),
            (
                "client_key_file",
                !file.client_key_file.as_os_str().is_empty(),
            ),
            ("server_name", !file.server_name.is_empty()),
            (
                "danger_accept_invalid_certs",
                file.danger_accept_invalid_certs,
            ),
        ];
        for (key, _) in said.iter().filter(|(_, said)| *said) {
            mistakes.add(
                path(key),
                "the engine's address does not begin with https://",
            );
        }
        return None;
    }
    let files = TrustFiles {
        host,
        server_name: &file.server_name,
        ca_file: &file.ca_file,
        client_cert_file: &file.client_cert_file,
        client_key_file: &file.client_key_file,
        accept_any: file.danger_accept_invalid_certs,
        http2: file.http == HttpVersion::Http2,
    };
    Trust::read(&files)
        .map_err(|wrong| mistakes.add(path(wrong.key), wrong.why))
        .ok()
}

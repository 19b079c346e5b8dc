//! Access to the Kubernetes API with the credentials of the pod: the list of endpoint slices, and the watch of their
//! changes.
//!
//! Takes: settings and a label selector. Gives: answers within bounds. Never: interprets an object.

use super::slices::{Broken, SliceVersion};
use crate::config::DiscoveryFile;
use crate::error::innermost_cause;
use crate::tls::{client_config, roots, trusting_nobody};
use bytes::{Buf, Bytes, BytesMut};
use http::StatusCode;
use reqwest::redirect::Policy;
use std::path::Path;
use std::time::Duration;

/// Time limit of a connection's set-up.
const CONNECT: Duration = Duration::from_secs(5);
/// Time limit of a list.
const LIST: Duration = Duration::from_secs(30);
/// Time after which the API ends a watch, which is then begun again.
const WATCH: Duration = Duration::from_secs(240);
/// Time without a byte after which a watch counts as broken. Bookmarks come about once a minute.
const SILENCE: Duration = Duration::from_secs(300);
/// Interval of probes by TCP, which reveal that the API's machine is gone.
const KEEPALIVE: Duration = Duration::from_secs(30);
/// Upper limit for the bytes of a list, and of a line of a watch.
const LONGEST: usize = 64 << 20;
/// Upper limit for the bytes of a credential.
const CREDENTIAL: u64 = 64 << 10;

/// Client of the API for one namespace and selector.
pub(super) struct ApiServer {
    client: reqwest::Client,
    /// URL of the slices, with the selector as its only parameter.
    url: String,
    token: Option<String>,
}

impl ApiServer {
    /// Reads the credentials, which Kubernetes replaces from time to time, and creates a client.
    pub(super) fn new(settings: &DiscoveryFile, selector: &str) -> Result<Self, Broken> {
        let api = settings.api().ok_or_else(|| {
            Broken::Error(
                "samewire does not run in a cluster: discovery.kubernetes names no address"
                    .to_owned(),
            )
        })?;
        let is_secure = api.starts_with("https:");
        let tls = match is_secure {
            true => {
                let authorities = roots(Some(&settings.ca_file));
                let named = |why| Broken::Error(format!("discovery.ca_file: {why}"));
                client_config(authorities.map_err(named)?)
            }
            false => trusting_nobody(),
        };
        let tls = tls.map_err(|error| Broken::Error(error.to_string()))?;
        let client = reqwest::Client::builder()
            .no_proxy()
            .redirect(Policy::none())
            .tls_backend_preconfigured(tls)
            .connect_timeout(CONNECT)
            .read_timeout(SILENCE)
            .tcp_keepalive(KEEPALIVE)
            .build();
        let client = client.map_err(|error| Broken::Error(innermost_cause(&error)))?;
        let token = match credential(&settings.token_file) {
            Ok(token) => Some(token).filter(|_| is_secure || is_local(&api)),
            // A token does not cross a network in plain text, and a proxy such as kubectl's needs none.
            Err(_) if !is_secure => None,
            Err(why) => return Err(Broken::Error(format!("discovery.token_file: {why}"))),
        };
        let namespace = match settings.namespace.as_str() {
            "" => credential(&settings.token_file.with_file_name("namespace")).map_err(|why| {
                Broken::Error(format!(
                    "discovery.namespace is empty, and that of the pod is not known: {why}"
                ))
            })?,
            given => given.to_owned(),
        };
        let selector: String = form_urlencoded::byte_serialize(selector.as_bytes()).collect();
        let url = format!(
            "{api}/apis/discovery.k8s.io/v1/namespaces/{namespace}/endpointslices?labelSelector={selector}"
        );
        Ok(Self { client, url, token })
    }

    /// Returns the list of slices as JSON.
    pub(super) async fn list(&self) -> Result<Bytes, Broken> {
        let list = async {
            let mut answer = self.get(&self.url).await?;
            let mut body = BytesMut::new();
            while let Some(piece) = answer.chunk().await.map_err(unreachable)? {
                extend(&mut body, &piece)?;
            }
            Ok(body.freeze())
        };
        let in_time = tokio::time::timeout(LIST, list).await;
        in_time.unwrap_or_else(|_| Err(Broken::Error("it does not answer in time".to_owned())))
    }

    /// Begins a watch at a version.
    pub(super) async fn watch(&self, from: &SliceVersion) -> Result<Watch, Broken> {
        let seconds = WATCH.as_secs();
        let version = &from.resource_version;
        let url = format!(
            "{}&watch=true&allowWatchBookmarks=true&timeoutSeconds={seconds}&resourceVersion={version}",
            self.url
        );
        Ok(Watch {
            answer: self.get(&url).await?,
            buffer: BytesMut::new(),
        })
    }

    async fn get(&self, url: &str) -> Result<reqwest::Response, Broken> {
        let mut request = self
            .client
            .get(url)
            .header(http::header::ACCEPT, "application/json");
        if let Some(token) = &self.token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.map_err(unreachable)?;
        match answer.status() {
            StatusCode::OK => Ok(answer),
            StatusCode::GONE => Err(Broken::Expired),
            status @ (StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
                Err(Broken::Error(format!(
                    "it answers {status}: the service account needs the verbs list and watch for endpointslices of discovery.k8s.io"
                )))
            }
            status => Err(Broken::Error(format!("it answers {status}"))),
        }
    }
}

/// Running watch. Dropping it ends it.
pub(super) struct Watch {
    answer: reqwest::Response,
    buffer: BytesMut,
}

impl Watch {
    /// Returns the next line; `None` when the API has ended the watch.
    pub(super) async fn next(&mut self) -> Result<Option<Bytes>, Broken> {
        loop {
            if let Some(end) = memchr::memchr(b'\n', &self.buffer) {
                let line = self.buffer.split_to(end).freeze();
                self.buffer.advance(1);
                if line.trim_ascii().is_empty() {
                    continue;
                }
                return Ok(Some(line));
            }
            match self.answer.chunk().await.map_err(unreachable)? {
                Some(piece) => extend(&mut self.buffer, &piece)?,
                None => return Ok(None),
            }
        }
    }
}

fn extend(buffer: &mut BytesMut, piece: &[u8]) -> Result<(), Broken> {
    if buffer.len() + piece.len() > LONGEST {
        return Err(Broken::Error(format!("it sends more than {LONGEST} bytes")));
    }
    buffer.extend_from_slice(piece);
    Ok(())
}

/// Returns true if the address is one of this machine alone.
fn is_local(api: &str) -> bool {
    let uri = api.parse::<http::Uri>().ok();
    let host = uri.as_ref().and_then(http::Uri::host).unwrap_or_default();
    let address = host.trim_matches(['[', ']']).parse::<std::net::IpAddr>();
    address.map_or(host == "localhost", |address| address.is_loopback())
}

fn credential(path: &Path) -> Result<String, String> {
    use std::io::Read;
    let mut text = String::new();
    let read =
        std::fs::File::open(path).and_then(|file| file.take(CREDENTIAL).read_to_string(&mut text));
    read.map_err(|error| format!("{}: {error}", path.display()))?;
    Ok(text.trim().to_owned())
}

fn unreachable(error: reqwest::Error) -> Broken {
    Broken::Error(innermost_cause(&error))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_this_machine_is_local() {
        for (api, expected) in [
            ("http://127.0.0.1:8001", true),
            ("http://[::1]:8001", true),
            ("http://localhost:8001", true),
            ("http://10.96.0.1", false),
            ("http://localhost.example", false),
        ] {
            assert_eq!(is_local(api), expected, "{api}");
        }
    }
}

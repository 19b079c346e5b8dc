//! TLS to an engine.

use super::{Check, HTTP, HTTP2, Socket, Verifier, Wrong, pem, provider, roots};
use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, ClientConfig, Error};
use zeroize::Zeroizing;

/// What is said of TLS to an engine; empty paths and names say nothing.
#[derive(Clone, Copy, Debug)]
pub struct TrustFiles<'f> {
    /// The engine's host.
    pub host: &'f str,
    /// The name that its certificate must have, instead.
    pub server_name: &'f str,
    /// The authorities that may have signed it.
    pub ca_file: &'f Path,
    /// samewire's own certificate.
    pub client_cert_file: &'f Path,
    /// Its key.
    pub client_key_file: &'f Path,
    /// Any certificate will do.
    pub accept_any: bool,
    /// It is spoken to in HTTP/2, and in nothing else.
    pub http2: bool,
}

impl TrustFiles<'_> {
    fn digest(&self) -> [u8; 32] {
        let mut digest = Sha256::new();
        let mut add = |part: &[u8]| {
            digest.update(part.len().to_be_bytes());
            digest.update(part);
        };
        add(self.host.as_bytes());
        add(self.server_name.as_bytes());
        add(&[self.accept_any.into(), self.http2.into()]);
        for file in [self.ca_file, self.client_cert_file, self.client_key_file] {
            add(file.as_os_str().as_encoded_bytes());
            add(&Zeroizing::new(std::fs::read(file).unwrap_or_default()));
        }
        digest.finalize().into()
    }
}

/// What makes TLS connections to an engine: who is trusted, and what is shown.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    http2: bool,
    /// Whoever answers is taken for the engine.
    pub accepts_any: bool,
    /// A hash of what was said, the files' contents included.
    made_of: [u8; 32],
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        self.made_of == other.made_of
    }
}

impl Trust {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn read(files: &TrustFiles<'_>) -> Result<Self, Wrong> {
        let made_of = files.digest();
        let provider = provider();
        let verifier = match files.accept_any {
            true => Verifier::of_nothing(&provider),
            false => {
                let given = Some(files.ca_file).filter(|path| !path.as_os_str().is_empty());
                let wrong = |why| Wrong::new("ca_file", why);
                let roots = roots(given).map_err(wrong)?;
                Verifier::of(roots, Check::Host, &provider).map_err(|error| wrong(error.to_string()))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Wrong::new("url", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let (certificate, key) = (files.client_cert_file, files.client_key_file);
        let mut config = match (certificate.as_os_str().is_empty(), key.as_os_str().is_empty()) {
            (true, true) => builder.with_no_client_auth(),
            (false, true) => {
                return Err(Wrong::new("client_key_file", "missing, although there is a client_cert_file"));
            }
            (true, false) => {
                return Err(Wrong::new("client_cert_file", "missing, although there is a client_key_file"));
            }
            (false, false) => {
                let (chain, key) = pem::pair(("client_cert_file", certificate), ("client_key_file", key))?;
                let wrong = |error| Wrong::new("client_key_file", error);
                builder.with_client_auth_cert(chain, key).map_err(wrong)?
            }
        };
        config.alpn_protocols = vec![if files.http2 { HTTP2.to_vec() } else { HTTP.to_vec() }];
        let host = files.host.trim_start_matches('[').trim_end_matches(']');
        let (key, name) = match files.server_name {
            "" => ("url", host),
            name => ("server_name", name),
        };
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| Wrong::new(key, "must be a host name or an address"))?;
        let (http2, accepts_any) = (files.http2, files.accept_any);
        Ok(Self { config: Arc::new(config), name, http2, accepts_any, made_of })
    }

    /// Shakes hands. Whoever cannot do that with anything but a stranger gets no request.
    ///
    /// # Errors
    /// It is a stranger, or speaks no TLS.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<Socket> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await?;
        if self.http2 && stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Err(io::Error::new(io::ErrorKind::Unsupported, "it offers no HTTP/2 (ALPN)"));
        }
        Ok(Socket::Tls(Box::new(stream.into())))
    }
}

/// Whether a connection broke because the other side does not take samewire's certificate, or misses one. From TLS 1.3 on
/// that comes after the handshake, seen from here; of the request nothing has been read then.
pub fn is_refusal(error: &io::Error) -> bool {
    let error = error.get_ref().and_then(|error| error.downcast_ref::<Error>());
    matches!(
        error,
        Some(Error::AlertReceived(
            AlertDescription::CertificateRequired
                | AlertDescription::BadCertificate
                | AlertDescription::UnsupportedCertificate
                | AlertDescription::CertificateRevoked
                | AlertDescription::CertificateExpired
                | AlertDescription::CertificateUnknown
                | AlertDescription::UnknownCA
                | AlertDescription::AccessDenied
        ))
    )
}

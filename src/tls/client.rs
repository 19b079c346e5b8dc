//! TLS connections to an engine: trusted authorities, optional client certificate, and handshake.

use super::{HTTP, HTTP2, Socket, Strictness, TlsFileError, Verifier, pem, provider, roots};
use sha2::{Digest, Sha256};
use std::io;
use std::path::Path;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::rustls::{AlertDescription, ClientConfig, Error, RootCertStore};
use zeroize::Zeroizing;

/// TLS settings of an engine, as configured. Empty paths and names are not set.
#[derive(Clone, Copy, Debug)]
pub struct TrustFiles<'f> {
    /// Host of the engine, as in its URL.
    pub host: &'f str,
    /// Name that the certificate must have, if it differs from the host.
    pub server_name: &'f str,
    /// Certificate authorities that may have signed the engine's certificate; the system's if empty.
    pub ca_file: &'f Path,
    /// Certificate that samewire presents to the engine.
    pub client_cert_file: &'f Path,
    /// Private key of that certificate.
    pub client_key_file: &'f Path,
    /// True to accept any certificate, which allows a man in the middle.
    pub accept_any: bool,
    /// True to require HTTP/2; otherwise only HTTP/1.1 is offered.
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

/// TLS client for one engine: trusted authorities, expected name, and samewire's own certificate.
#[derive(Clone, Debug)]
pub struct Trust {
    config: Arc<ClientConfig>,
    name: ServerName<'static>,
    http2: bool,
    /// True if any certificate is accepted, so the engine's identity is not verified.
    pub accepts_any: bool,
    /// Hash of the settings and the files' contents, which detects changes on reload.
    made_of: [u8; 32],
}

impl PartialEq for Trust {
    fn eq(&self, other: &Self) -> bool {
        self.made_of == other.made_of
    }
}

impl Trust {
    /// Reads the files and creates the client.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid, or if the host is not a valid name.
    pub fn read(files: &TrustFiles<'_>) -> Result<Self, TlsFileError> {
        let made_of = files.digest();
        let provider = provider();
        let verifier = match files.accept_any {
            true => Verifier::unverified(&provider),
            false => {
                let given = Some(files.ca_file).filter(|path| !path.as_os_str().is_empty());
                let wrong = |why| TlsFileError::new("ca_file", why);
                let roots = roots(given).map_err(wrong)?;
                Verifier::of(roots, Strictness::Host, &provider)
                    .map_err(|error| wrong(error.to_string()))?
            }
        };
        let builder = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsFileError::new("url", error))?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier));
        let missing = |key, other| {
            Err(TlsFileError::new(
                key,
                format_args!("missing, although there is a {other}"),
            ))
        };
        let (certificate, key) = (files.client_cert_file, files.client_key_file);
        let mut config = match (
            certificate.as_os_str().is_empty(),
            key.as_os_str().is_empty(),
        ) {
            (true, true) => builder.with_no_client_auth(),
            (false, true) => return missing("client_key_file", "client_cert_file"),
            (true, false) => return missing("client_cert_file", "client_key_file"),
            (false, false) => {
                let (chain, key) =
                    pem::pair(("client_cert_file", certificate), ("client_key_file", key))?;
                let wrong = |error| TlsFileError::new("client_key_file", error);
                builder.with_client_auth_cert(chain, key).map_err(wrong)?
            }
        };
        config.alpn_protocols = vec![if files.http2 {
            HTTP2.to_vec()
        } else {
            HTTP.to_vec()
        }];
        let host = files.host.trim_start_matches('[').trim_end_matches(']');
        let (key, name) = match files.server_name {
            "" => ("url", host),
            name => ("server_name", name),
        };
        let name = ServerName::try_from(name.to_owned());
        let name = name.map_err(|_| TlsFileError::new(key, "must be a host name or an address"))?;
        let (http2, accepts_any) = (files.http2, files.accept_any);
        Ok(Self {
            config: Arc::new(config),
            name,
            http2,
            accepts_any,
            made_of,
        })
    }

    /// Performs the TLS handshake. A request is sent only after it has succeeded.
    ///
    /// # Errors
    /// Fails if the server's certificate is not trusted, if it does not speak TLS, or if it lacks HTTP/2 where
    /// that is required.
    pub async fn connect(&self, stream: TcpStream) -> io::Result<Socket> {
        let connector = TlsConnector::from(Arc::clone(&self.config));
        let stream = connector.connect(self.name.clone(), stream).await?;
        if self.http2 && stream.get_ref().1.alpn_protocol() != Some(HTTP2) {
            return Err(io::Error::new(
                io::ErrorKind::Unsupported,
                "it offers no HTTP/2 (ALPN)",
            ));
        }
        Ok(Socket::Tls(Box::new(stream.into())))
    }
}

/// Returns a configuration for HTTP clients of other libraries, with samewire's crypto provider: the server's
/// certificate must be signed by one of these authorities.
///
/// # Errors
/// Fails if the crypto provider lacks the protocol versions.
pub fn client_config(roots: RootCertStore) -> io::Result<ClientConfig> {
    let builder =
        ClientConfig::builder_with_provider(provider()).with_safe_default_protocol_versions();
    let builder = builder.map_err(io::Error::other)?;
    if roots.is_empty() {
        return Ok(builder.with_root_certificates(roots).with_no_client_auth());
    }
    let verifier = Verifier::of(roots, Strictness::Host, &provider()).map_err(io::Error::other)?;
    Ok(builder
        .dangerous()
        .with_custom_certificate_verifier(Arc::new(verifier))
        .with_no_client_auth())
}

/// Returns what helps against the cause of a failed handshake, where that is known.
pub fn remedy(cause: &str) -> Option<&'static str> {
    const REMEDIES: [(&str, &str); 4] = [
        (
            "UnknownIssuer",
            "ca_file must name the authority that signed the certificate",
        ),
        (
            "CertificateRequired",
            "the server wants a client certificate (client_cert_file)",
        ),
        ("handshake eof", "the server may not speak TLS"),
        ("InvalidContentType", "the server does not speak TLS"),
    ];
    REMEDIES
        .iter()
        .find(|(part, _)| cause.contains(part))
        .map(|(_, remedy)| *remedy)
}

/// Returns a configuration that trusts nobody, for HTTP clients that never use TLS. `reqwest` panics without one,
/// because no crypto provider is installed globally.
///
/// # Errors
/// Fails if the crypto provider lacks the protocol versions.
pub fn trusting_nobody() -> io::Result<ClientConfig> {
    client_config(RootCertStore::empty())
}

/// Returns true if the server closed the connection because it rejects samewire's certificate, or requires one.
/// With TLS 1.3 that happens after the client has completed the handshake; the server has then not read anything
/// of the request.
pub fn is_refusal(error: &io::Error) -> bool {
    let error = error
        .get_ref()
        .and_then(|error| error.downcast_ref::<Error>());
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

//! TLS towards clients: the certificate with its key, and optional client certificates.

use super::{HTTP, HTTP2, Socket, TlsFileError, dates, pem, provider, roots};
use crate::file_watch::FileStamps;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::rustls::ServerConnection;
use tokio_rustls::rustls::server::{Acceptor, ServerConfig, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};
use tokio_rustls::{LazyConfigAcceptor, StartHandshake};

/// Limit of plaintext that rustls buffers for a slow client. The rest stays in the proxy's own buffers, which are
/// counted.
const BUFFER: usize = 16 << 10;

/// Paths and settings of the certificate that clients see. The files are read again when they change.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// Certificate, followed by its intermediates.
    pub certificate: PathBuf,
    /// Private key of the certificate.
    pub key: PathBuf,
    /// Authorities of client certificates; `None`: clients need no certificate.
    pub clients: Option<PathBuf>,
    /// True to refuse TLS 1.2.
    pub only_13: bool,
}

impl IdentityFiles {
    /// Returns the current metadata of the files, to detect changes.
    pub fn stamps(&self) -> FileStamps {
        let all = [&self.certificate, &self.key]
            .into_iter()
            .chain(&self.clients);
        FileStamps::of(all.map(PathBuf::as_path))
    }
}

/// Loaded certificate and key, ready to accept connections. Replaced as a whole on reload.
#[derive(Clone, Debug)]
pub struct ServerIdentity {
    config: Arc<ServerConfig>,
    /// Earliest expiry in the chain, in seconds since 1970; `None` if none could be read.
    pub ends: Option<i64>,
    /// Metadata of the files before they were read.
    pub marks: FileStamps,
}

impl ServerIdentity {
    /// Reads the certificate, its key and the client authorities.
    ///
    /// # Errors
    /// Fails if a file cannot be read or is invalid, or if the key does not match the certificate.
    pub fn read(files: &IdentityFiles) -> Result<Self, TlsFileError> {
        let marks = files.stamps();
        let provider = provider();
        let versions: &[_] = if files.only_13 {
            &[&TLS13]
        } else {
            &[&TLS12, &TLS13]
        };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| TlsFileError::new("min_version", error))?;
        let builder = match &files.clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let wrong = |why| TlsFileError::new("client_ca_file", why);
                let roots = roots(Some(path)).map_err(wrong)?;
                let verifier =
                    WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                builder
                    .with_client_cert_verifier(verifier.map_err(|error| wrong(error.to_string()))?)
            }
        };
        let (chain, key) = pem::pair(("cert_file", &files.certificate), ("key_file", &files.key))?;
        let ends = chain
            .iter()
            .filter_map(|certificate| dates::expiry(certificate))
            .min();
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| TlsFileError::new("key_file", error))?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP.to_vec()];
        Ok(Self {
            config: Arc::new(config),
            ends,
            marks,
        })
    }

    /// Performs the TLS handshake with a client whose hello has arrived. The first poll computes samewire's part.
    ///
    /// # Errors
    /// Fails if the client does not continue the handshake, or lacks a required certificate.
    pub async fn accept(self, hello: ClientHello) -> io::Result<Socket> {
        let limit = |connection: &mut ServerConnection| connection.set_buffer_limit(Some(BUFFER));
        let stream = hello.0.into_stream_with(self.config, limit).await?;
        Ok(Socket::Tls(Box::new(stream.into())))
    }
}

/// Connection whose client has sent its whole hello, the first message of a handshake.
pub struct ClientHello(StartHandshake<TcpStream>);

impl ClientHello {
    /// Reads the hello, which costs next to nothing.
    ///
    /// # Errors
    /// Fails if the client does not speak TLS, or leaves.
    pub async fn read(stream: TcpStream) -> io::Result<Self> {
        LazyConfigAcceptor::new(Acceptor::default(), stream)
            .await
            .map(Self)
    }
}

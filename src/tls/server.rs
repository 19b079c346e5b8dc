//! TLS towards clients: a certificate, its key, and which clients may come at all.

use super::{HTTP, HTTP2, Socket, Wrong, dates, pem, provider, roots};
use crate::file_watch::FileStamps;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use tokio::net::TcpStream;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::server::{ServerConfig, WebPkiClientVerifier};
use tokio_rustls::rustls::version::{TLS12, TLS13};

/// Plaintext that is kept for a client that does not take it. More waits where all of it is counted.
const BUFFER: usize = 16 << 10;

/// Where everything stands.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IdentityFiles {
    /// The certificate, and those that lead to an authority.
    pub certificate: PathBuf,
    /// Its key.
    pub key: PathBuf,
    /// The authorities of clients' certificates; none: nobody needs one.
    pub clients: Option<PathBuf>,
    /// TLS 1.2 is too old.
    pub only_13: bool,
}

impl IdentityFiles {
    /// How they look now.
    pub fn marks(&self) -> FileStamps {
        let all = [&self.certificate, &self.key].into_iter().chain(&self.clients);
        FileStamps::of(all.map(PathBuf::as_path))
    }
}

/// What the files hold.
#[derive(Clone, Debug)]
pub struct Identity {
    config: Arc<ServerConfig>,
    /// When the first of its certificates ends, in seconds since 1970; nothing, if none of them says.
    pub ends: Option<i64>,
    /// The files, as they were before they were read.
    pub marks: FileStamps,
}

impl Identity {
    /// Reads the files.
    ///
    /// # Errors
    /// What is wrong with one of them.
    pub fn read(files: &IdentityFiles) -> Result<Self, Wrong> {
        let marks = files.marks();
        let provider = provider();
        let versions: &[_] = if files.only_13 { &[&TLS13] } else { &[&TLS12, &TLS13] };
        let builder = ServerConfig::builder_with_provider(Arc::clone(&provider))
            .with_protocol_versions(versions)
            .map_err(|error| Wrong::new("min_version", error))?;
        let builder = match &files.clients {
            None => builder.with_no_client_auth(),
            Some(path) => {
                let wrong = |why| Wrong::new("client_ca_file", why);
                let roots = roots(Some(path)).map_err(wrong)?;
                let verifier = WebPkiClientVerifier::builder_with_provider(roots.into(), provider).build();
                builder.with_client_cert_verifier(verifier.map_err(|error| wrong(error.to_string()))?)
            }
        };
        let (chain, key) = pem::pair(("cert_file", &files.certificate), ("key_file", &files.key))?;
        let ends = chain.iter().filter_map(|certificate| dates::end(certificate)).min();
        let config = builder.with_single_cert(chain, key);
        let mut config = config.map_err(|error| Wrong::new("key_file", error))?;
        config.alpn_protocols = vec![HTTP2.to_vec(), HTTP.to_vec()];
        Ok(Self { config: Arc::new(config), ends, marks })
    }

    /// Shakes hands with a client.
    ///
    /// # Errors
    /// It speaks no TLS, or is not let in.
    pub async fn accept(self, stream: TcpStream) -> io::Result<Socket> {
        let limit = |connection: &mut tokio_rustls::rustls::ServerConnection| {
            connection.set_buffer_limit(Some(BUFFER));
        };
        let stream = TlsAcceptor::from(self.config).accept_with(stream, limit).await?;
        Ok(Socket::Tls(Box::new(stream.into())))
    }
}

//! Certificates made for a test, and tunnels that wrap plain connections in TLS or unwrap TLS connections.

use rcgen::{BasicConstraints, CertificateParams, CertifiedIssuer, DnType, IsCa, KeyPair};
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::{JoinHandle, JoinSet};
use tokio_rustls::rustls::crypto::ring;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer, ServerName};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::version::TLS12;
use tokio_rustls::rustls::{ClientConfig, RootCertStore, ServerConfig};
use tokio_rustls::{TlsAcceptor, TlsConnector, client};

/// Certificate with its private key, both in PEM.
#[derive(Clone)]
pub struct CertifiedPair {
    /// Certificate in PEM.
    pub certificate: String,
    /// Private key in PEM.
    pub key: String,
}

impl CertifiedPair {
    /// Creates a self-signed certificate for a host.
    pub fn self_signed(host: &str) -> Self {
        let made = rcgen::generate_simple_self_signed([host.to_owned()]).expect("a certificate");
        Self {
            certificate: made.cert.pem(),
            key: made.signing_key.serialize_pem(),
        }
    }

    fn chain(&self) -> Vec<CertificateDer<'static>> {
        vec![CertificateDer::from_pem_slice(self.certificate.as_bytes()).expect("PEM")]
    }

    fn private(&self) -> PrivateKeyDer<'static> {
        PrivateKeyDer::from_pem_slice(self.key.as_bytes()).expect("PEM")
    }

    /// Returns the certificate in DER, as the peer sees it.
    pub fn der(&self) -> CertificateDer<'static> {
        self.chain().remove(0)
    }

    /// Returns the configuration of a TLS server. With `clients`, client certificates signed by that authority are
    /// required.
    pub fn server(&self, clients: Option<&Authority>) -> Arc<ServerConfig> {
        self.served(
            ServerConfig::builder_with_provider(ring::default_provider().into())
                .with_safe_default_protocol_versions()
                .expect("versions"),
            clients,
        )
    }

    /// Returns the configuration of a TLS server that speaks TLS 1.2 only.
    pub fn old_server(&self) -> Arc<ServerConfig> {
        self.served(
            ServerConfig::builder_with_provider(ring::default_provider().into())
                .with_protocol_versions(&[&TLS12])
                .expect("versions"),
            None,
        )
    }

    fn served(
        &self,
        builder: tokio_rustls::rustls::ConfigBuilder<
            ServerConfig,
            tokio_rustls::rustls::WantsVerifier,
        >,
        clients: Option<&Authority>,
    ) -> Arc<ServerConfig> {
        let builder = match clients {
            None => builder.with_no_client_auth(),
            Some(authority) => {
                let provider = Arc::new(ring::default_provider());
                let roots = Arc::new(authority.roots());
                let verifier = WebPkiClientVerifier::builder_with_provider(roots, provider).build();
                builder.with_client_cert_verifier(verifier.expect("an authority"))
            }
        };
        Arc::new(
            builder
                .with_single_cert(self.chain(), self.private())
                .expect("a pair"),
        )
    }
}

/// Certificate authority of a test, which signs certificates of servers and clients.
pub struct Authority(CertifiedIssuer<'static, KeyPair>);

/// Returns the parameters of a certificate for a host that expires in `days` days.
fn dated(host: &str, days: i64) -> CertificateParams {
    let mut params = CertificateParams::new([host.to_owned()]).expect("a name");
    let day = Duration::from_secs(24 * 60 * 60);
    let now = rcgen::date_time_ymd(1970, 1, 1)
        + SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock");
    params.not_before = now - day * 400;
    let many = day * u32::try_from(days.abs()).expect("few days");
    params.not_after = if days < 0 { now - many } else { now + many };
    params
}

impl Authority {
    /// Creates an authority with a self-signed certificate.
    pub fn new(name: &str) -> Self {
        let mut params = CertificateParams::default();
        params.distinguished_name.push(DnType::CommonName, name);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
                .expect("an authority"),
        )
    }

    /// Creates an authority whose own certificate is for a host, as `openssl req -x509` does. Days as in
    /// [`Authority::sign`].
    pub fn for_host(host: &str, days: i64) -> Self {
        let mut params = dated(host, days);
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        Self(
            CertifiedIssuer::self_signed(params, KeyPair::generate().expect("a key"))
                .expect("an authority"),
        )
    }

    /// Certificate of the authority, in PEM.
    pub fn pem(&self) -> String {
        self.0.pem()
    }

    /// Returns the authority's own certificate with its key.
    pub fn own(&self) -> CertifiedPair {
        CertifiedPair {
            certificate: self.0.pem(),
            key: self.0.key().serialize_pem(),
        }
    }

    /// Signs a certificate for a host. It expires in `days` days; with a negative number it has already expired.
    pub fn sign(&self, host: &str, days: i64) -> CertifiedPair {
        let key = KeyPair::generate().expect("a key");
        let signed = dated(host, days)
            .signed_by(&key, &self.0)
            .expect("a certificate");
        CertifiedPair {
            certificate: signed.pem(),
            key: key.serialize_pem(),
        }
    }

    fn roots(&self) -> RootCertStore {
        let mut roots = RootCertStore::empty();
        roots.add(self.0.der().clone()).expect("a certificate");
        roots
    }

    /// Returns the configuration of a TLS client that trusts this authority, and presents `own` if the server requests a
    /// certificate.
    pub fn client(&self, own: Option<&CertifiedPair>) -> Arc<ClientConfig> {
        let builder = ClientConfig::builder_with_provider(ring::default_provider().into());
        let builder = builder
            .with_safe_default_protocol_versions()
            .expect("versions");
        let builder = builder.with_root_certificates(self.roots());
        Arc::new(match own {
            None => builder.with_no_client_auth(),
            Some(own) => builder
                .with_client_auth_cert(own.chain(), own.private())
                .expect("a pair"),
        })
    }
}

/// Opens a TLS connection to the name `localhost` at any address.
pub async fn connect(
    to: SocketAddr,
    config: &Arc<ClientConfig>,
) -> std::io::Result<client::TlsStream<TcpStream>> {
    let stream = TcpStream::connect(to).await?;
    let name = ServerName::try_from("localhost").expect("a name");
    TlsConnector::from(Arc::clone(config))
        .connect(name, stream)
        .await
}

/// TCP relay that adds or removes TLS, for a client or engine that speaks only one of the two.
pub struct Tunnel {
    /// Address on which the tunnel listens.
    pub address: SocketAddr,
    /// Number of completed TLS handshakes.
    pub handshakes: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Drop for Tunnel {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Tunnel {
    /// Starts a tunnel that takes plain connections and opens TLS connections to `to`.
    pub async fn into_tls(to: SocketAddr, config: Arc<ClientConfig>) -> Self {
        Self::start(move |outer, greeted| {
            let config = Arc::clone(&config);
            async move {
                let Ok(inner) = connect(to, &config).await else {
                    return;
                };
                greeted.fetch_add(1, Ordering::SeqCst);
                join(outer, inner).await;
            }
        })
        .await
    }

    /// Starts a tunnel that takes TLS connections and opens plain connections to `to`.
    pub async fn out_of_tls(to: SocketAddr, config: Arc<ServerConfig>) -> Self {
        Self::start(move |outer, greeted| {
            let acceptor = TlsAcceptor::from(Arc::clone(&config));
            async move {
                let Ok(outer) = acceptor.accept(outer).await else {
                    return;
                };
                greeted.fetch_add(1, Ordering::SeqCst);
                let Ok(inner) = TcpStream::connect(to).await else {
                    return;
                };
                inner.set_nodelay(true).expect("a TCP socket");
                join(outer, inner).await;
            }
        })
        .await
    }

    async fn start<F: Future<Output = ()> + Send + 'static>(
        serve: impl Fn(TcpStream, Arc<AtomicUsize>) -> F + Send + 'static,
    ) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a free port");
        let address = listener.local_addr().expect("bound");
        let greeted = Arc::new(AtomicUsize::new(0));
        let count = Arc::clone(&greeted);
        let task = tokio::spawn(async move {
            let mut connections = JoinSet::new();
            loop {
                tokio::select! {
                    accepted = listener.accept() => {
                        let Ok((stream, _)) = accepted else { continue };
                        stream.set_nodelay(true).expect("a TCP socket");
                        connections.spawn(serve(stream, Arc::clone(&count)));
                    }
                    Some(_) = connections.join_next() => {}
                }
            }
        });
        Self {
            address,
            handshakes: greeted,
            task,
        }
    }

    /// Returns the address in the form of samewire's `url` key.
    pub fn url(&self) -> String {
        format!("https://localhost:{}", self.address.port())
    }
}

/// Copies in both directions until one breaks or both have ended.
async fn join(one: impl AsyncRead + AsyncWrite, other: impl AsyncRead + AsyncWrite) {
    let ((mut from_one, mut to_one), (mut from_other, mut to_other)) =
        (tokio::io::split(one), tokio::io::split(other));
    let _ = tokio::try_join!(
        one_way(&mut from_one, &mut to_other),
        one_way(&mut from_other, &mut to_one)
    );
}

async fn one_way(
    from: &mut (impl AsyncRead + Unpin),
    to: &mut (impl AsyncWrite + Unpin),
) -> std::io::Result<()> {
    let mut space = vec![0; 16 << 10];
    loop {
        let read = from.read(&mut space).await;
        // A connection closed without a TLS close notification also counts as ended.
        let count = match read {
            Err(error) if error.kind() == std::io::ErrorKind::UnexpectedEof => 0,
            read => read?,
        };
        if count == 0 {
            return to.shutdown().await;
        }
        to.write_all(&space[..count]).await?;
        to.flush().await?;
    }
}

/// Returns a configuration line that names a file, for `[tls]` or an upstream.
pub fn file_key_line(key: &str, path: &Path) -> String {
    format!("{key} = {path:?}\n")
}

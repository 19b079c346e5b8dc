//! TLS to PostgreSQL, as `sslmode` and `sslrootcert` of the URL demand; their values mean the same as in libpq.

use super::super::record::StoreError;
use crate::tls::{self, Strictness, Verifier};
use std::path::{Path, PathBuf};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::{io, net};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::Socket;
use tokio_postgres::config::SslMode;
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect, TlsStream};
use tokio_rustls::rustls::ClientConfig;
use tokio_rustls::rustls::crypto::CryptoProvider;
use tokio_rustls::rustls::pki_types::ServerName;
use tokio_rustls::{TlsConnector, client};

/// TLS settings in a database URL.
#[derive(Debug)]
pub(super) struct TlsSettings {
    pub(super) mode: SslMode,
    check: Strictness,
    authorities: Option<PathBuf>,
}

impl TlsSettings {
    /// Reads the TLS settings of a URL, and returns them with the rest of the URL.
    pub(super) fn of(url: &str) -> Result<(Self, String), StoreError> {
        let (start, query) = url.split_once('?').unwrap_or((url, ""));
        let mut settings = Self {
            mode: SslMode::Prefer,
            check: Strictness::Nothing,
            authorities: None,
        };
        let mut rest = Vec::new();
        for pair in query.split('&').filter(|pair| !pair.is_empty()) {
            // A path may contain a plus sign, which means a space only in forms.
            let plain = pair.replace('+', "%2B");
            match form_urlencoded::parse(plain.as_bytes()).next() {
                Some((key, value)) if key == "sslmode" => {
                    (settings.mode, settings.check) = mode(&value)?
                }
                Some((key, value)) if key == "sslrootcert" => {
                    settings.authorities = Some((*value).into())
                }
                _ => rest.push(pair),
            }
        }
        // Same as in libpq: naming an authority implies that it is checked.
        if settings.mode == SslMode::Require
            && settings.check == Strictness::Nothing
            && settings.authorities.is_some()
        {
            settings.check = Strictness::Signed;
        }
        let rest = rest.join("&");
        Ok((
            settings,
            if rest.is_empty() {
                start.to_owned()
            } else {
                format!("{start}?{rest}")
            },
        ))
    }

    /// Returns the connector for these settings. Fails if the authorities cannot be read.
    pub(super) fn connector(&self) -> Result<Tls, StoreError> {
        let provider = tls::provider();
        let verifier = self.verifier(&provider)?;
        let mut config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(StoreError::unavailable)?
            .dangerous()
            .with_custom_certificate_verifier(Arc::new(verifier))
            .with_no_client_auth();
        config.alpn_protocols = vec![b"postgresql".to_vec()];
        Ok(Tls {
            connector: Arc::new(config).into(),
            check: self.check,
        })
    }

    fn verifier(&self, provider: &Arc<CryptoProvider>) -> Result<Verifier, StoreError> {
        if self.check == Strictness::Nothing {
            return Ok(Verifier::unverified(provider));
        }
        let path = self
            .authorities
            .as_deref()
            .filter(|path| *path != Path::new("system"));
        let name = path.unwrap_or_else(|| Path::new("system")).display();
        let wrong = |why| StoreError::unavailable(format_args!("sslrootcert {name}: {why}"));
        Verifier::of(tls::roots(path).map_err(wrong)?, self.check, provider)
            .map_err(StoreError::unavailable)
    }
}

fn mode(word: &str) -> Result<(SslMode, Strictness), StoreError> {
    match word {
        "disable" => Ok((SslMode::Disable, Strictness::Nothing)),
        "prefer" => Ok((SslMode::Prefer, Strictness::Nothing)),
        "require" => Ok((SslMode::Require, Strictness::Nothing)),
        "verify-ca" => Ok((SslMode::Require, Strictness::Signed)),
        "verify-full" => Ok((SslMode::Require, Strictness::Host)),
        _ => Err(StoreError::unavailable(
            "sslmode is disable, prefer, require, verify-ca or verify-full",
        )),
    }
}

/// Connector for TLS connections to the server.
#[derive(Clone)]
pub(super) struct Tls {
    connector: TlsConnector,
    check: Strictness,
}

impl MakeTlsConnect<Socket> for Tls {
    type Stream = PostgresStream;
    type TlsConnect = Handshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<Handshake> {
        let nameless = ServerName::from(net::IpAddr::from(net::Ipv4Addr::UNSPECIFIED));
        let name = match ServerName::try_from(host.to_owned()) {
            Ok(name) => name,
            // The host may be the path of a local socket: it has no name, and the name is not checked.
            Err(_) if self.check != Strictness::Host => nameless,
            Err(error) => return Err(io::Error::other(error)),
        };
        Ok(Handshake {
            connector: self.connector.clone(),
            name,
        })
    }
}

/// TLS handshake that is about to begin.
pub(super) struct Handshake {
    connector: TlsConnector,
    name: ServerName<'static>,
}

impl TlsConnect<Socket> for Handshake {
    type Stream = PostgresStream;
    type Error = io::Error;
    type Future = Pin<Box<dyn Future<Output = io::Result<PostgresStream>> + Send>>;

    fn connect(self, socket: Socket) -> Self::Future {
        let handshake = self.connector.connect(self.name, socket);
        Box::pin(async move { handshake.await.map(PostgresStream) })
    }
}

/// TLS connection.
pub(super) struct PostgresStream(client::TlsStream<Socket>);

impl TlsStream for PostgresStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for PostgresStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, into)
    }
}

impl AsyncWrite for PostgresStream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_url_says_of_tls_is_taken_out_of_it() {
        for (url, rest, mode, check) in [
            (
                "postgres://h/d",
                "postgres://h/d",
                SslMode::Prefer,
                Strictness::Nothing,
            ),
            (
                "postgres://h/d?sslmode=require",
                "postgres://h/d",
                SslMode::Require,
                Strictness::Nothing,
            ),
            (
                "postgres://h/d?a=b&sslmode=verify-full&c=%20",
                "postgres://h/d?a=b&c=%20",
                SslMode::Require,
                Strictness::Host,
            ),
            (
                "postgres://h/d?sslmode=require&sslrootcert=x",
                "postgres://h/d",
                SslMode::Require,
                Strictness::Signed,
            ),
            (
                "postgres://h/d?sslmode=disable&sslrootcert=x",
                "postgres://h/d",
                SslMode::Disable,
                Strictness::Nothing,
            ),
        ] {
            let (settings, left) = TlsSettings::of(url).unwrap();
            assert_eq!(
                (left.as_str(), settings.mode, settings.check),
                (rest, mode, check),
                "{url}"
            );
        }
        let (settings, _) = TlsSettings::of("postgres://h/d?sslrootcert=%2Fa+b%20c").unwrap();
        assert_eq!(settings.authorities.as_deref(), Some(Path::new("/a+b c")));
        assert!(TlsSettings::of("postgres://h/d?sslmode=on").is_err());
    }
}

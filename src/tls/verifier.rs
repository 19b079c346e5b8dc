//! Verification of a server's certificate, at several levels of strictness.

use std::sync::Arc;
use tokio_rustls::rustls::client::danger::{
    HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier,
};
use tokio_rustls::rustls::client::{WebPkiServerVerifier, verify_server_name};
use tokio_rustls::rustls::crypto::{
    CryptoProvider, verify_tls12_signature, verify_tls13_signature,
};
use tokio_rustls::rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use tokio_rustls::rustls::server::{ParsedCertificate, VerifierBuilderError};
use tokio_rustls::rustls::{
    CertificateError, DigitallySignedStruct, Error, RootCertStore, SignatureScheme,
};

/// Strictness of the verification of a server's certificate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strictness {
    /// Disabled verification: open to a man in the middle.
    Nothing,
    /// Signature by a trusted authority, for any host name.
    Signed,
    /// Signature by a trusted authority, and a certificate for the requested host.
    Host,
}

/// Certificate verifier for rustls that supports each level of [`Strictness`]. Databases need the lower ones.
#[derive(Debug)]
pub struct Verifier {
    inner: Option<Arc<WebPkiServerVerifier>>,
    /// Authorities whose signature counts.
    roots: Arc<RootCertStore>,
    check: Strictness,
    provider: Arc<CryptoProvider>,
}

impl Verifier {
    /// Creates a verifier that accepts any certificate. The server must still have the key of the certificate.
    pub fn unverified(provider: &Arc<CryptoProvider>) -> Self {
        let roots = Arc::new(RootCertStore::empty());
        Self {
            inner: None,
            roots,
            check: Strictness::Nothing,
            provider: Arc::clone(provider),
        }
    }

    /// Creates a verifier that requires a signature by one of these authorities, and what `check` adds.
    ///
    /// # Errors
    /// Fails if `roots` is empty.
    pub fn of(
        roots: RootCertStore,
        check: Strictness,
        provider: &Arc<CryptoProvider>,
    ) -> Result<Self, VerifierBuilderError> {
        let roots = Arc::new(roots);
        let inner =
            WebPkiServerVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(provider));
        Ok(Self {
            inner: Some(inner.build()?),
            roots,
            check,
            provider: Arc::clone(provider),
        })
    }

    /// Checks an authority's own certificate that a server presents as its own, as `openssl req -x509` makes it. The
    /// dates have been checked.
    fn verify_authority(
        &self,
        end: &CertificateDer<'_>,
        name: &ServerName<'_>,
        refusal: Error,
    ) -> Result<ServerCertVerified, Error> {
        let mut presented = RootCertStore::empty();
        presented.add(end.clone().into_owned())?;
        if !presented
            .roots
            .iter()
            .all(|root| self.roots.roots.contains(root))
        {
            return Err(refusal);
        }
        if self.check == Strictness::Host {
            verify_server_name(&ParsedCertificate::try_from(end)?, name)?;
        }
        Ok(ServerCertVerified::assertion())
    }
}

impl ServerCertVerifier for Verifier {
    fn verify_server_cert(
        &self,
        end: &CertificateDer<'_>,
        between: &[CertificateDer<'_>],
        name: &ServerName<'_>,
        stapled: &[u8],
        now: UnixTime,
    ) -> Result<ServerCertVerified, Error> {
        let Some(inner) = &self.inner else {
            return Ok(ServerCertVerified::assertion());
        };
        match inner.verify_server_cert(end, between, name, stapled, now) {
            // rustls checks the name last, so the chain is valid if only the name is wrong.
            Err(Error::InvalidCertificate(
                CertificateError::NotValidForName | CertificateError::NotValidForNameContext { .. },
            )) if self.check == Strictness::Signed => Ok(ServerCertVerified::assertion()),
            // webpki checks the dates before it refuses an authority's certificate.
            Err(error) if is_authority(&error) => self.verify_authority(end, name, error),
            answer => answer,
        }
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls12_signature(message, certificate, signature, known)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, Error> {
        let known = &self.provider.signature_verification_algorithms;
        verify_tls13_signature(message, certificate, signature, known)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.provider
            .signature_verification_algorithms
            .supported_schemes()
    }
}

fn is_authority(error: &Error) -> bool {
    let Error::InvalidCertificate(CertificateError::Other(error)) = error else {
        return false;
    };
    error.0.to_string() == "CaUsedAsEndEntity"
}

//! Certificates and private keys from PEM files, with error messages that reveal no content.

use super::TlsFileError;
use crate::secret;
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Usual locations of the system's trusted authorities.
const SYSTEM: [&str; 3] = [
    "/etc/ssl/certs/ca-certificates.crt",
    "/etc/pki/tls/certs/ca-bundle.crt",
    "/etc/ssl/cert.pem",
];

/// Returns the authorities in a file, or else those that the system trusts. The latter are read at run time, so
/// that updates need no new build.
///
/// # Errors
/// Fails if the file cannot be read or holds no certificate, or if the system has no such file.
pub fn roots(file: Option<&Path>) -> Result<RootCertStore, String> {
    let path = match file {
        Some(path) => path,
        None => SYSTEM
            .iter()
            .map(Path::new)
            .find(|path| path.exists())
            .ok_or("this system has no file of trusted authorities: name one")?,
    };
    let certificates = CertificateDer::pem_file_iter(path).map_err(|error| unreadable(&error))?;
    let mut roots = RootCertStore::empty();
    // A system bundle may contain certificates that cannot be parsed; they are skipped.
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() {
        Err("it holds no certificate".to_owned())
    } else {
        Ok(roots)
    }
}

/// Reads a certificate with its intermediates, and its private key, whose file other users must not be able to
/// read.
pub(super) fn pair(
    (certificate_key, certificate): (&'static str, &Path),
    (key_key, key): (&'static str, &Path),
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), TlsFileError> {
    let wrong = |error| TlsFileError::new(certificate_key, unreadable(&error));
    let chain: Vec<_> = CertificateDer::pem_file_iter(certificate)
        .and_then(Iterator::collect)
        .map_err(wrong)?;
    if chain.is_empty() {
        return Err(TlsFileError::new(
            certificate_key,
            "it holds no certificate",
        ));
    }
    let text = secret::read(key).map_err(|why| TlsFileError::new(key_key, why))?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
    Ok((
        chain,
        key.map_err(|error| TlsFileError::new(key_key, unreadable(&error)))?,
    ))
}

/// Describes the error without the file's content, which may be the key itself.
fn unreadable(error: &tokio_rustls::rustls::pki_types::pem::Error) -> String {
    use tokio_rustls::rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => secret::unreadable(error),
        Error::NoItemsFound => "it holds nothing of the kind".to_owned(),
        _ => "it is not PEM".to_owned(),
    }
}

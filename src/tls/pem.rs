//! Certificates and keys from PEM files.

use super::Wrong;
use crate::secret;
use std::path::Path;
use tokio_rustls::rustls::RootCertStore;
use tokio_rustls::rustls::pki_types::pem::PemObject;
use tokio_rustls::rustls::pki_types::{CertificateDer, PrivateKeyDer};

/// Where systems keep the authorities that they trust.
const SYSTEM: [&str; 3] =
    ["/etc/ssl/certs/ca-certificates.crt", "/etc/pki/tls/certs/ca-bundle.crt", "/etc/ssl/cert.pem"];

/// The authorities of a file, or else those that the system trusts: they change with the system, and need no program to
/// be built anew.
///
/// # Errors
/// There are none; why.
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
    // A bundle of a system may hold one that cannot be read.
    roots.add_parsable_certificates(certificates.filter_map(Result::ok));
    if roots.is_empty() { Err("it holds no certificate".to_owned()) } else { Ok(roots) }
}

/// A certificate with those that lead to an authority, and its key, which not everybody may read.
pub(super) fn pair(
    (certificate_key, certificate): (&'static str, &Path),
    (key_key, key): (&'static str, &Path),
) -> Result<(Vec<CertificateDer<'static>>, PrivateKeyDer<'static>), Wrong> {
    let wrong = |error| Wrong::new(certificate_key, unreadable(&error));
    let chain: Vec<_> =
        CertificateDer::pem_file_iter(certificate).and_then(Iterator::collect).map_err(wrong)?;
    if chain.is_empty() {
        return Err(Wrong::new(certificate_key, "it holds no certificate"));
    }
    let text = secret::read(key).map_err(|why| Wrong::new(key_key, why))?;
    let key = PrivateKeyDer::from_pem_slice(text.as_bytes());
    Ok((chain, key.map_err(|error| Wrong::new(key_key, unreadable(&error)))?))
}

/// Says nothing of what stands in the file: it may be the key itself.
fn unreadable(error: &tokio_rustls::rustls::pki_types::pem::Error) -> String {
    use tokio_rustls::rustls::pki_types::pem::Error;
    match error {
        Error::Io(error) => format!("the file cannot be read: {error}"),
        Error::NoItemsFound => "it holds nothing of the kind".to_owned(),
        _ => "it is not PEM".to_owned(),
    }
}

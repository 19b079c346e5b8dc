//! Addresses of a running samewire, and a client's key, for commands that connect to one.
//!
//! Takes: flags, the environment and the configuration file. Gives: an address that can be connected to. Never: judges
//! the other keys of the file.

use super::file::File;
use super::mistakes::Mistakes;
use super::origins::Origins;
use super::{Overrides, address, text_of, variable};
use crate::secret::Secret;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use toml::Table;

/// Variable with the key of a client.
const CLIENT_KEY: &str = "SAMEWIRE_KEY";

/// Returns the admin address of a samewire with this configuration. An unspecified address becomes loopback.
/// Other keys of the file may be invalid.
///
/// # Errors
/// Fails if the file cannot be read, or if the value is not an address.
pub fn admin_address(flags: &Overrides) -> Result<SocketAddr, Mistakes> {
    listener(flags, "admin_listen", false).map(|(address, _)| address)
}

/// Returns the URL at which a samewire with this configuration serves clients, without `/v1`. An unspecified
/// address becomes loopback. Other keys of the file may be invalid.
///
/// # Errors
/// Fails if the file cannot be read, or if the value is not an address.
pub fn clients_url(flags: &Overrides) -> Result<String, Mistakes> {
    let (address, file) = listener(flags, "listen", true)?;
    let scheme = if file.contains_key("tls") {
        "https"
    } else {
        "http"
    };
    Ok(format!("{scheme}://{address}"))
}

/// Returns the address of a listener, and the file's content. The file is read if it must be (`reads`), or else if
/// no flag or variable gives the address.
fn listener(flags: &Overrides, key: &str, reads: bool) -> Result<(SocketAddr, Table), Mistakes> {
    let (environment, _) = Overrides::environment();
    let given = [flags, &environment]
        .into_iter()
        .find_map(|layer| layer.keys.text(key));
    let path = flags.config.as_deref().or(environment.config.as_deref());
    let path = path.filter(|_| reads || given.is_none());
    let mut mistakes = Mistakes::default();
    let Some(text) = text_of(path, &mut mistakes) else {
        return Err(mistakes);
    };
    let name = path.map(|path| path.display().to_string());
    let mut origins = Origins::read(name.as_deref(), &text).unwrap_or_default();
    let file = text.parse::<Table>().unwrap_or_default();
    if let Some((by, _)) = given {
        origins.give(key, by);
    }
    let default = Table::try_from(File::default()).unwrap_or_default();
    let written = [&file, &default]
        .into_iter()
        .find_map(|table| table.get(key)?.as_str());
    let text = given
        .map(|(_, address)| address)
        .or(written)
        .unwrap_or_default();
    let found = address(key, text, &mut mistakes).ok_or_else(|| mistakes.located(&origins))?;
    let ip = match found.ip() {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Ok((SocketAddr::new(ip, found.port()), file))
}

/// Returns the key of a client from `SAMEWIRE_KEY`; `None` if there is none that a header can have.
pub fn client_key() -> Option<Secret> {
    Secret::with_prefix("Bearer ", variable(CLIENT_KEY)?.trim())
}

//! Addresses of a running samewire, and a client's key, for commands that connect to one.
//!
//! Takes: flags, the environment and the configuration file. Gives: an address that can be connected to. Never: judges
//! the other keys of the file.

use super::file::File;
use super::mistakes::Mistakes;
use super::origins::Origins;
use super::{Overrides, address, text_of, variable};
use crate::secret::Secret;
use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;
use toml::{Table, Value};

/// Variable with the key of a client.
const CLIENT_KEY: &str = "SAMEWIRE_KEY";

/// Listener of a samewire: its key in the file, its flag, and the place of its address in a layer.
struct Listener {
    key: &'static str,
    flag: &'static str,
    given: fn(&Overrides) -> Option<&String>,
}

const ADMIN: Listener =
    Listener { key: "admin_listen", flag: "admin-listen", given: |layer| layer.admin_listen.as_ref() };
const CLIENTS: Listener = Listener { key: "listen", flag: "listen", given: |layer| layer.listen.as_ref() };

impl Overrides {
    /// Returns the admin address of a samewire with this configuration. An unspecified address becomes loopback.
    /// Other keys of the file may be invalid.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the value is not an address.
    pub fn admin_address(&self) -> Result<SocketAddr, Mistakes> {
        let (environment, _) = Self::environment();
        let is_given = [self, &environment].into_iter().any(|layer| (ADMIN.given)(layer).is_some());
        let path = self.path(&environment).filter(|_| !is_given);
        Ok(self.connectable(&ADMIN, &environment, path)?.0)
    }

    /// Returns the URL at which a samewire with this configuration serves clients, without `/v1`. An unspecified
    /// address becomes loopback. Other keys of the file may be invalid.
    ///
    /// # Errors
    /// Fails if the file cannot be read, or if the value is not an address.
    pub fn clients_url(&self) -> Result<String, Mistakes> {
        let (environment, _) = Self::environment();
        let (address, table) = self.connectable(&CLIENTS, &environment, self.path(&environment))?;
        let scheme = if table.contains_key("tls") { "https" } else { "http" };
        Ok(format!("{scheme}://{address}"))
    }

    fn path<'a>(&'a self, environment: &'a Self) -> Option<&'a Path> {
        self.config.as_deref().or(environment.config.as_deref())
    }

    /// Returns the address of a listener and the file's content.
    fn connectable(
        &self,
        listener: &Listener,
        environment: &Self,
        path: Option<&Path>,
    ) -> Result<(SocketAddr, Table), Mistakes> {
        let key = listener.key;
        let name = path.map(|path| path.display().to_string());
        let mut mistakes = Mistakes::default();
        let Some(text) = text_of(path, &mut mistakes) else { return Err(mistakes) };
        let mut origins = Origins::read(name.as_deref(), &text).unwrap_or_default();
        let table = text.parse::<Table>().unwrap_or_default();
        let given = [self, environment]
            .into_iter()
            .find_map(|layer| Some((layer.name(listener.flag), (listener.given)(layer)?.clone())));
        if let Some((name, _)) = &given {
            origins.give(key, name);
        }
        let written = || table.get(key).and_then(Value::as_str).map(ToOwned::to_owned);
        let default = || {
            let file = File::default();
            if key == ADMIN.key { file.admin_listen } else { file.listen }
        };
        let text = given.map(|(_, address)| address).or_else(written).unwrap_or_else(default);
        let Some(mut found) = address(key, &text, &mut mistakes) else {
            return Err(mistakes.located(&origins));
        };
        if found.ip().is_unspecified() {
            let is_v4 = found.is_ipv4();
            found.set_ip(if is_v4 { Ipv4Addr::LOCALHOST.into() } else { Ipv6Addr::LOCALHOST.into() });
        }
        Ok((found, table))
    }
}

/// Returns the key of a client from `SAMEWIRE_KEY`; `None` if there is none that a header can have.
pub fn client_key() -> Option<Secret> {
    Secret::with_prefix("Bearer ", variable(CLIENT_KEY)?.trim())
}

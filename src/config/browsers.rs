//! Tables `[cors]` and `[admin]`: web origins and host names that browsers may use (docs/configure.md#web-pages-cors).

use super::mistakes::Mistakes;
use super::rows::{self, table};
use crate::wire::disclosure;
use std::net::{Ipv4Addr, Ipv6Addr};

table! {
    /// Table `[cors]` as written: the origins whose pages may call the API, and the host names under which clients may
    /// reach samewire without a key.
    CorsFile {
        origins: Vec<String>;
        hosts: Vec<String>;
    }
}

table! {
    /// Table `[admin]` as written: the host names under which the admin listener answers.
    AdminFile {
        hosts: Vec<String>,
            flag("admin-host", "NAME", "Another host name under which the admin listener answers, such as samewire.internal; addresses and localhost always work");
    }
}

/// Origins whose pages may call the API, in the form in which browsers send them, and host names under which
/// clients may reach samewire without a key.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cors {
    is_any: bool,
    origins: Vec<String>,
    hosts: Hosts,
}

impl Cors {
    /// Checks the entries of `cors.origins` and `cors.hosts`, and returns the valid ones.
    pub(super) fn resolve(file: &CorsFile, mistakes: &mut Mistakes) -> Self {
        let hosts = Hosts::resolve("cors.hosts", &file.hosts, mistakes);
        let mut this = Self {
            hosts,
            ..Self::default()
        };
        for (place, entry) in file.origins.iter().enumerate() {
            match entry.as_str() {
                "*" => this.is_any = true,
                entry => match origin(entry) {
                    Ok(origin) => this.origins.push(origin),
                    Err(why) => mistakes.add(format!("cors.origins[{place}]"), why),
                },
            }
        }
        this
    }

    /// Returns true if any origin at all is allowed, so that CORS headers are needed.
    pub fn is_on(&self) -> bool {
        self.is_any || !self.origins.is_empty()
    }

    /// Returns true if every origin is allowed (`*`). Answers may then carry `*` instead of the origin.
    pub fn is_any(&self) -> bool {
        self.is_any
    }

    /// Returns true if an origin is listed by name. Browsers have one spelling for each origin, so bytes are
    /// compared.
    pub fn lists(&self, origin: &[u8]) -> bool {
        self.origins
            .iter()
            .any(|listed| listed.as_bytes() == origin)
    }

    /// Returns true if a request with this `Host` may be answered without a key. Names that public DNS cannot have need
    /// no entry: no page of the internet has one.
    pub fn allows_host(&self, authority: &str) -> bool {
        self.is_any || self.hosts.allows(authority) || names_private_host(authority)
    }

    /// Returns true if the pages of an origin may call the API, by name or by `*`.
    pub fn allows(&self, origin: &[u8]) -> bool {
        self.is_any || self.lists(origin)
    }
}

/// Returns an origin in the spelling of browsers (RFC 6454, 6.2): in lower case, without the default port of its
/// scheme.
fn origin(entry: &str) -> Result<String, String> {
    const MUST: &str = "must be an origin such as https://app.example or http://localhost:3000 (scheme, host and port, \
                        without a path or a slash at its end), or \"*\" for all";
    if entry == "null" {
        return Err(
            "any page can have the origin 'null', from a sandboxed frame: say \"*\" if that is meant"
                .to_owned(),
        );
    }
    let lower = entry.to_ascii_lowercase();
    let Some((scheme, authority)) = lower.split_once("://") else {
        return Err(MUST.to_owned());
    };
    let (host, port) = host_and_port(authority).ok_or(MUST)?;
    if host.contains('*') {
        return Err(
            "a '*' within an origin is not supported: list each origin, or say \"*\" for all"
                .to_owned(),
        );
    }
    if !host.is_ascii() {
        return Err("the host must be written as browsers send it, in ASCII (xn--…)".to_owned());
    }
    let is_scheme = scheme.starts_with(|first: char| first.is_ascii_alphabetic())
        && scheme
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"+-.".contains(&byte));
    if !is_scheme || !is_host(host) {
        return Err(MUST.to_owned());
    }
    let is_default_port = matches!((scheme, port), ("http", Some(80)) | ("https", Some(443)));
    Ok(match port.filter(|_| !is_default_port) {
        Some(port) => format!("{scheme}://{host}:{port}"),
        None => format!("{scheme}://{host}"),
    })
}

/// Host names under which browsers may reach a listener, in addition to addresses and `localhost`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Hosts(Vec<String>);

impl Hosts {
    /// Checks the entries of the list at `key`, and returns the valid ones in lower case, without a final dot.
    pub(super) fn resolve(key: &str, entries: &[String], mistakes: &mut Mistakes) -> Self {
        let mut hosts = Vec::new();
        for (place, entry) in entries.iter().enumerate() {
            let host = entry.to_ascii_lowercase();
            let host = host.trim_end_matches('.');
            if is_host(host) {
                hosts.push(host.to_owned());
            } else {
                let must = "must be the name of a host, such as samewire.internal, without a scheme, a port or a path";
                mistakes.add(format!("{key}[{place}]"), must);
            }
        }
        Self(hosts)
    }

    /// Returns true if the host in a `Host` header, or in the authority of an origin, is listed.
    pub fn lists(&self, authority: &str) -> bool {
        let host = host_and_port(authority).map(|(host, _)| host.trim_end_matches('.'));
        host.is_some_and(|host| {
            self.0
                .iter()
                .any(|listed| listed.eq_ignore_ascii_case(host))
        })
    }

    /// Returns true if a request with this `Host` may be answered. Protects against DNS rebinding: a foreign page
    /// can point its own name at this machine, but addresses need no lookup, and browsers never look up
    /// `localhost`.
    pub fn allows(&self, authority: &str) -> bool {
        let Some((host, _)) = host_and_port(authority) else {
            return false;
        };
        let address = host
            .strip_prefix('[')
            .and_then(|host| host.strip_suffix(']'));
        address.is_some_and(|address| address.parse::<Ipv6Addr>().is_ok())
            || host.parse::<Ipv4Addr>().is_ok()
            || is_localhost(host)
            || self.lists(authority)
    }
}

/// Returns true for `localhost` and the names below it.
fn is_localhost(host: &str) -> bool {
    let name = host.trim_end_matches('.');
    name.rsplit('.')
        .next()
        .is_some_and(|last| last.eq_ignore_ascii_case("localhost"))
}

/// Returns true for an authority whose name public DNS cannot have: one label, or a suffix of private networks.
fn names_private_host(authority: &str) -> bool {
    let Some((host, _)) = host_and_port(authority) else {
        return false;
    };
    let name = host.strip_suffix('.').unwrap_or(host).to_ascii_lowercase();
    let is_number = name.bytes().all(|byte| byte.is_ascii_digit()) || name.starts_with("0x");
    is_host(&name)
        && match name.split_once('.') {
            // Browsers read a number as an address in another form.
            None => !is_number && !name.starts_with('['),
            Some(_) => disclosure::is_private_name(&name),
        }
}

/// Splits an authority into host and port. Returns `None` if the port is not a number.
fn host_and_port(authority: &str) -> Option<(&str, Option<u16>)> {
    // The colons of an IPv6 address are inside brackets.
    let end = authority.rfind(']').map_or(0, |bracket| bracket + 1);
    let colon = authority.get(end..)?.find(':').map(|at| end + at);
    match colon {
        None => Some((authority, None)),
        Some(colon) => {
            let port = authority.get(colon + 1..)?.parse().ok()?;
            Some((authority.get(..colon)?, Some(port)))
        }
    }
}

/// Returns true for a host name, an IPv4 address, or an IPv6 address in brackets.
fn is_host(host: &str) -> bool {
    if let Some(rest) = host.strip_prefix('[') {
        return rest
            .strip_suffix(']')
            .is_some_and(|address| address.parse::<Ipv6Addr>().is_ok());
    }
    !host.is_empty()
        && host.len() <= 253
        && host
            .bytes()
            .all(|byte| byte.is_ascii_alphanumeric() || b"-._".contains(&byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_are_spelled_as_browsers_spell_them() {
        for (entry, expected) in [
            ("https://app.example", Some("https://app.example")),
            ("HTTPS://App.Example:443", Some("https://app.example")),
            ("http://app.example:80", Some("http://app.example")),
            ("http://app.example:443", Some("http://app.example:443")),
            ("http://localhost:3000", Some("http://localhost:3000")),
            ("http://127.0.0.1:3000", Some("http://127.0.0.1:3000")),
            ("http://[::1]:3000", Some("http://[::1]:3000")),
            ("app://obsidian.md", Some("app://obsidian.md")),
            (
                "chrome-extension://abcdefgh",
                Some("chrome-extension://abcdefgh"),
            ),
            ("", None),
            ("null", None),
            ("app.example", None),
            ("://app.example", None),
            ("https://", None),
            ("https://app.example/", None),
            ("https://app.example/path", None),
            ("https://app.example?x", None),
            ("https://user@app.example", None),
            ("https://app.example:port", None),
            ("https://app.example:", None),
            ("https://app.example:99999", None),
            ("https://*.app.example", None),
            ("https://äpp.example", None),
            ("https://[::g]", None),
            (" https://app.example", None),
        ] {
            assert_eq!(origin(entry).ok().as_deref(), expected, "{entry}");
        }
    }

    #[test]
    fn hosts_that_no_foreign_page_can_have() {
        let mut mistakes = Mistakes::default();
        let entries = ["Samewire.Internal".to_owned(), "under_score".to_owned()];
        let hosts = Hosts::resolve("admin.hosts", &entries, &mut mistakes);
        assert_eq!(mistakes, Mistakes::default());
        for (host, is_allowed) in [
            ("127.0.0.1:9090", true),
            ("10.1.2.3", true),
            ("[::1]:9090", true),
            ("[fe80::1]", true),
            ("localhost:9090", true),
            ("LOCALHOST", true),
            ("samewire.localhost:9090", true),
            ("samewire.internal:9090", true),
            ("SAMEWIRE.internal.", true),
            ("under_score:1", true),
            ("", false),
            ("evil.example:9090", false),
            ("x.samewire.internal", false),
            ("localhost.evil.example", false),
            ("127.0.0.1.evil.example", false),
            ("127.0.0.1:x", false),
            ("[::1", false),
            ("::1", false),
            ("0x7f000001", false),
            ("2130706433", false),
        ] {
            assert_eq!(hosts.allows(host), is_allowed, "{host}");
        }
        for host in ["", "http://a", "a:9090", "a/b", "*", "a b"] {
            let mut mistakes = Mistakes::default();
            Hosts::resolve("admin.hosts", &[host.to_owned()], &mut mistakes);
            assert!(
                mistakes
                    .to_string()
                    .starts_with("admin.hosts[0]: must be the name"),
                "{host}: {mistakes}"
            );
        }
    }

    #[test]
    fn hosts_of_clients_without_keys() {
        let mut mistakes = Mistakes::default();
        let file = CorsFile {
            hosts: vec!["llm.example".to_owned()],
            ..CorsFile::default()
        };
        let cors = Cors::resolve(&file, &mut mistakes);
        for (host, is_allowed) in [
            ("127.0.0.1:8080", true),
            ("localhost", true),
            ("llm.example:8080", true),
            ("samewire:8080", true),
            ("samewire.", true),
            ("host.docker.internal:8080", true),
            ("samewire.llm.svc", true),
            ("mac.local:8080", true),
            ("nas.home.arpa", true),
            ("samewire.llm.svc.cluster.local:8080", true),
            ("evil.example:8080", false),
            ("samewire.dev", false),
            ("internal.evil.example", false),
            ("2130706433", false),
            ("0x7f000001", false),
            ("[::g]", false),
            ("a b", false),
            ("", false),
            (".", false),
        ] {
            assert_eq!(cors.allows_host(host), is_allowed, "{host}");
        }
        let any = CorsFile {
            origins: vec!["*".to_owned()],
            ..CorsFile::default()
        };
        assert!(Cors::resolve(&any, &mut mistakes).allows_host("evil.example"));
        assert_eq!(mistakes, Mistakes::default());
    }
}

//! The way of a request through processes of this program (faults U55).
//!
//! Takes: the header of a request that has come. Gives: the one of the requests that are made of it, or the refusal of one that
//! was here before. Never: believes more of a client's header than that it has the form of one.

use crate::wire::fault::{Failure, Fault};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::OnceLock;

/// The header: ids of processes, in the order of the way, with commas between them.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-samewire-hop");
/// Processes on one way. Gateways before sidecars are two or three.
const MOST: usize = 8;
/// Hexadecimal digits of an id.
const DIGITS: usize = 16;

/// The header of requests to upstreams. This process is the last on the way.
#[derive(Clone, Debug)]
pub struct Hops(HeaderValue);

impl Default for Hops {
    /// The way of a request that begins here.
    fn default() -> Self {
        Self(value(own().to_owned()))
    }
}

impl Hops {
    /// Reads the way of a request that has come, and goes on with it. A value that is no way is left out.
    ///
    /// # Errors
    /// The request was here before, or has been through too many processes: an upstream leads back.
    pub fn read(headers: &HeaderMap) -> Result<Self, Failure> {
        let given = headers.get(HEADER).and_then(|value| value.to_str().ok()).filter(|given| is_way(given));
        let Some(given) = given else { return Ok(Self::default()) };
        let count = given.split(',').count();
        if count >= MOST || given.split(',').any(|id| id == own()) {
            return Err(Fault::UpstreamLoop.into());
        }
        Ok(Self(value(format!("{given},{}", own()))))
    }

    /// The header's value.
    pub fn value(&self) -> &HeaderValue {
        &self.0
    }
}

fn is_way(given: &str) -> bool {
    let is_id = |id: &str| id.len() == DIGITS && id.bytes().all(|byte| byte.is_ascii_hexdigit());
    given.len() <= MOST * (DIGITS + 1) && given.split(',').all(is_id)
}

fn value(text: String) -> HeaderValue {
    HeaderValue::try_from(text).unwrap_or(HeaderValue::from_static(""))
}

/// The id of this process, drawn once.
fn own() -> &'static str {
    static OWN: OnceLock<String> = OnceLock::new();
    OWN.get_or_init(|| {
        let chance = getrandom::u64().unwrap_or_else(|_| u64::from(std::process::id()));
        format!("{chance:016x}")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(given: &str) -> Result<String, u16> {
        let headers = [(HEADER, HeaderValue::try_from(given).unwrap())].into_iter().collect();
        let hops = Hops::read(&headers).map_err(|failure| failure.status)?;
        Ok(hops.value().to_str().unwrap().to_owned())
    }

    #[test]
    fn fault_u55_who_was_here_does_not_pass_again() {
        let other = "0123456789abcdef";
        assert_eq!(Hops::read(&HeaderMap::new()).unwrap().value(), own());
        assert_eq!(read(other), Ok(format!("{other},{}", own())));
        for way in [own().to_owned(), format!("{other},{}", own()), [other; MOST].join(",")] {
            assert_eq!(read(&way), Err(508), "{way}");
        }
        // What is none is none.
        for given in ["", "x", "0123456789abcde", &[other; 100].join(","), &format!("{other};{other}")] {
            assert_eq!(read(given), Ok(own().to_owned()), "{given}");
        }
    }
}

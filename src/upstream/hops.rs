//! Loop detection: the header that lists the samewire processes a request has passed through (faults U55).
//!
//! Takes: the headers of a client's request. Gives: the header for the requests sent for it, or the refusal of a
//! request that has been here before. Never: trusts the header beyond its syntax.

use crate::wire::fault::{Failure, Fault};
use http::{HeaderMap, HeaderName, HeaderValue};
use std::sync::OnceLock;

/// Name of the header. Its value lists the ids of the processes in order, with commas between them.
pub(super) const HEADER: HeaderName = HeaderName::from_static("x-samewire-hop");
/// Upper limit for the processes on one path. Gateways in front of sidecars make two or three.
const MOST: usize = 8;
/// Number of hexadecimal digits of an id.
const DIGITS: usize = 16;

/// Value of the loop-detection header for requests to upstreams, with this process as the last one.
#[derive(Clone, Debug)]
pub struct Hops(HeaderValue);

impl Default for Hops {
    /// Returns the value for a request that starts at this process.
    fn default() -> Self {
        static OWN: OnceLock<HeaderValue> = OnceLock::new();
        Self(OWN.get_or_init(|| value(process_id().to_owned())).clone())
    }
}

impl Hops {
    /// Reads the header of a client's request and appends this process. A value with wrong syntax is ignored.
    ///
    /// # Errors
    /// Fails if the request has passed through this process before, or through too many: an upstream leads back.
    pub fn read(headers: &HeaderMap) -> Result<Self, Failure> {
        let given = headers
            .get(HEADER)
            .and_then(|value| value.to_str().ok())
            .filter(|given| is_way(given));
        let Some(given) = given else {
            return Ok(Self::default());
        };
        let count = given.split(',').count();
        if count >= MOST || given.split(',').any(|id| id == process_id()) {
            return Err(Fault::UpstreamLoop.into());
        }
        Ok(Self(value(format!("{given},{}", process_id()))))
    }

    /// Returns the value to send as the header.
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

/// Returns the random id of this process, drawn once.
fn process_id() -> &'static str {
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
        let headers = [(HEADER, HeaderValue::try_from(given).unwrap())]
            .into_iter()
            .collect();
        let hops = Hops::read(&headers).map_err(|failure| failure.status)?;
        Ok(hops.value().to_str().unwrap().to_owned())
    }

    #[test]
    fn fault_u55_who_was_here_does_not_pass_again() {
        let other = "0123456789abcdef";
        assert_eq!(Hops::read(&HeaderMap::new()).unwrap().value(), process_id());
        assert_eq!(read(other), Ok(format!("{other},{}", process_id())));
        for way in [
            process_id().to_owned(),
            format!("{other},{}", process_id()),
            [other; MOST].join(","),
        ] {
            assert_eq!(read(&way), Err(508), "{way}");
        }
        // A value with wrong syntax is ignored.
        for given in [
            "",
            "x",
            "0123456789abcde",
            &[other; 100].join(","),
            &format!("{other};{other}"),
        ] {
            assert_eq!(read(given), Ok(process_id().to_owned()), "{given}");
        }
    }
}

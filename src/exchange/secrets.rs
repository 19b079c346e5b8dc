//! Secrets of a request in its answer: a server may repeat a key that it refuses, spelled in its own way.
//!
//! Takes: the headers of a request, and the answer. Gives: the answer with these values masked. Never: changes the length
//! of a body.

use super::target::Target;
use crate::json::places_of;
use http::{HeaderMap, HeaderValue};

/// Character in place of each byte of a secret.
const MASK: u8 = b'*';
/// Text in place of a header's value that has a secret.
const REDACTED: &str = "[redacted]";
/// Shortest value that counts: shorter ones occur in any text.
const SHORTEST: usize = 6;

/// Values that answers must not show.
#[derive(Debug)]
pub(super) struct Secrets(Vec<Vec<u8>>);

impl Secrets {
    /// Takes the values of the headers of a target: each whole, and without its scheme, such as `Bearer`.
    pub(super) fn of(target: &Target) -> Self {
        let mut all = Vec::new();
        for value in target.headers().values() {
            let value = value.as_bytes().trim_ascii();
            all.push(value.to_vec());
            let scheme = value.iter().position(|byte| *byte == b' ');
            let bare = scheme
                .and_then(|end| value.get(end..))
                .map(<[u8]>::trim_ascii);
            all.extend(bare.map(<[u8]>::to_vec));
        }
        all.retain(|value| value.len() >= SHORTEST);
        Self(all)
    }

    /// Masks the secrets in the values of headers.
    pub(super) fn mask_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if self
                .0
                .iter()
                .any(|secret| !places_of(secret, value.as_bytes()).is_empty())
            {
                *value = HeaderValue::from_static(REDACTED);
            }
        }
    }

    /// Masks the secrets in a body.
    pub(super) fn mask_body(&self, body: &mut [u8]) {
        for secret in &self.0 {
            for place in places_of(secret, body) {
                body.get_mut(place)
                    .into_iter()
                    .for_each(|found| found.fill(MASK));
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_repeats_is_masked() {
        let target = Target::new(
            "http://a",
            None,
            &["authorization: Bearer sk-CANARY1".to_owned()],
        )
        .unwrap();
        let secrets = Secrets::of(&target);
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("key sk-CANARY1"));
        headers.insert("x-other", HeaderValue::from_static("a"));
        secrets.mask_headers(&mut headers);
        assert_eq!(
            (&headers["x-echo"], &headers["x-other"]),
            (&"[redacted]".parse().unwrap(), &"a".parse().unwrap())
        );
        let mut body = b"no key sk-CANARY1 here, sk-CANARY1".to_vec();
        secrets.mask_body(&mut body);
        assert_eq!(body, b"no key ********** here, **********");
        let mut body = br#"{"a":"sk-CANARY\u0031 \u0073k\u002dCANARY1"}"#.to_vec();
        secrets.mask_body(&mut body);
        assert_eq!(body, br#"{"a":"*************** ********************"}"#);
    }
}

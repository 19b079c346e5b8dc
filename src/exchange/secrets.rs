//! Secrets of a request in its answer: a server may repeat a key that it refuses.
//!
//! Takes: the headers of a request, and the answer. Gives: the answer with these values masked. Never: changes the length
//! of a body or the ends of its pieces.

use super::target::Target;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue};
use std::time::Duration;

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
            let bare = scheme.and_then(|end| value.get(end..)).map(<[u8]>::trim_ascii);
            all.extend(bare.map(<[u8]>::to_vec));
        }
        all.retain(|value| value.len() >= SHORTEST);
        Self(all)
    }

    /// Masks the secrets in the values of headers.
    pub(super) fn mask_headers(&self, headers: &mut HeaderMap) {
        for value in headers.values_mut() {
            if self.0.iter().any(|secret| memchr::memmem::find(value.as_bytes(), secret).is_some()) {
                *value = HeaderValue::from_static(REDACTED);
            }
        }
    }

    /// Masks the secrets in the pieces of a body, also where two pieces share one.
    pub(super) fn mask_body(&self, pieces: &mut [(Duration, Bytes)]) {
        if self.0.is_empty() {
            return;
        }
        let mut body: Vec<u8> = pieces.iter().flat_map(|(_, piece)| piece.iter().copied()).collect();
        let mut is_masked = false;
        for secret in &self.0 {
            let places: Vec<usize> = memchr::memmem::find_iter(&body, secret).collect();
            is_masked |= !places.is_empty();
            for at in places {
                body.iter_mut().skip(at).take(secret.len()).for_each(|byte| *byte = MASK);
            }
        }
        if !is_masked {
            return;
        }
        let mut rest = Bytes::from(body);
        for (_, piece) in pieces {
            *piece = rest.split_to(piece.len());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_repeats_is_masked() {
        let target = Target::new("http://a", None, &["authorization: Bearer sk-CANARY1".to_owned()]).unwrap();
        let secrets = Secrets::of(&target);
        let mut headers = HeaderMap::new();
        headers.insert("x-echo", HeaderValue::from_static("key sk-CANARY1"));
        headers.insert("x-other", HeaderValue::from_static("a"));
        secrets.mask_headers(&mut headers);
        assert_eq!(
            (&headers["x-echo"], &headers["x-other"]),
            (&"[redacted]".parse().unwrap(), &"a".parse().unwrap())
        );
        let mut pieces = [
            (Duration::ZERO, Bytes::from_static(b"no key sk-CAN")),
            (Duration::ZERO, Bytes::from_static(b"ARY1 here")),
        ];
        secrets.mask_body(&mut pieces);
        assert_eq!((&pieces[0].1[..], &pieces[1].1[..]), (&b"no key ******"[..], &b"**** here"[..]));
    }
}
